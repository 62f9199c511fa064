//! The augmentation pass of `src/pixels/augment/` for a block of threads: the same integers, the same order of
//! floating-point operations, the same bits.
//!
//! A launch makes a batch: blockIdx.y is the image, blockIdx.x its tile. A block computes the weights of its tile's
//! columns and rows. Then it makes a few output rows at a time (a step). It resizes source rows to the tile's columns
//! into a ring buffer for each component, which also keeps the rows that the next step needs. Each thread adds up four
//! neighbouring columns of one output row from the ring buffers, converts them and stores them. If the source rows of a
//! step do not fit into the ring buffers, they are read in several stretches (ranges of rows). The sums are integers,
//! so their order does not matter.

#ifndef FORELOAD_AUGMENT
#define FORELOAD_AUGMENT

#include "finish.cuh"
#include "resize.cuh"

/// The weighted sums of four pixels, by component. Each thread keeps its own.
typedef struct {
    i32 of[3][QUAD];
} Sums;

/// Finds for each axis the most bits after the point that all its weights allow. Thread `t` examines some pixels of the
/// whole axis, beginning with the tile's first pixel. The factors that normalise the weights of the tile's own pixels
/// are kept.
INLINE void weigh_axis(const Block* block, u32 axis, u32 c, u32 t) {
    const AxisParams* params = &block->image->axes[axis];
    const Method method = method_of(block, axis, c);
    const u32 most = axis == ALONG_X ? COLUMN_BITS : ROW_BITS, n = all_of(block, axis);
    u32 fewest = most;
    ROLL for (u32 i = t; i < n; i += block->threads) {
        const u32 ahead = first_of(block, axis) + i, o = viewed(block, axis, ahead < n ? ahead : ahead - n);
        if (!is_shown(params, o)) continue;
        f64 largest;
        const f64 factor = normalise(begin(params, method, o), &largest);
        if (i < number_of(block, axis)) factors(block, axis, c)[i] = factor;
        fewest = smaller(fewest, fitting_bits(largest, most));
    }
    if (fewest < most) lower(&shared(block)->bits[axis][c], fewest);
}

/// Thread `t` stores the filter of its column or row of the tile. The number of columns is rounded up to a multiple of
/// four.
INLINE void build_filter(const Block* block, u32 axis, u32 c, u32 t) {
    const Filter* filter = &shared(block)->tables[c].filters[axis];
    if (t >= (axis == ALONG_X ? block->output->tile_columns : block->height)) return;
    const u32 o = viewed(block, axis, first_of(block, axis) + t);
    Span span = {0, 0};
    if (t < number_of(block, axis) && is_shown(&block->image->axes[axis], o)) {
        const f64 factor = factors(block, axis, c)[t];
        Walk walk = begin(&block->image->axes[axis], filter->method, o);
        span = walk.span;
        if (filter->stored) {
            Rounding rounding = begin_rounding(factor, shared(block)->bits[axis][c]);
            u32* to = words(block, filter->weights) + t * filter->pixel_stride;
            // Groups of four are written whole, with zeros after the last weight.
            const u32 end = span.first + (span.end - span.first + 3) / 4 * 4;
            u32 pair = 0;
            ROLL for (u32 sample = span.first; sample < end; sample++) {
                const u32 odd = (sample - span.first) % 2;
                if (sample < span.end) pair |= ((u32)round_next(&rounding, step(&walk)) & 0xffff) << 16 * odd;
                if (!odd) continue;
                *to = pair;
                to += filter->pair_stride;
                pair = 0;
            }
        } else {
            doubles(block, filter->weights)[t] = factor;
        }
    }
    spans(block, filter->spans)[t] = span;
}

/// The rows of the tile that the step which begins at `row` makes and that show the image.
INLINE Span step_rows(const Block* block, u32 row) {
    const AxisParams* y = &block->image->axes[ALONG_Y];
    const u32 first = larger(block->y + row, y->shown_first);
    const u32 end = smaller(block->y + smaller(row + block->output->step_rows, block->height), y->shown_end);
    const Span none = {0, 0}, some = {first - block->y, end - block->y};
    return first < end ? some : none;
}

