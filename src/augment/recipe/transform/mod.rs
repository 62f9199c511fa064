//! The transforms that a list may have, with torchvision v2's names, parameters and defaults.
//!
//! Those of geometry and of the element type are here, since lists fold them together. Each that changes pixels is a
//! [`PixelTransform`] in the file of its kind, which says all about it.

mod colours;
mod containers;
mod erasing;
mod filters;
mod iou_crop;
mod levels;
mod policies;
mod values;
mod warps;

pub(in crate::augment::recipe) use iou_crop::IouCrop;
pub use values::Sides;
pub(crate) use values::{BadParameter, LARGEST_SIDE, check_choice};
pub(in crate::augment::recipe) use values::{Lengths, Margins};

use super::draw::PixelDraw;
use crate::augment::{DType, Filter, Padding};
use colours::{ColorJitter, Grayscale, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort};
use containers::{RandomApply, RandomChoice, RandomOrder, all_suit};
use erasing::RandomErasing;
use filters::{GaussianBlur, RandomAdjustSharpness};
use iou_crop::RandomIoUCrop;
use levels::{RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize, RandomSolarize};
use policies::{AugMix, AutoAugment, RandAugment, TimmRandAugment, TrivialAugmentWide};
use serde::Deserialize;
use values::{FillLevels, bounds, check_length, half, probability};
use warps::{RandomAffine, RandomRotation};

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
    /// Puts the image at a random place of a larger canvas at random.
    RandomZoomOut {
        /// The grey levels of the canvas.
        #[serde(default)]
        fill: FillLevels,
        /// Bounds of the canvas' sides, as multiples of the image's.
        #[serde(default = "zoom_range")]
        side_range: (f64, f64),
        /// The probability of that.
        #[serde(default = "half")]
        p: f64,
    },
    /// Crops a part that suits the boxes of the sample.
    RandomIoUCrop(RandomIoUCrop),
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
    Grayscale(Grayscale),
    /// Makes colours grey at random.
    RandomGrayscale(RandomGrayscale),
    /// Changes brightness, contrast, saturation and hue by random factors, in random order.
    ColorJitter(ColorJitter),
    /// The distortion of colours of SSD.
    RandomPhotometricDistort(RandomPhotometricDistort),
    /// Puts the channels into random order.
    RandomChannelPermutation(RandomChannelPermutation),
    /// Makes the negative at random.
    RandomInvert(RandomInvert),
    /// Keeps the highest bits of levels at random.
    RandomPosterize(RandomPosterize),
    /// Inverts the high levels at random.
    RandomSolarize(RandomSolarize),
    /// Stretches the levels of each channel at random.
    RandomAutocontrast(RandomAutocontrast),
    /// Makes the histogram of each channel even at random.
    RandomEqualize(RandomEqualize),
    /// Sharpens or smooths at random.
    RandomAdjustSharpness(RandomAdjustSharpness),
    /// Blurs by a Gaussian filter of random width.
    GaussianBlur(GaussianBlur),
    /// Rotates by a random angle.
    RandomRotation(RandomRotation),
    /// Rotates, moves, scales and shears by random amounts.
    RandomAffine(RandomAffine),
    /// Applies one of the pairs of operations of a policy.
    AutoAugment(AutoAugment),
    /// Applies some operations of one strength.
    RandAugment(RandAugment),
    /// Applies one operation of random strength.
    TrivialAugmentWide(TrivialAugmentWide),
    /// Mixes an image with what chains of operations make of it.
    AugMix(AugMix),
    /// Applies some operations, as timm does.
    TimmRandAugment(TimmRandAugment),
    /// Overwrites a random rectangle at random.
    RandomErasing(RandomErasing),
    /// Applies all of a list, or none, at random.
    RandomApply(RandomApply),
    /// Applies one of a list.
    RandomChoice(RandomChoice),
    /// Applies all of a list in random order.
    RandomOrder(RandomOrder),
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

fn crop_scale() -> (f64, f64) {
    CROP_SCALE
}

fn crop_ratio() -> (f64, f64) {
    CROP_RATIO
}

fn jitter_range() -> (f64, f64) {
    (0.1, 2.0)
}

fn zoom_range() -> (f64, f64) {
    (1.0, 4.0)
}

fn yes() -> bool {
    true
}

/// What a transform that changes pixels behind the geometry says of itself.
pub(in crate::augment::recipe) trait PixelTransform {
    /// Checks what can be wrong with its parameters by themselves.
    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    /// Checks that it may stand at this place of a list.
    ///
    /// # Errors
    /// What is wrong and what to do, to follow its name.
    fn suits(&self, place: PixelPlace) -> Result<(), String> {
        match self.children() {
            Some(children) => all_suit(children, place),
            None if place.is_float => Err("works on grey levels: put it before ToDtype".into()),
            None => Ok(()),
        }
    }

    /// Whether it draws random numbers.
    fn is_random(&self) -> bool {
        true
    }

    /// The transforms of which it applies some; `None` for one that holds none.
    fn children(&self) -> Option<&[Transform]> {
        None
    }

    /// The most chains of operations that an image goes through side by side, before they are mixed.
    fn most_chains(&self) -> usize {
        self.children().unwrap_or_default().iter().map(Transform::most_chains).max().unwrap_or(0)
    }

    /// Draws what it does to one image, in the order in which torchvision draws.
    ///
    /// # Errors
    /// Why it cannot be done to an image of that size, to follow its name.
    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String>;
}

