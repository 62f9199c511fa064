//! Decodes image files to planes, one array of pixel values (samples) per colour component: a region decoder for JPEG,
//! and third-party decoders for PNG and WebP.
//!
//! - One table (`codecs/mod.rs`) lists the file formats and their decoders.
//! - `jpeg/` decodes only the wanted region of baseline and progressive files. Two storage formats of a JPEG make
//!   decoding cheaper: `jpeg/packed/` stores a JPEG without its entropy coder, `jpeg/indexed/` stores an index of its
//!   rows before the file.
//! - `forms.rs` is the only module that distinguishes storage formats, and converts files to and from them.
//! - On a GPU, `cuda/` launches Foreload's own kernels for packed and indexed images, and `nvjpeg/` decodes other
//!   JPEGs.

mod codecs;
pub mod cuda;
mod exif;
pub mod forms;
mod guarded;
mod header;
mod jpeg;
mod layout;
mod mask;
mod npy;
pub mod nvjpeg;
mod planes;
mod transpose;
mod turn;
mod upsampling;

pub use codecs::{Backend, DecodeCounts, Format};
pub use exif::{Orientation, orientation};
pub use forms::{
    ConvertedFormat, FileRestorer, FormatConverter, KeepReason, RestoredFile, SIGNATURE, StorageFormat,
    is_convertible, original_range, storage_format_of,
};
pub use header::{JpegHeader, Process, parse_header};
pub use jpeg::packed;
pub use jpeg::rows::RowStarts;
pub use layout::{PlaneLayout, PlanesLayout};
pub use mask::Mask;
pub use npy::{NpyArray, NpyHeader, NpyPrefix};
pub(crate) use transpose::STRIP;
pub use turn::Turn;
pub use upsampling::Upsampling;

use jpeg::RowPositions;

use base::error::DecodeError;
use base::names::named;
use base::parts::WantedBytes;
use base::simd::Level;

/// A rectangle of image pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The left edge.
    pub x: u32,
    /// The top edge.
    pub y: u32,
    /// The width in pixels, at least 1.
    pub width: u32,
    /// The height in pixels, at least 1.
    pub height: u32,
}

impl Region {
    /// The smallest rectangle that contains both regions.
    pub fn union(self, other: Self) -> Self {
        let along = |start: u32, length: u32, start_b: u32, length_b: u32| {
            let first = start.min(start_b);
            (first, (start + length).max(start_b + length_b) - first)
        };
        let (x, width) = along(self.x, self.width, other.x, other.width);
        let (y, height) = along(self.y, self.height, other.y, other.height);
        Self { x, y, width, height }
    }

    /// Panics if the region is empty or exceeds an image of this size.
    fn assert_inside(&self, width: u32, height: u32) {
        let inside = |start: u32, length: u32, full: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= full)
        };
        assert!(
            inside(self.x, self.width, width) && inside(self.y, self.height, height),
            "{self:?} of an image of {width}×{height}"
        );
    }
}

/// The colour model of an image: which colour component each plane holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorModel {
    /// One plane of grey levels.
    Gray,
    #[default]
    /// Y, Cb, Cr as JFIF defines them (full range); Cb and Cr may be subsampled.
    YCbCr,
    /// Red, green and blue at full resolution.
    Rgb,
}

/// The 8-bit values (samples) of one colour component, at least for the requested region.
///
/// Sample (x, y) of the whole component is at `data[(y - y0) * stride + (x - x0)]` for x in x0..x0+width and y in
/// y0..y0+height. At least 64 bytes after the last sample are readable.
#[derive(Debug, Clone, Default)]
pub struct Plane {
    /// The samples, row by row.
    pub data: Vec<u8>,
    /// The bytes from one row to the next.
    pub stride: usize,
    /// The column, in the component, of the first stored sample.
    pub x0: u32,
    /// The row, in the component, of the first stored sample.
    pub y0: u32,
    /// The number of stored columns.
    pub width: u32,
    /// The number of stored rows.
    pub height: u32,
    /// The columns of the whole component: ceil(image width / step_x).
    pub full_width: u32,
    /// The rows of the whole component: ceil(image height / step_y).
    pub full_height: u32,
    /// The image columns that one sample spans: 1, 2 or 4.
    pub step_x: u32,
    /// The image rows that one sample spans: 1, 2 or 4.
    pub step_y: u32,
}

/// The decoded region of an image, in buffers that the owner reuses for each image.
///
/// The planes cover the requested region. Subsampled components have one more sample on each side within the image,
/// because chroma upsampling reads it.
#[derive(Debug, Clone, Default)]
pub struct Planes {
    /// The width of the whole image in pixels.
    pub image_width: u32,
    /// The height of the whole image in pixels.
    pub image_height: u32,
    /// The colour model; `Gray` uses only the first plane.
    pub color: ColorModel,
    /// One plane for each colour component.
    pub planes: [Plane; 3],
}

/// Policy for JPEGs whose entropy-coded data is damaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Damaged {
    /// Refuse the file.
    Refuse,
    /// Decode the samples that libjpeg-turbo gives when Pillow and torchvision call it. Files that Pillow and
    /// torchvision refuse (above all truncated files) are refused, and so are files with damaged headers.
    #[default]
    Conceal,
}

named!(Damaged: "refuse" => Refuse, "conceal" => Conceal);

/// The result of [`Decoder::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The requested region.
    pub region: Region,
    /// The decoder that was used.
    pub backend: Backend,
    /// A description of the damage that was concealed, in the region or in the data that had to be read before it.
    pub concealed: Option<String>,
    /// Whether the file has 16-bit grey values, whose upper 8 bits were kept. Such values are rarely shades, so loaders
    /// warn.
    pub reduced_to_8_bits: bool,
    /// Whether decoding started at a position from [`RowStarts`].
    pub used_row_starts: bool,
}

