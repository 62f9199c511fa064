//! Draws the operations on pixels that a list's transforms apply to one image after its geometry.

use super::transform::Transform;
use super::{DrawStage, DrawnView, LaterNormalize, RecipeStep, StepKeys};
use crate::augment::ImageSize;
use crate::augment::ops::{Erasure, ErasureValues, PixelOp};
use base::rng::RandomStream;

/// The random numbers of one step, and the view to which it adds operations.
pub(super) struct PixelDraw<'a> {
    pub(super) stream: RandomStream,
    step: &'a RecipeStep,
    keys: &'a StepKeys,
    sample: u64,
    occurrence: u32,
    drawn: &'a mut DrawnView,
}

/// Draws the operations of `steps` on the pixels of `sample`, which is drawn for the `occurrence`-th time in the epoch.
/// Adds the operations to `drawn`, whose size is already known.
///
/// # Errors
/// Names the step that cannot be applied to an image of that size, and the reason.
pub(super) fn pixels<'a>(
    steps: impl Iterator<Item = (&'a RecipeStep, &'a StepKeys)>,
    sample: u64,
    occurrence: u32,
    drawn: &mut DrawnView,
) -> Result<(), String> {
    for (step, keys) in steps {
        let stream = keys.own.stream_of(sample, occurrence);
        PixelDraw { stream, step, keys, sample, occurrence, drawn: &mut *drawn }.draw()?;
    }
    Ok(())
}

impl PixelDraw<'_> {
    fn draw(mut self) -> Result<(), String> {
        let step = self.step;
        match &step.transform {
            Transform::RandomHorizontalFlip(flip) if self.with_probability(flip.p) => {
                self.drawn.mirror_columns()
            }
            Transform::RandomVerticalFlip(flip) if self.with_probability(flip.p) => self.drawn.mirror_rows(),
            _ => {}
        }
        let Some(transform) = step.transform.pixels() else { return Ok(()) };
        transform.draw(&mut self).map_err(|why| format!("{} {why}", step.transform.name()))
    }

    pub(super) fn with_probability(&mut self, p: f64) -> bool {
        self.stream.unit() < p
    }

    pub(super) fn size(&self) -> ImageSize {
        ImageSize { width: self.drawn.width, height: self.drawn.height }
    }

    pub(super) fn push(&mut self, op: PixelOp) {
        self.drawn.ops.push(op);
    }

    pub(super) fn extend(&mut self, op: Option<PixelOp>) {
        self.drawn.ops.extend(op);
    }

    /// Adds an operation with probability `p`.
    ///
    /// # Errors
    /// Never fails. The `Result` allows a `draw` to end with this call.
    pub(super) fn push_with_probability(&mut self, p: f64, op: PixelOp) -> Result<(), String> {
        if self.with_probability(p) {
            self.push(op);
        }
        Ok(())
    }

    /// Adds a rectangle that is overwritten in the finished image.
    pub(super) fn erase(&mut self, erasure: Erasure) {
        self.drawn.erasures.push(erasure);
    }

    /// Returns the Normalize that is still applied to values after this step. Returns `None` if the step handles grey
    /// levels.
    pub(super) fn later_normalize(&self) -> Option<LaterNormalize> {
        match self.step.stage {
            DrawStage::Finished(scale) => Some(scale),
            _ => None,
        }
    }

    pub(super) fn child(&mut self, child: usize) -> Result<(), String> {
        let of_child = (&self.step.children[child], &self.keys.children[child]);
        pixels(std::iter::once(of_child), self.sample, self.occurrence, self.drawn)
    }
}

impl DrawnView {
    /// Mirrors left and right after the operations drawn so far.
    fn mirror_columns(&mut self) {
        self.ops.push(PixelOp::HorizontalFlip);
        // Rectangles are overwritten after all operations, so the rectangles that were drawn before must move to the
        // other side. Random values need no move: mirrored noise has the same distribution.
        for Erasure { rectangle, .. } in &mut self.erasures {
            rectangle.j = self.width - rectangle.j - rectangle.w;
        }
    }

    /// Mirrors top and bottom after the operations drawn so far, as [`DrawnView::mirror_columns`] does left and right.
    fn mirror_rows(&mut self) {
        self.ops.push(PixelOp::VerticalFlip);
        for Erasure { rectangle, .. } in &mut self.erasures {
            rectangle.i = self.height - rectangle.i - rectangle.h;
        }
    }
}

impl LaterNormalize {
    /// Converts `value` from the scale at the step's place to the scale of the finished image.
    pub(super) fn normalise(&self, value: ErasureValues) -> ErasureValues {
        let Self { mean, std } = self;
        let normalised = |values: [f32; 3]| [0, 1, 2].map(|c| (values[c] - mean[c]) / std[c]);
        match value {
            ErasureValues::Values(values) => ErasureValues::Values(normalised(values)),
            ErasureValues::Noise { key, mean: centre, std: spread } => {
                let spread = [0, 1, 2].map(|c| spread[c] / std[c]);
                ErasureValues::Noise { key, mean: normalised(centre), std: spread }
            }
        }
    }
}
