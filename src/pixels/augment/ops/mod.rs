//! Operations on the pixels of an image. An image has a list of operations with all their parameters, which were drawn
//! beforehand. The operations run after the geometry, on grey levels at output size. They give the same results as
//! torchvision v2's functions of the same names on uint8 tensors.
//!
//! This file has what other code needs of an operation: its parameters, how the CPU runs it, its instructions in a GPU
//! program, and whether it moves pixels, so that masks and boxes must be moved, too. The arithmetic is in one file for
//! each kind of operation: plain loops that are compiled for every SIMD level.
//!
//! The list is data. The CPU kernels here and the GPU kernels in `cuda/ops/` run it with the same arithmetic and get
//! the same bits. `ImageLoader.view` returns the list, so that users can replay it.

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
pub(super) use erase::erase;
pub(super) use pass::PixelPass;
pub use replay::replay;
pub(super) use shift::RowShift;
pub(super) use table::LevelTables;
pub(super) use warp::{Sampler, Warp};

use super::Filter;
use super::cuda::{LevelSetRef, ProgramWriter};
use pass::{PendingLevels, Scratch, channels};
use serde::{Deserialize, Serialize, Serializer};

/// One operation, with the name and the parameters of a function of `torchvision.transforms.v2.functional`.
///
/// Factors are rounded to float32 before they are applied to pixels, as in torch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum PixelOp {
    /// Replaces all three channels by .2989 R + .587 G + .114 B, truncated.
    RgbToGrayscale,
    /// Multiplies levels by a factor.
    AdjustBrightness {
        /// The factor; 1 changes nothing.
        brightness_factor: f64,
    },
    /// Moves levels away from the mean grey of the image.
    AdjustContrast {
        /// The factor for the difference from the mean grey; 1 changes nothing.
        contrast_factor: f64,
    },
    /// Moves colours away from their grey.
    AdjustSaturation {
        /// The factor for the difference from grey; 1 changes nothing, and 0 gives grey.
        saturation_factor: f64,
    },
    /// Rotates the hue.
    AdjustHue {
        /// The fraction of a full rotation, -0.5 to 0.5.
        hue_factor: f64,
    },
    /// Moves levels away from the levels of a smoothed image.
    AdjustSharpness {
        /// The factor for the difference from the smoothed image; 1 changes nothing, and 0 smooths.
        sharpness_factor: f64,
    },
    /// Inverts levels: 255 - level.
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
    /// Adds to levels below a threshold, as timm's `solarize_add`.
    SolarizeAdd {
        /// The number that is added.
        addition: i32,
        /// The first level that is not changed.
        threshold: i32,
    },
    /// Stretches each channel to all 256 levels.
    Autocontrast,
    /// Equalises the histogram of each channel.
    Equalize,
    /// Reorders the channels.
    PermuteChannels {
        /// The source channel of each channel of the result.
        permutation: [u8; 3],
    },
    /// Gaussian blur with reflected borders.
    GaussianBlur {
        /// The number of pixels along x and y, odd.
        kernel_size: [u32; 2],
        /// The standard deviations along x and y, in pixels.
        sigma: [f64; 2],
    },
    /// Rotates about the centre, shears, scales and translates.
    Affine(Affine),
    /// Rotates, counter-clockwise.
    Rotate {
        /// The angle in degrees.
        angle: f64,
        /// The filter, and the fill outside of the image.
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
    /// AugMix: mixes the image with the results of chains of operations.
    Augmix {
        /// The weight of each chain. The image itself has the remaining weight up to 1.
        weights: Vec<f64>,
        /// The chains.
        chains: Vec<Vec<PixelOp>>,
    },
}

impl PixelOp {
    /// Returns whether the operation moves pixels, so that masks and boxes must be moved, too (`follow.rs`).
    pub(super) fn moves_pixels(&self) -> bool {
        matches!(self, Self::HorizontalFlip | Self::VerticalFlip | Self::Affine(_) | Self::Rotate { .. })
    }

