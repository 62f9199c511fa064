//! A new view of a photograph: cropped, rotated, sheared, seen in perspective, flipped, with shifted colours.

use super::photos::{Photo, Pixel, PixelGrid};
use base::rng::RandomStream;

/// A projective map from an output pixel to source coordinates: `(a·x + b·y + c) / (g·x + h·y + 1)` for each
/// coordinate, with its own `a`, `b` and `c`.
struct Homography {
    x: [f64; 3],
    y: [f64; 3],
    w: [f64; 2],
}

impl Homography {
    /// Makes the map that takes (0, 0), (1, 0), (1, 1), (0, 1) to the four `corners`.
    ///
    /// See Heckbert, "Fundamentals of Texture Mapping and Image Warping" (1989), section 2.2.3.
    fn unit_square_to(corners: [[f64; 2]; 4]) -> Self {
        let [p0, p1, p2, p3] = corners;
        let d1 = [p1[0] - p2[0], p1[1] - p2[1]];
        let d2 = [p3[0] - p2[0], p3[1] - p2[1]];
        let sum = [p0[0] - p1[0] + p2[0] - p3[0], p0[1] - p1[1] + p2[1] - p3[1]];
        let determinant = d1[0] * d2[1] - d2[0] * d1[1];
        let g = (sum[0] * d2[1] - d2[0] * sum[1]) / determinant;
        let h = (d1[0] * sum[1] - sum[0] * d1[1]) / determinant;
        let row = |i: usize| [p1[i] - p0[i] + g * p1[i], p3[i] - p0[i] + h * p3[i], p0[i]];
        Self { x: row(0), y: row(1), w: [g, h] }
    }

    fn scaled(&self, input: [f64; 2], output: f64) -> Self {
        let row = |r: [f64; 3]| [output * r[0] * input[0], output * r[1] * input[1], output * r[2]];
        Self { x: row(self.x), y: row(self.y), w: [self.w[0] * input[0], self.w[1] * input[1]] }
    }

    fn at(&self, x: f64, y: f64) -> (f32, f32) {
        let scale = 1.0 / (self.w[0] * x + self.w[1] * y + 1.0);
        let row = |r: &[f64; 3]| ((r[0] * x + r[1] * y + r[2]) * scale) as f32;
        (row(&self.x), row(&self.y))
    }
}

/// Draws a random view of `photo` with `width`×`height` pixels, values nominally 0 to 255, not yet clamped.
pub(crate) fn view(photo: &Photo, width: usize, height: usize, random: &mut RandomStream) -> PixelGrid {
    let (corners, scale) = quadrilateral(&photo.levels[0], width, height, random);
    // Choose the level whose pixel size is nearest to the output's: at most 1.4 source pixels per output pixel.
    let level = ((scale.log2() + 0.5).floor().max(0.0) as usize).min(photo.levels.len() - 1);
    let map = Homography::unit_square_to(corners)
        .scaled([1.0 / width as f64, 1.0 / height as f64], 0.5f64.powi(level as i32));
    let mut image = resample(&photo.levels[level], &map, width, height);
    recolour(&mut image, random);
    image
}

/// Draws the positions of the view's four corners in the photograph (clockwise from the top left), and the source
/// pixels per output pixel.
fn quadrilateral(
    full: &PixelGrid,
    width: usize,
    height: usize,
    random: &mut RandomStream,
) -> ([[f64; 2]; 4], f64) {
    let (w, h) = (width as f64, height as f64);
    let angle = random.uniform(-0.12, 0.12);
    let shear = random.uniform(-0.08, 0.08);
    let stretch = random.uniform(0.92, 1.09);
    let mut corners = [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]].map(|[x, y]: [f64; 2]| {
        let slant = [1.0 + random.uniform(-0.05, 0.05), 1.0 + random.uniform(-0.05, 0.05)];
        let (x, y) = (x * w * stretch * slant[0], y * h * slant[1]);
        let x = x + shear * y;
        [x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()]
    });
    if random.unit() < 0.5 {
        corners = [corners[1], corners[0], corners[3], corners[2]];
    }
    let bounds = |axis: usize| {
        let values = corners.map(|c| c[axis]);
        (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(f64::MIN, f64::max))
    };
    let ((left, right), (top, bottom)) = (bounds(0), bounds(1));
    let room = [full.width as f64 - 1.0, full.height as f64 - 1.0];
    let largest = (room[0] / (right - left)).min(room[1] / (bottom - top));
    let scale = largest * random.uniform(0.7, 1.0);
    let x = random.uniform(0.0, room[0] - scale * (right - left)) - scale * left;
    let y = random.uniform(0.0, room[1] - scale * (bottom - top)) - scale * top;
    (corners.map(|c| [c[0] * scale + x, c[1] * scale + y]), scale)
}

