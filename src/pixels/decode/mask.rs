//! Masks: PNG files whose values are class indices. Palette indices and 16-bit values stay unchanged. An image decoder
//! would turn them into colours and 8-bit shades.

use super::codecs::describe_first_bytes;
use super::codecs::png::{corrupt, decode_with_end_added, decoder, is as is_png, read_image};
use super::{Region, Turn};
use base::error::DecodeError;
use png::{BitDepth, ColorType, Transformations};

/// The values of a whole mask, row by row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mask {
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
    /// One value for each pixel, 0..=65535.
    pub values: Vec<u16>,
}

impl Mask {
    /// Decodes a PNG of one channel, grey or with a palette, of 1, 2, 4, 8 or 16 bits.
    ///
    /// # Errors
    /// [`DecodeError::Unsupported`] if the file is not a PNG or has several channels, [`DecodeError::TooLarge`] for
    /// more than `max_pixels`, [`DecodeError::Corrupt`] for a damaged file.
    pub fn decode(bytes: &[u8], max_pixels: u64) -> Result<Self, DecodeError> {
        if !is_png(bytes) {
            let message = format!("a mask must be a PNG, but this file {}", describe_first_bytes(bytes));
            return Err(DecodeError::Unsupported(message));
        }
        decode_with_end_added(bytes, |bytes| decode(bytes, max_pixels))
    }

    /// Turns the mask as its metadata says.
    #[must_use]
    pub fn turned(self, turn: Turn) -> Self {
        if turn == Turn::UPRIGHT {
            return self;
        }
        let (width, height) = turn.shown((self.width, self.height));
        let value = |at: u32| {
            let pixel = Region { x: at % width, y: at / width, width: 1, height: 1 };
            let Region { x, y, .. } = turn.stored_region(pixel, (width, height));
            self.values[y as usize * self.width as usize + x as usize]
        };
        Self { width, height, values: (0..width * height).map(value).collect() }
    }
}

fn decode(bytes: &[u8], max_pixels: u64) -> Result<Mask, DecodeError> {
    let mut decoder = decoder(bytes, max_pixels);
    decoder.set_transformations(Transformations::IDENTITY);
    let info = decoder.read_header_info().map_err(corrupt)?;
    let (width, height) = (info.width, info.height);
    if u64::from(width) * u64::from(height) > max_pixels {
        return Err(DecodeError::TooLarge { width, height, limit: max_pixels });
    }
    if !matches!(info.color_type, ColorType::Grayscale | ColorType::Indexed) {
        let message = format!(
            "a mask must have one channel with class numbers, but this PNG has {:?}",
            info.color_type
        );
        return Err(DecodeError::Unsupported(message));
    }
    let depth = info.bit_depth;
    let (packed, _) = read_image(decoder)?;
    let row = packed.len() / height.max(1) as usize;
    let rows = packed.chunks_exact(row.max(1)).take(height as usize);
    let values = rows.flat_map(|row| unpacked(row, depth).take(width as usize)).collect();
    Ok(Mask { width, height, values })
}

/// The values of a row. Values smaller than a byte are unpacked, starting with the highest bits.
fn unpacked(row: &[u8], depth: BitDepth) -> Box<dyn Iterator<Item = u16> + '_> {
    let small = |bits: u8| {
        let mask = (1u16 << bits) - 1;
        let shifts = move |byte: u8| (1..=8 / bits).map(move |n| u16::from(byte) >> (8 - bits * n) & mask);
        row.iter().flat_map(move |&byte| shifts(byte))
    };
    match depth {
        BitDepth::One => Box::new(small(1)),
        BitDepth::Two => Box::new(small(2)),
        BitDepth::Four => Box::new(small(4)),
        BitDepth::Eight => Box::new(row.iter().map(|&byte| u16::from(byte))),
        BitDepth::Sixteen => Box::new(row.as_chunks::<2>().0.iter().map(|&bytes| u16::from_be_bytes(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.set_palette([9; 3 * 16].to_vec());
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    #[test]
    fn values_stay_what_they_are() {
        let decode = |color, depth, data: &[u8]| Mask::decode(&file(color, depth, data), 6).unwrap().values;
        assert_eq!(decode(ColorType::Indexed, BitDepth::Eight, &[0, 1, 15, 3, 4, 5]), [0, 1, 15, 3, 4, 5]);
        assert_eq!(
            decode(ColorType::Indexed, BitDepth::Four, &[0x01, 0xF0, 0x34, 0x50]),
            [0, 1, 15, 3, 4, 5]
        );
        assert_eq!(
            decode(ColorType::Indexed, BitDepth::Two, &[0b00_01_11_00, 0b10_01_00_00]),
            [0, 1, 3, 2, 1, 0]
        );
        assert_eq!(
            decode(ColorType::Grayscale, BitDepth::One, &[0b0110_0000, 0b1010_0000]),
            [0, 1, 1, 1, 0, 1]
        );
        assert_eq!(
            decode(ColorType::Grayscale, BitDepth::Sixteen, &[0, 1, 255, 255, 1, 0, 0, 2, 0, 3, 0, 4]),
            [1, 65535, 256, 2, 3, 4]
        );
    }

    #[test]
    fn what_is_no_mask_is_refused() {
        let error = |bytes: &[u8], most| Mask::decode(bytes, most).unwrap_err().to_string();
        assert!(error(b"\xFF\xD8\xFF", 9).contains("must be a PNG"));
        assert!(error(&file(ColorType::Rgb, BitDepth::Eight, &[1; 18]), 9).contains("one channel"));
        let sound = file(ColorType::Grayscale, BitDepth::Eight, &[1; 6]);
        assert!(error(&sound, 5).contains("limit of 5 pixels"));
        assert!(error(&sound[..sound.len() - 30], 6).contains("corrupt"));
        // Only the end chunk is missing.
        assert_eq!(Mask::decode(&sound[..sound.len() - 12], 6).unwrap().values, [1; 6]);
    }
}
