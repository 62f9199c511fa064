//! From source rows to the tile's columns: the horizontal half of the resize, which writes into the ring buffers.

#ifndef FORELOAD_RESIZE
#define FORELOAD_RESIZE

#include "block.cuh"

/// The number of rows that a thread makes at a time. It loads each weight once for all of them.
#define TOGETHER 4

/// The address of row `y` of a stretch in its component's ring buffer.
INLINE u16* ring_row(const Block* block, const Tables* tables, const Stretch* stretch, u32 y) {
    u32 slot = stretch->slot + (y - stretch->from);
    if (slot >= tables->capacity) slot -= tables->capacity;
    return halves(block, tables->ring) + slot * block->output->tile_columns;
}

/// The aligned word that holds the byte at `at`, and the index of the byte in the word.
INLINE const u8* aligned(const u8* at) { return (const u8*)((u64)at & ~3ull); }
INLINE u32 skew_of(const u8* at) { return (u32)(u64)at & 3; }

/// A value of a resized row. It is clamped, because negative weights may have left the range of the samples.
INLINE u16 resized(const Block* block, i32 value) { return (u16)clamped(value, 255 << block->fraction); }

/// The progress in the weights of a column that are not stored.
typedef struct {
    Walk walk;
    Rounding rounding;
} Computed;

INLINE Computed compute(const Block* block, const Filter* filter, u32 bits, u32 column) {
    Computed weights;
    weights.walk = begin(&block->image->axes[ALONG_X], filter->method, unmirrored(block, block->x + column));
    weights.rounding = begin_rounding(doubles(block, filter->weights)[column], bits);
    return weights;
}

INLINE i32 compute_next(Computed* weights) {
    return round_next(&weights->rounding, step(&weights->walk));
}

/// Thread `t` resizes its column of the stretch's new rows of component `c`, straight from the plane.
INLINE void resize_plane(const Block* block, u32 c, const Stretch* stretch, u32 t) {
    const u32 across = block->output->threads_across, columns = block->output->tile_columns;
    const u32 column = t % across, beside = block->threads / across;
    if (column >= columns) return;
    const Tables* tables = &shared(block)->tables[c];
    const PlaneParams* plane = &block->image->planes[c];
    const Filter* filter = &tables->filters[ALONG_X];
    const Span span = spans(block, filter->spans)[column];
    const i32 count = (i32)(span.end - span.first);
    const u32 bits = shared(block)->bits[ALONG_X][tables->like], shift = bits - block->fraction;
    const u32* weights = words(block, filter->weights) + column;
    ROLL for (u32 y = stretch->make + TOGETHER * (t / across); y < stretch->to; y += TOGETHER * beside) {
        const u32 rows = smaller(TOGETHER, stretch->to - y);
        const u8* data = (const u8*)plane->data;
        i32 sums[TOGETHER];
        u32 from[TOGETHER];
        UNROLL for (u32 r = 0; r < TOGETHER; r++) {
            sums[r] = 1 << (shift - 1);
            from[r] = (y + smaller(r, rows - 1) - plane->y0) * plane->stride + (span.first - plane->x0);
        }
        if (count == 0) {
        } else if (filter->stored) {
            // Samples are read in aligned words and shifted together to four at a time. Words without a sample of the
            // filter are not read.
            u32 low[TOGETHER];
            UNROLL for (u32 r = 0; r < TOGETHER; r++) low[r] = load_word(aligned(data + from[r]));
            ROLL for (i32 i = 0; i < count; i += 4) {
                const u32 first = weights[i / 2 * columns], second = weights[(i / 2 + 1) * columns];
                UNROLL for (u32 r = 0; r < TOGETHER; r++) {
                    const u32 skew = skew_of(data + from[r]);
                    const u32 high = i + 4 < (i32)skew + count ? load_word(aligned(data + from[r] + i + 4)) : 0;
                    const u32 samples = join_words(low[r], high, 8 * skew);
                    sums[r] = dot_high(second, samples, dot_low(first, samples, sums[r]));
                    low[r] = high;
                }
            }
        } else {
            Computed computed = compute(block, filter, bits, column);
            ROLL for (i32 i = 0; i < count; i++) {
                const i32 weight = compute_next(&computed);
                UNROLL for (u32 r = 0; r < TOGETHER; r++) {
                    // The same as `from[r]`. An array would need four more registers, here where registers are
                    // scarcest.
                    const u32 at = from[0] + smaller(r, rows - 1) * plane->stride + i;
                    sums[r] += weight * (i32)load_byte(data + at);
                }
            }
        }
        UNROLL for (u32 r = 0; r < TOGETHER; r++) {
            if (r < rows) ring_row(block, tables, stretch, y + r)[column] = resized(block, sums[r] >> shift);
        }
    }
}

/// Walks along the pixels of one image row of a component, upsampling as libjpeg does.
typedef struct {
    /// The source rows that are blended, in bytes from the plane's first: samples are `near`, or 3 * `near` + `next`.
    u32 near, next;
    /// For linear upsampling along x: the sums of the sample before the pixel's sample, of that sample, and of the one
    /// after.
    i32 before, own, after;
} Upsampler;

