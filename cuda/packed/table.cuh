//! What decodes packed images is told: a table with an entry for each image and one with an entry for each row of MCUs
//! that is wanted of them, in device memory. The host has checked the head of each image, and only the head. The form
//! is specified in `docs/packed-image.md`.
//!
//! The Rust side is `src/decode/cuda/table.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_PACKED_TABLE
#define FORELOAD_PACKED_TABLE

#include "params.cuh"

/// A component of a packed image.
typedef struct {
    /// The address of the plane that gets the wanted blocks, which must be a multiple of 8.
    u64 plane;
    /// The bytes from one row of samples to the next, a multiple of 8 that has room for all wanted columns of blocks.
    u32 stride;
    /// The number of rows of samples that the plane has; of blocks that go beyond it the rest is left out.
    u32 height;
    /// The columns of blocks of the component, and its rows of blocks in a row of MCUs.
    u32 columns, rows;
    /// The wanted columns and rows of blocks: from..to along x, then along y.
    u32 wanted[2][2];
    /// The steps of quantisation, row by row of the block.
    u16 steps[64];
} PackedComponent;

/// A packed image.
typedef struct {
    PackedComponent components[3];
    /// The number of components, 1 or 3.
    u32 count;
    /// Which number behind `damage` counts the image's damaged rows.
    u32 damage;
} PackedImage;

/// A row of MCUs.
typedef struct {
    /// The address of its first byte; words that hold a byte of the row are read whole.
    u64 bytes;
    /// The number of its bytes, and their CRC-32C.
    u32 length, checksum;
    /// The number of its image in the table of images, and which row of that image it is.
    u32 image, number;
} PackedRow;

SAME(packed_component, sizeof(PackedComponent) == 168);
SAME(packed_image, sizeof(PackedImage) == 512);
SAME(packed_row, sizeof(PackedRow) == 24);

#endif
