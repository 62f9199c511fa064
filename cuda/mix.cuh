//! MixUp and CutMix: the two images of a pair are mixed in place, with torchvision's arithmetic. In float32 each
//! product and the sum are rounded; other types are rounded once more.

#ifndef FORELOAD_MIX
#define FORELOAD_MIX

#include "finish.cuh"

/// A pair's entry in the table that a launch reads from device memory.
typedef struct {
    /// The place of the first image in its batch; the second is behind it.
    u32 first;
    /// The weights of an image itself and of its partner.
    f32 own;
    f32 other;
    /// Whether images are not blended, but exchange a rectangle: these columns and rows.
    u32 pastes;
    u32 left;
    u32 top;
    u32 right;
    u32 bottom;
} PairParams;

/// The value of a half.
INLINE f32 half_value(u32 bits) {
    const u32 sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, digits = bits & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | digits << 13);
    // A number below the normal halves is a whole number of 2^-24, which is exact.
    if (exponent == 0) return float_of(sign | bits_of((f32)digits * 5.9604644775390625e-8f));
    return float_of(sign | (exponent + 112) << 23 | digits << 13);
}

/// The value of an element, by its bits.
INLINE f32 decode(u32 dtype, u32 bits) {
    if (dtype == DTYPE_F32) return float_of(bits);
    return dtype == DTYPE_F16 ? half_value(bits) : float_of(bits << 16);
}

/// Mixes the element at `x` in the one image and at `y` in the other.
INLINE void mix_element(const PairParams* pair, u32 dtype, u8* x, u8* y) {
    const u32 size = size_of(dtype), a = load_bits(x, size), b = load_bits(y, size);
    if (pair->pastes) {
        store_bits(x, b, size);
        store_bits(y, a, size);
        return;
    }
    const f32 u = decode(dtype, a), v = decode(dtype, b);
    store_bits(x, encode(dtype, u * pair->own + v * pair->other), size);
    store_bits(y, encode(dtype, v * pair->own + u * pair->other), size);
}

/// Mixes a pair's images, behind which lie `images`; the block is number `tile` of `tiles` for it.
INLINE void mix(const Block* block, const PairParams* pair, u8* images, u32 tile, u32 tiles) {
    const OutputParams* output = block->output;
    const u32 size = size_of(output->dtype), planar = output->format == FORMAT_NCHW;
    const u32 pixels = output->width * output->height;
    u8* first = images + (u64)pair->first * output->image_bytes;
    u8* second = first + output->image_bytes;
    EACH_THREAD(t) {
        for (u32 element = tile * block->threads + t; element < 3 * pixels; element += tiles * block->threads) {
            const u32 pixel = planar ? element % pixels : element / 3;
            const u32 x = pixel % output->width, y = pixel / output->width;
            const u32 inside = x >= pair->left && x < pair->right && y >= pair->top && y < pair->bottom;
            if (pair->pastes && !inside) continue;
            const u64 at = (u64)element * size;
            switch (output->dtype) {
                case DTYPE_F32: mix_element(pair, DTYPE_F32, first + at, second + at); break;
                case DTYPE_F16: mix_element(pair, DTYPE_F16, first + at, second + at); break;
                default: mix_element(pair, DTYPE_BF16, first + at, second + at);
            }
        }
    }
}

#endif
