//! Compressed bytes to pixels: our region decoder for JPEG, well-kept decoders for what it does not know.

mod codecs;
mod fallback;
mod header;
mod jpeg;
mod mask;
mod npy;
pub(crate) mod nvjpeg;
mod planes;

pub use codecs::Backend;
pub(crate) use codecs::{DecodedBy, Format};
pub(crate) use header::Process;
pub use header::{JpegHeader, parse_header};
pub(crate) use mask::Mask;
pub(crate) use npy::{NpyArray, Number};

use codecs::Choose;

use crate::error::DecodeError;
use crate::simd::Level;

/// A rectangle of image pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Left edge.
    pub x: u32,
    /// Top edge.
    pub y: u32,
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
}

impl Region {
    /// The smallest rectangle that holds both.
    pub fn union(self, other: Self) -> Self {
        let along = |start: u32, length: u32, start_b: u32, length_b: u32| {
            let first = start.min(start_b);
            (first, (start + length).max(start_b + length_b) - first)
        };
        let (x, width) = along(self.x, self.width, other.x, other.width);
        let (y, height) = along(self.y, self.height, other.y, other.height);
        Self { x, y, width, height }
    }
}

/// What the planes mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColorModel {
    /// One plane.
    Gray,
    #[default]
    /// Y, Cb, Cr as JFIF defines them (full range); Cb and Cr may be subsampled.
    YCbCr,
    /// Three planes of full resolution.
    Rgb,
}

/// One component's 8-bit samples over (at least) the asked region.
///
/// Sample (x, y) of the whole component lies at `data[(y - y0) * stride + (x - x0)]` for x in x0..x0+width and y in
/// y0..y0+height. At least 64 bytes after the last sample may be read.
#[derive(Debug, Clone, Default)]
pub struct Plane {
    /// The samples, row by row.
    pub data: Vec<u8>,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Component column of the first stored sample.
    pub x0: u32,
    /// Component row of the first stored sample.
    pub y0: u32,
    /// Stored columns.
    pub width: u32,
    /// Stored rows.
    pub height: u32,
    /// Columns of the whole component: ceil(image width / step_x).
    pub full_width: u32,
    /// Rows of the whole component: ceil(image height / step_y).
    pub full_height: u32,
    /// Image columns one sample spans: 1, 2 or 4.
    pub step_x: u32,
    /// Image rows one sample spans: 1, 2 or 4.
    pub step_y: u32,
}

/// The decoded region of an image; a scratch buffer its owner reuses from image to image.
///
/// Covers the asked region; of subsampled components one more sample on each side (where the image has it), which
/// chroma upsampling needs.
#[derive(Debug, Clone, Default)]
pub struct Planes {
    /// Width of the whole image in pixels.
    pub image_width: u32,
    /// Height of the whole image in pixels.
    pub image_height: u32,
    /// What the planes mean; `Gray` uses only the first.
    pub color: ColorModel,
    /// The components.
    pub planes: [Plane; 3],
}

/// What happens to a JPEG with damage inside its entropy-coded data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Damaged {
    /// It is refused.
    Refuse,
    /// It gives the samples that libjpeg-turbo gives as Pillow and torchvision call it; what they refuse is refused:
    /// files that are cut short above all. Kinds that only the fallback decoder knows (CMYK, odd sampling) are refused
    /// nevertheless, and so are files with damaged headers.
    #[default]
    Conceal,
}

/// What [`Decoder::decode`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The region that was asked for.
    pub region: Region,
    /// Who decoded it.
    pub backend: Backend,
    /// What is damaged and was concealed, if there was any damage where the region, or what had to be read before it,
    /// lies.
    pub concealed: Option<String>,
}

impl Decoded {
    /// A region that `backend` decoded, of an image without damage.
    fn by(backend: Backend) -> impl Fn(Region) -> Self {
        move |region| Self { region, backend, concealed: None }
    }
}

/// Decodes one image after another; owns the tables and scratch memory. One per thread.
///
/// Its scratch memory, and that of [`Planes`], grows with the images, outside of the pools that the setting `memory`
/// bounds: a few MB, or up to about twice the size of a huge image (the fallback decoders' working memory on top, or
/// the coefficients of a damaged image of several scans), which is given back with the next image of normal size.
///
/// EXIF orientation is ignored, as Pillow and torchvision ignore it by default.
#[derive(Debug)]
pub struct Decoder {
    max_pixels: u64,
    level: Level,
    damaged: Damaged,
    jpeg: jpeg::Jpeg,
}

impl Decoder {
    /// A decoder that refuses images of more than `max_pixels` pixels, and damaged ones.
    pub fn new(max_pixels: u64) -> Self {
        Self::with_level(max_pixels, Level::detect())
    }

    /// As [`Decoder::new`], with the instructions of `level`, which the processor must have: for tests and benches,
    /// which compare levels.
    pub fn with_level(max_pixels: u64, level: Level) -> Self {
        assert!(Level::available().any(|available| available == level), "{} is not available", level.name());
        Self { max_pixels, level, damaged: Damaged::Refuse, jpeg: jpeg::Jpeg::default() }
    }

    /// This decoder, treating damaged JPEGs so.
    pub fn with_damaged(self, damaged: Damaged) -> Self {
        Self { damaged, ..self }
    }

    /// Decodes the region that `choose` picks from the image's (width, height) into `out`.
    ///
    /// `choose` is called once, after the header was parsed. Its region must lie inside the image. The result depends
    /// on `bytes` and the region alone. A file must be whole, up to its end marker, whatever the region; damage inside
    /// its entropy-coded data is noticed where the region, or what must be read before it, is damaged.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` then holds no meaningful pixels.
    ///
    /// # Panics
    /// If the region is empty or leaves the image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        choose: impl FnOnce(u32, u32) -> Region,
        out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        let limit = self.max_pixels;
        let mut choose = Some(choose);
        let mut choose = |width: u32, height: u32| {
            if u64::from(width) * u64::from(height) > limit {
                return Err(DecodeError::TooLarge { width, height, limit });
            }
            let choose = choose.take().expect("a codec asks for the region once");
            let region = choose(width, height);
            let inside = |start: u32, length: u32, full: u32| {
                length > 0 && start.checked_add(length).is_some_and(|end| end <= full)
            };
            assert!(
                inside(region.x, region.width, width) && inside(region.y, region.height, height),
                "{region:?} of an image of {width}×{height}"
            );
            Ok(region)
        };
        (Format::of(bytes)?.decode)(self, bytes, &mut choose, out)
    }

    fn jpeg(&mut self, bytes: &[u8], choose: Choose<'_>, out: &mut Planes) -> Result<Decoded, DecodeError> {
        self.jpeg.decode(bytes, self.level, self.damaged, choose, out)
    }
}

/// Columns and rows of an image, by its header.
///
/// # Errors
/// [`DecodeError`] where there is none that can be read.
pub(crate) fn image_size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    (Format::of(bytes)?.size)(bytes)
}
