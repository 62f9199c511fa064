//! Instructions that handle each pixel independently: `grey.rs`, `hue.rs` and `table.rs` of `src/pixels/augment/ops/`,
//! and the store of the finished image.

#ifndef FORELOAD_POINTS
#define FORELOAD_POINTS

#include "ops/arithmetic.cuh"
#include "ops/program.cuh"

/// One grey level on the scale of 0..1, and 1.0 in levels.
#define LEVEL_UNIT ((f32)(1.0 / 255.0))
#define LEVELS_OF_ONE ((f32)(256.0 - 1e-3))
#define SIXTH ((f32)(1.0 / 6.0))

/// torchvision's grey of uint8, truncated. The first product is rounded, and then each sum once.
INLINE u32 luma(u32 red, u32 green, u32 blue) {
    return truncated(fused((f32)blue, 0.114f, fused((f32)green, 0.587f, (f32)red * 0.2989f)));
}

/// Turns the hue of a pixel by a share `by` of a full turn, through hue, saturation and value.
INLINE void turn_hue(u32 pixel[3], f32 by) {
    const f32 red = (f32)pixel[0] * LEVEL_UNIT, green = (f32)pixel[1] * LEVEL_UNIT, blue = (f32)pixel[2] * LEVEL_UNIT;
    const f32 larger_two = red > green ? red : green, most = larger_two > blue ? larger_two : blue;
    const f32 smaller_two = red < green ? red : green, least = smaller_two < blue ? smaller_two : blue;
    const f32 range = most - least;
    const u32 is_red = red == most, is_green = green == most;

    const f32 next = is_red ? blue : is_green ? red : green, last = is_red ? green : is_green ? blue : red;
    const f32 divisor = range > 0.0f ? range : 1.0f;
    f32 hue = ((most - next) / divisor + (is_red ? 0.0f : is_green ? 2.0f : 4.0f)) - (most - last) / divisor;
    hue = hue * SIXTH + 1.0f;
    hue = hue >= 1.0f ? hue - 1.0f : hue;
    const f32 saturation = range / (most > 0.0f ? most : 1.0f);

    hue = hue + by;
    hue = hue >= 1.0f ? hue - 1.0f : hue;
    hue = hue < 0.0f ? hue + 1.0f : hue;

    const f32 sixths = hue * 6.0f;
    const u32 sector = truncated(sixths);
    const f32 share = saturation * (sixths - (f32)sector), rest = 1.0f - saturation;
    const u32 falling = truncated((1.0f - share) * most * LEVELS_OF_ONE);
    const u32 rising = truncated((share + rest) * most * LEVELS_OF_ONE);
    const u32 low = truncated(rest * most * LEVELS_OF_ONE), high = truncated(most * LEVELS_OF_ONE);
    const u32 is_first = sector == 0 || sector == 6;
    const u32 moving = is_first || sector == 2 || sector == 4 ? rising : falling;
    pixel[0] = sector == 1 || sector == 4 ? moving : sector == 2 || sector == 3 ? low : high;
    pixel[1] = is_first || sector == 3 ? moving : sector == 1 || sector == 2 ? high : low;
    pixel[2] = is_first || sector == 1 ? low : sector == 3 || sector == 4 ? high : moving;
}

/// Whether pixel `at` is in the rectangle (row, column, rows, columns) at `words`.
INLINE u32 is_inside(const Canvas* canvas, const u32* words, u32 at) {
    const u32 x = at % canvas->output->width, y = at / canvas->output->width;
    return y - words[0] < words[2] && x - words[1] < words[3];
}

/// Applies the instruction `op` to pixel `at`.
INLINE void change_pixel(const Block* block, const Canvas* canvas, const u32* op, u32 at, u32 pixel[3]) {
    const u32 code = code_of(op);
    const u32* words = words_of(op);
    if (code < FIRST_BESIDE_TABLES) {
        UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = ops_shared(block)->table[c][pixel[c]];
    } else if (code == OP_GREY) {
        pixel[0] = pixel[1] = pixel[2] = luma(pixel[0], pixel[1], pixel[2]);
    } else if (code == OP_SATURATION) {
        const f32 of_level = float_of(words[0]), of_grey = float_of(words[1]);
        const f32 grey = (f32)luma(pixel[0], pixel[1], pixel[2]);
        UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = truncated(fused(grey, of_grey, (f32)pixel[c] * of_level));
    } else if (code == OP_HUE) {
        turn_hue(pixel, float_of(words[0]));
    } else if (code == OP_PERMUTE) {
        // Arrays with computed indices would not be kept in registers.
        const u32 levels = pixel[0] | pixel[1] << 8 | pixel[2] << 16;
        UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = levels >> 8 * (words[0] >> 8 * c & 255) & 255;
    } else if (code == OP_FILL && is_inside(canvas, words, at)) {
        UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = words[4] >> 8 * c & 255;
    }
}

/// Normalises, casts and stores up to four pixels.
INLINE void store_finished(const Canvas* canvas, u32 at, u32 count, const u32 levels[3]) {
    const OutputParams* output = canvas->output;
    f32 values[3][QUAD];
    UNROLL for (u32 c = 0; c < 3; c++) {
        UNROLL for (u32 i = 0; i < QUAD; i++) {
            values[c][i] = (f32)level_of(levels[c], i) * output->gain[c] + output->offset[c];
        }
    }
    store_pixels(output, canvas->finished, at, count, values);
}

/// Thread `t` applies the instructions op..end to its pixels, one after another.
INLINE void run_points(const Block* block, const Canvas* canvas, const u32* op, const u32* end, u32 t) {
    const u32 pixels = pixels_of(canvas);
    const u8* from = set_of(canvas, from_of(op));
    u8* to = set_of(canvas, to_of(op));
    EACH_QUAD(at, canvas, t) {
        const u32 count = count_from(canvas, at);
        u32 levels[3], is_stored = 0;
        UNROLL for (u32 c = 0; c < 3; c++) levels[c] = load_levels(from + c * pixels + at, count);
        ROLL for (const u32* now = op; now < end; now += length_of(now)) {
            is_stored = code_of(now) == OP_STORE;
            if (is_stored) break;
            u32 changed[3] = {0, 0, 0};
            ROLL for (u32 i = 0; i < QUAD; i++) {
                u32 pixel[3];
                UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = level_of(levels[c], i);
                change_pixel(block, canvas, now, at + i, pixel);
                UNROLL for (u32 c = 0; c < 3; c++) changed[c] |= pixel[c] << 8 * i;
            }
            UNROLL for (u32 c = 0; c < 3; c++) levels[c] = changed[c];
        }
        if (is_stored) {
            store_finished(canvas, at, count, levels);
        } else {
            UNROLL for (u32 c = 0; c < 3; c++) store_levels(to + c * pixels + at, count, levels[c]);
        }
    }
}

#endif
