//! Changes of colour: `src/augment/recipe/colour.rs` for a block of threads. The augmentation pass has written grey
//! levels of the output's size before, one plane for each colour. They are changed, normalised, cast and stored.

#ifndef FORELOAD_COLOUR
#define FORELOAD_COLOUR

#include "augment.cuh"

/// What a step does. A launch has one byte for each step; 0 is no step.
enum { COLOUR_NONE, COLOUR_GRAYSCALE };

/// The levels of up to four consecutive pixels.
INLINE void load_levels(const u8* from, u32 count, u32 levels[QUAD]) {
    if (count == QUAD && ((u64)from & 3) == 0) {
        const u32 word = load_word(from);
        UNROLL for (u32 i = 0; i < QUAD; i++) levels[i] = word >> 8 * i & 255;
    } else {
        UNROLL for (u32 i = 0; i < QUAD; i++) levels[i] = i < count ? load_byte(from + i) : 0;
    }
}

/// torchvision's grey of uint8, truncated. It rounds each sum once to 32 bits; 64 bits hold products and sums exactly.
INLINE u32 luma(u32 red, u32 green, u32 blue) {
    const f32 first = (f32)red * 0.2989f;
    const f32 second = (f32)((f64)first + (f64)green * (f64)0.587f);
    return (u32)(f32)((f64)second + (f64)blue * (f64)0.114f);
}

INLINE void grayscale(u32 levels[3][QUAD]) {
    UNROLL for (u32 i = 0; i < QUAD; i++) {
        const u32 grey = luma(levels[0][i], levels[1][i], levels[2][i]);
        UNROLL for (u32 c = 0; c < 3; c++) levels[c][i] = grey;
    }
}

/// Thread `t` of one of `tiles` blocks makes its share of the image at `image` from `levels`. The first of the `steps`
/// is the lowest byte.
INLINE void recolour(const Block* block, u64 steps, const u8* levels, u8* image, u32 tile, u32 tiles, u32 t) {
    const OutputParams* output = block->output;
    const u64 pixels = (u64)output->width * output->height, every = (u64)tiles * block->threads * QUAD;
    ROLL for (u64 at = ((u64)tile * block->threads + t) * QUAD; at < pixels; at += every) {
        const u32 count = pixels - at < QUAD ? (u32)(pixels - at) : QUAD;
        u32 of[3][QUAD];
        UNROLL for (u32 c = 0; c < 3; c++) load_levels(levels + c * pixels + at, count, of[c]);
        ROLL for (u64 rest = steps; rest; rest >>= 8) {
            if ((rest & 255) == COLOUR_GRAYSCALE) grayscale(of);
        }
        f32 values[3][QUAD];
        UNROLL for (u32 c = 0; c < 3; c++) {
            UNROLL for (u32 i = 0; i < QUAD; i++) values[c][i] = (f32)of[c][i] * output->gain[c] + output->offset[c];
        }
        store_pixels(output, image, at, count, values);
    }
}

/// Makes image number `block->image->place` of those at `images` from its levels.
INLINE void colour(const Block* block, u64 steps, const u8* levels, u8* images, u32 tile, u32 tiles) {
    const OutputParams* output = block->output;
    const u64 place = block->image->place;
    const u8* from = levels + place * 3 * output->width * output->height;
    u8* image = images + place * output->image_bytes;
    EACH_THREAD(t) {
        if (block->image->blank) {
            clear(block, image, tile, tiles, t);
        } else {
            recolour(block, steps, from, image, tile, tiles, t);
        }
    }
}

#endif
