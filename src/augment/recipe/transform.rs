//! What may be asked for: transforms by torchvision v2's names, with its parameters and defaults.

use crate::augment::{DType, Filter, Padding};
use serde::Deserialize;

/// Largest side of an output image, pixels: a batch of them is already hundreds of megabytes.
pub(crate) const LARGEST_SIDE: u32 = 16_384;

/// Bounds of a random crop's share of the image's area, unless the user says otherwise.
pub(crate) const CROP_SCALE: (f64, f64) = (0.08, 1.0);

/// Bounds of a random crop's width / height, unless the user says otherwise.
pub(crate) const CROP_RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// One transform of a list. Each variant has the name and the parameters of a class of torchvision v2.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Transform {
    /// Crops a part of random area and shape, and resizes it.
    RandomResizedCrop {
        /// The output's size.
        size: Sides,
        /// Bounds of the crop's share of the area.
        #[serde(default = "crop_scale")]
        scale: (f64, f64),
        /// Bounds of the crop's width / height.
        #[serde(default = "crop_ratio")]
        ratio: (f64, f64),
        /// How it is resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Resizes the whole image.
    Resize {
        /// One number is the length of the shorter side; `None` needs `max_size`, which is then the longer side's.
        size: Option<Sides>,
        /// The longer side's length at most.
        #[serde(default)]
        max_size: Option<u32>,
        /// How it is resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Takes the middle; what the image lacks is black.
    CenterCrop {
        /// The output's size.
        size: Sides,
    },
    /// Pads, and takes a part at a random place.
    RandomCrop {
        /// The output's size.
        size: Sides,
        /// Pixels added before.
        #[serde(default)]
        padding: Option<Margins>,
        /// Pads both sides by what a smaller image lacks.
        #[serde(default)]
        pad_if_needed: bool,
        /// Grey levels of what is added.
        #[serde(default)]
        fill: FillLevels,
        /// What is added.
        #[serde(default)]
        padding_mode: Padding,
    },
    /// Adds pixels around the image.
    Pad {
        /// How many.
        padding: Margins,
        /// Grey levels of what is added.
        #[serde(default)]
        fill: FillLevels,
        /// What is added.
        #[serde(default)]
        padding_mode: Padding,
    },
    /// Mirrors left and right, or not.
    RandomHorizontalFlip {
        /// How likely.
        #[serde(default = "half")]
        p: f64,
    },
    /// Takes the colours away.
    Grayscale {
        /// Of the result, which has as many as any image here.
        #[serde(default = "three")]
        num_output_channels: u32,
    },
    /// Converts the element type.
    ToDtype {
        /// Into this.
        dtype: DType,
        /// Floats of 0..1 (true) or of 0..255.
        #[serde(default = "yes")]
        scale: bool,
    },
    /// Subtracts the mean and divides by the deviation.
    Normalize {
        /// For each channel.
        mean: [f32; 3],
        /// For each channel.
        std: [f32; 3],
    },
}

/// Lengths of sides: one number, or height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a number of pixels, or a height and a width")]
pub enum Sides {
    /// A square, or the shorter side.
    One(u32),
    /// Height and width.
    Both([u32; 2]),
}

impl Sides {
    /// Height and width, where one number means a square.
    pub(super) fn square(self) -> (u32, u32) {
        match self {
            Self::One(side) => (side, side),
            Self::Both([height, width]) => (height, width),
        }
    }

    fn check(self) -> Result<(), BadParameter> {
        let (height, width) = self.square();
        for side in [height, width] {
            if side == 0 {
                return Err(BadParameter::new("size", "is 0, must be at least 1"));
            } else if side > LARGEST_SIDE {
                return Err(BadParameter::new("size", format!("is {side}, must be at most {LARGEST_SIDE}")));
            }
        }
        Ok(())
    }
}

/// Pixels that are added around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a number of pixels, or two (left and right, top and bottom), or four (left, top, \
                               right, bottom)"
)]
pub enum Margins {
    /// As many on every side.
    All(u32),
    /// Left and right, then top and bottom.
    Two([u32; 2]),
    /// Left, top, right, bottom.
    Four([u32; 4]),
}

impl Margins {
    /// Left, top, right, bottom.
    pub(super) fn sides(self) -> [u32; 4] {
        match self {
            Self::All(n) => [n; 4],
            Self::Two([x, y]) => [x, y, x, y],
            Self::Four(sides) => sides,
        }
    }

    fn check(self) -> Result<(), BadParameter> {
        match self.sides().into_iter().find(|&side| side > LARGEST_SIDE) {
            Some(side) => {
                Err(BadParameter::new("padding", format!("is {side}, must be at most {LARGEST_SIDE}")))
            }
            None => Ok(()),
        }
    }
}

