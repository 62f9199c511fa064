//! The values of a field in a batch, found by the name of the field, and which fields are tensors of one size.

use super::{ArrayPlace, FieldContent, LoaderConfig, ViewKind, ViewPlaces};
use crate::batch::{Batch, Column, Element, FieldValues, Tensor};
use base::error::{Error, Result};
use data::dataset::FieldKind;

/// The values of one field in a batch of n samples.
pub enum FieldValue {
    /// One tensor, [n, ...]: images and masks of one size, numbers, arrays of one shape.
    Tensor(Tensor),
    /// Rows, if samples have different numbers of rows: boxes, and arrays that differ only in their first dimension.
    Ragged {
        /// The rows of all samples, one sample after another.
        values: Tensor,
        /// int64 [n + 1]: sample i has the rows from `offsets[i]` to `offsets[i + 1]`.
        offsets: Tensor,
    },
    /// Patches of images: rows as in `Ragged`, with offsets int32, and the position of each patch in its image.
    Patches {
        /// The values of the patches of all images, one image after another: `[patches, 3 * patch * patch]`.
        values: Tensor,
        /// int32 [n + 1], as in `Ragged`.
        offsets: Tensor,
        /// The row and the column of each patch: int32 `[patches, 2]`.
        positions: Tensor,
    },
    /// A tensor for each sample, if sizes differ; `None` for a sample without the field.
    Tensors(Vec<Option<Tensor>>),
    /// A string for each sample; `None` for a sample without the field.
    Texts(Vec<Option<String>>),
    /// A JSON document for each sample, as in its file; `None` for a sample without the field.
    Json(Vec<Option<Vec<u8>>>),
    /// The bytes of each sample; `None` for a sample without the field.
    Bytes(Vec<Option<Vec<u8>>>),
    /// One value for each view of an image, mask or boxes field, if `transforms` asks for views.
    Views(Vec<Self>),
}

impl FieldValue {
    /// Returns the first view if there are views, else the value itself.
    pub fn first_view(self) -> Self {
        match self {
            Self::Views(views) => views.into_iter().next().expect("there is no list of no views"),
            alone => alone,
        }
    }

    fn of(values: FieldValues, kind: FieldKind) -> Self {
        match values {
            FieldValues::Dense(tensor) => Self::Tensor(tensor),
            FieldValues::Ragged { values, offsets } => Self::Ragged { values, offsets },
            FieldValues::Tensors(tensors) => Self::Tensors(tensors),
            FieldValues::Texts(texts) => Self::Texts(texts),
            FieldValues::Bytes(documents) if kind == FieldKind::Json => Self::Json(documents),
            FieldValues::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

impl LoaderConfig {
    /// Returns the name and kind of each field of a batch, in the order of the user's request.
    pub fn field_names(&self) -> impl Iterator<Item = (&str, FieldKind)> {
        self.fields.list.iter().map(|field| (field.name.as_str(), field.kind()))
    }

    /// Returns the values of the field called `name` in `batch`; `None` if there is no such field. Batches of files
    /// have no fields.
    pub fn field(&self, batch: &Batch, name: &str) -> Option<FieldValue> {
        let field = self.fields.named(name).filter(|_| !batch.is_encoded())?;
        let values = |number| FieldValue::of(batch.values(number), field.kind());
        let tensor = |number| FieldValue::Tensor(batch.further(number));
        // A list of one view gives a list of one value, not the value itself.
        let views = |image: usize, at: ViewPlaces, tensor: &dyn Fn(usize) -> FieldValue| {
            let of = |number| match at.kind {
                ViewKind::Tensors => tensor(number),
                ViewKind::Values => values(number),
                ViewKind::Patches => match (values(number), values(number + 1)) {
                    (
                        FieldValue::Ragged { values, offsets },
                        FieldValue::Ragged { values: positions, .. },
                    ) => FieldValue::Patches { values, offsets, positions },
                    (other, _) => other,
                },
            };
            let returns_tuple = self.images.recipe(image).returns_tuple();
            if returns_tuple { FieldValue::Views(at.numbers().map(of).collect()) } else { of(at.first) }
        };
        Some(match field.content {
            FieldContent::Images { image, at } => {
                views(image, at, &|number| FieldValue::Tensor(batch.images_of(number)))
            }
            FieldContent::Masks { image, at, .. } | FieldContent::Boxes { image, at, .. } => {
                views(image, at, &tensor)
            }
            FieldContent::Label => FieldValue::Tensor(batch.labels()),
            FieldContent::Integers(column)
            | FieldContent::Floats(column)
            | FieldContent::ColumnNumbers { column, .. }
            | FieldContent::MixedLabels { column }
            | FieldContent::Arrays { at: ArrayPlace::Column(column), .. } => tensor(column),
            FieldContent::Arrays { at: ArrayPlace::Values(value), .. } => values(value),
            FieldContent::ColumnTexts { value, .. } | FieldContent::Values(value, _) => values(value),
        })
    }

    /// Returns which samples of `batch` have the field called `name`, bool `[n]`; `None` if there is no such field, or
    /// if it is not optional and so all samples have it.
    pub fn present(&self, batch: &Batch, name: &str) -> Option<Tensor> {
        let field = self.fields.named(name).filter(|_| !batch.is_encoded())?;
        field.optional.map(|column| batch.further(column))
    }

    /// Returns the field name, the element type and the number of dimensions per sample of each tensor of the batches.
    /// A field with several views has several tensors.
    ///
    /// # Errors
    /// [`Error::Config`] for a field whose values differ in size.
    pub fn dense_tensors(&self) -> Result<Vec<(String, Element, usize)>> {
        let mut tensors = Vec::new();
        for field in &self.fields.list {
            let column = |number: usize| {
                let Column { element, shape } = &self.layout.columns[number];
                (field.name.clone(), *element, shape.len())
            };
            match field.content {
                FieldContent::Images { at: at @ ViewPlaces { kind: ViewKind::Tensors, .. }, .. } => {
                    let outputs = &self.layout.images[at.numbers()];
                    tensors.extend(outputs.iter().map(|output| (field.name.clone(), output.dtype.into(), 3)));
                }
                FieldContent::Masks { at: at @ ViewPlaces { kind: ViewKind::Tensors, .. }, .. } => {
                    tensors.extend(at.numbers().map(column));
                }
                FieldContent::Label => tensors.push((field.name.clone(), Element::I64, 0)),
                FieldContent::Integers(number)
                | FieldContent::Floats(number)
                | FieldContent::ColumnNumbers { column: number, .. }
                | FieldContent::MixedLabels { column: number }
                | FieldContent::Arrays { at: ArrayPlace::Column(number), .. } => tensors.push(column(number)),
                _ => {
                    let message = format!(
                        "has {:?}, whose values vary in size, but only tensors of one size are supported here",
                        field.name
                    );
                    return Err(Error::config("fields", message));
                }
            }
        }
        Ok(tensors)
    }
}
