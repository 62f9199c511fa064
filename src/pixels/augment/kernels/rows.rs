//! The vertical half of the resize: computes the output's rows from source rows that already have the output's columns.

use super::VECTOR;
use super::simd::Simd;
use crate::augment::taps::Taps;

/// The taps of the output's rows, in pairs of source rows.
#[derive(Debug, Default)]
pub(in crate::augment) struct RowTaps {
    pub(in crate::augment) taps: Taps,
    spans: Vec<RowSpan>,
    weights: Vec<i32>,
    /// The number of pairs of source rows that the ring buffer must hold.
    pub(in crate::augment) depth: usize,
}

#[derive(Debug, Clone, Copy)]
struct RowSpan {
    first: usize,
    /// The first pair that this output row or a later output row needs.
    keep: usize,
    weights: (usize, usize),
}

impl RowTaps {
    /// Computes the pairs of rows from `taps`, which must already be built. Pairs are counted from row
    /// `taps.sample_range.start`.
    pub(in crate::augment) fn lay_out(&mut self) {
        self.spans.clear();
        self.weights.clear();
        let mut from = 0;
        for o in 0..self.taps.start.len() {
            let begin = self.weights.len();
            let taps = self.taps.of(o);
            // A row that shows only padding has no taps. It keeps the start of the row above: with the first source row
            // as its start, padding below the image would keep all source rows in the buffer.
            if !taps.is_empty() {
                from = (self.taps.start[o] - self.taps.sample_range.start) as usize;
            }
            // If the first row has an odd index, it is the second row of its pair. The first row of the pair then gets
            // weight 0.
            let odd = from % 2;
            let at = |i: usize| if i >= odd && i - odd < taps.len() { taps[i - odd] } else { 0 };
            self.weights.extend(
                (0..(taps.len() + odd).div_ceil(2))
                    .map(|p| super::columns::pack_pair(at(2 * p), at(2 * p + 1))),
            );
            self.spans.push(RowSpan { first: from / 2, keep: 0, weights: (begin, self.weights.len()) });
        }
        // Rows come in order, but rounding may let a filter begin slightly before the filter of the row above.
        let mut keep = usize::MAX;
        for span in self.spans.iter_mut().rev() {
            keep = keep.min(span.first);
            span.keep = keep;
        }
        (self.depth, keep) = (1, 0);
        for span in &self.spans {
            keep = keep.max(span.first + span.weights.1 - span.weights.0);
            self.depth = self.depth.max(keep - span.keep);
        }
    }

    /// Returns the number of pairs of source rows that must have been resized before output row `o`.
    pub(in crate::augment) fn needed(&self, o: usize) -> usize {
        let span = self.spans[o];
        span.first + span.weights.1 - span.weights.0
    }
}

/// The resized rows of one component: a ring buffer of the latest pairs of rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment) struct ResizedRows<'a> {
    /// The ring buffer. Pair p is at `(p % capacity) * stride`; each word holds the values of two rows.
    pub ring: &'a [i32],
    /// The number of pairs that the ring buffer holds, a power of two.
    pub capacity: usize,
    /// The number of words that a pair of rows takes.
    pub stride: usize,
    pub rows: &'a RowTaps,
    /// The row of the view to compute.
    pub row: usize,
}

impl<'a> ResizedRows<'a> {
    #[inline(always)]
    pub(super) fn pairs(&self) -> usize {
        let (begin, end) = self.rows.spans[self.row].weights;
        end - begin
    }

    /// Returns the values of pair `p` in blocks of columns, and the pair's two weights. For a `p` after the last pair,
    /// the values are arbitrary and the weights 0.
    #[inline(always)]
    fn pair(&self, p: usize) -> (&'a [[i32; VECTOR]], i32) {
        let RowSpan { first, weights: (begin, end), .. } = self.rows.spans[self.row];
        let slot = (first + p) & (self.capacity - 1);
        let (blocks, _) = self.ring[slot * self.stride..][..self.stride].as_chunks();
        (blocks, self.rows.weights[begin..end].get(p).copied().unwrap_or(0))
    }
}

/// The weighted sums of the source rows under a row of the view, plus `start`. `PAIRS` is at least the number of pairs
/// of rows, or 0 if that number has no limit.
pub(super) struct RowSums<'a, S: Simd, const PAIRS: usize> {
    source: ResizedRows<'a>,
    start: S::I,
    rows: [&'a [[i32; VECTOR]]; PAIRS],
    weights: [S::I; PAIRS],
}

impl<'a, S: Simd, const PAIRS: usize> RowSums<'a, S, PAIRS> {
    #[inline(always)]
    pub(super) fn new(s: S, source: ResizedRows<'a>, start: i32) -> Self {
        let (mut rows, mut weights): ([&[_]; PAIRS], _) = ([&[]; PAIRS], [s.splat(0); PAIRS]);
        for p in 0..PAIRS {
            let (row, weight) = source.pair(p);
            (rows[p], weights[p]) = (row, s.splat(weight));
        }
        Self { source, start: s.splat(start), rows, weights }
    }

    /// Returns the sums of the vector of columns that begins at column `x` of a block.
    #[inline(always)]
    pub(super) fn at(&self, s: S, block: usize, x: usize) -> S::I {
        let mut sum = self.start;
        if PAIRS == 0 {
            for p in 0..self.source.pairs() {
                let (row, weight) = self.source.pair(p);
                sum = s.dot_add(sum, s.load(&row[block][x..]), s.splat(weight));
            }
        }
        for (row, &weights) in self.rows.iter().zip(&self.weights) {
            sum = s.dot_add(sum, s.load(&row[block][x..]), weights);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::view::ViewAxis;
    use crate::augment::{Axis, Filter, Padding};
    use crate::decode::Upsampling;
    use base::simd::Level;

    /// A regression test: padding below an image once kept every source row until the end.
    #[test]
    fn padding_does_not_keep_rows() {
        let depth = |pixels, offset| {
            let axis = Axis { start: 0, length: 300, resized: 200, offset, filled: [0; 2] };
            let line = ViewAxis {
                axis,
                pixels,
                mirror: false,
                filter: Filter::Bilinear,
                padding: Padding::Constant,
            };
            let mut rows = RowTaps::default();
            rows.taps.build(Level::detect(), &line, Upsampling::None, 15);
            rows.lay_out();
            rows.depth
        };
        assert_eq!(depth(260, -30), depth(200, 0));
    }
}
