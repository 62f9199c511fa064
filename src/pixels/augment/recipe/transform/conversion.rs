//! Transforms that set the element type and the scale of the result.

use super::table::transform;
use super::values::BadParameter;
use crate::augment::DType;

transform! {
    /// Converts the images' element type.
    pub ToDtype {
        /// The element type: `float32`, `float16`, `bfloat16` or `uint8`, as a text, or as a type of NumPy or torch.
        pub dtype: DType;
        /// Whether floats are scaled to 0..1, unlike torchvision's default. False: they have values of 0..255, also for
        /// `Normalize`.
        pub scale: bool = true;
    }
}

impl ToDtype {
    pub(super) fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }
}

transform! {
    /// Subtracts the mean of each channel and divides by the standard deviation.
    pub Normalize {
        /// The means of R, G and B, on the scale of the values, which is 0..1 after `ToDtype(dtype)`.
        pub mean: [f32; 3], must("three numbers, for R, G and B");
        /// The standard deviations of R, G and B, on the same scale.
        pub std: [f32; 3], must("three numbers, for R, G and B");
    }
}

impl Normalize {
    pub(super) fn check(&self) -> Result<(), BadParameter> {
        let Self { mean, std } = self;
        if !mean.iter().all(|mean| mean.is_finite()) {
            return Err(BadParameter::new("mean", format!("is {mean:?}, must be finite numbers")));
        }
        if !std.iter().all(|std| std.is_finite() && *std > 0.0) {
            return Err(BadParameter::new("std", format!("is {std:?}, must be numbers above 0")));
        }
        Ok(())
    }
}
