//! What the threads of a block share: their tile, and the layout of shared memory.

#ifndef FORELOAD_BLOCK
#define FORELOAD_BLOCK

#include "weights.cuh"

/// The filters of a tile's pixels along one axis. Positions in shared memory are in bytes.
typedef struct {
    /// How samples are upsampled. The weights include it.
    Method method;
    /// The position of a Span for each pixel of the tile.
    u32 spans;
    /// The position of signed 16-bit weights, two to a word: the pairs of a pixel are `pair_stride` words apart, those
    /// of neighbouring pixels `pixel_stride`. If the weights do not fit (`stored` is 0), a double for each pixel is
    /// here instead: the factor that normalises its weights, which are computed when they are needed.
    u32 weights, stored, pair_stride, pixel_stride;
} Filter;

/// The tables of a component.
typedef struct {
    Filter filters[2];
    /// The first component that is sampled like this one. Its filters are used.
    u32 like;
    /// The position of the ring buffer of resized rows (16 bits a value, `tile_columns` values a row), and its capacity
    /// in rows.
    u32 ring, capacity;
    /// If row weights are not stored: the position of the current stretch's weights, 16 bits each, `capacity` of them
    /// for each row of the step.
    u32 stretch_weights;
} Tables;

/// The source rows of a component that its ring buffer holds: from..to, the first of them in `slot`.
typedef struct {
    u32 from, to, slot;
    /// The first row that has to be resized. The rows before it were resized for an earlier stretch.
    u32 make;
    /// The end of the rows that the current output rows need.
    u32 limit;
} Stretch;

/// The progress of a thread in the weights of one row.
typedef struct {
    Walk walk;
    Rounding rounding;
} Place;

/// The head of shared memory.
typedef struct {
    /// The number of bits after the point of the weights, by axis and component.
    u32 bits[2][3];
    /// Whether all row weights are stored. If not, the weights of one stretch are computed at a time for each row of
    /// the step, and `places` is the position of each row's progress.
    u32 rows_stored, places;
    Tables tables[3];
    /// The current stretches, and the next ones.
    Stretch stretches[2][3];
} Shared;

/// A block of threads. Every member is the same for all of its threads.
typedef struct {
    const ImageParams* image;
    const OutputParams* output;
    u8* memory;
    u32 threads;
    /// The number of components; whether they are upsampled and converted before the resize.
    u32 components, converted;
    /// The number of bits after the point of a resized row.
    u32 fraction;
    /// The first column and row of the tile; its numbers of columns and rows.
    u32 x, y, width, height;
#ifndef __CUDACC_RTC__
    /// The order in which threads run on the CPU: thread i * turn modulo threads.
    u32 turn;
#endif
} Block;

#ifndef __CUDACC_RTC__
INLINE u32 thread_at(const Block* block, u32 i) { return i * block->turn % block->threads; }
#endif

INLINE Shared* shared(const Block* block) { return (Shared*)block->memory; }
INLINE Span* spans(const Block* block, u32 at) { return (Span*)(block->memory + at); }
INLINE u16* halves(const Block* block, u32 at) { return (u16*)(block->memory + at); }
INLINE u32* words(const Block* block, u32 at) { return (u32*)(block->memory + at); }
INLINE f64* doubles(const Block* block, u32 at) { return (f64*)(block->memory + at); }

/// While the filters are built, the memory of the ring buffers holds the normalising factors of the columns and rows.
#define FACTOR_BYTES (3 * (MOST_THREADS + MOST_ROWS) * 8)
INLINE f64* factors(const Block* block, u32 axis, u32 c) {
    f64* all = doubles(block, block->output->shared_bytes - FACTOR_BYTES);
    return axis == ALONG_X ? all + c * MOST_THREADS : all + 3 * MOST_THREADS + c * MOST_ROWS;
}

/// The tile along an axis: its first pixel and its number of pixels; then the output's number of pixels.
INLINE u32 first_of(const Block* block, u32 axis) { return axis == ALONG_X ? block->x : block->y; }
INLINE u32 number_of(const Block* block, u32 axis) { return axis == ALONG_X ? block->width : block->height; }
INLINE u32 all_of(const Block* block, u32 axis) {
    return axis == ALONG_X ? block->output->width : block->output->height;
}

