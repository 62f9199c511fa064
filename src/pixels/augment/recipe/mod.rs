//! Recipes: a list of transforms with torchvision v2's names, checked and compiled once. A recipe runs in this order:
//! geometry, which folds into one [`View`](crate::augment::View); operations on pixels; the element type and its scale.
//!
//! Every random number is a function of (seed, epoch, sample, occurrence, field, view, transform). Every transform
//! draws from its own random stream. The key of the stream has the view, the transform's kind, and its index among the
//! transforms of the same kind in the list. So adding a transform or a view changes no numbers of other transforms or
//! views.

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
pub use transform::{BadParameter, CROP_RATIO, CROP_SCALE, MAX_SIDE, SizeParameter};
pub use transform::{CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, WholeResize};
pub use transform::{RandomCrop, ResizeToCover};
pub(crate) use transform::{check_choice, table};
pub use transform::{transforms_json, transforms_stub};

use super::{DType, Fidelity, ImageSize, ImageToDraw, MemoryFormat, Output};
use crate::decode::Turn;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use geometry::Geometry;

/// The compiled lists of transforms for the views of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    views: Vec<RecipeView>,
    returns_tuple: bool,
}

/// The compiled list of one view, which makes one image.
#[derive(Debug, Clone, PartialEq)]
pub struct RecipeView {
    /// The index of the list, and the index of the view among the views of that list.
    id: [u32; 2],
    steps: Vec<RecipeStep>,
    geometry: Geometry,
    /// The output of the pass. It has 0 × 0 pixels if each image has its own size.
    output: Output,
}

/// A transform of a list, with its index among the transforms of the same kind. The index is part of the key of the
/// transform's random numbers.
#[derive(Debug, Clone, PartialEq)]
struct RecipeStep {
    transform: Transform,
    nth: u32,
    stage: DrawStage,
    /// The steps inside of a container. The container applies some of them.
    children: Vec<RecipeStep>,
}

/// The stage in which a step draws.
#[derive(Debug, Clone, Copy, PartialEq)]
enum DrawStage {
    /// The step draws a crop, a resize, padding or mirroring, or it draws nothing.
    Geometry,
    /// The step draws operations on pixels, which run after the geometry.
    Pixels,
    /// The step draws rectangles that are overwritten in the finished image.
    Finished(LaterNormalize),
}

/// The Normalize that follows a step in the list: it subtracts the mean and divides by the standard deviation. If no
/// Normalize follows, the mean is 0 and the deviation 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LaterNormalize {
    mean: [f32; 3],
    std: [f32; 3],
}

