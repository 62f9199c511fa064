//! The table of codecs: which image formats are decoded, and by which decoder. A new codec is a row of the table and a
//! file in this directory.

pub(super) mod png;
mod webp;

use std::ops::{AddAssign, Index, IndexMut};

use super::exif::Metadata;
use super::{Decoded, Decoder, Planes, Region, jpeg};
use base::error::{DecodeError, git_lfs_pointer};

/// Callback that a codec calls once, with the image's width and height, before it allocates memory for the pixels.
/// Returns the wanted region, or an error if the image is too large.
pub(super) type ChooseRegion<'a> = &'a mut dyn FnMut(u32, u32) -> Result<Region, DecodeError>;

type Size = Result<(u32, u32), DecodeError>;

/// A kind of image file.
#[derive(Debug)]
pub struct Format {
    /// The format's name in messages.
    pub name: &'static str,
    is: fn(&[u8]) -> bool,
    pub(super) size: fn(&[u8]) -> Size,
    pub(super) metadata: fn(&[u8]) -> Metadata<'_>,
    pub(super) decode: fn(&mut Decoder, &[u8], ChooseRegion<'_>, &mut Planes) -> Result<Decoded, DecodeError>,
}

static FORMATS: &[Format] = &[
    Format {
        name: "JPEG",
        is: jpeg::is,
        size: jpeg::size,
        metadata: jpeg::metadata,
        decode: |decoder, bytes, choose, out| {
            let by = (decoder.level, decoder.damaged);
            decoder.jpeg.decode(bytes, jpeg::RowPositions::None, by, choose, out)
        },
    },
    Format {
        name: "JPEG",
        is: jpeg::indexed::is_indexed,
        size: jpeg::indexed::size,
        metadata: jpeg::indexed::metadata,
        decode: |decoder, bytes, choose, out| {
            let by = (decoder.level, decoder.damaged);
            jpeg::indexed::decode(&mut decoder.jpeg, bytes, by, choose, out)
        },
    },
    Format {
        name: "JPEG",
        is: jpeg::packed::is_packed,
        size: jpeg::packed::size,
        metadata: jpeg::packed::metadata,
        decode: |decoder, bytes, choose, out| jpeg::packed::decode(bytes, None, decoder.level, choose, out),
    },
    Format {
        name: "PNG",
        is: png::is,
        size: png::size,
        metadata: png::metadata,
        decode: |decoder, bytes, choose, out| png::decode(bytes, decoder.max_pixels, choose, out),
    },
    Format {
        name: "WebP",
        is: webp::is,
        size: webp::size,
        metadata: webp::metadata,
        decode: |_, bytes, choose, out| webp::decode(bytes, choose, out),
    },
];

impl Format {
    /// Finds the format of a file by its signature, without reading further.
    ///
    /// # Errors
    /// [`DecodeError::NotAnImage`] if no codec supports the file.
    pub fn of(bytes: &[u8]) -> Result<&'static Self, DecodeError> {
        FORMATS.iter().find(|format| (format.is)(bytes)).ok_or_else(|| not_an_image(bytes))
    }
}

/// A decoder that runs on the CPU. Several decoders can support one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Foreload's region decoder for JPEG.
    Region,
    /// Foreload's region decoder for indexed JPEGs, which uses their index.
    Indexed,
    /// Foreload's region decoder for packed JPEGs.
    Packed,
    /// The crate png, which decodes whole images.
    Png,
    /// The crate image-webp, which decodes whole images.
    WebP,
}

impl Backend {
    /// All decoders, each at the index of its discriminant.
    pub const ALL: [Self; 5] = [Self::Region, Self::Indexed, Self::Packed, Self::Png, Self::WebP];

    /// The decoder's name in statistics, such as `region` in `decoded_region`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Indexed => "indexed",
            Self::Packed => "packed",
            Self::Png => "png",
            Self::WebP => "webp",
        }
    }

    /// The decoder's name in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Region => "region decoder",
            Self::Indexed => "region decoder with index",
            Self::Packed => "decoder of packed JPEGs",
            Self::Png => "png",
            Self::WebP => "image-webp",
        }
    }
}

