//! The orientation in an image file's metadata, by which viewers rotate the image. Reading it decodes no pixels.

use super::Format;
use base::names::named;

/// Policy for images that are stored rotated or mirrored, according to their metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Orientation {
    /// Decode the images as they are stored.
    Ignore,
    /// Decode the images as they are stored, and warn about the first rotated or mirrored image.
    #[default]
    Warn,
    /// Turn the images upright.
    Apply,
}

named!(Orientation: "ignore" => Ignore, "warn" => Warn, "apply" => Apply);

/// Metadata of a file that may contain its orientation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Metadata<'a> {
    /// A TIFF structure without an image, with or without the prefix `Exif`.
    pub exif: Option<&'a [u8]>,
    pub xmp: Option<&'a [u8]>,
}

/// The EXIF orientation of an image file, 2 to 8, from the places where Pillow's `getexif` looks. `None` for an image
/// that is stored upright.
pub fn orientation(bytes: &[u8]) -> Option<u8> {
    let metadata = (Format::of(bytes).ok()?.metadata)(bytes);
    let orientation = metadata.exif.and_then(of_exif).or_else(|| metadata.xmp.and_then(of_xmp))?;
    (2..=8).contains(&orientation).then_some(orientation as u8)
}

fn of_exif(exif: &[u8]) -> Option<u32> {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let is_little = match tiff.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let number = |at: usize, bytes: usize| {
        let number = tiff.get(at..at.checked_add(bytes)?)?.iter();
        let sum = |sum: u32, &byte: &u8| sum << 8 | u32::from(byte);
        Some(if is_little { number.rev().fold(0, sum) } else { number.fold(0, sum) })
    };
    let directory = number(4, 4)? as usize;
    let mut entries = (0..number(directory, 2)? as usize).map(|entry| directory + 2 + 12 * entry);
    let entry = entries.find(|&entry| number(entry, 2) == Some(0x112))?;
    match number(entry + 2, 2)? {
        3 => number(entry + 8, 2),
        4 => number(entry + 8, 4),
        _ => None,
    }
}

/// The orientation in an XMP text, as an attribute or an element.
fn of_xmp(xmp: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"tiff:Orientation";
    xmp.windows(NAME.len() + 3).find(|text| text.starts_with(NAME)).and_then(|text| {
        let digit = match &text[NAME.len()..] {
            [b'=', b'"', digit] | [b'>', digit, _] => char::from(*digit),
            _ => return None,
        };
        digit.to_digit(10)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_read_in_either_order_of_bytes() {
        let little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        let big = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0";
        assert_eq!((of_exif(little), of_exif(big)), (Some(6), Some(8)));
        assert_eq!(of_xmp(br#"<x tiff:Orientation="3"/>"#), Some(3));
        assert_eq!(of_xmp(b"<tiff:Orientation>5</tiff:Orientation>"), Some(5));
        // Truncated and damaged metadata must not cause a panic.
        for exif in [&little[..], big] {
            for length in 0..exif.len() {
                of_exif(&exif[..length]);
                let mut flipped = exif.to_vec();
                flipped[length] ^= 0xFF;
                of_exif(&flipped);
            }
        }
    }
}
