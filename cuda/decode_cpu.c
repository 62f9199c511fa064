//! The kernels that decode images and the kernel that gathers their bytes as ordinary functions, like those of
//! `augment_cpu.c`. They are in their own file so that the compiler can check their array accesses, shifts and sums at
//! run time: their input may be hostile.

#include "decode/gather.cuh"
#include "indexed/decode.cuh"
#include "packed/decode.cuh"

/// The bytes of shared memory of a block.
u32 foreload_packed_shared(void) { return sizeof(PackedShared); }
u32 foreload_indexed_shared(void) { return sizeof(IndexedShared); }

/// The bytes of a quad, and of the largest piece that is gathered.
u32 foreload_quad_bytes(void) { return QUAD_BYTES; }
u32 foreload_piece_bytes(void) { return GATHER_THREADS * QUADS_OF_THREAD * QUAD_BYTES; }

/// A block of `threads` threads without shared memory.
static Block block_of(u32 threads, u32 turn) {
    Block block;
    memset(&block, 0, sizeof block);
    block.threads = threads;
    block.turn = turn;
    return block;
}

/// A block whose shared memory holds old data, as on a GPU.
static Block sharing_block_of(u32 threads, u32 turn, void* memory, u32 bytes) {
    Block block = block_of(threads, turn);
    memset(memory, 0xa5, bytes);
    block.memory = (u8*)memory;
    return block;
}

/// Returns 0, or 1 if the shape of the launch is wrong.
u32 foreload_gather(u32 n, u32 threads, u32 turn, const PieceEntry* pieces) {
    if (n == 0 || threads != GATHER_THREADS) return 1;
    for (u32 piece = 0; piece < n; piece++) {
        const Block block = block_of(threads, turn);
        gather(&block, pieces + piece);
    }
    return 0;
}

/// Returns 0, 1 if the shape of the launch is wrong, 2 if its shared memory is too small.
u32 foreload_packed(u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageEntry* images,
                    const PackedRowEntry* rows, u32* damage) {
    PackedShared memory;
    if (n == 0 || threads != BLOCKS) return 1;
    if (shared_bytes < sizeof memory) return 2;
    for (u32 row = 0; row < n; row++) {
        const Block block = sharing_block_of(threads, turn, &memory, sizeof memory);
        decode_row(&block, images, rows + row, damage);
    }
    return 0;
}

/// Returns what `foreload_packed` returns.
u32 foreload_indexed(u32 n, u32 threads, u32 shared_bytes, u32 turn, const IndexedImageEntry* images,
                     const HuffmanCode* codes, const IndexedRowEntry* rows, const RowGroupEntry* groups, u32* damage) {
    IndexedShared memory;
    if (n == 0 || threads != GROUP_THREADS) return 1;
    if (shared_bytes < sizeof memory) return 2;
    for (u32 group = 0; group < n; group++) {
        const Block block = sharing_block_of(threads, turn, &memory, sizeof memory);
        decode_group(&block, images, codes, rows, groups + group, damage);
    }
    return 0;
}
