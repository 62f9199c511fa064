//! Decodes by zune-jpeg the JPEGs that the region decoder does not know: CMYK and odd sampling ratios.
//!
//! zune-jpeg is used in its strict mode, since otherwise it fills in what a damaged file lacks. Stray bytes between
//! segments are an error then, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::header::JpegColorSpace;
use super::{ColorModel, Planes, Region};
use crate::error::DecodeError;

/// Runs a decoder that is not ours. If it panics on a file, that file is damaged, and nothing else happens.
///
/// `run` must leave nothing behind that a panic could leave half done.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("it panicked");
        Err(DecodeError::Corrupt(format!("the fallback decoder gave up: {message}")))
    })
}

/// Decodes the whole image of `size` (width, height) and keeps `region`.
pub(super) fn decode(
    bytes: &[u8],
    size: (u32, u32),
    color_space: JpegColorSpace,
    region: Region,
    out: &mut Planes,
) -> Result<(), DecodeError> {
    let (image, coded) = guarded(|| components(bytes, color_space))?;
    let channels = match color_space {
        JpegColorSpace::Gray => 1,
        JpegColorSpace::YCbCr | JpegColorSpace::Rgb => 3,
        JpegColorSpace::Cmyk | JpegColorSpace::Ycck => 4,
    };
    if image.len() != size.0 as usize * size.1 as usize * channels {
        return Err(DecodeError::Unsupported(format!("JPEG with components coded as {coded:?}")));
    }
    match color_space {
        JpegColorSpace::Gray => out.take(&image, size, region, ColorModel::Gray, |&[gray]| [gray]),
        JpegColorSpace::YCbCr | JpegColorSpace::Rgb => {
            out.take(&image, size, region, ColorModel::Rgb, |&rgb: &[u8; 3]| rgb)
        }
        JpegColorSpace::Cmyk => {
            out.take(&image, size, region, ColorModel::Rgb, |&[c, m, y, k]| paper([c, m, y], k))
        }
        JpegColorSpace::Ycck => out.take(&image, size, region, ColorModel::Rgb, |&[y, cb, cr, k]| {
            paper(ycc_to_rgb(y, cb, cr).map(|ink| 255 - ink), k)
        }),
    }
    Ok(())
}

/// Returns the components of the whole image, interleaved, and how they are coded. YCbCr comes as RGB, others come as
/// they are.
fn components(bytes: &[u8], color_space: JpegColorSpace) -> Result<(Vec<u8>, ColorSpace), DecodeError> {
    let corrupt = |error: DecodeErrors| DecodeError::Corrupt(error.to_string().trim_matches('"').to_owned());
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(corrupt)?;
    let coded = decoder.input_colorspace().ok_or_else(|| DecodeError::Corrupt("no image".into()))?;
    // If it is asked for the colours of the file, it hands out the components as they are.
    let target = match color_space {
        JpegColorSpace::Gray => ColorSpace::Luma,
        JpegColorSpace::YCbCr => ColorSpace::RGB,
        JpegColorSpace::Rgb | JpegColorSpace::Cmyk | JpegColorSpace::Ycck => coded,
    };
    decoder.set_options(options.jpeg_set_out_colorspace(target));
    let image = decoder.decode().map_err(corrupt)?;
    Ok((image, coded))
}

/// Converts stored cyan, magenta, yellow and black to red, green and blue as Pillow does. It takes them as inverted, as
/// Adobe's programs store them, and multiplies what ink and black leave of the light.
fn paper(stored: [u8; 3], black: u8) -> [u8; 3] {
    let light = u32::from(black);
    stored.map(|stored| {
        let product = u32::from(255 - stored) * light + 128;
        (light - ((product + (product >> 8)) >> 8).min(light)) as u8
    })
}

/// Converts colours as JFIF says, with libjpeg's rounding: factors of 16 fractional bits.
fn ycc_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let half = 1 << 15;
    [
        y + ((91881 * cr + half) >> 16),
        y + ((-22554 * cb - 46802 * cr + half) >> 16),
        y + ((116130 * cb + half) >> 16),
    ]
    .map(|value| value.clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_foreign_decoder_is_an_error_of_its_file() {
        let message = |run: fn() -> Result<(), DecodeError>| guarded(run).unwrap_err().to_string();
        assert!(message(|| panic!("index {} of {}", 3, 2)).ends_with("gave up: index 3 of 2"));
        assert!(message(|| panic!("no plan")).ends_with("gave up: no plan"));
        assert_eq!(guarded(|| Ok(7)).unwrap(), 7);
    }

    #[test]
    fn ink_on_paper_is_as_pillow_has_it() {
        // Expected are the values of Pillow 12: Image.new("CMYK", (1, 1), (255 - c, 255 - m, 255 - y, 255 -
        // k)).convert("RGB").
        assert_eq!(paper([255, 128, 0], 255), [255, 128, 0]);
        assert_eq!(paper([255, 128, 0], 100), [100, 50, 0]);
        assert_eq!(paper([200, 100, 50], 0), [0, 0, 0]);
    }

    #[test]
    fn colours_convert_as_jfif_says() {
        for (ycc, rgb) in
            [([0, 128, 128], [0; 3]), ([76, 85, 255], [254, 0, 0]), ([150, 44, 21], [0, 255, 1])]
        {
            assert_eq!(ycc_to_rgb(ycc[0], ycc[1], ycc[2]), rgb);
        }
    }
}
