//! Transforms that compute each pixel from its neighbours.

use super::table::{ParameterKind, parameter_types, transform};
use super::values::{BadParameter, MAX_SIDE, NumberOrBounds, check_bounds, check_probability, check_range};
use super::{PixelDraw, PixelPlace, PixelTransform};
use crate::augment::ImageSize;
use crate::augment::ops::PixelOp;
use serde::Deserialize;

transform! {
    /// Blurs with a Gaussian filter of random width. The image is mirrored at its borders.
    pub GaussianBlur {
        /// The odd number of pixels that the filter covers along x and y, or (along x, along y). The sides of an image
        /// must be larger than half of it.
        kernel_size: KernelSize;
        /// The standard deviation in pixels, or its bounds (uniform between them).
        sigma: NumberOrBounds = [0.1, 2.0];
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be an odd number of pixels, or two (along x and y)")]
enum KernelSize {
    One(u32),
    /// The sizes along x and along y.
    Both([u32; 2]),
}

parameter_types! {
    KernelSize: ParameterKind::new("int | Sequence[int]", "kernel_size");
}

impl GaussianBlur {
    fn kernel_size(&self) -> [u32; 2] {
        match self.kernel_size {
            KernelSize::One(side) => [side; 2],
            KernelSize::Both(sides) => sides,
        }
    }

    /// Checks that the filter does not reach beyond the image and its reflected borders.
    fn fits(&self, ImageSize { width, height }: ImageSize) -> Result<(), String> {
        let [x, y] = self.kernel_size();
        if width > x / 2 && height > y / 2 {
            return Ok(());
        }
        Err(format!(
            "cannot blur an image of {width}×{height} pixels with a kernel of {x}×{y}: kernel_size must be less than \
             twice the image's side"
        ))
    }
}

impl PixelTransform for GaussianBlur {
    fn check(&self) -> Result<(), BadParameter> {
        if let Some(side) = self.kernel_size().into_iter().find(|side| side % 2 == 0 || *side > MAX_SIDE) {
            let message = format!("is {side}, must be an odd number of pixels below {MAX_SIDE}");
            return Err(BadParameter::new("kernel_size", message));
        }
        check_bounds("sigma", self.sigma.as_bounds(), f64::MIN_POSITIVE, f64::MAX, "above 0, and low <= high")
    }

    fn check_place(&self, PixelPlace { is_float, size }: PixelPlace) -> Result<(), String> {
        if is_float {
            return Err("works on uint8 grey levels: put it before ToDtype".into());
        }
        size.map_or(Ok(()), |size| self.fits(size))
    }

    fn is_random(&self) -> bool {
        let [low, high] = self.sigma.as_bounds();
        low < high
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        self.fits(draw.size())?;
        let [low, high] = self.sigma.as_bounds();
        let sigma = draw.stream.uniform(low, high);
        draw.push(PixelOp::GaussianBlur { kernel_size: self.kernel_size(), sigma: [sigma; 2] });
        Ok(())
    }
}

transform! {
    /// Sharpens or smooths at random.
    pub RandomAdjustSharpness {
        /// The factor of the sharpness, at least 0: 0 smooths, 1 changes nothing, 2 sharpens.
        sharpness_factor: f64;
        /// The probability that an image is changed.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomAdjustSharpness {
    fn check(&self) -> Result<(), BadParameter> {
        check_range("sharpness_factor", self.sharpness_factor, 0.0, f64::MAX, "a number of at least 0")?;
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(
            self.p,
            PixelOp::AdjustSharpness { sharpness_factor: self.sharpness_factor },
        )
    }
}