impl Decoded {
    fn by(backend: Backend, region: Region) -> Self {
        Self { region, backend, concealed: None, reduced_to_8_bits: false, used_row_starts: false }
    }
}

/// A decoder with its tables and scratch memory, for one image after another. Each thread has its own.
///
/// The scratch memory of a decoder and the memory of [`Planes`] grow with the images, and the setting `memory` does not
/// limit them. They take a few MB, or up to about twice the size of a huge image; the next image of normal size frees
/// the excess. The working memory of third-party decoders, and the coefficients of a damaged image with several scans,
/// are additional.
///
/// Images are decoded as they are stored. [`orientation`] reads how they are turned, and the views of
/// [`DrawnViews`](crate::augment::DrawnViews) turn them.
#[derive(Debug)]
pub struct Decoder {
    max_pixels: u64,
    level: Level,
    damaged: Damaged,
    jpeg: jpeg::Jpeg,
}

impl Decoder {
    /// Makes a decoder that refuses damaged images and images of more than `max_pixels` pixels.
    pub fn new(max_pixels: u64) -> Self {
        Self::with_level(max_pixels, Level::detect())
    }

    /// Makes a decoder like [`Decoder::new`] that uses the instructions of `level`, for tests and benchmarks that
    /// compare levels.
    ///
    /// # Panics
    /// Panics if the processor lacks these instructions.
    pub fn with_level(max_pixels: u64, level: Level) -> Self {
        assert!(Level::available().any(|available| available == level), "{} is not available", level.name());
        Self { max_pixels, level, damaged: Damaged::Refuse, jpeg: jpeg::Jpeg::default() }
    }

    /// Sets the policy for damaged JPEGs.
    pub fn with_damaged(self, damaged: Damaged) -> Self {
        Self { damaged, ..self }
    }

    /// Decodes into `out` the region that `choose` picks from the image's (width, height).
    ///
    /// `choose` is called once, after the header was parsed. Its region must be inside the image. The result depends
    /// only on `bytes` and the region. A file must be complete, up to its end marker, whatever the region. Damage in
    /// the entropy-coded data is detected only in the region, or in the data that must be read before the region.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` then holds no meaningful pixels.
    ///
    /// # Panics
    /// Panics if the region is empty or exceeds the image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        choose: impl FnOnce(u32, u32) -> Region,
        out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        self.decode_parts(bytes, None, choose, out)
    }

    /// Decodes like [`Decoder::decode`], but if `parts` is given, uses only these bytes of the image. The other bytes
    /// need not have been read and can have any value.
    ///
    /// # Errors
    /// The errors of [`Decoder::decode`]; [`DecodeError::Corrupt`] if more bytes are needed than were read. Only packed
    /// images can be decoded from parts.
    ///
    /// # Panics
    /// Panics if the region is empty or exceeds the image.
    pub fn decode_parts(
        &mut self,
        bytes: &[u8],
        parts: Option<WantedBytes>,
        choose: impl FnOnce(u32, u32) -> Region,
        out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        let mut choose = self.checked(choose);
        match parts {
            None => (Format::of(bytes)?.decode)(self, bytes, &mut choose, out),
            Some(_) if storage_format_of(bytes) == StorageFormat::Packed => {
                packed::decode(bytes, parts, self.level, &mut choose, out)
            }
            Some(_) => {
                let message = "only a part of the image was read, because the dataset's index says that it is packed, \
                     but it is not: pack the dataset again";
                Err(DecodeError::Corrupt(message.to_owned()))
            }
        }
    }

    /// Decodes like [`Decoder::decode`], but starts at the first wanted row if `rows` has its position. Afterwards
    /// `rows` has the positions that decoding found. It is `None` if the file is damaged, or is not a JPEG whose rows
    /// can be found. A checksum detects that `rows` belongs to another file.
    ///
    /// # Errors
    /// The errors of [`Decoder::decode`].
    ///
    /// # Panics
    /// Panics if the region is empty or exceeds the image.
    pub fn decode_with_row_starts(
        &mut self,
        bytes: &[u8],
        rows: &mut Option<RowStarts>,
        choose: impl FnOnce(u32, u32) -> Region,
        out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        if jpeg::is(bytes) {
            let mut choose = self.checked(choose);
            return self.jpeg.decode(
                bytes,
                RowPositions::Found(rows),
                (self.level, self.damaged),
                &mut choose,
                out,
            );
        }
        *rows = None;
        self.decode(bytes, choose, out)
    }

    /// Makes a function that calls `choose` once, and that returns an error for an image that is too large.
    fn checked<C: FnOnce(u32, u32) -> Region>(
        &self,
        choose: C,
    ) -> impl FnMut(u32, u32) -> Result<Region, DecodeError> + use<C> {
        let limit = self.max_pixels;
        let mut choose = Some(choose);
        move |width: u32, height: u32| {
            if u64::from(width) * u64::from(height) > limit {
                return Err(DecodeError::TooLarge { width, height, limit });
            }
            let choose = choose.take().expect("a codec asks for the region once");
            let region = choose(width, height);
            region.assert_inside(width, height);
            Ok(region)
        }
    }
}

/// Reads the width and height of an image from its header.
///
/// # Errors
/// [`DecodeError`] if no header can be read.
pub fn image_size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    (Format::of(bytes)?.size)(bytes)
}
