//! The filters of a resize along one axis, as 16-bit weights, with libjpeg's upsampling folded in for subsampled
//! components.

use std::ops::Range;

use super::Filter;
use super::view::ViewAxis;

/// The fewest bits after the binary point of weights. All weights are below 2, which fits 16 signed bits with these.
pub(super) const MIN_BITS: u32 = 14;

/// The filter of a resize from `length` to `full` pixels. The antialiased filters are those of PIL's
/// `precompute_coeffs`: as wide as the larger of a source and an output pixel needs, centred on the output pixel,
/// normalised to sum 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    filter: Filter,
    length: u32,
    scale: f64,
    support: f64,
    inverse: f64,
}

impl Resize {
    pub(super) fn new(filter: Filter, length: u32, full: u32) -> Self {
        let scale = scale(filter, length, full);
        let wide = scale.max(1.0);
        let support = match filter {
            Filter::Nearest | Filter::NearestExact => 0.0,
            Filter::Bilinear => wide,
            Filter::Bicubic => 2.0 * wide,
            Filter::Lanczos => 3.0 * wide,
        };
        Self { filter, length, scale, support, inverse: 1.0 / wide }
    }

    fn centre(&self, j: u32) -> f64 {
        (f64::from(j) + 0.5) * self.scale
    }

    /// The source pixels under the filter of output pixel `j`; never empty.
    #[inline(always)]
    pub(super) fn bounds(&self, j: u32) -> Range<u32> {
        let first = match self.filter {
            Filter::Nearest => self.nearest(j as f32),
            Filter::NearestExact => self.nearest(j as f32 + 0.5),
            Filter::Bilinear | Filter::Bicubic | Filter::Lanczos => {
                let centre = self.centre(j);
                // `as` truncates and clips at 0, as PIL does.
                let first = ((centre - self.support + 0.5) as u32).min(self.length - 1);
                let last = ((centre + self.support + 0.5) as u32).min(self.length);
                return first..last.max(first + 1);
            }
        };
        first..first + 1
    }

    /// The source pixel that holds the point `at` of the resized axis.
    fn nearest(&self, at: f32) -> u32 {
        ((at * self.scale as f32) as u32).min(self.length - 1)
    }

    /// Writes the weights of `bounds(j)`, not yet normalised, to the beginning of `to`; returns the bounds and the sum.
    /// `weight` is the filter's weight at a distance from its centre.
    #[inline(always)]
    fn weights(&self, j: u32, weight: impl Fn(f64) -> f64, to: &mut [f64]) -> (Range<u32>, f64) {
        let (bounds, inverse) = (self.bounds(j), self.inverse);
        let offset = f64::from(bounds.start) - self.centre(j) + 0.5;
        let mut sum = 0.0;
        for (i, to) in to[..bounds.len()].iter_mut().enumerate() {
            *to = weight(((offset + i as f64) * inverse).abs());
            sum += *to;
        }
        (bounds, sum)
    }

    /// An upper limit on the width of `bounds`.
    fn widest(&self) -> usize {
        self.support.ceil() as usize * 2 + 2
    }
}

/// The number of source pixels that an output pixel spans. If a single one is chosen, torch computes in 32 bits.
pub(super) fn scale(filter: Filter, length: u32, full: u32) -> f64 {
    match filter {
        Filter::Nearest | Filter::NearestExact => f64::from(length as f32 / full as f32),
        Filter::Bilinear | Filter::Bicubic | Filter::Lanczos => f64::from(length) / f64::from(full),
    }
}

#[inline(always)]
fn triangle(distance: f64) -> f64 {
    (1.0 - distance).max(0.0)
}

/// Keys' cubic convolution with a = -0.5.
#[inline(always)]
fn cubic(distance: f64) -> f64 {
    let near = ((1.5 * distance - 2.5) * distance) * distance + 1.0;
    let far = (((distance - 5.0) * distance + 8.0) * distance - 4.0) * -0.5;
    if distance < 1.0 {
        near
    } else if distance < 2.0 {
        far
    } else {
        0.0
    }
}

