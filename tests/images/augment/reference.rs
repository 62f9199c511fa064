//! The pass as it is defined, in double precision and without optimisation.

use std::collections::HashMap;
use std::fmt;

use foreload::testing::augment::{Axis, Filter, Output, Padding, View};
use foreload::testing::decode::{ColorModel, Plane, Planes, Region};
use foreload::testing::rng::RandomStream;

use super::{between, scaled};

/// A whole image, stored as its components.
pub struct Image {
    pub width: u32,
    pub height: u32,
    color: ColorModel,
    /// For each component: image columns and rows per sample, columns and rows of samples, and the samples.
    components: Vec<(u32, u32, u32, u32, Vec<u8>)>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let steps: Vec<_> = self.components.iter().map(|c| (c.0, c.1)).collect();
        write!(f, "{:?} of {}×{}, steps {steps:?}", self.color, self.width, self.height)
    }
}

impl Image {
    /// An image of up to `most` pixels a side, of any kind.
    pub fn random(random: &mut RandomStream, most: u32) -> Self {
        let (width, height) = (scaled(random, 1, most), scaled(random, 1, most));
        Self::sized(random, width, height)
    }

    /// An image of which one half is noise and one half large areas, to test both rounding and clamping.
    pub fn sized(random: &mut RandomStream, width: u32, height: u32) -> Self {
        let mut step = || [1, 2, 2, 4][random.below(4) as usize];
        let chroma = (step(), step());
        let (color, steps) = match random.below(6) {
            0 => (ColorModel::Gray, vec![(1, 1)]),
            1 => (ColorModel::Rgb, vec![(1, 1); 3]),
            2 => (ColorModel::YCbCr, vec![(1, 1), chroma, (1, 1)]),
            _ => (ColorModel::YCbCr, vec![(1, 1), chroma, chroma]),
        };
        let components = steps
            .into_iter()
            .map(|(sx, sy)| {
                let (w, h) = (width.div_ceil(sx), height.div_ceil(sy));
                let noise = between(random, 1, 256);
                let base = random.below(u64::from(257 - noise)) as u32;
                let samples = (0..w * h).map(|_| (base + random.below(u64::from(noise)) as u32) as u8);
                (sx, sy, w, h, samples.collect())
            })
            .collect();
        Self { width, height, color, components }
    }

    /// The planes that a decoder returns for `region`: only the samples that it promises.
    pub fn planes(&self, region: &Region) -> Planes {
        let planes = [0, 1, 2].map(|c| {
            let Some((sx, sy, w, h, samples)) = self.components.get(c) else { return Plane::default() };
            let span = |start: u32, length: u32, step: u32, full: u32| {
                let (first, end) = (start / step, (start + length - 1) / step + 1);
                let margin = u32::from(step > 1);
                (first.saturating_sub(margin), (end + margin).min(full))
            };
            let (x0, x1) = span(region.x, region.width, *sx, *w);
            let (y0, y1) = span(region.y, region.height, *sy, *h);
            let stride = (x1 - x0 + 5) as usize;
            let mut data = vec![0x55; (y1 - y0 - 1) as usize * stride + (x1 - x0) as usize + 64];
            for y in y0..y1 {
                for x in x0..x1 {
                    data[(y - y0) as usize * stride + (x - x0) as usize] = samples[(y * w + x) as usize];
                }
            }
            Plane {
                data,
                stride,
                x0,
                y0,
                width: x1 - x0,
                height: y1 - y0,
                full_width: *w,
                full_height: *h,
                step_x: *sx,
                step_y: *sy,
            }
        });
        Planes { image_width: self.width, image_height: self.height, color: self.color, planes }
    }

    /// Component `c` at pixel (x, y), upsampled as libjpeg does, with its biases.
    fn pixel(&self, c: usize, x: u32, y: u32) -> f64 {
        let (sx, sy, w, h, samples) = &self.components[c];
        let sample = |x: i64, y: i64| {
            let (x, y) = (x.clamp(0, i64::from(*w) - 1), y.clamp(0, i64::from(*h) - 1));
            f64::from(samples[(y * i64::from(*w) + x) as usize])
        };
        let (nx, ny) = (i64::from(x / sx), i64::from(y / sy));
        let (ox, oy) = (if x % 2 == 1 { nx + 1 } else { nx - 1 }, if y % 2 == 1 { ny + 1 } else { ny - 1 });
        let (odd_x, odd_y) = (x % 2 == 1, y % 2 == 1);
        let (sum, divisor, bias) = match (sx, sy) {
            (2, 1) if *w > 2 => (3.0 * sample(nx, ny) + sample(ox, ny), 4.0, if odd_x { 2.0 } else { 1.0 }),
            (1, 2) => (3.0 * sample(nx, ny) + sample(nx, oy), 4.0, if odd_y { 2.0 } else { 1.0 }),
            (2, 2) if *w > 2 => {
                let column = |x| 3.0 * sample(x, ny) + sample(x, oy);
                (3.0 * column(nx) + column(ox), 16.0, if odd_x { 7.0 } else { 8.0 })
            }
            _ => (sample(nx, ny), 1.0, 0.0),
        };
        ((sum + bias) / divisor).floor()
    }

