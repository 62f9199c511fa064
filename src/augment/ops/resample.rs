//! The pixels of a warped image: torch's `grid_sample` with zeros outside, and torchvision's fill.

use super::arithmetic::{floor, round, rounded, within};
use super::level::vectorised;
use super::warp::{Sampler, Warp};
use crate::simd::Level;

/// The pixels that stand around the image, which is as far as a sampler that begins at its border reaches.
const BORDER: usize = 4;
/// The columns that are computed together.
const BLOCK: usize = 64;
/// Of a pixel of four bytes, that it belongs to the image.
const INSIDE: u32 = 1 << 24;

/// Warps planes of `width` × `height` levels; `from` is scratch, and holds their pixels of four bytes.
pub(super) fn warp(
    level: Level,
    warp: &Warp,
    planes: &mut [u8],
    (width, height): (u32, u32),
    from: &mut Vec<u32>,
) {
    let (width, height) = (width as usize, height as usize);
    let (red, others) = planes.split_at_mut(width * height);
    let (green, blue) = others.split_at_mut(width * height);
    let stride = width + 2 * BORDER;
    from.clear();
    from.resize(stride * (height + 2 * BORDER), 0);
    for row in 0..height {
        let to = &mut from[(row + BORDER) * stride + BORDER..][..width];
        let here = row * width..(row + 1) * width;
        join(level, &red[here.clone()], &green[here.clone()], &blue[here], to);
    }
    for row in 0..height {
        for first in (0..width).step_by(BLOCK) {
            let mut places = [[0.0; BLOCK]; 2];
            locate(level, warp, [width, height], [first, row], &mut places);
            let columns = first..(first + BLOCK).min(width);
            let here = row * width + columns.start..row * width + columns.end;
            let to = [&mut red[here.clone()], &mut green[here.clone()], &mut blue[here]];
            let source = Source { from, stride, width, height };
            match warp.sampler {
                Sampler::Nearest => source.nearest(level, &places, warp.fill, to),
                Sampler::Bilinear => source.bilinear(level, &places, warp.fill, to),
                Sampler::Bicubic => source.bicubic(&places, warp.fill, to),
            }
        }
    }
}

vectorised! {
    /// Joins levels to pixels of four bytes: R, G, B, and 1.
    fn join(red: &[u8], green: &[u8], blue: &[u8], to: &mut [u32]) {
        for (((&red, &green), &blue), to) in red.iter().zip(green).zip(blue).zip(to) {
            *to = u32::from(red) | u32::from(green) << 8 | u32::from(blue) << 16 | INSIDE;
        }
    }
}

vectorised! {
    /// The columns and rows of the image that a block of pixels of one row shows, each rounded as torch rounds it.
    fn locate(warp: &Warp, size: [usize; 2], first: [usize; 2], places: &mut [[f32; BLOCK]; 2]) {
        let middle = size.map(|size| (size as f32 - 1.0) * 0.5);
        let row = first[1] as f32 - middle[1];
        for ((places, matrix), size) in places.iter_mut().zip(warp.matrix).zip(size) {
            let (of_row, half) = (row * matrix[1], size as f32 * 0.5);
            for (i, place) in places.iter_mut().enumerate() {
                let column = (first[0] + i) as f32 - middle[0];
                *place = ((column * matrix[0] + of_row + matrix[2]) + 1.0) * half - 0.5;
            }
        }
    }
}

/// An image as pixels of four bytes, with a border of zeros.
struct Source<'a> {
    from: &'a [u32],
    stride: usize,
    width: usize,
    height: usize,
}

