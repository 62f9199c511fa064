//! Statistics of a whole image that operations need. All are integers, so the order of pixels does not matter.

use super::grey::luma;
use crate::level::vectorised;

pub(in crate::augment) type LevelCounts = [u32; 256];

/// Returns the mean grey of an image from the sum of its grey levels. The sum and the number of pixels are rounded to
/// float32 and divided, as torch does for images of up to 2^16 pixels.
pub(in crate::augment) fn mean(sum: u64, pixels: usize) -> f32 {
    sum as f32 / pixels as f32
}

/// The number of pixels of a block, so few that the sum of their grey levels fits 32 bits.
const BLOCK: usize = 1 << 16;

vectorised! {
    /// Returns the sum of the grey levels of an image, each of them truncated.
    pub(super) fn grey_sum(red: &[u8], green: &[u8], blue: &[u8]) -> u64 {
        let mut sum = 0;
        for ((red, green), blue) in red.chunks(BLOCK).zip(green.chunks(BLOCK)).zip(blue.chunks(BLOCK)) {
            let mut of_block = 0u32;
            for ((&red, &green), &blue) in red.iter().zip(green).zip(blue) {
                of_block += u32::from(luma(red, green, blue));
            }
            sum += u64::from(of_block);
        }
        sum
    }
}

vectorised! {
    /// Returns the least and the greatest level of a plane, which is not empty.
    pub(super) fn extremes(plane: &[u8]) -> (u8, u8) {
        let (mut least, mut greatest) = (255, 0);
        for &level in plane {
            least = least.min(level);
            greatest = greatest.max(level);
        }
        (least, greatest)
    }
}

pub(super) fn histogram(plane: &[u8]) -> LevelCounts {
    // Neighbours are often equal. With a single histogram, each increment would wait for the previous increment of the
    // same count.
    let mut counts = [[0; 256]; 4];
    let (fours, rest) = plane.as_chunks::<4>();
    for four in fours {
        for (counts, &level) in counts.iter_mut().zip(four) {
            counts[usize::from(level)] += 1;
        }
    }
    for &level in rest {
        counts[0][usize::from(level)] += 1;
    }
    std::array::from_fn(|level| counts.iter().map(|counts| counts[level]).sum())
}
