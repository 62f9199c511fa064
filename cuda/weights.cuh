//! The filters of `src/pixels/augment/weights.rs`, pixel by pixel: the same operations in the same order.

#ifndef FORELOAD_WEIGHTS
#define FORELOAD_WEIGHTS

#include "params.cuh"

/// The smallest and the largest number of bits after the point of a weight. 255 * 2^20 leaves room in 32 bits; row
/// weights have at most 15 bits, because the rows of the `fast` pass have a fraction, too.
#define LEAST_BITS 14
#define COLUMN_BITS 20
#define ROW_BITS 15

/// The resampling along one axis of a component, and the upsampling before it.
typedef struct {
    u32 filter;
    /// The kind of upsampling.
    u32 kind;
    /// The number of pixels per sample.
    u32 step;
    /// The number of samples of the whole component.
    u32 samples;
} Method;

/// A range of samples.
typedef struct {
    u32 first, end;
} Span;

/// A walk along the samples under one output pixel, which gives the weight of each, not yet normalised.
typedef struct {
    f64 offset, inverse;
    /// The weights of the two latest pixels, for linear upsampling.
    f64 before, latest;
    /// The sum of the weights of all pixels so far.
    f64 sum;
    /// The number of pixels, and the next one to weigh.
    i32 pixels, next;
    /// The range of samples, and the next sample.
    u32 sample;
    Span span;
    /// The number of pixels of the next sample, and of each sample after it.
    u32 spanned, step;
    /// The flags below that are set.
    u32 flags;
} Walk;

enum {
    /// The filter is cubic.
    WALK_CUBIC = 1,
    /// The filter is Lanczos'.
    WALK_LANCZOS = 2,
    /// The samples are upsampled linearly.
    WALK_LINEAR = 4,
    /// The samples are upsampled linearly, and the next sample is the image's first.
    WALK_FIRST = 8,
    /// The samples are upsampled linearly, and the walk ends with the image's last sample.
    WALK_LAST = 16,
};

/// Rounds weights so that their running sum stays exact.
typedef struct {
    f64 unit, running;
    i32 before;
} Rounding;

/// The radius of the filter of an output pixel, in source pixels.
INLINE f64 support_of(const AxisParams* axis) {
    const f64 wide = axis->scale > 1.0 ? axis->scale : 1.0;
    return axis->filter == FILTER_LANCZOS ? 3.0 * wide : axis->filter == FILTER_BICUBIC ? 2.0 * wide : wide;
}

INLINE i32 is_shown(const AxisParams* axis, u32 o) { return axis->shown_first <= o && o < axis->shown_end; }

/// The pixel of the resized axis that output pixel `o` shows. The pixel must be one that shows the image.
INLINE u32 padded(const AxisParams* axis, u32 o) {
    const i64 pixel = (i64)o + axis->offset;
    const u32 resized = axis->resized, last = resized - 1, twice = axis->padding == PADDING_SYMMETRIC;
    if (pixel >= 0 && pixel < resized) return (u32)pixel;
    if (axis->padding == PADDING_EDGE || (last == 0 && !twice)) return pixel < 0 ? 0 : last;
    const u32 period = 2 * (last + twice), steps = (u32)(pixel < 0 ? -pixel - twice : pixel) % period;
    return steps < resized ? steps : period - twice - steps;
}

/// The source pixels under the filter of pixel `j` of the resized axis, counted from the start of the axis: at least
/// one.
INLINE Span bounds(const AxisParams* axis, u32 filter, u32 j) {
    Span span;
    if (filter <= FILTER_NEAREST_EXACT) {
        const f32 at = (f32)j + (filter == FILTER_NEAREST_EXACT ? 0.5f : 0.0f);
        span.first = smaller((u32)(at * (f32)axis->scale), axis->length - 1);
        span.end = span.first + 1;
    } else {
        const f64 support = support_of(axis), centre = ((f64)j + 0.5) * axis->scale;
        const f64 low = centre - support + 0.5, high = centre + support + 0.5;
        span.first = smaller(low > 0.0 ? (u32)low : 0, axis->length - 1);
        span.end = larger(high < 4294967295.0 ? smaller((u32)high, axis->length) : axis->length, span.first + 1);
    }
    return span;
}

/// The weight at a distance below 3, by the polynomial of the Rust side's `SINC`. The loop is not unrolled: copies in
/// every walk would need too many registers.
INLINE f64 lanczos(f64 distance) {
    static const f64 coefficients[] = {
        -1.260695612291763e-12, 2.764675948253526e-10,   -3.970979471909898e-8, 3.98525562179852e-6,
        -0.00026166210645690554, 0.010021511194583416, -0.18277045177413956, 0.999999999993119,
    };
    const f64 square = distance * distance;
    f64 sinc = coefficients[0];
    ROLL for (u32 i = 1; i < 8; i++) sinc = sinc * square + coefficients[i];
    const f64 window = sinc * sinc;
    return window * (1.0 - 1.4621636149762012 * (window * square));
}

