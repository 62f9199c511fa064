//! The weighted sum of sets, by which AugMix joins its chains: `src/pixels/augment/ops/augmix.rs`.

#ifndef FORELOAD_MIXED
#define FORELOAD_MIXED

#include "ops/arithmetic.cuh"
#include "ops/program.cuh"

/// Thread `t` adds up its pixels of the sets that the instruction names. Each product is rounded, then each sum; the
/// result is truncated.
INLINE void mix_sets(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const u32 pixels = pixels_of(canvas), sets = words_of(op)[0];
    u8* to = set_of(canvas, to_of(op));
    EACH_QUAD(at, canvas, t) {
        const u32 count = count_from(canvas, at);
        ROLL for (u32 c = 0; c < 3; c++) {
            f32 sums[QUAD];
            ROLL for (u32 set = 0; set < sets; set++) {
                const u32* share = words_of(op) + 1 + 2 * set;
                const f32 weight = float_of(share[1]);
                const u32 levels = load_levels(set_of(canvas, share[0]) + c * pixels + at, count);
                UNROLL for (u32 i = 0; i < QUAD; i++) {
                    const f32 product = (f32)level_of(levels, i) * weight;
                    sums[i] = set ? sums[i] + product : product;
                }
            }
            u32 mixed = 0;
            UNROLL for (u32 i = 0; i < QUAD; i++) mixed |= truncated(sums[i]) << 8 * i;
            store_levels(to + c * pixels + at, count, mixed);
        }
    }
}

#endif
