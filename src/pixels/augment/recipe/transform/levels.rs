//! Transforms of grey levels, the same for every pixel of a channel.

use super::values::{BadParameter, half, probability, within};
use super::{PixelDraw, PixelTransform};
use crate::augment::ops::PixelOp;
use serde::Deserialize;

/// Makes the negative at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomInvert {
    /// The probability of the negative.
    #[serde(default = "half")]
    p: f64,
}

impl PixelTransform for RandomInvert {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_at_random(self.p, PixelOp::Invert)
    }
}

/// Keeps the highest bits of levels at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// The number of bits, 0 to 8.
    bits: u32,
    /// The probability of keeping no others.
    #[serde(default = "half")]
    p: f64,
}

impl PixelTransform for RandomPosterize {
    fn check(&self) -> Result<(), BadParameter> {
        within("bits", self.bits.into(), 0.0, 8.0, "a whole number from 0 to 8")?;
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_at_random(self.p, PixelOp::Posterize { bits: self.bits })
    }
}

/// Inverts the high levels at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// The first level that is inverted, 0 to 255.
    threshold: f64,
    /// The probability of inverting.
    #[serde(default = "half")]
    p: f64,
}

impl PixelTransform for RandomSolarize {
    fn check(&self) -> Result<(), BadParameter> {
        within("threshold", self.threshold, 0.0, 255.0, "a grey level from 0 to 255")?;
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_at_random(self.p, PixelOp::Solarize { threshold: self.threshold })
    }
}

/// Stretches the levels of each channel at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAutocontrast {
    /// The probability of stretching.
    #[serde(default = "half")]
    p: f64,
}

impl PixelTransform for RandomAutocontrast {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_at_random(self.p, PixelOp::Autocontrast)
    }
}

/// Makes the histogram of each channel even at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomEqualize {
    /// The probability of an even histogram.
    #[serde(default = "half")]
    p: f64,
}

impl PixelTransform for RandomEqualize {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_at_random(self.p, PixelOp::Equalize)
    }
}
