//! The horizontal half of the resize: computes the output's columns of each source row.

use super::VECTOR;
use super::simd::Simd;
use crate::augment::taps::Taps;
use crate::augment::upsample::PADDING;
use crate::augment::view::ViewAxis;
use crate::decode::Upsampling;
use base::simd::Level;

/// The byte index for which [`Simd::pick`] gives 0.
const ZERO_INDEX: u8 = 0xff;

/// The taps (samples and weights) of the output's columns, arranged for the vectors of one SIMD level.
#[derive(Debug, Default)]
pub(in crate::augment) struct ColumnTaps {
    pub(in crate::augment) taps: Taps,
    /// Whether results can leave the range of the samples, so that they must be clamped.
    pub(super) clamped: bool,
    /// The number of pairs of taps of each column; 0 if a filter is too long for the windows (see [`LoadLayout`]).
    pairs: usize,
    /// Whether windows have [`LoadLayout::wide`] samples, not [`LoadLayout::window`].
    is_wide: bool,
    /// The first sample of each window.
    bases: Vec<u32>,
    /// For each vector and pair of taps: where each column finds the pair's two samples in its window, as byte indices.
    index: Vec<u8>,
    /// For each vector and pair of taps: the pair's two weights for each column, in one word.
    weights: Vec<i32>,
}

/// How vectors load samples at a SIMD level. A window is a run of samples of a row that is loaded at once. A vector of
/// `lanes` columns takes its samples from `windows` windows. A window has `window` samples, or `wide` samples if a
/// filter is too long for `window` samples.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment) struct LoadLayout {
    pub lanes: usize,
    pub windows: usize,
    pub window: usize,
    pub wide: usize,
}

pub(super) fn load_layout<S: Simd>() -> LoadLayout {
    LoadLayout { lanes: S::LANES, windows: S::WINDOWS, window: S::WINDOW, wide: S::WIDE }
}

impl ColumnTaps {
    /// Returns the number of columns after padding to whole vectors.
    pub(in crate::augment) fn width(&self) -> usize {
        self.taps.start.len()
    }

    /// Computes the taps of the columns of `line`; see [`Taps::build`].
    pub(in crate::augment) fn build(
        &mut self,
        level: Level,
        line: &ViewAxis,
        upsampling: Upsampling,
        max_bits: u32,
    ) {
        self.taps.build(level, line, upsampling, max_bits);
        self.clamped = line.filter.overshoots();
        // Columns are stored in whole vectors. Extra columns repeat the last start and have no weights.
        let padded = (line.pixels as usize).next_multiple_of(VECTOR);
        // Make the starts relative to the first sample that is read.
        for start in &mut self.taps.start {
            *start -= self.taps.sample_range.start;
        }
        let last = self.taps.start.last().copied().unwrap_or(0);
        self.taps.start.resize(padded, last);
        self.taps.count.resize(padded, 0);
        self.taps.weights.resize(padded * self.taps.stride, 0);
        self.lay_out(super::load_layout(level), padded);
    }

    /// Returns the result for samples that are all 255, after the shift. Some filters overshoot and give larger
    /// results, which are clamped to this value.
    #[inline(always)]
    pub(super) fn most(&self, shift: u32) -> i32 {
        255 << (self.taps.bits - shift)
    }

    fn lay_out(&mut self, load_layout: LoadLayout, padded: usize) {
        self.pairs = 0;
        if load_layout.windows == 0 {
            return;
        }
        let columns = load_layout.lanes / load_layout.windows;
        self.is_wide = !self.fit(columns, load_layout.window);
        let window = if self.is_wide { load_layout.wide } else { load_layout.window };
        if self.is_wide && !self.fit(columns, window) {
            return;
        }
        let pairs = (self.taps.longest).div_ceil(2);
        self.pairs = pairs;
        self.index.clear();
        self.index.resize(4 * padded * pairs, ZERO_INDEX);
        self.weights.clear();
        self.weights.resize(padded * pairs, 0);
        let limit = (window - 1) as u32;
        let vectors = self
            .index
            .chunks_exact_mut(4 * load_layout.lanes * pairs)
            .zip(self.weights.chunks_exact_mut(load_layout.lanes * pairs));
        for (v, (index, weights)) in vectors.enumerate() {
            for lane in 0..load_layout.lanes {
                let o = v * load_layout.lanes + lane;
                let offset = self.taps.start[o] - self.bases[v * load_layout.windows + lane / columns];
                let taps = &self.taps.weights[o * self.taps.stride..][..2 * pairs];
                for (p, pair) in taps.chunks_exact(2).enumerate() {
                    let at = p * load_layout.lanes + lane;
                    // An unused tap may be outside of the window; its weight is 0.
                    index[4 * at] = (offset + 2 * p as u32).min(limit) as u8;
                    index[4 * at + 2] = (offset + 2 * p as u32 + 1).min(limit) as u8;
                    weights[at] = pack_pair(pair[0], pair[1]);
                }
            }
        }
    }

