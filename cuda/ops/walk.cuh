//! Runs the programs of images: one block of threads makes an image, instruction by instruction. Barriers separate
//! instructions that read data of other threads.

#ifndef FORELOAD_WALK
#define FORELOAD_WALK

#include "augment.cuh"
#include "ops/blur.cuh"
#include "ops/erase.cuh"
#include "ops/mixed.cuh"
#include "ops/points.cuh"
#include "ops/sharpness.cuh"
#include "ops/tables.cuh"
#include "ops/warp.cuh"

/// The end of the run of instructions at `op` that handle each pixel independently. A thread applies all of them while
/// it keeps its pixels in registers. All instructions of a run use the set that the first one writes. A second table of
/// levels ends the run: it must wait for the threads that still use the first table.
INLINE const u32* end_of_run(const u32* op, const u32* end) {
    const u32 to = to_of(op);
    do {
        op += length_of(op);
    } while (op < end && code_of(op) >= FIRST_BESIDE_TABLES && code_of(op) < FIRST_BESIDE_POINTS && from_of(op) == to &&
             to_of(op) == to);
    return op;
}

/// Runs the instructions op..end: first those that work on levels, then those on the finished image.
INLINE void run_instructions(const Block* block, const Canvas* canvas, const u32* op, const u32* end) {
    ROLL while (op < end) {
        const u32 code = code_of(op);
        const u32* next = op + length_of(op);
        if (code < FIRST_BESIDE_TABLES) make_table(block, canvas, op);
        if (code < FIRST_BESIDE_POINTS) {
            next = end_of_run(op, end);
            EACH_THREAD(t) run_points(block, canvas, op, next, t);
        } else if (code == OP_SHARPNESS) {
            EACH_THREAD(t) sharpen(block, canvas, op, t);
        } else if (code == OP_BLUR) {
            EACH_THREAD(t) blur_rows(block, canvas, op, t);
            SYNC();
            EACH_THREAD(t) blur_columns(block, canvas, op, t);
        } else if (code == OP_MOVE) {
            EACH_THREAD(t) move_pixels(block, canvas, op, t);
        } else if (code == OP_WARP) {
            EACH_THREAD(t) warp(block, canvas, op, t);
        } else if (code == OP_SHIFT) {
            EACH_THREAD(t) shift_rows(block, canvas, op, t);
        } else if (code == OP_MIX) {
            EACH_THREAD(t) mix_sets(block, canvas, op, t);
        } else {
            EACH_THREAD(t) erase(block, canvas, op, t);
        }
        SYNC();
        op = next;
    }
}

/// Makes image number `block->image->place` of those at `images` from its levels, by the program at `span`.
INLINE void run_program(const Block* block, const OutputParams* output, ProgramSpan span, const u32* words, u8* levels,
                        u64 set_bytes, u8* images) {
    const u64 place = block->image->place;
    u8* finished = images + place * output->image_bytes;
    if (block->image->blank) {
        Block whole = *block;
        whole.output = output;
        EACH_THREAD(t) clear(&whole, finished, 0, 1, t);
        return;
    }
    const Canvas canvas = {output, levels + place * 3 * output->width * output->height, set_bytes, finished};
    run_instructions(block, &canvas, words + span.first, words + span.end);
}

/// Runs the program at `span` on image number `block->image->place` of those at `images`, which is finished.
INLINE void erase_finished(const Block* block, const OutputParams* output, ProgramSpan span, const u32* words,
                           u8* images) {
    const Canvas canvas = {output, 0, 0, images + block->image->place * output->image_bytes};
    ROLL for (const u32* op = words + span.first; op < words + span.end; op += length_of(op)) {
        EACH_THREAD(t) erase(block, &canvas, op, t);
        SYNC();
    }
}

#endif
