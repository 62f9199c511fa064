//! The types of transforms' parameters, as users write their values, and the checks of the values.

use super::table::{ParameterKind, parameter_types};
use crate::augment::ImageSize;
use serde::Deserialize;

parameter_types! {
    SizeParameter: ParameterKind::new("int | Sequence[int] | str", "sides");
    Lengths: ParameterKind::new("int | Sequence[int]", "lengths");
    Margins: ParameterKind::new("int | Sequence[int]", "margins");
    FillLevels: ParameterKind::new("int | Sequence[int]", "fill");
    NumberOrBounds: ParameterKind::new("float | Sequence[float]", "spread");
    FillValues: ParameterKind::new("float | Sequence[float]", "fill_values");
}

/// The longest side of an output image in pixels. One image with two such sides already has 805 MB of grey levels.
pub const MAX_SIDE: u32 = 16_384;

/// A size as a user gives it: one number, height and width, or `"bucket"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a number of pixels, a height and a width, or \"bucket\"")]
pub enum SizeParameter {
    /// The side of a square; for Resize, the shorter side.
    One(u32),
    /// The height and the width.
    Both([u32; 2]),
    /// The size of the batch. Each bucket has recipes of its own, in which its size replaces this value.
    Bucket(BucketWord),
}

/// The word `bucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BucketWord {
    /// The only value.
    Bucket,
}

impl SizeParameter {
    pub(super) fn square(self) -> ImageSize {
        match self {
            Self::One(side) => ImageSize { width: side, height: side },
            Self::Both([height, width]) => ImageSize { width, height },
            // `check` refuses it before the size is used.
            Self::Bucket(_) => ImageSize { width: 1, height: 1 },
        }
    }

    pub(super) fn check(self) -> Result<(), BadParameter> {
        if let Self::Bucket(_) = self {
            let message = "is \"bucket\", but buckets is not set: set buckets=, or give a number of pixels";
            return Err(BadParameter::new("size", message));
        }
        let ImageSize { width, height } = self.square();
        [height, width].into_iter().try_for_each(|side| check_length("size", side))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a number of pixels, or a list of such numbers")]
pub(super) enum Lengths {
    One(u32),
    /// All lengths are equally likely.
    Several(Vec<u32>),
}

impl Lengths {
    pub(super) fn list(&self) -> &[u32] {
        match self {
            Self::One(length) => std::slice::from_ref(length),
            Self::Several(lengths) => lengths,
        }
    }

    pub(super) fn check(&self, parameter: &'static str) -> Result<(), BadParameter> {
        if self.list().is_empty() {
            return Err(BadParameter::new(parameter, "is empty, must have at least one length"));
        }
        self.list().iter().try_for_each(|&length| check_length(parameter, length))
    }
}

/// Pixels that are added around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a number of pixels, or two (left and right, top and bottom), or four (left, top, \
                               right, bottom)"
)]
pub(super) enum Margins {
    All(u32),
    /// The number at the left and the right, then at the top and the bottom.
    Two([u32; 2]),
    /// The numbers at the left, top, right and bottom.
    Four([u32; 4]),
}

impl Margins {
    /// Returns the numbers at the left, top, right and bottom, in this order.
    pub(super) fn sides(self) -> [u32; 4] {
        match self {
            Self::All(n) => [n; 4],
            Self::Two([x, y]) => [x, y, x, y],
            Self::Four(sides) => sides,
        }
    }

    pub(super) fn check(self) -> Result<(), BadParameter> {
        match self.sides().into_iter().find(|&side| side > MAX_SIDE) {
            Some(side) => Err(BadParameter::new("padding", format!("is {side}, must be at most {MAX_SIDE}"))),
            None => Ok(()),
        }
    }
}

/// The grey levels of constant padding: one level for all channels, or one level for each of R, G and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be one or three grey levels from 0 to 255")]
pub(super) enum FillLevels {
    One(u8),
    Three([u8; 3]),
}

impl FillLevels {
    pub(super) fn channels(self) -> [u8; 3] {
        match self {
            Self::One(level) => [level; 3],
            Self::Three(levels) => levels,
        }
    }
}

/// One number, or the bounds between which a number is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a number, or two: the least and the largest")]
pub(super) enum NumberOrBounds {
    /// One number. Depending on the transform, it is a fixed value, or the maximum distance from the value that changes
    /// nothing.
    One(f64),
    Both([f64; 2]),
}