/// A place in a list, behind its geometry.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment::recipe) struct PixelPlace {
    /// Whether values are floats there, and grey levels no more.
    pub(in crate::augment::recipe) is_float: bool,
    /// The width and height of the output, where every image has the same.
    pub(in crate::augment::recipe) size: Option<(u32, u32)>,
}

/// Gives each transform its name, and says which of them change pixels, and which of these mind places: what they draw
/// treats left and right, or top and bottom, differently, so that mirroring cannot be moved across it. Each is in one
/// of the lists; those that hold others mind places where one of these does.
macro_rules! kinds {
    (
        geometry and type: $($other:ident),+;
        pixels, all alike: $($alike:ident),+;
        pixels, by their places: $($placed:ident),+;
        pixels, as others do: $($holder:ident),+ $(,)?
    ) => {
        impl Transform {
            /// The name that torchvision gives the transform, by which its random numbers are keyed, too.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$other { .. } => stringify!($other),)+
                    $(Self::$alike(_) => stringify!($alike),)+
                    $(Self::$placed(_) => stringify!($placed),)+
                    $(Self::$holder(_) => stringify!($holder),)+
                }
            }

            /// The transform as one that changes pixels; `None` for geometry and the element type.
            pub(in crate::augment::recipe) fn pixels(&self) -> Option<&dyn PixelTransform> {
                match self {
                    $(Self::$other { .. })|+ => None,
                    $(Self::$alike(transform) => Some(transform),)+
                    $(Self::$placed(transform) => Some(transform),)+
                    $(Self::$holder(transform) => Some(transform),)+
                }
            }

            /// Whether what the transform draws treats left and right, or top and bottom, differently, so that
            /// mirroring cannot be moved across it.
            pub(in crate::augment::recipe) fn minds_places(&self) -> bool {
                match self {
                    $(Self::$other { .. })|+ | $(Self::$alike(_))|+ => false,
                    $(Self::$placed(_))|+ => true,
                    $(Self::$holder(_))|+ => self.children().iter().any(Self::minds_places),
                }
            }
        }
    };
}

kinds! {
    geometry and type: RandomResizedCrop, Resize, RandomResize, RandomShortestSize, ScaleJitter, CenterCrop, RandomCrop,
        Pad, RandomZoomOut, RandomIoUCrop, RandomHorizontalFlip, RandomVerticalFlip, ToDtype, Normalize;
    pixels, all alike: Grayscale, RandomGrayscale, ColorJitter, RandomPhotometricDistort, RandomChannelPermutation,
        RandomInvert, RandomPosterize, RandomSolarize, RandomAutocontrast, RandomEqualize, RandomAdjustSharpness,
        GaussianBlur;
    pixels, by their places: RandomRotation, RandomAffine, AutoAugment, RandAugment, TrivialAugmentWide, AugMix,
        TimmRandAugment, RandomErasing;
    pixels, as others do: RandomApply, RandomChoice, RandomOrder,
}

impl Transform {
    /// Whether the transform draws random numbers.
    pub(super) fn is_random(&self) -> bool {
        let of_geometry = matches!(
            self,
            Self::RandomResizedCrop { .. }
                | Self::RandomResize { .. }
                | Self::RandomShortestSize { .. }
                | Self::ScaleJitter { .. }
                | Self::RandomCrop { .. }
                | Self::RandomZoomOut { .. }
                | Self::RandomIoUCrop(_)
                | Self::RandomHorizontalFlip { .. }
                | Self::RandomVerticalFlip { .. }
        );
        of_geometry || self.pixels().is_some_and(PixelTransform::is_random)
    }

    /// Whether the transform changes pixels behind the geometry, by operations that it draws.
    pub(super) fn changes_pixels(&self) -> bool {
        self.pixels().is_some()
    }

    /// Whether the transform mirrors, which can be done in the geometry and behind it.
    pub(super) fn mirrors(&self) -> bool {
        matches!(self, Self::RandomHorizontalFlip { .. } | Self::RandomVerticalFlip { .. })
    }

    /// Whether the transform chooses by the boxes of a sample.
    pub(super) fn chooses_by_boxes(&self) -> bool {
        matches!(self, Self::RandomIoUCrop(_))
    }

    /// The transforms of which this one applies some.
    pub(super) fn children(&self) -> &[Transform] {
        self.pixels().and_then(PixelTransform::children).unwrap_or_default()
    }

    /// The most chains of operations that an image goes through side by side, before they are mixed.
    pub(super) fn most_chains(&self) -> usize {
        self.pixels().map_or(0, PixelTransform::most_chains)
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
            Self::RandomZoomOut { side_range: (low, high), p, .. } => {
                let most = f64::from(LARGEST_SIDE);
                let wrong = || format!("is ({low}, {high}), must be 1 <= low <= high <= {most}");
                if !(1.0 <= *low && low <= high && *high <= most) {
                    return Err(BadParameter::new("side_range", wrong()));
                }
                probability("p", *p)
            }
            Self::RandomIoUCrop(crop) => crop.check(),
            Self::RandomHorizontalFlip { p } | Self::RandomVerticalFlip { p } => probability("p", *p),
            Self::ToDtype { .. } => Ok(()),
            Self::Normalize { mean, std } => {
                if !mean.iter().all(|mean| mean.is_finite()) {
                    return Err(BadParameter::new("mean", format!("is {mean:?}, must be finite numbers")));
                }
                if !std.iter().all(|std| std.is_finite() && *std > 0.0) {
                    return Err(BadParameter::new("std", format!("is {std:?}, must be numbers above 0")));
                }
                Ok(())
            }
            _ => self.pixels().map_or(Ok(()), PixelTransform::check),
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
