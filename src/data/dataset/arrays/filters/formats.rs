//! Small formats of compressed chunks: framings of LZ4, LZF, blocks of shuffled bits, and differences.

use super::{BlockPacking, FilterWork, shuffle};
use crate::dataset::lz4;

/// Decompresses the format of numcodecs' `lz4`: the decompressed size, little-endian, and a block.
pub(super) fn lz4_sized(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (size, block) = packed.split_first_chunk().ok_or("it is truncated")?;
    states_size(u64::from(u32::from_le_bytes(*size)), to)?;
    lz4::block(block, to)
}

fn states_size(size: u64, to: &[u8]) -> Result<(), String> {
    if size == to.len() as u64 {
        Ok(())
    } else {
        Err(format!("it states {size} bytes, must be {}", to.len()))
    }
}

/// Reads the header that both of HDF5's formats with blocks have: the decompressed sizes of all blocks and of one. The
/// latter may exceed the former.
fn read_blocks_header<'a>(packed: &'a [u8], to: &[u8]) -> Result<(usize, &'a [u8]), String> {
    let (size, rest) = packed.split_first_chunk().ok_or("it is truncated")?;
    states_size(u64::from_be_bytes(*size), to)?;
    let (block, rest) = rest.split_first_chunk().ok_or("it is truncated")?;
    Ok((usize::try_from(u32::from_be_bytes(*block)).unwrap_or(usize::MAX), rest))
}

/// Splits the next block, which begins with its length, from `rest`.
fn next_block<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let found = rest
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?));
    let block;
    (block, *rest) = found.ok_or("its last block is truncated")?;
    Ok(block)
}

fn is_used_up(rest: &[u8]) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes follow its last block", rest.len())) }
}

/// Decompresses the format of HDF5's LZ4 filter. A block that is as long as its decompressed bytes is not compressed.
pub(super) fn lz4_blocks(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let (size, mut rest) = read_blocks_header(packed, to)?;
    if size == 0 && !to.is_empty() {
        return Err("its blocks have 0 bytes".to_owned());
    }
    for place in to.chunks_mut(size.max(1)) {
        let block = next_block(&mut rest)?;
        if block.len() == place.len() { place.copy_from_slice(block) } else { lz4::block(block, place)? }
    }
    is_used_up(rest)
}

/// Elements of a block of shuffled bits, by default: 8 KiB, as many as a multiple of 8 allows, but at least 128.
fn default_block(size: usize) -> usize {
    (8192 / size / 8 * 8).max(128)
}

/// Undoes HDF5's filter bitshuffle for elements of `size` bytes, in blocks of `block` elements.
pub(super) fn bitshuffle(
    size: usize,
    block: usize,
    packing: BlockPacking,
    packed: &[u8],
    to: &mut [u8],
    work: &mut FilterWork,
) -> Result<(), String> {
    if size == 0 || !to.len().is_multiple_of(size) {
        return Err(format!("{} bytes are no elements of {size} bytes", to.len()));
    }
    let (mut block, mut rest) = (block, packed);
    if packing != BlockPacking::Plain {
        let (bytes, blocks) = read_blocks_header(packed, to)?;
        (block, rest) = (bytes / size, blocks);
    }
    if block == 0 {
        block = default_block(size);
    }
    if !block.is_multiple_of(8) {
        return Err(format!("its blocks have {block} elements, which is not a multiple of 8"));
    }
    // The last elements, fewer than 8, are stored as they are.
    let (whole, end) = to.split_at_mut(to.len() / size / 8 * 8 * size);
    let length = block.checked_mul(size).ok_or("its blocks are too large")?;
    for place in whole.chunks_mut(length) {
        if packing == BlockPacking::Plain {
            let found = rest.split_at_checked(place.len());
            let bits;
            (bits, rest) = found.ok_or("it is truncated")?;
            shuffle::unshuffle_bits(size, bits, place, &mut work.planes);
            continue;
        }
        let bytes = next_block(&mut rest)?;
        let mut bits = std::mem::take(&mut work.block);
        bits.resize(place.len(), 0);
        let found = match packing {
            BlockPacking::Zstd => work.unpack_zstd(bytes, &mut bits),
            _ => lz4::block(bytes, &mut bits),
        };
        shuffle::unshuffle_bits(size, &bits, place, &mut work.planes);
        work.block = bits;
        found?;
    }
    let (stored, rest) = rest.split_at_checked(end.len()).ok_or("it is truncated")?;
    end.copy_from_slice(stored);
    is_used_up(rest)
}

