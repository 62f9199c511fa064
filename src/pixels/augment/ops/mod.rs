//! What is done to the pixels of an image behind its geometry: a list of operations with all their numbers, drawn
//! before. They work on grey levels of the output's size, and are what torchvision v2's functions of the same names
//! make of uint8 tensors.
//!
//! The list is data: the CPU's kernels here and `cuda/ops/` run it by the same arithmetic, to the same bits, and
//! `ImageLoader.view` shows it, so that anybody can replay it.

mod arithmetic;
mod augmix;
mod blur;
mod erase;
mod follow;
mod grey;
mod hue;
mod lookup;
mod mirror;
mod noise;
mod pass;
mod replay;
mod resample;
mod sharpness;
mod shear;
mod shift;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod warp;

pub(super) use augmix::shares as mix_shares;
pub(super) use blur::weights as blur_weights;
pub(super) use erase::erase;
pub(super) use pass::PixelPass;
pub use replay::replay;
pub(super) use shift::RowShift;
pub(super) use table::LevelTables;
pub(super) use warp::{Sampler, Warp};

use super::Filter;
use serde::{Deserialize, Serialize, Serializer};

/// One operation, by the name and the parameters of a function of `torchvision.transforms.v2.functional`.
///
/// Factors are rounded to 32 bits where they meet pixels, as torch does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum PixelOp {
    /// .2989 R + .587 G + .114 B, truncated, in all three channels.
    RgbToGrayscale,
    /// Levels times a factor.
    AdjustBrightness {
        /// 1 changes nothing.
        brightness_factor: f64,
    },
    /// Moves levels away from the mean grey of the image.
    AdjustContrast {
        /// 1 changes nothing.
        contrast_factor: f64,
    },
    /// Moves colours away from their grey.
    AdjustSaturation {
        /// 1 changes nothing, 0 gives grey.
        saturation_factor: f64,
    },
    /// Turns the hue.
    AdjustHue {
        /// The share of a full turn, -0.5 to 0.5.
        hue_factor: f64,
    },
    /// Moves levels away from those of a smoothed image.
    AdjustSharpness {
        /// 1 changes nothing, 0 smooths.
        sharpness_factor: f64,
    },
    /// 255 - level.
    Invert,
    /// Keeps the highest bits of levels.
    Posterize {
        /// The number of bits, 0 to 8.
        bits: u32,
    },
    /// Inverts levels from a threshold on.
    Solarize {
        /// The first level that is inverted.
        threshold: f64,
    },
    /// timm's: adds to levels below a threshold.
    SolarizeAdd {
        /// What is added.
        addition: i32,
        /// The first level that is left as it is.
        threshold: i32,
    },
    /// Stretches each channel to all 256 levels.
    Autocontrast,
    /// Makes the histogram of each channel even.
    Equalize,
    /// Puts the channels into another order.
    PermuteChannels {
        /// The channel that each channel of the result is.
        permutation: [u8; 3],
    },
    /// Gaussian blur with reflected borders.
    GaussianBlur {
        /// The number of pixels along x and y, odd.
        kernel_size: [u32; 2],
        /// The standard deviations along x and y, in pixels.
        sigma: [f64; 2],
    },
    /// Rotates about the centre, shears, scales and moves.
    Affine(Affine),
    /// Rotates, counter-clockwise.
    Rotate {
        /// The angle in degrees.
        angle: f64,
        /// The filter, and what lies outside.
        #[serde(flatten)]
        sampling: WarpSampling,
    },
    /// Mirrors left and right.
    HorizontalFlip,
    /// Mirrors top and bottom.
    VerticalFlip,
    /// Sets a rectangle to one colour.
    Erase {
        /// The rectangle.
        #[serde(flatten)]
        rectangle: Rectangle,
        /// The levels of R, G and B.
        v: [u8; 3],
    },
    /// AugMix: the image, mixed with the weighted sum of what chains of operations make of it.
    Augmix {
        /// The weight of each chain, beside that of the image, which is what is left to 1.
        weights: Vec<f64>,
        /// The chains.
        chains: Vec<Vec<PixelOp>>,
    },
}

/// The parameters of torchvision's `affine`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Affine {
    /// Degrees, clockwise.
    pub angle: f64,
    /// Pixels to the right and down: whole ones in torchvision's transforms, any in timm's.
    #[serde(serialize_with = "in_pixels")]
    pub translate: [f64; 2],
    /// The factor of the size.
    pub scale: f64,
    /// Degrees along x and y.
    pub shear: [f64; 2],
    /// The filter, and what lies outside.
    #[serde(flatten)]
    pub sampling: WarpSampling,
}

/// Writes whole numbers of pixels as integers, as torchvision draws them.
fn in_pixels<S: Serializer>(translate: &[f64; 2], serializer: S) -> Result<S::Ok, S::Error> {
    if translate.iter().all(|pixels| pixels.trunc() == *pixels) {
        translate.map(|pixels| pixels as i64).serialize(serializer)
    } else {
        translate.serialize(serializer)
    }
}

/// How a warp finds the pixels that it shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WarpSampling {
    /// [`Filter::Nearest`], [`Filter::Bilinear`] or [`Filter::Bicubic`], without antialiasing.
    pub interpolation: Filter,
    /// The levels outside of the image. `None` differs from 0 at the border of a bilinear warp, as it does in
    /// torchvision: there, pixels are mixed with black.
    pub fill: Option<[f64; 3]>,
    /// The fixed point in pixels, from the image's left and top; `None` is the centre.
    pub center: Option<[f64; 2]>,
}

/// A rectangle of pixels, by the parameters of torchvision's `erase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rectangle {
    /// The first row.
    pub i: u32,
    /// The first column.
    pub j: u32,
    /// The number of rows.
    pub h: u32,
    /// The number of columns.
    pub w: u32,
}

/// A rectangle of finished values that is overwritten, behind Normalize.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Erasure {
    /// The rectangle.
    #[serde(flatten)]
    pub rectangle: Rectangle,
    /// What is written, on the scale of the output.
    pub v: ErasedBy,
}

/// What an [`Erasure`] writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasedBy {
    /// One value for each channel.
    Values([f32; 3]),
    /// For each value of a channel its own normal number, times `std`, plus `mean`.
    Noise {
        /// The key of the numbers; each is a function of this and its place in the image.
        key: [u32; 2],
        /// The means of R, G and B.
        mean: [f32; 3],
        /// The deviations of R, G and B.
        std: [f32; 3],
    },
}
