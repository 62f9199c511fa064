//! Gaussian blur, as `src/pixels/augment/ops/blur.rs`: along rows, then along columns, with integer weights and
//! reflected borders.

#ifndef FORELOAD_BLUR
#define FORELOAD_BLUR

#include "ops/program.cuh"

/// The bits of a weight, and the bits after the point of the values between the two passes.
#define BLUR_BITS 15
#define BLUR_FRACTION 7

/// The pixel that a place outside of 0..length shows: the place mirrored at the border pixel.
INLINE u32 reflected(i32 place, u32 length) {
    if ((u32)place < length) return (u32)place;
    if (length == 1) return 0;
    const i32 period = 2 * ((i32)length - 1), steps = place % period;
    const i32 ahead = steps < 0 ? steps + period : steps;
    return (u32)(ahead < period - ahead ? ahead : period - ahead);
}

/// The sets with the upper and the lower bytes of the values between the two passes. The instruction's first word names
/// them.
INLINE u8* upper_of(const Canvas* canvas, const u32* op) { return set_of(canvas, words_of(op)[0] & 0xffff); }
INLINE u8* lower_of(const Canvas* canvas, const u32* op) { return set_of(canvas, words_of(op)[0] >> 16); }

/// Thread `t` blurs its pixels along their rows, and stores levels times 2^7, rounded.
INLINE void blur_rows(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const u32 width = canvas->output->width, pixels = pixels_of(canvas), count = words_of(op)[1];
    const u32 dropped = BLUR_BITS - BLUR_FRACTION;
    const u32* weights = words_of(op) + 3;
    const u8* from = set_of(canvas, from_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 x = at % width, row = at - x;
        u32 sums[3];
        UNROLL for (u32 c = 0; c < 3; c++) sums[c] = (1 << (dropped - 1)) + weights[0] * from[c * pixels + at];
        ROLL for (u32 distance = 1; distance < count; distance++) {
            const u32 left = row + reflected((i32)(x - distance), width), weight = weights[distance];
            const u32 right = row + reflected((i32)(x + distance), width);
            UNROLL for (u32 c = 0; c < 3; c++) {
                sums[c] += weight * ((u32)from[c * pixels + left] + from[c * pixels + right]);
            }
        }
        UNROLL for (u32 c = 0; c < 3; c++) {
            upper_of(canvas, op)[c * pixels + at] = (u8)(sums[c] >> dropped >> 8);
            lower_of(canvas, op)[c * pixels + at] = (u8)(sums[c] >> dropped);
        }
    }
}

/// Thread `t` blurs its pixels of the first pass's result along their columns.
INLINE void blur_columns(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const u32 width = canvas->output->width, height = canvas->output->height, pixels = pixels_of(canvas);
    const u32 count = words_of(op)[2];
    const u32* weights = words_of(op) + 3 + words_of(op)[1];
    const u8 *upper = upper_of(canvas, op), *lower = lower_of(canvas, op);
    u8* to = set_of(canvas, to_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 x = at % width, y = at / width;
        u32 sums[3];
        UNROLL for (u32 c = 0; c < 3; c++) {
            const u32 here = c * pixels + at;
            sums[c] = (1 << (BLUR_BITS + BLUR_FRACTION - 1)) + weights[0] * ((u32)upper[here] << 8 | lower[here]);
        }
        ROLL for (u32 distance = 1; distance < count; distance++) {
            const u32 above = x + width * reflected((i32)(y - distance), height), weight = weights[distance];
            const u32 below = x + width * reflected((i32)(y + distance), height);
            UNROLL for (u32 c = 0; c < 3; c++) {
                const u32 one = c * pixels + above, other = c * pixels + below;
                const u32 upper_sum = (u32)upper[one] + upper[other], lower_sum = (u32)lower[one] + lower[other];
                sums[c] += weight * ((upper_sum << 8) + lower_sum);
            }
        }
        UNROLL for (u32 c = 0; c < 3; c++) to[c * pixels + at] = (u8)(sums[c] >> (BLUR_BITS + BLUR_FRACTION));
    }
}

#endif
