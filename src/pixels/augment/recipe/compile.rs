//! Compiles a list of transforms to the order in which the pass runs them: geometry, pixels, the element type,
//! normalisation. A list in another order is refused if it would give a different result.

use super::geometry::GeometryBuilder;
use super::transform::{GeometryTransform, Normalize, PixelPlace, ToDtype, Transform};
use super::{DrawStage, LaterNormalize, RecipeStep, RecipeView};
use crate::augment::{DType, Fidelity, ImageSize, MemoryFormat, Output};

/// Compiles a list into its first view.
///
/// # Errors
/// The index of the transform that is in a wrong place, and the message, which continues the transform's name.
pub(super) fn list(
    transforms: &[Transform],
    format: MemoryFormat,
    fidelity: Fidelity,
) -> Result<RecipeView, (usize, String)> {
    let (mut geometry, mut pixels) = (GeometryBuilder::default(), PixelSteps::default());
    for (number, transform) in transforms.iter().enumerate() {
        let refused = |why| (number, why);
        if transform.patch().is_some() && number + 1 < transforms.len() {
            return Err(refused("must be the last of the list".into()));
        }
        pixels.add(number, transform).map_err(refused)?;
        geometry.add(transform).map_err(refused)?;
    }
    let geometry = geometry.finish();
    let size = geometry.size;
    for (number, transform) in transforms.iter().enumerate() {
        let place = PixelPlace { is_float: pixels.is_float(number), size };
        transform.pixels().map_or(Ok(()), |it| it.check_place(place)).map_err(|why| (number, why))?;
    }
    let ImageSize { width, height } = size.unwrap_or(ImageSize { width: 0, height: 0 });
    let PixelSteps { dtype, white, normalised, .. } = pixels;
    let (mean, std) = normalised.map_or(([0.0; 3], [1.0; 3]), |(_, mean, std)| (mean, std));
    // The pass takes values of 0..1, so the mean and the deviation are converted from the scale of the values in the
    // list.
    let of = |values: [f32; 3]| values.map(|value| f64::from(value) / white);
    let (mean, std) = (of(mean), of(std));
    let output = Output { height, width, dtype, format, mean, std, fill: geometry.fill, fidelity };
    let steps = staged(transforms, |number| pixels.stage(number));
    Ok(RecipeView { id: [0, 0], steps, geometry, output })
}

/// Returns a step for each transform, with its index among the transforms of the same name and its stage. `stage_of`
/// returns the stage of a transform that changes pixels, from the transform's index in the list.
fn staged(transforms: &[Transform], stage_of: impl Fn(usize) -> DrawStage + Copy) -> Vec<RecipeStep> {
    let mut steps: Vec<RecipeStep> = Vec::with_capacity(transforms.len());
    for (number, transform) in transforms.iter().enumerate() {
        let nth = steps.iter().filter(|before| before.transform.name() == transform.name()).count() as u32;
        // Mirroring folds into the geometry if all operations before it handle each pixel independently, or treat left
        // like right and top like bottom. Otherwise, mirroring becomes an operation itself.
        let has_position_dependent = steps.iter().any(|before| before.transform.depends_on_position());
        let stage = match transform {
            transform if transform.changes_pixels() => stage_of(number),
            transform if transform.mirrors() && has_position_dependent => DrawStage::Pixels,
            _ => DrawStage::Geometry,
        };
        steps.push(RecipeStep {
            transform: transform.clone(),
            nth,
            stage,
            children: child_steps(transform, stage),
        });
    }
    steps
}

/// Returns the steps inside of a transform at `stage`. Flips inside of a container mirror only some images, so they
/// cannot be in the geometry.
fn child_steps(transform: &Transform, stage: DrawStage) -> Vec<RecipeStep> {
    let mut children = staged(transform.children(), |_| stage);
    for child in children.iter_mut().filter(|child| child.stage == DrawStage::Geometry) {
        child.stage = DrawStage::Pixels;
    }
    children
}

/// The steps that change the values of pixels and not their places, and the result of these steps so far.
struct PixelSteps {
    changed_by: Option<&'static str>,
    dtype: DType,
    /// The index of the transform that converts to floats.
    floats_from: Option<usize>,
    /// The float into which grey level 255 is converted.
    white: f64,
    /// The index of Normalize in the list, and its mean and standard deviation.
    normalised: Option<(usize, [f32; 3], [f32; 3])>,
}

impl Default for PixelSteps {
    /// Values start as the decoded grey levels.
    fn default() -> Self {
        Self { changed_by: None, dtype: DType::U8, floats_from: None, white: 1.0, normalised: None }
    }
}

impl PixelSteps {
    /// Adds transform number `number` of the list if it changes values. If it changes geometry, checks that it may
    /// follow the steps so far.
    fn add(&mut self, number: usize, transform: &Transform) -> Result<(), String> {
        match transform {
            pixels if pixels.changes_pixels() => {
                self.changed_by = Some(pixels.name());
                Ok(())
            }
            // Mirroring moves values but does not change them.
            mirroring if mirroring.mirrors() => Ok(()),
            // The list's geometry crops to whole patches before any values are changed.
            patchify if patchify.patch().is_some() => Ok(()),
            Transform::ToDtype(ToDtype { dtype, scale }) => self.convert(number, *dtype, *scale),
            Transform::Normalize(Normalize { mean, std }) => self.normalise(number, *mean, *std),
            _ => {
                let fill = transform.geometry().map_or([0; 3], GeometryTransform::fill);
                self.check_geometry_may_follow(fill)
            }
        }
    }

    /// Checks that a transform of geometry, which pads with `fill`, may follow these steps.
    fn check_geometry_may_follow(&self, fill: [u8; 3]) -> Result<(), String> {
        if self.normalised.is_some() {
            return Err("must come before Normalize".into());
        } else if let Some(name) = self.changed_by {
            return Err(format!("must come before {name}"));
        } else if self.dtype != DType::U8 && fill != [0; 3] {
            return Err(format!(
                "fill: is {fill:?} in grey levels, but the values are floats here: put the transform before ToDtype"
            ));
        }
        Ok(())
    }

    fn convert(&mut self, number: usize, dtype: DType, scale: bool) -> Result<(), String> {
        match (self.dtype, dtype) {
            (DType::U8, DType::U8) => {}
            (_, DType::U8) => return Err("converts floats back to uint8: remove both conversions".into()),
            (DType::U8, _) => {
                self.floats_from = Some(number);
                self.white = if scale { 1.0 } else { 255.0 };
            }
            // Floats keep their scale when their type changes.
            _ => {}
        }
        self.dtype = dtype;
        Ok(())
    }

    fn normalise(&mut self, number: usize, mean: [f32; 3], std: [f32; 3]) -> Result<(), String> {
        if self.dtype == DType::U8 {
            return Err("needs floats: put ToDtype(\"float32\") before it".into());
        } else if self.normalised.is_some() {
            return Err("is in the list twice: remove one".into());
        }
        self.normalised = Some((number, mean, std));
        Ok(())
    }

    fn is_float(&self, number: usize) -> bool {
        self.floats_from.is_some_and(|from| from < number)
    }

    /// Returns the stage of transform number `number`, which changes pixels. All transforms of the list must have been
    /// added.
    fn stage(&self, number: usize) -> DrawStage {
        if !self.is_float(number) {
            return DrawStage::Pixels;
        }
        let later = self.normalised.filter(|(normalised, ..)| *normalised > number);
        let (mean, std) = later.map_or(([0.0; 3], [1.0; 3]), |(_, mean, std)| (mean, std));
        DrawStage::Finished(LaterNormalize { mean, std })
    }
}
