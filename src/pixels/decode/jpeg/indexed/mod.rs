//! JPEGs as they are, behind an index of their entropy-coded data: decoding begins where it is wanted, and does not
//! step over what comes before. `docs/indexed-image.md` specifies the form.
//!
//! An indexed image is a head (`head.rs`) with the places in the file at which decoding can begin, and the file.
//! `make.rs` finds these places, and `region.rs` decodes from them; `plan.rs` says what a GPU must know for that. The
//! index is a hint: what it does not lead to is
//! decoded as if there was none.

mod head;
mod make;
mod plan;
mod region;
#[cfg(test)]
mod tests;

pub(in crate::decode) use self::head::{EntryPoint, IndexHead};
pub(in crate::decode) use self::make::Indexer;
pub(super) use self::plan::IndexedImage;
pub(super) use self::region::decode_from;

use super::{Jpeg, KnownRows};
use crate::decode::codecs::Choose;
use crate::decode::exif::Metadata;
use crate::decode::{Damaged, Decoded, Planes};
use base::crc::checksum;
use base::error::DecodeError;
use base::simd::Level;
use std::ops::Range;

/// What an indexed image begins with; the last byte is the version of the form.
const SIGNATURE: &[u8; 8] = b"\x8AFLINDX\x01";

/// Whether bytes are an indexed image, by their signature.
pub(in crate::decode) fn is_indexed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// The number of bytes of the file in an indexed image.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head.
pub(in crate::decode) fn original_length(indexed: &[u8]) -> Result<u32, DecodeError> {
    IndexHead::read(indexed).map(|head| head.facts.file)
}

/// The range of the file's bytes in an indexed image.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head.
pub(in crate::decode) fn file(indexed: &[u8]) -> Result<Range<usize>, DecodeError> {
    IndexHead::read(indexed).map(|head| head.file())
}

/// The range of the file's bytes in an indexed image, after they were checked.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a damaged head or file.
pub(in crate::decode) fn checked_file(indexed: &[u8]) -> Result<Range<usize>, DecodeError> {
    let head = IndexHead::read(indexed)?;
    if checksum(&indexed[head.file()]) != head.facts.crc {
        return Err(corrupt("its file is damaged"));
    }
    Ok(head.file())
}

/// The columns and rows of an indexed image.
pub(in crate::decode) fn size(indexed: &[u8]) -> Result<(u32, u32), DecodeError> {
    super::size(&indexed[file(indexed)?])
}

/// Finds the metadata of the file in an indexed image.
pub(in crate::decode) fn metadata(indexed: &[u8]) -> Metadata<'_> {
    file(indexed).map_or(Metadata::default(), |file| super::metadata(&indexed[file]))
}

/// Decodes the region of an indexed image that `choose` picks into `out`.
pub(in crate::decode) fn decode(
    jpeg: &mut Jpeg,
    indexed: &[u8],
    by: (Level, Damaged),
    choose: Choose<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    let head = IndexHead::read(indexed)?;
    jpeg.decode(&indexed[head.file()], KnownRows::Index(&head), by, choose, out)
}

/// Makes the error of an indexed image.
fn corrupt(what: &str) -> DecodeError {
    DecodeError::Corrupt(format!("indexed image: {what}"))
}
