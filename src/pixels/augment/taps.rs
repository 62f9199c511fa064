//! Taps: the samples that each pixel of a resized axis is computed from, and their 16-bit weights. For subsampled
//! components the weights include libjpeg's chroma upsampling.

use std::array::from_fn;
use std::ops::Range;

use super::Filter;
use super::view::ViewAxis;
use super::weights::{Resize, cubic, lanczos, triangle, truncated};
use crate::decode::Upsampling;
use crate::level::vectorised;
use base::simd::Level;

/// The minimum number of bits after the binary point of weights. All weights are below 2, so weights with 14 bits
/// always fit 16 signed bits.
pub(super) const MIN_BITS: u32 = 14;

/// For every output pixel of an axis, the samples that it is computed from and their weights, in fixed point.
///
/// The weights of a pixel sum to exactly 2^bits, so flat areas keep their value; if no weight is negative, no result
/// leaves the range of the samples. Each weight is the difference of two rounded running sums. So no error exceeds one
/// unit, and the errors of neighbours cancel.
#[derive(Debug, Default)]
pub(super) struct Taps {
    pub start: Vec<u32>,
    /// For each output pixel, the number of its samples; 0 in padding.
    pub count: Vec<u32>,
    /// The weights: `stride` values for each output pixel, with zeros after the last used weight.
    pub weights: Vec<i16>,
    /// The number of weights kept for each pixel, a multiple of 16.
    pub stride: usize,
    pub longest: usize,
    /// The number of fractional bits of the weights.
    pub bits: u32,
    pub sample_range: Range<u32>,
    /// The weights before they are normalised and rounded, in groups of [`LANES`] output pixels. Row i of a group has
    /// the weight of the i-th sample of each of these pixels.
    exact: Vec<Lanes<f64>>,
    /// Scratch: the weights of upsampled pixels, for one group of output pixels. Row 0 stays 0: it stands for the pixel
    /// before the first.
    pixels: Vec<Lanes<f64>>,
    rounded: Vec<Lanes<i32>>,
    spans: Vec<WeightSpans>,
}

/// The number of output pixels that are computed together. It is large enough that compilers keep the loops over these
/// pixels and vectorise them.
const LANES: usize = 32;

/// A scratch buffer with more rows than this (8 MiB of `f64`) is freed after the image.
const MAX_KEPT: usize = 1 << 15;

type Lanes<T> = [T; LANES];

/// For each output pixel of a group, the samples under its filter, and the factor that makes the sum of its weights 1.
#[derive(Debug, Clone, Copy)]
struct WeightSpans {
    first: Lanes<u32>,
    count: Lanes<u32>,
    normalise: Lanes<f64>,
}

impl Taps {
    /// Computes the taps of the output pixels of `line`. Taps refer to stored samples, from which `upsampling` makes
    /// the source pixels. Samples are counted from the first sample of the image. Weights have at most `max_bits` bits
    /// after the binary point. All SIMD levels give the same taps.
    pub(super) fn build(&mut self, level: Level, line: &ViewAxis, upsampling: Upsampling, max_bits: u32) {
        let (n, rows_per_group) = (line.pixels as usize, line.resize().widest() + 2);
        self.exact.resize(n.div_ceil(LANES) * rows_per_group, [0.0; LANES]);
        self.pixels.resize(2 * rows_per_group + 2, [0.0; LANES]);
        self.spans.clear();
        let largest =
            compute_weights(level, line, upsampling, &mut self.exact, &mut self.pixels, &mut self.spans);
        self.bits = (MIN_BITS..=max_bits)
            .rev()
            .find(|&bits| largest * f64::from(1u32 << bits) < 32_766.0)
            .unwrap_or(MIN_BITS);
        let widest = self.spans.iter().map(|spans| max_count(&spans.count)).max().unwrap_or(0);
        self.stride = widest.max(1).next_multiple_of(16);
        self.start.clear();
        self.count.clear();
        self.weights.clear();
        self.weights.resize(self.stride * n, 0);
        round(level, self, n, rows_per_group, line.filter.overshoots());
        self.measure();
        // Only extreme reductions need so much scratch memory, so it is not kept for the next image.
        for rows in [&mut self.exact, &mut self.pixels] {
            if rows.len() > MAX_KEPT {
                *rows = Vec::new();
            }
        }
        if self.rounded.len() > MAX_KEPT {
            self.rounded = Vec::new();
        }
    }

