//! The pass as its definition reads, in double precision and without regard to speed.

use std::fmt;

use foreload::augment::{Axis, Output, View};
use foreload::decode::{ColorModel, Plane, Planes, Region};
use foreload::rng::Stream;

use super::{between, scaled};

/// A whole image as its components.
pub struct Image {
    pub width: u32,
    pub height: u32,
    color: ColorModel,
    /// Image columns and rows a sample spans, columns and rows of samples, samples.
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
    pub fn random(random: &mut Stream, most: u32) -> Self {
        let (width, height) = (scaled(random, 1, most), scaled(random, 1, most));
        Self::sized(random, width, height)
    }

    /// Half noise, half large areas, so that both rounding and clamping have work.
    pub fn sized(random: &mut Stream, width: u32, height: u32) -> Self {
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

    /// What a decoder that is asked for `region` hands over: not a sample more than promised.
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

    /// Component `c` at pixel (x, y), upsampled as libjpeg does: `round` to whole levels with its biases, or not.
    fn pixel(&self, c: usize, x: u32, y: u32, round: bool) -> f64 {
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
        if round { ((sum + bias) / divisor).floor() } else { sum / divisor }
    }

    /// R, G, B of a pixel as libjpeg's tables give them.
    fn rgb(&self, x: u32, y: u32) -> [f64; 3] {
        let v = |c| self.pixel(c, x, y, true);
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

/// Source pixels and weights of each output pixel of an axis, `None` for padding: PIL's `precompute_coeffs`.
fn filter(axis: &Axis, n: u32) -> Vec<Option<Vec<(u32, f64)>>> {
    let scale = f64::from(axis.length) / f64::from(axis.full);
    let reach = scale.max(1.0);
    let one = |o: u32| {
        let j = i64::from(o) + i64::from(axis.window);
        if j < 0 || j >= i64::from(axis.full) {
            return None;
        }
        let centre = (j as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).trunc().max(0.0) as u32;
        let end = ((centre + reach + 0.5).trunc() as u32).min(axis.length);
        let raw = |x: u32| (1.0 - ((f64::from(x) + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..end).map(raw).sum();
        Some((first..end).map(|x| (axis.start + x, raw(x) / sum)).collect())
    };
    (0..n).map(one).collect()
}

/// Resizes along x, then along y, `round`ing after both; channel-first levels. `value` gives a source pixel.
fn resize(
    view: &View,
    output: &Output,
    channels: usize,
    value: impl Fn(usize, u32, u32) -> f64,
    round: impl Fn(f64) -> f64,
) -> Vec<Option<f64>> {
    let (columns, rows) = (filter(&view.x, output.width), filter(&view.y, output.height));
    let region = view.region(output);
    let mut out = Vec::new();
    for c in 0..channels {
        let source: Vec<Vec<f64>> = (region.y..region.y + region.height)
            .map(|y| (region.x..region.x + region.width).map(|x| value(c, x, y)).collect())
            .collect();
        let narrow: Vec<Vec<f64>> = source
            .iter()
            .map(|row| {
                let column = |taps: &Option<Vec<(u32, f64)>>| {
                    round(taps.iter().flatten().map(|&(x, w)| row[(x - region.x) as usize] * w).sum())
                };
                columns.iter().map(column).collect()
            })
            .collect();
        for taps in &rows {
            for o in 0..output.width as usize {
                let o = if view.flip { output.width as usize - 1 - o } else { o };
                let shown = taps.as_ref().filter(|_| columns[o].is_some());
                out.push(shown.map(|taps| {
                    round(taps.iter().map(|&(y, w)| narrow[(y - region.y) as usize][o] * w).sum())
                }));
            }
        }
    }
    out
}

/// Grey levels of PIL's crop and resize of libjpeg's pixels.
pub fn exact(image: &Image, view: &View, output: &Output) -> Vec<f64> {
    let value = |c: usize, x, y| image.rgb(x, y)[c];
    // PIL's weights have 22 bits: halves are all but ties.
    let round = |v: f64| (v + 0.5 + 1e-9).floor();
    resize(view, output, 3, value, round).into_iter().map(|v| v.unwrap_or(0.0)).collect()
}

/// Grey levels of the planes' resize, converted at output size.
pub fn fast(image: &Image, view: &View, output: &Output) -> Vec<f64> {
    let value = |c, x, y| image.pixel(c, x, y, false);
    let planes = resize(view, output, image.components.len(), value, |v| v);
    let n = (output.width * output.height) as usize;
    let pixel = |i: usize| {
        let v = |c: usize| planes[c * n + i];
        let rgb = match image.color {
            ColorModel::Gray => [v(0); 3],
            ColorModel::Rgb => [v(0), v(1), v(2)],
            ColorModel::YCbCr => {
                let ycc = v(0).map(|y| (y, v(1).unwrap() - 128.0, v(2).unwrap() - 128.0));
                [
                    ycc.map(|(y, _, cr)| y + 1.402 * cr),
                    ycc.map(|(y, cb, cr)| y - 0.344_136_286 * cb - 0.714_136_286 * cr),
                    ycc.map(|(y, cb, _)| y + 1.772 * cb),
                ]
            }
        };
        rgb.map(|v| v.unwrap_or(0.0).clamp(0.0, 255.0))
    };
    let pixels: Vec<_> = (0..n).map(pixel).collect();
    (0..3).flat_map(|c| pixels.iter().map(move |p| p[c])).collect()
}
