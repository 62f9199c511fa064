//! Sharpness, as torchvision has it: a blend of an image with what a small filter makes of it.

use super::arithmetic::{fma, truncate};
use super::level::vectorised;

vectorised! {
    /// Makes `to` of the plane `from`, both of rows of `width` levels: x + (smooth - x) · `of_smooth`, where that is the
    /// 32-bit float of 1 minus the sharpness factor, and `smooth` is the mean of the pixel five times and each of its
    /// eight neighbours once, rounded. The pixels at the border keep their levels.
    pub(super) fn sharpen(from: &[u8], to: &mut [u8], width: usize, of_smooth: f32) {
        let height = from.len() / width;
        to.copy_from_slice(from);
        if width <= 2 || height <= 2 {
            return;
        }
        let inner = width - 2;
        for row in 1..height - 1 {
            let above = &from[(row - 1) * width..][..width];
            let middle = &from[row * width..][..width];
            let below = &from[(row + 1) * width..][..width];
            let to = &mut to[row * width + 1..][..inner];
            for x in 0..inner {
                let column = |x: usize| u16::from(above[x]) + u16::from(middle[x]) + u16::from(below[x]);
                let centre = u16::from(middle[x + 1]);
                let sum = column(x) + column(x + 1) + column(x + 2) + 4 * centre;
                // Thirteenths are never halves.
                let smooth = (sum + 6) / 13;
                let difference = f32::from(smooth) - f32::from(centre);
                to[x] = truncate(fma(difference, of_smooth, f32::from(centre)));
            }
        }
    }
}
