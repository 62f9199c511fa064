//! Transforms of grey levels, the same for every pixel of a channel.

use super::table::transform;
use super::values::{BadParameter, probability, within};
use super::{PixelDraw, PixelTransform};
use crate::augment::ops::PixelOp;

transform! {
    /// Makes the negative at random: level x becomes 255 - x.
    pub RandomInvert {
        /// The probability of the negative.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomInvert {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Invert)
    }
}

transform! {
    /// Keeps the highest bits of each level, at random.
    pub RandomPosterize {
        /// The number of bits that are kept, 0 to 8.
        bits: u32;
        /// The probability that only these are kept.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomPosterize {
    fn check(&self) -> Result<(), BadParameter> {
        within("bits", self.bits.into(), 0.0, 8.0, "a whole number from 0 to 8")?;
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Posterize { bits: self.bits })
    }
}

transform! {
    /// Inverts levels from a threshold on, at random.
    pub RandomSolarize {
        /// The first level that is inverted, 0 to 255.
        threshold: f64;
        /// The probability of inverting.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomSolarize {
    fn check(&self) -> Result<(), BadParameter> {
        within("threshold", self.threshold, 0.0, 255.0, "a grey level from 0 to 255")?;
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Solarize { threshold: self.threshold })
    }
}

transform! {
    /// Stretches the levels of each channel to 0..255, at random.
    pub RandomAutocontrast {
        /// The probability of stretching.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomAutocontrast {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Autocontrast)
    }
}

transform! {
    /// Makes the histogram of each channel even, at random.
    pub RandomEqualize {
        /// The probability of an even histogram.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomEqualize {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Equalize)
    }
}
