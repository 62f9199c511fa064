//! The element type and scale of the result, which every list has.

use super::values::BadParameter;
use crate::augment::DType;
use serde::Deserialize;

/// Converts the element type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToDtype {
    /// The element type of the result.
    pub dtype: DType,
    /// Whether floats are scaled to 0..1; otherwise they stay in 0..255.
    #[serde(default = "yes")]
    pub scale: bool,
}

fn yes() -> bool {
    true
}

impl ToDtype {
    pub(super) fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }
}

/// Subtracts the mean and divides by the deviation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// The mean of each channel.
    pub mean: [f32; 3],
    /// The standard deviation of each channel.
    pub std: [f32; 3],
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
