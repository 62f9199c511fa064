//! The shared memory of a block of threads that decodes a row of MCUs of a packed image. Each thread decodes a block of
//! 8×8 samples at a time, and all threads together decode a few units.

#ifndef FORELOAD_PACKED_SHARED
#define FORELOAD_PACKED_SHARED

#include "block.cuh"
#include "decode/samples.cuh"
#include "packed/table.cuh"

/// The most blocks per unit, the units that are decoded at a time, and the blocks of these units, which is the number
/// of threads; the logarithm of that number.
#define UNIT 16u
#define UNITS 8u
#define BLOCKS (UNIT * UNITS)
#define LEVELS 7u

/// A unit that is being decoded. An entry without a unit has no blocks.
typedef struct {
    /// The offset of its first byte in the row, and its number of bytes.
    u32 offset, length;
    /// The number of its blocks, of which first..end are wanted.
    u32 count, first, end;
    /// Its component, the column of its first block among the component's, and their row.
    u32 component, x, y;
} PackedUnit;

typedef struct {
    union {
        /// The coefficients of each block, row by row.
        i16 coefficients[BLOCKS][COEFFICIENTS];
        /// The remainder of each byte, for the row's checksum.
        u32 remainders[256];
    } memory;
    /// Intermediate values of sums and checksums.
    u32 sums[2][BLOCKS];
    PackedUnit units[UNITS];
    /// For each block: the difference of its DC coefficient, the bits of its mask, the number of nonzero coefficients
    /// in the mask, the bits of its remainders, and the number of its escapes.
    i16 differences[BLOCKS];
    u16 remainder_bits[BLOCKS];
    u8 mask_bits[BLOCKS], nonzeros[BLOCKS], escapes[BLOCKS];
    CodingTables tables;
    /// Whether the row is invalid.
    u32 damaged;
} PackedShared;

#endif
