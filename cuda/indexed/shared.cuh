//! The shared memory of a block of threads that decodes several rows of MCUs of an indexed image in parallel. Each row
//! has a few neighbouring threads. The first one of them reads the row's codes until each thread has a block of 8×8
//! samples.

#ifndef FORELOAD_INDEXED_SHARED
#define FORELOAD_INDEXED_SHARED

#include "block.cuh"
#include "decode/samples.cuh"
#include "indexed/table.cuh"

/// The threads per row, and the rows per block of threads. Few threads of a warp read codes, because such threads
/// diverge: more of them would mostly wait for each other.
#define ROW_THREADS 8u
#define GROUP_ROWS 16u
#define GROUP_THREADS (ROW_THREADS * GROUP_ROWS)

/// The most blocks of an MCU (ITU T.81, B.2.3).
#define MCU_BLOCKS 10

/// The number of bits of the lookup tables; longer codes are searched for.
#define DC_LOOKUP 8
#define AC_LOOKUP 10

/// A block of an MCU: its component, and its column and row among that component's blocks of the MCU.
typedef struct {
    u8 component, column, row;
} McuBlock;

/// Where a block of coefficients belongs: its component, and its column and row among all blocks of the component.
typedef struct {
    u16 column, row;
    u32 component;
} BlockPlace;

typedef struct {
    /// The coefficients of each thread's block, row by row, and where they belong.
    i16 coefficients[GROUP_THREADS][COEFFICIENTS];
    BlockPlace places[GROUP_THREADS];
    /// The number of blocks that were read for each row, at most one per thread of the row.
    u32 found[GROUP_ROWS];
    /// The DC coefficients of each row, by component.
    i32 dc[GROUP_ROWS][3];
    CodingTables tables;
    /// The codes of each component by the next bits of the row: the length, and the symbol in the upper half. The
    /// length is 0 if the code is longer than the lookup or does not exist.
    u16 dc_codes[3][1 << DC_LOOKUP], ac_codes[3][1 << AC_LOOKUP];
    /// The blocks of an MCU in their order, and their number.
    McuBlock mcu[MCU_BLOCKS];
    u32 mcu_blocks;
    /// Whether a row is invalid.
    u32 damaged;
} IndexedShared;

#endif
