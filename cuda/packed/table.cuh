//! The tables, in device memory, of the kernel that decodes packed images: one entry per image, and one per wanted row
//! of MCUs. The host has checked only the head of each image. The storage format is specified in
//! `docs/packed-image.md`.
//!
//! The Rust side is `src/pixels/decode/cuda/packed.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_PACKED_TABLE
#define FORELOAD_PACKED_TABLE

#include "decode/table.cuh"

/// A row of MCUs.
typedef struct {
    /// The address of the row's first byte. Words that hold a byte of the row are read whole.
    u64 bytes;
    /// The number of bytes of the row, and their CRC-32C.
    u32 length, checksum;
    /// The index of the image in the table of images, and the index of the row in the image.
    u32 image, number;
} PackedRowEntry;

SAME_SIZE(PackedRowEntry, 24);
SAME_OFFSET(PackedRowEntry, length, 8);
SAME_OFFSET(PackedRowEntry, image, 16);
SAME_OFFSET(PackedRowEntry, number, 20);

#endif