impl NumberOrBounds {
    /// Returns the bounds. If only one number was given, both bounds are that number.
    pub(super) fn as_bounds(self) -> [f64; 2] {
        match self {
            Self::One(value) => [value; 2],
            Self::Both(ends) => ends,
        }
    }

    /// Returns the bounds. If only one number was given, it is the distance of both bounds from `centre`.
    pub(super) fn bounds_around(self, centre: f64) -> [f64; 2] {
        match self {
            Self::One(distance) => [centre - distance, centre + distance],
            Self::Both(ends) => ends,
        }
    }
}

/// The values that a warp shows outside of the image: one value for all channels, or one value for each of R, G and B.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be one or three numbers from 0 to 255, or None")]
pub(super) enum FillValues {
    One(f64),
    Three([f64; 3]),
}

impl FillValues {
    pub(super) fn channels(self) -> [f64; 3] {
        match self {
            Self::One(value) => [value; 3],
            Self::Three(values) => values,
        }
    }

    pub(super) fn check(self) -> Result<(), BadParameter> {
        match self.channels().into_iter().find(|value| !(0.0..=255.0).contains(value)) {
            Some(value) => Err(BadParameter::new("fill", format!("is {value}, must be from 0 to 255"))),
            None => Ok(()),
        }
    }
}

/// The error that a parameter has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadParameter {
    /// The name of the parameter.
    pub parameter: &'static str,
    /// What is wrong and what would be valid: "is 0, must be at least 1".
    pub message: String,
}

impl BadParameter {
    pub(super) fn new(parameter: &'static str, message: impl Into<String>) -> Self {
        Self { parameter, message: message.into() }
    }
}

pub(super) fn check_length(parameter: &'static str, length: u32) -> Result<(), BadParameter> {
    match length {
        0 => Err(BadParameter::new(parameter, "is 0, must be at least 1")),
        1..=MAX_SIDE => Ok(()),
        _ => Err(BadParameter::new(parameter, format!("is {length}, must be at most {MAX_SIDE}"))),
    }
}

/// Checks that 0 < low <= high <= `most`.
pub(super) fn bounds(
    parameter: &'static str,
    (low, high): (f64, f64),
    most: f64,
) -> Result<(), BadParameter> {
    if low > 0.0 && low <= high && high <= most {
        return Ok(());
    }
    let message = format!("is ({low}, {high}), must be 0 < low <= high <= {most}");
    Err(BadParameter::new(parameter, message))
}

pub(super) fn check_probability(parameter: &'static str, p: f64) -> Result<(), BadParameter> {
    check_range(parameter, p, 0.0, 1.0, "a probability")
}

pub(super) fn check_range(
    parameter: &'static str,
    value: f64,
    low: f64,
    high: f64,
    what: &str,
) -> Result<(), BadParameter> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(BadParameter::new(parameter, format!("is {value}, must be {what}")))
}

pub(super) fn check_bounds(
    parameter: &'static str,
    [least, largest]: [f64; 2],
    low: f64,
    high: f64,
    what: &str,
) -> Result<(), BadParameter> {
    if low <= least && least <= largest && largest <= high {
        return Ok(());
    }
    Err(BadParameter::new(parameter, format!("is ({least}, {largest}), must be {what}")))
}

/// Checks the parameters of a random choice: that there are transforms, and one valid weight for each of them if
/// weights are given.
pub(crate) fn check_choice(transforms: usize, weights: Option<&[f64]>) -> Result<(), BadParameter> {
    if transforms == 0 {
        return Err(BadParameter::new("transforms", "is empty, must have at least one transform"));
    }
    let Some(weights) = weights else { return Ok(()) };
    let wrong = |message: String| Err(BadParameter::new("p", message));
    if weights.len() != transforms {
        let weights = weights.len();
        return wrong(format!("has {weights} weights, must have one for each of {transforms} transforms"));
    }
    let sum: f64 = weights.iter().sum();
    if weights.iter().any(|weight| *weight < 0.0) || !(sum > 0.0 && sum.is_finite()) {
        return wrong(format!("is {weights:?}, must be weights of at least 0, not all 0"));
    }
    Ok(())
}