/// The polynomial in x² whose value is sinc(x / 3) = sin(πx/3) / (πx/3) for x from 0 to 3, the highest power first:
/// Chebyshev's approximation, which is nowhere off by more than 7·10⁻¹². Weights have 20 bits after the point at most.
const SINC: [f64; 8] = [
    -1.260695612291763e-12,
    2.764675948253526e-10,
    -3.970979471909898e-8,
    3.98525562179852e-6,
    -0.00026166210645690554,
    0.010021511194583416,
    -0.18277045177413956,
    0.999999999993119,
];

/// 4π²/27.
const LOBES: f64 = 1.4621636149762012;

/// The sinc function windowed by its own middle lobe, sinc(x) · sinc(x / 3). A polynomial stands for the sine, so that
/// a GPU computes the same bits: with s = sinc(x / 3), and sin 3α = 3 sin α − 4 sin³ α, it is s² (1 − 4π²/27 · s² x²).
#[inline(always)]
fn lanczos(distance: f64) -> f64 {
    let square = distance * distance;
    let mut sinc = SINC[0];
    for coefficient in &SINC[1..] {
        sinc = sinc * square + coefficient;
    }
    let window = sinc * sinc;
    if distance < 3.0 { window * (1.0 - LOBES * (window * square)) } else { 0.0 }
}

/// How the samples of a component become pixels along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upsampling {
    /// There is a sample for each pixel.
    None,
    /// There are two pixels for each sample: ¾ of the nearer and ¼ of the next, of `samples` in the whole image
    /// (libjpeg's "fancy").
    Linear {
        /// The samples of the whole component along this axis.
        samples: u32,
    },
    /// Each sample is repeated this many times.
    Repeat(u32),
}

/// For every output pixel of an axis, the samples that it is made of and their weights, in fixed point.
///
/// The weights of a pixel sum to exactly 2^bits, so flat areas keep their value; if no weight is negative, no result
/// leaves the range of the samples. They are rounded along the running sum: an error never exceeds one unit, and
/// neighbours cancel.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// The first sample of each output pixel.
    pub start: Vec<u32>,
    /// The number of samples that each output pixel is made of; 0 in padding.
    pub count: Vec<u32>,
    /// The weights: `stride` for each output pixel, zero after the last one used.
    pub weights: Vec<i16>,
    /// The number of weights kept for each pixel, a multiple of 16.
    pub stride: usize,
    /// The most samples that any pixel has.
    pub longest: usize,
    /// The bits after the binary point.
    pub bits: u32,
    /// The range of all samples that are read.
    pub reach: Range<u32>,
    exact: Vec<f64>,
    pixels: Vec<f64>,
    spans: Vec<WeightSpan>,
}

/// The weights of a pixel before rounding: the samples that they belong to, and the factor that makes their sum 1.
#[derive(Debug, Clone, Copy)]
struct WeightSpan {
    first: u32,
    count: u32,
    normalise: f64,
}

/// The number of zeros around the weights of pixels, so that samples at the ends need no special case.
const MARGIN: usize = 4;

impl Taps {
    /// Computes the taps of the pixels of `line` over the samples that `upsampling` turns into pixels. Samples are
    /// numbered from the image's first. Weights have at most `max_bits`.
    pub(super) fn build(&mut self, line: &ViewAxis, upsampling: Upsampling, max_bits: u32) {
        match line.filter {
            Filter::Nearest | Filter::NearestExact => self.build_with(|_| 1.0, line, upsampling, max_bits),
            Filter::Bilinear => self.build_with(triangle, line, upsampling, max_bits),
            Filter::Bicubic => self.build_with(cubic, line, upsampling, max_bits),
            Filter::Lanczos => self.build_with(lanczos, line, upsampling, max_bits),
        }
    }

