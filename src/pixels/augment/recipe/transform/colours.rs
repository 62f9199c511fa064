//! Transforms of colours: grey, jitter, the order of the channels.

use super::table::transform;
use super::values::{BadParameter, NumberOrBounds, check_bounds, check_probability};
use super::{PixelDraw, PixelTransform};
use crate::augment::ops::PixelOp;
use crate::augment::recipe::distributions::shuffle;
use base::rng::RandomStream;

transform! {
    /// Converts to grey: .2989 R + .587 G + .114 B, truncated, as torchvision does for uint8 tensors.
    ///
    /// It must be after the geometry and before `ToDtype`.
    pub Grayscale {
        /// The number of channels. It must be 3, unlike torchvision's default of 1: images keep R, G and B, which
        /// become equal.
        num_output_channels: u32 = 3;
    }
}

impl PixelTransform for Grayscale {
    fn check(&self) -> Result<(), BadParameter> {
        match self.num_output_channels {
            3 => Ok(()),
            n => {
                let message = format!("is {n}, must be 3: the output keeps R, G and B, which become equal");
                Err(BadParameter::new("num_output_channels", message))
            }
        }
    }

    fn is_random(&self) -> bool {
        false
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push(PixelOp::RgbToGrayscale);
        Ok(())
    }
}

transform! {
    /// Converts to grey at random, as `Grayscale` does.
    pub RandomGrayscale {
        /// The probability that an image is converted.
        p: f64 = 0.1;
    }
}

impl PixelTransform for RandomGrayscale {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        draw.push_with_probability(self.p, PixelOp::RgbToGrayscale)
    }
}

transform! {
    /// Changes brightness, contrast, saturation and hue by random factors, in random order.
    ///
    /// A parameter that is None changes nothing. A factor with equal bounds is fixed: `ColorJitter(brightness=(1.5,
    /// 1.5))`.
    pub ColorJitter {
        /// The largest distance of the factor from 1, but the factor is never below 0; or its bounds, at least 0.
        brightness: Option<NumberOrBounds> = null;
        /// The same for the contrast.
        contrast: Option<NumberOrBounds> = null;
        /// The same for the saturation.
        saturation: Option<NumberOrBounds> = null;
        /// The largest change of the hue, as a fraction of a full rotation from 0 to 0.5; or its bounds, from -0.5 to
        /// 0.5.
        hue: Option<NumberOrBounds> = null;
    }
}

const FACTORS: &str = "a number of at least 0, or two with 0 <= low <= high";

const TURNS: &str = "a number from 0 to 0.5, or two with -0.5 <= low <= high <= 0.5";

impl ColorJitter {
    /// Returns the bounds of the factors of brightness, contrast, saturation and hue; `None` for an operation that
    /// would change nothing.
    fn ranges(&self) -> [Option<[f64; 2]>; 4] {
        let factors = |spread: Option<NumberOrBounds>| {
            let [low, high] = spread?.bounds_around(1.0);
            Some([if matches!(spread, Some(NumberOrBounds::One(_))) { low.max(0.0) } else { low }, high])
        };
        let turns = self.hue.map(|spread| spread.bounds_around(0.0));
        let changes = |range: Option<[f64; 2]>, nothing| range.filter(|range| *range != [nothing; 2]);
        [
            changes(factors(self.brightness), 1.0),
            changes(factors(self.contrast), 1.0),
            changes(factors(self.saturation), 1.0),
            changes(turns, 0.0),
        ]
    }
}

