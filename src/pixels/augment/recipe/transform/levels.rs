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

transform! {
    /// Keeps only the highest bits of each value, at random.
    pub RandomPosterize {
        /// The number of bits that are kept, 0 to 8.
        bits: u32;
        /// The probability that an image is posterised.
        p: f64 = 0.5;
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

transform! {
    /// Stretches the values of each channel to 0..255, at random.
    pub RandomAutocontrast {
        /// The probability that an image is stretched.
        p: f64 = 0.5;
    }
}

transform! {
    /// Equalises the histogram of each channel, at random.
    pub RandomEqualize {
        /// The probability that an image is equalised.
        p: f64 = 0.5;
    }
}

/// Implements [`PixelTransform`] for transforms that apply one operation with the probability `p`. A transform with
/// another parameter has a check of it.
macro_rules! with_probability {
    ($($name:ident: |$transform:pat_param| $op:expr $(, $check:expr)?;)+) => {$(
        impl PixelTransform for $name {
            fn check(&self) -> Result<(), BadParameter> {
                $(
                    let $transform = self;
                    $check?;
                )?
                check_probability("p", self.p)
            }

            fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
                let $transform = self;
                draw.push_with_probability(self.p, $op)
            }
        }
    )+};
}
pub(super) use with_probability;

with_probability! {
    RandomInvert: |_| PixelOp::Invert;
    RandomPosterize: |&Self { bits, .. }| PixelOp::Posterize { bits },
        check_range("bits", bits.into(), 0.0, 8.0, "a whole number from 0 to 8");
    RandomSolarize: |&Self { threshold, .. }| PixelOp::Solarize { threshold },
        check_range("threshold", threshold, 0.0, 255.0, "a grey level from 0 to 255");
    RandomAutocontrast: |_| PixelOp::Autocontrast;
    RandomEqualize: |_| PixelOp::Equalize;
}