    fn build_with(
        &mut self,
        weight: impl Fn(f64) -> f64,
        line: &ViewAxis,
        upsampling: Upsampling,
        max_bits: u32,
    ) {
        let (filter, n) = (line.resize(), line.pixels);
        let room = filter.widest() + 2;
        self.exact.clear();
        self.exact.resize(room * n as usize, 0.0);
        self.pixels.clear();
        self.pixels.resize(room + 2 * MARGIN, 0.0);
        self.spans.clear();
        let mut largest = 0f64;
        for (o, exact) in (0..n).zip(self.exact.chunks_exact_mut(room)) {
            let Some(j) = line.pixel(if line.mirror { n - 1 - o } else { o }) else {
                self.spans.push(WeightSpan { first: 0, count: 0, normalise: 0.0 });
                continue;
            };
            let ((first, count), sum) = match upsampling {
                Upsampling::None => {
                    let (bounds, sum) = filter.weights(j, &weight, exact);
                    ((line.axis.start + bounds.start, bounds.len()), sum)
                }
                _ => {
                    let (bounds, sum) = filter.weights(j, &weight, &mut self.pixels[MARGIN..]);
                    let end = MARGIN + bounds.len();
                    self.pixels[end..end + MARGIN].fill(0.0);
                    let start = line.axis.start + bounds.start;
                    (upsampling.gather(start, bounds.len(), &self.pixels[..end + MARGIN], exact), sum)
                }
            };
            let normalise = 1.0 / sum;
            let peak = exact[..count].iter().fold(0f64, |peak, &w| if w > peak { w } else { peak });
            largest = largest.max(peak * normalise);
            self.spans.push(WeightSpan { first, count: count as u32, normalise });
        }
        self.bits = (MIN_BITS..=max_bits)
            .rev()
            .find(|&bits| largest * f64::from(1u32 << bits) < 32_766.0)
            .unwrap_or(MIN_BITS);
        if line.filter.overshoots() {
            self.round::<true>(room);
        } else {
            self.round::<false>(room);
        }
    }

    /// Rounds the weights to fixed point; `SIGNED` if weights may be negative.
    fn round<const SIGNED: bool>(&mut self, room: usize) {
        let one = f64::from(1u32 << self.bits);
        let widest = self.spans.iter().map(|s| s.count).max().unwrap_or(0) as usize;
        self.stride = widest.max(1).next_multiple_of(16);
        self.start.clear();
        self.count.clear();
        self.weights.clear();
        self.weights.resize(self.stride * self.spans.len(), 0);
        self.longest = 1;
        let (mut lowest, mut end) = (u32::MAX, 0);
        let rows = self.weights.chunks_exact_mut(self.stride).zip(self.exact.chunks_exact(room));
        for ((weights, exact), span) in rows.zip(&self.spans) {
            let unit = span.normalise * one;
            let (mut running, mut before) = (0.0, 0);
            // Zeros at the front move the start; zeros at the end do not count.
            let (mut skipped, mut used) = (0, 0);
            for (i, w) in exact[..span.count as usize].iter().enumerate() {
                running += w * unit;
                let now = if SIGNED { floor(running + 0.5) } else { (running + 0.5) as i32 };
                if now == 0 && (!SIGNED || used == 0) {
                    skipped = i + 1;
                    continue;
                }
                weights[i - skipped] = (now - before) as i16;
                if now != before {
                    used = i + 1 - skipped;
                }
                before = now;
            }
            let start = span.first + if used == 0 { 0 } else { skipped as u32 };
            self.start.push(start);
            self.count.push(used as u32);
            if used > 0 {
                self.longest = self.longest.max(used);
                lowest = lowest.min(start);
                end = end.max(start + used as u32);
            }
        }
        self.reach = lowest.min(end)..end;
        // Pixels of padding have no weights; let them start where others do.
        for (start, span) in self.start.iter_mut().zip(&self.spans) {
            if span.count == 0 {
                *start = self.reach.start;
            }
        }
    }