impl PixelTransform for ColorJitter {
    fn check(&self) -> Result<(), BadParameter> {
        let names = ["brightness", "contrast", "saturation", "hue"];
        let given = [self.brightness, self.contrast, self.saturation, self.hue];
        for ((name, given), range) in names.into_iter().zip(given).zip(self.ranges()) {
            let (low, high, what) = if name == "hue" { (-0.5, 0.5, TURNS) } else { (0.0, f64::MAX, FACTORS) };
            match (given, range) {
                (Some(NumberOrBounds::One(far)), _) if !(0.0..=high).contains(&far) => {
                    return Err(BadParameter::new(name, format!("is {far}, must be {what}")));
                }
                (_, Some(range)) => check_bounds(name, range, low, high, what)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        let ranges = self.ranges();
        let mut changing = ranges.iter().flatten();
        // The order of two or more changes is random, even if all their factors are fixed.
        changing.clone().count() > 1 || changing.any(|[low, high]| low < high)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let mut order = [0, 1, 2, 3];
        shuffle(&mut draw.stream, &mut order);
        let factors = self.ranges().map(|range| range.map(|range| between(&mut draw.stream, range)));
        for kind in order {
            if let Some(factor) = factors[kind] {
                draw.push(ADJUSTMENTS[kind](factor));
            }
        }
        Ok(())
    }
}

const ADJUSTMENTS: [fn(f64) -> PixelOp; 4] = [
    |brightness_factor| PixelOp::AdjustBrightness { brightness_factor },
    |contrast_factor| PixelOp::AdjustContrast { contrast_factor },
    |saturation_factor| PixelOp::AdjustSaturation { saturation_factor },
    |hue_factor| PixelOp::AdjustHue { hue_factor },
];

fn between(stream: &mut RandomStream, [low, high]: [f64; 2]) -> f64 {
    stream.uniform(low, high)
}

transform! {
    /// Distorts colours as SSD does: brightness, contrast, saturation and hue, and the order of the channels.
    ///
    /// Contrast changes before saturation and hue, or after them, each with probability 1/2.
    pub RandomPhotometricDistort {
        /// The bounds of the factor of brightness, at least 0.
        brightness: [f64; 2] = [0.875, 1.125], must("two numbers, the least and the largest factor");
        /// The bounds of the factor of contrast.
        contrast: [f64; 2] = [0.5, 1.5], must("two numbers, the least and the largest factor");
        /// The bounds of the factor of saturation.
        saturation: [f64; 2] = [0.5, 1.5], must("two numbers, the least and the largest factor");
        /// The bounds of the change of the hue, as a fraction of a full rotation, from -0.5 to 0.5.
        hue: [f64; 2] = [-0.05, 0.05], must("two numbers, the least and the largest rotation");
        /// The probability of each change.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomPhotometricDistort {
    fn check(&self) -> Result<(), BadParameter> {
        let factors = "0 <= low <= high";
        check_bounds("brightness", self.brightness, 0.0, f64::MAX, factors)?;
        check_bounds("contrast", self.contrast, 0.0, f64::MAX, factors)?;
        check_bounds("saturation", self.saturation, 0.0, f64::MAX, factors)?;
        check_bounds("hue", self.hue, -0.5, 0.5, "-0.5 <= low <= high <= 0.5")?;
        check_probability("p", self.p)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let ranges = [self.brightness, self.contrast, self.saturation, self.hue];
        let factors =
            ranges.map(|range| draw.with_probability(self.p).then(|| between(&mut draw.stream, range)));
        let order = if draw.with_probability(0.5) { [0, 1, 2, 3] } else { [0, 2, 3, 1] };
        for kind in order {
            if let Some(factor) = factors[kind] {
                draw.push(ADJUSTMENTS[kind](factor));
            }
        }
        if draw.with_probability(self.p) {
            let op = permuted(&mut draw.stream);
            draw.push(op);
        }
        Ok(())
    }
}

transform! {
    /// Puts the channels into random order.
    pub RandomChannelPermutation {}
}

impl PixelTransform for RandomChannelPermutation {
    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let op = permuted(&mut draw.stream);
        draw.push(op);
        Ok(())
    }
}

fn permuted(stream: &mut RandomStream) -> PixelOp {
    let mut permutation = [0, 1, 2];
    shuffle(stream, &mut permutation);
    PixelOp::PermuteChannels { permutation }
}
