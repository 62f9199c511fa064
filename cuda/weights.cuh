//! The antialiased triangle filter of `src/augment/weights.rs`, pixel by pixel: the same operations in the same order.

#ifndef FORELOAD_WEIGHTS
#define FORELOAD_WEIGHTS

#include "params.cuh"

/// Weights have from 14 bits after the point to these: 255 * 2^20 leaves room in 32 bits, and rows of the `fast` pass
/// have 15 bits of their own.
#define LEAST_BITS 14
#define COLUMN_BITS 20
#define ROW_BITS 15

/// Upsampling along one axis of a component.
typedef struct {
    u32 kind;
    /// Pixels a sample spans.
    u32 step;
    /// Samples of the whole component.
    u32 samples;
} Method;

/// A range of samples.
typedef struct {
    u32 first, end;
} Span;

/// Walks along the samples under one output pixel and weighs them, not yet normalised.
typedef struct {
    f64 offset, inverse;
    /// Linear upsampling: weights of the two latest pixels.
    f64 before, latest;
    /// Of the weights of all pixels so far.
    f64 sum;
    /// Number of pixels, and the next to weigh.
    i32 pixels, next;
    /// The next sample, and all of them.
    u32 sample;
    Span span;
    /// Linear upsampling: the walk begins with the image's first pixel (1), ends with its last (2). Otherwise the pixels
    /// that the next sample spans.
    u32 edges, spanned;
} Walk;

/// Rounds weights along their running sum.
typedef struct {
    f64 unit, running;
    i32 before;
} Rounding;

INLINE i32 is_shown(const AxisParams* axis, u32 o) { return axis->shown_first <= o && o < axis->shown_end; }

INLINE f64 weigh_next(Walk* walk) {
    const i32 pixel = walk->next++;
    const f64 distance = (walk->offset + (f64)pixel) * walk->inverse;
    const f64 weight = 1.0 - (distance < 0.0 ? -distance : distance);
    const f64 inside = pixel >= 0 && pixel < walk->pixels && weight > 0.0 ? weight : 0.0;
    walk->sum += inside;
    return inside;
}

/// Begins the walk of output pixel `o`, which must be shown.
INLINE Walk begin(const AxisParams* axis, Method method, u32 o) {
    Walk walk;
    const f64 support = axis->scale > 1.0 ? axis->scale : 1.0;
    const f64 centre = ((f64)(u32)((i64)o + axis->window) + 0.5) * axis->scale;
    const f64 low = centre - support + 0.5, high = centre + support + 0.5;
    const u32 first = smaller(low > 0.0 ? (u32)low : 0, axis->length - 1);
    const u32 end = larger(high < 4294967295.0 ? smaller((u32)high, axis->length) : axis->length, first + 1);
    const u32 start = axis->start + first, last = axis->start + end - 1;
    walk.offset = (f64)first - centre + 0.5;
    walk.inverse = axis->inverse;
    walk.pixels = (i32)(end - first);
    walk.next = 0;
    walk.sum = walk.before = walk.latest = 0.0;
    walk.edges = walk.spanned = 0;
    if (method.kind == UPSAMPLE_LINEAR) {
        walk.span.first = (start > 0 ? start - 1 : 0) / 2;
        walk.span.end = smaller((last + 1) / 2, method.samples - 1) + 1;
        walk.edges = (start == 0) | (last + 1 == 2 * method.samples) << 1;
        // Sample i gives 3/4 to pixels 2i and 2i + 1 and 1/4 to their neighbours: it looks from pixel 2i - 1 on. Of the
        // first two pixels of the first sample only the second can lie in the filter, when it is the image's first.
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
INLINE f64 step(Walk* walk, Method method) {
    const u32 sample = walk->sample++;
    f64 weight = 0.0;
    if (method.kind == UPSAMPLE_LINEAR) {
        const f64 second = walk->latest, third = weigh_next(walk), fourth = weigh_next(walk);
        weight = 0.75 * (second + third) + 0.25 * (walk->before + fourth);
        // The image's first and last pixels have one neighbour and count it twice.
        if (walk->edges & 1 && sample == walk->span.first) weight += 0.25 * second;
        if (walk->edges & 2 && sample + 1 == walk->span.end) weight += 0.25 * third;
        walk->before = third;
        walk->latest = fourth;
    } else {
        ROLL for (u32 i = 0; i < walk->spanned && walk->next < walk->pixels; i++) weight += weigh_next(walk);
        walk->spanned = method.step;
    }
    return weight;
}

/// Walks to the end: what makes the sum of all weights 1, and the largest weight then.
INLINE f64 normalise(Walk walk, Method method, f64* largest) {
    f64 peak = 0.0;
    ROLL while (walk.sample < walk.span.end) {
        const f64 weight = step(&walk, method);
        if (weight > peak) peak = weight;
    }
    const f64 factor = 1.0 / walk.sum;
    *largest = peak * factor;
    return factor;
}

/// Most bits after the point, of `most`, with which `largest` fits 16 signed bits.
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

/// The weight in fixed point; all of a pixel sum to exactly 2^bits.
INLINE i32 round_next(Rounding* rounding, f64 weight) {
    rounding->running += weight * rounding->unit;
    const i32 now = (i32)(rounding->running + 0.5), rounded = now - rounding->before;
    rounding->before = now;
    return rounded;
}

/// No pixel of the axis has more samples; a million at most, which is too many to store anyway.
INLINE u32 most_samples(const AxisParams* axis, Method method) {
    const f64 support = axis->scale > 1.0 ? axis->scale : 1.0;
    const u32 pixels = (u32)(support < 5e5 ? 2.0 * support : 1e6) + 2;
    if (method.kind == UPSAMPLE_LINEAR) return pixels / 2 + 2;
    if (method.kind == UPSAMPLE_REPEAT) return (pixels - 1) / method.step + 2;
    return pixels;
}

#endif