    /// Sets `bases`: each group of `columns` columns gets a window of `window` samples. Returns false if a window is
    /// too short for the filters of its columns.
    fn fit(&mut self, columns: usize, window: usize) -> bool {
        let (reach, longest) = (self.taps.sample_range.len() as u32, self.taps.longest as u32);
        // No window may end after the bytes that may be read. Near the end of a row, a window therefore begins before
        // the first sample of its filters.
        let most = (reach + PADDING as u32).saturating_sub(window as u32);
        self.bases.clear();
        for starts in self.taps.start.chunks_exact(columns) {
            let (low, high) = starts.iter().fold((u32::MAX, 0), |(l, h), &s| (l.min(s), h.max(s)));
            if ((high + longest).min(reach) - low) as usize > window {
                return false;
            }
            self.bases.push(low.min(most));
        }
        true
    }
}

trait Windows<S: Simd>: Copy {
    fn load(s: S, row: &[u8], bases: &[u32]) -> Self;
    fn pick(self, s: S, index: &[u8]) -> S::I;
}

#[derive(Clone, Copy)]
struct Narrow<S: Simd>(S::I);

impl<S: Simd> Windows<S> for Narrow<S> {
    #[inline(always)]
    fn load(s: S, row: &[u8], bases: &[u32]) -> Self {
        Self(s.windows(row, bases))
    }
    #[inline(always)]
    fn pick(self, s: S, index: &[u8]) -> S::I {
        s.pick(self.0, index)
    }
}

#[derive(Clone, Copy)]
struct Wide<S: Simd>(S::Wide);

impl<S: Simd> Windows<S> for Wide<S> {
    #[inline(always)]
    fn load(s: S, row: &[u8], bases: &[u32]) -> Self {
        Self(s.wide_windows(row, bases))
    }
    #[inline(always)]
    fn pick(self, s: S, index: &[u8]) -> S::I {
        s.pick_wide(self.0, index)
    }
}

/// Puts two 16-bit weights into one word, the first into the low half.
pub(in crate::augment) fn pack_pair(low: i16, high: i16) -> i32 {
    i32::from(low as u16) | i32::from(high) << 16
}

/// Implements [`super::resize_columns`] with SIMD vectors.
#[inline(always)]
pub(super) fn resize<S: Simd>(s: S, rows: [&[u8]; 2], columns: &ColumnTaps, shift: u32, out: &mut [i32]) {
    match (columns.clamped, columns.is_wide, columns.pairs) {
        (false, _, 0) => s.resize_long::<false>(rows, columns, shift, out),
        (false, true, _) => windowed::<S, Wide<S>, 0, false>(s, rows, columns, shift, out),
        (false, _, 1) => windowed::<S, Narrow<S>, 1, false>(s, rows, columns, shift, out),
        (false, _, 2) => windowed::<S, Narrow<S>, 2, false>(s, rows, columns, shift, out),
        (false, _, 3) => windowed::<S, Narrow<S>, 3, false>(s, rows, columns, shift, out),
        (false, _, 4) => windowed::<S, Narrow<S>, 4, false>(s, rows, columns, shift, out),
        (false, _, _) => windowed::<S, Narrow<S>, 0, false>(s, rows, columns, shift, out),
        (true, _, 0) => s.resize_long::<true>(rows, columns, shift, out),
        (true, true, _) => windowed::<S, Wide<S>, 0, true>(s, rows, columns, shift, out),
        (true, _, 2) => windowed::<S, Narrow<S>, 2, true>(s, rows, columns, shift, out),
        (true, _, 3) => windowed::<S, Narrow<S>, 3, true>(s, rows, columns, shift, out),
        (true, _, 4) => windowed::<S, Narrow<S>, 4, true>(s, rows, columns, shift, out),
        (true, _, 5) => windowed::<S, Narrow<S>, 5, true>(s, rows, columns, shift, out),
        (true, _, _) => windowed::<S, Narrow<S>, 0, true>(s, rows, columns, shift, out),
    }
}

/// Resizes with windows: each vector of columns takes its samples from windows `W` of the row. `PAIRS` is
/// `columns.pairs`, or 0 for any number; `CLAMPED` is `columns.clamped`.
#[inline(always)]
fn windowed<S: Simd, W: Windows<S>, const PAIRS: usize, const CLAMPED: bool>(
    s: S,
    [first, second]: [&[u8]; 2],
    columns: &ColumnTaps,
    shift: u32,
    out: &mut [i32],
) {
    let pairs = if PAIRS == 0 { columns.pairs } else { PAIRS };
    let half = s.splat(1 << (shift - 1));
    let (least, most) = (s.splat(0), s.splat(columns.most(shift)));
    let vectors = out
        .chunks_exact_mut(S::LANES)
        .zip(columns.bases.chunks_exact(S::WINDOWS))
        .zip(columns.index.chunks_exact(4 * S::LANES * pairs))
        .zip(columns.weights.chunks_exact(S::LANES * pairs));
    for (((out, bases), index), weights) in vectors {
        let (a, b) = (W::load(s, first, bases), W::load(s, second, bases));
        let (mut sum_a, mut sum_b) = (half, half);
        let taps = index.chunks_exact(4 * S::LANES).zip(weights.chunks_exact(S::LANES));
        for (index, weights) in taps {
            let w = s.load(weights);
            sum_a = s.dot_add(sum_a, a.pick(s, index), w);
            sum_b = s.dot_add(sum_b, b.pick(s, index), w);
        }
        let [a, b] = [sum_a, sum_b].map(|sum| s.shift_right(sum, shift));
        let [a, b] = if CLAMPED { [a, b].map(|v| s.limit(v, least, most)) } else { [a, b] };
        s.store(out, s.or(a, s.shift_left(b, 16)));
    }
}