/// Decompresses LibLZF's format, which must fill `to` exactly.
pub(super) fn lzf(packed: &[u8], to: &mut [u8]) -> Result<(), String> {
    let found = unpack_lzf(packed, to).ok_or("it is damaged, or longer than stated")?;
    if found == to.len() { Ok(()) } else { Err(format!("it gives {found} bytes, must be {}", to.len())) }
}

fn unpack_lzf(packed: &[u8], to: &mut [u8]) -> Option<usize> {
    let (mut rest, mut at) = (packed, 0);
    while let [control, more @ ..] = rest {
        let control = usize::from(*control);
        rest = more;
        if control < 32 {
            (at, rest) = copy_literals(rest, control + 1, to, at)?;
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            let (more, left) = rest.split_first()?;
            length += usize::from(*more);
            rest = left;
        }
        let (low, left) = rest.split_first()?;
        rest = left;
        at = repeat(to, at, ((control & 31) << 8 | usize::from(*low)) + 1, length + 2)?;
    }
    Some(at)
}

/// The number of bytes that are copied where fewer are needed, if there is room. This needs no call and no loop, and
/// later bytes overwrite the excess.
const AT_ONCE: usize = 32;

/// Copies the first `length` bytes of `from`, at most [`AT_ONCE`], to `at`. Returns the new end and the bytes after
/// them; `None` if the bytes do not fit or do not exist.
pub(super) fn copy_literals<'a>(
    from: &'a [u8],
    length: usize,
    to: &mut [u8],
    at: usize,
) -> Option<(usize, &'a [u8])> {
    let (literals, rest) = from.split_at_checked(length)?;
    let places = to.get_mut(at..)?;
    match (from.first_chunk::<AT_ONCE>(), places.first_chunk_mut::<AT_ONCE>()) {
        (Some(from), Some(places)) => *places = *from,
        _ => places.get_mut(..length)?.copy_from_slice(literals),
    }
    Some((at + length, rest))
}

/// Appends `length` bytes at `at` which repeat those `distance` bytes before. The two ranges may overlap, and then the
/// bytes between them are repeated. Returns the new end; `None` if the bytes do not fit or do not exist.
pub(super) fn repeat(to: &mut [u8], at: usize, distance: usize, length: usize) -> Option<usize> {
    let end = at.checked_add(length).filter(|&end| end <= to.len())?;
    let start = at.checked_sub(distance)?;
    if length <= AT_ONCE && distance >= AT_ONCE && to.len() - at >= AT_ONCE {
        to.copy_within(start..start + AT_ONCE, at);
        return Some(end);
    }
    if distance == 1 {
        let byte = to[start];
        to[at..end].fill(byte);
        return Some(end);
    }
    let mut done = at;
    while done < end {
        // The bytes from `start` on have the period `distance`, so more of them can be copied each time.
        let next = (done - start).min(end - done);
        to.copy_within(start..start + next, done);
        done += next;
    }
    Some(end)
}

/// Undoes differences between integers: each one is the sum of all stored ones before it, modulo its range.
pub(super) fn undo_differences(
    size: u32,
    big_endian: bool,
    from: &[u8],
    to: &mut [u8],
) -> Result<(), String> {
    macro_rules! sum {
        ($type:ty) => {{
            let mut sum: $type = 0;
            for (from, to) in from.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
                if big_endian {
                    sum = sum.wrapping_add(<$type>::from_be_bytes(*from));
                    *to = sum.to_be_bytes();
                } else {
                    sum = sum.wrapping_add(<$type>::from_le_bytes(*from));
                    *to = sum.to_le_bytes();
                }
            }
        }};
    }
    if !from.len().is_multiple_of(size.max(1) as usize) {
        return Err(format!("{} bytes are no integers of {size} bytes", from.len()));
    }
    match size {
        1 => sum!(u8),
        2 => sum!(u16),
        4 => sum!(u32),
        8 => sum!(u64),
        _ => return Err(format!("its integers have {size} bytes")),
    }
    Ok(())
}
