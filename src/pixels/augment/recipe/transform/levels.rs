//! Transforms of grey levels, the same for every pixel of a channel.

use super::table::transform;
use super::values::{BadParameter, check_probability, check_range};
use super::{PixelDraw, PixelTransform};
use crate::augment::ops::PixelOp;

transform! {
    /// Inverts images at random: value x becomes 255 - x.
    pub RandomInvert {
        /// The probability that an image is inverted.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomInvert {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Invert)
    }
}

transform! {
    /// Keeps only the highest bits of each value, at random.
    pub RandomPosterize {
        /// The number of bits that are kept, 0 to 8.
        bits: u32;
        /// The probability that an image is posterised.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomPosterize {
    fn check(&self) -> Result<(), BadParameter> {
        check_range("bits", self.bits.into(), 0.0, 8.0, "a whole number from 0 to 8")?;
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Posterize { bits: self.bits })
    }
}

transform! {
    /// Inverts all values at or above a threshold, at random.
    pub RandomSolarize {
        /// The lowest value that is inverted, 0 to 255.
        threshold: f64;
        /// The probability that an image is solarised.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomSolarize {
    fn check(&self) -> Result<(), BadParameter> {
        check_range("threshold", self.threshold, 0.0, 255.0, "a grey level from 0 to 255")?;
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Solarize { threshold: self.threshold })
    }
}

transform! {
    /// Stretches the values of each channel to 0..255, at random.
    pub RandomAutocontrast {
        /// The probability that an image is stretched.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomAutocontrast {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Autocontrast)
    }
}

transform! {
    /// Equalises the histogram of each channel, at random.
    pub RandomEqualize {
        /// The probability that an image is equalised.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomEqualize {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::Equalize)
    }
}
