//! From the coefficients of a block to samples: the accurate integer inverse DCT of libjpeg, with the same bits as
//! `src/pixels/decode/jpeg/idct.rs`, which names its source.

#ifndef FORELOAD_DECODE_TRANSFORM
#define FORELOAD_DECODE_TRANSFORM

#include "platform.cuh"

/// A bound on the sum of the magnitudes of four coefficients that share a column: rows 0, 1, 2, 5 and rows 3, 4, 6, 7.
/// Larger sums mean damage.
///
/// No factor below is more than 11363, so that a column's results stay below (2 * 2950 * 11363 + 1024) / 2048 < 2^15.
/// The factors of one result of a row sum up to less than 2^16, so that its terms stay within 32 bits.
#define LIMIT 2950

/// Transforms eight inputs to eight outputs. The outputs have 13 more bits after the point, of which `shift` are
/// rounded away.
INLINE void transform(const i32 x[8], u32 shift, i32 to[8]) {
    const i32 half = 1 << (shift - 1);
    const i32 sum = (x[0] + x[4]) * 8192 + half, difference = (x[0] - x[4]) * 8192 + half;
    const i32 outer = x[2] * 10703 + x[6] * 4433, inner = x[2] * 4433 - x[6] * 10704;
    const i32 even[4] = {sum + outer, difference + inner, difference - inner, sum - outer};
    const i32 odd[4] = {
        x[1] * 11363 + x[3] * 9633 + x[5] * 6437 + x[7] * 2260,
        x[1] * 9633 - x[3] * 2259 - x[5] * 11362 - x[7] * 6436,
        x[1] * 6437 - x[3] * 11362 + x[5] * 2261 + x[7] * 9633,
        x[1] * 2260 - x[3] * 6436 + x[5] * 9633 - x[7] * 11363,
    };
    UNROLL for (u32 i = 0; i < 4; i++) {
        to[i] = (even[i] + odd[i]) >> shift;
        to[7 - i] = (even[i] - odd[i]) >> shift;
    }
}

/// Multiplies coefficients by their steps and transforms the columns, in place. Returns 0 if coefficients exceed the
/// range that samples of 8 bits can have; the results are then undefined.
INLINE u32 transform_columns(i16* coefficients, const u16* steps) {
    u32 within = 1;
    ROLL for (u32 column = 0; column < 8; column++) {
        i32 x[8], to[8];
        u32 sums[2] = {0, 0};
        UNROLL for (u32 row = 0; row < 8; row++) {
            const i32 value = coefficients[8 * row + column];
            const u32 magnitude = (u32)(value < 0 ? -value : value) * steps[8 * row + column];
            sums[row == 3 || row == 4 || row >= 6] += magnitude;
            x[row] = value < 0 ? -(i32)magnitude : (i32)magnitude;
        }
        if (sums[0] > LIMIT || sums[1] > LIMIT) {
            within = 0;
            continue;
        }
        transform(x, 11, to);
        UNROLL for (u32 row = 0; row < 8; row++) coefficients[8 * row + column] = (i16)to[row];
    }
    return within;
}

/// Transforms a row of the transformed columns, and returns its samples: the first four, then the other four.
INLINE void transform_row(const i16* row, u32 words[2]) {
    i32 x[8], to[8];
    UNROLL for (u32 half = 0; half < 2; half++) {
        u32 pairs[2];
        load_two((const u16*)row + 4 * half, pairs);
        UNROLL for (u32 i = 0; i < 4; i++) x[4 * half + i] = (i16)(pairs[i / 2] >> 16 * (i % 2));
    }
    transform(x, 18, to);
    words[0] = words[1] = 0;
    UNROLL for (u32 column = 0; column < 8; column++) {
        words[column / 4] |= (u32)clamped(to[column] + 128, 255) << 8 * (column % 4);
    }
}

#endif
