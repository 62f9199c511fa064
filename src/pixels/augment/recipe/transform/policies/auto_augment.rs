//! AutoAugment: one of 25 pairs of operations that were found by search.

use super::super::table::{ParameterKind, parameter_types, transform};
use super::super::values::{BadParameter, FillValues};
use super::super::{PixelDraw, PixelTransform};
use super::magnitudes::PolicyOp::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};
use super::magnitudes::{MagnitudeBin, PolicyMagnitude, PolicyOp, PolicyWarp};
use super::rand_augment::MAGNITUDES;
use crate::augment::Filter;
use base::names::named;

// Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", 2018.
transform! {
    /// Applies one of 25 pairs of operations that were found by a search (Cubuk et al., 2018).
    pub AutoAugment {
        /// The dataset of the search: `imagenet`, `cifar10` or `svhn`; or torchvision's `AutoAugmentPolicy`.
        policy: AutoAugmentPolicy = "imagenet";
        /// The filter of rotations and other warps: `nearest`, `bilinear` or `bicubic`.
        interpolation: Filter = "nearest", must("nearest, bilinear, bicubic");
        /// The value that is shown outside of the image, 0 to 255; or three for R, G and B. None: black, which
        /// `bilinear` and `bicubic` mix with the image at its border, as torchvision does.
        fill: Option<FillValues> = null;
    }
}

/// The dataset for which a policy was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoAugmentPolicy {
    ImageNet,
    Cifar10,
    Svhn,
}

named!(AutoAugmentPolicy: "imagenet" => ImageNet, "cifar10" => Cifar10, "svhn" => Svhn);

parameter_types! {
    AutoAugmentPolicy: ParameterKind::names::<AutoAugmentPolicy>("Any");
}

/// One operation of a pair: the operation, its probability, and the index of its magnitude, which is 0 for operations
/// without magnitudes.
type PolicyStep = (PolicyOp, f64, u32);

const BINS: u32 = 10;

impl PixelTransform for AutoAugment {
    fn check(&self) -> Result<(), BadParameter> {
        PolicyWarp { interpolation: self.interpolation, fill: self.fill }.check()
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let (warp, size) = (PolicyWarp { interpolation: self.interpolation, fill: self.fill }, draw.size());
        let pairs = match self.policy {
            AutoAugmentPolicy::ImageNet => &IMAGENET,
            AutoAugmentPolicy::Cifar10 => &CIFAR10,
            AutoAugmentPolicy::Svhn => &SVHN,
        };
        for (op, p, bin) in pairs[draw.stream.below(pairs.len() as u64) as usize] {
            if draw.with_probability(p) {
                let magnitude = PolicyMagnitude { bins: BINS, bin: MagnitudeBin::Fixed(bin) };
                let op = MAGNITUDES.draw(op, magnitude, size, warp, &mut draw.stream);
                draw.extend(op);
            }
        }
        Ok(())
    }
}

const IMAGENET: [[PolicyStep; 2]; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [[PolicyStep; 2]; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [[PolicyStep; 2]; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];
