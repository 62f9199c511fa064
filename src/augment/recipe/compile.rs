//! A list of transforms in the order in which the pass runs them: geometry, pixels, the element type, normalisation.
//! What stands in another order and does not give the same is refused.

use super::geometry::GeometryBuilder;
use super::transform::Transform;
use super::{RecipeStep, RecipeView, Stage};
use crate::augment::{DType, Fidelity, MemoryFormat, Output};

/// Compiles a list into its first view.
///
/// # Errors
/// The place of the transform that cannot stand where it stands, and the message, to follow its name.
pub(super) fn list(
    transforms: &[Transform],
    format: MemoryFormat,
    fidelity: Fidelity,
) -> Result<RecipeView, (usize, String)> {
    let (mut geometry, mut pixels) = (GeometryBuilder::default(), PixelSteps::default());
    for (number, transform) in transforms.iter().enumerate() {
        let refused = |why| (number, why);
        pixels.add(transform).map_err(refused)?;
        geometry.add(transform).map_err(refused)?;
    }
    let geometry = geometry.finish();
    let (height, width) = geometry.size().unwrap_or((0, 0));
    let PixelSteps { dtype, white, normalised, .. } = pixels;
    let (mean, std) = normalised.unwrap_or(([0.0; 3], [1.0; 3]));
    // The pass knows values of 0..1 alone, so mean and deviation are converted from the scale of the list.
    let of = |values: [f32; 3]| values.map(|value| f64::from(value) / white);
    let (mean, std) = (of(mean), of(std));
    let output = Output { height, width, dtype, format, mean, std, fill: geometry.fill(), fidelity };
    Ok(RecipeView { id: [0, 0], steps: staged(transforms), geometry, output })
}

/// Each transform with its place among those of its kind, and the stage in which it draws.
fn staged(transforms: &[Transform]) -> Vec<RecipeStep> {
    let mut steps: Vec<RecipeStep> = Vec::with_capacity(transforms.len());
    for transform in transforms {
        let nth = steps.iter().filter(|before| before.transform.name() == transform.name()).count() as u32;
        // Mirroring folds into the geometry in front of operations that see each pixel alone, or the same to the left
        // as to the right and below as above. Behind others it is an operation itself.
        let is_behind = || steps.iter().any(|before| before.transform.minds_places());
        let stage = match transform {
            transform if transform.changes_pixels() => Stage::Pixels,
            Transform::RandomHorizontalFlip { .. } | Transform::RandomVerticalFlip { .. } if is_behind() => {
                Stage::Pixels
            }
            _ => Stage::Geometry,
        };
        let children = staged(transform.children());
        steps.push(RecipeStep { transform: transform.clone(), nth, stage, children });
    }
    steps
}

/// The steps that change the values of pixels and not their places, with what they make so far.
struct PixelSteps {
    /// The last transform that changes pixels.
    changed_by: Option<&'static str>,
    dtype: DType,
    /// The value of grey level 255.
    white: f64,
    normalised: Option<([f32; 3], [f32; 3])>,
}

impl Default for PixelSteps {
    /// The values are grey levels, as they are decoded.
    fn default() -> Self {
        Self { changed_by: None, dtype: DType::U8, white: 1.0, normalised: None }
    }
}

impl PixelSteps {
    /// Adds a transform that changes values; of one that changes geometry, checks that it may follow them.
    fn add(&mut self, transform: &Transform) -> Result<(), String> {
        if transform.changes_pixels() {
            if self.dtype != DType::U8 {
                return Err("works on grey levels: put it before ToDtype".into());
            }
            self.changed_by = Some(transform.name());
            return Ok(());
        }
        match *transform {
            // Mirroring moves values and changes none.
            Transform::RandomHorizontalFlip { .. } | Transform::RandomVerticalFlip { .. } => Ok(()),
            Transform::ToDtype { dtype, scale } => self.convert(dtype, scale),
            Transform::Normalize { mean, std } => self.normalise(mean, std),
            Transform::Pad { fill, .. } | Transform::RandomCrop { fill, .. } => {
                self.check_geometry_may_follow(fill.channels())
            }
            _ => self.check_geometry_may_follow([0; 3]),
        }
    }

    /// Checks that geometry, which fills what it adds with `fill`, may follow these steps.
    fn check_geometry_may_follow(&self, fill: [u8; 3]) -> Result<(), String> {
        if self.normalised.is_some() {
            return Err("must come before Normalize".into());
        } else if let Some(name) = self.changed_by {
            return Err(format!("must come before {name}"));
        } else if self.dtype != DType::U8 && fill != [0; 3] {
            return Err(format!(
                "fill: is {fill:?}, grey levels, which floats do not have: put it before ToDtype"
            ));
        }
        Ok(())
    }

    fn convert(&mut self, dtype: DType, scale: bool) -> Result<(), String> {
        match (self.dtype, dtype) {
            (DType::U8, DType::U8) => {}
            (_, DType::U8) => return Err("makes uint8 of floats again: leave out both conversions".into()),
            (DType::U8, _) => self.white = if scale { 1.0 } else { 255.0 },
            // Floats keep their scale when their type changes.
            _ => {}
        }
        self.dtype = dtype;
        Ok(())
    }

    fn normalise(&mut self, mean: [f32; 3], std: [f32; 3]) -> Result<(), String> {
        if self.dtype == DType::U8 {
            return Err("needs floats: put ToDtype(\"float32\") before it".into());
        } else if self.normalised.is_some() {
            return Err("comes a second time: leave one out".into());
        }
        self.normalised = Some((mean, std));
        Ok(())
    }
}
