//! The parameters of a launch: a table with an entry for each image, in device memory, and the output's shape, by
//! value.
//!
//! The Rust side is `src/pixels/augment/cuda/params.rs`; both assert the same sizes and offsets.

#ifndef FORELOAD_PARAMS
#define FORELOAD_PARAMS

#include "platform.cuh"

/// How samples become pixels along an axis, as libjpeg does it.
enum {
    /// One sample is one pixel.
    UPSAMPLE_NONE,
    /// A sample becomes two pixels, each of 3/4 of the nearer sample and 1/4 of the next.
    UPSAMPLE_LINEAR,
    /// Each sample is repeated.
    UPSAMPLE_REPEAT,
};

/// The colour space of the planes.
enum { COLOR_GRAY, COLOR_YCBCR, COLOR_RGB };

/// The element types.
enum { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U8 };

/// The order of dimensions.
enum { FORMAT_NCHW, FORMAT_NHWC };

/// How pixels are resampled; see `augment::Filter`.
enum { FILTER_NEAREST, FILTER_NEAREST_EXACT, FILTER_BILINEAR, FILTER_BICUBIC, FILTER_LANCZOS };

/// The pixels outside of the image; see `augment::Padding`.
enum { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };

/// Which axes are mirrored: left and right, top and bottom.
enum { FLIP_COLUMNS = 1, FLIP_ROWS = 2 };

/// Columns go along x, rows along y.
enum { ALONG_X, ALONG_Y };

/// The samples of one component. Sample (x, y) of the whole component is at data[(y - y0) * stride + (x - x0)].
typedef struct {
    /// The address of the first stored sample. Words that hold a stored sample are read whole.
    u64 data;
    /// The bytes from one row to the next.
    u32 stride;
    /// The position of the first stored sample in the component.
    u32 x0, y0;
    /// The number of stored columns and rows. Other samples are not used.
    u32 width, height;
    /// Along x and y: the samples of the whole component, the image pixels that a sample spans, and the upsampling.
    u32 full[2], step[2], upsampling[2];
    /// The index of the first component that is sampled like this one, perhaps this one.
    u32 like;
} PlaneParams;

/// One axis of a view; see `augment::Axis`.
typedef struct {
    /// The source pixels per output pixel: length / resized. For the nearest pixel it is rounded to 32 bits.
    f64 scale;
    /// 1 / max(scale, 1).
    f64 inverse;
    /// The first source pixel, and the number of source pixels.
    u32 start, length;
    /// The number of pixels of the resized axis, and the first of them that the output shows.
    u32 resized;
    i32 offset;
    /// Output pixels shown_first..shown_end are made from the image; the others are filled.
    u32 shown_first, shown_end;
    u32 filter, padding;
} AxisParams;

/// One image.
typedef struct {
    PlaneParams planes[3];
    /// The columns, then the rows.
    AxisParams axes[2];
    u32 color;
    /// The mirrored axes: FLIP_COLUMNS, FLIP_ROWS.
    u32 flip;
    /// Whether the image is only filled with zero bytes, and its other parameters are not read.
    u32 blank;
    /// The image's place in the output, counted from the batch's first.
    u32 place;
} ImageParams;

/// The output of a launch, and its division into blocks.
typedef struct {
    /// The bytes from one image to the next.
    u64 image_bytes;
    u32 width, height;
    u32 dtype, format;
    /// The factors of output value = grey level * gain + offset, per channel.
    f32 gain[3], offset[3];
    /// The output value of filled pixels, per channel.
    f32 fill[3];
    /// The size of a block's tile in columns (a multiple of 4, at most MOST_THREADS) and rows (at most MOST_ROWS).
    u32 tile_columns, tile_rows;
    /// The number of tiles side by side.
    u32 tiles_across;
    /// The number of threads side by side, at least tile_columns; a divisor of the block's threads.
    u32 threads_across;
    /// The number of rows that are finished at a time: threads / (tile_columns / 4) or less.
    u32 step_rows;
    /// The number of bytes of dynamic shared memory.
    u32 shared_bytes;
    u32 unused;
} OutputParams;

/// The most rows of a tile.
#define MOST_ROWS 64

/// Asserts that the size of a structure, and the offset of a field, are those of the Rust side.
#define SAME_SIZE(type, bytes) ASSERT(sizeof(type) == (bytes))
#define SAME_OFFSET(type, field, bytes) ASSERT(OFFSET_OF(type, field) == (bytes))

SAME_SIZE(PlaneParams, 56);
SAME_OFFSET(PlaneParams, full, 28);
SAME_OFFSET(PlaneParams, like, 52);
SAME_SIZE(AxisParams, 48);
SAME_OFFSET(AxisParams, start, 16);
SAME_OFFSET(AxisParams, shown_end, 36);
SAME_OFFSET(AxisParams, padding, 44);
SAME_SIZE(ImageParams, 280);
SAME_OFFSET(ImageParams, axes, 168);
SAME_OFFSET(ImageParams, color, 264);
SAME_OFFSET(ImageParams, blank, 272);
SAME_OFFSET(ImageParams, place, 276);
SAME_SIZE(OutputParams, 88);
SAME_OFFSET(OutputParams, gain, 24);
SAME_OFFSET(OutputParams, fill, 48);
SAME_OFFSET(OutputParams, tile_columns, 60);
SAME_OFFSET(OutputParams, shared_bytes, 80);

#endif
