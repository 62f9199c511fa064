//! Operations that move pixels: `warp.rs`, `resample.rs` and `shift.rs` of `src/pixels/augment/ops/`, which follow
//! torch's `grid_sample` with zeros outside and torchvision's fill; and `mirror.rs`.

#ifndef FORELOAD_WARP
#define FORELOAD_WARP

#include "ops/arithmetic.cuh"
#include "ops/program.cuh"

/// How a pixel is interpolated from its neighbours.
enum { SAMPLER_NEAREST, SAMPLER_BILINEAR, SAMPLER_BICUBIC };

/// A set that pixels are taken from.
typedef struct {
    const u8* levels;
    u32 width, height;
} Source;

INLINE Source source_of(const Canvas* canvas, const u32* op) {
    const Source source = {set_of(canvas, from_of(op)), canvas->output->width, canvas->output->height};
    return source;
}

/// Thread `t` moves its pixels by integers.
INLINE void move_pixels(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const u32 width = canvas->output->width, pixels = pixels_of(canvas);
    const u32* of = words_of(op);
    const u8* from = set_of(canvas, from_of(op));
    u8* to = set_of(canvas, to_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 x = at % width, y = at / width;
        // Negative numbers wrap around, and the sums wrap back.
        const u32 column = of[0] * x + of[1] * y + of[2], row = of[3] * x + of[4] * y + of[5];
        UNROLL for (u32 c = 0; c < 3; c++) to[c * pixels + at] = from[c * pixels + row * width + column];
    }
}

/// The column (`axis` 0) or row of the image that pixel (x, y) of the result shows; each step is rounded.
INLINE f32 place_of(const u32* matrix, u32 axis, u32 width, u32 height, u32 x, u32 y) {
    const f32 column = (f32)x - ((f32)width - 1.0f) * 0.5f, row = (f32)y - ((f32)height - 1.0f) * 0.5f;
    const f32 half = (f32)(axis ? height : width) * 0.5f;
    const u32* of = matrix + 3 * axis;
    return ((column * float_of(of[0]) + row * float_of(of[1]) + float_of(of[2])) + 1.0f) * half - 0.5f;
}

/// R, G, B, and 1.0 if the pixel exists; otherwise four zeros.
INLINE void pixel_at(const Source* source, i32 column, i32 row, f32 values[4]) {
    const u32 inside = (u32)column < source->width && (u32)row < source->height;
    const u32 pixels = source->width * source->height, at = inside ? row * source->width + column : 0;
    UNROLL for (u32 c = 0; c < 3; c++) values[c] = inside ? (f32)source->levels[c * pixels + at] : 0.0f;
    values[3] = (f32)inside;
}

INLINE void sample_bilinear(const Source* source, f32 x, f32 y, f32 values[4]) {
    x = within(x, -1.0f, (f32)source->width);
    y = within(y, -1.0f, (f32)source->height);
    const i32 column = floor_of_float(x), row = floor_of_float(y);
    const f32 right = x - (f32)column, down = y - (f32)row;
    f32 corners[2][2][4];
    UNROLL for (i32 i = 0; i < 4; i++) pixel_at(source, column + i % 2, row + i / 2, corners[i / 2][i % 2]);
    UNROLL for (u32 c = 0; c < 4; c++) {
        const f32 upper = corners[0][0][c] + (corners[0][1][c] - corners[0][0][c]) * right;
        const f32 lower = corners[1][0][c] + (corners[1][1][c] - corners[1][0][c]) * right;
        values[c] = upper + (lower - upper) * down;
    }
}

/// Keys' cubic with a = -3/4 at a distance below 1, and from 1 to 2.
INLINE f32 cubic_near(f32 x) { return ((-0.75f + 2.0f) * x - (-0.75f + 3.0f)) * x * x + 1.0f; }
INLINE f32 cubic_far(f32 x) {
    return ((-0.75f * x - 5.0f * -0.75f) * x + 8.0f * -0.75f) * x - 4.0f * -0.75f;
}