/// The first stretch of component `c` for the step that begins at `row`. Or, if stretch `now` did not reach its limit,
/// the stretch after it.
INLINE Stretch plan(const Block* block, u32 c, u32 row, u32 more, Stretch now) {
    const Tables* tables = &shared(block)->tables[c];
    Stretch next = {0, 0, 0, 0, 0};
    if (more) {
        next.from = now.to;
        next.limit = now.limit;
    } else {
        const Span rows = step_rows(block, row);
        const Span* under = spans(block, tables->filters[ALONG_Y].spans);
        if (rows.first < rows.end) {
            next.from = under[rows.first].first;
            next.limit = under[rows.end - 1].end;
        }
        // In a mirrored image the source rows are not in ascending order.
        if (block->image->axes[ALONG_Y].padding >= PADDING_REFLECT) {
            ROLL for (u32 r = rows.first; r < rows.end; r++) {
                next.from = smaller(next.from, under[r].first);
                next.limit = larger(next.limit, under[r].end);
            }
        }
    }
    next.to = smaller(next.from + tables->capacity, next.limit);
    next.make = next.from;
    if (now.from <= next.from && next.from < now.to) {
        next.make = now.to;
        next.slot = now.slot + (next.from - now.from);
        if (next.slot >= tables->capacity) next.slot -= tables->capacity;
    }
    return next;
}

/// If row weights are not stored, thread `t` computes the weights of one row of the step for the current stretches.
INLINE void weigh_stretch(const Block* block, u32 row, const Stretch* stretches, u32 begins, u32 t) {
    const Shared* all = shared(block);
    const AxisParams* axis = &block->image->axes[ALONG_Y];
    const u32 rows = block->output->step_rows, c = t / rows, r = row + t % rows;
    if (c >= block->components || r >= block->height || !is_shown(axis, block->y + r)) return;
    const Tables* tables = &all->tables[c];
    const Filter* filter = &tables->filters[ALONG_Y];
    const Stretch* stretch = &stretches[c];
    // Kept in shared memory, to save registers for the many images whose weights are stored.
    Place* place = (Place*)(block->memory + all->places) + t;
    if (begins) {
        place->walk = begin(axis, filter->method, block->y + r);
        place->rounding = begin_rounding(doubles(block, filter->weights)[r], all->bits[ALONG_Y][tables->like]);
    }
    u16* to = halves(block, tables->stretch_weights) + t % rows * tables->capacity;
    const u32 end = smaller(place->walk.span.end, stretch->to);
    ROLL while (place->walk.sample < end) {
        const u32 at = place->walk.sample - stretch->from;
        to[at] = (u16)round_next(&place->rounding, step(&place->walk));
    }
}

/// Thread `t` adds the current stretches to its sums.
INLINE void accumulate(const Block* block, u32 row, const Stretch* stretches, u32 t, i32 sums[3][QUAD]) {
    const Shared* all = shared(block);
    const u32 columns = block->output->tile_columns, quads = columns / QUAD, r = t / quads;
    const Span rows = step_rows(block, row);
    if (r >= block->output->step_rows || row + r < rows.first || row + r >= rows.end) return;
    UNROLL for (u32 c = 0; c < 3; c++) {
        if (c >= block->components) continue;
        const Tables* tables = &all->tables[c];
        const Stretch* stretch = &stretches[c];
        const Span span = spans(block, tables->filters[ALONG_Y].spans)[row + r];
        const u32 from = larger(span.first, stretch->from), to = smaller(span.end, stretch->to);
        if (from >= to) continue;
        const Filter* filter = &tables->filters[ALONG_Y];
        const u32 stored = all->rows_stored, before = from - (stored ? span.first : stretch->from);
        const i16* weights = (const i16*)halves(block, stored ? filter->weights : tables->stretch_weights) +
                             (stored ? (row + r) * filter->pixel_stride * 2 : r * tables->capacity) + before;
        u32 slot = stretch->slot + (from - stretch->from);
        if (slot >= tables->capacity) slot -= tables->capacity;
        const u16* ring = halves(block, tables->ring) + QUAD * (t % quads);
        ROLL for (u32 y = from; y < to; y++) {
            const i32 weight = *weights++;
            u32 pairs[2];
            load_two(ring + slot * columns, pairs);
            sums[c][0] += weight * (i32)(pairs[0] & 0xffff);
            sums[c][1] += weight * (i32)(pairs[0] >> 16);
            sums[c][2] += weight * (i32)(pairs[1] & 0xffff);
            sums[c][3] += weight * (i32)(pairs[1] >> 16);
            if (++slot == tables->capacity) slot = 0;
        }
    }
}