    fn measure(&mut self) {
        self.longest = 1;
        let (mut lowest, mut end) = (u32::MAX, 0);
        for (&start, &count) in self.start.iter().zip(&self.count) {
            if count > 0 {
                self.longest = self.longest.max(count as usize);
                lowest = lowest.min(start);
                end = end.max(start + count);
            }
        }
        self.sample_range = lowest.min(end)..end;
        // Padding pixels have no weights, but their `start` must also be within `sample_range`.
        for (start, &count) in self.start.iter_mut().zip(&self.count) {
            if count == 0 {
                *start = self.sample_range.start;
            }
        }
    }

    pub(super) fn of(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..self.count[o] as usize]
    }

    /// The weights of output pixel `o`, with zeros to a multiple of 16.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn padded(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..(self.count[o] as usize).next_multiple_of(16)]
    }
}

vectorised! {
    /// Computes the weights of the samples under all filters of `line`, not yet normalised. Each group of [`LANES`]
    /// filters fills some rows of `exact`. `pixels` is scratch; its row 0 must be 0. Returns the largest normalised
    /// weight.
    fn compute_weights(
        line: &ViewAxis,
        upsampling: Upsampling,
        exact: &mut [Lanes<f64>],
        pixels: &mut [Lanes<f64>],
        spans: &mut Vec<WeightSpans>,
    ) -> f64 {
        match line.filter {
            Filter::Nearest | Filter::NearestExact => {
                compute_weights_with(|_| 1.0, line, upsampling, exact, pixels, spans)
            }
            Filter::Bilinear => compute_weights_with(triangle, line, upsampling, exact, pixels, spans),
            Filter::Bicubic => compute_weights_with(cubic, line, upsampling, exact, pixels, spans),
            Filter::Lanczos => compute_weights_with(lanczos, line, upsampling, exact, pixels, spans),
        }
    }
}

/// Does the work of [`compute_weights`]. `weight` is the filter's weight at a distance from its centre.
#[inline(always)]
fn compute_weights_with(
    weight: impl Fn(f64) -> f64 + Copy,
    line: &ViewAxis,
    upsampling: Upsampling,
    exact: &mut [Lanes<f64>],
    pixels: &mut [Lanes<f64>],
    spans: &mut Vec<WeightSpans>,
) -> f64 {
    let resize = line.resize();
    let mut largest = [0f64; LANES];
    for (vector, exact) in exact.chunks_exact_mut(resize.widest() + 2).enumerate() {
        let filters = PixelFilters::new(&resize, line, vector * LANES);
        let (first, count) = filters.samples(upsampling);
        let exact = &mut exact[..max_count(&count)];
        let sums = match upsampling {
            Upsampling::None => filters.compute_weights(weight, &[0; LANES], exact),
            Upsampling::Linear { samples } => {
                // Sample i becomes pixels 2i and 2i + 1. The filter begins `first_row` pixels after the first pixel of
                // its first sample.
                let first_row = from_fn(|lane| filters.first[lane] - 2 * first[lane]);
                let rows = &mut pixels[1..][..2 * exact.len() + 1];
                let sums = filters.compute_weights(weight, &first_row, rows);
                gather_linear(pixels, &count, exact);
                // Each pixel is made of ¾ of its own sample and ¼ of a neighbouring sample. The first and the last
                // pixel of the image lack this neighbour. As in libjpeg, their own sample replaces it.
                for lane in 0..LANES {
                    let (begin, end) = (filters.first[lane], filters.first[lane] + filters.count[lane]);
                    if count[lane] > 0 && begin == 0 {
                        exact[0][lane] += 0.25 * pixels[1][lane];
                    }
                    if count[lane] > 0 && end == 2 * samples {
                        let last = (first_row[lane] + filters.count[lane]) as usize;
                        exact[count[lane] as usize - 1][lane] += 0.25 * pixels[last][lane];
                    }
                }
                sums
            }
            Upsampling::Repeat(step) => {
                let pixels = &mut pixels[1..][..max_count(&filters.count)];
                let sums = filters.compute_weights(weight, &[0; LANES], pixels);
                exact.fill([0.0; LANES]);
                for lane in 0..LANES {
                    for i in 0..filters.count[lane] {
                        let sample = (filters.first[lane] + i) / step - first[lane];
                        exact[sample as usize][lane] += pixels[i as usize][lane];
                    }
                }
                sums
            }
        };
        let mut peaks = [0f64; LANES];
        for row in &*exact {
            for lane in 0..LANES {
                peaks[lane] = if row[lane] > peaks[lane] { row[lane] } else { peaks[lane] };
            }
        }
        let mut normalise = [0.0; LANES];
        for lane in 0..LANES {
            normalise[lane] = if count[lane] > 0 { 1.0 / sums[lane] } else { 0.0 };
            let peak = peaks[lane] * normalise[lane];
            largest[lane] = if peak > largest[lane] { peak } else { largest[lane] };
        }
        spans.push(WeightSpans { first, count, normalise });
    }
    largest.into_iter().fold(0.0, f64::max)
}