    fn run(&self, scratch: &mut Scratch, levels: &mut PendingLevels<'_>, size: (u32, u32)) {
        let (level, width, height) = (levels.level, size.0 as usize, size.1 as usize);
        match self {
            PixelOp::AdjustBrightness { .. }
            | PixelOp::Invert
            | PixelOp::Posterize { .. }
            | PixelOp::Solarize { .. }
            | PixelOp::SolarizeAdd { .. } => levels.look_up(LevelTables::of(self)),
            PixelOp::AdjustContrast { contrast_factor } => {
                let [red, green, blue] = levels.channels();
                let pixels = red.len();
                let mean = statistics::mean(statistics::grey_sum(level, red, green, blue), pixels);
                levels.look_up(Some(LevelTables::contrast(*contrast_factor, mean)));
            }
            PixelOp::Autocontrast => {
                let extremes = levels.channels().map(|plane| statistics::extremes(level, plane));
                levels.look_up(Some(LevelTables::autocontrast(extremes)));
            }
            PixelOp::Equalize => {
                let histograms = levels.channels().map(|plane| statistics::histogram(plane));
                levels.look_up(Some(LevelTables::equalize(&histograms)));
            }
            PixelOp::HorizontalFlip => mirror::left_right(levels.without_lookup(), width),
            PixelOp::VerticalFlip => {
                for plane in channels(levels.without_lookup()) {
                    mirror::top_bottom(plane, width);
                }
            }
            PixelOp::RgbToGrayscale => {
                let [red, green, blue] = levels.channels();
                grey::to_grey(level, red, green, blue);
            }
            PixelOp::AdjustSaturation { saturation_factor } => {
                let [red, green, blue] = levels.channels();
                let (of_level, of_grey) = (*saturation_factor as f32, (1.0 - saturation_factor) as f32);
                grey::saturate(level, red, green, blue, of_level, of_grey);
            }
            PixelOp::AdjustHue { hue_factor } => {
                let [red, green, blue] = levels.channels();
                hue::turn(level, red, green, blue, *hue_factor as f32);
            }
            PixelOp::PermuteChannels { permutation } => {
                scratch.replace(levels.planes(), |from, to| mirror::permute(from, *permutation, to));
            }
            PixelOp::Affine(_) | PixelOp::Rotate { .. } => {
                if let Some(warp) = Warp::of(self, size) {
                    scratch.warp(level, &warp, size, levels.planes());
                }
            }
            PixelOp::AdjustSharpness { sharpness_factor } => {
                let of_smooth = (1.0 - sharpness_factor) as f32;
                scratch.replace(levels.planes(), |from, to| {
                    for (from, to) in channels(from).into_iter().zip(channels(to)) {
                        sharpness::sharpen(level, from, to, width, of_smooth);
                    }
                });
            }
            PixelOp::GaussianBlur { kernel_size, sigma } => {
                let weights = [0, 1].map(|axis| blur::weights(kernel_size[axis], sigma[axis]));
                if weights.iter().any(|weights| weights.len() > 1) {
                    let weights = weights.each_ref().map(|weights| &weights[..]);
                    scratch.blur.run(level, levels.channels(), (width, height), weights);
                }
            }
            PixelOp::Erase { rectangle, v } => {
                erase::erase_levels(levels.planes(), (width, height), *rectangle, *v);
            }
            PixelOp::Augmix { weights, chains } => scratch.mix(level, weights, chains, size, levels.planes()),
        }
    }

    /// Writes the operation into the GPU program of an image, and returns the level set that has the result.
    pub(super) fn write(&self, to: &mut ProgramWriter<'_>, levels: LevelSetRef) -> LevelSetRef {
        let shares = |factor: &f64| [*factor as f32, (1.0 - factor) as f32].map(f32::to_bits);
        match self {
            PixelOp::RgbToGrayscale => to.instruction(OpCode::Grey, levels, []),
            PixelOp::AdjustContrast { contrast_factor } => {
                to.instruction(OpCode::Contrast, levels, shares(contrast_factor))
            }
            PixelOp::AdjustSaturation { saturation_factor } => {
                to.instruction(OpCode::Saturation, levels, shares(saturation_factor))
            }
            PixelOp::AdjustHue { hue_factor } => {
                to.instruction(OpCode::Hue, levels, [(*hue_factor as f32).to_bits()])
            }
            PixelOp::AdjustSharpness { sharpness_factor } => {
                to.instruction(OpCode::Sharpness, levels, [shares(sharpness_factor)[1]])
            }
            PixelOp::Autocontrast => to.instruction(OpCode::Autocontrast, levels, []),
            PixelOp::Equalize => to.instruction(OpCode::Equalize, levels, []),
            PixelOp::PermuteChannels { permutation } => {
                to.instruction(OpCode::Permute, levels, [bytes(*permutation)])
            }
            PixelOp::GaussianBlur { kernel_size, sigma } => {
                let [across, down] = [0, 1].map(|axis| blur::weights(kernel_size[axis], sigma[axis]));
                to.blur(levels, &across, &down)
            }
            PixelOp::HorizontalFlip => to.moved(levels, [[-1, 0, to.size.0 as i32 - 1], [0, 1, 0]]),
            PixelOp::VerticalFlip => to.moved(levels, [[1, 0, 0], [0, -1, to.size.1 as i32 - 1]]),
            PixelOp::Erase { rectangle, v } => {
                let words = to.rectangle(rectangle).into_iter().chain([bytes(*v)]);
                to.instruction(OpCode::Fill, levels, words)
            }
            PixelOp::Augmix { weights, chains } => to.augmix(levels, weights, chains),
            PixelOp::Affine(_) | PixelOp::Rotate { .. } => match Warp::of(self, to.size) {
                Some(warp) => to.warp(levels, &warp),
                None => levels,
            },
            PixelOp::AdjustBrightness { .. }
            | PixelOp::Invert
            | PixelOp::Posterize { .. }
            | PixelOp::Solarize { .. }
            | PixelOp::SolarizeAdd { .. } => match LevelTables::of(self) {
                Some(tables) => to.tables(&tables, levels),
                None => levels,
            },
        }
    }
}