    /// The columns or rows of samples from which a column or row of pixels of component `c` is upsampled: if libjpeg
    /// interpolates, ¾ of the nearer and ¼ of the next.
    fn sources(&self, c: usize, along_x: bool, pixel: u32) -> Taps {
        let (sx, sy, w, h, _) = self.components[c];
        let (step, samples) = if along_x { (sx, w) } else { (sy, h) };
        let linear = step == 2 && matches!((sx, sy), (1, 2) | (2, 1 | 2)) && (sx == 1 || w > 2);
        let (near, odd) = (pixel / step, pixel % 2 == 1);
        let next = if odd { (near + 1).min(samples - 1) } else { near.saturating_sub(1) };
        if linear { vec![(near, 0.75), (next, 0.25)] } else { vec![(near, 1.0)] }
    }

    /// R, G and B of a pixel as libjpeg's tables give them.
    fn rgb(&self, x: u32, y: u32) -> [f64; 3] {
        let v = |c| self.pixel(c, x, y);
        match self.color {
            ColorModel::Gray => [v(0); 3],
            ColorModel::Rgb => [v(0), v(1), v(2)],
            ColorModel::YCbCr => {
                let (luma, cb, cr) = (v(0), v(1) - 128.0, v(2) - 128.0);
                let fixed = |f: f64| (f * 65_536.0 + 0.5).floor();
                let part = |sum: f64| ((sum + 32_768.0) / 65_536.0).floor();
                [
                    luma + part(fixed(1.402) * cr),
                    luma + part(-fixed(0.344_14) * cb - fixed(0.714_14) * cr),
                    luma + part(fixed(1.772) * cb),
                ]
                .map(|v| v.clamp(0.0, 255.0))
            }
        }
    }
}

/// The pixel of `0..full` that padding shows at pixel `j`, found one step at a time.
fn padded(padding: Padding, mut j: i64, full: i64) -> Option<i64> {
    while j < 0 || j >= full {
        j = match padding {
            Padding::Constant => return None,
            Padding::Edge => j.clamp(0, full - 1),
            Padding::Reflect if full == 1 => 0,
            Padding::Reflect if j < 0 => -j,
            Padding::Reflect => 2 * (full - 1) - j,
            Padding::Symmetric if j < 0 => -1 - j,
            Padding::Symmetric => 2 * full - 1 - j,
        };
    }
    Some(j)
}

/// The source pixels of an output pixel and their weights.
type Taps = Vec<(u32, f64)>;

/// The weights of each of `n` output pixels of an axis, `None` for a filled pixel: torch's nearest pixels, or PIL's
/// `precompute_coeffs`.
fn taps(axis: &Axis, n: u32, view: &View) -> Vec<Option<Taps>> {
    let scale = f64::from(axis.length) / f64::from(axis.resized);
    let nearest = |at: f32| {
        let x = (at * (axis.length as f32 / axis.resized as f32)).floor() as u32;
        vec![(axis.start + x.min(axis.length - 1), 1.0)]
    };
    let filtered = |j: i64, support: f64, weight: fn(f64) -> f64| {
        let reach = support * scale.max(1.0);
        let centre = (j as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).trunc().max(0.0) as u32;
        let end = ((centre + reach + 0.5).trunc() as u32).min(axis.length);
        let raw = |x: u32| weight(((f64::from(x) + 0.5 - centre) / scale.max(1.0)).abs());
        let sum: f64 = (first..end).map(raw).sum();
        (first..end).map(|x| (axis.start + x, raw(x) / sum)).collect()
    };
    let one = |o: u32| {
        let j = padded(view.padding, i64::from(o) + i64::from(axis.offset), i64::from(axis.resized))?;
        let [before, behind] = axis.filled.map(i64::from);
        if j < before || j >= i64::from(axis.resized) - behind {
            return None;
        }
        Some(match view.filter {
            Filter::Nearest => nearest(j as f32),
            Filter::NearestExact => nearest(j as f32 + 0.5),
            Filter::Bilinear => filtered(j, 1.0, |x| (1.0 - x).max(0.0)),
            Filter::Bicubic => filtered(j, 2.0, |x| match x {
                x if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
                x if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
                _ => 0.0,
            }),
            Filter::Lanczos => filtered(j, 3.0, |x| if x < 3.0 { sinc(x) * sinc(x / 3.0) } else { 0.0 }),
        })
    };
    (0..n).map(one).collect()
}