/// Resamples by cubic convolution with a = −1/2 (Keys, "Cubic Convolution Interpolation", 1981).
fn resample(source: &PixelGrid, map: &Homography, width: usize, height: usize) -> PixelGrid {
    let mut pixels = Vec::with_capacity(width * height);
    let last = [source.width - 1, source.height - 1];
    for y in 0..height {
        for x in 0..width {
            let (u, v) = map.at(x as f64 + 0.5, y as f64 + 0.5);
            let u = u.clamp(0.0, last[0] as f32);
            let v = v.clamp(0.0, last[1] as f32);
            let (column, row) = (u as usize, v as usize);
            let (horizontal, vertical) = (cubic(u - column as f32), cubic(v - row as f32));
            let inside = column >= 1 && column + 2 <= last[0] && row >= 1 && row + 2 <= last[1];
            let mut sum = [0.0; 4];
            for (j, weight) in vertical.into_iter().enumerate() {
                let line = (row + j).saturating_sub(1).min(last[1]) * source.width;
                let mut part = [0.0; 4];
                if inside {
                    let taps = &source.pixels[line + column - 1..][..4];
                    taps.iter().zip(horizontal).for_each(|(tap, weight)| accumulate(&mut part, tap, weight));
                } else {
                    for (i, weight) in horizontal.into_iter().enumerate() {
                        let tap = &source.pixels[line + (column + i).saturating_sub(1).min(last[0])];
                        accumulate(&mut part, tap, weight);
                    }
                }
                accumulate(&mut sum, &part, weight);
            }
            pixels.push(sum);
        }
    }
    PixelGrid { width, height, pixels }
}

fn accumulate(sum: &mut Pixel, pixel: &Pixel, weight: f32) {
    for (s, p) in sum.iter_mut().zip(pixel) {
        *s += weight * p;
    }
}

/// The weights of four neighbouring pixels, for a point at distance `t` after the second pixel, 0 ≤ t < 1.
fn cubic(t: f32) -> [f32; 4] {
    let (t2, t3) = (t * t, t * t * t);
    [-0.5 * t3 + t2 - 0.5 * t, 1.5 * t3 - 2.5 * t2 + 1.0, -1.5 * t3 + 2.0 * t2 + 0.5 * t, 0.5 * t3 - 0.5 * t2]
}

fn recolour(image: &mut PixelGrid, random: &mut RandomStream) {
    let contrast = random.uniform(0.85, 1.08) as f32;
    let brightness = random.uniform(-12.0, 12.0) as f32;
    let saturation = random.uniform(0.75, 1.1) as f32;
    let gains = [random.uniform(0.93, 1.07), random.uniform(0.95, 1.05), random.uniform(0.93, 1.07)];
    let gains = [gains[0] as f32, gains[1] as f32, gains[2] as f32, 0.0];
    for pixel in &mut image.pixels {
        let gray = 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
        for (value, gain) in pixel.iter_mut().zip(gains) {
            let value_here = (gray + saturation * (*value - gray)) * gain;
            *value = 128.0 + contrast * (value_here - 128.0) + brightness;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(width: usize, height: usize) -> PixelGrid {
        let pixel = |i: usize| [(i % width) as f32, (i / width) as f32, 7.0, 0.0];
        PixelGrid { width, height, pixels: (0..width * height).map(pixel).collect() }
    }

    #[test]
    fn the_map_takes_the_square_to_its_corners() {
        let corners = [[3.0, 4.0], [90.0, 9.0], [84.0, 77.0], [-5.0, 60.0]];
        let map = Homography::unit_square_to(corners);
        for ([x, y], corner) in [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]].into_iter().zip(corners) {
            let (u, v) = map.at(x, y);
            assert!((f64::from(u) - corner[0]).abs() < 1e-4 && (f64::from(v) - corner[1]).abs() < 1e-4);
        }
    }

    #[test]
    fn resampling_a_ramp_gives_its_coordinates() {
        let map = Homography::unit_square_to([[4.0, 5.0], [40.0, 8.0], [36.0, 30.0], [6.0, 28.0]])
            .scaled([0.1, 0.1], 1.0);
        let image = resample(&ramp(48, 40), &map, 10, 10);
        for (i, pixel) in image.pixels.iter().enumerate() {
            let (u, v) = map.at((i % 10) as f64 + 0.5, (i / 10) as f64 + 0.5);
            assert!(
                (pixel[0] - u).abs() < 1e-3 && (pixel[1] - v).abs() < 1e-3 && (pixel[2] - 7.0).abs() < 1e-4
            );
        }
    }

    #[test]
    fn a_view_stays_inside_the_photograph() {
        let key = base::rng::RandomKey::new(b"warp", 0, 0, base::rng::Use::Augment);
        let full = ramp(451, 300);
        for sample in 0..200 {
            let (corners, scale) = quadrilateral(&full, 500, 375, &mut key.stream(sample));
            assert!(scale > 0.3, "{scale}");
            for [x, y] in corners {
                assert!((-1e-6..=450.000_001).contains(&x) && (-1e-6..=299.000_001).contains(&y), "{x} {y}");
            }
        }
    }
}
