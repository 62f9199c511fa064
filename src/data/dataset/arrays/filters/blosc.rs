//! Blosc 1: a chunk of blocks, which are shuffled and then compressed (`README_CHUNK_FORMAT.rst` of c-blosc).
//!
//! The existing crates bring C code, or need a newer Rust. Where the format's description and c-blosc differ, this
//! decoder follows c-blosc 1.21. It also checks what c-blosc trusts: that the stated sizes are those of the chunk.

use super::{FilterWork, shuffle};
use crate::dataset::lz4;

const HEADER: usize = 16;

/// A block is split into as many parts as an element has bytes, if there are at most `MOST_PARTS`, of at least
/// `SHORTEST_PART` bytes.
const MOST_PARTS: usize = 16;
const SHORTEST_PART: usize = 128;

#[derive(Clone, Copy)]
enum BloscCodec {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

/// What the header says of the blocks.
struct BloscHeader {
    codec: BloscCodec,
    /// Bytes of an element.
    size: usize,
    is_split: bool,
    shuffled: ShuffledBy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShuffledBy {
    Nothing,
    Bytes,
    Bits,
}

/// Decompresses a chunk, which must fill `to` exactly.
pub(super) fn unpack(chunk: &[u8], to: &mut [u8], work: &mut FilterWork) -> Result<(), String> {
    let Some((&[version, codec_version, flags, size, ref lengths @ ..], rest)) =
        chunk.split_first_chunk::<HEADER>()
    else {
        return Err(format!("a chunk of {} bytes has no header", chunk.len()));
    };
    let number = |at: usize| word(lengths, at).unwrap_or_default();
    let (unpacked, block, packed) = (number(0), number(4), number(8));
    match version {
        2 => {}
        3.. => return Err(format!("its format has version {version}, only Blosc 1 (version 2) is read")),
        _ => return Err(format!("its format has the unknown version {version}")),
    }
    if packed != chunk.len() || unpacked != to.len() {
        let found = format!("{} bytes for {}", chunk.len(), to.len());
        return Err(format!("the header states {packed} bytes for {unpacked}, but there are {found}"));
    }
    if to.is_empty() {
        return Ok(());
    }
    if flags & 0x08 != 0 || size == 0 || block == 0 || block > to.len() {
        return Err(format!(
            "the header is invalid: flags {flags}, elements of {size} bytes, blocks of {block}"
        ));
    }
    if flags & 0x02 != 0 {
        if rest.len() != to.len() {
            return Err(format!("{} stored bytes for {}", rest.len(), to.len()));
        }
        to.copy_from_slice(rest);
        return Ok(());
    }
    let codec = match flags >> 5 {
        0 => BloscCodec::BloscLz,
        1 => BloscCodec::Lz4,
        2 => BloscCodec::Snappy,
        3 => BloscCodec::Zlib,
        4 => BloscCodec::Zstd,
        other => return Err(format!("its compressor has the unknown number {other}")),
    };
    if codec_version != 1 {
        return Err(format!("its compressor has the unknown version {codec_version}"));
    }
    let shuffled = match flags & 0x05 {
        1 | 5 if size > 1 => ShuffledBy::Bytes,
        4 | 5 => ShuffledBy::Bits,
        _ => ShuffledBy::Nothing,
    };
    let header = BloscHeader { codec, size: usize::from(size), is_split: flags & 0x10 == 0, shuffled };
    for (number, place) in to.chunks_mut(block).enumerate() {
        // The header is followed by the offsets of the blocks in the chunk.
        let start = word(rest, 4 * number).and_then(|start| chunk.get(start..));
        let parts = start.ok_or_else(|| format!("block {number} begins after the end"))?;
        header
            .unpack_block(parts, place, place.len() == block, work)
            .map_err(|error| format!("block {number}: {error}"))?;
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

impl BloscHeader {
    /// Decompresses the block at the start of `parts`. `is_whole` is false for a shorter block at the end.
    fn unpack_block(
        &self,
        parts: &[u8],
        to: &mut [u8],
        is_whole: bool,
        work: &mut FilterWork,
    ) -> Result<(), String> {
        if self.shuffled == ShuffledBy::Nothing {
            return self.unpack_parts(parts, to, is_whole, work);
        }
        let mut block = std::mem::take(&mut work.block);
        block.resize(to.len(), 0);
        let found = self.unpack_parts(parts, &mut block, is_whole, work);
        if found.is_ok() {
            self.unshuffle(&block, to, &mut work.planes);
        }
        work.block = block;
        found
    }

    fn unshuffle(&self, block: &[u8], to: &mut [u8], planes: &mut Vec<u8>) {
        let elements = block.len() / self.size;
        match self.shuffled {
            ShuffledBy::Bytes => shuffle::unshuffle(self.size, block, to),
            ShuffledBy::Bits if elements.is_multiple_of(8) => {
                let (block, rest) = block.split_at(elements * self.size);
                let (to, end) = to.split_at_mut(block.len());
                shuffle::unshuffle_bits(self.size, block, to, planes);
                end.copy_from_slice(rest);
            }
            // c-blosc 1 does not shuffle the bits of such a block.
            ShuffledBy::Bits | ShuffledBy::Nothing => to.copy_from_slice(block),
        }
    }

    fn unpack_parts(
        &self,
        mut parts: &[u8],
        to: &mut [u8],
        is_whole: bool,
        work: &mut FilterWork,
    ) -> Result<(), String> {
        let is_split =
            self.is_split && is_whole && self.size <= MOST_PARTS && to.len() / self.size >= SHORTEST_PART;
        let count = if is_split { self.size } else { 1 };
        if !to.len().is_multiple_of(count) {
            return Err(format!("{} bytes are not {count} equal parts", to.len()));
        }
        for part in to.chunks_exact_mut(to.len() / count) {
            let length = word(parts, 0).ok_or("it is truncated")?;
            let found = parts.get(4..).and_then(|rest| rest.split_at_checked(length));
            let packed;
            (packed, parts) = found.ok_or("it is truncated")?;
            self.unpack_part(packed, part, work)?;
        }
        Ok(())
    }

    fn unpack_part(&self, packed: &[u8], to: &mut [u8], work: &mut FilterWork) -> Result<(), String> {
        if packed.len() == to.len() {
            to.copy_from_slice(packed);
            return Ok(());
        }
        let wrong = |found: usize| format!("its compressed data give {found} bytes, must be {}", to.len());
        match self.codec {
            BloscCodec::Lz4 => lz4::block(packed, to),
            BloscCodec::Zlib => work.inflate(packed, to),
            BloscCodec::Zstd => work.unpack_zstd(packed, to),
            BloscCodec::Snappy => {
                let length = snap::raw::decompress_len(packed).map_err(|error| error.to_string())?;
                if length != to.len() {
                    return Err(wrong(length));
                }
                let found = snap::raw::Decoder::new().decompress(packed, to);
                found.map(|_| ()).map_err(|error| error.to_string())
            }
            BloscCodec::BloscLz => {
                let length = to.len();
                let found = unpack_blosclz(packed, to).ok_or("its BloscLZ data are damaged")?;
                if found == length { Ok(()) } else { Err(format!("its BloscLZ data give {found} bytes")) }
            }
        }
    }
}

/// Decompresses c-blosc's own format. Returns the number of bytes; `None` for damaged bytes.
fn unpack_blosclz(packed: &[u8], to: &mut [u8]) -> Option<usize> {
    /// The longest distance of the short form of a match.
    const LONGEST: usize = 8191;
    let mut bytes = packed.iter();
    // As c-blosc, refuses a match in its short form at the end.
    let next_in_match = |bytes: &mut std::slice::Iter<'_, u8>| {
        if bytes.len() < 2 { None } else { bytes.next().map(|&byte| usize::from(byte)) }
    };
    let mut control = usize::from(bytes.next()? & 31);
    let mut at = 0;
    loop {
        if control < 32 {
            let rest;
            (at, rest) = super::formats::copy_literals(bytes.as_slice(), control + 1, to, at)?;
            bytes = rest.iter();
        } else {
            let mut length = (control >> 5) + 2;
            if length == 9 {
                loop {
                    let more = next_in_match(&mut bytes)?;
                    length += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let (high, low) = ((control & 31) << 8, next_in_match(&mut bytes)?);
            let distance = if high == 31 << 8 && low == 255 {
                let (high, low) = (next_in_match(&mut bytes)?, bytes.next()?);
                (high << 8) + usize::from(*low) + LONGEST
            } else {
                high + low
            };
            at = super::formats::repeat(to, at, distance + 1, length)?;
        }
        match bytes.next() {
            Some(next) => control = usize::from(*next),
            None => return Some(at),
        }
    }
}
