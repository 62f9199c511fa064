//! The storage formats of an image file: as it is, indexed or packed. This module recognises the formats, and converts
//! files to and from them. Restoring an indexed or packed file verifies the checksum of the original file.
//!
//! Only decoders interpret the bytes of a storage format. All other code uses this module.

use super::jpeg::packed::{self, Packer, Restorer};
use super::jpeg::{
    self,
    indexed::{self, Indexer},
};
use base::error::DecodeError;
use base::names::named;
use std::ops::Range;

/// Before a converted file of fewer bytes than this is restored, scratch memory beyond this many bytes is freed, so
/// that one large file does not keep it.
const LARGE: usize = 4 << 20;

/// A storage format of an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageFormat {
    /// The original file.
    AsIs,
    /// The original file, preceded by an index of its entropy-coded data. The index lets decoders jump to the rows that
    /// they need.
    Indexed,
    /// The coefficients of a JPEG without its entropy coder.
    Packed,
}

named!(StorageFormat: "as-is" => AsIs, "indexed" => Indexed, "packed" => Packed);

/// A storage format that is made from the original file: indexed or packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvertedFormat {
    /// [`StorageFormat::Indexed`].
    Indexed,
    /// [`StorageFormat::Packed`].
    Packed,
}

impl StorageFormat {
    /// The conversion that makes this format; `None` for the original file.
    pub const fn made(self) -> Option<ConvertedFormat> {
        match self {
            Self::AsIs => None,
            Self::Indexed => Some(ConvertedFormat::Indexed),
            Self::Packed => Some(ConvertedFormat::Packed),
        }
    }
}

impl From<ConvertedFormat> for StorageFormat {
    fn from(form: ConvertedFormat) -> Self {
        match form {
            ConvertedFormat::Indexed => Self::Indexed,
            ConvertedFormat::Packed => Self::Packed,
        }
    }
}

/// The reason why a file is not converted but kept as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeepReason {
    /// The file is not a JPEG.
    NotJpeg,
    /// The file is damaged or truncated.
    Damaged,
    /// The file is a JPEG of a kind that is not converted: CMYK, uneven sampling, arithmetic coding, 12 bits and so on.
    Kind,
    /// The file's bytes cannot be reproduced from its coefficients.
    NotRestorable,
    /// Converting the image would take more memory than allowed, or the result would be far larger than the file.
    Large,
}

named!(KeepReason:
    "not_jpeg" => NotJpeg,
    "damaged" => Damaged,
    "kind" => Kind,
    "not_restorable" => NotRestorable,
    "large" => Large,
);

/// The storage format of `bytes`, by their signature alone. Any file can begin with such a signature: call this only
/// for bytes that are known to be an image or a converted file.
pub fn storage_format_of(bytes: &[u8]) -> StorageFormat {
    if packed::is_packed(bytes) {
        StorageFormat::Packed
    } else if indexed::is_indexed(bytes) {
        StorageFormat::Indexed
    } else {
        StorageFormat::AsIs
    }
}

/// The number of bytes at the start of a file, in any storage format, that identify it.
pub const SIGNATURE: usize = 8;

/// Whether a file that begins with `start` is a JPEG in any storage format, and so might be converted to another
/// format.
pub fn is_convertible(start: &[u8]) -> bool {
    jpeg::is(start) || storage_format_of(start) != StorageFormat::AsIs
}

/// Returns the length in bytes of the original file. `bytes` is the file in any storage format.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head; [`DecodeError::Unsupported`] for a file of 4 GiB or more.
pub fn original_length(bytes: &[u8]) -> Result<u32, DecodeError> {
    match storage_format_of(bytes) {
        StorageFormat::AsIs => u32::try_from(bytes.len())
            .map_err(|_| DecodeError::Unsupported("a file of 4 GiB or more".to_owned())),
        StorageFormat::Indexed => indexed::original_length(bytes),
        StorageFormat::Packed => packed::original_length(bytes),
    }
}

/// Returns the range of `bytes` that is the original file, without verifying its checksum. `bytes` is the file in any
/// storage format. Returns `None` if the file has to be rebuilt.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head.
pub fn original_range(bytes: &[u8]) -> Result<Option<Range<usize>>, DecodeError> {
    match storage_format_of(bytes) {
        StorageFormat::AsIs => Ok(Some(0..bytes.len())),
        StorageFormat::Indexed => indexed::file(bytes).map(Some),
        StorageFormat::Packed => Ok(None),
    }
}

