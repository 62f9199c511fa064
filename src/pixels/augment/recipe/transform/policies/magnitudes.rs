//! The operations of torchvision's policies, and the strength of each of their magnitudes.

use super::super::values::{BadParameter, FillValues};
use super::super::warps::{check_sampling, sampling};
use crate::augment::ops::{Affine, PixelOp, WarpSampling};
use crate::augment::{Filter, ImageSize};
use base::rng::RandomStream;

// The order is torchvision's; RandAugment and TrivialAugment draw from all but the last one.
super::operations! {
    pub(super) PolicyOp: Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate, Brightness, Color, Contrast,
        Sharpness, Posterize, Solarize, AutoContrast, Equalize, Invert
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MagnitudeTable {
    /// The tangent of the largest shear angle.
    pub(super) shear: f64,
    pub(super) translate: LargestTranslation,
    /// The largest rotation in degrees.
    pub(super) rotate: f64,
    /// The maximum distance from 1 of the factors of brightness, colour, contrast and sharpness.
    pub(super) factor: f64,
    /// The number of bits that the smallest magnitude keeps, and how many bits fewer the largest magnitude keeps.
    pub(super) posterize: (u8, u8),
}

/// Which of a policy's magnitudes an operation has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PolicyMagnitude {
    pub(super) bins: u32,
    pub(super) bin: MagnitudeBin,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MagnitudeBin {
    Fixed(u32),
    /// A random index below this number. Index 0 is the weakest magnitude.
    Below(u32),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LargestTranslation {
    Pixels(f64),
    /// A share of the image's side.
    Share(f64),
    /// The image's side divided by this number.
    Part(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PolicyWarp {
    pub(super) interpolation: Filter,
    pub(super) fill: Option<FillValues>,
}

impl PolicyWarp {
    pub(super) fn check(self) -> Result<(), BadParameter> {
        check_sampling(self.interpolation, self.fill)
    }

    pub(super) fn about(self, center: Option<[f64; 2]>) -> WarpSampling {
        sampling(self.interpolation, self.fill, center)
    }

    /// Returns a shear along x by the angle whose tangent is `tangent`, about the image's corner.
    pub(super) fn shear_x(self, tangent: f64) -> PixelOp {
        self.shear([degrees_of(tangent), 0.0])
    }

    pub(super) fn shear_y(self, tangent: f64) -> PixelOp {
        self.shear([0.0, degrees_of(tangent)])
    }

    fn shear(self, shear: [f64; 2]) -> PixelOp {
        let sampling = self.about(Some([0.0; 2]));
        PixelOp::Affine(Affine { angle: 0.0, translate: [0.0; 2], scale: 1.0, shear, sampling })
    }

    /// Returns a translation by this many pixels to the right and down.
    pub(super) fn translate(self, translate: [f64; 2]) -> PixelOp {
        let sampling = self.about(None);
        PixelOp::Affine(Affine { angle: 0.0, translate, scale: 1.0, shear: [0.0; 2], sampling })
    }

    pub(super) fn rotate(self, angle: f64) -> PixelOp {
        PixelOp::Rotate { angle, sampling: self.about(None) }
    }
}

/// Returns the angle in degrees. The function of libm, unlike the system's, gives the same shear on all machines.
fn degrees_of(tangent: f64) -> f64 {
    libm::atan(tangent).to_degrees()
}

impl PolicyOp {
    /// Returns whether magnitudes get a random sign; `None` if the operation has no magnitudes.
    fn is_signed(self) -> Option<bool> {
        match self {
            Self::Identity | Self::AutoContrast | Self::Equalize | Self::Invert => None,
            Self::Posterize | Self::Solarize => Some(false),
            _ => Some(true),
        }
    }

    fn with(self, magnitude: f64, warp: PolicyWarp) -> Option<PixelOp> {
        let factor = 1.0 + magnitude;
        Some(match self {
            Self::Identity => return None,
            Self::ShearX => warp.shear_x(magnitude),
            Self::ShearY => warp.shear_y(magnitude),
            Self::TranslateX => warp.translate([magnitude.trunc(), 0.0]),
            Self::TranslateY => warp.translate([0.0, magnitude.trunc()]),
            Self::Rotate => warp.rotate(magnitude),
            Self::Brightness => PixelOp::AdjustBrightness { brightness_factor: factor },
            Self::Color => PixelOp::AdjustSaturation { saturation_factor: factor },
            Self::Contrast => PixelOp::AdjustContrast { contrast_factor: factor },
            Self::Sharpness => PixelOp::AdjustSharpness { sharpness_factor: factor },
            Self::Posterize => PixelOp::Posterize { bits: magnitude as u32 },
            Self::Solarize => PixelOp::Solarize { threshold: 255.0 * magnitude },
            Self::AutoContrast => PixelOp::Autocontrast,
            Self::Equalize => PixelOp::Equalize,
            Self::Invert => PixelOp::Invert,
        })
    }
}

impl MagnitudeTable {
    /// Draws the random parts of an operation for an image of `size`: its magnitude, if that is random, and its sign.
    /// Returns `None` for the identity.
    pub(super) fn draw(
        &self,
        op: PolicyOp,
        PolicyMagnitude { bins, bin }: PolicyMagnitude,
        size: ImageSize,
        warp: PolicyWarp,
        stream: &mut RandomStream,
    ) -> Option<PixelOp> {
        let Some(is_signed) = op.is_signed() else { return op.with(0.0, warp) };
        let bin = match bin {
            MagnitudeBin::Fixed(bin) => bin,
            MagnitudeBin::Below(count) => stream.below(count.into()) as u32,
        };
        let mut magnitude = self.magnitude(op, bins, bin, size);
        if is_signed && stream.unit() <= 0.5 {
            magnitude = -magnitude;
        }
        op.with(magnitude, warp)
    }

    /// Returns the magnitude at index `bin` of `bins` magnitudes, in float32, as torch computes it.
    fn magnitude(&self, op: PolicyOp, bins: u32, bin: u32, ImageSize { width, height }: ImageSize) -> f64 {
        let up_to = |most: f64| linspace(0.0, most as f32, bins, bin).into();
        match op {
            PolicyOp::ShearX | PolicyOp::ShearY => up_to(self.shear),
            PolicyOp::TranslateX => up_to(self.translate.along(width)),
            PolicyOp::TranslateY => up_to(self.translate.along(height)),
            PolicyOp::Rotate => up_to(self.rotate),
            PolicyOp::Brightness | PolicyOp::Color | PolicyOp::Contrast | PolicyOp::Sharpness => {
                up_to(self.factor)
            }
            PolicyOp::Posterize => {
                let (most, fewer) = (f32::from(self.posterize.0), f64::from(self.posterize.1));
                let step = (f64::from(bins - 1) / fewer) as f32;
                (most - bin as f32 / step).round_ties_even().into()
            }
            PolicyOp::Solarize => linspace(1.0, 0.0, bins, bin).into(),
            PolicyOp::Identity | PolicyOp::AutoContrast | PolicyOp::Equalize | PolicyOp::Invert => 0.0,
        }
    }
}

impl LargestTranslation {
    fn along(self, side: u32) -> f64 {
        match self {
            Self::Pixels(pixels) => pixels,
            Self::Share(share) => share * f64::from(side),
            Self::Part(part) => f64::from(side) / part,
        }
    }
}

/// Returns the number at index `at` of `count` numbers that are evenly spread from `start` to `end`. It equals torch's
/// `linspace`, which counts from the nearer end and rounds once: f64 holds the product and the sum exactly, so only the
/// conversion to f32 rounds.
fn linspace(start: f32, end: f32, count: u32, at: u32) -> f32 {
    let step = f64::from((end - start) / (count - 1) as f32);
    let number = if at < count / 2 {
        f64::from(start) + step * f64::from(at)
    } else {
        f64::from(end) - step * f64::from(count - at - 1)
    };
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_are_torchs() {
        // `torch.linspace` of torch 2.x, and torchvision's formula for the bits of Posterize.
        let all =
            |start, end, count| (0..count).map(|at| linspace(start, end, count, at)).collect::<Vec<_>>();
        assert_eq!(all(0.0, 0.9, 4), [0.0, 0.299_999_98, 0.6, 0.9]);
        assert_eq!(all(1.0, 0.0, 5), [1.0, 0.75, 0.5, 0.25, 0.0]);
        // Truncated, 15.999_999 gives 15 pixels instead of 16.
        assert_eq!(linspace(0.0, 32.0, 31, 15), 15.999_999);
        let bits = |posterize, bins| {
            let table = MagnitudeTable { posterize, ..super::super::rand_augment::MAGNITUDES };
            let bits =
                |bin| table.magnitude(PolicyOp::Posterize, bins, bin, ImageSize { width: 1, height: 1 });
            (0..bins).map(bits).collect::<Vec<_>>()
        };
        assert_eq!(bits((8, 4), 10), [8.0, 8.0, 7.0, 7.0, 6.0, 6.0, 5.0, 5.0, 4.0, 4.0]);
        assert_eq!(bits((4, 4), 10), [4.0, 4.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 0.0, 0.0]);
    }
}
