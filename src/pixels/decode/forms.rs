//! The forms in which the file of an image may be kept. Only decoders know what is in them: whoever else is handed
//! bytes of a sample learns here which form they have, and gets the file itself, checked.

use super::jpeg::packed::{self, Packer, Restorer};
use super::jpeg::{
    self,
    indexed::{self, Indexer},
};
use base::error::DecodeError;
use base::names::named;
use std::ops::Range;

/// Scratch memory beyond this many bytes is given back before a file that needs less.
const LARGE: usize = 4 << 20;

/// A form in which the file of an image is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileForm {
    /// The file as it is.
    AsIs,
    /// The file behind an index of its entropy-coded data, by which decoders jump to the rows that they want.
    Indexed,
    /// What the file codes, without its entropy coder.
    Packed,
}

named!(FileForm: "as-is" => AsIs, "indexed" => Indexed, "packed" => Packed);

/// A form that has to be made of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MadeForm {
    /// [`FileForm::Indexed`].
    Indexed,
    /// [`FileForm::Packed`].
    Packed,
}

impl FileForm {
    /// What has to be made of a file to keep it in this form; `None` if the file itself is that.
    pub const fn made(self) -> Option<MadeForm> {
        match self {
            Self::AsIs => None,
            Self::Indexed => Some(MadeForm::Indexed),
            Self::Packed => Some(MadeForm::Packed),
        }
    }
}

impl From<MadeForm> for FileForm {
    fn from(form: MadeForm) -> Self {
        match form {
            MadeForm::Indexed => Self::Indexed,
            MadeForm::Packed => Self::Packed,
        }
    }
}

/// The reason for which a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kept {
    /// It is no JPEG.
    NotJpeg,
    /// It is damaged, or was cut short.
    Damaged,
    /// It is of a kind that is not packed: CMYK, uneven sampling, arithmetic coding, 12 bits and so on.
    Kind,
    /// Its bytes do not follow from its coefficients.
    NotRestorable,
    /// It is so large an image that packing would take more memory than there is for it, or it codes so much in so few
    /// bytes that other forms would take far more of them.
    Large,
}

named!(Kept:
    "not_jpeg" => NotJpeg,
    "damaged" => Damaged,
    "kind" => Kind,
    "not_restorable" => NotRestorable,
    "large" => Large,
);

/// The form of `bytes`, by their signature alone. A file may begin like any of the forms: ask this only of bytes that
/// are known to be an image, or known to be made.
pub fn form_of(bytes: &[u8]) -> FileForm {
    if packed::is_packed(bytes) {
        FileForm::Packed
    } else if indexed::is_indexed(bytes) {
        FileForm::Indexed
    } else {
        FileForm::AsIs
    }
}

/// The bytes at the start of a file, or of what was made of it, by which it is known.
pub const SIGNATURE: usize = 8;

/// Whether bytes that begin so may have another form, or have one already.
pub fn is_convertible(start: &[u8]) -> bool {
    jpeg::is(start) || form_of(start) != FileForm::AsIs
}

/// The number of bytes of the file that `bytes` of any form were made of.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head; [`DecodeError::Unsupported`] for a file of 4 GiB or more.
pub fn original_length(bytes: &[u8]) -> Result<u32, DecodeError> {
    match form_of(bytes) {
        FileForm::AsIs => u32::try_from(bytes.len())
            .map_err(|_| DecodeError::Unsupported("a file of 4 GiB or more".to_owned())),
        FileForm::Indexed => indexed::original_length(bytes),
        FileForm::Packed => packed::original_length(bytes),
    }
}

/// The range of `bytes` of any form in which the file lies as it is, unchecked; `None` if it has to be rebuilt.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head.
pub fn file_within(bytes: &[u8]) -> Result<Option<Range<usize>>, DecodeError> {
    match form_of(bytes) {
        FileForm::AsIs => Ok(Some(0..bytes.len())),
        FileForm::Indexed => indexed::file(bytes).map(Some),
        FileForm::Packed => Ok(None),
    }
}

/// Brings one file after another into a form. It owns the scratch memory; each thread has one.
#[derive(Debug, Default)]
pub struct FormMaker {
    indexer: Indexer,
    packer: Packer,
}

impl FormMaker {
    /// Makes one that keeps an image as it is where its form would take more than about so many bytes of memory.
    pub fn with_memory(bytes: usize) -> Self {
        Self { packer: Packer::default().with_memory(bytes), indexer: Indexer::default() }
    }

    /// Writes `file` in the form `form` to `out`, whose old bytes are dropped. It gives the file back byte for byte,
    /// and decodes to the same samples.
    ///
    /// # Errors
    /// The reason for which the file is better kept as it is; `out` then holds nothing.
    pub fn make(&mut self, form: MadeForm, file: &[u8], out: &mut Vec<u8>) -> Result<(), Kept> {
        match form {
            MadeForm::Indexed => self.indexer.index(file, out),
            MadeForm::Packed => self.packer.pack(file, out),
        }
    }
}

/// Where the file is that bytes were made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoredFile<'a> {
    /// It is this range of the bytes.
    Within(Range<usize>),
    /// It was rebuilt from the bytes and lies apart from them.
    Apart(&'a [u8]),
}

/// Gives back the files that bytes of any form were made of, one after another. It owns the scratch memory; each thread
/// has one.
#[derive(Debug, Default)]
pub struct FileRestorer {
    restorer: Restorer,
    file: Vec<u8>,
}

impl FileRestorer {
    /// Finds the file that `bytes` of this form were made of, or rebuilds it, and checks it. A file that is kept as it
    /// is has nothing to be checked by.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes, and those of another form.
    pub fn find(&mut self, form: FileForm, bytes: &[u8]) -> Result<RestoredFile<'_>, DecodeError> {
        Ok(match form {
            FileForm::AsIs => RestoredFile::Within(0..bytes.len()),
            FileForm::Indexed => RestoredFile::Within(indexed::checked_file(bytes)?),
            FileForm::Packed => {
                if bytes.len() < LARGE {
                    self.file.clear();
                    self.file.shrink_to(LARGE);
                }
                self.restorer.restore(bytes, &mut self.file)?;
                RestoredFile::Apart(&self.file)
            }
        })
    }

    /// The file that `bytes` of this form were made of, like [`FileRestorer::find`].
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes, and those of another form.
    pub fn restore<'a>(&'a mut self, form: FileForm, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        Ok(match self.find(form, bytes)? {
            RestoredFile::Within(range) => &bytes[range],
            RestoredFile::Apart(file) => file,
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
        let (file, mut maker, mut restorer) = (jpeg(), FormMaker::default(), FileRestorer::default());
        for (name, form) in FileForm::NAMES {
            let mut bytes = file.clone();
            if let Some(made) = form.made() {
                maker.make(made, &file, &mut bytes).unwrap();
            }
            assert_eq!(form_of(&bytes), *form, "{name}");
            assert_eq!(original_length(&bytes).unwrap() as usize, file.len(), "{name}");
            assert!(restorer.restore(*form, &bytes).unwrap() == file, "{name}");
            let is_within = matches!(restorer.find(*form, &bytes), Ok(RestoredFile::Within(_)));
            assert_eq!(is_within, *form != FileForm::Packed, "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_given_back_is_an_error() {
        let (file, mut maker, mut restorer) = (jpeg(), FormMaker::default(), FileRestorer::default());
        for made in FileForm::NAMES.iter().filter_map(|(_, form)| form.made()) {
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
