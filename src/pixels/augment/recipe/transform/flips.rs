//! Transforms that mirror at random. They can be exchanged with most others of geometry, and come as operations on
//! pixels behind those that mind places.

use super::values::{BadParameter, half, probability};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use serde::Deserialize;

/// Mirrors left and right at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// The probability of mirroring.
    #[serde(default = "half")]
    pub p: f64,
}

impl GeometryTransform for RandomHorizontalFlip {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.mirror();
        Ok(())
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        if stream.unit() < self.p {
            fold.mirror();
        }
        Ok(())
    }
}

/// Mirrors top and bottom at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomVerticalFlip {
    /// The probability of mirroring.
    #[serde(default = "half")]
    pub p: f64,
}

impl GeometryTransform for RandomVerticalFlip {
    fn check(&self) -> Result<(), BadParameter> {
        probability("p", self.p)
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.mirror();
        Ok(())
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        if stream.unit() < self.p {
            fold.mirror_vertically();
        }
        Ok(())
    }
}