INLINE f64 weigh_next(Walk* walk) {
    const i32 pixel = walk->next++;
    const f64 distance = (walk->offset + (f64)pixel) * walk->inverse, x = distance < 0.0 ? -distance : distance;
    f64 weight;
    if (walk->flags & WALK_CUBIC) {
        if (x < 1.0) weight = ((1.5 * x - 2.5) * x) * x + 1.0;
        else weight = x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 : 0.0;
    } else if (walk->flags & WALK_LANCZOS) {
        weight = x < 3.0 ? lanczos(x) : 0.0;
    } else {
        weight = x < 1.0 ? 1.0 - x : 0.0;
    }
    const f64 inside = pixel >= 0 && pixel < walk->pixels ? weight : 0.0;
    walk->sum += inside;
    return inside;
}

/// Starts the walk of output pixel `o`, which must be a pixel that shows the image.
INLINE Walk begin(const AxisParams* axis, Method method, u32 o) {
    Walk walk;
    const u32 j = padded(axis, o);
    const Span pixels = bounds(axis, method.filter, j);
    const u32 start = axis->start + pixels.first, last = axis->start + pixels.end - 1;
    // The nearest pixel has all the weight.
    const f64 offset = (f64)pixels.first - ((f64)j + 0.5) * axis->scale + 0.5;
    walk.offset = method.filter <= FILTER_NEAREST_EXACT ? 0.0 : offset;
    walk.inverse = axis->inverse;
    walk.pixels = (i32)(pixels.end - pixels.first);
    walk.next = 0;
    walk.sum = walk.before = walk.latest = 0.0;
    walk.flags = method.filter == FILTER_BICUBIC ? WALK_CUBIC : method.filter == FILTER_LANCZOS ? WALK_LANCZOS : 0;
    walk.step = method.step;
    walk.spanned = 0;
    if (method.kind == UPSAMPLE_LINEAR) {
        walk.span.first = (start > 0 ? start - 1 : 0) / 2;
        walk.span.end = smaller((last + 1) / 2, method.samples - 1) + 1;
        walk.flags |= WALK_LINEAR | (start == 0 ? WALK_FIRST : 0) | (last + 1 == 2 * method.samples ? WALK_LAST : 0);
        // Sample i gives 3/4 to pixels 2i and 2i + 1 and 1/4 to their neighbours 2i - 1 and 2i + 2. The first two of
        // these pixels of the first sample are not in the filter, so their weights are 0. The exception is pixel 0 of
        // the image.
        walk.next = 1 - (i32)(start - 2 * walk.span.first);
        if (start == 0) {
            walk.next = 0;
            walk.latest = weigh_next(&walk);
        }
    } else {
        walk.span.first = start / method.step;
        walk.span.end = last / method.step + 1;
        walk.spanned = method.step - start % method.step;
    }
    walk.sample = walk.span.first;
    return walk;
}

/// The weight of the next sample.
INLINE f64 step(Walk* walk) {
    walk->sample++;
    f64 weight = 0.0;
    if (walk->flags & WALK_LINEAR) {
        const f64 second = walk->latest, third = weigh_next(walk), fourth = weigh_next(walk);
        weight = 0.75 * (second + third) + 0.25 * (walk->before + fourth);
        // The image's first and last pixels have only one neighbouring sample, and count the missing neighbour's weight
        // as well.
        if (walk->flags & WALK_FIRST) weight += 0.25 * second;
        if (walk->flags & WALK_LAST && walk->next == walk->pixels + 1) weight += 0.25 * third;
        walk->flags &= ~WALK_FIRST;
        walk->before = third;
        walk->latest = fourth;
    } else {
        ROLL for (u32 i = 0; i < walk->spanned && walk->next < walk->pixels; i++) weight += weigh_next(walk);
        walk->spanned = walk->step;
    }
    return weight;
}

/// Walks to the end. Returns the factor that makes the sum of all weights 1, and the largest weight after that scaling.
INLINE f64 normalise(Walk walk, f64* largest) {
    f64 peak = 0.0;
    ROLL while (walk.sample < walk.span.end) {
        const f64 weight = step(&walk);
        if (weight > peak) peak = weight;
    }
    const f64 factor = 1.0 / walk.sum;
    *largest = peak * factor;
    return factor;
}

/// The most bits after the point, at most `most`, with which `largest` fits into a signed 16-bit integer.
INLINE u32 fitting_bits(f64 largest, u32 most) {
    u32 bits = most;
    ROLL while (bits > LEAST_BITS && !(largest * (f64)(1u << bits) < 32766.0)) bits--;
    return bits;
}

INLINE Rounding begin_rounding(f64 factor, u32 bits) {
    Rounding rounding;
    rounding.unit = factor * (f64)(1u << bits);
    rounding.running = 0.0;
    rounding.before = 0;
    return rounding;
}

/// The weight in fixed point; the weights of a pixel sum to exactly 2^bits.
INLINE i32 round_next(Rounding* rounding, f64 weight) {
    rounding->running += weight * rounding->unit;
    const i32 now = floor_of(rounding->running + 0.5), rounded = now - rounding->before;
    rounding->before = now;
    return rounded;
}

/// An upper bound on the samples under a pixel of the axis. It is capped at a million, which is too many to store
/// anyway.
INLINE u32 most_samples(const AxisParams* axis, Method method) {
    const f64 support = support_of(axis);
    const u32 pixels = (u32)(support < 5e5 ? 2.0 * support : 1e6) + 2;
    if (method.kind == UPSAMPLE_LINEAR) return pixels / 2 + 2;
    if (method.kind == UPSAMPLE_REPEAT) return (pixels - 1) / method.step + 2;
    return pixels;
}

#endif
