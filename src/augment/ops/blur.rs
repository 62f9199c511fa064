//! Gaussian blur: along rows, then along columns, with integer weights and reflected borders.

use super::level::vectorised;

/// The bits of a weight: the weights of a kernel sum to 2^15.
const WEIGHT_BITS: u32 = 15;
/// The bits after the point between the passes: 255 · 2^7 fits 16 signed bits.
const FRACTION: u32 = 7;

/// The weights of torchvision's Gaussian kernel of `size` pixels, in 2^-15: that of the pixel itself, then that of both
/// its neighbours at distances 1, 2, … as far as they are not 0. One weight changes nothing.
pub(in crate::augment) fn weights(size: u32, sigma: f64) -> Vec<u16> {
    let weight =
        |distance: u32| libm::exp(-0.5 * (f64::from(distance) / sigma) * (f64::from(distance) / sigma));
    let reach = size / 2;
    let total: f64 = 1.0 + 2.0 * (1..=reach).map(weight).sum::<f64>();
    // Sums are rounded and not the weights, from the outermost on, so that the weights' errors do not add up.
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

/// The pixel that a place outside of `0..length` shows: the one as far inside of the border pixel.
pub(in crate::augment) fn reflected(place: isize, length: usize) -> usize {
    if length == 1 {
        return 0;
    }
    let period = 2 * (length - 1);
    let place = place.rem_euclid(period as isize) as usize;
    place.min(period - place)
}

/// Blurs a plane of rows of `width` levels with the [`weights`] along x and y. `rows` and `padded` are scratch.
pub(super) fn blur(
    level: crate::simd::Level,
    plane: &mut [u8],
    width: usize,
    [across, down]: [&[u16]; 2],
    rows: &mut Vec<u16>,
    padded: &mut Vec<u16>,
) {
    let reach = across.len() - 1;
    rows.resize(plane.len(), 0);
    padded.resize(width + 2 * reach, 0);
    for (from, to) in plane.chunks_exact(width).zip(rows.chunks_exact_mut(width)) {
        for (x, to) in padded[..reach].iter_mut().enumerate() {
            *to = u16::from(from[reflected(x as isize - reach as isize, width)]);
        }
        for (to, &level) in padded[reach..].iter_mut().zip(from) {
            *to = u16::from(level);
        }
        for (x, to) in padded[reach + width..].iter_mut().enumerate() {
            *to = u16::from(from[reflected((width + x) as isize, width)]);
        }
        blur_row(level, padded, across, to);
    }
    let height = plane.len() / width;
    let mut sums = vec![0; width];
    for (y, to) in plane.chunks_exact_mut(width).enumerate() {
        let row = |place: isize| &rows[reflected(place, height) * width..][..width];
        sums.fill(1 << (WEIGHT_BITS + FRACTION - 1));
        add_rows(level, row(y as isize), None, down[0], &mut sums);
        for (distance, &weight) in (1isize..).zip(&down[1..]) {
            let (above, below) = (row(y as isize - distance), row(y as isize + distance));
            add_rows(level, above, Some(below), weight, &mut sums);
        }
        store_sums(level, &sums, to);
    }
}

vectorised! {
    /// Blurs a row of levels, which is padded on both sides, and gives levels times 2^7, rounded.
    fn blur_row(padded: &[u16], weights: &[u16], to: &mut [u16]) {
        const DROPPED: u32 = WEIGHT_BITS - FRACTION;
        let reach = weights.len() - 1;
        for (x, to) in to.iter_mut().enumerate() {
            let mut sum = (1 << (DROPPED - 1)) + u32::from(weights[0]) * u32::from(padded[reach + x]);
            for (distance, &weight) in weights.iter().enumerate().skip(1) {
                let both = padded[reach + x - distance] + padded[reach + x + distance];
                sum += u32::from(weight) * u32::from(both);
            }
            *to = (sum >> DROPPED) as u16;
        }
    }
}

vectorised! {
    /// Adds a row, or two, times a weight.
    fn add_rows(first: &[u16], second: Option<&[u16]>, weight: u16, sums: &mut [u32]) {
        let weight = u32::from(weight);
        if let Some(second) = second {
            for ((sum, &first), &second) in sums.iter_mut().zip(first).zip(second) {
                *sum += (u32::from(first) + u32::from(second)) * weight;
            }
        } else {
            for (sum, &first) in sums.iter_mut().zip(first) {
                *sum += u32::from(first) * weight;
            }
        }
    }
}

vectorised! {
    /// Drops the bits after the point.
    fn store_sums(sums: &[u32], to: &mut [u8]) {
        for (&sum, to) in sums.iter().zip(to) {
            *to = (sum >> (WEIGHT_BITS + FRACTION)) as u8;
        }
    }
}
