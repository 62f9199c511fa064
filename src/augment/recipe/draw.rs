//! Draws the operations on pixels: what a list's transforms do to one image behind its geometry.

use super::transform::Transform;
use super::{DrawnView, RecipeStep, StepKeys};
use crate::augment::ops::PixelOp;

/// Draws what `steps` do to the pixels of `sample`, the `occurrence`-th time that it comes up, and adds it to `drawn`,
/// whose size is known.
pub(super) fn pixels<'a>(
    steps: impl Iterator<Item = (&'a RecipeStep, &'a StepKeys)>,
    sample: u64,
    occurrence: u32,
    drawn: &mut DrawnView,
) {
    for (step, keys) in steps {
        let mut stream = keys.own.stream_of(sample, occurrence);
        match step.transform {
            Transform::Grayscale { .. } => drawn.ops.push(PixelOp::RgbToGrayscale),
            Transform::RandomHorizontalFlip { p } => {
                if stream.unit() < p {
                    drawn.ops.push(PixelOp::HorizontalFlip);
                }
            }
            Transform::RandomVerticalFlip { p } => {
                if stream.unit() < p {
                    drawn.ops.push(PixelOp::VerticalFlip);
                }
            }
            _ => {}
        }
    }
}