INLINE void start_sums(const Block* block, i32 sums[3][QUAD]) {
    UNROLL for (u32 c = 0; c < 3; c++) {
        const i32 start = c < block->components ? sum_start(block, c) : 0;
        UNROLL for (u32 i = 0; i < QUAD; i++) sums[c][i] = start;
    }
}

/// Writes zero bytes to this block's share of the image.
INLINE void clear(const Block* block, u8* image, u32 tile, u32 tiles, u32 t) {
    const u64 bytes = block->output->image_bytes, every = (u64)tiles * block->threads;
    ROLL for (u64 at = (u64)tile * block->threads + t; at < bytes; at += every) image[at] = 0;
}

/// Makes tile `tile` of the image at `image`. `exact` is a constant: 0 for the `fast` pass, 1 for `exact`.
INLINE void augment(Block* block, u8* image, u32 tile, u32 tiles, u32 exact) {
    const ImageParams* params = block->image;
    const OutputParams* output = block->output;
    if (params->blank) {
        EACH_THREAD(t) clear(block, image, tile, tiles, t);
        return;
    }
    block->components = params->color == COLOR_GRAY ? 1 : 3;
    block->converted = exact && params->color == COLOR_YCBCR;
    block->fraction = exact ? 0 : 7;
    block->x = tile % output->tiles_across * output->tile_columns;
    block->y = tile / output->tiles_across * output->tile_rows;
    block->width = smaller(output->tile_columns, output->width - block->x);
    block->height = smaller(output->tile_rows, output->height - block->y);

    Shared* all = shared(block);
    Sums sums[OF_THREADS];
    EACH_THREAD(t) {
        if (t < 3) {
            all->bits[ALONG_X][t] = COLUMN_BITS;
            all->bits[ALONG_Y][t] = ROW_BITS;
        }
    }
    SYNC();
    EACH_THREAD(t) {
        if (t == block->threads - 1) lay_out(block);
        // Both axes, once for all components that are sampled alike.
        ROLL for (u32 i = 0; i < 2 * block->components; i++) {
            if (like(block, i / 2) == i / 2) weigh_axis(block, i % 2, i / 2, t);
        }
    }
    SYNC();
    EACH_THREAD(t) {
        ROLL for (u32 i = 0; i < 2 * block->components; i++) {
            if (all->tables[i / 2].like == i / 2) build_filter(block, i % 2, i / 2, t);
        }
    }
    SYNC();
    EACH_THREAD(t) {
        const Stretch none = {0, 0, 0, 0, 0};
        if (t < block->components) all->stretches[0][t] = plan(block, t, 0, 0, none);
        start_sums(block, sums[MINE(t)].of);
    }
    SYNC();
    u32 now = 0, begins = 1;
    ROLL for (u32 row = 0; row < block->height;) {
        const Stretch* stretches = all->stretches[now];
        EACH_THREAD(t) {
            if (block->converted) {
                resize_converted(block, stretches, t);
            } else {
                ROLL for (u32 c = 0; c < block->components; c++) resize_plane(block, c, &stretches[c], t);
            }
            if (!all->rows_stored) weigh_stretch(block, row, stretches, begins, t);
        }
        SYNC();
        u32 more = 0;
        ROLL for (u32 c = 0; c < block->components; c++) more |= stretches[c].to < stretches[c].limit;
        EACH_THREAD(t) {
            accumulate(block, row, stretches, t, sums[MINE(t)].of);
            if (t < block->components) {
                all->stretches[1 - now][t] = plan(block, t, row + output->step_rows, more, stretches[t]);
            }
        }
        SYNC();
        begins = !more;
        now = 1 - now;
        if (more) continue;
        EACH_THREAD(t) {
            const u32 quads = output->tile_columns / QUAD, r = t / quads, column = QUAD * (t % quads);
            if (r < output->step_rows && row + r < block->height && column < block->width) {
                finish(block, image, block->x + column, block->y + row + r, sums[MINE(t)].of);
                start_sums(block, sums[MINE(t)].of);
            }
        }
        row += output->step_rows;
    }
}

#endif
