//! The pixels of a warped image: torch's `grid_sample` with zeros outside, and torchvision's fill.

use super::arithmetic::{self, floor, rounded, within};
use super::warp::{Sampler, Warp};
use crate::augment::level::vectorised;
use crate::simd::Level;

/// The pixels that stand around the image, which is as far as a sampler that begins at its border reaches.
const BORDER: usize = 4;
/// The columns that are computed together.
const BLOCK: usize = 32;
/// Of a pixel of four bytes, that it belongs to the image.
const INSIDE: u32 = 1 << 24;

/// Warps planes of `width` × `height` levels; `pixels` is scratch.
pub(super) fn warp(
    level: Level,
    warp: &Warp,
    planes: &mut [u8],
    (width, height): (u32, u32),
    pixels: &mut Vec<u32>,
) {
    let (width, height) = (width as usize, height as usize);
    let (red, others) = planes.split_at_mut(width * height);
    let (green, blue) = others.split_at_mut(width * height);
    let stride = width + 2 * BORDER;
    pixels.clear();
    pixels.resize(stride * (height + 2 * BORDER), 0);
    let inside = &mut pixels[BORDER * stride + BORDER..];
    join(level, red, green, blue, width, inside);
    let source = Source { pixels, stride, width, height };
    match warp.sampler {
        Sampler::Nearest => nearest(level, &source, warp, red, green, blue),
        Sampler::Bilinear => bilinear(level, &source, warp, red, green, blue),
        Sampler::Bicubic => bicubic(level, &source, warp, red, green, blue),
    }
}

vectorised! {
    /// Joins levels to pixels of four bytes: R, G, B, and 1.
    fn join(red: &[u8], green: &[u8], blue: &[u8], width: usize, to: &mut [u32]) {
        let rows = red.chunks_exact(width).zip(green.chunks_exact(width)).zip(blue.chunks_exact(width));
        for (((red, green), blue), to) in rows.zip(to.chunks_mut(width + 2 * BORDER)) {
            for (((&red, &green), &blue), to) in red.iter().zip(green).zip(blue).zip(to) {
                *to = u32::from(red) | u32::from(green) << 8 | u32::from(blue) << 16 | INSIDE;
            }
        }
    }
}

/// An image as pixels of four bytes, with a border of zeros.
struct Source<'a> {
    pixels: &'a [u32],
    stride: usize,
    width: usize,
    height: usize,
}

/// The places in the image that a block of pixels of one row shows.
struct Places {
    x: [f32; BLOCK],
    y: [f32; BLOCK],
}

impl Places {
    /// Those of the pixels from a column on. What is further outside than `reach` lies there instead.
    #[inline(always)]
    fn new(source: &Source, warp: &Warp, row: usize, first: usize, reach: f32) -> Self {
        let (width, height) = (source.width as f32, source.height as f32);
        let column = |i: usize| (first + i) as i32 as f32 - (width - 1.0) * 0.5;
        let row = row as f32 - (height - 1.0) * 0.5;
        let [across, down] = warp.matrix;
        let (mut x, mut y) = ([0.0; BLOCK], [0.0; BLOCK]);
        for i in 0..BLOCK {
            let place = Warp::place(across, column(i), row, width);
            x[i] = within(place, -reach, width - 1.0 + reach);
            let place = Warp::place(down, column(i), row, height);
            y[i] = within(place, -reach, height - 1.0 + reach);
        }
        Self { x, y }
    }
}

impl Source<'_> {
    /// The index of the pixel at a column and a row, which may lie in the border.
    #[inline(always)]
    fn index(&self, column: i32, row: i32) -> u32 {
        ((row + BORDER as i32) * self.stride as i32 + column + BORDER as i32) as u32
    }

    /// For a block of places the indices of the pixels that are above and to the left, and how far they are from
    /// there.
    #[inline(always)]
    fn cells(&self, places: &Places) -> ([u32; BLOCK], Places) {
        let mut indices = [0; BLOCK];
        let mut shares = Places { x: [0.0; BLOCK], y: [0.0; BLOCK] };
        for (i, index) in indices.iter_mut().enumerate() {
            let (column, row) = (floor(places.x[i]), floor(places.y[i]));
            shares.x[i] = places.x[i] - column as f32;
            shares.y[i] = places.y[i] - row as f32;
            *index = self.index(column, row);
        }
        (indices, shares)
    }
}