/// Turns the weights of pixels into weights of samples. Sample i contributes ¾ to pixels 2i and 2i + 1, and ¼ to the
/// pixel before and the pixel after this pair. Row 0 of `pixels` stands for the pixel before the first.
#[inline(always)]
fn gather_linear(pixels: &[Lanes<f64>], count: &Lanes<u32>, samples: &mut [Lanes<f64>]) {
    for (i, sample) in samples.iter_mut().enumerate() {
        let [before, first, second, after] = [0, 1, 2, 3].map(|row| &pixels[2 * i + row]);
        for lane in 0..LANES {
            let weight = 0.75 * (first[lane] + second[lane]) + 0.25 * (before[lane] + after[lane]);
            sample[lane] = if (i as u32) < count[lane] { weight } else { 0.0 };
        }
    }
}

/// The filters of a group of [`LANES`] output pixels, over pixels of the source.
struct PixelFilters {
    first: Lanes<u32>,
    /// The number of source pixels under each filter; 0 if the output pixel shows no pixel of the image.
    count: Lanes<u32>,
    /// The distance of the first pixel from the filter's centre, in source pixels.
    offset: Lanes<f64>,
    /// The factor that turns a distance in source pixels into the argument of the filter function.
    inverse: f64,
}

impl PixelFilters {
    #[inline(always)]
    fn new(resize: &Resize, line: &ViewAxis, first: usize) -> Self {
        let (mut shown, mut is_shown) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let o = (first + lane) as u32;
            if o < line.pixels
                && let Some(pixel) = line.pixel(if line.mirror { line.pixels - 1 - o } else { o })
            {
                (shown[lane], is_shown[lane]) = (pixel, 1);
            }
        }
        let (mut first, mut count, mut offset) = ([0; LANES], [0; LANES], [0.0; LANES]);
        if line.filter.interpolates() {
            for lane in 0..LANES {
                let bounds = resize.window(shown[lane]);
                (first[lane], count[lane]) = (bounds.start, bounds.end - bounds.start);
            }
        } else {
            for lane in 0..LANES {
                (first[lane], count[lane]) = (resize.bounds(shown[lane]).start, 1);
            }
        }
        for lane in 0..LANES {
            offset[lane] = f64::from(first[lane]) - resize.centre(shown[lane]) + 0.5;
            first[lane] += line.axis.start;
            count[lane] *= is_shown[lane];
        }
        Self { first, count, offset, inverse: resize.inverse }
    }

    #[inline(always)]
    fn samples(&self, upsampling: Upsampling) -> (Lanes<u32>, Lanes<u32>) {
        let (mut first, mut count) = (self.first, self.count);
        for lane in 0..LANES {
            let (x, end) = (self.first[lane], self.first[lane] + self.count[lane]);
            let (begin, last) = match upsampling {
                Upsampling::None => continue,
                Upsampling::Linear { samples } => (x.saturating_sub(1) / 2, (end / 2).min(samples - 1)),
                Upsampling::Repeat(step) => (x / step, end.saturating_sub(1) / step),
            };
            first[lane] = begin;
            count[lane] = if self.count[lane] > 0 { last - begin + 1 } else { 0 };
        }
        (first, count)
    }

    /// Writes the weights of the pixels. Each filter's first weight goes into row `first_row`; rows outside of the
    /// filter become 0. Returns the sum of the weights of each filter.
    #[inline(always)]
    fn compute_weights(
        &self,
        weight: impl Fn(f64) -> f64,
        first_row: &Lanes<u32>,
        rows: &mut [Lanes<f64>],
    ) -> Lanes<f64> {
        let mut sums = [0.0; LANES];
        for (row, weights) in rows.iter_mut().enumerate() {
            for lane in 0..LANES {
                let i = row as i32 - first_row[lane] as i32;
                let weight = weight(((self.offset[lane] + f64::from(i)) * self.inverse).abs());
                weights[lane] = if (i as u32) < self.count[lane] { weight } else { 0.0 };
                sums[lane] += weights[lane];
            }
        }
        sums
    }
}

