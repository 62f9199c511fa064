//! JPEGs without their entropy coder: the same quantised coefficients in a form that vector units expand directly, from
//! which the file can be restored byte for byte.

use crate::error::DecodeError;
use crate::names::named;

/// What a packed image begins with.
const SIGNATURE: &[u8; 8] = b"\x8AFLPACK\x01";

/// Whether bytes are a packed image, by their signature.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// The number of bytes of the file that a packed image was made of.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head.
pub fn original_length(packed: &[u8]) -> Result<u32, DecodeError> {
    let _ = packed;
    Err(damaged())
}

/// The reason for which a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kept {
    /// It is no JPEG.
    NotJpeg,
    /// It is damaged.
    Damaged,
    /// It is of a kind that is not packed: CMYK, arithmetic coding, 12 bits and so on.
    Kind,
    /// Its coefficients do not determine its bytes.
    NotRestorable,
}

named!(Kept:
    "not_jpeg" => NotJpeg,
    "damaged" => Damaged,
    "kind" => Kind,
    "not_restorable" => NotRestorable,
);

/// Packs one file after another. It owns the scratch memory; each thread has one.
#[derive(Debug, Default)]
pub struct Packer {}

impl Packer {
    /// Makes a packer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the packed form of the JPEG `file` to `out`, whose old bytes are dropped. It is verified: it decodes, and
    /// `file` was restored from it byte for byte.
    ///
    /// # Errors
    /// The reason for which the file is better kept as it is; `out` then holds nothing.
    pub fn pack(&mut self, file: &[u8], out: &mut Vec<u8>) -> Result<(), Kept> {
        let _ = file;
        out.clear();
        Err(Kept::Kind)
    }
}

/// Restores the files that images were packed from. It owns the scratch memory; each thread has one.
#[derive(Debug, Default)]
pub struct Restorer {}

impl Restorer {
    /// Makes a restorer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the file that `packed` was made of to `out`, whose old bytes are dropped, and checks it.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes.
    pub fn restore(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let _ = packed;
        out.clear();
        Err(damaged())
    }
}

fn damaged() -> DecodeError {
    DecodeError::Corrupt("no packed image".into())
}