vectorised! {
    fn nearest(source: &Source, warp: &Warp, red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        let fill = warp.fill.map_or([0; 3], |fill| fill.map(rounded));
        let outside = u32::from_le_bytes([fill[0], fill[1], fill[2], 0]);
        for (row, first) in blocks(source) {
            let places = Places::new(source, warp, row, first, 1.0);
            let mut indices = [0; BLOCK];
            for (i, index) in indices.iter_mut().enumerate() {
                *index = source.index(arithmetic::nearest(places.x[i]), arithmetic::nearest(places.y[i]));
            }
            let mut levels = [[0; BLOCK]; 3];
            let mut found = [0; BLOCK];
            for i in 0..BLOCK {
                found[i] = source.pixels[indices[i] as usize];
            }
            for i in 0..BLOCK {
                let pixel = if found[i] & INSIDE == 0 { outside } else { found[i] };
                levels[0][i] = pixel as u8;
                levels[1][i] = (pixel >> 8) as u8;
                levels[2][i] = (pixel >> 16) as u8;
            }
            store(source, row, first, &levels, [red, green, blue]);
        }
    }
}

vectorised! {
    fn bilinear(source: &Source, warp: &Warp, red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        for (row, first) in blocks(source) {
            let places = Places::new(source, warp, row, first, 1.0);
            let (indices, shares) = source.cells(&places);
            let (mut above, mut below) = ([[0; 2]; BLOCK], [[0; 2]; BLOCK]);
            for i in 0..BLOCK {
                let cell = &source.pixels[indices[i] as usize..][..source.stride + 2];
                above[i] = [cell[0], cell[1]];
                below[i] = [cell[source.stride], cell[source.stride + 1]];
            }
            let mut inside = [1.0; BLOCK];
            if warp.fill.is_some() {
                inside = mixed::<3>(&above, &below, &shares);
            }
            let values = [
                mixed::<0>(&above, &below, &shares),
                mixed::<1>(&above, &below, &shares),
                mixed::<2>(&above, &below, &shares),
            ];
            let levels = levels::<false>(&values, &inside, warp.fill);
            store(source, row, first, &levels, [red, green, blue]);
        }
    }
}

/// Channel number `C` of two by two pixels, mixed by the shares of the right and the lower ones.
#[inline(always)]
fn mixed<const C: usize>(
    above: &[[u32; 2]; BLOCK],
    below: &[[u32; 2]; BLOCK],
    shares: &Places,
) -> [f32; BLOCK] {
    let mut values = [0.0; BLOCK];
    for i in 0..BLOCK {
        let (left, right) = (channel::<C>(above[i][0]), channel::<C>(above[i][1]));
        let upper = left + (right - left) * shares.x[i];
        let (left, right) = (channel::<C>(below[i][0]), channel::<C>(below[i][1]));
        let lower = left + (right - left) * shares.x[i];
        values[i] = upper + (lower - upper) * shares.y[i];
    }
    values
}

vectorised! {
    fn bicubic(source: &Source, warp: &Warp, red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        for (row, first) in blocks(source) {
            let places = Places::new(source, warp, row, first, 2.0);
            let (indices, shares) = source.cells(&places);
            let (across, down) = (cubic(&shares.x), cubic(&shares.y));
            let mut values = [[0.0; BLOCK]; 3];
            let mut inside = [0.0; BLOCK];
            let mut pixels = [[0; BLOCK]; 4];
            for (line, down) in down.iter().enumerate() {
                for i in 0..BLOCK {
                    let first = (indices[i] as usize + line * source.stride) - source.stride - 1;
                    let cell = &source.pixels[first..][..4];
                    for (pixels, &pixel) in pixels.iter_mut().zip(cell) {
                        pixels[i] = pixel;
                    }
                }
                add::<0>(&pixels, &across, down, &mut values[0]);
                add::<1>(&pixels, &across, down, &mut values[1]);
                add::<2>(&pixels, &across, down, &mut values[2]);
                add::<3>(&pixels, &across, down, &mut inside);
            }
            let levels = levels::<true>(&values, &inside, warp.fill);
            store(source, row, first, &levels, [red, green, blue]);
        }
    }
}

