//! The antialiased triangle filter of PIL's `resize(BILINEAR)`, per axis, as 16-bit weights; for subsampled
//! components with libjpeg's upsampling folded in.

use std::ops::Range;

use super::Axis;

/// Weights are at least this precise: bits after the binary point. 1.0 fits 16 signed bits.
pub(super) const MIN_BITS: u32 = 14;

/// The filter of a resize from `length` to `full` pixels, as PIL's `precompute_coeffs` defines it: a triangle as
/// wide as the larger of a source and an output pixel, centred on the output pixel, normalised to sum 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triangle {
    length: u32,
    scale: f64,
    support: f64,
}

impl Triangle {
    pub(super) fn new(length: u32, full: u32) -> Self {
        let scale = f64::from(length) / f64::from(full);
        Self { length, scale, support: scale.max(1.0) }
    }

    fn centre(&self, j: u32) -> f64 {
        (f64::from(j) + 0.5) * self.scale
    }

    /// Source pixels under the filter of output pixel `j`; never empty.
    pub(super) fn bounds(&self, j: u32) -> Range<u32> {
        let centre = self.centre(j);
        // `as` truncates and clips at 0, as PIL does.
        let first = ((centre - self.support + 0.5) as u32).min(self.length - 1);
        let last = ((centre + self.support + 0.5) as u32).min(self.length);
        first..last.max(first + 1)
    }

    /// Weights of `bounds(j)`, not yet normalised.
    fn weights(&self, j: u32) -> impl Iterator<Item = f64> {
        let (centre, inverse) = (self.centre(j), 1.0 / self.support);
        self.bounds(j).map(move |x| (1.0 - ((f64::from(x) - centre + 0.5) * inverse).abs()).max(0.0))
    }

    /// More than the widest `bounds`.
    fn widest(&self) -> usize {
        self.support.ceil() as usize * 2 + 2
    }
}

/// How the samples of a component become pixels along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upsampling {
    /// One sample a pixel.
    None,
    /// Two pixels a sample, ¾ of the nearer and ¼ of the next, of `samples` in the whole image (libjpeg's "fancy").
    Linear {
        /// Samples of the whole component along this axis.
        samples: u32,
    },
    /// Each sample repeated this many times.
    Repeat(u32),
}

/// For every output pixel of an axis the samples it is made of and their weights, in fixed point.
///
/// The weights of a pixel sum to exactly 2^bits, so flat areas stay what they are and no result leaves the range of
/// the samples. They are rounded along the running sum: an error never exceeds one unit, and neighbours cancel.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// First sample of each output pixel.
    pub start: Vec<u32>,
    /// How many samples each output pixel is made of; 0 in padding.
    pub count: Vec<u32>,
    /// `stride` weights for each output pixel, zero after the last.
    pub weights: Vec<i16>,
    /// A multiple of 16.
    pub stride: usize,
    /// Most samples any pixel has.
    pub longest: usize,
    /// Bits after the binary point.
    pub bits: u32,
    /// Samples `reach.start..reach.end` are all that is read.
    pub reach: Range<u32>,
    exact: Vec<f64>,
    spans: Vec<(u32, u32)>,
}

impl Taps {
    /// Computes the taps of `n` output pixels of `axis`, in reverse order when `mirror`, over the samples that
    /// `upsampling` turns into pixels. Samples are numbered from the image's first. At most `max_bits` precise.
    pub(super) fn build(&mut self, axis: &Axis, n: u32, mirror: bool, upsampling: Upsampling, max_bits: u32) {
        let filter = Triangle::new(axis.length, axis.full);
        let room = filter.widest() + 2;
        let shown = axis.shown(n);
        self.exact.clear();
        self.exact.resize(room * n as usize, 0.0);
        self.spans.clear();
        let mut largest = 0f64;
        for (o, exact) in (0..n).zip(self.exact.chunks_exact_mut(room)) {
            let o = if mirror { n - 1 - o } else { o };
            if !shown.contains(&o) {
                self.spans.push((0, 0));
                continue;
            }
            let j = (i64::from(o) + i64::from(axis.window)) as u32;
            let pixel = axis.start + filter.bounds(j).start;
            let (mut sum, mut last) = (0.0, 0);
            let first = upsampling.first_sample(pixel);
            for (i, w) in filter.weights(j).enumerate() {
                sum += w;
                last =
                    upsampling.spread(pixel + i as u32, w, |sample, w| exact[(sample - first) as usize] += w);
            }
            let count = last + 1 - first;
            let normalise = 1.0 / sum;
            for w in &mut exact[..count as usize] {
                *w *= normalise;
                largest = largest.max(*w);
            }
            self.spans.push((first, count));
        }
        self.bits = (MIN_BITS..=max_bits)
            .rev()
            .find(|&bits| largest * f64::from(1u32 << bits) < 32_766.0)
            .unwrap_or(MIN_BITS);
        self.round(room);
    }