#[inline(always)]
fn max_count(counts: &Lanes<u32>) -> usize {
    counts.iter().fold(0, |most, &count| if count > most { count } else { most }) as usize
}

vectorised! {
    fn round(taps: &mut Taps, pixels: usize, rows_per_group: usize, is_signed: bool) {
        if is_signed {
            round_all::<true>(taps, pixels, rows_per_group);
        } else {
            round_all::<false>(taps, pixels, rows_per_group);
        }
    }
}

#[inline(always)]
fn round_all<const SIGNED: bool>(taps: &mut Taps, pixels: usize, rows_per_group: usize) {
    let one = f64::from(1u32 << taps.bits);
    let vectors = taps.spans.iter().zip(taps.exact.chunks_exact(rows_per_group));
    let lines = taps.weights.chunks_mut(LANES * taps.stride);
    taps.rounded.resize(rows_per_group, [0; LANES]);
    for ((vector, (spans, exact)), lines) in vectors.enumerate().zip(lines) {
        let unit = spans.normalise.map(|normalise| normalise * one);
        let (mut running, mut before, mut now) = ([0.0; LANES], [0; LANES], [0; LANES]);
        // Weights at the beginning that round to 0 move the first sample. Weights at the end that round to 0 are not
        // counted.
        let (mut skipped, mut end) = ([0u32; LANES], [0u32; LANES]);
        let exact = &exact[..max_count(&spans.count)];
        for ((i, weights), rounded) in (1..).zip(exact).zip(&mut taps.rounded) {
            for lane in 0..LANES {
                running[lane] += weights[lane] * unit[lane];
                let sum = running[lane] + 0.5;
                now[lane] = if SIGNED { floor(sum) } else { truncated(sum) };
            }
            for lane in 0..LANES {
                let now = now[lane];
                rounded[lane] = now - before[lane];
                end[lane] = if now != before[lane] { i } else { end[lane] };
                skipped[lane] = if end[lane] == 0 { i } else { skipped[lane] };
                before[lane] = now;
            }
        }
        let stored = lines.chunks_exact_mut(taps.stride);
        for (lane, line) in stored.enumerate().take(pixels - vector * LANES) {
            let used = end[lane].saturating_sub(skipped[lane]);
            let skipped = if used == 0 { 0 } else { skipped[lane] };
            taps.start.push(spans.first[lane] + skipped);
            taps.count.push(used);
            for (weight, rounded) in
                line.iter_mut().zip(&taps.rounded[skipped as usize..]).take(used as usize)
            {
                *weight = rounded[lane] as i16;
            }
        }
    }
}

