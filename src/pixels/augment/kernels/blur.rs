//! Weighted sums of neighbours for a blur: along two rows, then down columns. A word holds two 16-bit values, so one
//! instruction multiplies both values by their weights. A vector's even columns are stored before its odd columns,
//! because the instruction produces them in this order.

use super::columns::pack_pair;
use super::simd::Simd;

/// The number of fractional bits of sums along rows. With 7, the largest sum (255 · 2^7 = 32640) still fits an `i16`.
const FRACTION: u32 = 7;

/// The weights of a symmetric filter in pairs. The weights sum to 2^`bits`, so sums are divided by 2^`bits`.
#[derive(Debug, Default)]
pub(in crate::augment) struct PairedWeights {
    /// Two lists of weights: `pairs[0]` for windows that begin with the first row or column of a pair, `pairs[1]` for
    /// windows that begin with the second.
    pairs: [Vec<i32>; 2],
    /// The distance to the farthest neighbour that has a weight.
    pub(in crate::augment) reach: usize,
    bits: u32,
}

impl PairedWeights {
    /// Takes the weights of the pixel itself and of its neighbours at distances 1, 2, …, in units of 2^-15.
    pub(in crate::augment) fn new(weights: &[u16]) -> Self {
        let reach = weights.len() - 1;
        // If there is only one weight, it is 2^15, which would not fit 16 signed bits.
        let (halved, bits) = if reach == 0 { (1, 14) } else { (0, 15) };
        let at = |place: usize| match place.checked_sub(1).map(|place| place.abs_diff(reach)) {
            Some(distance) if distance <= reach => (weights[distance] >> halved) as i16,
            _ => 0,
        };
        // Index 0 is the pixel before the window, index 1 the first pixel of the window.
        let pairs = [1, 0].map(|first| {
            (first..2 * reach + 2).step_by(2).map(|place| pack_pair(at(place), at(place + 1))).collect()
        });
        Self { pairs, reach, bits }
    }
}

/// Returns the number of words of a pair of rows of `width` columns.
pub(in crate::augment) fn words(width: usize) -> usize {
    width.next_multiple_of(2 * super::VECTOR)
}

/// Implements [`super::blur_along`] with SIMD vectors.
#[inline(always)]
pub(super) fn along<S: Simd>(s: S, rows: [&[i16]; 2], weights: &PairedWeights, to: &mut [i32]) {
    let shift = weights.bits - FRACTION;
    let half = s.splat(1 << (shift - 1));
    for (chunk, to) in to.chunks_exact_mut(2 * S::LANES).enumerate() {
        let mut sums = [[half; 2]; 2];
        for (pair, &weights) in weights.pairs[0].iter().enumerate() {
            let (first, weights) = (2 * (chunk * S::LANES + pair), s.splat(weights));
            for (sums, row) in sums.iter_mut().zip(rows) {
                sums[0] = s.dot_add(sums[0], s.load16(&row[first..]), weights);
                sums[1] = s.dot_add(sums[1], s.load16(&row[first + 1..]), weights);
            }
        }
        for (column, to) in to.chunks_exact_mut(S::LANES).enumerate() {
            let [above, below] = sums.map(|sums| s.shift_right(sums[column], shift));
            s.store(to, s.or(above, s.shift_left(below, 16)));
        }
    }
}

/// Implements [`super::blur_down`] with SIMD vectors.
#[inline(always)]
pub(super) fn down<S: Simd>(s: S, pairs: &[i32], weights: &PairedWeights, odd: bool, to: &mut [u8]) {
    let stride = words(to.len());
    let shift = weights.bits + FRACTION;
    let half = s.splat(1 << (shift - 1));
    for (chunk, to) in to.chunks_mut(2 * S::LANES).enumerate() {
        let mut sums = [half; 2];
        for (pair, &weights) in weights.pairs[usize::from(odd)].iter().enumerate() {
            let (row, weights) = (&pairs[pair * stride + chunk * 2 * S::LANES..], s.splat(weights));
            sums[0] = s.dot_add(sums[0], s.load(row), weights);
            sums[1] = s.dot_add(sums[1], s.load(&row[S::LANES..]), weights);
        }
        let [even, odd] = sums.map(|sum| s.shift_right(sum, shift));
        let levels = s.or(even, s.shift_left(odd, 16));
        if to.len() == 2 * S::LANES {
            s.narrow(to, levels);
        } else {
            let mut whole = [0; 2 * super::VECTOR];
            s.narrow(&mut whole, levels);
            to.copy_from_slice(&whole[..to.len()]);
        }
    }
}
