//! Gaussian blur: along rows, then along columns, with integer weights and reflected borders.

use crate::augment::kernels::{self, PairedWeights};
use base::simd::Level;

/// The number of fractional bits of a weight: the weights of a kernel sum to 2^15.
const WEIGHT_BITS: u32 = 15;
/// Returns the weights of torchvision's Gaussian kernel of `size` pixels, in units of 2^-15: first the weight of the
/// pixel itself, then the weights of the neighbours at distances 1, 2, … on either side. Outer weights that are 0 are
/// left out. A kernel of one weight changes nothing.
pub(in crate::augment) fn weights(size: u32, sigma: f64) -> Vec<u16> {
    let weight =
        |distance: u32| libm::exp(-0.5 * (f64::from(distance) / sigma) * (f64::from(distance) / sigma));
    let reach = size / 2;
    let total: f64 = 1.0 + 2.0 * (1..=reach).map(weight).sum::<f64>();
    // Rounding errors must not add up, so the sums of the weights from the outermost weight on are rounded, and not the
    // weights themselves.
    let whole = f64::from(1 << WEIGHT_BITS);
    let (mut outside, mut rounded) = (0.0, 0);
    let mut weights = Vec::with_capacity(reach as usize + 1);
    for distance in (1..=reach).rev() {
        outside += weight(distance) / total;
        let sum = libm::rint(outside * whole) as u16;
        if sum > 0 {
            weights.push(sum - rounded);
        }
        rounded = sum;
    }
    weights.push((1 << WEIGHT_BITS) - 2 * rounded);
    weights.reverse();
    weights
}

/// Returns the index of the pixel that is shown at index `place`. An index outside of `0..length` is reflected about
/// the border pixel.
pub(in crate::augment) fn reflected(place: isize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let period = 2 * (length - 1);
    let place = place.rem_euclid(period as isize) as usize;
    place.min(period - place)
}

#[derive(Debug, Default)]
pub(super) struct Blur {
    /// Two rows, each with reflected borders.
    padded: [Vec<i16>; 2],
    /// The rows of a plane and of its border, blurred along x. Each word holds the values of two rows in one column.
    pairs: Vec<i32>,
}

impl Blur {
    /// Blurs planes of `width` × `height` levels with the [`weights`] along x and y. Sums along rows are rounded to
    /// seven bits after the binary point, and sums down columns to levels.
    pub(super) fn run(
        &mut self,
        level: Level,
        planes: [&mut [u8]; 3],
        (width, height): (usize, usize),
        weights: [&[u16]; 2],
    ) {
        let [across, down] = weights.map(PairedWeights::new);
        let words = kernels::words(width);
        for padded in &mut self.padded {
            padded.clear();
            padded.resize(words + 2 * across.reach + 2, 0);
        }
        self.pairs.resize((height + 2 * down.reach).div_ceil(2) * words, 0);
        for plane in planes {
            for (pair, to) in self.pairs.chunks_exact_mut(words).enumerate() {
                for (odd, padded) in self.padded.iter_mut().enumerate() {
                    let row = (2 * pair + odd) as isize - down.reach as isize;
                    pad(&plane[reflected(row, height) * width..][..width], across.reach, padded);
                }
                kernels::blur_along(level, self.padded.each_ref().map(|row| &row[..]), &across, to);
            }
            for (row, to) in plane.chunks_exact_mut(width).enumerate() {
                kernels::blur_down(level, &self.pairs[row / 2 * words..], &down, row % 2 == 1, to);
            }
        }
    }
}

/// Writes a row with `reach` reflected pixels on either side.
fn pad(row: &[u8], reach: usize, to: &mut [i16]) {
    for (x, to) in to[..reach].iter_mut().enumerate() {
        *to = i16::from(row[reflected(x as isize - reach as isize, row.len())]);
    }
    for (to, &level) in to[reach..].iter_mut().zip(row) {
        *to = i16::from(level);
    }
    for (x, to) in to[reach + row.len()..][..reach].iter_mut().enumerate() {
        *to = i16::from(row[reflected((row.len() + x) as isize, row.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_are_the_gaussians() {
        for (size, sigma) in [(23, 2.0), (23, 0.1), (9, 1.05), (3, 0.3), (5, 7.0), (1, 1.0)] {
            let weights = weights(size, sigma);
            let total = u32::from(weights[0]) + 2 * weights[1..].iter().map(|&w| u32::from(w)).sum::<u32>();
            assert_eq!(total, 1 << 15);
            let gaussian = |x: f64| libm::exp(-x * x / (2.0 * sigma * sigma));
            let whole: f64 = (0..size).map(|i| gaussian(f64::from(i) - f64::from(size / 2))).sum();
            for (distance, &weight) in weights.iter().enumerate() {
                let expected = gaussian(distance as f64) / whole * 32768.0;
                assert!((f64::from(weight) - expected).abs() <= 1.5, "{size} {sigma}: {distance}");
            }
        }
    }

    #[test]
    fn places_are_reflected_without_repeating_the_border() {
        assert_eq!(
            [-3, -2, -1, 0, 1, 2, 3, 4, 5].map(|place| reflected(place, 3)),
            [1, 2, 1, 0, 1, 2, 1, 0, 1]
        );
        assert_eq!([-3, 0, 5].map(|place| reflected(place, 1)), [0; 3]);
        assert_eq!([-3, 0, 5].map(|place| reflected(place, 2)), [1, 0, 1]);
    }
}
