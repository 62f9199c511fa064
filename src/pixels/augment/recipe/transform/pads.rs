//! Transforms that add pixels around an image.

use super::values::{BadParameter, FillLevels, LARGEST_SIDE, Margins, half, probability};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::zoomed_out;
use crate::augment::{ImageSize, Padding};
use serde::Deserialize;

/// Adds pixels around the image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// The number of pixels to add.
    padding: Margins,
    /// The grey levels of constant padding.
    #[serde(default)]
    fill: FillLevels,
    /// What the added pixels show.
    #[serde(default)]
    padding_mode: Padding,
}

impl GeometryTransform for Pad {
    fn check(&self) -> Result<(), BadParameter> {
        self.padding.check()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.channels()
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.pad(self.padding_mode, self.fill())?;
        let [left, top, right, bottom] = self.padding.sides();
        list.resize_grid(|ImageSize { width, height }| {
            Some(ImageSize { width: width + left + right, height: height + top + bottom })
        });
        Ok(())
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        draw.fold.pad(self.padding.sides(), self.padding_mode)
    }
}

/// Puts the image at a random place of a larger canvas at random.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomZoomOut {
    /// The grey levels of the canvas.
    #[serde(default)]
    fill: FillLevels,
    /// Bounds of the canvas' sides, as multiples of the image's.
    #[serde(default = "zoom_range")]
    side_range: (f64, f64),
    /// The probability of that.
    #[serde(default = "half")]
    p: f64,
}

fn zoom_range() -> (f64, f64) {
    (1.0, 4.0)
}

impl GeometryTransform for RandomZoomOut {
    fn check(&self) -> Result<(), BadParameter> {
        let ((low, high), most) = (self.side_range, f64::from(LARGEST_SIDE));
        if !(1.0 <= low && low <= high && high <= most) {
            let wrong = format!("is ({low}, {high}), must be 1 <= low <= high <= {most}");
            return Err(BadParameter::new("side_range", wrong));
        }
        probability("p", self.p)
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.channels()
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.pad(Padding::Constant, self.fill())?;
        list.resize_grid(|_| None);
        Ok(())
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        if stream.unit() >= self.p {
            return Ok(());
        }
        fold.pad(zoomed_out(stream, fold.size(), self.side_range), Padding::Constant)
    }
}
