//! The table of the kernel that gathers the bytes of images: `cuda/decode/gather.cuh` in Rust, field by field.

use super::CudaKernel;
use super::image::{TableEntry, bytes_of};
use std::mem::offset_of;

/// The bytes that a thread copies at a time (a quad). Copy chunks (pieces) begin and end at multiples of it.
pub(super) const QUAD_BYTES: u64 = 16;

/// The number of quads of a chunk that one thread copies.
const QUADS_OF_THREAD: u64 = 4;

/// The most bytes of a chunk: the bytes that all threads of a block copy.
pub(super) const PIECE_BYTES: u64 = CudaKernel::Gather.block().0 as u64 * QUADS_OF_THREAD * QUAD_BYTES;

/// A chunk of the needed bytes of an image.
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

/// The bytes of a launch's images, in chunks.
#[derive(Debug, Default)]
pub(super) struct GatherTable {
    pieces: Vec<CopyChunkEntry>,
}

impl GatherTable {
    /// The most bytes of the table for an image of which `needed` bytes are needed.
    pub(super) const fn image_bytes(needed: usize) -> usize {
        needed.div_ceil(PIECE_BYTES as usize).saturating_add(1) * size_of::<CopyChunkEntry>()
    }

    /// The most bytes of device memory for an image of which `needed` bytes are needed.
    pub(super) const fn room(needed: u64) -> u64 {
        needed + 2 * QUAD_BYTES
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Adds the `length` bytes of an image at the address `from`. They are copied in whole quads to `to`. Returns the
    /// device address of the first byte.
    pub(super) fn add(&mut self, from: u64, length: u64, to: u64) -> u64 {
        let start = from / QUAD_BYTES * QUAD_BYTES;
        let end = (from + length).next_multiple_of(QUAD_BYTES);
        self.pieces.extend((start..end).step_by(PIECE_BYTES as usize).map(|piece| CopyChunkEntry {
            from: piece,
            to: to + (piece - start),
            quads: ((end - piece).min(PIECE_BYTES) / QUAD_BYTES) as u32,
            unused: 0,
        }));
        to + (from - start)
    }

    pub(super) fn part(&self) -> &[u8] {
        bytes_of(&self.pieces)
    }

    /// The number of thread blocks: one per chunk.
    pub(super) fn blocks(&self) -> u32 {
        self.pieces.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks cover all bytes of an image once, in quads that no other image uses.
    #[test]
    fn pieces_cover_what_is_needed() {
        for (from, length) in [(0, 1), (15, 1), (15, 2), (7, 8_185), (7, 8_186), (32, 8_192), (33, 100_000)] {
            let (mut table, to) = (GatherTable::default(), 1 << 20);
            let first = table.add(from, length, to);
            assert_eq!(first % QUAD_BYTES, from % QUAD_BYTES);
            let mut next = from / QUAD_BYTES * QUAD_BYTES;
            for piece in &table.pieces {
                assert_eq!((piece.from, piece.to - to), (next, next - from / QUAD_BYTES * QUAD_BYTES));
                assert!(piece.quads >= 1 && QUAD_BYTES * u64::from(piece.quads) <= PIECE_BYTES);
                next += QUAD_BYTES * u64::from(piece.quads);
            }
            assert!((from + length..from + length + QUAD_BYTES).contains(&next), "{from} {length}");
            assert!(next - from / QUAD_BYTES * QUAD_BYTES <= GatherTable::room(length));
            assert!(table.part().len() <= GatherTable::image_bytes(length as usize));
        }
    }
}
