//! Orientations: how the stored pixels of an image are mirrored and transposed so that the image is upright.

use super::planes::ensure_length;
use super::{ColorModel, Plane, Planes, Region};

/// The bytes after the last sample of a plane that readers may load.
const SLACK: usize = 64;

/// The side of the blocks that are transposed in registers.
const BLOCK: usize = 16;

/// For each EXIF orientation from 1 on: whether columns are mirrored (1), rows are mirrored (2), and whether both axes
/// were exchanged before (4).
const OF_EXIF: [u8; 8] = [0, 1, 3, 2, 4, 5, 7, 6];

/// How an image is shown, compared with how it is stored: the stored image is first transposed (rows become columns) or
/// not, and then its columns and its rows are mirrored or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn(u8);

impl Turn {
    /// Images that are shown as they are stored.
    pub const UPRIGHT: Self = Self(0);

    /// Returns what an EXIF orientation means. Anything but 2 to 8 means upright.
    pub fn of_exif(orientation: Option<u8>) -> Self {
        Self(
            orientation
                .and_then(|from_1| OF_EXIF.get(usize::from(from_1).wrapping_sub(1)).copied())
                .unwrap_or(0),
        )
    }

    /// Returns the EXIF orientation, 1 to 8.
    pub fn exif(self) -> u8 {
        OF_EXIF.iter().position(|&turn| turn == self.0).map_or(1, |at| at as u8 + 1)
    }

    /// Returns whether rows become columns.
    pub fn transposes(self) -> bool {
        self.0 & 4 != 0
    }

    /// Returns whether columns are mirrored (left and right), and whether rows are. Both are counted in the image as it
    /// is shown.
    pub fn mirrors(self) -> [bool; 2] {
        [self.0 & 1 != 0, self.0 & 2 != 0]
    }

    /// Returns the width and height of the shown image.
    pub fn shown(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transposes() { (height, width) } else { (width, height) }
    }

    /// Returns the part of the stored image that becomes `region` of the shown image of `size` (width, height).
    pub fn stored_region(self, region: Region, (width, height): (u32, u32)) -> Region {
        let [across, down] = self.mirrors();
        let start = |mirror, start, length, full: u32| if mirror { full - start - length } else { start };
        let x = start(across, region.x, region.width, width);
        let y = start(down, region.y, region.height, height);
        self.transposed_region(Region { x, y, ..region })
    }

    /// Exchanges the axes of a region if this turn exchanges those of the image.
    pub(crate) fn transposed_region(self, Region { x, y, width, height }: Region) -> Region {
        match self.transposes() {
            true => Region { x: y, y: x, width: height, height: width },
            false => Region { x, y, width, height },
        }
    }
}

impl Planes {
    /// Writes these planes to `to`, with rows as columns. Components keep their subsampling.
    pub(crate) fn transpose_to(&self, to: &mut Self) {
        (to.image_width, to.image_height, to.color) = (self.image_height, self.image_width, self.color);
        let count = if self.color == ColorModel::Gray { 1 } else { 3 };
        for (to, plane) in to.planes.iter_mut().zip(&self.planes).take(count) {
            to.fill_with_transposed(plane);
        }
    }
}

impl Plane {
    fn fill_with_transposed(&mut self, from: &Self) {
        (self.x0, self.y0) = (from.y0, from.x0);
        (self.width, self.height) = (from.height, from.width);
        (self.full_width, self.full_height) = (from.full_height, from.full_width);
        (self.step_x, self.step_y) = (from.step_y, from.step_x);
        // Rows are whole cache lines, of an odd number, so that the rows of a block are in different sets of a cache.
        self.stride = (self.width as usize).div_ceil(64) * 64 | 64;
        let rows = (self.height as usize).next_multiple_of(BLOCK);
        ensure_length(&mut self.data, self.stride * rows + SLACK);
        let (columns, last_row) = (from.width as usize, from.height as usize - 1);
        // The samples of 64 stored rows become whole lines. Blocks at the edges also take bytes that are no samples.
        for strip in (0..=last_row).step_by(64) {
            for column in (0..columns).step_by(BLOCK) {
                for row in (strip..=last_row.min(strip + 63)).step_by(BLOCK) {
                    let at = |n: usize| (row + n).min(last_row) * from.stride + column;
                    let block = std::array::from_fn(|n| {
                        from.data[at(n)..].first_chunk().copied().unwrap_or_default()
                    });
                    for (n, line) in transposed(block).into_iter().enumerate() {
                        self.data[(column + n) * self.stride + row..][..BLOCK].copy_from_slice(&line);
                    }
                }
            }
        }
    }
}

