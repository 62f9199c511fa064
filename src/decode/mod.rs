//! Compressed bytes to pixels: our region decoder for baseline JPEG, well-kept decoders for the rest.

use crate::error::DecodeError;

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

/// Which decoder made the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Our region decoder.
    Region,
    /// zune-jpeg, whole image.
    Zune,
    /// png, whole image.
    Png,
}

/// What [`Decoder::decode`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// The region that was asked for.
    pub region: Region,
    /// Who decoded it.
    pub backend: Backend,
}

/// Decodes one image after another; owns the tables and scratch memory. One per thread.
pub struct Decoder {}

impl Decoder {
    /// A decoder that refuses images of more than `max_pixels` pixels.
    pub fn new(_max_pixels: u64) -> Self {
        todo!()
    }

    /// Decodes the region that `choose` picks from the image's (width, height) into `out`.
    ///
    /// `choose` is called once, after the header was parsed. Its region must lie inside the image.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` then holds no meaningful pixels.
    pub fn decode(
        &mut self,
        _bytes: &[u8],
        _choose: impl FnOnce(u32, u32) -> Region,
        _out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        todo!()
    }
}
