//! MixUp and CutMix: the images of a mixing group (ring) are mixed in place, each with the image before it and the
//! first with the last, with torchvision's arithmetic. In float32 each product and the sum are rounded; other types are
//! rounded again when they are stored.

#ifndef FORELOAD_MIX
#define FORELOAD_MIX

#include "finish.cuh"

/// The most images of a mixing group.
#define RING 4

/// The entry of a mixing group in the table that a launch reads from device memory.
typedef struct {
    /// The number of images in the group, at least two, and their indices in the batch.
    u32 count;
    u32 places[RING];
    /// The weights of an image itself and of the one before it.
    f32 own;
    f32 other;
    /// Whether an image is not blended, but takes a rectangle of the image before it: these columns and rows.
    u32 pastes;
    u32 left;
    u32 top;
    u32 right;
    u32 bottom;
} RingParams;

/// The value of a float16 by its bits.
INLINE f32 half_value(u32 bits) {
    const u32 sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, digits = bits & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | digits << 13);
    // A subnormal float16 is an integer multiple of 2^-24, which float32 represents exactly.
    if (exponent == 0) return float_of(sign | bits_of((f32)digits * 5.9604644775390625e-8f));
    return float_of(sign | (exponent + 112) << 23 | digits << 13);
}

/// The value of an element, by its bits.
INLINE f32 decode(u32 dtype, u32 bits) {
    if (dtype == DTYPE_F32) return float_of(bits);
    return dtype == DTYPE_F16 ? half_value(bits) : float_of(bits << 16);
}

/// Mixes the element at `at` of each image.
INLINE void mix_element(const RingParams* ring, u32 dtype, u8* images, u64 image_bytes, u64 at) {
    const u32 size = size_of(dtype), last = ring->count - 1;
    const u32 of_last = load_bits(images + ring->places[last] * image_bytes + at, size);
    // From the last to the first, so that no image is overwritten before it was used; the last one was loaded above.
    u32 own = of_last;
    for (u32 image = ring->count; image-- > 0;) {
        const u32 before = image == 0 ? of_last : load_bits(images + ring->places[image - 1] * image_bytes + at, size);
        const f32 blended = decode(dtype, own) * ring->own + decode(dtype, before) * ring->other;
        const u32 mixed = ring->pastes ? before : encode(dtype, blended);
        store_bits(images + ring->places[image] * image_bytes + at, mixed, size);
        own = before;
    }
}

/// Mixes the images of a group; `images` is the address of the batch. The block is number `tile` of `tiles` for this
/// group.
INLINE void mix(const Block* block, const RingParams* ring, u8* images, u32 tile, u32 tiles) {
    const OutputParams* output = block->output;
    const u32 size = size_of(output->dtype), planar = output->format == FORMAT_NCHW;
    const u32 pixels = output->width * output->height;
    EACH_THREAD(t) {
        for (u32 element = tile * block->threads + t; element < 3 * pixels; element += tiles * block->threads) {
            const u32 pixel = planar ? element % pixels : element / 3;
            const u32 x = pixel % output->width, y = pixel / output->width;
            const u32 inside = x >= ring->left && x < ring->right && y >= ring->top && y < ring->bottom;
            if (ring->pastes && !inside) continue;
            const u64 at = (u64)element * size;
            switch (output->dtype) {
                case DTYPE_F32: mix_element(ring, DTYPE_F32, images, output->image_bytes, at); break;
                case DTYPE_F16: mix_element(ring, DTYPE_F16, images, output->image_bytes, at); break;
                default: mix_element(ring, DTYPE_BF16, images, output->image_bytes, at);
            }
        }
    }
}

#endif
