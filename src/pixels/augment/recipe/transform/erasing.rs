//! A transform that overwrites a random rectangle of grey levels or of finished values.

use super::table::{ParameterKind, parameter_types, transform};
use super::values::{BadParameter, bounds, check_bounds, check_probability};
use super::{PixelDraw, PixelPlace, PixelTransform};
use crate::augment::ImageSize;
use crate::augment::ops::{Erasure, ErasureValues, PixelOp, Rectangle};
use crate::augment::recipe::distributions::normal;
use base::names::named;
use serde::Deserialize;

/// The number of attempts to draw a rectangle that fits, before nothing is erased.
const TRIES: usize = 10;

// Zhong et al., "Random Erasing Data Augmentation", 2017.
transform! {
    /// Overwrites a random rectangle, at random. Nothing is erased if ten attempts at a rectangle do not fit into the
    /// image.
    ///
    /// It may be anywhere after the geometry. `value` is on the scale of the values at that place: 0 to 255 before
    /// `ToDtype`, floats after it, normalised floats after `Normalize`.
    pub RandomErasing {
        /// The probability that a rectangle is erased.
        p: f64 = 0.5;
        /// The bounds of the rectangle's area, as a fraction of the image's area; uniform between them.
        scale: [f64; 2] = [0.02, 0.33], must("two numbers, the least and the largest area fraction");
        /// The bounds of the rectangle's height / width; log-uniform between them.
        ratio: (f64, f64) = [0.3, 3.3], must("two numbers, the least and the largest height / width");
        /// The values that are written: a number, or three for R, G and B. `random`, or timm's name `pixel`, draws a
        /// standard normal number for each value. `color`, timm's `rand`, draws one for each channel of the rectangle.
        /// Normal numbers need floats.
        value: ErasingValue = 0.0;
    }
}

/// The values that are written into the rectangle, on the value scale of the transform's place in the list (0 to 255
/// before `ToDtype`).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be one number, three numbers, \"random\", \"pixel\" or \"color\"")]
enum ErasingValue {
    One(f64),
    Three([f64; 3]),
    Noise(ErasingNoise),
}

parameter_types! {
    ErasingValue: ParameterKind::new("float | Sequence[float] | str", "erasing_value");
}

/// Which values of a rectangle share a normal random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErasingNoise {
    /// Each value of each channel has its own number.
    Values,
    /// Each channel has one number.
    Channels,
}

// torchvision's "random" and timm's "pixel" mean the same.
named!(ErasingNoise: "random" => Values, "pixel" => Values, "color" => Channels);

impl PixelTransform for RandomErasing {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)?;
        check_bounds("scale", self.scale, 0.0, 1.0, "0 <= low <= high <= 1")?;
        bounds("ratio", self.ratio, 1e6)?;
        let values = self.value.channels();
        match values.into_iter().flatten().find(|value| !value.is_finite()) {
            Some(value) => Err(BadParameter::new("value", format!("is {value}, must be a finite number"))),
            None => Ok(()),
        }
    }

    fn check_place(&self, place: PixelPlace) -> Result<(), String> {
        if place.is_float {
            return Ok(());
        }
        let Some(values) = self.value.channels() else {
            let message =
                "writes normally distributed floats, but the values are uint8 here: put it after ToDtype";
            return Err(message.into());
        };
        match values.into_iter().find(|value| !(0.0..=255.0).contains(value) || value.fract() != 0.0) {
            Some(value) => Err(format!(
                "value: is {value}, must be a whole grey level from 0 to 255; for another value, put RandomErasing \
                 after ToDtype"
            )),
            None => Ok(()),
        }
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        if !draw.with_probability(self.p) {
            return Ok(());
        }
        for _ in 0..TRIES {
            let Some((height, width)) = self.try_sides(draw) else { continue };
            let noise = self.noise(draw);
            let ImageSize { width: all_width, height: all_height } = draw.size();
            let i = draw.stream.below(u64::from(all_height - height) + 1) as u32;
            let j = draw.stream.below(u64::from(all_width - width) + 1) as u32;
            self.erase(draw, Rectangle { i, j, h: height, w: width }, noise);
            break;
        }
        Ok(())
    }
}

impl ErasingValue {
    fn channels(self) -> Option<[f64; 3]> {
        match self {
            Self::One(value) => Some([value; 3]),
            Self::Three(values) => Some(values),
            Self::Noise(_) => None,
        }
    }
}

impl RandomErasing {
    /// Draws the numbers of rows and columns of a rectangle. Returns `None` unless the rectangle is smaller than the
    /// image along both axes.
    fn try_sides(&self, draw: &mut PixelDraw<'_>) -> Option<(u32, u32)> {
        let ImageSize { width, height } = draw.size();
        let ([least, largest], (narrow, wide)) = (self.scale, self.ratio);
        let area = f64::from(width) * f64::from(height) * draw.stream.uniform(least, largest);
        // The functions of libm, unlike the system's, give the same rectangle on all machines.
        let aspect = libm::exp(draw.stream.uniform(libm::log(narrow), libm::log(wide)));
        let rows = (area * aspect).sqrt().round_ties_even() as u32;
        let columns = (area / aspect).sqrt().round_ties_even() as u32;
        (rows < height && columns < width).then_some((rows, columns))
    }

    fn noise(&self, draw: &mut PixelDraw<'_>) -> Option<ErasureValues> {
        match self.value {
            ErasingValue::Noise(ErasingNoise::Values) => {
                let key = [draw.stream.next_u32(), draw.stream.next_u32()];
                Some(ErasureValues::Noise { key, mean: [0.0; 3], std: [1.0; 3] })
            }
            ErasingValue::Noise(ErasingNoise::Channels) => {
                Some(ErasureValues::Values([0; 3].map(|_| normal(&mut draw.stream) as f32)))
            }
            ErasingValue::One(_) | ErasingValue::Three(_) => None,
        }
    }

    /// Adds the erasure of a rectangle: before `ToDtype` as an operation on grey levels, after it as values of the
    /// finished image.
    fn erase(&self, draw: &mut PixelDraw<'_>, rectangle: Rectangle, noise: Option<ErasureValues>) {
        if rectangle.h == 0 || rectangle.w == 0 {
            return;
        }
        let values = self.value.channels().unwrap_or_default();
        match draw.later_normalize() {
            None => draw.push(PixelOp::Erase { rectangle, v: values.map(|value| value as u8) }),
            Some(scale) => {
                let v = noise.unwrap_or(ErasureValues::Values(values.map(|value| value as f32)));
                draw.erase(Erasure { rectangle, v: scale.normalise(v) });
            }
        }
    }
}
