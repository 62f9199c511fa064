//! What the threads of a block share that decodes a row of MCUs of a packed image. A thread has a block of 8×8 samples
//! at a time, and all of them together a few units.

#ifndef FORELOAD_PACKED_SHARED
#define FORELOAD_PACKED_SHARED

#include "block.cuh"
#include "decode/samples.cuh"
#include "packed/table.cuh"

/// The most blocks of a unit, the units that are decoded at a time, and so many blocks, which is the number of threads;
/// its logarithm.
#define UNIT 16u
#define UNITS 8u
#define BLOCKS (UNIT * UNITS)
#define LEVELS 7u

/// A unit that is being decoded; one that is not there has no blocks.
typedef struct {
    /// Its first byte in the row, and the number of its bytes.
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
    /// What sums and checksums are made of.
    u32 sums[2][BLOCKS];
    PackedUnit units[UNITS];
    /// Of each block: the difference of its DC coefficient, the bits of its mask, the coefficients that the mask says
    /// are not zero, the bits of its remainders, and its escapes.
    i16 differences[BLOCKS];
    u16 remainder_bits[BLOCKS];
    u8 mask_bits[BLOCKS], nonzeros[BLOCKS], escapes[BLOCKS];
    CodingTables tables;
    /// Whether something in the row cannot be.
    u32 damaged;
} PackedShared;

#endif
