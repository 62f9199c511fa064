//! What a launch is told: a table entry per image, in device memory, and the output's shape, by value.
//!
//! The Rust side is `src/augment/cuda/params.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_PARAMS
#define FORELOAD_PARAMS

#include "platform.cuh"

/// How samples become pixels along an axis, as libjpeg does it.
enum {
    /// One sample a pixel.
    UPSAMPLE_NONE,
    /// Two pixels a sample, 3/4 of the nearer and 1/4 of the next.
    UPSAMPLE_LINEAR,
    /// Each sample repeated.
    UPSAMPLE_REPEAT,
};

/// What the planes mean.
enum { COLOR_GRAY, COLOR_YCBCR, COLOR_RGB };

/// Element types.
enum { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U8 };

/// Order of dimensions.
enum { FORMAT_NCHW, FORMAT_NHWC };

/// How pixels are resampled; see `augment::Filter`.
enum { FILTER_NEAREST, FILTER_NEAREST_EXACT, FILTER_BILINEAR, FILTER_BICUBIC };

/// What lies outside of the image; see `augment::Padding`.
enum { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };

/// Columns go along x, rows along y.
enum { ALONG_X, ALONG_Y };

/// One component's samples: (x, y) of the whole component lies at data[(y - y0) * stride + (x - x0)].
typedef struct {
    /// Address of the first stored sample. Words that hold a stored sample are read whole.
    u64 data;
    /// Bytes from one row to the next.
    u32 stride;
    /// Place of the first stored sample in the component.
    u32 x0, y0;
    /// Stored columns and rows: nothing else is used.
    u32 width, height;
    /// Along x and y: samples of the whole component, image pixels a sample spans, upsampling.
    u32 full[2], step[2], upsampling[2];
    /// First component that is sampled like this one; its own number if there is none before.
    u32 like;
} PlaneParams;

/// One axis of a view; see `augment::Axis`.
typedef struct {
    /// Source pixels an output pixel spans: length / full, for the nearest pixels in 32 bits.
    f64 scale;
    /// 1 / max(scale, 1).
    f64 inverse;
    /// First source pixel, and how many.
    u32 start, length;
    /// Pixels of the resized axis, and the first of them that the output shows.
    u32 full;
    i32 window;
    /// Output pixels shown_first..shown_end are made of the image, the others are filled.
    u32 shown_first, shown_end;
    u32 filter, padding;
} AxisParams;

/// One image.
typedef struct {
    PlaneParams planes[3];
    /// Columns, rows.
    AxisParams axes[2];
    u32 color;
    /// Mirror left and right.
    u32 flip;
    /// Write zero bytes, look at nothing else.
    u32 blank;
    /// Which image behind the batch's first it becomes.
    u32 place;
} ImageParams;

/// What a launch writes, and how blocks share it.
typedef struct {
    /// Bytes from one image to the next.
    u64 image_bytes;
    u32 width, height;
    u32 dtype, format;
    /// Output value = grey level * gain + offset, per channel.
    f32 gain[3], offset[3];
    /// Output value per channel where the output is filled.
    f32 fill[3];
    /// A block makes a tile of so many columns (a multiple of 4, at most MOST_THREADS) and rows (at most MOST_ROWS).
    u32 tile_columns, tile_rows;
    /// Tiles side by side.
    u32 tiles_across;
    /// Threads side by side, at least tile_columns; a divisor of the block.
    u32 threads_across;
    /// Rows that are finished at a time: threads / (tile_columns / 4) or less.
    u32 step_rows;
    /// Bytes of dynamic shared memory.
    u32 shared_bytes;
    u32 unused;
} OutputParams;

/// Most rows of a tile.
#define MOST_ROWS 64

#ifdef __cplusplus
#define SAME(name, condition) static_assert(condition, #name)
#else
#define SAME(name, condition) _Static_assert(condition, #name)
#endif

SAME(plane, sizeof(PlaneParams) == 56);
SAME(axis, sizeof(AxisParams) == 48);
SAME(image, sizeof(ImageParams) == 280);
SAME(output, sizeof(OutputParams) == 88);

#endif