fn sinc(x: f64) -> f64 {
    let angle = std::f64::consts::PI * x;
    if x == 0.0 { 1.0 } else { angle.sin() / angle }
}

/// Resizes along x, then along y, to channel-first levels. `sources` gives the source rows of a row of pixels, `value`
/// gives a pixel of a source row; `between` and `after` are applied to the results of the first and second pass.
fn resize(
    view: &View,
    output: &Output,
    channels: usize,
    sources: impl Fn(usize, u32) -> Taps,
    value: impl Fn(usize, u32, u32) -> f64,
    (between, after): (impl Fn(f64) -> f64, impl Fn(f64) -> f64),
) -> Vec<Option<f64>> {
    let (columns, rows) = (taps(&view.x, output.width, view), taps(&view.y, output.height, view));
    let mut out = Vec::new();
    for c in 0..channels {
        let mut narrowed = HashMap::<u32, Vec<f64>>::new();
        let mut narrow = |row: u32| {
            let column = |taps: &Option<Taps>| {
                between(taps.iter().flatten().map(|&(x, w)| value(c, x, row) * w).sum())
            };
            narrowed.entry(row).or_insert_with(|| columns.iter().map(column).collect()).clone()
        };
        for o in 0..rows.len() {
            let taps = &rows[if view.vertical_flip { rows.len() - 1 - o } else { o }];
            let mut sums = vec![0.0; columns.len()];
            for (y, weight) in taps.iter().flatten() {
                for (row, share) in sources(c, *y) {
                    sums.iter_mut().zip(narrow(row)).for_each(|(sum, v)| *sum += weight * share * v);
                }
            }
            for o in 0..columns.len() {
                let o = if view.flip { columns.len() - 1 - o } else { o };
                out.push((taps.is_some() && columns[o].is_some()).then(|| after(sums[o])));
            }
        }
    }
    out
}

/// The grey levels that PIL gives if it crops and resizes libjpeg's pixels.
pub fn exact(image: &Image, view: &View, output: &Output) -> Vec<f64> {
    let value = |c: usize, x, y| image.rgb(x, y)[c];
    // PIL's weights have 22 bits, so results near a half are rounded up like halves.
    let round = |v: f64| (v + 0.5 + 1e-9).floor().clamp(0.0, 255.0);
    let rows = |_, y| vec![(y, 1.0)];
    let levels = resize(view, output, 3, rows, value, (round, round)).into_iter().enumerate();
    let plane = (output.width * output.height) as usize;
    levels.map(|(i, level)| level.unwrap_or(f64::from(output.fill[i / plane]))).collect()
}

/// The grey levels of the resized planes, which are converted to RGB at the output size.
pub fn fast(image: &Image, view: &View, output: &Output) -> Vec<f64> {
    let rows = |c, y| image.sources(c, false, y);
    let value = |c: usize, x, row| {
        let (_, _, width, _, samples) = &image.components[c];
        let sources = image.sources(c, true, x).into_iter();
        sources.map(|(x, share)| share * f64::from(samples[(row * width + x) as usize])).sum()
    };
    let clamp = |v: f64| v.clamp(0.0, 255.0);
    let planes = resize(view, output, image.components.len(), rows, value, (clamp, |v| v));
    let n = (output.width * output.height) as usize;
    let pixel = |i: usize| {
        let Some(first) = planes[i] else { return output.fill.map(f64::from) };
        let v = |c: usize| planes[c * n + i].unwrap();
        let rgb = match image.color {
            ColorModel::Gray => [first; 3],
            ColorModel::Rgb => [first, v(1), v(2)],
            ColorModel::YCbCr => {
                let (y, cb, cr) = (first, v(1) - 128.0, v(2) - 128.0);
                [y + 1.402 * cr, y - 0.344_136_286 * cb - 0.714_136_286 * cr, y + 1.772 * cb]
            }
        };
        rgb.map(clamp)
    };
    let pixels: Vec<_> = (0..n).map(pixel).collect();
    (0..3).flat_map(|c| pixels.iter().map(move |p| p[c])).collect()
}
