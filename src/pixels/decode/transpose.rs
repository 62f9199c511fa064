//! Transposes planes in strips: 64 columns, a cache line of each row, become 64 rows.

use super::planes::ensure_length;
use super::{ColorModel, Plane, Planes};
use base::simd::Level;

/// The number of columns that are transposed together.
pub(crate) const STRIP: usize = 64;

/// The number of rows that are transposed together.
const BLOCK: usize = 16;

/// The number of rows from the rows that are transposed to those that are fetched into the caches.
const AHEAD: usize = 64;

/// The bytes after the last sample of a plane that readers may load.
const SLACK: usize = 64;

impl Planes {
    /// Writes these planes to `to`, with rows as columns. Components keep their subsampling. `level` must be supported
    /// by this processor.
    pub(crate) fn transpose_to(&self, level: Level, to: &mut Self) {
        (to.image_width, to.image_height, to.color) = (self.image_height, self.image_width, self.color);
        let count = if self.color == ColorModel::Gray { 1 } else { 3 };
        for (to, from) in to.planes.iter_mut().zip(&self.planes).take(count) {
            (to.x0, to.y0, to.width, to.height) = (from.y0, from.x0, from.height, from.width);
            (to.full_width, to.full_height) = (from.full_height, from.full_width);
            (to.step_x, to.step_y) = (from.step_y, from.step_x);
            to.stride = from.transposed_stride();
            let strips = (from.width as usize).div_ceil(STRIP);
            ensure_length(&mut to.data, strips * STRIP * to.stride + SLACK);
            for strip in 0..strips {
                from.transpose_strip(level, strip * STRIP, &mut to.data[strip * STRIP * to.stride..]);
            }
        }
    }
}

impl Plane {
    /// Returns the bytes of a row that has the samples of a column. They are whole cache lines, of an odd number, so
    /// that neighbouring rows are in different sets of a cache.
    pub(crate) fn transposed_stride(&self) -> usize {
        self.height.next_multiple_of(64) as usize | 64
    }

    /// Writes [`STRIP`] stored columns from `column` on to the rows of `to`, which are [`Plane::transposed_stride`]
    /// bytes apart. Rows of columns after the last one get any bytes. `level` must be supported by this processor.
    pub(crate) fn transpose_strip(&self, level: Level, column: usize, to: &mut [u8]) {
        let (last, stride) = (self.height as usize - 1, self.transposed_stride());
        let from = |row: usize, column: usize| &self.data[row.min(last) * self.stride + column..];
        for row in (0..=last).step_by(BLOCK) {
            // Processors do not fetch ahead from row to row.
            (0..BLOCK).for_each(|n| prefetch(from(row + AHEAD + n, column + STRIP - 1)));
            let line = |n: usize| from(row + n, column).first_chunk();
            let lines = std::array::from_fn(|n| line(n).unwrap_or(&[0; STRIP]));
            transpose(level, lines, stride, &mut to[row..]);
        }
    }
}

fn transpose(level: Level, lines: [&[u8; STRIP]; BLOCK], stride: usize, to: &mut [u8]) {
    match level {
        // SAFETY: `Augmenter::new` and `CanvasPainter::new` lower the level to one that this processor supports.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::avx512(lines, stride, to) },
        // SAFETY: the level was lowered to one that this processor supports, as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::avx2(lines, stride, to) },
        _ => {
            for x in 0..STRIP {
                let row = &mut to[x * stride..][..BLOCK];
                row.iter_mut().zip(&lines).for_each(|(to, line)| *to = line[x]);
            }
        }
    }
}

/// Fetches the cache line of the first byte.
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes no memory, and every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(bytes.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, STRIP};
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Interleaves lines n and n + 8 to lines 2n and 2n + 1. Without loops, all lines stay in registers.
    macro_rules! interleaved {
        ($low:ident, $high:ident, $v:ident) => {
            interleaved!($low, $high, $v: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15)
        };
        ($low:ident, $high:ident, $v:ident: $($a:literal $b:literal),*) => {
            [$($low($v[$a], $v[$b]), $high($v[$a], $v[$b])),*]
        };
    }

    /// Defines a transposition by vectors of several blocks of 16×16 bytes. Four interleaving steps transpose a block.
    macro_rules! transposition {
        ($name:ident, $features:literal, $blocks:literal, $vector:ty, $low:ident, $high:ident) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(lines: [&[u8; STRIP]; BLOCK], stride: usize, to: &mut [u8]) {
                const BYTES: usize = $blocks * BLOCK;
                for first in (0..STRIP).step_by(BYTES) {
                    let load = |n: usize| -> $vector {
                        let bytes: &[u8; BYTES] = lines[n][first..].first_chunk().unwrap_or(&[0; BYTES]);
                        // SAFETY: a vector has as many bytes, and any bits are one.
                        unsafe { transmute(*bytes) }
                    };
                    let v = [
                        load(0),
                        load(1),
                        load(2),
                        load(3),
                        load(4),
                        load(5),
                        load(6),
                        load(7),
                        load(8),
                        load(9),
                        load(10),
                        load(11),
                        load(12),
                        load(13),
                        load(14),
                        load(15),
                    ];
                    let v = interleaved!($low, $high, v);
                    let v = interleaved!($low, $high, v);
                    let v = interleaved!($low, $high, v);
                    let v: [$vector; BLOCK] = interleaved!($low, $high, v);
                    for (n, vector) in v.iter().enumerate() {
                        // SAFETY: the arrays have as many bytes as the vector.
                        let blocks: [[u8; BLOCK]; $blocks] = unsafe { transmute(*vector) };
                        for (block, bytes) in blocks.iter().enumerate() {
                            to[(first + block * BLOCK + n) * stride..][..BLOCK].copy_from_slice(bytes);
                        }
                    }
                }
            }
        };
    }

    transposition!(avx2, "avx2", 2, __m256i, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8);
    transposition!(avx512, "avx512f,avx512bw", 4, __m512i, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_planes_have_every_sample() {
        for (width, height) in [(1, 1), (16, 16), (15, 17), (130, 67), (64, 200), (3, 65), (257, 128)] {
            let stride = width as usize + 5;
            let data = (0..stride * height as usize + SLACK).map(|at| (at * 7 + at / 256) as u8).collect();
            let (x0, y0, step_x, step_y) = (3, 8, 2, 1);
            let (full_width, full_height) = (width + 4, height + 9);
            let plane =
                Plane { data, stride, x0, y0, width, height, full_width, full_height, step_x, step_y };
            let mut image = Planes { color: ColorModel::Gray, ..Planes::default() };
            image.planes[0] = plane.clone();
            for level in Level::available() {
                let mut turned = Planes::default();
                image.transpose_to(level, &mut turned);
                let turned = &turned.planes[0];
                assert_eq!((turned.x0, turned.y0, turned.width, turned.height), (y0, x0, height, width));
                assert_eq!((turned.full_width, turned.step_x, turned.step_y), (full_height, step_y, step_x));
                for (x, y) in (0..width as usize).flat_map(|x| (0..height as usize).map(move |y| (x, y))) {
                    let (got, expected) = (turned.data[x * turned.stride + y], plane.data[y * stride + x]);
                    assert_eq!(got, expected, "{width}×{height} {}", level.name());
                }
            }
        }
    }
}
