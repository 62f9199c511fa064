//! Sharpness, as torchvision has it: a blend of an image with what a small filter makes of it.

use super::arithmetic::{fma, truncate};
use crate::augment::level::vectorised;

vectorised! {
    /// Makes `to` of the plane `from`, both of rows of `width` levels: x + (smooth - x) · `of_smooth`, where that is
    /// the 32-bit float of 1 minus the sharpness factor, and `smooth` is the mean of the pixel five times and each of
    /// its eight neighbours once, rounded. The pixels at the border keep their levels. `sums` is scratch.
    pub(super) fn sharpen(from: &[u8], to: &mut [u8], width: usize, of_smooth: f32, sums: &mut Vec<u16>) {
        let height = from.len() / width;
        to.copy_from_slice(from);
        if width <= 2 || height <= 2 {
            return;
        }
        sums.resize(width, 0);
        let inner = width - 2;
        for row in 1..height - 1 {
            let [above, here, below] = [row - 1, row, row + 1].map(|row| &from[row * width..][..width]);
            let sums = &mut sums[..width];
            for (((sum, &above), &here), &below) in sums.iter_mut().zip(above).zip(here).zip(below) {
                *sum = u16::from(above) + u16::from(here) + u16::from(below);
            }
            let (left, middle, right) = (&sums[..inner], &sums[1..][..inner], &sums[2..][..inner]);
            let centre = &here[1..][..inner];
            let to = &mut to[row * width + 1..][..inner];
            for x in 0..inner {
                let level = u16::from(centre[x]);
                // Thirteenths are never halves.
                let smooth = (left[x] + middle[x] + right[x] + 4 * level + 6) / 13;
                let difference = f32::from(smooth as i16 - level as i16);
                to[x] = truncate(fma(difference, of_smooth, f32::from(level)));
            }
        }
    }
}
