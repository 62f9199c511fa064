//! AugMix: mixes an image with the results of several chains of operations.

use super::super::table::transform;
use super::super::values::{BadParameter, FillValues};
use super::super::{PixelDraw, PixelTransform};
use super::magnitudes::{
    LargestTranslation, MagnitudeBin, MagnitudeTable, PolicyMagnitude, PolicyOp, PolicyWarp,
};
use crate::augment::ops::PixelOp;
use crate::augment::recipe::distributions::dirichlet;
use crate::augment::{Filter, ImageSize};
use base::rng::RandomStream;

// Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", 2019.
transform! {
    /// Mixes an image with the results of several chains of operations (Hendrycks et al., 2019).
    pub AugMix {
        /// The number of strengths to draw from, of ten, the weakest first.
        severity: u32 = 3;
        /// The number of chains, at most 16.
        mixture_width: u32 = 3;
        /// The number of operations of a chain, at most 16. If it is 0 or less, it is drawn from 1 to 3.
        chain_depth: i32 = -1;
        /// The parameter of the distributions of the weights: Beta for the image, and Dirichlet for the chains.
        alpha: f64 = 1.0;
        /// Whether brightness, colour, contrast and sharpness are among the operations.
        all_ops: bool = true;
        /// The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        interpolation: Filter = "bilinear", must("nearest, bilinear, bicubic");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = null;
    }
}

const BINS: u32 = 10;

/// The maximum number of chains, and of operations in a chain.
const MAX_CHAINS: u32 = 16;

/// All operations. The last four are left out if `all_ops` is false.
const OPS: [PolicyOp; 13] = [
    PolicyOp::ShearX,
    PolicyOp::ShearY,
    PolicyOp::TranslateX,
    PolicyOp::TranslateY,
    PolicyOp::Rotate,
    PolicyOp::Posterize,
    PolicyOp::Solarize,
    PolicyOp::AutoContrast,
    PolicyOp::Equalize,
    PolicyOp::Brightness,
    PolicyOp::Color,
    PolicyOp::Contrast,
    PolicyOp::Sharpness,
];

const MAGNITUDES: MagnitudeTable = MagnitudeTable {
    shear: 0.3,
    translate: LargestTranslation::Part(3.0),
    rotate: 30.0,
    factor: 0.9,
    posterize: (4, 4),
};

impl PixelTransform for AugMix {
    fn check(&self) -> Result<(), BadParameter> {
        if !(1..=BINS).contains(&self.severity) {
            let message = format!("is {}, must be from 1 to {BINS}", self.severity);
            return Err(BadParameter::new("severity", message));
        } else if !(1..=MAX_CHAINS).contains(&self.mixture_width) {
            let message = format!("is {}, must be from 1 to {MAX_CHAINS}", self.mixture_width);
            return Err(BadParameter::new("mixture_width", message));
        } else if self.chain_depth > MAX_CHAINS as i32 {
            let message = format!("is {}, must be at most {MAX_CHAINS}", self.chain_depth);
            return Err(BadParameter::new("chain_depth", message));
        } else if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return Err(BadParameter::new("alpha", format!("is {}, must be above 0", self.alpha)));
        }
        PolicyWarp { interpolation: self.interpolation, fill: self.fill }.check()
    }

    fn max_chains(&self) -> usize {
        self.mixture_width as usize
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let size = draw.size();
        let mixed = dirichlet(&mut draw.stream, self.alpha, 2)[1];
        let shares = dirichlet(&mut draw.stream, self.alpha, self.mixture_width as usize);
        let weights: Vec<f64> = shares.into_iter().map(|share| share * mixed).collect();
        let chains = weights.iter().map(|_| self.chain(size, &mut draw.stream)).collect();
        draw.push(PixelOp::Augmix { weights, chains });
        Ok(())
    }
}

impl AugMix {
    fn chain(&self, size: ImageSize, stream: &mut RandomStream) -> Vec<PixelOp> {
        let warp = PolicyWarp { interpolation: self.interpolation, fill: self.fill };
        let ops = if self.all_ops { &OPS[..] } else { &OPS[..9] };
        let depth = u32::try_from(self.chain_depth).ok().filter(|depth| *depth > 0);
        let depth = depth.unwrap_or_else(|| 1 + stream.below(3) as u32);
        let weak = PolicyMagnitude { bins: BINS, bin: MagnitudeBin::Below(self.severity) };
        let mut chain = Vec::new();
        for _ in 0..depth {
            let op = ops[stream.below(ops.len() as u64) as usize];
            chain.extend(MAGNITUDES.draw(op, weak, size, warp, stream));
        }
        chain
    }
}