type Lines = [[u8; BLOCK]; BLOCK];

/// Transposes a block: four times, lines n and n + 8 are interleaved to lines 2n and 2n + 1.
#[cfg(target_arch = "x86_64")]
#[inline]
fn transposed(lines: Lines) -> Lines {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { transposed_by_sse2(lines) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn transposed_by_sse2(lines: Lines) -> Lines {
    use std::arch::x86_64::{
        _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi8, _mm_unpackhi_epi64, _mm_unpacklo_epi8,
    };
    let mut vectors = lines.map(|line| {
        let whole = u128::from_le_bytes(line);
        _mm_set_epi64x((whole >> 64) as i64, whole as i64)
    });
    for _ in 0..4 {
        let from = vectors;
        vectors = std::array::from_fn(|n| match n % 2 {
            0 => _mm_unpacklo_epi8(from[n / 2], from[n / 2 + BLOCK / 2]),
            _ => _mm_unpackhi_epi8(from[n / 2], from[n / 2 + BLOCK / 2]),
        });
    }
    vectors.map(|vector| {
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(vector, vector)) as u64;
        (u128::from(high) << 64 | u128::from(_mm_cvtsi128_si64(vector) as u64)).to_le_bytes()
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn transposed(lines: Lines) -> Lines {
    std::array::from_fn(|x| std::array::from_fn(|y| lines[y][x]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_those_of_exif() {
        // The corners of a stored image of 3×2 pixels, as the standard says where they are shown: the first row of
        // orientation 6 is the visual right side, and its first column the visual top.
        let shown = |orientation| {
            let turn = Turn::of_exif(Some(orientation));
            assert_eq!(turn.exif(), orientation);
            let (width, height) = turn.shown((3, 2));
            let pixel = |x, y| {
                let Region { x, y, .. } =
                    turn.stored_region(Region { x, y, width: 1, height: 1 }, (width, height));
                y * 3 + x
            };
            (0..height).flat_map(|y| (0..width).map(move |x| pixel(x, y))).collect::<Vec<_>>()
        };
        assert_eq!(shown(1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(shown(2), [2, 1, 0, 5, 4, 3]);
        assert_eq!(shown(3), [5, 4, 3, 2, 1, 0]);
        assert_eq!(shown(4), [3, 4, 5, 0, 1, 2]);
        assert_eq!(shown(5), [0, 3, 1, 4, 2, 5]);
        assert_eq!(shown(6), [3, 0, 4, 1, 5, 2]);
        assert_eq!(shown(7), [5, 2, 4, 1, 3, 0]);
        assert_eq!(shown(8), [2, 5, 1, 4, 0, 3]);
        for none in [None, Some(0), Some(1), Some(9)] {
            assert_eq!(Turn::of_exif(none), Turn::UPRIGHT);
        }
    }

    #[test]
    fn transposed_planes_have_every_sample() {
        for (width, height) in [(1, 1), (16, 16), (15, 17), (130, 67), (64, 200), (3, 65)] {
            let stride = width as usize + 5;
            let data = (0..stride * height as usize + SLACK).map(|at| (at * 7 + at / 256) as u8).collect();
            let (x0, y0, step_x, step_y) = (3, 8, 2, 1);
            let (full_width, full_height) = (width + 4, height + 9);
            let plane =
                Plane { data, stride, x0, y0, width, height, full_width, full_height, step_x, step_y };
            let mut turned = Plane::default();
            turned.fill_with_transposed(&plane);
            assert_eq!((turned.x0, turned.y0, turned.width, turned.height), (y0, x0, height, width));
            assert_eq!((turned.full_width, turned.step_x, turned.step_y), (full_height, step_y, step_x));
            for (x, y) in (0..width as usize).flat_map(|x| (0..height as usize).map(move |y| (x, y))) {
                assert_eq!(
                    turned.data[x * turned.stride + y],
                    plane.data[y * stride + x],
                    "{width}×{height}"
                );
            }
        }
    }
}