impl Source<'_> {
    /// The place in `from` of the pixel at a column and a row, which may lie in the border.
    #[inline(always)]
    fn index(&self, column: i32, row: i32) -> usize {
        (row + BORDER as i32) as usize * self.stride + (column + BORDER as i32) as usize
    }

    fn nearest(&self, level: Level, places: &[[f32; BLOCK]; 2], fill: Option<[f32; 3]>, to: [&mut [u8]; 3]) {
        let mut pixels = [0; BLOCK];
        let outside = fill.map_or([0; 3], |fill| fill.map(rounded));
        let outside = u32::from_le_bytes([outside[0], outside[1], outside[2], 0]);
        for ((pixel, &x), &y) in pixels.iter_mut().zip(&places[0]).zip(&places[1]).take(to[0].len()) {
            let column = round(within(x, -1.0, self.width as f32)) as i32;
            let row = round(within(y, -1.0, self.height as f32)) as i32;
            let found = self.from[self.index(column, row)];
            *pixel = if found & INSIDE == 0 { outside } else { found };
        }
        let [red, green, blue] = to;
        part(level, &pixels, red, green, blue);
    }

    fn bilinear(&self, level: Level, places: &[[f32; BLOCK]; 2], fill: Option<[f32; 3]>, to: [&mut [u8]; 3]) {
        let (mut above, mut below) = ([[0; 2]; BLOCK], [[0; 2]; BLOCK]);
        let mut shares = [[0.0; BLOCK]; 2];
        for i in 0..to[0].len() {
            let x = within(places[0][i], -1.0, self.width as f32);
            let y = within(places[1][i], -1.0, self.height as f32);
            let (column, row) = (floor(x), floor(y));
            let at = self.index(column, row);
            above[i] = [self.from[at], self.from[at + 1]];
            below[i] = [self.from[at + self.stride], self.from[at + self.stride + 1]];
            shares[0][i] = x - column as f32;
            shares[1][i] = y - row as f32;
        }
        let [red, green, blue] = to;
        mix(level, &above, &below, &shares, fill, red, green, blue);
    }

    fn bicubic(&self, places: &[[f32; BLOCK]; 2], fill: Option<[f32; 3]>, to: [&mut [u8]; 3]) {
        for i in 0..to[0].len() {
            let x = within(places[0][i], -2.0, self.width as f32 + 1.0);
            let y = within(places[1][i], -2.0, self.height as f32 + 1.0);
            let (column, row) = (floor(x), floor(y));
            let (across, down) = (cubic(x - column as f32), cubic(y - row as f32));
            let first = self.index(column - 1, row - 1);
            let mut sums = [0.0; 4];
            for (weight, row) in down.into_iter().zip(0..) {
                let pixels = &self.from[first + row * self.stride..][..4];
                for (c, sum) in sums.iter_mut().enumerate() {
                    let at = |x: usize| channel(pixels[x], c) * across[x];
                    let along = at(0) + at(1) + at(2) + at(3);
                    *sum += along * weight;
                }
            }
            for c in 0..3 {
                let value = match fill {
                    Some(fill) => (sums[c] - fill[c]) * sums[3] + fill[c],
                    None => sums[c],
                };
                to[c][i] = rounded(value);
            }
        }
    }
}

/// Channel number `c` of a pixel of four bytes.
#[inline(always)]
fn channel(pixel: u32, c: usize) -> f32 {
    (pixel >> (8 * c) & 255) as f32
}

vectorised! {
    /// Parts pixels of four bytes into levels.
    fn part(pixels: &[u32; BLOCK], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        for (((&pixel, red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
            (*red, *green, *blue) = (pixel as u8, (pixel >> 8) as u8, (pixel >> 16) as u8);
        }
    }
}

vectorised! {
    /// Mixes two by two pixels by the shares of the right and the lower ones. With a fill, what is mixed with pixels
    /// outside of the image is drawn towards it by the share of these: (value - fill) · inside + fill.
    fn mix(
        above: &[[u32; 2]; BLOCK],
        below: &[[u32; 2]; BLOCK],
        shares: &[[f32; BLOCK]; 2],
        fill: Option<[f32; 3]>,
        red: &mut [u8],
        green: &mut [u8],
        blue: &mut [u8],
    ) {
        let mut values = [[0.0; BLOCK]; 4];
        for (c, values) in values.iter_mut().enumerate() {
            for i in 0..BLOCK {
                let [left, right] = above[i].map(|pixel| channel(pixel, c));
                let upper = left + (right - left) * shares[0][i];
                let [left, right] = below[i].map(|pixel| channel(pixel, c));
                let lower = left + (right - left) * shares[0][i];
                values[i] = upper + (lower - upper) * shares[1][i];
            }
        }
        let [levels @ .., inside] = &mut values;
        for (c, (levels, to)) in levels.iter_mut().zip([red, green, blue]).enumerate() {
            if let Some(fill) = fill {
                for (level, inside) in levels.iter_mut().zip(&*inside) {
                    *level = (*level - fill[c]) * inside + fill[c];
                }
            }
            for (to, &level) in to.iter_mut().zip(&*levels) {
                *to = rounded(level);
            }
        }
    }
}

/// The weights of four pixels in a row for a place between the middle two, by its distance from the second: the cubic
/// convolution of Keys with a = -¾, as torch computes it.
#[inline(always)]
fn cubic(share: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let rest = 1.0 - share;
    [far(share + 1.0), near(share), near(rest), far(rest + 1.0)]
}
