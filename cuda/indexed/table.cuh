//! The tables, in device memory, of the kernel that decodes indexed images: one entry per image, per Huffman code, per
//! wanted row of MCUs, and per group of rows that a block of threads decodes. The storage format is specified in
//! `docs/indexed-image.md`.
//!
//! The Rust side is `src/pixels/decode/cuda/indexed.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_INDEXED_TABLE
#define FORELOAD_INDEXED_TABLE

#include "decode/table.cuh"

/// An image. Its components are in the order of its scan.
typedef struct {
    ImageEntry image;
    /// The columns and rows of MCUs.
    u32 mcus[2];
    /// The MCUs from one restart marker to the next; 0 if there are none.
    u32 interval;
    /// The columns of MCUs that hold wanted blocks: from..to.
    u32 wanted[2];
    /// For each component, the index in the table of codes of its code for DC differences and of its code for AC
    /// coefficients.
    u32 codes[3][2];
    u32 unused;
} IndexedImageEntry;

/// A Huffman code; the Rust side is `src/pixels/decode/jpeg/huffman.rs`. Its symbols are sizes of DC differences, at
/// most 15, or runs and sizes of AC coefficients.
typedef struct {
    /// The first code that is too large for codes of this length, left-aligned to 16 bits; by length - 1.
    u32 limit[16];
    /// The index of a symbol minus its code; by length - 1.
    i32 offset[16];
    u8 symbols[256];
} HuffmanCode;

/// A row of MCUs.
typedef struct {
    /// The address of the byte that holds the row's first bit. Words that hold a byte of the row are read whole.
    u64 bytes;
    /// The number of bytes of the row, and the index of the row in its image.
    u32 length, number;
    /// The number of bits of the first byte that belong to the row before.
    u16 skip;
    /// The DC coefficients before the row, by component.
    i16 dc[3];
} IndexedRowEntry;

/// Rows of one image that follow each other in the table.
typedef struct {
    /// The index of the image, the index of the first row in the table of rows, and the number of rows.
    u32 image, first, count;
} RowGroupEntry;

SAME_SIZE(IndexedImageEntry, 560);
SAME_OFFSET(IndexedImageEntry, interval, 520);
SAME_OFFSET(IndexedImageEntry, codes, 532);
SAME_SIZE(HuffmanCode, 384);
SAME_OFFSET(HuffmanCode, offset, 64);
SAME_OFFSET(HuffmanCode, symbols, 128);
SAME_SIZE(IndexedRowEntry, 24);
SAME_OFFSET(IndexedRowEntry, length, 8);
SAME_OFFSET(IndexedRowEntry, skip, 16);
SAME_OFFSET(IndexedRowEntry, dc, 18);
SAME_SIZE(RowGroupEntry, 12);
SAME_OFFSET(RowGroupEntry, first, 4);
SAME_OFFSET(RowGroupEntry, count, 8);

#endif
