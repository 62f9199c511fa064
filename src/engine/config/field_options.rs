//! A field of a batch as the user requests it.

use super::arrays::ArrayOptions;
use super::key_choice::kind_of_key;
use super::mask_type::MaskType;
use super::windows::ArrayWindow;
use data::dataset::kind::IMAGE_EXTENSIONS;
use data::dataset::{FieldKind, IMAGE, choices};
use pixels::augment::{BoxFormat, Filter};
use serde::Deserialize;

/// A field as the user requests it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldOptions {
    /// Where the field's values come from: [`IMAGE`], [`LABEL`](super::LABEL), or the key of a member (one of the files
    /// or values that make up a sample).
    pub source: String,
    /// The field's name in the batch.
    pub name: String,
    /// Kind of the content; `None` for the kind that the source implies.
    #[serde(default)]
    pub kind: Option<FieldKind>,
    /// Whether samples may lack the field.
    #[serde(default)]
    pub optional: bool,
    /// For images, masks and boxes: the image whose geometry (crop, flip) the field shares. With `None`, masks and
    /// boxes follow the first image, and an image follows the image that `transforms` names. For arrays: the array
    /// whose windows the field shares.
    #[serde(default)]
    pub follows: Option<String>,
    /// Type of the values of a mask, `uint8`, `int32` or `int64`.
    #[serde(default)]
    pub dtype: MaskType,
    /// Interpolation of a mask, [`Filter::Nearest`] or [`Filter::NearestExact`].
    #[serde(default = "nearest")]
    pub interpolation: Filter,
    /// Meaning of the four numbers of a box.
    #[serde(default)]
    pub format: BoxFormat,
    /// Whether boxes have a fifth number: the share of a box's area that remains after the crop.
    #[serde(default)]
    pub shares: bool,
    /// Whether arrays become values and offsets, even if all arrays of a batch have one shape.
    #[serde(default)]
    pub ragged: bool,
    /// For arrays: the type and the shape of their elements, and what is computed from them.
    #[serde(default)]
    pub array: ArrayOptions,
    /// The part of each array that is read.
    #[serde(flatten)]
    pub window: ArrayWindow,
}

fn nearest() -> Filter {
    Filter::Nearest
}

impl FieldOptions {
    /// Returns the field of this source, which is also its name, with default options.
    pub fn named(source: impl Into<String>) -> Self {
        let source = source.into();
        Self {
            name: source.clone(),
            source,
            kind: None,
            optional: false,
            follows: None,
            dtype: MaskType::default(),
            interpolation: nearest(),
            format: BoxFormat::default(),
            shares: false,
            ragged: false,
            array: ArrayOptions::default(),
            window: ArrayWindow::default(),
        }
    }

    /// Returns the names of the options that a field of this kind accepts in addition to its source, its name and
    /// `optional`.
    pub(super) fn parameters(kind: FieldKind) -> &'static [&'static str] {
        match kind {
            FieldKind::Image => &["follows"],
            FieldKind::Mask => &["dtype", "interpolation", "follows"],
            FieldKind::Boxes => &["format", "shares", "follows"],
            FieldKind::Array => &[
                "dtype", "cf", "scale", "offset", "missing", "mean", "std", "axis", "shape", "ragged",
                "window", "at", "follows", "pad",
            ],
            _ => &[],
        }
    }

    pub(super) fn kind(&self) -> FieldKind {
        self.kind.unwrap_or_else(|| choices(&self.source).next().map_or(FieldKind::Bytes, kind_of_key))
    }

    /// Returns the field as messages show it: its name, and its source if that differs.
    pub(super) fn shown(&self) -> String {
        match self.name == self.source {
            true => format!("{:?}", self.name),
            false => format!("{:?} (of {:?})", self.name, self.source),
        }
    }

    /// Whether the field's source is only a file extension. Such a field decides what is a sample: samples without this
    /// image are skipped, unless the field is optional.
    pub(super) fn is_plain_image(&self) -> bool {
        choices(&self.source).all(|key| key == IMAGE || IMAGE_EXTENSIONS.contains(&key))
    }
}
