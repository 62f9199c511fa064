//! Samples the pixels of a warped image: torch's `grid_sample` with zeros outside, and torchvision's fill.

use super::arithmetic::{self, clamp_to, floor, rounded};
use super::warp::{Sampler, Warp};
use crate::level::vectorised;
use base::simd::Level;

/// The width of the border around the image, in pixels: samplers read at most this far outside of the image.
const BORDER: usize = 4;
/// The number of columns that are computed together.
const BLOCK: usize = 32;
/// The fourth byte of a pixel: 1 in pixels of the image, 0 in the border.
const INSIDE: u32 = 1 << 24;

#[derive(Debug, Default)]
pub(super) struct WarpScratch {
    /// The image as pixels of four bytes, with its border.
    pixels: Vec<u32>,
    row: RowSteps,
}

/// Intermediate results of all blocks of a row. Pixels are gathered one by one from the whole image, but computed many
/// at a time. If each block were gathered and computed in turn, the two steps would wait for each other.
#[derive(Debug, Default)]
struct RowSteps {
    indices: Vec<[u32; BLOCK]>,
    shares: Vec<Places>,
    /// For nearest sampling: the pixel at each sampling point.
    found: Vec<[u32; BLOCK]>,
    /// For bilinear sampling: of the four pixels around each sampling point, the two in the upper row.
    above: Vec<[[u32; 2]; BLOCK]>,
    /// For bilinear sampling: of the four pixels around each sampling point, the two in the lower row.
    below: Vec<[[u32; 2]; BLOCK]>,
    /// For bicubic sampling: the four by four pixels around each sampling point, row by row.
    lines: Vec<[[[u32; 4]; BLOCK]; 4]>,
}

pub(super) fn warp(
    level: Level,
    warp: &Warp,
    planes: &mut [u8],
    (width, height): (u32, u32),
    WarpScratch { pixels, row }: &mut WarpScratch,
) {
    let (width, height) = (width as usize, height as usize);
    let (red, others) = planes.split_at_mut(width * height);
    let (green, blue) = others.split_at_mut(width * height);
    let stride = width + 2 * BORDER;
    pixels.resize(stride * (height + 2 * BORDER), 0);
    // The border must not keep pixels of an earlier image of another size.
    let (above, inside) = pixels.split_at_mut(BORDER * stride + BORDER);
    let (inside, below) = inside.split_at_mut(height * stride);
    above.fill(0);
    below.fill(0);
    join(level, red, green, blue, width, inside);
    let source = Source { pixels, stride, width, height };
    match warp.sampler {
        Sampler::Nearest => nearest(level, &source, warp, row, red, green, blue),
        Sampler::Bilinear => bilinear(level, &source, warp, row, red, green, blue),
        Sampler::Bicubic => bicubic(level, &source, warp, row, red, green, blue),
    }
}

