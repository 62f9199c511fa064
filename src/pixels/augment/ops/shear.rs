//! Shears with nearest pixels. Each line of the result shows a line of the image, moved along itself by an integer
//! number of pixels. Rows are copied. Columns are moved a strip at a time, by 1, 2, 4 and so on rows.

use super::arithmetic::{clamp_to, nearest, rounded};
use super::warp::Warp;
use crate::level::vectorised;
use base::simd::Level;
use std::ops::Range;

/// Whether a shear moves rows or columns. Each row or column moves along its own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::augment) enum Shear {
    Rows,
    Columns,
}

impl Shear {
    /// Returns the shear that `matrix` describes, or `None` if the matrix does more than a shear. The matrix maps
    /// pixels of the result to pixels of the image.
    pub(super) fn of(matrix: [[f64; 3]; 2]) -> Option<Self> {
        match matrix {
            [[1.0, _, _], [0.0, 1.0, _]] => Some(Self::Rows),
            [[1.0, 0.0, 0.0], [_, 1.0, _]] => Some(Self::Columns),
            _ => None,
        }
    }
}

impl Warp {
    /// Returns the offset, in pixels along `axis`, from each pixel of a line to the image pixel that it shows. The line
    /// is at distance `line` from the image's centre and has `length` pixels. Returns `None` if pixels of the line have
    /// different offsets, or if rounding may give them different offsets.
    fn offset_of_line(&self, axis: usize, line: f32, length: usize) -> Option<isize> {
        let factors = self.matrix[axis].map(f64::from);
        let (along, across) = (factors[axis], f64::from(line) * factors[1 - axis]);
        let (half, moved) = (length as f64 * 0.5, factors[2]);
        let offset = |pixel: f64| ((pixel + 0.5 - half) * along + across + moved + 1.0) * half - 0.5 - pixel;
        // [`Warp::place`] rounds five results in units of half the length and one in pixels. None of these results is
        // above `largest`. Then it rounds one more result, which may be larger by half a pixel. Each error is at most
        // 2^-24 of its result.
        let largest = (half * along.abs() + across.abs() + moved.abs() + 1.0) * half;
        let error = 8.0 * largest / f64::from(1 << 24);
        // Without rounding, the offset changes linearly from the first pixel to the last.
        let (first, last) = (offset(0.0), offset(length as f64 - 1.0));
        let whole = f64::from(nearest(clamp_to(first as f32, -MAX_OFFSET, MAX_OFFSET)));
        let is_nearest = |offset: f64| (offset - whole).abs() + error < 0.5;
        (is_nearest(first) && is_nearest(last)).then_some(whole as isize)
    }

    /// Returns the index, along an axis of `length` pixels, of the image pixel that an output pixel shows. `column` and
    /// `row` are the output pixel's distances from the centre. Returns `None` if the image pixel would be outside of
    /// the image.
    fn nearest_along(&self, axis: usize, column: f32, row: f32, length: usize) -> Option<usize> {
        let place = Self::place(self.matrix[axis], column, row, length as f32);
        let pixel = nearest(clamp_to(place, -1.0, length as f32));
        usize::try_from(pixel).ok().filter(|&pixel| pixel < length)
    }
}

/// The limit of offsets: more pixels than any image has along a side.
const MAX_OFFSET: f32 = (1 << 21) as f32;

fn from_centre(pixel: usize, length: usize) -> f32 {
    pixel as f32 - (length as f32 - 1.0) * 0.5
}

/// Shears three planes of `width` × `height` levels from `from` to `to`; `strip` is scratch.
pub(super) fn shear(
    level: Level,
    warp: &Warp,
    shear: Shear,
    size: (usize, usize),
    from: &[u8],
    to: &mut [u8],
    strip: &mut Vec<[u8; STRIP]>,
) {
    let outside_level = warp.fill.map_or([0; 3], |fill| fill.map(rounded));
    match shear {
        Shear::Rows => move_rows(warp, size, outside_level, from, to),
        Shear::Columns => move_columns(level, warp, size, outside_level, from, to, strip),
    }
}

fn move_rows(
    warp: &Warp,
    (width, height): (usize, usize),
    outside_level: [u8; 3],
    from: &[u8],
    to: &mut [u8],
) {
    for row in 0..height {
        let line = from_centre(row, height);
        let shown = warp.nearest_along(1, 0.0, line, height);
        let offset = warp.offset_of_line(0, line, width);
        for (c, &outside_level) in outside_level.iter().enumerate() {
            let to = &mut to[(c * height + row) * width..][..width];
            let Some(shown) = shown else {
                to.fill(outside_level);
                continue;
            };
            let from = &from[(c * height + shown) * width..][..width];
            match offset {
                Some(offset) => copy_row(from, offset, outside_level, to),
                None => {
                    for (column, to) in to.iter_mut().enumerate() {
                        let pixel = warp.nearest_along(0, from_centre(column, width), line, width);
                        *to = pixel.map_or(outside_level, |pixel| from[pixel]);
                    }
                }
            }
        }
    }
}

