//! timm's RandAugment, whose distribution differs from torchvision's. There are fifteen operations. Each is applied
//! with a probability, and its strength is normally distributed.

use super::super::table::{ParameterKind, parameter_types, transform};
use super::super::values::{BadParameter, FillValues, check_probability, check_range};
use super::super::{PixelDraw, PixelTransform};
use super::magnitudes::PolicyWarp;
use crate::augment::ops::PixelOp;
use crate::augment::recipe::distributions::normal;
use crate::augment::{Filter, ImageSize};
use base::names::named;
use base::rng::RandomStream;

transform! {
    /// Applies some of 15 operations, as timm's `rand_augment_transform` does. `RandAugment.timm` makes it from a spec.
    ///
    /// Each drawn operation is applied with probability `p`, and has its own magnitude from a normal distribution.
    /// Operations give the same results as torchvision's on tensors. Images move by fractions of pixels as in timm, by
    /// at most 45 % of their size.
    pub TimmRandAugment {
        /// The number of operations that are drawn; one may be drawn several times.
        num_ops: u32 = 2;
        /// The mean of the magnitudes; 10 is the full strength.
        magnitude: f64 = 10.0;
        /// The standard deviation of the magnitudes. Above 100, they are uniform from 0 to `magnitude`.
        magnitude_std: f64 = 0.0;
        /// The largest magnitude.
        magnitude_max: f64 = 10.0;
        /// Whether posterising, solarising and colour factors also become stronger with the magnitude.
        increasing: bool = false;
        /// The probability of applying each drawn operation.
        p: f64 = 0.5;
        /// The filter of warps: `nearest`, `bilinear` or `bicubic`; or `random`: for each warp, `bilinear` or
        /// `bicubic` is drawn.
        interpolation: TimmInterpolation = "random";
        /// The value that warps show outside of the image, 0 to 255; or three for R, G and B.
        fill: FillValues = 128;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimmInterpolation {
    Nearest,
    Bilinear,
    Bicubic,
    /// Bilinear or bicubic, drawn each time.
    Random,
}

named!(TimmInterpolation: "nearest" => Nearest, "bilinear" => Bilinear, "bicubic" => Bicubic, "random" => Random);

parameter_types! {
    TimmInterpolation: ParameterKind::names::<TimmInterpolation>("Any");
}

/// The magnitude at which most operations have their full strength.
const SCALE: f64 = 10.0;

/// The standard deviation above which magnitudes are uniform.
const UNIFORM_ABOVE: f64 = 100.0;

/// The largest translation, as a share of the image's side.
const TRANSLATE: f64 = 0.45;

const MAX_OPS: u32 = 1000;

super::operations! {
    TimmOp: AutoContrast, Equalize, Invert, Rotate, Posterize, Solarize, SolarizeAdd, Color, Contrast, Brightness,
        Sharpness, ShearX, ShearY, TranslateXRel, TranslateYRel
}

impl PixelTransform for TimmRandAugment {
    fn check(&self) -> Result<(), BadParameter> {
        if self.num_ops > MAX_OPS {
            return Err(BadParameter::new(
                "num_ops",
                format!("is {}, must be at most {MAX_OPS}", self.num_ops),
            ));
        }
        let from_0 =
            |parameter, value| check_range(parameter, value, 0.0, f64::MAX, "a number of at least 0");
        from_0("magnitude", self.magnitude)?;
        from_0("magnitude_std", self.magnitude_std)?;
        from_0("magnitude_max", self.magnitude_max)?;
        check_probability("p", self.p)?;
        self.fill.check()
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        for _ in 0..self.num_ops {
            let op = TimmOp::ALL[draw.stream.below(TimmOp::ALL.len() as u64) as usize];
            if draw.with_probability(self.p) {
                let op = self.op(op, draw.size(), &mut draw.stream);
                draw.push(op);
            }
        }
        Ok(())
    }
}

impl TimmRandAugment {
    /// Draws the strength of an operation, as a share of the full strength.
    fn strength(&self, stream: &mut RandomStream) -> f64 {
        let magnitude = match self.magnitude_std {
            std if std > UNIFORM_ABOVE => stream.uniform(0.0, self.magnitude),
            std if std > 0.0 => self.magnitude + std * normal(stream),
            _ => self.magnitude,
        };
        magnitude.clamp(0.0, self.magnitude_max) / SCALE
    }

    fn op(&self, op: TimmOp, ImageSize { width, height }: ImageSize, stream: &mut RandomStream) -> PixelOp {
        let strength = self.strength(stream);
        match op {
            TimmOp::AutoContrast => PixelOp::Autocontrast,
            TimmOp::Equalize => PixelOp::Equalize,
            TimmOp::Invert => PixelOp::Invert,
            TimmOp::Posterize => {
                let bits = (strength * 4.0) as u32;
                PixelOp::Posterize {
                    bits: if self.increasing { 4_u32.saturating_sub(bits) } else { bits.min(8) },
                }
            }
            TimmOp::Solarize => {
                let threshold = ((strength * 256.0) as u32).min(256);
                PixelOp::Solarize {
                    threshold: if self.increasing { 256 - threshold } else { threshold }.into(),
                }
            }
            TimmOp::SolarizeAdd => {
                PixelOp::SolarizeAdd { addition: ((strength * 110.0) as i32).min(128), threshold: 128 }
            }
            TimmOp::Color => PixelOp::AdjustSaturation { saturation_factor: self.factor(strength, stream) },
            TimmOp::Contrast => PixelOp::AdjustContrast { contrast_factor: self.factor(strength, stream) },
            TimmOp::Brightness => {
                PixelOp::AdjustBrightness { brightness_factor: self.factor(strength, stream) }
            }
            TimmOp::Sharpness => PixelOp::AdjustSharpness { sharpness_factor: self.factor(strength, stream) },
            TimmOp::Rotate
            | TimmOp::ShearX
            | TimmOp::ShearY
            | TimmOp::TranslateXRel
            | TimmOp::TranslateYRel => {
                let strength = signed(strength, stream);
                let warp = self.warp(stream);
                let pixels = |side: u32| strength * TRANSLATE * f64::from(side);
                match op {
                    TimmOp::Rotate => warp.rotate(strength * 30.0),
                    TimmOp::ShearX => warp.shear_x(strength * 0.3),
                    TimmOp::ShearY => warp.shear_y(strength * 0.3),
                    TimmOp::TranslateXRel => warp.translate([pixels(width), 0.0]),
                    _ => warp.translate([0.0, pixels(height)]),
                }
            }
        }
    }

    /// Returns the factor for a strength. If `increasing`, the distance of the factor from 1 grows with the strength,
    /// but the factor is at least .1. Otherwise the factor grows with the strength, from .1 at strength 0 to 1.9 at
    /// strength 1.
    fn factor(&self, strength: f64, stream: &mut RandomStream) -> f64 {
        if self.increasing { (1.0 + signed(strength * 0.9, stream)).max(0.1) } else { strength * 1.8 + 0.1 }
    }

    fn warp(&self, stream: &mut RandomStream) -> PolicyWarp {
        let interpolation = match self.interpolation {
            TimmInterpolation::Nearest => Filter::Nearest,
            TimmInterpolation::Bilinear => Filter::Bilinear,
            TimmInterpolation::Bicubic => Filter::Bicubic,
            TimmInterpolation::Random => [Filter::Bilinear, Filter::Bicubic][stream.below(2) as usize],
        };
        PolicyWarp { interpolation, fill: Some(self.fill) }
    }
}

fn signed(value: f64, stream: &mut RandomStream) -> f64 {
    if stream.unit() > 0.5 { -value } else { value }
}
