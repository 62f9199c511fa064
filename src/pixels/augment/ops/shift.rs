//! Warps that move each row along itself: translations, and shears along x. All pixels of a row are mixed with the same
//! weights, so rows are read sequentially.

use super::arithmetic::{clamp_to, floor, rounded};
use super::shear::copy_row;
use crate::level::vectorised;
use base::simd::Level;

/// How far each row moves: pixel (column, row) shows the image at (column + (y · `per_row` + `along`), row + `down`).
/// Here y is the row counted from the image's centre.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::augment) struct RowShift {
    pub(in crate::augment) along: f32,
    pub(in crate::augment) per_row: f32,
    pub(in crate::augment) down: i32,
}

impl RowShift {
    /// Returns the row shift that `matrix` describes, or `None` if the matrix does more. The matrix maps pixels of the
    /// result to pixels of the image, both counted from the image's centre. With nearest sampling, only translations by
    /// whole pixels are row shifts: with other offsets, rounding exactly one half up or down would move a whole row.
    pub(super) fn of(matrix: [[f64; 3]; 2], is_nearest: bool) -> Option<Self> {
        let [[1.0, per_row, along], [0.0, 1.0, down]] = matrix else { return None };
        let [per_row, along, down] = [per_row, along, down].map(|value| value as f32);
        let is_whole = |value: f32| value.abs() < 1e6 && value as i32 as f32 == value;
        let suits = is_whole(down) && (!is_nearest || per_row == 0.0 && is_whole(along));
        suits.then_some(Self { along, per_row, down: down as i32 })
    }

    /// Each output pixel of this row is mixed from two neighbouring pixels of the image. Returns the distance to the
    /// right from the output pixel to the left neighbour, and the weight of the right neighbour.
    #[inline(always)]
    fn offset(&self, row: usize, (width, height): (usize, usize)) -> (isize, f32) {
        let from_centre = row as f32 - (height as f32 - 1.0) * 0.5;
        // A row that moves by `most` shows nothing of the image, so larger offsets are clamped.
        let most = width as f32 + 1.0;
        let offset = clamp_to(from_centre * self.per_row + self.along, -most, most);
        let whole = floor(offset);
        (whole as isize, offset - whole as f32)
    }
}

pub(super) fn shift(
    level: Level,
    shift: RowShift,
    fill: Option<[f32; 3]>,
    (width, height): (usize, usize),
    from: &[u8],
    to: &mut [u8],
) {
    for c in 0..3 {
        let fill = fill.map(|fill| fill[c]);
        let outside_level = fill.map_or(0, rounded);
        let plane = &from[c * width * height..][..width * height];
        for (row, to) in to[c * width * height..][..width * height].chunks_exact_mut(width).enumerate() {
            let shown = usize::try_from(row as i64 + i64::from(shift.down)).ok().filter(|&row| row < height);
            let Some(shown) = shown else {
                to.fill(outside_level);
                continue;
            };
            let from = &plane[shown * width..][..width];
            let (offset, share) = shift.offset(row, (width, height));
            if share == 0.0 {
                copy_row(from, offset, outside_level, to);
                continue;
            }
            // Columns `first..last` of the result are mixed from two pixels of the image. The columns next to this
            // range are mixed from one pixel of the image and one pixel outside.
            let first = (-offset).clamp(0, width as isize) as usize;
            let last = (width as isize - 1 - offset).clamp(first as isize, width as isize) as usize;
            to[..first].fill(outside_level);
            to[last..].fill(outside_level);
            if first < last {
                let start = (first as isize + offset) as usize;
                let (from, to) = (&from[start..][..last - first + 1], &mut to[first..last]);
                mix(level, from, share, fill, to);
            }
            let at = |column: isize| usize::try_from(column).ok().filter(|&column| column < width);
            if let Some(before) = at(-1 - offset) {
                to[before] = mix_with_outside(0.0, f32::from(from[0]), share, share, fill);
            }
            if let Some(after) = at(width as isize - 1 - offset) {
                to[after] = mix_with_outside(f32::from(from[width - 1]), 0.0, share, 1.0 - share, fill);
            }
        }
    }
}

vectorised! {
    /// Mixes each level with the level after it.
    fn mix(from: &[u8], share: f32, fill: Option<f32>, to: &mut [u8]) {
        let count = to.len();
        let (left, right) = (&from[..count], &from[1..][..count]);
        if let Some(fill) = fill {
            for ((&left, &right), to) in left.iter().zip(right).zip(to) {
                *to = rounded((mixed(f32::from(left), f32::from(right), share) - fill) + fill);
            }
        } else {
            for ((&left, &right), to) in left.iter().zip(right).zip(to) {
                *to = rounded(mixed(f32::from(left), f32::from(right), share));
            }
        }
    }
}

/// Mixes a level of the image with the level 0 outside. With a fill, the result is (value - fill) · inside + fill.
/// `inside` is the weight of the level of the image.
fn mix_with_outside(left: f32, right: f32, share: f32, inside: f32, fill: Option<f32>) -> u8 {
    let value = mixed(left, right, share);
    rounded(fill.map_or(value, |fill| (value - fill) * inside + fill))
}

#[inline(always)]
fn mixed(left: f32, right: f32, share: f32) -> f32 {
    left + (right - left) * share
}
