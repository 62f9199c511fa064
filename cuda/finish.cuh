//! From weighted sums of resized rows to the output: colour conversion, normalisation, cast and store.

#ifndef FORELOAD_FINISH
#define FORELOAD_FINISH

#include "block.cuh"

/// The number of columns that a thread finishes together.
#define QUAD 4

/// JFIF's conversion: the shares of Cr in R, of Cb and Cr in G, and of Cb in B.
#define CR_R 1.402f
#define CB_G -0.3441363f
#define CR_G -0.7141363f
#define CB_B 1.772f

/// 2^-bits.
INLINE f32 unit_of(u32 bits) { return float_of((127 - bits) << 23); }

/// The start value of the sums of component `c`. Chroma is centred here, in integers, because the difference is exact;
/// rows without a fraction are rounded to integer grey levels.
INLINE i32 sum_start(const Block* block, u32 c) {
    const u32 bits = shared(block)->bits[ALONG_Y][shared(block)->tables[c].like];
    if (block->fraction == 0) return 1 << (bits - 1);
    return block->image->color == COLOR_YCBCR && c > 0 ? -(128 << (bits + block->fraction)) : 0;
}

INLINE f32 clamp_level(f32 level) {
    const f32 above = level > 0.0f ? level : 0.0f;
    return above < 255.0f ? above : 255.0f;
}

/// The grey levels of R, G and B from the sums of one pixel.
INLINE void levels_of(const Block* block, const i32 sums[3], f32 levels[3]) {
    const Shared* all = shared(block);
    u32 bits[3];
    UNROLL for (u32 c = 0; c < 3; c++) bits[c] = all->bits[ALONG_Y][c < block->components ? all->tables[c].like : 0];
    if (block->fraction == 0) {
        UNROLL for (u32 c = 0; c < 3; c++) {
            levels[c] = (f32)clamped((c < block->components ? sums[c] : sums[0]) >> bits[c], 255);
        }
    } else if (block->image->color == COLOR_YCBCR) {
        const f32 blue = unit_of(bits[1] + block->fraction), red = unit_of(bits[2] + block->fraction);
        const f32 y = (f32)sums[0] * unit_of(bits[0] + block->fraction), cb = (f32)sums[1], cr = (f32)sums[2];
        levels[0] = clamp_level(y + cr * (CR_R * red));
        levels[1] = clamp_level((y + cb * (CB_G * blue)) + cr * (CR_G * red));
        levels[2] = clamp_level(y + cb * (CB_B * blue));
    } else {
        UNROLL for (u32 c = 0; c < 3; c++) {
            const i32 sum = c < block->components ? sums[c] : sums[0];
            levels[c] = clamp_level((f32)sum * unit_of(bits[c] + block->fraction));
        }
    }
}

/// The number of bytes of an element.
INLINE u32 size_of(u32 dtype) { return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_U8 ? 1 : 2; }

/// The bits of `value` converted to the element type.
INLINE u32 encode(u32 dtype, f32 value) {
    if (dtype == DTYPE_F32) return bits_of(value);
    if (dtype == DTYPE_F16) return half_bits(value);
    if (dtype == DTYPE_BF16) return brain_bits(value);
    return (u32)(value + 0.5f);
}

/// Stores the first `count` of four consecutive elements. `dtype` is a constant.
INLINE void store_as(u32 dtype, u8* to, const f32 values[QUAD], u32 count) {
    const u32 size = size_of(dtype);
    u32 bits[QUAD];
    UNROLL for (u32 i = 0; i < QUAD; i++) bits[i] = encode(dtype, values[i]);
    if (count == QUAD && ((u64)to & (QUAD * size - 1)) == 0) {
        if (size == 2) {
            bits[0] |= bits[1] << 16;
            bits[1] = bits[2] | bits[3] << 16;
        } else if (size == 1) {
            bits[0] |= bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
        }
        store_words(to, bits, size);
    } else {
        UNROLL for (u32 i = 0; i < QUAD; i++) {
            if (i < count) store_bits(to + i * size, bits[i], size);
        }
    }
}

/// Stores the first `count` of four consecutive pixels, beginning with pixel `at`.
INLINE void store_pixels(const OutputParams* output, u8* image, u64 at, u32 count, f32 values[3][QUAD]) {
    // Three groups of four elements: four pixels of one channel each (planar), or four pixels with interleaved
    // channels.
    const u32 planar = output->format == FORMAT_NCHW, size = size_of(output->dtype);
    const u64 pixels = (u64)output->width * output->height;
    UNROLL for (u32 group = 0; group < 3; group++) {
        f32 four[QUAD];
        UNROLL for (u32 i = 0; i < QUAD; i++) {
            const u32 element = QUAD * group + i;
            four[i] = planar ? values[group][i] : values[element % 3][element / 3];
        }
        u8* to = image + (planar ? group * pixels + at : 3 * at + QUAD * group) * size;
        const u32 left = planar ? count : 3 * count - smaller(3 * count, QUAD * group);
        switch (output->dtype) {
            case DTYPE_F32: store_as(DTYPE_F32, to, four, smaller(QUAD, left)); break;
            case DTYPE_F16: store_as(DTYPE_F16, to, four, smaller(QUAD, left)); break;
            case DTYPE_BF16: store_as(DTYPE_BF16, to, four, smaller(QUAD, left)); break;
            default: store_as(DTYPE_U8, to, four, smaller(QUAD, left));
        }
    }
}

/// Stores up to four pixels of the view's row `y`, beginning with column `x`. Pixels outside of the image get the fill
/// value.
INLINE void finish(const Block* block, u8* image, u32 x, u32 y, i32 sums[3][QUAD]) {
    const OutputParams* output = block->output;
    const u32 count = smaller(QUAD, block->x + block->width - x);
    const u32 row_shown = is_shown(&block->image->axes[ALONG_Y], y);
    f32 values[3][QUAD];
    UNROLL for (u32 i = 0; i < QUAD; i++) {
        const i32 pixel[3] = {sums[0][i], sums[1][i], sums[2][i]};
        f32 levels[3];
        levels_of(block, pixel, levels);
        const u32 shown = row_shown && i < count && is_shown(&block->image->axes[ALONG_X], unmirrored(block, x + i));
        UNROLL for (u32 c = 0; c < 3; c++) {
            const f32 value = levels[c] * output->gain[c] + output->offset[c];
            values[c][i] = shown ? value : output->fill[c];
        }
    }
    const u32 row = block->image->flip & FLIP_ROWS ? output->height - 1 - y : y;
    // No image has 2^32 pixels or more.
    store_pixels(output, image, row * output->width + x, count, values);
}

#endif