/// Packs three bytes into a word, the first byte into the lowest bits.
fn bytes([first, second, third]: [u8; 3]) -> u32 {
    u32::from_le_bytes([first, second, third, 0])
}

/// The codes of instructions, in the order of `cuda/ops/program.cuh`, which defines the words of each instruction.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(super) enum OpCode {
    Table,
    Contrast,
    Autocontrast,
    Equalize,
    Grey,
    Saturation,
    Hue,
    Permute,
    Fill,
    Store,
    Sharpness,
    Blur,
    Move,
    Warp,
    Shift,
    Mix,
    Erase,
    Noise,
}

impl OpCode {
    /// Returns whether an instruction can write into the level set that it reads, because it handles each pixel
    /// independently.
    pub(super) fn is_in_place(self) -> bool {
        (self as u32) < Self::Sharpness as u32
    }
}

/// The parameters of torchvision's `affine`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Affine {
    /// The angle of the rotation in degrees, clockwise.
    pub angle: f64,
    /// The translation to the right and down, in pixels: integers in torchvision's transforms, any numbers in timm's.
    #[serde(serialize_with = "in_pixels")]
    pub translate: [f64; 2],
    /// The scale factor.
    pub scale: f64,
    /// The shear angles along x and y, in degrees.
    pub shear: [f64; 2],
    /// The filter, and the fill outside of the image.
    #[serde(flatten)]
    pub sampling: WarpSampling,
}

/// Serialises translations by integers as JSON integers, because torchvision draws integers.
fn in_pixels<S: Serializer>(translate: &[f64; 2], serializer: S) -> Result<S::Ok, S::Error> {
    if translate.iter().all(|pixels| pixels.trunc() == *pixels) {
        translate.map(|pixels| pixels as i64).serialize(serializer)
    } else {
        translate.serialize(serializer)
    }
}

/// How a warp samples pixels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WarpSampling {
    /// [`Filter::Nearest`], [`Filter::Bilinear`] or [`Filter::Bicubic`], without antialiasing.
    pub interpolation: Filter,
    /// The levels outside of the image. As in torchvision, `None` and 0 give different pixels at the border of a
    /// bilinear warp: with `None`, border pixels are mixed with black.
    pub fill: Option<[f64; 3]>,
    /// The centre of rotation and scaling, in pixels from the image's left and top; `None` is the image's centre.
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

/// A rectangle of the finished image (after Normalize) that is overwritten.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Erasure {
    /// The rectangle.
    #[serde(flatten)]
    pub rectangle: Rectangle,
    /// The new values, on the scale of the output.
    pub v: ErasureValues,
}

/// The values that an [`Erasure`] writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasureValues {
    /// One value for each channel.
    Values([f32; 3]),
    /// A normal random number for each value, times `std`, plus `mean` of its channel.
    Noise {
        /// The key of the random numbers. Each random number is a function of this key and of the value's index in the
        /// image.
        key: [u32; 2],
        /// The means of R, G and B.
        mean: [f32; 3],
        /// The standard deviations of R, G and B.
        std: [f32; 3],
    },
}
