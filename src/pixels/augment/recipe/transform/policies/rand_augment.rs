//! RandAugment and TrivialAugment: operations of a table, all equally likely.

use super::super::table::transform;
use super::super::values::{BadParameter, FillValues};
use super::super::{PixelDraw, PixelTransform};
use super::magnitudes::{
    LargestTranslation, MagnitudeBin, MagnitudeTable, PolicyMagnitude, PolicyOp, PolicyWarp,
};
use crate::augment::Filter;

// Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", 2019.
transform! {
    /// Applies some of 14 operations, all with the same strength (Cubuk et al., 2019).
    ///
    /// `RandAugment.timm` makes timm's variant, which has another distribution.
    pub RandAugment(TimmSpecs) {
        /// The number of operations; one may be drawn several times.
        num_ops: u32 = 2;
        /// The number of the strength, from 0.
        magnitude: u32 = 9;
        /// The number of strengths, at least 2.
        num_magnitude_bins: u32 = 31;
        /// The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        interpolation: Filter = "nearest", must("nearest, bilinear, bicubic");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = null;
    }
}

// Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", 2021.
transform! {
    /// Applies one of 14 operations, with random strength (Müller and Hutter, 2021).
    pub TrivialAugmentWide {
        /// The number of strengths, at least 2.
        num_magnitude_bins: u32 = 31;
        /// The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        interpolation: Filter = "nearest", must("nearest, bilinear, bicubic");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = null;
    }
}

/// The largest allowed `num_ops` and `num_magnitude_bins`.
const MAX_BINS: u32 = 1000;

/// The operations of both policies, in torchvision's order: every [`PolicyOp`] but the last one, `Invert`. A random
/// index selects one.
const OPS: &[PolicyOp] = PolicyOp::ALL.split_at(14).0;

/// The largest magnitudes of RandAugment and AutoAugment.
pub(super) const MAGNITUDES: MagnitudeTable = MagnitudeTable {
    shear: 0.3,
    translate: LargestTranslation::Share(150.0 / 331.0),
    rotate: 30.0,
    factor: 0.9,
    posterize: (8, 4),
};

/// The largest magnitudes of TrivialAugment.
const WIDE: MagnitudeTable = MagnitudeTable {
    shear: 0.99,
    translate: LargestTranslation::Pixels(32.0),
    rotate: 135.0,
    factor: 0.99,
    posterize: (8, 6),
};

fn check_bins(bins: u32) -> Result<(), BadParameter> {
    if (2..=MAX_BINS).contains(&bins) {
        return Ok(());
    }
    Err(BadParameter::new("num_magnitude_bins", format!("is {bins}, must be from 2 to {MAX_BINS}")))
}

impl PixelTransform for RandAugment {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { num_ops, magnitude, num_magnitude_bins: bins, interpolation, fill } = *self;
        if num_ops > MAX_BINS {
            return Err(BadParameter::new("num_ops", format!("is {num_ops}, must be at most {MAX_BINS}")));
        }
        check_bins(bins)?;
        if magnitude >= bins {
            let message = format!("is {magnitude}, must be less than num_magnitude_bins, which is {bins}");
            return Err(BadParameter::new("magnitude", message));
        }
        PolicyWarp { interpolation, fill }.check()
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let Self { num_ops, magnitude, num_magnitude_bins: bins, interpolation, fill } = *self;
        let (warp, size) = (PolicyWarp { interpolation, fill }, draw.size());
        let magnitude = PolicyMagnitude { bins, bin: MagnitudeBin::Fixed(magnitude) };
        for _ in 0..num_ops {
            let op = OPS[draw.stream.below(OPS.len() as u64) as usize];
            let op = MAGNITUDES.draw(op, magnitude, size, warp, &mut draw.stream);
            draw.extend(op);
        }
        Ok(())
    }
}

impl PixelTransform for TrivialAugmentWide {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { num_magnitude_bins: bins, interpolation, fill } = *self;
        check_bins(bins)?;
        PolicyWarp { interpolation, fill }.check()
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let Self { num_magnitude_bins: bins, interpolation, fill } = *self;
        let (warp, size) = (PolicyWarp { interpolation, fill }, draw.size());
        let op = OPS[draw.stream.below(OPS.len() as u64) as usize];
        let any = PolicyMagnitude { bins, bin: MagnitudeBin::Below(bins) };
        let op = WIDE.draw(op, any, size, warp, &mut draw.stream);
        draw.extend(op);
        Ok(())
    }
}