/// Adds what channel number `C` of four pixels in a line gives.
#[inline(always)]
fn add<const C: usize>(
    pixels: &[[u32; BLOCK]; 4],
    across: &[[f32; BLOCK]; 4],
    down: &[f32; BLOCK],
    sums: &mut [f32; BLOCK],
) {
    for i in 0..BLOCK {
        let mut line = channel::<C>(pixels[0][i]) * across[0][i];
        line += channel::<C>(pixels[1][i]) * across[1][i];
        line += channel::<C>(pixels[2][i]) * across[2][i];
        line += channel::<C>(pixels[3][i]) * across[3][i];
        sums[i] += line * down[i];
    }
}

/// The weights of four pixels in a line for places between the middle two, by their distances from the second: the
/// cubic convolution of Keys with a = -¾, as torch computes it.
#[inline(always)]
fn cubic(shares: &[f32; BLOCK]) -> [[f32; BLOCK]; 4] {
    const A: f32 = -0.75;
    let mut weights = [[0.0; BLOCK]; 4];
    for i in 0..BLOCK {
        let (near, rest) = (shares[i], 1.0 - shares[i]);
        let (far, further) = (near + 1.0, rest + 1.0);
        weights[0][i] = ((A * far - 5.0 * A) * far + 8.0 * A) * far - 4.0 * A;
        weights[1][i] = ((A + 2.0) * near - (A + 3.0)) * near * near + 1.0;
        weights[2][i] = ((A + 2.0) * rest - (A + 3.0)) * rest * rest + 1.0;
        weights[3][i] = ((A * further - 5.0 * A) * further + 8.0 * A) * further - 4.0 * A;
    }
    weights
}

/// The rows and first columns of all blocks of the result, which has the size of the image.
#[inline(always)]
fn blocks(source: &Source) -> impl Iterator<Item = (usize, usize)> {
    let width = source.width;
    (0..source.height).flat_map(move |row| (0..width).step_by(BLOCK).map(move |first| (row, first)))
}

/// Channel number `C` of a pixel of four bytes.
#[inline(always)]
fn channel<const C: usize>(pixel: u32) -> f32 {
    (pixel >> (8 * C) & 255) as i32 as f32
}

/// The levels of values, which are clamped if they can have left the range. With a fill, what is mixed with pixels
/// outside of the image is drawn towards it by their share: (value - fill) · inside + fill.
#[inline(always)]
fn levels<const CLAMPED: bool>(
    values: &[[f32; BLOCK]; 3],
    inside: &[f32; BLOCK],
    fill: Option<[f32; 3]>,
) -> [[u8; BLOCK]; 3] {
    let mut levels = [[0; BLOCK]; 3];
    for c in 0..3 {
        if let Some(fill) = fill {
            for i in 0..BLOCK {
                let value = (values[c][i] - fill[c]) * inside[i] + fill[c];
                levels[c][i] = rounded(if CLAMPED { within(value, 0.0, 255.0) } else { value });
            }
        } else {
            for i in 0..BLOCK {
                let value = values[c][i];
                levels[c][i] = rounded(if CLAMPED { within(value, 0.0, 255.0) } else { value });
            }
        }
    }
    levels
}

/// Stores a block, as far as its row goes.
#[inline(always)]
fn store(source: &Source, row: usize, first: usize, levels: &[[u8; BLOCK]; 3], to: [&mut [u8]; 3]) {
    let count = BLOCK.min(source.width - first);
    for (levels, to) in levels.iter().zip(to) {
        to[row * source.width + first..][..count].copy_from_slice(&levels[..count]);
    }
}