INLINE i32 sum_rows(const PlaneParams* plane, const Upsampler* from, u32 sample) {
    const u8* data = (const u8*)plane->data + (sample - plane->x0);
    const i32 near = (i32)load_byte(data + from->near);
    return plane->upsampling[ALONG_Y] == UPSAMPLE_LINEAR ? 3 * near + (i32)load_byte(data + from->next) : near;
}

/// Starts at pixel (x, y).
INLINE Upsampler upsample(const PlaneParams* plane, u32 x, u32 y) {
    Upsampler to = {0, 0, 0, 0, 0};
    const u32 row = y / plane->step[ALONG_Y], above = row > 0 ? row - 1 : 0;
    const u32 below = smaller(row + 1, plane->full[ALONG_Y] - 1);
    to.near = (row - plane->y0) * plane->stride;
    if (plane->upsampling[ALONG_Y] == UPSAMPLE_LINEAR) {
        to.next = ((y % 2 ? below : above) - plane->y0) * plane->stride;
    }
    if (plane->upsampling[ALONG_X] == UPSAMPLE_LINEAR) {
        const u32 sample = x / 2;
        to.before = sum_rows(plane, &to, sample > 0 ? sample - 1 : 0);
        to.own = sum_rows(plane, &to, sample);
        to.after = sum_rows(plane, &to, smaller(sample + 1, plane->full[ALONG_X] - 1));
    }
    return to;
}

/// The value at pixel `x` of row `y`. Pixel `x` must be `first`, or the pixel after that of the last call. The rounding
/// biases alternate, between columns or else between rows, so that halves are rounded up as often as down.
INLINE i32 upsample_next(const PlaneParams* plane, Upsampler* from, u32 x, u32 y, u32 first) {
    const i32 two_rows = plane->upsampling[ALONG_Y] == UPSAMPLE_LINEAR;
    if (plane->upsampling[ALONG_X] == UPSAMPLE_LINEAR) {
        const i32 odd = (i32)(x % 2), bias = two_rows ? 8 - odd : 1 + odd;
        if (!odd && x != first) {
            from->before = from->own;
            from->own = from->after;
            from->after = sum_rows(plane, from, smaller(x / 2 + 1, plane->full[ALONG_X] - 1));
        }
        return (3 * from->own + (odd ? from->after : from->before) + bias) >> (two_rows ? 4 : 2);
    }
    const i32 sum = sum_rows(plane, from, x / plane->step[ALONG_X]);
    return two_rows ? (sum + 1 + (i32)(y % 2)) >> 2 : sum;
}

/// Thread `t` makes its column of the stretch's new rows of R, G and B: it upsamples, converts with libjpeg's 16-bit
/// fractions and clamps at source resolution, then resizes.
INLINE void resize_converted(const Block* block, const Stretch* stretch, u32 t) {
    const u32 across = block->output->threads_across, columns = block->output->tile_columns;
    const u32 column = t % across, beside = block->threads / across;
    if (column >= columns) return;
    const Tables* tables = shared(block)->tables;
    const Filter* filter = &tables->filters[ALONG_X];
    const Span span = spans(block, filter->spans)[column];
    const u32 shift = shared(block)->bits[ALONG_X][0];
    const u32* weights = words(block, filter->weights) + column;
    ROLL for (u32 y = stretch->make + t / across; y < stretch->to; y += beside) {
        i32 r = 1 << (shift - 1), g = r, b = r;
        if (span.first < span.end) {
            const PlaneParams* planes = block->image->planes;
            Upsampler luma = upsample(&planes[0], span.first, y);
            Upsampler blue = upsample(&planes[1], span.first, y);
            Upsampler red = upsample(&planes[2], span.first, y);
            Computed computed;
            if (!filter->stored) computed = compute(block, filter, shift, column);
            ROLL for (u32 x = span.first; x < span.end; x++) {
                const u32 i = x - span.first;
                const i32 weight = filter->stored ? (i16)(weights[i / 2 * columns] >> 16 * (i % 2))
                                                  : compute_next(&computed);
                const i32 level = upsample_next(&planes[0], &luma, x, y, span.first);
                const i32 cb = upsample_next(&planes[1], &blue, x, y, span.first) - 128;
                const i32 cr = upsample_next(&planes[2], &red, x, y, span.first) - 128;
                r += weight * clamped(level + ((91881 * cr + 32768) >> 16), 255);
                g += weight * clamped(level + ((-22554 * cb - 46802 * cr + 32768) >> 16), 255);
                b += weight * clamped(level + ((116130 * cb + 32768) >> 16), 255);
            }
        }
        ring_row(block, tables, stretch, y)[column] = resized(block, r >> shift);
        ring_row(block, tables + 1, stretch + 1, y)[column] = resized(block, g >> shift);
        ring_row(block, tables + 2, stretch + 2, y)[column] = resized(block, b >> shift);
    }
}

#endif
