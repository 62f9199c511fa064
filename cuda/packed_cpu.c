//! The kernel that decodes packed images as an ordinary function, like those of `augment_cpu.c`. It stands apart, so
//! that the compiler can be asked to watch its accesses to arrays, its shifts and its sums: what it reads may be an
//! enemy's.

#include "packed/decode.cuh"

/// The bytes that the threads of a block share.
u32 foreload_packed_shared(void) { return sizeof(PackedShared); }

/// Returns 0, or 1 for a launch of another shape, 2 for one with too little shared memory.
u32 foreload_packed(u32 n, u32 threads, u32 shared_bytes, u32 turn, const PackedImage* images, const PackedRow* rows,
                    u32* damage) {
    PackedShared memory;
    if (n == 0 || threads != BLOCKS) return 1;
    if (shared_bytes < sizeof memory) return 2;
    for (u32 row = 0; row < n; row++) {
        // A block finds in shared memory what other blocks left there.
        memset(&memory, 0xa5, sizeof memory);
        Block block;
        memset(&block, 0, sizeof block);
        block.memory = (u8*)&memory;
        block.threads = threads;
        block.turn = turn;
        decode_row(&block, images, rows + row, damage);
    }
    return 0;
}
