//! A list of transforms in the order in which the pass runs them: geometry, then the element type, then normalisation. What
//! stands in another order and does not give the same is refused.

use super::geometry::{Geometry, GeometryBuilder};
use super::transform::Transform;
use crate::augment::{DType, Fidelity, MemoryFormat, Output};

/// The geometry of a list, and what is written for each image.
///
/// # Errors
/// Which transform, by its place, cannot stand where it stands, and what to do: a sentence behind its name.
pub(super) fn list(
    transforms: &[Transform],
    format: MemoryFormat,
    fidelity: Fidelity,
) -> Result<(Geometry, Output), (usize, String)> {
    let (mut geometry, mut finish) = (GeometryBuilder::default(), Finishing::default());
    for (number, transform) in transforms.iter().enumerate() {
        let refused = |why| (number, why);
        finish.admit(transform).map_err(refused)?;
        if let Some(transform) = geometry.add(transform).map_err(refused)? {
            finish.add(transform).map_err(refused)?;
        }
    }
    let geometry = geometry.finish();
    let (height, width) = geometry.size().unwrap_or((0, 0));
    let Finishing { dtype, white, normalised } = finish;
    let (mean, std) = normalised.unwrap_or(([0.0; 3], [1.0; 3]));
    // From the scale of the list's values to that of 0..1, which the pass knows.
    let of = |values: [f32; 3]| values.map(|value| f64::from(value) / white);
    let (mean, std) = (of(mean), of(std));
    let output = Output { height, width, dtype, format, mean, std, fill: geometry.fill(), fidelity };
    Ok((geometry, output))
}

/// What becomes of the pixels' values.
struct Finishing {
    dtype: DType,
    /// The value of grey level 255.
    white: f64,
    normalised: Option<([f32; 3], [f32; 3])>,
}

impl Default for Finishing {
    /// Grey levels, as they are decoded.
    fn default() -> Self {
        Self { dtype: DType::U8, white: 1.0, normalised: None }
    }
}

impl Finishing {
    /// Whether geometry may still follow what was done to values.
    fn admit(&self, transform: &Transform) -> Result<(), String> {
        let fill = match transform {
            // Mirroring moves values and changes none.
            Transform::RandomHorizontalFlip { .. }
            | Transform::ToDtype { .. }
            | Transform::Normalize { .. } => {
                return Ok(());
            }
            Transform::Pad { fill, .. } | Transform::RandomCrop { fill, .. } => fill.channels(),
            _ => [0; 3],
        };
        if self.normalised.is_some() {
            return Err("must come before Normalize".into());
        } else if self.dtype != DType::U8 && fill != [0; 3] {
            return Err(format!(
                "fill: is {fill:?}, grey levels, which floats do not have: put it before ToDtype"
            ));
        }
        Ok(())
    }

    fn add(&mut self, transform: &Transform) -> Result<(), String> {
        match *transform {
            Transform::ToDtype { dtype: DType::U8, .. } if self.dtype != DType::U8 => {
                return Err("makes uint8 of floats again: leave out both conversions".into());
            }
            Transform::ToDtype { dtype, scale } => {
                // Floats keep their scale when their type changes.
                if self.dtype == DType::U8 && dtype != DType::U8 {
                    self.white = if scale { 1.0 } else { 255.0 };
                }
                self.dtype = dtype;
            }
            Transform::Normalize { .. } if self.dtype == DType::U8 => {
                return Err("needs floats: put ToDtype(\"float32\") before it".into());
            }
            Transform::Normalize { .. } if self.normalised.is_some() => {
                return Err("comes a second time: leave one out".into());
            }
            Transform::Normalize { mean, std } => self.normalised = Some((mean, std)),
            _ => {}
        }
        Ok(())
    }
}
