//! Sharpness, as torchvision has it: a blend of an image with what a small filter makes of it.

use super::arithmetic::{fma, truncate};
use crate::augment::level::vectorised;

vectorised! {
    /// Makes `to` of the plane `from`, both of rows of `width` levels: x + (smooth - x) · `of_smooth`, where that is
    /// the 32-bit float of 1 minus the sharpness factor, and `smooth` is the mean of the pixel five times and each of
    /// its eight neighbours once, rounded. The pixels at the border keep their levels. `sums` is scratch.
    pub(super) fn sharpen(from: &[u8], to: &mut [u8], width: usize, of_smooth: f32, sums: &mut Vec<u16>) {
        let height = from.len() / width;
        if width <= 2 || height <= 2 {
            to.copy_from_slice(from);
            return;
        }
        // With a sum on either side, which is of nothing, all pixels of a row are computed, a whole number of vectors of
        // most images. Those at the border are put back.
        sums.resize(width + 2, 0);
        let sums = &mut sums[..width + 2];
        for (row, to) in to.chunks_exact_mut(width).enumerate() {
            let here = &from[row * width..][..width];
            if row == 0 || row == height - 1 {
                to.copy_from_slice(here);
                continue;
            }
            let [above, below] = [row - 1, row + 1].map(|row| &from[row * width..][..width]);
            for (((sum, &above), &here), &below) in sums[1..].iter_mut().zip(above).zip(here).zip(below) {
                *sum = u16::from(above) + u16::from(here) + u16::from(below);
            }
            let (left, middle, right) = (&sums[..width], &sums[1..][..width], &sums[2..][..width]);
            for x in 0..width {
                // Thirteenths are never halves. A mean of levels fits a level.
                to[x] = ((left[x] + middle[x] + right[x] + 4 * u16::from(here[x]) + 6) / 13) as u8;
            }
            for (to, &level) in to.iter_mut().zip(here) {
                let (smooth, level) = (f32::from(*to), f32::from(level));
                *to = truncate(fma(smooth - level, of_smooth, level));
            }
            (to[0], to[width - 1]) = (here[0], here[width - 1]);
        }
    }
}
