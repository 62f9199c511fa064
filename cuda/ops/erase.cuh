//! Rectangles of the finished image that are overwritten: `erase.rs` and `noise.rs` of `src/pixels/augment/ops/`.

#ifndef FORELOAD_ERASE
#define FORELOAD_ERASE

#include "ops/arithmetic.cuh"
#include "ops/program.cuh"

/// Philox4x32-10 of counter (`number`, 0, 0, 0): word `which` of its four.
INLINE u32 noise_word(const u32 key[2], u32 number, u32 which) {
    u32 words[4] = {number, 0, 0, 0}, keys[2] = {key[0], key[1]};
    ROLL for (u32 round = 0; round < 10; round++) {
        const u64 first = (u64)0xd2511f53 * words[0], second = (u64)0xcd9e8d57 * words[2];
        words[0] = (u32)(second >> 32) ^ words[1] ^ keys[0];
        words[2] = (u32)(first >> 32) ^ words[3] ^ keys[1];
        words[1] = (u32)second;
        words[3] = (u32)first;
        keys[0] += 0x9e3779b9;
        keys[1] += 0xbb67ae85;
    }
    // A computed index would keep the words out of registers.
    return which == 0 ? words[0] : which == 1 ? words[1] : which == 2 ? words[2] : words[3];
}

/// The natural logarithm of a normal number between 0 and 1: its exponent times ln 2, and
/// 2 artanh((m - 1) / (m + 1)) of its mantissa m.
INLINE f32 log_of(f32 value) {
    const u32 shifted = bits_of(value) - 0x3f3504f3;
    const i32 exponent = (i32)shifted >> 23;
    const f32 mantissa = float_of((shifted & 0x007fffff) + 0x3f3504f3);
    const f32 ratio = (mantissa - 1.0f) / (mantissa + 1.0f), square = ratio * ratio;
    const f32 series =
        ((((1.0f / 9.0f) * square + 1.0f / 7.0f) * square + 0.2f) * square + 1.0f / 3.0f) * square + 1.0f;
    return (f32)exponent * 0.69314718f + 2.0f * ratio * series;
}

/// A step of Horner's rule.
INLINE f32 horner(f32 sum, f32 x, f32 next) { return sum * x + next; }

/// The standard normal number of 32 uniform bits, by Giles' approximation of the inverse error function.
INLINE f32 normal_of(u32 bits) {
    const f32 x = (f32)((i32)(bits >> 8) * 2 + 1 - (1 << 24)) * (1.0f / (f32)(1 << 24));
    const f32 w = -log_of((1.0f - x) * (1.0f + x));
    f32 factor;
    if (w < 5.0f) {
        const f32 centre = w - 2.5f;
        factor = 2.8102264e-8f;
        factor = horner(factor, centre, 3.4327394e-7f);
        factor = horner(factor, centre, -3.5233877e-6f);
        factor = horner(factor, centre, -4.3915066e-6f);
        factor = horner(factor, centre, 0.00021858087f);
        factor = horner(factor, centre, -0.001253725f);
        factor = horner(factor, centre, -0.0041776816f);
        factor = horner(factor, centre, 0.24664073f);
        factor = horner(factor, centre, 1.5014094f);
    } else {
        const f32 tail = root_of(w) - 3.0f;
        factor = -0.00020021426f;
        factor = horner(factor, tail, 0.00010095056f);
        factor = horner(factor, tail, 0.0013493432f);
        factor = horner(factor, tail, -0.0036734284f);
        factor = horner(factor, tail, 0.0057395077f);
        factor = horner(factor, tail, -0.0076224613f);
        factor = horner(factor, tail, 0.0094388705f);
        factor = horner(factor, tail, 1.0016741f);
        factor = horner(factor, tail, 2.8329768f);
    }
    return factor * x * 1.41421356f;
}

/// Stores an element: floats are rounded to the nearest, levels are clamped and truncated.
INLINE void put(const OutputParams* output, u8* image, u32 place, f32 value) {
    const u32 size = size_of(output->dtype);
    const u32 bits = output->dtype == DTYPE_U8 ? truncated(value) : encode(output->dtype, value);
    store_bits(image + (u64)place * size, bits, size);
}

/// Thread `t` overwrites its part of a rectangle of the finished image.
INLINE void erase(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    const OutputParams* output = canvas->output;
    const u32 pixels = pixels_of(canvas), is_noise = code_of(op) == OP_NOISE;
    const u32 *words = words_of(op), row = words[0], column = words[1], rows = words[2], columns = words[3];
    ROLL for (u32 i = t; i < rows * columns; i += block->threads) {
        const u32 at = (row + i / columns) * output->width + column + i % columns;
        ROLL for (u32 c = 0; c < 3; c++) {
            const u32 index = c * pixels + at;
            f32 value;
            if (is_noise) {
                const f32 normal = normal_of(noise_word(words + 4, index / 4, index % 4));
                value = normal * float_of(words[9 + c]) + float_of(words[6 + c]);
            } else {
                value = float_of(words[4 + c]);
            }
            put(output, canvas->finished, output->format == FORMAT_NCHW ? index : 3 * at + c, value);
        }
    }
}

#endif
