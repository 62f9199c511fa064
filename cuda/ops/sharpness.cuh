//! Sharpness: `src/pixels/augment/ops/sharpness.rs`.

#ifndef FORELOAD_SHARPNESS
#define FORELOAD_SHARPNESS

#include "ops/arithmetic.cuh"
#include "ops/program.cuh"

/// Thread `t` blends its pixels with the result of a 3×3 filter. Pixels at the border keep their levels.
INLINE void sharpen(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const u32 width = canvas->output->width, height = canvas->output->height, pixels = pixels_of(canvas);
    const f32 of_smooth = float_of(words_of(op)[0]);
    const u8* from = set_of(canvas, from_of(op));
    u8* to = set_of(canvas, to_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 x = at % width, y = at / width;
        const u32 is_inner = x > 0 && x + 1 < width && y > 0 && y + 1 < height;
        UNROLL for (u32 c = 0; c < 3; c++) {
            const u8* here = from + c * pixels + at;
            u32 level = *here;
            if (is_inner) {
                u32 sum = 4 * level;
                UNROLL for (i32 row = -1; row <= 1; row++) {
                    const u8* middle = here + row * (i32)width;
                    sum += (u32)middle[-1] + middle[0] + middle[1];
                }
                // A multiple of 1/13 is never a half, so that rounding needs no rule for ties.
                const f32 centre = (f32)level, smooth = (f32)((sum + 6) / 13);
                level = truncated(fused(smooth - centre, of_smooth, centre));
            }
            to[c * pixels + at] = (u8)level;
        }
    }
}

#endif
