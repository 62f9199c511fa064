//! What a batch holds of a field, by the field's name.

use super::{FieldContent, LoaderConfig, ViewKind, ViewPlaces};
use crate::batch::{Batch, FieldValues, Tensor};
use data::dataset::FieldKind;

/// What a batch of n samples holds of a field.
pub enum FieldValue {
    /// One tensor, [n, ...]: images and masks of one size, numbers, arrays of one shape.
    Tensor(Tensor),
    /// Rows, of which samples have different numbers: boxes, and arrays that differ in their first dimension alone.
    Ragged {
        /// The rows of all samples, one sample's behind another's.
        values: Tensor,
        /// int64 [n + 1]: the rows of sample i are those from `offsets[i]` to `offsets[i + 1]`.
        offsets: Tensor,
    },
    /// A tensor for each sample, where sizes differ; `None` where a sample has none.
    Tensors(Vec<Option<Tensor>>),
    /// A text for each sample; `None` where a sample has none.
    Texts(Vec<Option<String>>),
    /// A JSON document for each sample, as it stands in its file; `None` where a sample has none.
    Json(Vec<Option<Vec<u8>>>),
    /// The bytes of each sample; `None` where a sample has none.
    Bytes(Vec<Option<Vec<u8>>>),
    /// One of these for each view of an image, or of what follows it, where `transforms` asks for views.
    Views(Vec<Self>),
}

impl FieldValue {
    /// The first view where there are views, else the value itself.
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
    /// The names of the fields of a batch, in the order in which they were asked for, each with what it holds.
    pub fn field_names(&self) -> impl Iterator<Item = (&str, FieldKind)> {
        self.fields.list.iter().map(|field| (field.name.as_str(), field.kind()))
    }

    /// What `batch` holds of the field called `name`; `None` where it has no such field, as batches of files have none.
    pub fn field(&self, batch: &Batch, name: &str) -> Option<FieldValue> {
        let field = self.fields.named(name).filter(|_| !batch.is_encoded())?;
        let values = |number| FieldValue::of(batch.values(number), field.kind());
        let tensor = |number| FieldValue::Tensor(batch.further(number));
        // Where there is a list of one view, there is a list of one value.
        let views = |image: usize, at: ViewPlaces, tensor: &dyn Fn(usize) -> FieldValue| {
            let of = |number| match at.kind {
                ViewKind::Tensors => tensor(number),
                ViewKind::Values => values(number),
            };
            let is_plural = self.images.recipe(image).is_plural();
            if is_plural { FieldValue::Views(at.numbers().map(of).collect()) } else { of(at.first) }
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
            | FieldContent::MixedLabels { column } => tensor(column),
            FieldContent::ColumnTexts { value, .. } | FieldContent::Values(value, _) => values(value),
        })
    }

    /// Which samples of `batch` have the field called `name`, bool `[n]`; `None` where it has no such field, or all
    /// samples have it because it is not optional.
    pub fn present(&self, batch: &Batch, name: &str) -> Option<Tensor> {
        let field = self.fields.named(name).filter(|_| !batch.is_encoded())?;
        field.optional.map(|column| batch.further(column))
    }
}