    /// The weights of output pixel `o`.
    pub(super) fn of(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..self.count[o] as usize]
    }

    /// The weights of output pixel `o`, with zeros to a multiple of 16.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn padded(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..(self.count[o] as usize).next_multiple_of(16)]
    }
}

/// The largest integer that is not above `value`; not every processor has an instruction for it.
#[inline(always)]
fn floor(value: f64) -> i32 {
    let truncated = value as i32;
    truncated - i32::from(f64::from(truncated) > value)
}

impl Upsampling {
    /// Turns the weights of `n` pixels, of which `x` is the first, into weights of samples. Returns the first sample
    /// and their number. The pixels' weights have [`MARGIN`] zeros at both ends.
    #[inline]
    fn gather(self, x: u32, n: usize, pixels: &[f64], samples: &mut [f64]) -> (u32, usize) {
        let end = x + n as u32;
        match self {
            Self::None => {
                samples[..n].copy_from_slice(&pixels[MARGIN..][..n]);
                (x, n)
            }
            Self::Linear { samples: all } => {
                // Sample i gives ¾ to pixels 2i and 2i + 1 and ¼ to their neighbours.
                let (first, last) = (x.saturating_sub(1) / 2, (end / 2).min(all - 1));
                let count = (last - first + 1) as usize;
                let before = MARGIN - 1 - (x - 2 * first) as usize;
                for (i, sample) in samples[..count].iter_mut().enumerate() {
                    let w = &pixels[before + 2 * i..][..4];
                    *sample = 0.75 * (w[1] + w[2]) + 0.25 * (w[0] + w[3]);
                }
                // The image's first and last pixels have one neighbour and count it twice.
                if x == 0 {
                    samples[0] += 0.25 * pixels[MARGIN];
                }
                if end == 2 * all {
                    samples[count - 1] += 0.25 * pixels[MARGIN + n - 1];
                }
                (first, count)
            }
            Self::Repeat(step) => {
                let (first, last) = (x / step, (end - 1) / step);
                let count = (last - first + 1) as usize;
                for (i, &w) in pixels[MARGIN..][..n].iter().enumerate() {
                    samples[((x + i as u32) / step - first) as usize] += w;
                }
                (first, count)
            }
        }
    }
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
        taps.build(&line, upsampling, 20);
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
                let context = format!("{length} → {full}, {filter:?}, {upsampling:?}: {:?}", t.reach);
                assert!(most.start <= t.reach.start && t.reach.end <= most.end, "{context}");
                for o in 0..full as usize {
                    let weights = || t.of(o).iter().map(|&w| i32::from(w));
                    assert_eq!(weights().sum::<i32>(), 1 << t.bits, "{context}");
                    assert!(filter.overshoots() || weights().all(|w| w >= 0), "{context}");
                    // The sums must fit 32 bits, and those of the centred chroma, too.
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
        // The expected weights treat each pixel by itself: ¾ and ¼, with the edges repeated.
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

    /// Expected is Pillow's `precompute_coeffs` for a cubic enlargement by two: pixels 0 and 5 of 6 lack what lies
    /// outside.
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

    /// Pillow computes `sinc(x) * sinc(x / 3)`.
    #[test]
    fn lanczos_is_a_windowed_sinc() {
        let sinc = |x: f64| {
            let angle = std::f64::consts::PI * x;
            if x == 0.0 { 1.0 } else { libm::sin(angle) / angle }
        };
        for distance in (0..=4000).map(|thousandth| f64::from(thousandth) / 1000.0) {
            let expected = if distance < 3.0 { sinc(distance) * sinc(distance / 3.0) } else { 0.0 };
            assert!((lanczos(distance) - expected).abs() < 5e-11, "{distance}");
        }
    }
}
