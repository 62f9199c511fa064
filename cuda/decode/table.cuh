//! The entries of the tables, in device memory, that describe an image to the decoding kernels: its layout, the wanted
//! blocks, and where its planes are.
//!
//! The Rust side is `src/pixels/decode/cuda/image.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_DECODE_TABLE
#define FORELOAD_DECODE_TABLE

#include "params.cuh"

/// A component of an image.
typedef struct {
    /// The address of the plane that gets the wanted blocks, which must be a multiple of 8.
    u64 plane;
    /// The bytes from one row of samples to the next: a multiple of 8, at least 8 times the number of wanted block
    /// columns.
    u32 stride;
    /// The number of rows of samples of the plane. Rows of a block beyond it are not written.
    u32 height;
    /// The columns of blocks of the component, including those that only pad MCUs; and its rows of blocks per row of
    /// MCUs.
    u32 columns, rows;
    /// The wanted columns and rows of blocks: from..to along x, then along y.
    u32 wanted[2][2];
    /// The steps of quantisation, row by row of the block.
    u16 steps[64];
} ComponentEntry;

/// An image.
typedef struct {
    ComponentEntry components[3];
    /// The number of components, 1 or 3.
    u32 count;
    /// The index in `damage` of the counter of this image's damage.
    u32 damage;
} ImageEntry;

SAME_SIZE(ComponentEntry, 168);
SAME_OFFSET(ComponentEntry, wanted, 24);
SAME_OFFSET(ComponentEntry, steps, 40);
SAME_SIZE(ImageEntry, 512);
SAME_OFFSET(ImageEntry, count, 504);
SAME_OFFSET(ImageEntry, damage, 508);

/// The wanted rows of blocks of a component in row `number` of MCUs: from..to among all rows of the component.
INLINE void wanted_rows(const ComponentEntry* component, u32 number, u32* from, u32* to) {
    *from = larger(component->wanted[1][0], number * component->rows);
    *to = larger(*from, smaller(component->wanted[1][1], (number + 1) * component->rows));
}

#endif
