//! From the coefficients of a wanted block, which are stored row by row in shared memory, to samples of its plane.

#ifndef FORELOAD_DECODE_SAMPLES
#define FORELOAD_DECODE_SAMPLES

#include "decode/table.cuh"
#include "decode/transform.cuh"

/// The distance of the coefficients of neighbouring blocks in shared memory, in coefficients. It is 4 more than 64, so
/// that threads which read the same coefficient of their blocks cause few bank conflicts.
#define COEFFICIENTS 68

/// The place of each coefficient in coding order, row by row (ITU T.81, figure A.6).
CONSTANTS u8 zigzag[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,
    7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46,
    53, 60, 61, 54, 47, 55, 62, 63,
};

/// Tables that all threads of a block read: the place of each coefficient in coding order, and each component's steps.
typedef struct {
    u8 places[64];
    u16 steps[3][64];
} CodingTables;

/// Copies the tables to shared memory.
INLINE void share_tables(CodingTables* tables, const ImageEntry* image, u32 t) {
    if (t >= 64) return;
    tables->places[t] = zigzag[t];
    ROLL for (u32 c = 0; c < image->count; c++) tables->steps[c][t] = image->components[c].steps[t];
}

/// Sets all coefficients of a block to zero.
INLINE void clear(i16* coefficients) {
    const u32 zeros[2] = {0, 0};
    ROLL for (u32 i = 0; i < 64; i += 4) store_words((u8*)(coefficients + i), zeros, 2);
}

/// Transforms the coefficients of the block in this column and row of its component's blocks, in place, and writes its
/// samples. Returns 0 if coefficients exceed the range that samples of 8 bits can have.
INLINE u32 write_samples(const ComponentEntry* component, const u16* steps, i16* coefficients, u32 column, u32 row) {
    const u32 within = transform_columns(coefficients, steps);
    const u32 x = 8 * (column - component->wanted[0][0]), y = 8 * (row - component->wanted[1][0]);
    const u32 lines = smaller(8, component->height - smaller(y, component->height));
    u8* to = (u8*)(component->plane + (u64)y * component->stride + x);
    ROLL for (u32 line = 0; line < lines; line++) {
        u32 words[2];
        transform_row(coefficients + 8 * line, words);
        store_words(to + (u64)line * component->stride, words, 2);
    }
    return within;
}

#endif
