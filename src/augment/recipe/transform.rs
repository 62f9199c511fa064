//! The transforms that a list may have, with torchvision v2's names, parameters and defaults.

use crate::augment::{DType, Filter, Padding};
use serde::Deserialize;

/// The longest side of an output image in pixels. One image with such sides already has 805 MB of grey levels.
pub(crate) const LARGEST_SIDE: u32 = 16_384;

/// The default bounds of a random crop's share of the image's area.
pub(crate) const CROP_SCALE: (f64, f64) = (0.08, 1.0);

/// The default bounds of a random crop's width / height.
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
        /// How the pixels are resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Resizes the whole image.
    Resize {
        /// The size after the resize, where one number is the length of the shorter side. `None` needs `max_size`,
        /// which is then the length of the longer side.
        size: Option<Sides>,
        /// The longest that the longer side may become.
        #[serde(default)]
        max_size: Option<u32>,
        /// How the pixels are resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Resizes the whole image to a random size.
    RandomResize {
        /// The least length of the shorter side.
        min_size: u32,
        /// The first length that is too long.
        max_size: u32,
        /// How the pixels are resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Resizes the whole image to one of several sizes.
    RandomShortestSize {
        /// The lengths of the shorter side, of which one is drawn.
        min_size: Lengths,
        /// The longest that the longer side may become.
        #[serde(default)]
        max_size: Option<u32>,
        /// How the pixels are resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Resizes the whole image to a random multiple of the largest size that fits into a rectangle.
    ScaleJitter {
        /// The width and the height of the rectangle.
        target_size: [u32; 2],
        /// Bounds of the multiple.
        #[serde(default = "jitter_range")]
        scale_range: (f64, f64),
        /// How the pixels are resampled.
        #[serde(default)]
        interpolation: Filter,
    },
    /// Takes the middle. A smaller image is padded with black.
    CenterCrop {
        /// The output's size.
        size: Sides,
    },
    /// Pads, and takes a part at a random place.
    RandomCrop {
        /// The output's size.
        size: Sides,
        /// The pixels that are added before the crop.
        #[serde(default)]
        padding: Option<Margins>,
        /// Whether a smaller image gets as many pixels as it lacks, on each of both sides.
        #[serde(default)]
        pad_if_needed: bool,
        /// The grey levels of constant padding.
        #[serde(default)]
        fill: FillLevels,
        /// What the added pixels show.
        #[serde(default)]
        padding_mode: Padding,
    },
    /// Adds pixels around the image.
    Pad {
        /// The number of pixels to add.
        padding: Margins,
        /// The grey levels of constant padding.
        #[serde(default)]
        fill: FillLevels,
        /// What the added pixels show.
        #[serde(default)]
        padding_mode: Padding,
    },
    /// Mirrors left and right at random.
    RandomHorizontalFlip {
        /// The probability of mirroring.
        #[serde(default = "half")]
        p: f64,
    },
    /// Mirrors top and bottom at random.
    RandomVerticalFlip {
        /// The probability of mirroring.
        #[serde(default = "half")]
        p: f64,
    },
    /// Makes colours grey.
    Grayscale {
        /// The channels of the result: 3.
        #[serde(default = "three")]
        num_output_channels: u32,
    },
    /// Converts the element type.
    ToDtype {
        /// The element type of the result.
        dtype: DType,
        /// Whether floats are scaled to 0..1; otherwise they stay in 0..255.
        #[serde(default = "yes")]
        scale: bool,
    },
    /// Subtracts the mean and divides by the deviation.
    Normalize {
        /// The mean of each channel.
        mean: [f32; 3],
        /// The standard deviation of each channel.
        std: [f32; 3],
    },
}

/// A size as a user gives it: one number, or height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a number of pixels, or a height and a width")]
pub enum Sides {
    /// The side of a square; for Resize the shorter side.
    One(u32),
    /// The height and the width.
    Both([u32; 2]),
}

impl Sides {
    /// The height and the width, where one number means a square.
    pub(super) fn square(self) -> (u32, u32) {
        match self {
            Self::One(side) => (side, side),
            Self::Both([height, width]) => (height, width),
        }
    }

    fn check(self) -> Result<(), BadParameter> {
        let (height, width) = self.square();
        [height, width].into_iter().try_for_each(|side| check_length("size", side))
    }
}

/// One length in pixels, or several of which one is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a number of pixels, or a list of such")]
pub enum Lengths {
    /// The only one.
    One(u32),
    /// Each as likely as any other.
    Several(Vec<u32>),
}

impl Lengths {
    /// All lengths.
    pub(super) fn list(&self) -> &[u32] {
        match self {
            Self::One(length) => std::slice::from_ref(length),
            Self::Several(lengths) => lengths,
        }
    }

    fn check(&self, parameter: &'static str) -> Result<(), BadParameter> {
        if self.list().is_empty() {
            return Err(BadParameter::new(parameter, "is empty, must hold a length"));
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
pub enum Margins {
    /// The same number on every side.
    All(u32),
    /// The number at the left and the right, then at the top and the bottom.
    Two([u32; 2]),
    /// The numbers at the left, top, right and bottom.
    Four([u32; 4]),
}

impl Margins {
    /// The numbers at the left, top, right and bottom.
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

/// The grey levels of constant padding: one for all channels, or one for each of R, G and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be one or three grey levels from 0 to 255")]
pub enum FillLevels {
    /// The level of all channels.
    One(u8),
    /// The levels of R, G and B.
    Three([u8; 3]),
}

impl Default for FillLevels {
    fn default() -> Self {
        Self::One(0)
    }
}

impl FillLevels {
    /// The levels of R, G and B.
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

fn jitter_range() -> (f64, f64) {
    (0.1, 2.0)
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

/// An error about a parameter whose value cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadParameter {
    pub(crate) parameter: &'static str,
    /// What is wrong and what would be right: "is 0, must be at least 1".
    pub(crate) message: String,
}

impl BadParameter {
    fn new(parameter: &'static str, message: impl Into<String>) -> Self {
        Self { parameter, message: message.into() }
    }
}

impl Transform {
    /// The name that torchvision gives the transform, by which its random numbers are keyed, too.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::RandomResizedCrop { .. } => "RandomResizedCrop",
            Self::Resize { .. } => "Resize",
            Self::RandomResize { .. } => "RandomResize",
            Self::RandomShortestSize { .. } => "RandomShortestSize",
            Self::ScaleJitter { .. } => "ScaleJitter",
            Self::CenterCrop { .. } => "CenterCrop",
            Self::RandomCrop { .. } => "RandomCrop",
            Self::Pad { .. } => "Pad",
            Self::RandomHorizontalFlip { .. } => "RandomHorizontalFlip",
            Self::RandomVerticalFlip { .. } => "RandomVerticalFlip",
            Self::Grayscale { .. } => "Grayscale",
            Self::ToDtype { .. } => "ToDtype",
            Self::Normalize { .. } => "Normalize",
        }
    }

    /// Whether the transform draws random numbers.
    pub(super) fn is_random(&self) -> bool {
        matches!(
            self,
            Self::RandomResizedCrop { .. }
                | Self::RandomResize { .. }
                | Self::RandomShortestSize { .. }
                | Self::ScaleJitter { .. }
                | Self::RandomCrop { .. }
                | Self::RandomHorizontalFlip { .. }
                | Self::RandomVerticalFlip { .. }
        )
    }

    /// Whether the transform changes pixels behind the geometry, by operations that it draws.
    pub(super) fn changes_pixels(&self) -> bool {
        matches!(self, Self::Grayscale { .. })
    }

    /// Whether what the transform draws treats left and right, or top and bottom, differently, so that mirroring cannot
    /// be moved across it.
    pub(super) fn minds_places(&self) -> bool {
        false
    }

    /// The transforms of which this one applies some.
    pub(super) fn children(&self) -> &[Transform] {
        &[]
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
            Self::RandomResize { min_size, max_size, .. } => {
                check_length("min_size", *min_size)?;
                check_length("max_size", *max_size)?;
                let wrong = || format!("is {max_size}, must be more than min_size, {min_size}");
                (min_size < max_size).then_some(()).ok_or_else(|| BadParameter::new("max_size", wrong()))
            }
            Self::RandomShortestSize { min_size, max_size, .. } => {
                min_size.check("min_size")?;
                max_size.map_or(Ok(()), |longest| check_length("max_size", longest))
            }
            Self::ScaleJitter { target_size, scale_range, .. } => {
                target_size.iter().try_for_each(|&side| check_length("target_size", side))?;
                bounds("scale_range", *scale_range, 1e6)
            }
            Self::CenterCrop { size } => size.check(),
            Self::RandomCrop { size, padding, .. } => {
                size.check()?;
                padding.map_or(Ok(()), Margins::check)
            }
            Self::Pad { padding, .. } => padding.check(),
            Self::RandomHorizontalFlip { p } | Self::RandomVerticalFlip { p } => {
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

fn check_length(parameter: &'static str, length: u32) -> Result<(), BadParameter> {
    match length {
        0 => Err(BadParameter::new(parameter, "is 0, must be at least 1")),
        1..=LARGEST_SIDE => Ok(()),
        _ => Err(BadParameter::new(parameter, format!("is {length}, must be at most {LARGEST_SIDE}"))),
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
