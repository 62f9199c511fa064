//! Indexed JPEGs: the unchanged file, preceded by an index of its entropy-coded data. Decoding starts at the wanted
//! rows and need not skip the data before them. `docs/indexed-image.md` specifies the format.
//!
//! An indexed image is a head (`head.rs`), which has the points in the file at which decoding can start, and then the
//! file. `make.rs` finds these points, `region.rs` decodes from them, and `plan.rs` plans the decoding on a GPU. The
//! index is a hint: if it does not match the file, the file is decoded without it.

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

use super::{Jpeg, RowPositions};
use crate::decode::codecs::ChooseRegion;
use crate::decode::exif::Metadata;
use crate::decode::{Damaged, Decoded, Planes};
use base::crc::checksum;
use base::error::DecodeError;
use base::simd::Level;
use std::ops::Range;

/// The first bytes of an indexed image; the last byte is the version of the format.
const SIGNATURE: &[u8; 8] = b"\x8AFLINDX\x01";

pub(in crate::decode) fn is_indexed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

pub(in crate::decode) fn original_length(indexed: &[u8]) -> Result<u32, DecodeError> {
    IndexHead::read(indexed).map(|head| head.facts.file)
}

pub(in crate::decode) fn file(indexed: &[u8]) -> Result<Range<usize>, DecodeError> {
    IndexHead::read(indexed).map(|head| head.file())
}

/// Returns the range of the original file in an indexed image, and verifies the file's checksum.
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

pub(in crate::decode) fn size(indexed: &[u8]) -> Result<(u32, u32), DecodeError> {
    super::size(&indexed[file(indexed)?])
}

pub(in crate::decode) fn metadata(indexed: &[u8]) -> Metadata<'_> {
    file(indexed).map_or(Metadata::default(), |file| super::metadata(&indexed[file]))
}

pub(in crate::decode) fn decode(
    jpeg: &mut Jpeg,
    indexed: &[u8],
    by: (Level, Damaged),
    choose: ChooseRegion<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    let head = IndexHead::read(indexed)?;
    jpeg.decode(&indexed[head.file()], RowPositions::Index(&head), by, choose, out)
}

fn corrupt(what: &str) -> DecodeError {
    DecodeError::Corrupt(format!("indexed image: {what}"))
}