/// Returns the largest integer that is not above `value`. Not every processor has an instruction for it.
#[inline(always)]
fn floor(value: f64) -> i32 {
    let whole = truncated(value);
    whole - i32::from(f64::from(whole) > value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::{Axis, Padding};

    const FILTERS: [Filter; 5] =
        [Filter::Nearest, Filter::NearestExact, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];

    fn line(axis: Axis, pixels: u32, filter: Filter) -> ViewAxis {
        ViewAxis { axis, pixels, mirror: false, filter, padding: Padding::Constant }
    }

    fn taps(line: ViewAxis, upsampling: Upsampling) -> Taps {
        let mut taps = Taps::default();
        taps.build(Level::detect(), &line, upsampling, 20);
        taps
    }

    #[test]
    fn weights_sum_to_one_and_stay_inside() {
        let sizes = [(1, 1), (1, 7), (7, 1), (400, 224), (100, 224), (65_535, 224), (3, 1000), (224, 224)];
        let upsamplings = [Upsampling::None, Upsampling::Linear { samples: 40_000 }, Upsampling::Repeat(4)];
        for ((length, full), filter) in
            sizes.into_iter().flat_map(|size| FILTERS.map(|filter| (size, filter)))
        {
            for upsampling in upsamplings {
                let t = taps(
                    line(Axis { start: 13, length, resized: full, offset: 0, filled: [0; 2] }, full, filter),
                    upsampling,
                );
                let most = match upsampling {
                    Upsampling::None => 13..13 + length,
                    Upsampling::Linear { .. } => 6..(13 + length) / 2 + 1,
                    Upsampling::Repeat(_) => 3..(13 + length).div_ceil(4),
                };
                let context = format!("{length} → {full}, {filter:?}, {upsampling:?}: {:?}", t.sample_range);
                assert!(most.start <= t.sample_range.start && t.sample_range.end <= most.end, "{context}");
                for o in 0..full as usize {
                    let weights = || t.of(o).iter().map(|&w| i32::from(w));
                    assert_eq!(weights().sum::<i32>(), 1 << t.bits, "{context}");
                    assert!(filter.overshoots() || weights().all(|w| w >= 0), "{context}");
                    // Weighted sums of 8-bit samples fit 32 bits if the absolute weights of a pixel add up to less than
                    // 1.6.
                    assert!(weights().map(i32::abs).sum::<i32>() * 5 < 8 << t.bits, "{context}");
                }
            }
        }
    }

    #[test]
    fn a_resize_to_the_same_size_copies() {
        for filter in FILTERS {
            let t = taps(
                line(Axis { start: 5, length: 9, resized: 9, offset: 0, filled: [0; 2] }, 9, filter),
                Upsampling::None,
            );
            assert_eq!((t.longest, t.start.clone()), (1, (5..14).collect()));
        }
    }

    #[test]
    fn mirrored_taps_are_the_taps_in_reverse() {
        let line =
            line(Axis { start: 3, length: 50, resized: 32, offset: 0, filled: [0; 2] }, 32, Filter::Bilinear);
        let (a, b) =
            (taps(line, Upsampling::None), taps(ViewAxis { mirror: true, ..line }, Upsampling::None));
        for o in 0..32 {
            assert_eq!((a.start[o], a.of(o)), (b.start[31 - o], b.of(31 - o)));
        }
    }

    #[test]
    fn linear_upsampling_is_folded_in_as_libjpeg_does_it() {
        // The expected weights: each pixel is ¾ of its own sample and ¼ of the neighbouring sample. At the edges, the
        // sample itself replaces the missing neighbour.
        for filter in FILTERS {
            let axis = Axis { start: 0, length: 6, resized: 6, offset: 0, filled: [0; 2] };
            let t = taps(line(axis, 6, filter), Upsampling::Linear { samples: 3 });
            let quarter = 1 << (t.bits - 2);
            let rows: Vec<(u32, Vec<i16>)> =
                (0..6).map(|o| (t.start[o], t.of(o).iter().map(|w| w / quarter).collect())).collect();
            let (near, next) = (vec![3, 1], vec![1, 3]);
            let pixels =
                [(0, vec![4]), (0, near.clone()), (0, next.clone()), (1, near), (1, next), (2, vec![4])];
            assert_eq!(rows, pixels, "{filter:?}");
        }
    }

    /// Expected values are those of Pillow's `precompute_coeffs` for a cubic enlargement by two. At the border, weights
    /// outside of the image are missing, and the remaining weights are normalised.
    #[test]
    fn cubic_weights_are_keys() {
        let t = taps(
            line(Axis { start: 0, length: 6, resized: 12, offset: 0, filled: [0; 2] }, 12, Filter::Bicubic),
            Upsampling::None,
        );
        let weights =
            |o: usize| t.of(o).iter().map(|&w| f64::from(w) / f64::from(1 << t.bits)).collect::<Vec<_>>();
        let near = |o: usize, want: &[f64]| {
            let got = weights(o);
            assert_eq!(got.len(), want.len(), "{o}: {got:?}");
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4), "{o}: {got:?}");
        };
        near(5, &[-0.0703125, 0.8671875, 0.2265625, -0.0234375]);
        near(6, &[-0.0234375, 0.2265625, 0.8671875, -0.0703125]);
        near(0, &[0.8671875 / 0.796875, -0.0703125 / 0.796875]);
    }
}