/// Grey levels: one for all channels, or R, G, B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be one or three grey levels from 0 to 255")]
pub enum FillLevels {
    /// The same for all.
    One(u8),
    /// R, G, B.
    Three([u8; 3]),
}

impl Default for FillLevels {
    fn default() -> Self {
        Self::One(0)
    }
}

impl FillLevels {
    /// R, G, B.
    pub(super) fn channels(self) -> [u8; 3] {
        match self {
            Self::One(level) => [level; 3],
            Self::Three(levels) => levels,
        }
    }
}

fn crop_scale() -> (f64, f64) {
    CROP_SCALE
}

fn crop_ratio() -> (f64, f64) {
    CROP_RATIO
}

fn half() -> f64 {
    0.5
}

fn three() -> u32 {
    3
}

fn yes() -> bool {
    true
}

/// A parameter with a value that cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadParameter {
    pub(crate) parameter: &'static str,
    /// "is 0, must be at least 1".
    pub(crate) message: String,
}

impl BadParameter {
    fn new(parameter: &'static str, message: impl Into<String>) -> Self {
        Self { parameter, message: message.into() }
    }
}

impl Transform {
    /// torchvision's name of it: also what its random numbers are keyed by.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::RandomResizedCrop { .. } => "RandomResizedCrop",
            Self::Resize { .. } => "Resize",
            Self::CenterCrop { .. } => "CenterCrop",
            Self::RandomCrop { .. } => "RandomCrop",
            Self::Pad { .. } => "Pad",
            Self::RandomHorizontalFlip { .. } => "RandomHorizontalFlip",
            Self::Grayscale { .. } => "Grayscale",
            Self::ToDtype { .. } => "ToDtype",
            Self::Normalize { .. } => "Normalize",
        }
    }

    /// Whether it draws random numbers.
    pub(super) fn is_random(&self) -> bool {
        matches!(
            self,
            Self::RandomResizedCrop { .. } | Self::RandomCrop { .. } | Self::RandomHorizontalFlip { .. }
        )
    }

    /// Checks what can be wrong with a transform by itself.
    pub(crate) fn check(&self) -> Result<(), BadParameter> {
        match self {
            Self::RandomResizedCrop { size, scale, ratio, .. } => {
                size.check()?;
                bounds("scale", *scale, 1.0)?;
                bounds("ratio", *ratio, 1e6)
            }
            Self::Resize { size, max_size, .. } => check_resize(*size, *max_size),
            Self::CenterCrop { size } => size.check(),
            Self::RandomCrop { size, padding, .. } => {
                size.check()?;
                padding.map_or(Ok(()), Margins::check)
            }
            Self::Pad { padding, .. } => padding.check(),
            Self::RandomHorizontalFlip { p } => {
                let is_probability = (0.0..=1.0).contains(p);
                let wrong = || BadParameter::new("p", format!("is {p}, must be a probability"));
                if is_probability { Ok(()) } else { Err(wrong()) }
            }
            Self::Grayscale { num_output_channels: 3 } | Self::ToDtype { .. } => Ok(()),
            Self::Grayscale { num_output_channels: n } => {
                let message = format!("is {n}, must be 3: images have R, G and B, here all the same");
                Err(BadParameter::new("num_output_channels", message))
            }
            Self::Normalize { mean, std } => {
                if !mean.iter().all(|mean| mean.is_finite()) {
                    return Err(BadParameter::new("mean", format!("is {mean:?}, must be finite numbers")));
                }
                if !std.iter().all(|std| std.is_finite() && *std > 0.0) {
                    return Err(BadParameter::new("std", format!("is {std:?}, must be numbers above 0")));
                }
                Ok(())
            }
        }
    }
}

fn check_resize(size: Option<Sides>, max_size: Option<u32>) -> Result<(), BadParameter> {
    size.map_or(Ok(()), Sides::check)?;
    let Some(longest) = max_size else {
        let missing = || BadParameter::new("size", "is None, must be a length, or come with max_size");
        return size.map(|_| ()).ok_or_else(missing);
    };
    let wrong = |message: String| Err(BadParameter::new("max_size", message));
    match size {
        _ if longest == 0 || longest > LARGEST_SIDE => {
            wrong(format!("is {longest}, must be from 1 to {LARGEST_SIDE}"))
        }
        Some(Sides::Both(_)) => {
            wrong(format!("is {longest}, but size gives both sides already: leave one out"))
        }
        Some(Sides::One(short)) if longest <= short => {
            wrong(format!("is {longest}, must be more than the shorter side's {short}"))
        }
        _ => Ok(()),
    }
}

fn bounds(parameter: &'static str, (low, high): (f64, f64), most: f64) -> Result<(), BadParameter> {
    if low > 0.0 && low <= high && high <= most {
        return Ok(());
    }
    let message = format!("is ({low}, {high}), must be 0 < low <= high <= {most}");
    Err(BadParameter::new(parameter, message))
}
