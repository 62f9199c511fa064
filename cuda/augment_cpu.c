//! The kernels as ordinary functions, for machines without a GPU: `foreload_augment_fast`, `foreload_augment_exact`,
//! `foreload_ops`, `foreload_erase`, `foreload_mix` and `foreload_untouched`. They take the grid and block of the
//! launch, then the arguments of the kernel. The addresses in the table and `images` are addresses of this process.
//!
//! `tests/stand-in/kernels/build.rs` compiles them.

#include "augment.cuh"
#include "mix.cuh"
#include "ops/walk.cuh"
#include "untouched.cuh"

/// More shared memory than any GPU has.
#define MOST_SHARED (256 << 10)

/// `turn` chooses the order in which the threads of a block run between two barriers: 1 is ascending, `threads - 1`
/// nearly descending; any number without a common divisor with the number of threads will do. Returns 0 if the launch
/// is valid, 1 if its shape is not, 2 if its shared memory is too small.
static u32 launch(u32 tiles, u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table, u8* images,
                  const OutputParams* output, u32 exact) {
    static _Thread_local _Alignas(16) u8 memory[MOST_SHARED];
    const u32 quads = output->tile_columns / QUAD;
    const u32 down = (output->height + output->tile_rows - 1) / output->tile_rows;
    if (threads > MOST_THREADS || output->threads_across > threads || output->tile_columns > output->threads_across ||
        output->tile_columns % QUAD != 0 || output->tile_rows > MOST_ROWS || output->tile_rows > threads ||
        output->step_rows == 0 || output->step_rows * quads > threads || 3 * output->step_rows > threads ||
        threads % output->threads_across != 0 || tiles != output->tiles_across * down || n == 0 || n > 65535 ||
        output->tiles_across * output->tile_columns < output->width) {
        return 1;
    }
    if (shared_bytes > MOST_SHARED || output->shared_bytes > shared_bytes) return 2;
    for (u32 image = 0; image < n; image++) {
        for (u32 tile = 0; tile < tiles; tile++) {
            // On a GPU, a block finds old data of other blocks in shared memory.
            memset(memory, 0xa5, shared_bytes);
            Block block;
            memset(&block, 0, sizeof block);
            block.image = table + image;
            block.output = output;
            block.memory = memory;
            block.threads = threads;
            block.turn = turn;
            augment(&block, images + block.image->place * output->image_bytes, tile, tiles, exact);
        }
    }
    return 0;
}

u32 foreload_augment_fast(u32 tiles, u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table,
                          u8* images, const OutputParams* output) {
    return launch(tiles, n, threads, shared_bytes, turn, table, images, output, 0);
}

u32 foreload_augment_exact(u32 tiles, u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table,
                           u8* images, const OutputParams* output) {
    return launch(tiles, n, threads, shared_bytes, turn, table, images, output, 1);
}

/// Returns 0 if a launch that runs programs is valid, 1 if its shape is not, 2 if its shared memory is too small.
static u32 judge_programs(u32 n, u32 threads, u32 shared_bytes) {
    if (n == 0 || threads == 0 || threads > MOST_OPS_THREADS || threads % 32 != 0) return 1;
    return shared_bytes < sizeof(OpsShared) ? 2 : 0;
}

/// Returns 0, or the error of `judge_programs`.
u32 foreload_ops(u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table, const ProgramSpan* spans,
                 const u32* words, u8* levels, u64 set_bytes, u8* images, const OutputParams* output) {
    const u32 wrong = judge_programs(n, threads, shared_bytes);
    if (wrong) return wrong;
    for (u32 image = 0; image < n; image++) {
        OpsShared memory;
        memset(&memory, 0xa5, sizeof memory);
        Block block;
        memset(&block, 0, sizeof block);
        block.image = table + image;
        block.memory = (u8*)&memory;
        block.threads = threads;
        block.turn = turn;
        run_program(&block, output, spans[image], words, levels, set_bytes, images);
    }
    return 0;
}

/// Returns 0, or the error of `judge_programs`.
u32 foreload_erase(u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table, const ProgramSpan* spans,
                   const u32* words, u8* images, const OutputParams* output) {
    const u32 wrong = judge_programs(n, threads, shared_bytes);
    if (wrong) return wrong;
    for (u32 image = 0; image < n; image++) {
        Block block;
        memset(&block, 0, sizeof block);
        block.image = table + image;
        block.threads = threads;
        block.turn = turn;
        erase_finished(&block, output, spans[image], words, images);
    }
    return 0;
}

/// Returns 0, 1 if the shape of the launch is wrong, 2 if its shared memory is too small.
u32 foreload_untouched(u32 n, u32 threads, u32 shared_bytes, u32 turn, const ImageParams* table, u32* counts,
                       u32 poison) {
    _Alignas(16) u8 memory[sizeof(Seen)];
    if (n == 0 || threads != LINES * POINTS) return 1;
    if (shared_bytes < sizeof memory) return 2;
    for (u32 image = 0; image < n; image++) {
        memset(memory, 0xa5, sizeof memory);
        Block block;
        memset(&block, 0, sizeof block);
        block.image = table + image;
        block.memory = memory;
        block.threads = threads;
        block.turn = turn;
        count_untouched(&block, poison, counts + image);
    }
    return 0;
}

/// Returns 0, or 1 if the shape of the launch is wrong.
u32 foreload_mix(u32 tiles, u32 n, u32 threads, u32 turn, const RingParams* table, u8* images,
                 const OutputParams* output) {
    if (threads == 0 || threads > MOST_THREADS || tiles == 0 || n == 0 || n > 65535) return 1;
    for (u32 ring = 0; ring < n; ring++) {
        for (u32 tile = 0; tile < tiles; tile++) {
            Block block;
            memset(&block, 0, sizeof block);
            block.output = output;
            block.threads = threads;
            block.turn = turn;
            mix(&block, table + ring, images, tile, tiles);
        }
    }
    return 0;
}

/// The conversions of a float to 16 bits, for the tests.
u32 foreload_half_bits(f32 value) { return half_bits(value); }
u32 foreload_brain_bits(f32 value) { return brain_bits(value); }
