//! Packed JPEGs: the quantised coefficients without the entropy coder, in a format that vector units expand directly.
//! The file can be restored from a packed image byte for byte. `docs/packed-image.md` specifies the format.
//!
//! A packed image consists of a head (`head.rs`), the rows of MCUs, and the bytes of the file that are not
//! entropy-coded. The head has a checksum of each row; a row consists of units of sixteen blocks (`unit.rs`).
//! `write.rs` makes units from coefficients, `region.rs` makes samples from them, and `restore.rs` restores the file.
//! `pack.rs` packs files and verifies that they restore. `plan.rs` plans the decoding on a GPU. `header_summary.rs`
//! finds the bytes that a region needs before any of them is read.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod blocks_avx512;
mod coefficients;
mod head;
mod header_summary;
mod masks;
mod pack;
mod plan;
mod progressive;
mod region;
mod restore;
mod scan_bits;
mod sequential;
mod symbols;
#[cfg(test)]
mod tests;
mod unit;
mod values;
mod write;

pub use self::header_summary::PackedHeaderSummary;
pub use self::pack::{Packer, Restorer};
pub(super) use self::plan::PackedImage;
pub(in crate::decode) use self::scan_bits::ScanBits;
pub(in crate::decode) use self::symbols::{SymbolCodes, size_of_value, value_bits};

use self::head::PackedHead;
use super::RegionLayout;
use crate::decode::codecs::ChooseRegion;
use crate::decode::exif::Metadata;
use crate::decode::{Backend, Decoded, Planes, Region};
use base::error::DecodeError;
use base::parts::WantedBytes;
use base::simd::Level;

/// The first bytes of a packed image; the last byte is the version of the format.
const SIGNATURE: &[u8; 8] = b"\x8AFLPACK\x01";

pub(in crate::decode) fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

pub(in crate::decode) fn original_length(packed: &[u8]) -> Result<u32, DecodeError> {
    PackedHead::read(packed).map(|head| head.original.length)
}

fn corrupt(what: &str) -> DecodeError {
    DecodeError::Corrupt(format!("packed image: {what}"))
}

fn corrupt_row(row: usize) -> DecodeError {
    corrupt(&format!("its row {row} of MCUs is damaged"))
}

pub(in crate::decode) fn size(packed: &[u8]) -> Result<(u32, u32), DecodeError> {
    let frame = PackedHead::read(packed)?.frame;
    Ok((frame.width, frame.height))
}

/// Finds the metadata in the headers of the file, which are the last part of a packed image.
pub(in crate::decode) fn metadata(packed: &[u8]) -> Metadata<'_> {
    let headers = head::plain_bytes(packed).and_then(|bytes| packed.get(packed.len().checked_sub(bytes)?..));
    headers.map_or(Metadata::default(), super::metadata)
}

/// Decodes into `out` the region of a packed image that `choose` picks. If `parts` is given, only these bytes of the
/// image were read, and no other bytes are used.
pub(in crate::decode) fn decode(
    packed: &[u8],
    parts: Option<WantedBytes>,
    level: Level,
    choose: ChooseRegion<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    // Decoders load more bytes than they use. So before each step, cut off the bytes that were not read, or refuse the
    // image.
    let until = |end: u32| packed.get(..end as usize).unwrap_or(packed);
    let start = parts.map_or(packed, |parts| until(parts.head));
    let head = PackedHead::read_start(start, packed.len())?;
    let region = choose(head.frame.width, head.frame.height)?;
    let layout = layout(&head, region)?;
    let read = match parts {
        None => packed,
        Some(parts) if parts.holds(&head.bytes_of(&layout)) => until(parts.end),
        Some(_) => {
            let message = "needed rows were not read, because its head does not match the dataset's index: pack the \
                 dataset again";
            return Err(corrupt(message));
        }
    };
    region::decode(read, &head, &layout, level, out)?;
    Ok(Decoded::by(Backend::Packed, region))
}

fn layout(head: &PackedHead, region: Region) -> Result<RegionLayout, DecodeError> {
    let layout = RegionLayout::of_coded(&head.frame, head.color_space, region);
    layout.ok_or_else(|| corrupt("its sampling factors are not supported by this format"))
}