/// Copies a row: level x of `to` is level x + `offset` of `from`. Levels without a source become `outside_level`.
pub(super) fn copy_row(from: &[u8], offset: isize, outside_level: u8, to: &mut [u8]) {
    let width = from.len() as isize;
    let first = (-offset).clamp(0, width) as usize;
    let last = (width - offset).clamp(first as isize, width) as usize;
    // Calling `fill` takes as long as the copy, even if there is nothing to fill.
    if first > 0 {
        to[..first].fill(outside_level);
    }
    if last < to.len() {
        to[last..].fill(outside_level);
    }
    if first < last {
        to[first..last].copy_from_slice(&from[(first as isize + offset) as usize..][..last - first]);
    }
}

/// The number of columns that are moved together.
pub(super) const STRIP: usize = 64;

fn move_columns(
    level: Level,
    warp: &Warp,
    (width, height): (usize, usize),
    outside_level: [u8; 3],
    from: &[u8],
    to: &mut [u8],
    strip: &mut Vec<[u8; STRIP]>,
) {
    let pixels = width * height;
    for first in (0..width).step_by(STRIP) {
        // Whole strips are copied faster, so the last strip overlaps the one before it.
        let first = first.min(width.saturating_sub(STRIP));
        let columns = first..width.min(first + STRIP);
        let offsets =
            columns.clone().map(|column| warp.offset_of_line(1, from_centre(column, width), height));
        let moves = StripOffsets::new(offsets, height);
        for (c, &outside_level) in outside_level.iter().enumerate() {
            let (from, to) = (&from[c * pixels..][..pixels], &mut to[c * pixels..][..pixels]);
            strip.resize(height + moves.reach(), [outside_level; STRIP]);
            load_strip(from, width, columns.clone(), moves.least, outside_level, strip);
            moves.apply(level, strip);
            store_strip(strip, to, width, columns.clone());
            for column in columns.clone().filter(|column| moves.needs_lookup[column - first]) {
                let line = from_centre(column, width);
                for row in 0..height {
                    let shown = warp.nearest_along(1, line, from_centre(row, height), height);
                    to[row * width + column] =
                        shown.map_or(outside_level, |shown| from[shown * width + column]);
                }
            }
        }
    }
}

/// How far the columns of a strip move.
struct StripOffsets {
    least: isize,
    /// A mask for each of the distances 1, 2, 4 and so on: 255 for each column that moves by this distance, in addition
    /// to the smallest offset.
    masks: Vec<[u8; STRIP]>,
    /// Whether the pixels of a column must be looked up one by one.
    needs_lookup: [bool; STRIP],
}

impl StripOffsets {
    fn new(offsets: impl Iterator<Item = Option<isize>>, height: usize) -> Self {
        let mut of_columns = [None; STRIP];
        for (of_column, offset) in of_columns.iter_mut().zip(offsets) {
            // A column that moves by the image's height shows nothing of the image, so larger offsets are clamped.
            *of_column = offset.map(|offset| offset.clamp(-(height as isize), height as isize));
        }
        let least = of_columns.into_iter().flatten().min().unwrap_or(0);
        let most = of_columns.into_iter().flatten().max().unwrap_or(0);
        let bits = usize::BITS - ((most - least) as usize).leading_zeros();
        let distances = of_columns.map(|offset| (offset.unwrap_or(least) - least) as usize);
        let masks = (0..bits)
            .map(|bit| distances.map(|distance| if distance >> bit & 1 == 1 { 255 } else { 0 }))
            .collect();
        let needs_lookup = of_columns.map(|offset| offset.is_none());
        Self { least, masks, needs_lookup }
    }

    /// Returns how many more rows the strip must have than the result.
    fn reach(&self) -> usize {
        (1 << self.masks.len()) - 1
    }

    /// Moves each column of a strip up by its offset minus the smallest offset.
    fn apply(&self, level: Level, mut strip: &mut [[u8; STRIP]]) {
        for (bit, mask) in self.masks.iter().enumerate().rev() {
            move_columns_up(level, strip, 1 << bit, mask);
            let rows = strip.len() - (1 << bit);
            strip = &mut strip[..rows];
        }
    }
}

