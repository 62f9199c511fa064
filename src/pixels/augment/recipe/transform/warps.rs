//! Transforms that rotate, shear, scale and translate an image at the output's size.

use super::table::{ParameterKind, parameter_types, transform};
use super::values::{BadParameter, FillValues, NumberOrBounds, check_bounds};
use super::{PixelDraw, PixelTransform};
use crate::augment::ops::{Affine, PixelOp, WarpSampling};
use crate::augment::{Filter, ImageSize};
use base::names::NamedValue;
use serde::Deserialize;

transform! {
    /// Rotates by a random angle. The image keeps its size.
    pub RandomRotation {
        /// The largest angle from 0 in either direction, or (low, high); in degrees, counter-clockwise.
        degrees: NumberOrBounds;
        /// The filter: `nearest`, `bilinear` or `bicubic`, without antialiasing; or torchvision's `InterpolationMode`.
        interpolation: Filter = "nearest", must("nearest, bilinear, bicubic");
        /// Must be False: all images of a batch have the same size, which a rotation keeps.
        expand: bool = false;
        /// The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
        center: Option<[f64; 2]> = null, must("two numbers of pixels, x and y, or None");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = 0;
    }
}

transform! {
    /// Rotates, translates, scales and shears by random amounts. The image keeps its size.
    pub RandomAffine {
        /// The largest angle from 0 in either direction, or (low, high); in degrees, clockwise.
        degrees: NumberOrBounds;
        /// The largest translations along x and y, as fractions of width and height. A whole number of pixels is drawn.
        /// None: no translation.
        translate: Option<[f64; 2]> = null, must("two fractions, of width and height, or None");
        /// The bounds of the scale factor. None: no scaling.
        scale: Option<[f64; 2]> = null, must("two numbers, the least and the largest factor, or None");
        /// The largest shear angle along x from 0 in either direction, or its (low, high); or four numbers, the bounds
        /// along x, then along y; in degrees. None: no shear.
        shear: Option<ShearAngles> = null;
        /// The filter: `nearest`, `bilinear` or `bicubic`, without antialiasing.
        interpolation: Filter = "nearest", must("nearest, bilinear, bicubic");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = 0;
        /// The fixed point (x, y) in pixels, from the image's left and top. None: the centre.
        center: Option<[f64; 2]> = null, must("two numbers of pixels, x and y, or None");
    }
}

/// The angles by which an image is sheared, in degrees.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a number, or two (the least and the largest along x), or four (then along y)"
)]
enum ShearAngles {
    /// The largest angle along x, in either direction.
    One(f64),
    Two([f64; 2]),
    /// The least and the largest angle along x, then the least and the largest angle along y.
    Four([f64; 4]),
}

parameter_types! {
    ShearAngles: ParameterKind::new("float | Sequence[float]", "shear");
}

pub(super) fn check_sampling(interpolation: Filter, fill: Option<FillValues>) -> Result<(), BadParameter> {
    if !matches!(interpolation, Filter::Nearest | Filter::Bilinear | Filter::Bicubic) {
        let message = format!("is {:?}, must be one of nearest, bilinear, bicubic", interpolation.name());
        return Err(BadParameter::new("interpolation", message));
    }
    fill.map_or(Ok(()), FillValues::check)
}

pub(super) fn sampling(
    interpolation: Filter,
    fill: Option<FillValues>,
    center: Option<[f64; 2]>,
) -> WarpSampling {
    WarpSampling { interpolation, fill: fill.map(FillValues::channels), center }
}

fn check_angles(parameter: &'static str, angles: NumberOrBounds) -> Result<(), BadParameter> {
    let what = "a number of degrees of at least 0, or two with low <= high";
    match angles {
        NumberOrBounds::One(far) if far.is_nan() || far < 0.0 => {
            Err(BadParameter::new(parameter, format!("is {far}, must be {what}")))
        }
        _ => check_bounds(parameter, angles.bounds_around(0.0), f64::MIN, f64::MAX, what),
    }
}

impl PixelTransform for RandomRotation {
    fn check(&self) -> Result<(), BadParameter> {
        if self.expand {
            let message = "is True, must be False: all images of a batch have the same size";
            return Err(BadParameter::new("expand", message));
        }
        check_angles("degrees", self.degrees)?;
        check_sampling(self.interpolation, self.fill)
    }

    fn is_random(&self) -> bool {
        let [low, high] = self.degrees.bounds_around(0.0);
        low < high
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let [low, high] = self.degrees.bounds_around(0.0);
        let angle = draw.stream.uniform(low, high);
        let sampling = sampling(self.interpolation, self.fill, self.center);
        draw.push(PixelOp::Rotate { angle, sampling });
        Ok(())
    }
}

impl ShearAngles {
    /// Returns the bounds along x and, if the image is also sheared along y, the bounds along y.
    fn along(self) -> (NumberOrBounds, Option<NumberOrBounds>) {
        match self {
            Self::One(far) => (NumberOrBounds::One(far), None),
            Self::Two(x) => (NumberOrBounds::Both(x), None),
            Self::Four([left, right, up, down]) => {
                (NumberOrBounds::Both([left, right]), Some(NumberOrBounds::Both([up, down])))
            }
        }
    }
}

impl PixelTransform for RandomAffine {
    fn check(&self) -> Result<(), BadParameter> {
        check_angles("degrees", self.degrees)?;
        if let Some(translate @ [x, y]) = self.translate {
            let is_share = |share: f64| (0.0..=1.0).contains(&share);
            if !is_share(x) || !is_share(y) {
                let message =
                    format!("is {translate:?}, must be two fractions from 0 to 1, of width and height");
                return Err(BadParameter::new("translate", message));
            }
        }
        if let Some(scale) = self.scale {
            check_bounds("scale", scale, f64::MIN_POSITIVE, f64::MAX, "0 < low <= high")?;
        }
        if let Some((x, y)) = self.shear.map(ShearAngles::along) {
            check_angles("shear", x)?;
            y.map_or(Ok(()), |y| check_angles("shear", y))?;
        }
        check_sampling(self.interpolation, self.fill)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let ImageSize { width, height } = draw.size();
        let stream = &mut draw.stream;
        let mut within = |[low, high]: [f64; 2]| stream.uniform(low, high);
        let angle = within(self.degrees.bounds_around(0.0));
        let [tx, ty] = self.translate.unwrap_or_default();
        let mut pixels = |share: f64, side: u32| {
            let most = share * f64::from(side);
            // torchvision draws no random number for an image that is not translated.
            if self.translate.is_none() { 0.0 } else { within([-most, most]).round_ties_even() }
        };
        let translate = [pixels(tx, width), pixels(ty, height)];
        let scale = self.scale.map_or(1.0, &mut within);
        let (x, y) = self.shear.map_or((None, None), |shear| {
            let (x, y) = shear.along();
            (Some(x), y)
        });
        let mut sheared =
            |angles: Option<NumberOrBounds>| angles.map_or(0.0, |angles| within(angles.bounds_around(0.0)));
        let shear = [sheared(x), sheared(y)];
        let sampling = sampling(self.interpolation, self.fill, self.center);
        draw.push(PixelOp::Affine(Affine { angle, translate, scale, shear, sampling }));
        Ok(())
    }
}
