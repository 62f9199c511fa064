//! The kernels:
//! - The gathering of the bytes to decode, one block per piece (`decode/gather.cuh`).
//! - The decoders: of packed images, one block per row of MCUs (`packed/decode.cuh`), and of indexed images, one block
//!   per group of rows (`indexed/decode.cuh`).
//! - The augmentation pass, one block per tile, blockIdx.y is the image (`augment.cuh`).
//! - The check that nvJPEG wrote its planes, one block per image (`untouched.cuh`).
//! - The operations on pixels after the pass, one block per image (`ops/walk.cuh`). They work on grey levels, from
//!   which the image is then made, or on the finished image.
//! - MixUp and CutMix, some blocks per mixing group (`mix.cuh`).

#include "augment.cuh"
#include "decode/gather.cuh"
#include "indexed/decode.cuh"
#include "mix.cuh"
#include "ops/walk.cuh"
#include "packed/decode.cuh"
#include "untouched.cuh"

extern "C" {

/// `blocks` is the number of blocks that a multiprocessor runs at a time: as many as fit without spilling registers.
#define KERNEL(name, exact, blocks)                                                                                   \
    __global__ void __launch_bounds__(MOST_THREADS, blocks)                                                           \
        name(const ImageParams* table, u8* images, OutputParams output) {                                             \
        extern __shared__ __align__(16) u8 memory[];                                                                  \
        Block block;                                                                                                  \
        block.image = table + blockIdx.y;                                                                             \
        block.output = &output;                                                                                       \
        block.memory = memory;                                                                                        \
        block.threads = blockDim.x;                                                                                   \
        augment(&block, images + block.image->place * output.image_bytes, blockIdx.x, gridDim.x, exact);              \
    }

KERNEL(foreload_augment_fast, 0, 3)
KERNEL(foreload_augment_exact, 1, 2)

__global__ void __launch_bounds__(MOST_THREADS)
    foreload_untouched(const ImageParams* table, u32* counts, u32 poison) {
    extern __shared__ __align__(16) u8 memory[];
    Block block;
    block.image = table + blockIdx.x;
    block.memory = memory;
    block.threads = blockDim.x;
    count_untouched(&block, poison, counts + blockIdx.x);
}

__global__ void __launch_bounds__(MOST_OPS_THREADS, 2)
    foreload_ops(const ImageParams* table, const ProgramSpan* spans, const u32* words, u8* levels, u64 set_bytes,
                 u8* images, OutputParams output) {
    extern __shared__ __align__(16) u8 memory[];
    Block block;
    block.image = table + blockIdx.x;
    block.memory = memory;
    block.threads = blockDim.x;
    run_program(&block, &output, spans[blockIdx.x], words, levels, set_bytes, images);
}

__global__ void __launch_bounds__(MOST_OPS_THREADS, 2)
    foreload_erase(const ImageParams* table, const ProgramSpan* spans, const u32* words, u8* images,
                   OutputParams output) {
    Block block;
    block.image = table + blockIdx.x;
    block.threads = blockDim.x;
    erase_finished(&block, &output, spans[blockIdx.x], words, images);
}

__global__ void __launch_bounds__(MOST_THREADS)
    foreload_mix(const RingParams* table, u8* images, OutputParams output) {
    Block block;
    block.output = &output;
    block.threads = blockDim.x;
    mix(&block, table + blockIdx.y, images, blockIdx.x, gridDim.x);
}

__global__ void __launch_bounds__(GATHER_THREADS)
    foreload_gather(const PieceEntry* pieces) {
    Block block;
    block.threads = blockDim.x;
    gather(&block, pieces + blockIdx.x);
}

__global__ void __launch_bounds__(BLOCKS, 8)
    foreload_packed(const ImageEntry* images, const PackedRowEntry* rows, u32* damage) {
    extern __shared__ __align__(16) u8 memory[];
    Block block;
    block.memory = memory;
    block.threads = blockDim.x;
    decode_row(&block, images, rows + blockIdx.x, damage);
}

__global__ void __launch_bounds__(GROUP_THREADS, 4)
    foreload_indexed(const IndexedImageEntry* images, const HuffmanCode* codes, const IndexedRowEntry* rows,
                     const RowGroupEntry* groups, u32* damage) {
    extern __shared__ __align__(16) u8 memory[];
    Block block;
    block.memory = memory;
    block.threads = blockDim.x;
    decode_group(&block, images, codes, rows, groups + blockIdx.x, damage);
}

}