/// The keys of the random numbers of one epoch: a key for each step of each view. The random stream of a sample is
/// derived from such a key.
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
        let recipe = Self { views, returns_tuple: request.returns_tuple };
        if recipe.returns_tuple && recipe.views.iter().any(|view| view.patch().is_some()) {
            return Err(Error::config(
                "transforms",
                "has Patchify in Views, which is not supported yet: remove one",
            ));
        }
        Ok(recipe)
    }

    /// Returns the side of the patches into which images are cut; `None` if they are not cut.
    pub fn patch(&self) -> Option<u32> {
        self.views[0].patch()
    }

    /// Returns the name of a transform that draws the size of its result, if the size of the output is not fixed.
    pub fn draws_size(&self) -> Option<&'static str> {
        let steps = self.views.iter().filter(|view| view.size().is_none()).flat_map(|view| &view.steps);
        steps.map(|step| &step.transform).find(|transform| transform.draws_size()).map(Transform::name)
    }

    /// Returns the views; there is at least one.
    pub fn views(&self) -> &[RecipeView] {
        &self.views
    }

    /// Returns whether batches hold a tuple of views, even if there is only one view.
    pub fn returns_tuple(&self) -> bool {
        self.returns_tuple
    }

    /// Returns whether any transform of any list draws random numbers.
    pub fn is_random(&self) -> bool {
        self.views.iter().flat_map(|view| &view.steps).any(|step| step.transform.is_random())
    }

    /// Returns the keys of all random numbers of an epoch.
    pub fn keys(&self, seed: u64, epoch: u64) -> RecipeKeys {
        self.parts(&RandomKey::new(&[], seed, epoch, Use::Augment))
    }

    /// Returns the keys for `field`, an image field after the first. Each field has its own random numbers.
    pub fn keys_of_field(&self, seed: u64, epoch: u64, field: &str) -> RecipeKeys {
        self.parts(&RandomKey::new(&[], seed, epoch, Use::Augment).of_field(field))
    }

    fn parts(&self, all: &RandomKey) -> RecipeKeys {
        RecipeKeys(self.views.iter().map(|view| StepKeys::of(&view.steps, view.id, all)).collect())
    }

    /// Draws what the views show of an upright image of `size` (width, height), for a sample without boxes. `sample` is
    /// drawn for the `occurrence`-th time in the epoch of `keys`.
    ///
    /// # Errors
    /// [`Error::Config`] for `transforms`: a transform cannot be applied to an image of that size.
    pub fn draw(
        &self,
        keys: &RecipeKeys,
        sample: u64,
        occurrence: u32,
        size: (u32, u32),
    ) -> Result<DrawnViews> {
        let of = ImageToDraw { stored: size, turn: Turn::UPRIGHT, boxes: &[] };
        self.draw_image(keys, sample, occurrence, &of)
    }

    /// Draws as [`Recipe::draw`] does, for an image that may be stored rotated or mirrored, and with boxes by which
    /// some transforms choose their crop. All draws are those of the upright image.
    ///
    /// # Errors
    /// The errors of [`Recipe::draw`].
    pub fn draw_image(
        &self,
        keys: &RecipeKeys,
        sample: u64,
        occurrence: u32,
        of: &ImageToDraw<'_>,
    ) -> Result<DrawnViews> {
        let (width, height) = of.turn.shown(of.stored);
        let draw = |(view, keys): (&RecipeView, &Vec<StepKeys>)| {
            let steps = || view.steps.iter().zip(keys);
            let in_geometry = |step: &RecipeStep| step.stage == DrawStage::Geometry;
            let streams = steps()
                .filter(|(step, _)| in_geometry(step))
                .map(|(step, keys)| (&step.transform, keys.own.stream_of(sample, occurrence)));
            let mut drawn = view.geometry.draw(streams, ImageSize { width, height }, of.boxes)?;
            let pixel_steps = steps().filter(|(step, _)| !in_geometry(step));
            draw::pixels(pixel_steps, sample, occurrence, &mut drawn)?;
            Ok(drawn)
        };
        let views = self.views.iter().zip(&keys.0).map(draw).collect::<Result<Vec<_>, String>>();
        let drawn = views.and_then(|views| DrawnViews::new(views, &self.views, of));
        drawn.map_err(|why| Error::config("transforms", why))
    }

    /// Returns the name of a transform that uses the sample's boxes to choose its crop, if there is one.
    pub fn chooses_by_boxes(&self) -> Option<&'static str> {
        let mut steps = self.views.iter().flat_map(|view| &view.steps);
        steps.find(|step| step.transform.chooses_by_boxes()).map(|step| step.transform.name())
    }

    /// Returns the name of a transform that pads images before they are resized; `None` if there is none.
    pub fn padding_before_resize(&self) -> Option<&'static str> {
        self.views.iter().find_map(|view| view.geometry.padding_before_resize)
    }

    /// Returns whether images may be resized with padding. This includes padding of images that are smaller than a
    /// crop.
    pub fn may_pad_before_resize(&self) -> bool {
        self.views.iter().any(|view| view.geometry.may_pad_before_resize)
    }

    /// Returns the operations and the erasures that the first view draws in epoch 0 for each of `samples` samples of
    /// `size` (width, height), as a JSON list of pairs of lists.
    ///
    /// # Errors
    /// The errors of [`Recipe::draw`].
    pub fn draws_json(&self, seed: u64, samples: u64, size: (u32, u32)) -> Result<String> {
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
    fn patch(&self) -> Option<u32> {
        self.steps.last()?.transform.patch()
    }

    /// Returns the size of the output if all images have the same size; `None` if each image has its own size.
    pub fn size(&self) -> Option<ImageSize> {
        self.geometry.size
    }

    /// Returns the output of all images. It has 0 × 0 pixels if each image has its own [size](RecipeView::size).
    pub fn fixed_output(&self) -> &Output {
        &self.output
    }

    /// Returns the format of the grey levels that operations change: one plane for each of R, G and B. Returns `None`
    /// for a list without operations on grey levels.
    pub(super) fn levels(&self) -> Option<Output> {
        let levels = || Output { dtype: DType::U8, format: MemoryFormat::Nchw, ..self.output.clone() };
        self.steps.iter().any(RecipeStep::changes_levels).then(levels)
    }

    /// Returns the largest number of chains of operations that an AugMix mixes; 0 without AugMix.
    pub(super) fn max_chains(&self) -> usize {
        self.steps.iter().map(|step| step.transform.max_chains()).max().unwrap_or(0)
    }

    /// Returns the output format of one image, with the image's drawn size.
    pub fn output(&self, drawn: &DrawnView) -> Output {
        Output { height: drawn.height, width: drawn.width, ..self.output.clone() }
    }
}

impl RecipeStep {
    /// Returns whether the step, or a step inside of it, draws operations on grey levels.
    fn changes_levels(&self) -> bool {
        match self.children.as_slice() {
            [] => self.stage == DrawStage::Pixels,
            children => children.iter().any(Self::changes_levels),
        }
    }
}

impl StepKeys {
    fn of(steps: &[RecipeStep], id: [u32; 2], all: &RandomKey) -> Vec<Self> {
        let keys = |step: &RecipeStep| {
            let own = all.part(id, step.transform.name(), step.nth);
            // Steps inside of a step are keyed by that step, whose key includes the view.
            Self { children: Self::of(&step.children, [0, 0], &own), own }
        };
        steps.iter().map(keys).collect()
    }
}
