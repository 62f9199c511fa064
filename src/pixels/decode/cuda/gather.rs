//! The table for the gather kernel, which copies the needed bytes of images to device memory. The types have the same
//! fields as in `cuda/decode/gather.cuh`.

use super::CudaKernel;
use super::image::{TableEntry, bytes_of};
use std::mem::offset_of;

/// The size in bytes of a quad: the unit that a thread copies at a time. Chunks begin and end at multiples of this
/// size.
pub(super) const QUAD_BYTES: u64 = 16;

const QUADS_OF_THREAD: u64 = 4;

/// The maximum size of a chunk in bytes. The threads of one thread block copy one chunk.
pub(super) const CHUNK_BYTES: u64 = CudaKernel::Gather.block().0 as u64 * QUADS_OF_THREAD * QUAD_BYTES;

/// A table entry: one chunk of bytes to copy, with source and destination addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct CopyChunkEntry {
    from: u64,
    to: u64,
    quads: u32,
    unused: u32,
}

// Size and offsets must match `cuda/decode/gather.cuh`; there is no padding.
const _: () = assert!(size_of::<CopyChunkEntry>() == 2 * 8 + 2 * 4);
const _: () = assert!(offset_of!(CopyChunkEntry, to) == 8);
const _: () = assert!(offset_of!(CopyChunkEntry, quads) == 16);

// SAFETY: integers without padding, as asserted above.
unsafe impl TableEntry for CopyChunkEntry {}

#[derive(Debug, Default)]
pub(super) struct GatherTable {
    chunks: Vec<CopyChunkEntry>,
}

impl GatherTable {
    /// The maximum size in bytes of an image's table entries. `needed` is the number of bytes of the image that are
    /// copied.
    pub(super) const fn image_bytes(needed: usize) -> usize {
        needed.div_ceil(CHUNK_BYTES as usize).saturating_add(1) * size_of::<CopyChunkEntry>()
    }

    pub(super) fn clear(&mut self) {
        self.chunks.clear();
    }

    /// Adds a copy of `length` bytes of an image from address `from` to address `to`. The kernel copies whole quads (16
    /// bytes each). Returns the device address of the first of the `length` bytes.
    pub(super) fn add(&mut self, from: u64, length: u64, to: u64) -> u64 {
        let start = from / QUAD_BYTES * QUAD_BYTES;
        let end = (from + length).next_multiple_of(QUAD_BYTES);
        self.chunks.extend((start..end).step_by(CHUNK_BYTES as usize).map(|chunk| CopyChunkEntry {
            from: chunk,
            to: to + (chunk - start),
            quads: ((end - chunk).min(CHUNK_BYTES) / QUAD_BYTES) as u32,
            unused: 0,
        }));
        to + (from - start)
    }

    pub(super) fn part(&self) -> &[u8] {
        bytes_of(&self.chunks)
    }

    pub(super) fn blocks(&self) -> u32 {
        self.chunks.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::LaunchTables;
    use super::*;

    /// The chunks of an image cover each of its bytes exactly once. They consist of whole quads (16 bytes), and the
    /// copy fits into `gather_bytes`.
    #[test]
    fn pieces_cover_what_is_needed() {
        for (from, length) in [(0, 1), (15, 1), (15, 2), (7, 8_185), (7, 8_186), (32, 8_192), (33, 100_000)] {
            let (mut table, to) = (GatherTable::default(), 1 << 20);
            let first = table.add(from, length, to);
            assert_eq!(first % QUAD_BYTES, from % QUAD_BYTES);
            let mut next = from / QUAD_BYTES * QUAD_BYTES;
            for chunk in &table.chunks {
                assert_eq!((chunk.from, chunk.to - to), (next, next - from / QUAD_BYTES * QUAD_BYTES));
                assert!(chunk.quads >= 1 && QUAD_BYTES * u64::from(chunk.quads) <= CHUNK_BYTES);
                next += QUAD_BYTES * u64::from(chunk.quads);
            }
            assert!((from + length..from + length + QUAD_BYTES).contains(&next), "{from} {length}");
            assert!(next - from / QUAD_BYTES * QUAD_BYTES <= LaunchTables::gather_bytes(length));
            assert!(table.part().len() <= GatherTable::image_bytes(length as usize));
        }
    }
}
