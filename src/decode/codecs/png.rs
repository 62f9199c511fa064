//! PNG files, decoded as a whole to gray or RGB of 8 bits, which of 16 are the upper ones. Alpha is dropped as Pillow's
//! `convert("RGB")` drops it.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use super::{Backend, Choose};
use crate::decode::guarded::guarded;
use crate::decode::{ColorModel, Decoded, Planes};
use crate::error::DecodeError;

/// Whether a file is a PNG, by its signature.
pub(in crate::decode) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x89PNG\r\n\x1a\n")
}

/// Reads the columns and rows from the header.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    guarded(|| {
        let mut decoder = Decoder::new(Cursor::new(bytes));
        let info = decoder.read_header_info();
        let info = info.map_err(|error| DecodeError::Corrupt(format!("PNG: {error}")))?;
        Ok((info.width, info.height))
    })
}

/// Decodes the region of the image that `choose` picks into `out`.
pub(super) fn decode(
    bytes: &[u8],
    max_pixels: u64,
    choose: Choose<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    let corrupt = |error: DecodingError| DecodeError::Corrupt(format!("PNG: {error}"));
    // This bounds rows; the image itself is bounded by `choose`, which refuses large ones.
    let limits = Limits { bytes: usize::try_from(max_pixels.saturating_mul(8)).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    // Profiles and texts are not needed, and a small file may unpack to a large one.
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_ignore_text_chunk(true);
    let (size, narrowed) = guarded(|| {
        let info = decoder.read_header_info().map_err(corrupt)?;
        let is_gray = matches!(info.color_type, ColorType::Grayscale | ColorType::GrayscaleAlpha);
        Ok(((info.width, info.height), is_gray && info.bit_depth == BitDepth::Sixteen))
    })?;
    let region = choose(size.0, size.1)?;
    let (image, kind) = guarded(|| {
        let mut reader = decoder.read_info().map_err(corrupt)?;
        let bytes = reader
            .output_buffer_size()
            .ok_or_else(|| DecodeError::Corrupt("PNG: does not fit in memory".into()))?;
        let mut image = vec![0; bytes];
        reader.next_frame(&mut image).map_err(corrupt)?;
        // The rest is read so that a truncated file is noticed.
        reader.finish().map_err(corrupt)?;
        Ok((image, reader.output_color_type()))
    })?;
    match kind {
        (ColorType::Grayscale, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Gray, |&[gray]: &[u8; 1]| [gray]);
        }
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Gray, |&[gray, _]| [gray]);
        }
        (ColorType::Rgb, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Rgb, |&rgb: &[u8; 3]| rgb);
        }
        (ColorType::Rgba, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Rgb, |&[r, g, b, _]| [r, g, b]);
        }
        other => return Err(DecodeError::Unsupported(format!("PNG of {other:?}"))),
    }
    Ok(Decoded { narrowed, ..Decoded::by(Backend::Png)(region) })
}
