//! The kernels. The pass: a block a tile, blockIdx.y the image; see `augment.cuh`. The look at what was decoded: a
//! block an image; see `untouched.cuh`. Colours: some blocks an image; see `colour.cuh`.

#include "augment.cuh"
#include "colour.cuh"
#include "untouched.cuh"

extern "C" {

/// `blocks` are those that a multiprocessor has registers for at a time: as many as go without spilling any.
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

__global__ void __launch_bounds__(MOST_THREADS)
    foreload_colour(const ImageParams* table, const u8* levels, u8* images, OutputParams output, u64 steps) {
    Block block;
    block.image = table + blockIdx.y;
    block.output = &output;
    block.threads = blockDim.x;
    colour(&block, steps, levels, images, blockIdx.x, gridDim.x);
}

}
