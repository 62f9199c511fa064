//! What decodes packed images is told: a table with an entry for each image and one with an entry for each row of MCUs
//! that is wanted of them, in device memory. The host has checked the head of each image, and only the head. The form
//! is specified in `docs/packed-image.md`.
//!
//! The Rust side is `src/pixels/decode/cuda/packed.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_PACKED_TABLE
#define FORELOAD_PACKED_TABLE

#include "decode/table.cuh"

/// A row of MCUs.
typedef struct {
    /// The address of its first byte; words that hold a byte of the row are read whole.
    u64 bytes;
    /// The number of its bytes, and their CRC-32C.
    u32 length, checksum;
    /// The number of its image in the table of images, and which row of that image it is.
    u32 image, number;
} PackedRowEntry;

SAME_SIZE(PackedRowEntry, 24);
SAME_OFFSET(PackedRowEntry, length, 8);
SAME_OFFSET(PackedRowEntry, image, 16);
SAME_OFFSET(PackedRowEntry, number, 20);

#endif