INLINE void cubic_weights(f32 share, f32 weights[4]) {
    const f32 rest = 1.0f - share;
    weights[0] = cubic_far(share + 1.0f);
    weights[1] = cubic_near(share);
    weights[2] = cubic_near(rest);
    weights[3] = cubic_far(rest + 1.0f);
}

INLINE void sample_bicubic(const Source* source, f32 x, f32 y, f32 values[4]) {
    x = within(x, -2.0f, (f32)source->width + 1.0f);
    y = within(y, -2.0f, (f32)source->height + 1.0f);
    const i32 column = floor_of_float(x), row = floor_of_float(y);
    f32 across[4], down[4];
    cubic_weights(x - (f32)column, across);
    cubic_weights(y - (f32)row, down);
    UNROLL for (u32 c = 0; c < 4; c++) values[c] = 0.0f;
    ROLL for (i32 r = 0; r < 4; r++) {
        const f32 weight = r == 0 ? down[0] : r == 1 ? down[1] : r == 2 ? down[2] : down[3];
        f32 pixels[4][4];
        UNROLL for (i32 i = 0; i < 4; i++) pixel_at(source, column - 1 + i, row - 1 + r, pixels[i]);
        UNROLL for (u32 c = 0; c < 4; c++) {
            const f32 along = pixels[0][c] * across[0] + pixels[1][c] * across[1] + pixels[2][c] * across[2] +
                              pixels[3][c] * across[3];
            values[c] += along * weight;
        }
    }
}

/// Thread `t` makes its pixels of a warped image.
INLINE void warp(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const Source source = source_of(canvas, op);
    const u32 pixels = pixels_of(canvas);
    const u32* words = words_of(op);
    const u32 sampler = words[6], is_filled = words[7];
    u8* to = set_of(canvas, to_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 column = at % source.width, row = at / source.width;
        const f32 x = place_of(words, 0, source.width, source.height, column, row);
        const f32 y = place_of(words, 1, source.width, source.height, column, row);
        f32 values[4];
        if (sampler == SAMPLER_NEAREST) {
            const i32 nearest = (i32)round_even(within(x, -1.0f, (f32)source.width));
            pixel_at(&source, nearest, (i32)round_even(within(y, -1.0f, (f32)source.height)), values);
        } else if (sampler == SAMPLER_BILINEAR) {
            sample_bilinear(&source, x, y, values);
        } else {
            sample_bicubic(&source, x, y, values);
        }
        UNROLL for (u32 c = 0; c < 3; c++) {
            const f32 fill = float_of(words[8 + c]);
            // A pixel that is partly outside of the source is blended with the fill.
            const f32 filled = (values[c] - fill) * values[3] + fill;
            to[c * pixels + at] = (u8)rounded(is_filled ? filled : values[c]);
        }
    }
}

/// Thread `t` makes its pixels of an image whose rows move: `src/pixels/augment/ops/shift.rs`.
INLINE void shift_rows(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const Source source = source_of(canvas, op);
    const u32 pixels = pixels_of(canvas);
    const u32* words = words_of(op);
    const u32 is_filled = words[3];
    u8* to = set_of(canvas, to_of(op));
    EACH_PIXEL(at, canvas, t) {
        const u32 x = at % source.width, y = at / source.width;
        const f32 from_centre = (f32)y - ((f32)source.height - 1.0f) * 0.5f, most = (f32)source.width + 1.0f;
        const f32 offset = within(from_centre * float_of(words[1]) + float_of(words[0]), -most, most);
        const i32 whole = floor_of_float(offset), row = (i32)(y + words[2]);
        const f32 share = offset - (f32)whole;
        f32 left[4], right[4];
        pixel_at(&source, (i32)x + whole, row, left);
        pixel_at(&source, (i32)x + whole + 1, row, right);
        const f32 inside = left[3] == right[3] ? left[3] : right[3] > 0.0f ? share : 1.0f - share;
        UNROLL for (u32 c = 0; c < 3; c++) {
            const f32 value = left[c] + (right[c] - left[c]) * share, fill = float_of(words[4 + c]);
            to[c * pixels + at] = (u8)rounded(is_filled ? (value - fill) * inside + fill : value);
        }
    }
}

#endif