vectorised! {
    /// Joins levels to pixels of four bytes: R, G, B, and 1. A border of zeros follows each row.
    fn join(red: &[u8], green: &[u8], blue: &[u8], width: usize, to: &mut [u32]) {
        let rows = red.chunks_exact(width).zip(green.chunks_exact(width)).zip(blue.chunks_exact(width));
        for (((red, green), blue), to) in rows.zip(to.chunks_exact_mut(width + 2 * BORDER)) {
            let (to, border) = to.split_at_mut(width);
            for (((&red, &green), &blue), to) in red.iter().zip(green).zip(blue).zip(to) {
                *to = u32::from(red) | u32::from(green) << 8 | u32::from(blue) << 16 | INSIDE;
            }
            border.fill(0);
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

/// For each pixel of a block in one row of the result: the place in the image that it shows.
#[derive(Debug, Clone, Copy)]
struct Places {
    x: [f32; BLOCK],
    y: [f32; BLOCK],
}

impl Places {
    /// Computes the places of a row's pixels from column `first` on, clamped to `reach` pixels outside of the image.
    #[inline(always)]
    fn new(source: &Source, warp: &Warp, row: usize, first: usize, reach: f32) -> Self {
        let (width, height) = (source.width as f32, source.height as f32);
        let column = |i: usize| (first + i) as i32 as f32 - (width - 1.0) * 0.5;
        let row = row as f32 - (height - 1.0) * 0.5;
        let [across, down] = warp.matrix;
        let (mut x, mut y) = ([0.0; BLOCK], [0.0; BLOCK]);
        for i in 0..BLOCK {
            let place = Warp::place(across, column(i), row, width);
            x[i] = clamp_to(place, -reach, width - 1.0 + reach);
            let place = Warp::place(down, column(i), row, height);
            y[i] = clamp_to(place, -reach, height - 1.0 + reach);
        }
        Self { x, y }
    }
}

impl Source<'_> {
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.width.div_ceil(BLOCK)
    }

    /// Returns the index of the pixel at a column and a row, which may be in the border.
    #[inline(always)]
    fn index(&self, column: i32, row: i32) -> u32 {
        ((row + BORDER as i32) * self.stride as i32 + column + BORDER as i32) as u32
    }

    /// For a block of places, returns the index of the pixel above and to the left of each place, and the distance from
    /// this pixel to the place.
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
    fn nearest(
        source: &Source, warp: &Warp, scratch: &mut RowSteps, red: &mut [u8], green: &mut [u8], blue: &mut [u8],
    ) {
        let fill = warp.fill.map_or([0; 3], |fill| fill.map(rounded));
        let outside = u32::from_le_bytes([fill[0], fill[1], fill[2], 0]);
        let RowSteps { indices, found, .. } = scratch;
        indices.resize(source.blocks(), [0; BLOCK]);
        found.resize(source.blocks(), [0; BLOCK]);
        for row in 0..source.height {
            for (block, indices) in indices.iter_mut().enumerate() {
                let places = Places::new(source, warp, row, block * BLOCK, 1.0);
                for (i, index) in indices.iter_mut().enumerate() {
                    *index = source.index(arithmetic::nearest(places.x[i]), arithmetic::nearest(places.y[i]));
                }
            }
            let (eights, _) = indices.as_flattened().as_chunks::<8>();
            let (found_eights, _) = found.as_flattened_mut().as_chunks_mut::<8>();
            for (found, indices) in found_eights.iter_mut().zip(eights) {
                *found = indices.map(|index| source.pixels[index as usize]);
            }
            let [red, green, blue] = rows(source, row, red, green, blue);
            for (((red, green), blue), &found) in red.iter_mut().zip(green).zip(blue).zip(found.as_flattened()) {
                let pixel = if found & INSIDE == 0 { outside } else { found };
                *red = pixel as u8;
                *green = (pixel >> 8) as u8;
                *blue = (pixel >> 16) as u8;
            }
        }
    }
}

vectorised! {
    fn bilinear(
        source: &Source, warp: &Warp, scratch: &mut RowSteps, red: &mut [u8], green: &mut [u8], blue: &mut [u8],
    ) {
        let RowSteps { indices, shares, above, below, .. } = scratch;
        indices.resize(source.blocks(), [0; BLOCK]);
        shares.resize(source.blocks(), Places { x: [0.0; BLOCK], y: [0.0; BLOCK] });
        above.resize(source.blocks(), [[0; 2]; BLOCK]);
        below.resize(source.blocks(), [[0; 2]; BLOCK]);
        for row in 0..source.height {
            for (block, (indices, shares)) in indices.iter_mut().zip(shares.iter_mut()).enumerate() {
                let places = Places::new(source, warp, row, block * BLOCK, 1.0);
                (*indices, *shares) = source.cells(&places);
            }
            let (fours, _) = indices.as_flattened().as_chunks::<4>();
            let (above_fours, _) = above.as_flattened_mut().as_chunks_mut::<4>();
            let (below_fours, _) = below.as_flattened_mut().as_chunks_mut::<4>();
            for ((above, below), indices) in above_fours.iter_mut().zip(below_fours).zip(fours) {
                for i in 0..4 {
                    let cell = &source.pixels[indices[i] as usize..][..source.stride + 2];
                    above[i] = [cell[0], cell[1]];
                    below[i] = [cell[source.stride], cell[source.stride + 1]];
                }
            }
            let to = rows(source, row, red, green, blue);
            for (block, ((above, below), shares)) in above.iter().zip(&*below).zip(&*shares).enumerate() {
                let mut inside = [1.0; BLOCK];
                if warp.fill.is_some() {
                    inside = mixed::<3>(above, below, shares);
                }
                let mut values = [
                    mixed::<0>(above, below, shares),
                    mixed::<1>(above, below, shares),
                    mixed::<2>(above, below, shares),
                ];
                for c in 0..3 {
                    let fill = warp.fill.map(|fill| fill[c]);
                    store::<false>(&mut values[c], &inside, fill, &mut to[c][block * BLOCK..]);
                }
            }
        }
    }
}

/// Returns channel number `C` of two by two pixels, interpolated: `shares` has the weights of the right and the lower
/// pixels.
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
    fn bicubic(
        source: &Source, warp: &Warp, scratch: &mut RowSteps, red: &mut [u8], green: &mut [u8], blue: &mut [u8],
    ) {
        let RowSteps { indices, shares, lines, .. } = scratch;
        indices.resize(source.blocks(), [0; BLOCK]);
        shares.resize(source.blocks(), Places { x: [0.0; BLOCK], y: [0.0; BLOCK] });
        lines.resize(source.blocks(), [[[0; 4]; BLOCK]; 4]);
        // The slices begin at the first, second, third and fourth line of pixels. All four have the same length, so one
        // comparison of an index with this length serves all four.
        let (pixels, stride, length) = (source.pixels, source.stride, source.pixels.len() - 3 * source.stride);
        let from = [
            &pixels[..length],
            &pixels[stride..][..length],
            &pixels[2 * stride..][..length],
            &pixels[3 * stride..][..length],
        ];
        let to_first = stride as u32 + 1;
        for row in 0..source.height {
            for (block, (indices, shares)) in indices.iter_mut().zip(shares.iter_mut()).enumerate() {
                let places = Places::new(source, warp, row, block * BLOCK, 2.0);
                (*indices, *shares) = source.cells(&places);
            }
            for (lines, indices) in lines.iter_mut().zip(&*indices) {
                for (i, &index) in indices.iter().enumerate() {
                    let at = (index - to_first) as usize;
                    for (line, from) in lines.iter_mut().zip(from) {
                        line[i].copy_from_slice(&from[at..at + 4]);
                    }
                }
            }
            let to = rows(source, row, red, green, blue);
            for (block, (lines, shares)) in lines.iter().zip(&*shares).enumerate() {
                let (across, down) = (cubic(&shares.x), cubic(&shares.y));
                // `from_fn` is avoided: it would be a function call without the vector instructions of this function.
                let [first, second, third, fourth] = lines;
                let pixels = [in_lanes(first), in_lanes(second), in_lanes(third), in_lanes(fourth)];
                let mut values = [
                    summed::<0>(&pixels, &across, &down),
                    summed::<1>(&pixels, &across, &down),
                    summed::<2>(&pixels, &across, &down),
                ];
                let inside = summed::<3>(&pixels, &across, &down);
                for c in 0..3 {
                    let fill = warp.fill.map(|fill| fill[c]);
                    store::<true>(&mut values[c], &inside, fill, &mut to[c][block * BLOCK..]);
                }
            }
        }
    }
}

