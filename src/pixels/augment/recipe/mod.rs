//! Recipes: a list of transforms with torchvision v2's names, checked and compiled once. A recipe runs as geometry,
//! which folds into one [`View`](crate::augment::View), then operations on pixels, then the element type and its scale.
//!
//! Every random number is a function of (seed, epoch, sample, occurrence, field, view, transform). Every transform
//! draws from its own random stream, keyed by the view, the transform's kind, and its number among those of its kind in
//! the list. So adding a transform or a view changes no other's numbers.

mod boxes;
mod compile;
mod distributions;
mod draw;
mod drawn;
mod fold;
mod geometry;
#[cfg(test)]
mod pixel_tests;
mod renderer;
mod request;
#[cfg(test)]
mod tests;
mod torchvision;
mod transform;

pub use drawn::{DrawnView, DrawnViews};
pub use renderer::Renderer;
pub use request::{ImageTransforms, Transforms};
pub use transform::Transform;
pub use transform::{BadParameter, CROP_RATIO, CROP_SCALE, MAX_SIDE, Sides};
pub use transform::{CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, WholeResize};
pub(crate) use transform::{check_choice, table};
pub use transform::{transforms_json, transforms_stub};

use super::{DType, Fidelity, ImageSize, MemoryFormat, Output};
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use geometry::Geometry;

/// The compiled lists of transforms for the views of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    views: Vec<RecipeView>,
    is_plural: bool,
}

/// The compiled list of one view, which makes one image.
#[derive(Debug, Clone, PartialEq)]
pub struct RecipeView {
    /// The numbers of its list and of the view in that list.
    id: [u32; 2],
    /// All transforms of the list, in order.
    steps: Vec<RecipeStep>,
    geometry: Geometry,
    /// The output of the pass, of 0 × 0 pixels if each image has its own size.
    output: Output,
}

/// A transform of a list, with its number among those of its kind, which is part of the key of its random numbers.
#[derive(Debug, Clone, PartialEq)]
struct RecipeStep {
    transform: Transform,
    nth: u32,
    stage: DrawStage,
    /// The steps inside of a container, which applies some of them.
    children: Vec<RecipeStep>,
}

/// The stage in which a step draws.
#[derive(Debug, Clone, Copy, PartialEq)]
enum DrawStage {
    /// In the geometry, if at all.
    Geometry,
    /// After the geometry: it draws operations on pixels.
    Pixels,
    /// At the end: it draws rectangles that are overwritten in the finished image.
    Finished(LaterNormalize),
}

/// The Normalize after a step: the mean is subtracted from values at the step's place, and the difference is divided by
/// the standard deviation. Without a Normalize, these are 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LaterNormalize {
    mean: [f32; 3],
    std: [f32; 3],
}

/// The keys of one epoch: for each view and each of its steps, the keys of all samples' streams.
#[derive(Debug, Clone)]
pub struct RecipeKeys(Vec<Vec<StepKeys>>);

/// The keys of a step, and of the steps inside of it.
#[derive(Debug, Clone, PartialEq)]
struct StepKeys {
    own: RandomKey,
    children: Vec<StepKeys>,
}

impl Recipe {
    /// Compiles lists of transforms. `format` and `fidelity` are the same for all views.
    ///
    /// # Errors
    /// [`Error::Config`] for `transforms`. It names the transform that is impossible, and says what to do.
    pub fn new(request: &Transforms, format: MemoryFormat, fidelity: Fidelity) -> Result<Self> {
        request.check()?;
        let mut views = Vec::new();
        for (group, list) in request.views.iter().enumerate() {
            let made = compile::list(&list.transforms, format, fidelity)
                .map_err(|(number, message)| request.refusal(group, number, &message))?;
            let view = |n| RecipeView { id: [group as u32, n], ..made.clone() };
            views.extend((0..list.n).map(view));
        }
        Ok(Self { views, is_plural: request.is_plural })
    }

    /// The views, at least one.
    pub fn views(&self) -> &[RecipeView] {
        &self.views
    }

    /// Whether batches hold a tuple of views, even for a single one.
    pub fn is_plural(&self) -> bool {
        self.is_plural
    }

    /// Whether any transform of any list draws random numbers.
    pub fn is_random(&self) -> bool {
        self.views.iter().flat_map(|view| &view.steps).any(|step| step.transform.is_random())
    }

    /// The keys of all random numbers of an epoch.
    pub fn keys(&self, seed: u64, epoch: u64) -> RecipeKeys {
        self.parts(&RandomKey::new(&[], seed, epoch, Use::Augment))
    }

    /// The keys for an image `field` after the first. No other field has the same random numbers.
    pub fn keys_of_field(&self, seed: u64, epoch: u64, field: &str) -> RecipeKeys {
        self.parts(&RandomKey::new(&[], seed, epoch, Use::Augment).of_field(field))
    }

    /// Derives the keys of each step of each view from `all`.
    fn parts(&self, all: &RandomKey) -> RecipeKeys {
        RecipeKeys(self.views.iter().map(|view| StepKeys::of(&view.steps, view.id, all)).collect())
    }

