//! Sharpness, as torchvision computes it: a blend of an image and a smoothed copy.

use super::arithmetic::{fma, truncate};
use crate::level::vectorised;

/// The number of pixels that are smoothed before they are blended: few enough to stay in the L1 cache.
const RUN: usize = 1024;

vectorised! {
    /// Sharpens the plane `from` and writes the result to `to`, both with rows of `width` levels. A level x becomes x +
    /// (smooth - x) · `of_smooth`. `smooth` is the weighted mean, rounded, of the pixel (weight 5) and its eight
    /// neighbours (weight 1 each). `of_smooth` is 1 minus the sharpness factor in float32. The pixels at the border
    /// keep their levels.
    pub(super) fn sharpen(from: &[u8], to: &mut [u8], width: usize, of_smooth: f32) {
        let height = from.len() / width;
        if width <= 2 || height <= 2 {
            to.copy_from_slice(from);
            return;
        }
        // All pixels from the first inner pixel to the last are computed in one long run, as if each row continued in
        // the next row. The border pixels in this run are restored afterwards.
        let first = width + 1;
        let last = from.len() - first;
        let mut sums = [0; RUN + 2];
        for (run, to) in to[first..last].chunks_mut(RUN).enumerate() {
            let row = |row: usize| &from[run * RUN + row * width..][..to.len() + 2];
            let (above, here, below) = (row(0), row(1), row(2));
            for (((sum, &above), &here), &below) in sums.iter_mut().zip(above).zip(here).zip(below) {
                *sum = u16::from(above) + u16::from(here) + u16::from(below);
            }
            let here = &here[1..][..to.len()];
            let (left, middle, right) = (&sums[..to.len()], &sums[1..][..to.len()], &sums[2..][..to.len()]);
            for x in 0..to.len() {
                // The fraction of a sum divided by 13 is never exactly one half, so adding 6 rounds to nearest. The
                // result is a mean of levels, so it fits a byte.
                to[x] = ((left[x] + middle[x] + right[x] + 4 * u16::from(here[x]) + 6) / 13) as u8;
            }
            for (to, &level) in to.iter_mut().zip(here) {
                let (smooth, level) = (f32::from(*to), f32::from(level));
                *to = truncate(fma(smooth - level, of_smooth, level));
            }
        }
        to[..first].copy_from_slice(&from[..first]);
        to[last..].copy_from_slice(&from[last..]);
        for (to, from) in to.chunks_exact_mut(width).zip(from.chunks_exact(width)) {
            (to[0], to[width - 1]) = (from[0], from[width - 1]);
        }
    }
}
