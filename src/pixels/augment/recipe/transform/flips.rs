//! Transforms that mirror at random. Mirroring can be exchanged with most other transforms of geometry, so it is part
//! of the view. After transforms that treat left and right, or top and bottom, differently, it is an operation on
//! pixels.

use super::table::transform;
use super::values::{BadParameter, check_probability};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};

transform! {
    /// Mirrors an image horizontally, at random.
    pub RandomHorizontalFlip {
        /// The probability that an image is mirrored.
        pub p: f64 = 0.5;
    }
}

impl GeometryTransform for RandomHorizontalFlip {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
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

transform! {
    /// Mirrors an image vertically, at random.
    pub RandomVerticalFlip {
        /// The probability that an image is mirrored.
        pub p: f64 = 0.5;
    }
}

impl GeometryTransform for RandomVerticalFlip {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
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