    /// Draws what the views show of an image of `size` (width, height), the `occurrence`-th time that `sample` comes up
    /// in the epoch of `keys`. The sample has no boxes.
    ///
    /// # Errors
    /// [`Error::Config`] for `transforms`: one of them cannot be applied to an image of that size.
    pub fn draw(
        &self,
        keys: &RecipeKeys,
        sample: u64,
        occurrence: u32,
        size: (u32, u32),
    ) -> Result<DrawnViews> {
        self.draw_with_boxes(keys, sample, occurrence, size, &[])
    }

    /// Draws as [`Recipe::draw`] does, for a sample with `boxes` by which transforms may choose. These are left, top,
    /// right and bottom in pixels of the image.
    ///
    /// # Errors
    /// The errors of [`Recipe::draw`].
    pub fn draw_with_boxes(
        &self,
        keys: &RecipeKeys,
        sample: u64,
        occurrence: u32,
        size: (u32, u32),
        boxes: &[[f32; 4]],
    ) -> Result<DrawnViews> {
        let draw = |(view, keys): (&RecipeView, &Vec<StepKeys>)| {
            let steps = || view.steps.iter().zip(keys);
            let in_geometry = |step: &RecipeStep| step.stage == DrawStage::Geometry;
            let streams = steps()
                .filter(|(step, _)| in_geometry(step))
                .map(|(step, keys)| (&step.transform, keys.own.stream_of(sample, occurrence)));
            let (width, height) = size;
            let mut drawn = view.geometry.draw(streams, ImageSize { width, height }, boxes)?;
            let behind = steps().filter(|(step, _)| !in_geometry(step));
            draw::pixels(behind, sample, occurrence, &mut drawn)?;
            Ok(drawn)
        };
        let views = self.views.iter().zip(&keys.0).map(draw).collect::<Result<Vec<_>, String>>();
        let drawn = views.and_then(|views| DrawnViews::new(views, &self.views, size));
        drawn.map_err(|why| Error::config("transforms", why))
    }

    /// Returns the name of a transform that chooses by the sample's boxes, if there is one.
    pub fn chooses_by_boxes(&self) -> Option<&'static str> {
        let mut steps = self.views.iter().flat_map(|view| &view.steps);
        steps.find(|step| step.transform.chooses_by_boxes()).map(|step| step.transform.name())
    }

    /// Returns the name of a transform that pads images before they are resized; `None` if there is none.
    pub fn resizes_padding_of(&self) -> Option<&'static str> {
        self.views.iter().find_map(|view| view.geometry.resizes_padding_of())
    }

    /// Returns whether images may be resized with padding, also because they are smaller than a crop.
    pub fn may_resize_padding(&self) -> bool {
        self.views.iter().any(|view| view.geometry.may_resize_padding())
    }
}

impl Recipe {
    /// Returns the operations and the erasures that the first view draws in epoch 0 for each of `samples` samples of
    /// `size` (width, height), as a JSON list of pairs of lists.
    ///
    /// # Errors
    /// The errors of [`Recipe::draw`].
    pub fn explained(&self, seed: u64, samples: u64, size: (u32, u32)) -> Result<String> {
        let keys = self.keys(seed, 0);
        let pair = |sample| {
            let drawn = self.draw(&keys, sample, 0, size)?;
            let DrawnView { ops, erasures, .. } = &drawn.views()[0];
            serde_json::to_string(&(ops, erasures)).map_err(|error| Error::Internal(error.to_string()))
        };
        let pairs: Vec<String> = (0..samples).map(pair).collect::<Result<_>>()?;
        Ok(format!("[{}]", pairs.join(",")))
    }
}

impl RecipeView {
    /// Returns the size of the output if all images have the same; `None` if each has its own.
    pub fn size(&self) -> Option<ImageSize> {
        self.geometry.size()
    }

    /// Returns the output of all images, of 0 × 0 pixels if each has its own [size](RecipeView::size).
    pub fn fixed_output(&self) -> &Output {
        &self.output
    }

    /// Returns the output that operations on pixels work on: a plane of grey levels for each colour. `None` for a list
    /// without such operations.
    pub(super) fn levels(&self) -> Option<Output> {
        let levels = || Output { dtype: DType::U8, format: MemoryFormat::Nchw, ..self.output.clone() };
        self.steps.iter().any(RecipeStep::changes_levels).then(levels)
    }

    /// Returns the largest number of chains of operations whose results are mixed.
    pub(super) fn most_chains(&self) -> usize {
        self.steps.iter().map(|step| step.transform.most_chains()).max().unwrap_or(0)
    }

    /// Returns the output of one image.
    pub fn output(&self, drawn: &DrawnView) -> Output {
        Output { height: drawn.height, width: drawn.width, ..self.output.clone() }
    }
}

impl RecipeStep {
    /// Returns whether the step, or one inside of it, draws operations on grey levels.
    fn changes_levels(&self) -> bool {
        match self.children.as_slice() {
            [] => self.stage == DrawStage::Pixels,
            children => children.iter().any(Self::changes_levels),
        }
    }
}

impl StepKeys {
    /// Derives the keys of steps from `all`, with `id`.
    fn of(steps: &[RecipeStep], id: [u32; 2], all: &RandomKey) -> Vec<Self> {
        let keys = |step: &RecipeStep| {
            let own = all.part(id, step.transform.name(), step.nth);
            // Steps inside of a step are keyed by that step, whose key includes the view.
            Self { children: Self::of(&step.children, [0, 0], &own), own }
        };
        steps.iter().map(keys).collect()
    }
}
