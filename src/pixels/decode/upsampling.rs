//! libjpeg-turbo's chroma upsampling and colour conversion. This code is plain and slow: common images are upsampled
//! and converted while they are resized.

use super::{ColorModel, Plane, Planes, Region};

/// The way in which the samples of a component become pixels along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upsampling {
    /// One sample per pixel.
    None,
    /// Two pixels per sample. A pixel is ¾ of the nearer sample and ¼ of the next nearest sample (libjpeg's "fancy"
    /// upsampling).
    Linear {
        /// The number of samples of the whole component along this axis.
        samples: u32,
    },
    /// Each sample is repeated this many times.
    Repeat(u32),
}

impl Upsampling {
    /// The methods by which libjpeg upsamples a component along x and y (`jinit_upsampler` in libjpeg's jdsample.c).
    /// Along each axis, `full` is the number of the component's samples, and `step` is the number of pixels that a
    /// sample spans.
    ///
    /// Factors of 2 are linear. But with a horizontal factor of 2, samples are repeated if the component has at most
    /// two columns. If either factor is neither 1 nor 2, samples are repeated.
    pub fn of(full: [u32; 2], step: [u32; 2]) -> (Self, Self) {
        let (linear_x, linear_y) = match step {
            [2, 1 | 2] => (full[0] > 2, full[0] > 2 && step[1] == 2),
            [1, 2] => (false, true),
            _ => (false, false),
        };
        let method = |linear, step, samples| match (linear, step) {
            (true, _) => Self::Linear { samples },
            (false, 1) => Self::None,
            (false, step) => Self::Repeat(step),
        };
        (method(linear_x, step[0], full[0]), method(linear_y, step[1], full[1]))
    }

    /// The samples from which pixel `at` is computed: the nearest sample and, with linear upsampling, the neighbour of
    /// that sample on the pixel's side. At the image's edges the neighbour is the sample itself.
    pub fn samples_of(self, at: u32) -> (u32, Option<u32>) {
        match self {
            Self::None => (at, None),
            Self::Repeat(step) => (at / step, None),
            Self::Linear { samples } if at % 2 == 1 => (at / 2, Some((at / 2 + 1).min(samples - 1))),
            Self::Linear { .. } => (at / 2, Some((at / 2).saturating_sub(1))),
        }
    }
}

impl Plane {
    /// The methods by which libjpeg upsamples this component along x and y.
    pub fn upsampling(&self) -> (Upsampling, Upsampling) {
        Upsampling::of([self.full_width, self.full_height], [self.step_x, self.step_y])
    }

    pub(super) fn upsample_row(&self, region: &Region, y: u32, out: &mut [u8]) {
        let (across, down) = self.upsampling();
        let (near, next) = down.samples_of(y);
        let stored = |row: u32| &self.data[(row - self.y0) as usize * self.stride..];
        let (near, next) = (stored(near), next.map(stored));
        if across == Upsampling::None && next.is_none() {
            out.copy_from_slice(&near[(region.x - self.x0) as usize..][..out.len()]);
            return;
        }
        let sum = |column: u32| {
            let at = (column - self.x0) as usize;
            next.map_or(u32::from(near[at]), |next| 3 * u32::from(near[at]) + u32::from(next[at]))
        };
        for (x, out) in (region.x..).zip(out) {
            let (column, next_column) = across.samples_of(x);
            // The bias alternates between pixels, so that halves are rounded up and down equally often.
            *out = match next_column.map(|next| 3 * sum(column) + sum(next)) {
                None if next.is_none() => sum(column),
                None => (sum(column) + 1 + y % 2) >> 2,
                Some(both) if next.is_none() => (both + 1 + x % 2) >> 2,
                Some(both) => (both + 8 - x % 2) >> 4,
            } as u8;
        }
    }
}

impl Planes {
    /// The interleaved RGB pixels of the image, whose planes must store the whole image.
    pub fn rgb(&self) -> Vec<u8> {
        let (width, height) = (self.image_width, self.image_height);
        let whole = Region { x: 0, y: 0, width, height };
        let mut rows: [Vec<u8>; 3] = std::array::from_fn(|_| vec![0; width as usize]);
        let mut pixels = Vec::with_capacity(3 * width as usize * height as usize);
        for y in 0..height {
            let count = if self.color == ColorModel::Gray { 1 } else { 3 };
            for (plane, row) in self.planes[..count].iter().zip(&mut rows) {
                plane.upsample_row(&whole, y, row);
            }
            pixels.extend((0..width as usize).flat_map(|x| match self.color {
                ColorModel::Gray => [rows[0][x]; 3],
                ColorModel::YCbCr => ycc_to_rgb(rows[0][x], rows[1][x], rows[2][x]),
                ColorModel::Rgb => [0, 1, 2].map(|i: usize| rows[i][x]),
            }));
        }
        pixels
    }
}

/// Converts YCbCr to RGB as defined by JFIF, with libjpeg's rounding: factors with 16 fractional bits.
pub(super) fn ycc_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let half = 1 << 15;
    [
        y + ((91881 * cr + half) >> 16),
        y + ((-22554 * cb - 46802 * cr + half) >> 16),
        y + ((116130 * cb + half) >> 16),
    ]
    .map(|value| value.clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_convert_as_jfif_says() {
        for (ycc, rgb) in
            [([0, 128, 128], [0; 3]), ([76, 85, 255], [254, 0, 0]), ([150, 44, 21], [0, 255, 1])]
        {
            assert_eq!(ycc_to_rgb(ycc[0], ycc[1], ycc[2]), rgb);
        }
    }
}