/// Converts one file after another to a storage format. Owns scratch memory, so each thread has its own converter.
#[derive(Debug, Default)]
pub struct FormatConverter {
    indexer: Indexer,
    packer: Packer,
}

impl FormatConverter {
    /// Makes a converter that keeps an image as it is if packing would take more than about this many bytes of memory.
    pub fn with_memory(bytes: usize) -> Self {
        Self { packer: Packer::default().with_memory(bytes), indexer: Indexer::default() }
    }

    /// Converts `file` to the storage format `form`, into `out`, whose old bytes are dropped. The result restores to
    /// the same bytes and decodes to the same pixel values.
    ///
    /// # Errors
    /// The reason why the file must be kept as it is; `out` is then empty.
    pub fn make(&mut self, form: ConvertedFormat, file: &[u8], out: &mut Vec<u8>) -> Result<(), KeepReason> {
        match form {
            ConvertedFormat::Indexed => self.indexer.index(file, out),
            ConvertedFormat::Packed => self.packer.pack(file, out),
        }
    }
}

/// The location of a restored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoredFile<'a> {
    /// The file is this range of the input bytes.
    InPlace(Range<usize>),
    /// The file was rebuilt in this separate buffer.
    Rebuilt(&'a [u8]),
}

/// Restores original files from bytes in any storage format. Owns scratch memory, so each thread has its own restorer.
#[derive(Debug, Default)]
pub struct FileRestorer {
    restorer: Restorer,
    file: Vec<u8>,
}

impl FileRestorer {
    /// Finds or rebuilds the original file of `bytes`, which are in this storage format, and verifies it. A file that
    /// is kept as it is has no checksum to verify.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes, and for bytes in another format.
    pub fn find(&mut self, form: StorageFormat, bytes: &[u8]) -> Result<RestoredFile<'_>, DecodeError> {
        Ok(match form {
            StorageFormat::AsIs => RestoredFile::InPlace(0..bytes.len()),
            StorageFormat::Indexed => RestoredFile::InPlace(indexed::checked_file(bytes)?),
            StorageFormat::Packed => {
                if bytes.len() < LARGE {
                    self.file.clear();
                    self.file.shrink_to(LARGE);
                }
                self.restorer.restore(bytes, &mut self.file)?;
                RestoredFile::Rebuilt(&self.file)
            }
        })
    }

    /// Finds or rebuilds the original file of `bytes` with [`FileRestorer::find`], and returns its bytes.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes, and for bytes in another format.
    pub fn restore<'a>(&'a mut self, form: StorageFormat, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        Ok(match self.find(form, bytes)? {
            RestoredFile::InPlace(range) => &bytes[range],
            RestoredFile::Rebuilt(file) => file,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::names::NamedValue;
    use jpeg_encoder::{ColorType, Encoder};

    fn jpeg() -> Vec<u8> {
        let mut file = Vec::new();
        let pixels: Vec<u8> = (0..3 * 70 * 45).map(|i| (i * 37 % 251) as u8).collect();
        Encoder::new(&mut file, 80).encode(&pixels, 70, 45, ColorType::Rgb).unwrap();
        file
    }

    #[test]
    fn every_form_gives_the_file_back_and_says_how_long_it_is() {
        let (file, mut maker, mut restorer) = (jpeg(), FormatConverter::default(), FileRestorer::default());
        for (name, form) in StorageFormat::NAMES {
            let mut bytes = file.clone();
            if let Some(made) = form.made() {
                maker.make(made, &file, &mut bytes).unwrap();
            }
            assert_eq!(storage_format_of(&bytes), *form, "{name}");
            assert_eq!(original_length(&bytes).unwrap() as usize, file.len(), "{name}");
            assert!(restorer.restore(*form, &bytes).unwrap() == file, "{name}");
            let is_within = matches!(restorer.find(*form, &bytes), Ok(RestoredFile::InPlace(_)));
            assert_eq!(is_within, *form != StorageFormat::Packed, "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_given_back_is_an_error() {
        let (file, mut maker, mut restorer) = (jpeg(), FormatConverter::default(), FileRestorer::default());
        for made in StorageFormat::NAMES.iter().filter_map(|(_, form)| form.made()) {
            let mut bytes = Vec::new();
            maker.make(made, &file, &mut bytes).unwrap();
            for at in [3, 9, bytes.len() / 2, bytes.len() - 1] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x20;
                assert!(restorer.restore(made.into(), &damaged).is_err(), "{made:?}, byte {at}");
            }
            assert!(restorer.restore(made.into(), &bytes[..bytes.len() - 1]).is_err(), "{made:?}");
        }
    }
}