/// The column of the view that the output's column `x` shows.
INLINE u32 unmirrored(const Block* block, u32 x) {
    return block->image->flip & FLIP_COLUMNS ? block->output->width - 1 - x : x;
}

/// The pixel of the view that pixel `o` of the output shows along an axis.
INLINE u32 viewed(const Block* block, u32 axis, u32 o) { return axis == ALONG_X ? unmirrored(block, o) : o; }

/// How component `c` is upsampled along an axis; not at all if the upsampling was done before the resize.
INLINE Method method_of(const Block* block, u32 axis, u32 c) {
    const PlaneParams* plane = &block->image->planes[c];
    const u32 filter = block->image->axes[axis].filter;
    const Method pixels = {filter, UPSAMPLE_NONE, 1, 0};
    const Method method = {filter, plane->upsampling[axis], plane->step[axis], plane->full[axis]};
    return block->converted ? pixels : method;
}

INLINE u32 like(const Block* block, u32 c) { return block->converted ? 0 : block->image->planes[c].like; }

/// Takes `bytes` of shared memory, rounded up to a multiple of 8. Returns their position.
INLINE u32 take(u32* end, u32 bytes) {
    const u32 at = *end;
    *end += (bytes + 7) / 8 * 8;
    return at;
}

/// Lays out shared memory. One thread does it for all.
INLINE void lay_out(const Block* block) {
    Shared* all = shared(block);
    const OutputParams* output = block->output;
    const u32 columns = output->tile_columns, steps = output->step_rows;
    u32 end = 0, row_bytes = 0, sum = 0;
    take(&end, sizeof(Shared));
    ROLL for (u32 c = 0; c < block->components; c++) {
        Tables* tables = &all->tables[c];
        tables->like = like(block, c);
        ROLL for (u32 axis = 0; axis < 2; axis++) {
            Filter* filter = &tables->filters[axis];
            const u32 pixels = axis == ALONG_X ? columns : block->height;
            filter->method = method_of(block, axis, c);
            // Groups of four are stored whole.
            const u32 pairs = (most_samples(&block->image->axes[axis], filter->method) + 3) / 4 * 2;
            filter->pair_stride = axis == ALONG_X ? columns : 1;
            filter->pixel_stride = axis == ALONG_X ? 1 : pairs;
            filter->stored = pairs * pixels * 4;
            if (tables->like == c) {
                filter->spans = take(&end, pixels * sizeof(Span));
                if (axis == ALONG_Y) row_bytes += filter->stored;
            }
        }
    }
    all->rows_stored = row_bytes <= output->shared_bytes / 8;
    ROLL for (u32 c = 0; c < block->components; c++) {
        Tables* tables = &all->tables[c];
        if (tables->like == c) {
            ROLL for (u32 axis = 0; axis < 2; axis++) {
                Filter* filter = &tables->filters[axis];
                const u32 bytes = filter->stored, pixels = axis == ALONG_X ? columns : block->height;
                filter->stored = axis == ALONG_Y ? all->rows_stored : end + bytes <= output->shared_bytes / 8 * 3;
                filter->weights = take(&end, filter->stored ? bytes : pixels * 8);
            }
        } else {
            *tables = all->tables[tables->like];
        }
        // An estimate of the source rows that a step needs.
        const AxisParams* y = &block->image->axes[ALONG_Y];
        const f64 pixels = (steps - 1) * y->scale + 2.0 * support_of(y);
        const u32 rows = (u32)(pixels < 1e6 ? pixels : 1e6) / tables->filters[ALONG_Y].method.step + 3;
        tables->capacity = rows;
        sum += rows;
    }
    if (!all->rows_stored) all->places = take(&end, 3 * steps * sizeof(Place));
    // A row of a ring buffer needs its values and, if row weights are not stored, a weight for each row of the step.
    const u32 bytes = (columns + (all->rows_stored ? 0 : steps)) * 2;
    const u32 room = (output->shared_bytes - end - 6 * 8) / bytes;
    ROLL for (u32 c = 0; c < block->components; c++) {
        Tables* tables = &all->tables[c];
        const u32 share = (u32)((f32)room * (f32)tables->capacity / (f32)sum);
        tables->capacity = larger(smaller(tables->capacity, share), 1);
        tables->ring = take(&end, tables->capacity * columns * 2);
        if (!all->rows_stored) tables->stretch_weights = take(&end, tables->capacity * steps * 2);
    }
}

#endif