vectorised! {
    /// Moves columns whose `mask` is 255 up by `distance` rows. Other columns do not move.
    fn move_columns_up(strip: &mut [[u8; STRIP]], distance: usize, mask: &[u8; STRIP]) {
        for row in 0..strip.len() - distance {
            let below = strip[row + distance];
            for ((level, below), mask) in strip[row].iter_mut().zip(below).zip(mask) {
                *level = *level & !mask | below & mask;
            }
        }
    }
}

/// Fills a strip with columns of a plane from row `first` on. Rows outside of the plane become `outside_level`.
fn load_strip(
    plane: &[u8],
    width: usize,
    columns: Range<usize>,
    first: isize,
    outside_level: u8,
    strip: &mut [[u8; STRIP]],
) {
    for (row, to) in strip.iter_mut().enumerate() {
        let row = usize::try_from(row as isize + first).ok().filter(|row| row * width < plane.len());
        let Some(row) = row else {
            *to = [outside_level; STRIP];
            continue;
        };
        let from = &plane[row * width..][columns.clone()];
        match from.first_chunk() {
            Some(from) => *to = *from,
            None => load_narrow(from, to),
        }
    }
}

#[cold]
fn load_narrow(from: &[u8], to: &mut [u8; STRIP]) {
    to[..from.len()].copy_from_slice(from);
}

fn store_strip(strip: &[[u8; STRIP]], plane: &mut [u8], width: usize, columns: Range<usize>) {
    for (from, to) in strip.iter().zip(plane.chunks_exact_mut(width)) {
        let to = &mut to[columns.clone()];
        match to.first_chunk_mut() {
            Some(to) => *to = *from,
            None => store_narrow(from, to),
        }
    }
}

#[cold]
fn store_narrow(from: &[u8; STRIP], to: &mut [u8]) {
    to.copy_from_slice(&from[..to.len()]);
}

#[cfg(test)]
mod tests {
    use super::super::tests::seed;
    use super::super::warp::Sampler;
    use super::*;
    use crate::augment::ops::resample;
    use base::rng::{RandomKey, RandomStream, Use};

    /// Draws the factor or the distance of a shear for a test: either any number, or a simple fraction, for which some
    /// output pixels can fall exactly halfway between two source pixels.
    fn number(stream: &mut RandomStream, most: f64) -> f64 {
        let parts = 1.0 + stream.below(8) as f64;
        let number = stream.uniform(-most, most);
        if stream.below(2) == 0 { number } else { (number * parts).round() / parts }
    }

    #[test]
    fn lines_move_as_pixels_do() {
        let seed = seed();
        let mut stream = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
        let mut lines = [0; 2];
        for round in 0..400 {
            let most = [4, 70, 300][round % 3];
            let size = [1 + stream.below(most) as usize, 1 + stream.below(most) as usize];
            let half = size.map(|length| length as f32 * 0.5);
            let (factor, moved) = (number(&mut stream, 2.0), number(&mut stream, most as f64));
            let matrix = match stream.below(2) {
                0 => [[1.0, factor, moved], [0.0, 1.0, number(&mut stream, most as f64)]],
                _ => [[1.0, 0.0, 0.0], [factor, 1.0, moved]],
            };
            let shear = Shear::of(matrix).unwrap();
            let warp = Warp {
                matrix: [0, 1].map(|axis| matrix[axis].map(|value| value as f32 / half[axis])),
                shift: None,
                shear: Some(shear),
                sampler: Sampler::Nearest,
                fill: [None, Some([124.0, 116.25, 255.0])][stream.below(2) as usize],
            };
            let axis = if shear == Shear::Rows { 0 } else { 1 };
            for line in 0..size[1 - axis] {
                let offset = warp.offset_of_line(axis, from_centre(line, size[1 - axis]), size[axis]);
                lines[usize::from(offset.is_none())] += 1;
            }
            let [width, height] = size;
            let image: Vec<u8> = (0..3 * width * height).map(|_| stream.next_u32() as u8).collect();
            for level in Level::available() {
                let mut expected = image.clone();
                resample::warp(
                    level,
                    &warp,
                    &mut expected,
                    (width as u32, height as u32),
                    &mut Default::default(),
                );
                let mut found = vec![1; image.len()];
                super::shear(level, &warp, shear, (width, height), &image, &mut found, &mut Vec::new());
                let name = level.name();
                assert!(
                    found == expected,
                    "FORELOAD_SEED={seed} round {round}, {name}: {matrix:?} of {size:?}"
                );
            }
        }
        assert!(lines[0] > 10 * lines[1] && lines[1] > 10, "{lines:?}");
    }
}
