//! Gathers the bytes that the decoding kernels read into device memory. One launch reads them from page-locked host
//! memory, where the reading thread stored them, so that a batch needs no copy for each of its images.
//!
//! The Rust side is `src/pixels/decode/cuda/gather.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_DECODE_GATHER
#define FORELOAD_DECODE_GATHER

#include "block.cuh"

/// The threads of a block, and the bytes that a thread moves at a time (a quad).
#define GATHER_THREADS 128
#define QUAD_BYTES 16

/// The most quads of a piece that a thread moves. A thread reads all of them before it writes the first, so that it
/// waits for the bus only once.
#define QUADS_OF_THREAD 4

/// A piece of the bytes of an image, at most as long as the threads of a block move at once.
typedef struct {
    /// The source address in page-locked host memory, as the device sees it, and the target address in device memory.
    /// Both are multiples of 16.
    u64 from, to;
    /// The number of 16-byte quads.
    u32 quads;
    u32 unused;
} PieceEntry;

SAME_SIZE(PieceEntry, 24);
SAME_OFFSET(PieceEntry, to, 8);
SAME_OFFSET(PieceEntry, quads, 16);

/// Moves a piece.
INLINE void gather(const Block* block, const PieceEntry* piece) {
    const u8* from = (const u8*)piece->from;
    u8* to = (u8*)piece->to;
    EACH_THREAD(t) {
        u32 words[QUADS_OF_THREAD][QUAD_BYTES / 4];
        UNROLL
        for (u32 i = 0; i < QUADS_OF_THREAD; i++) {
            const u32 quad = i * GATHER_THREADS + t;
            if (quad < piece->quads) load_four(from + QUAD_BYTES * (u64)quad, words[i]);
        }
        UNROLL
        for (u32 i = 0; i < QUADS_OF_THREAD; i++) {
            const u32 quad = i * GATHER_THREADS + t;
            if (quad < piece->quads) store_words(to + QUAD_BYTES * (u64)quad, words[i], QUAD_BYTES / 4);
        }
    }
}

#endif