/// The number of images that each CPU decoder decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeCounts([u64; Backend::ALL.len()]);

impl DecodeCounts {
    /// Makes the counts by calling `count` for each decoder.
    pub fn counted(count: impl Fn(Backend) -> u64) -> Self {
        Self(Backend::ALL.map(count))
    }

    /// Each decoder with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Backend, u64)> {
        Backend::ALL.into_iter().zip(self.0)
    }

    /// The number of images that were decoded on the CPU: the sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<Backend> for DecodeCounts {
    type Output = u64;

    fn index(&self, backend: Backend) -> &u64 {
        &self.0[backend as usize]
    }
}

impl IndexMut<Backend> for DecodeCounts {
    fn index_mut(&mut self, backend: Backend) -> &mut u64 {
        &mut self.0[backend as usize]
    }
}

impl AddAssign for DecodeCounts {
    fn add_assign(&mut self, more: Self) {
        for (backend, count) in more.iter() {
            self[backend] += count;
        }
    }
}

pub(super) fn not_an_image(bytes: &[u8]) -> DecodeError {
    let (last, others) = FORMATS.split_last().expect("some image can be decoded");
    let mut others: Vec<&str> = others.iter().map(|format| format.name).collect();
    // The formats of indexed and packed files are also named "JPEG"; list that name once.
    others.dedup();
    let formats = format!("a {} or {} image", others.join(", "), last.name);
    DecodeError::NotAnImage(format!("{formats}: {}", describe_first_bytes(bytes)))
}

pub(super) fn describe_first_bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "is empty".into();
    }
    if let Some(why) = git_lfs_pointer(bytes) {
        return why.to_owned();
    }
    let first = &bytes[..bytes.len().min(16)];
    if first.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        format!("starts with {:?}", String::from_utf8_lossy(first))
    } else {
        format!("starts with bytes {first:02x?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decoder_stands_at_its_number_with_names_of_its_own() {
        for (number, backend) in Backend::ALL.into_iter().enumerate() {
            assert_eq!(backend as usize, number, "{backend:?}");
            let others = || Backend::ALL.into_iter().filter(|other| *other != backend);
            assert!(others().all(|other| other.name() != backend.name() && other.title() != backend.title()));
        }
    }

    #[test]
    fn counts_add_up() {
        let mut counts = DecodeCounts::counted(|backend| 10 + backend as u64);
        counts[Backend::Png] += 5;
        counts += DecodeCounts::counted(|_| 1);
        assert_eq!((counts[Backend::Region], counts[Backend::Packed], counts[Backend::Png]), (11, 13, 19));
        assert_eq!(counts.total(), counts.iter().map(|(_, count)| count).sum::<u64>());
    }

    #[test]
    fn a_file_is_of_one_format() {
        for bytes in [&b"\xFF\xD8\xFF\xE0"[..], b"\x89PNG\r\n\x1a\n....", b"RIFF....WEBPVP8 "] {
            assert_eq!(FORMATS.iter().filter(|format| (format.is)(bytes)).count(), 1);
        }
    }

    #[test]
    fn what_is_no_image_is_named_by_its_beginning() {
        let message = |bytes: &[u8]| Format::of(bytes).unwrap_err().to_string();
        assert_eq!(
            message(b"<!DOCTYPE html>"),
            r#"not a JPEG, PNG or WebP image: starts with "<!DOCTYPE html>""#
        );
        let pointer = message(b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\n");
        assert!(pointer.starts_with("not a JPEG, PNG or WebP image: is a Git LFS pointer"), "{pointer}");
        assert!(pointer.contains("git lfs pull"));
        assert_eq!(message(b""), "not a JPEG, PNG or WebP image: is empty");
        assert_eq!(message(&[0, 1]), "not a JPEG, PNG or WebP image: starts with bytes [00, 01]");
    }
}
