//! Transposes planes in strips: 64 columns, a cache line of each row, become 64 rows.

use super::planes::ensure_length;
use super::{ColorModel, Plane, Planes};
use base::simd::Level;

/// The number of columns that are transposed together.
pub(crate) const STRIP: usize = 64;

/// The number of rows that are transposed together.
const BLOCK: usize = 16;

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
        (self.height as usize).div_ceil(64) * 64 | 64
    }

    /// Writes [`STRIP`] stored columns from `column` on to the rows of `to`, which are [`Plane::transposed_stride`]
    /// bytes apart. Rows of columns after the last one get any bytes. `level` must be supported by this processor.
    pub(crate) fn transpose_strip(&self, level: Level, column: usize, to: &mut [u8]) {
        let (last, stride) = (self.height as usize - 1, self.transposed_stride());
        for row in (0..=last).step_by(BLOCK) {
            let line = |n: usize| self.data[(row + n).min(last) * self.stride + column..].first_chunk();
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, STRIP};
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Defines a transposition by vectors of several blocks of 16×16 bytes. In each block, lines n and n + 8 are
    /// interleaved to lines 2n and 2n + 1; four such steps transpose it.
    macro_rules! transposition {
        ($name:ident, $features:literal, $blocks:literal, $zero:ident, $low:ident, $high:ident) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(lines: [&[u8; STRIP]; BLOCK], stride: usize, to: &mut [u8]) {
                for first in (0..STRIP).step_by($blocks * BLOCK) {
                    let mut vectors = [$zero(); BLOCK];
                    for (vector, line) in vectors.iter_mut().zip(lines) {
                        if let Some(bytes) = line[first..].first_chunk::<{ $blocks * BLOCK }>() {
                            // SAFETY: a vector has as many bytes, and any bits are one.
                            *vector = unsafe { transmute(*bytes) };
                        }
                    }
                    for _ in 0..4 {
                        let from = vectors;
                        for n in 0..BLOCK / 2 {
                            vectors[2 * n] = $low(from[n], from[n + BLOCK / 2]);
                            vectors[2 * n + 1] = $high(from[n], from[n + BLOCK / 2]);
                        }
                    }
                    for (n, vector) in vectors.into_iter().enumerate() {
                        // SAFETY: the arrays have as many bytes as the vector.
                        let blocks: [[u8; BLOCK]; $blocks] = unsafe { transmute(vector) };
                        for (block, bytes) in blocks.iter().enumerate() {
                            to[(first + block * BLOCK + n) * stride..][..BLOCK].copy_from_slice(bytes);
                        }
                    }
                }
            }
        };
    }

    transposition!(avx2, "avx2", 2, _mm256_setzero_si256, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8);
    transposition!(
        avx512,
        "avx512f,avx512bw",
        4,
        _mm512_setzero_si512,
        _mm512_unpacklo_epi8,
        _mm512_unpackhi_epi8
    );
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