    fn round(&mut self, room: usize) {
        let one = f64::from(1u32 << self.bits);
        let widest = self.spans.iter().map(|s| s.1).max().unwrap_or(0) as usize;
        self.stride = widest.max(1).next_multiple_of(16);
        self.start.clear();
        self.count.clear();
        self.weights.clear();
        self.weights.resize(self.stride * self.spans.len(), 0);
        self.longest = 1;
        let (mut lowest, mut end) = (u32::MAX, 0);
        let rows = self.weights.chunks_exact_mut(self.stride).zip(self.exact.chunks_exact(room));
        for ((weights, exact), &(first, count)) in rows.zip(&self.spans) {
            let (mut running, mut before) = (0.0, 0);
            // Zeros at the front move the start, zeros at the end do not count.
            let (mut skipped, mut used) = (0, 0);
            for (i, w) in exact[..count as usize].iter().enumerate() {
                running += w * one;
                let now = (running + 0.5) as i32;
                if now == 0 {
                    skipped = i + 1;
                    continue;
                }
                weights[i - skipped] = (now - before) as i16;
                if now != before {
                    used = i + 1 - skipped;
                }
                before = now;
            }
            let start = first + if used == 0 { 0 } else { skipped as u32 };
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
            if span.1 == 0 {
                *start = self.reach.start;
            }
        }
    }

    /// Weights of output pixel `o`.
    pub(super) fn of(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..self.count[o] as usize]
    }

    /// Weights of output pixel `o` and zeros to a multiple of 16.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn padded(&self, o: usize) -> &[i16] {
        &self.weights[o * self.stride..][..(self.count[o] as usize).next_multiple_of(16)]
    }
}

impl Upsampling {
    /// First sample that pixel `x` or a later one depends on.
    #[inline]
    fn first_sample(self, x: u32) -> u32 {
        match self {
            Self::None => x,
            Self::Linear { .. } => x.saturating_sub(1) / 2,
            Self::Repeat(step) => x / step,
        }
    }

    /// Calls `add(sample, weight)` for the samples pixel `x` is made of; returns the last of them.
    #[inline]
    fn spread(self, x: u32, w: f64, mut add: impl FnMut(u32, f64)) -> u32 {
        match self {
            Self::None => {
                add(x, w);
                x
            }
            Self::Linear { samples } => {
                let near = x / 2;
                let next = if x % 2 == 1 { (near + 1).min(samples - 1) } else { near.saturating_sub(1) };
                add(near, 0.75 * w);
                add(next, 0.25 * w);
                near.max(next)
            }
            Self::Repeat(step) => {
                add(x / step, w);
                x / step
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taps(axis: Axis, n: u32, mirror: bool, upsampling: Upsampling) -> Taps {
        let mut taps = Taps::default();
        taps.build(&axis, n, mirror, upsampling, 20);
        taps
    }

    #[test]
    fn weights_sum_to_one_and_stay_inside() {
        for (length, full) in
            [(1, 1), (1, 7), (7, 1), (400, 224), (100, 224), (65_535, 224), (3, 1000), (224, 224)]
        {
            for upsampling in
                [Upsampling::None, Upsampling::Linear { samples: 40_000 }, Upsampling::Repeat(4)]
            {
                let axis = Axis { start: 13, length, full, window: 0 };
                let t = taps(axis, full, false, upsampling);
                let most = match upsampling {
                    Upsampling::None => 13..13 + length,
                    Upsampling::Linear { .. } => 6..(13 + length) / 2 + 1,
                    Upsampling::Repeat(_) => 3..(13 + length).div_ceil(4),
                };
                assert!(
                    most.start <= t.reach.start && t.reach.end <= most.end,
                    "{length} {full} {:?}",
                    t.reach
                );
                for o in 0..full as usize {
                    let sum: i32 = t.of(o).iter().map(|&w| i32::from(w)).sum();
                    assert_eq!(sum, 1 << t.bits);
                    assert!(t.of(o).iter().all(|&w| w >= 0));
                }
            }
        }
    }

    #[test]
    fn a_resize_to_the_same_size_copies() {
        let t = taps(Axis { start: 5, length: 9, full: 9, window: 0 }, 9, false, Upsampling::None);
        assert_eq!((t.longest, t.start.clone()), (1, (5..14).collect()));
    }

    #[test]
    fn mirrored_taps_are_the_taps_in_reverse() {
        let axis = Axis { start: 3, length: 50, full: 32, window: 0 };
        let (a, b) = (taps(axis, 32, false, Upsampling::None), taps(axis, 32, true, Upsampling::None));
        for o in 0..32 {
            assert_eq!((a.start[o], a.of(o)), (b.start[31 - o], b.of(31 - o)));
        }
    }

    #[test]
    fn linear_upsampling_is_folded_in_as_libjpeg_does_it() {
        // Each pixel for itself: ¾ and ¼, the edges repeated.
        let axis = Axis { start: 0, length: 6, full: 6, window: 0 };
        let t = taps(axis, 6, false, Upsampling::Linear { samples: 3 });
        let quarter = 1 << (t.bits - 2);
        let rows: Vec<(u32, Vec<i16>)> =
            (0..6).map(|o| (t.start[o], t.of(o).iter().map(|w| w / quarter).collect())).collect();
        assert_eq!(
            rows,
            [(0, vec![4]), (0, vec![3, 1]), (0, vec![1, 3]), (1, vec![3, 1]), (1, vec![1, 3]), (2, vec![4])]
        );
    }
}
