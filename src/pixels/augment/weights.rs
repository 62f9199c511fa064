//! The filters of a resize along one axis.

use std::ops::Range;

use super::Filter;

/// The filter of a resize from `length` to `full` pixels. The antialiased filters are the filters of PIL's
/// `precompute_coeffs`: scaled to the larger of a source pixel and an output pixel, centred on the output pixel, and
/// normalised to sum 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    filter: Filter,
    length: u32,
    scale: f64,
    support: f64,
    /// The factor that turns a distance in source pixels into the argument of the filter function.
    pub(super) inverse: f64,
}

impl Resize {
    pub(super) fn new(filter: Filter, length: u32, full: u32) -> Self {
        let scale = scale(filter, length, full);
        let wide = scale.max(1.0);
        let support = match filter {
            Filter::Nearest | Filter::NearestExact => 0.0,
            Filter::Bilinear => wide,
            Filter::Bicubic => 2.0 * wide,
            Filter::Lanczos => 3.0 * wide,
        };
        Self { filter, length, scale, support, inverse: 1.0 / wide }
    }

    #[inline(always)]
    pub(super) fn centre(&self, j: u32) -> f64 {
        (f64::from(j) + 0.5) * self.scale
    }

    /// The source pixels under the filter of output pixel `j`; never empty.
    #[inline(always)]
    pub(super) fn bounds(&self, j: u32) -> Range<u32> {
        let first = match self.filter {
            Filter::Nearest => self.nearest(j as f32),
            Filter::NearestExact => self.nearest(j as f32 + 0.5),
            Filter::Bilinear | Filter::Bicubic | Filter::Lanczos => return self.window(j),
        };
        first..first + 1
    }

    #[inline(always)]
    pub(super) fn window(&self, j: u32) -> Range<u32> {
        let centre = self.centre(j);
        // PIL truncates, and clips at 0.
        let pixel = |place: f64| truncated(place).max(0) as u32;
        let first = pixel(centre - self.support + 0.5).min(self.length - 1);
        let last = pixel(centre + self.support + 0.5).min(self.length);
        first..last.max(first + 1)
    }

    fn nearest(&self, at: f32) -> u32 {
        ((at * self.scale as f32) as u32).min(self.length - 1)
    }

    /// Returns an upper limit on the number of pixels in [`Resize::bounds`].
    pub(super) fn widest(&self) -> usize {
        self.support.ceil() as usize * 2 + 2
    }
}

/// Returns the number of source pixels that an output pixel spans. For the nearest filters, torch computes this number
/// in float32.
pub(super) fn scale(filter: Filter, length: u32, full: u32) -> f64 {
    match filter {
        Filter::Nearest | Filter::NearestExact => f64::from(length as f32 / full as f32),
        Filter::Bilinear | Filter::Bicubic | Filter::Lanczos => f64::from(length) / f64::from(full),
    }
}

/// Truncates a value towards zero and saturates it at ±(2^31 - 1).
#[inline(always)]
pub(super) fn truncated(value: f64) -> i32 {
    const LIMIT: f64 = i32::MAX as f64;
    // NaN fails the comparison and becomes the lower bound.
    let value = if value > -LIMIT { value } else { -LIMIT };
    let value = if value < LIMIT { value } else { LIMIT };
    // SAFETY: the value fits an `i32`. The checks of `as` would keep compilers from vectorising loops.
    unsafe { value.to_int_unchecked() }
}

/// The triangle filter: 1 at distance 0, falling linearly to 0 at distance 1.
#[inline(always)]
pub(super) fn triangle(distance: f64) -> f64 {
    (1.0 - distance).max(0.0)
}

/// Keys' cubic convolution with a = -0.5.
#[inline(always)]
pub(super) fn cubic(distance: f64) -> f64 {
    let near = ((1.5 * distance - 2.5) * distance) * distance + 1.0;
    let far = (((distance - 5.0) * distance + 8.0) * distance - 4.0) * -0.5;
    if distance < 1.0 {
        near
    } else if distance < 2.0 {
        far
    } else {
        0.0
    }
}

/// The coefficients, in descending powers, of the polynomial in x² whose value is sinc(x / 3) = sin(πx/3) / (πx/3) for
/// x from 0 to 3. It is a Chebyshev approximation with an error below 7·10⁻¹². This is precise enough, because weights
/// are rounded to at most 20 bits after the binary point.
const SINC: [f64; 8] = [
    -1.260695612291763e-12,
    2.764675948253526e-10,
    -3.970979471909898e-8,
    3.98525562179852e-6,
    -0.00026166210645690554,
    0.010021511194583416,
    -0.18277045177413956,
    0.999999999993119,
];

/// The factor 4π²/27 of [`lanczos`].
const LOBES: f64 = 1.4621636149762012;

/// The sinc function windowed by its own middle lobe, sinc(x) · sinc(x / 3). A polynomial replaces the sine, so that a
/// GPU computes the same bits. With s = sinc(x / 3) and sin 3α = 3 sin α − 4 sin³ α, it is s² (1 − 4π²/27 · s² x²).
#[inline(always)]
pub(super) fn lanczos(distance: f64) -> f64 {
    let square = distance * distance;
    let mut sinc = SINC[0];
    for coefficient in &SINC[1..] {
        sinc = sinc * square + coefficient;
    }
    let window = sinc * sinc;
    if distance < 3.0 { window * (1.0 - LOBES * (window * square)) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pillow computes `sinc(x) * sinc(x / 3)`.
    #[test]
    fn lanczos_is_a_windowed_sinc() {
        let sinc = |x: f64| {
            let angle = std::f64::consts::PI * x;
            if x == 0.0 { 1.0 } else { libm::sin(angle) / angle }
        };
        for distance in (0..=4000).map(|thousandth| f64::from(thousandth) / 1000.0) {
            let expected = if distance < 3.0 { sinc(distance) * sinc(distance / 3.0) } else { 0.0 };
            assert!((lanczos(distance) - expected).abs() < 5e-11, "{distance}");
        }
    }
}