/// Takes four neighbouring pixels for each place of a block. Returns four blocks: the first neighbours of all places,
/// the second neighbours, and so on.
#[inline(always)]
fn in_lanes(line: &[[u32; 4]; BLOCK]) -> [[u32; BLOCK]; 4] {
    let mut pixels = [[0; BLOCK]; 4];
    for (i, line) in line.iter().enumerate() {
        for x in 0..4 {
            pixels[x][i] = line[x];
        }
    }
    pixels
}

#[inline(always)]
fn summed<const C: usize>(
    pixels: &[[[u32; BLOCK]; 4]; 4],
    across: &[[f32; BLOCK]; 4],
    down: &[[f32; BLOCK]; 4],
) -> [f32; BLOCK] {
    let mut sums = [0.0; BLOCK];
    for (pixels, down) in pixels.iter().zip(down) {
        for i in 0..BLOCK {
            let mut line = channel::<C>(pixels[0][i]) * across[0][i];
            line += channel::<C>(pixels[1][i]) * across[1][i];
            line += channel::<C>(pixels[2][i]) * across[2][i];
            line += channel::<C>(pixels[3][i]) * across[3][i];
            sums[i] += line * down[i];
        }
    }
    sums
}

/// Returns the weights of four pixels in a line for places between the two middle pixels. `shares` has the distances of
/// the places from the second pixel. The weights are the cubic convolution of Keys with a = -¾, as torch computes it.
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

#[inline(always)]
fn channel<const C: usize>(pixel: u32) -> f32 {
    (pixel >> (8 * C) & 255) as i32 as f32
}

#[inline(always)]
fn rows<'a>(
    source: &Source,
    row: usize,
    red: &'a mut [u8],
    green: &'a mut [u8],
    blue: &'a mut [u8],
) -> [&'a mut [u8]; 3] {
    [red, green, blue].map(|plane| &mut plane[row * source.width..][..source.width])
}

/// Stores a block of values of one channel as levels, up to the end of the row. `CLAMPED` clamps values that may have
/// left the range. With a fill, a value becomes (value - fill) · inside + fill. Here `inside` is the total weight of
/// the pixels of the image among the pixels that were mixed.
#[inline(always)]
fn store<const CLAMPED: bool>(
    values: &mut [f32; BLOCK],
    inside: &[f32; BLOCK],
    fill: Option<f32>,
    to: &mut [u8],
) {
    if let Some(fill) = fill {
        for i in 0..BLOCK {
            values[i] = (values[i] - fill) * inside[i] + fill;
        }
    }
    if CLAMPED {
        for value in &mut *values {
            *value = clamp_to(*value, 0.0, 255.0);
        }
    }
    match to.first_chunk_mut::<BLOCK>() {
        // With a constant number of levels, compilers store the levels from vector registers.
        Some(to) => {
            for i in 0..BLOCK {
                to[i] = rounded(values[i]);
            }
        }
        None => store_last(values, to),
    }
}

/// Stores the part of a row's last block that is in the row.
#[cold]
fn store_last(values: &[f32; BLOCK], to: &mut [u8]) {
    for (to, &value) in to.iter_mut().zip(values) {
        *to = rounded(value);
    }
}
