//! The fields of the batches: as the user requests them ([`FieldOptions`]), and as resolved for one dataset
//! ([`Fields`]).

use super::arrays::{ArrayPlace, ArrayPlan};
use super::labels::{self, check_no_member};
use super::requested::{FieldSource, RequestedFields, check_one_kind};
use super::views::{ViewKind, ViewPlaces};
use super::windows::{ArrayWindow, FieldWindow};
use super::{FieldOptions, Images};
use crate::batch::{BatchLayout, Element, Raggedness};
use base::error::{Error, Result};
use data::dataset::{DatasetIndex, FieldKind, IMAGE, SampleColumn};
use pixels::augment::{BoxFormat, Filter, ImageSize};

/// Name of the field that holds a sample's class number.
pub const LABEL: &str = "label";

/// The fields of a loader's batches.
#[derive(Debug, Clone)]
pub struct Fields {
    /// The fields in the order of the user's request.
    pub list: Vec<Field>,
    /// The conversions of the fields that are arrays.
    pub(crate) arrays: Vec<ArrayPlan>,
}

/// A field of the batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Where its values come from.
    pub source: String,
    /// Index of its member among those that are read from each sample; `None` if the field needs no bytes of the
    /// sample.
    pub member: Option<usize>,
    /// The content of the field, and its position in the batch.
    pub content: FieldContent,
    /// Index of the batch column that says which samples have the field; `None` if the field is not optional.
    pub optional: Option<usize>,
}

/// The content of a field, and its position in a batch: the index of a tensor, of an additional column, or of a list of
/// values whose lengths differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldContent {
    /// Images: a tensor for each view, or values for each view if images keep their own sizes.
    Images {
        /// Index into the list of images.
        image: usize,
        /// Positions of the views in the batch.
        at: ViewPlaces,
    },
    /// Class numbers.
    Label,
    /// Numbers of a column of `labels`, or of a table.
    ColumnNumbers {
        /// Index of the column among the columns of `labels`.
        of: usize,
        /// Index of the column in the batch.
        column: usize,
    },
    /// Labels of mixed images, float32.
    MixedLabels {
        /// Index of the column in the batch.
        column: usize,
    },
    /// Strings of a column of `labels`, or of a table.
    ColumnTexts {
        /// Index of the column among the columns of `labels`.
        of: usize,
        /// Index among the batch's lists of values whose lengths differ.
        value: usize,
    },
    /// Masks that follow an image: a column for each view, or values if images keep their own sizes.
    Masks {
        /// Index of that image in the list of images.
        image: usize,
        /// Positions of the views in the batch.
        at: ViewPlaces,
        /// Type of the values.
        element: Element,
        /// Interpolation of the values: [`Filter::Nearest`] or [`Filter::NearestExact`].
        nearest: Filter,
    },
    /// Boxes that follow an image: values for each view.
    Boxes {
        /// Index of that image in the list of images.
        image: usize,
        /// Positions of the views in the batch.
        at: ViewPlaces,
        /// Meaning of the four numbers of a box as they are read.
        stored: BoxFormat,
        /// Meaning of the four numbers of a box in the batch.
        format: BoxFormat,
        /// Whether a fifth number gives the share of a box's area that remains after the crop.
        shares: bool,
    },
    /// Integers, int64, in the batch column with this index.
    Integers(usize),
    /// Decimal numbers, float32, in the batch column with this index.
    Floats(usize),
    /// Arrays of any rank.
    Arrays {
        /// Index of their conversion in [`Fields::arrays`].
        plan: usize,
        /// Their position in the batch.
        at: ArrayPlace,
    },
    /// Strings, JSON documents or bytes: the index among the lists of values whose lengths differ.
    Values(usize, FieldKind),
}

impl Fields {
    /// Checks a list of fields without the dataset. Later checks need the dataset.
    ///
    /// # Errors
    /// A message such as "is empty", for a list that is empty or names a field twice, or for `follows` on a field that
    /// is not images, masks, boxes or arrays.
    pub fn check_list(asked: &[FieldOptions]) -> Result<(), String> {
        if asked.is_empty() {
            return Err("is empty".into());
        }
        for (at, field) in asked.iter().enumerate() {
            if field.name.is_empty() {
                return Err(format!("has {:?} without a name: leave out name=, or set it", field.source));
            }
            if asked[..at].iter().any(|known| known.name == field.name) {
                return Err(format!("has {:?} twice: give each field a name of its own", field.name));
            }
            field.check_choices()?;
            field.array.check(field).map_err(|why| format!("has {}, which {why}", field.shown()))?;
            ArrayWindow::check(field, asked)?;
            if field.follows.is_some() && !FieldOptions::parameters(field.kind()).contains(&"follows") {
                return Err(format!(
                    "has {} with follows=, but only images, masks, boxes and arrays can follow another field",
                    field.shown()
                ));
            }
        }
        Ok(())
    }

    /// Returns the fields of a loader without `fields=`: the image, and the label if the dataset is `labeled` or
    /// `labels` gives one.
    ///
    /// # Errors
    /// [`Error::Config`] if `labels` has several columns and none of them is the label.
    pub fn usual(
        images: &Images,
        label_columns: &[SampleColumn],
        labeled: bool,
    ) -> Result<(Self, BatchLayout)> {
        let mut layout = BatchLayout::default();
        let field = |name: &str, member, content| {
            let (name, source) = (name.to_owned(), name.to_owned());
            Field { name, source, member, content, optional: None }
        };
        let image = places(images, &mut layout)[0];
        let label = match label_columns {
            [] => labeled.then_some(FieldContent::Label),
            [only] => Some(labels::content(only, 0, &mut layout)),
            several => {
                let Some(of) = several.iter().position(|column| column.name == LABEL) else {
                    let names: Vec<String> =
                        several.iter().map(|column| format!("{:?}", column.name)).collect();
                    let message = format!(
                        "has the columns {}, but none is called {LABEL:?}: choose columns with fields=[\"image\", ...]",
                        names.join(", ")
                    );
                    return Err(Error::config("labels", message));
                };
                Some(labels::content(&several[of], of, &mut layout))
            }
        };
        let label = label.map(|content| field(LABEL, None, content));
        let list = [field(IMAGE, Some(0), image)].into_iter().chain(label).collect();
        Ok((Self { list, arrays: Vec::new() }, layout))
    }

    /// Resolves the `asked` fields for `index`, with the images `images` and the columns of `labels`.
    ///
    /// # Errors
    /// [`Error::Config`] for a label that does not exist, or a mask without an image.
    pub(super) fn check(
        asked: &RequestedFields<'_>,
        index: &DatasetIndex,
        images: &Images,
        label_columns: &[SampleColumn],
    ) -> Result<(Self, BatchLayout)> {
        let mut layout = BatchLayout::default();
        let places = places(images, &mut layout);
        let (mut list, mut arrays) = (Vec::new(), Vec::new());
        let members = asked.members().unwrap_or_default();
        let members: Vec<&String> = members.iter().filter(|name| !index.has_column(name)).collect();
        for (number, (from, field)) in asked.iter().enumerate() {
            let source = &field.source;
            let known = |content| {
                let (name, source) = (field.name.clone(), source.clone());
                Field { name, source, member: None, content, optional: None }
            };
            let is_of_table = match from {
                FieldSource::Column(_) => false,
                FieldSource::Label if index.is_labeled() => false,
                FieldSource::Label | FieldSource::Member => index.has_column(source),
            };
            if is_of_table {
                check_one_kind(asked, field)?;
                let of = label_columns.iter().position(|column| column.name == *source);
                let of = of.ok_or_else(|| Error::Internal(format!("the column {source:?} was not read")))?;
                let content = labels::content(&label_columns[of], of, &mut layout);
                let optional = field.optional.then(|| layout.add_column(Element::Bool, Vec::new()));
                list.push(Field { optional, ..known(content) });
                continue;
            }
            let member = match from {
                FieldSource::Column(of) => {
                    check_no_member(index, source)?;
                    check_one_kind(asked, field)?;
                    let content = labels::content(&label_columns[of], of, &mut layout);
                    check_always_there(field, "a column of labels=")?;
                    list.push(known(content));
                    continue;
                }
                FieldSource::Label => {
                    index.check_labeled("fields")?;
                    check_always_there(field, "the dataset's class number")?;
                    if !matches!(field.kind, None | Some(FieldKind::Integer)) {
                        let message = format!(
                            "has {LABEL:?}, the dataset's class number, as a kind other than Integer"
                        );
                        return Err(Error::config("fields", message));
                    }
                    list.push(known(FieldContent::Label));
                    continue;
                }
                FieldSource::Member => {
                    let member = members.iter().position(|member| *member == source);
                    member
                        .ok_or_else(|| Error::Internal(format!("the member {source:?} was not selected")))?
                }
            };
            let kind = field.kind();
            let is_stored = index.is_stored(source);
            if is_stored && index.field_kind(source) != Some(kind) {
                let message = format!(
                    "has {} as another kind than it is stored: select it by its plain name",
                    field.shown()
                );
                return Err(Error::config("fields", message));
            }
            let content = match kind {
                _ if kind != FieldKind::Array && index.array_fields(member).next().is_some() => {
                    let message =
                        format!("has {}, which is an array: use foreload.fields.Array", field.shown());
                    return Err(Error::config("fields", message));
                }
                FieldKind::Image => {
                    let place = images.list().iter().zip(&places).find(|(image, _)| image.field == number);
                    *place.ok_or_else(|| Error::Internal(format!("{:?} is not an image", field.name)))?.1
                }
                FieldKind::Boxes => {
                    let image = images.followed_by(field)?;
                    let (first, views) = (layout.values.len(), images.recipe(image).views().len());
                    let columns = Some(4 + u32::from(field.shares));
                    let (element, offsets) = (Element::F32, Element::I64);
                    let always = Raggedness::Always { element, columns, offsets };
                    layout.values.extend((0..views).map(|_| always));
                    let at = ViewPlaces { first, views, kind: ViewKind::Values };
                    let stored = if is_stored { BoxFormat::Xyxy } else { field.format };
                    FieldContent::Boxes { image, at, stored, format: field.format, shares: field.shares }
                }
                FieldKind::Mask => {
                    let image = images.followed_by(field)?;
                    if !matches!(field.interpolation, Filter::Nearest | Filter::NearestExact) {
                        let message = format!(
                            "has the mask {} with an interpolation other than nearest or nearest-exact, which would \
                             blend class numbers",
                            field.shown()
                        );
                        return Err(Error::config("fields", message));
                    }
                    let recipe = images.recipe(image);
                    let (element, kind) = (field.dtype.element(), ViewKind::of_masks(recipe));
                    let first = match kind {
                        ViewKind::Tensors => layout.columns.len(),
                        ViewKind::Values | ViewKind::Patches => layout.values.len(),
                    };
                    for view in recipe.views() {
                        match view.size() {
                            Some(ImageSize { width, height }) if kind == ViewKind::Tensors => {
                                layout.add_column(element, vec![height, width]);
                            }
                            _ => layout.values.push(Raggedness::Never),
                        }
                    }
                    let at = ViewPlaces { first, views: recipe.views().len(), kind };
                    FieldContent::Masks { image, at, element, nearest: field.interpolation }
                }
                FieldKind::Integer => FieldContent::Integers(layout.add_column(Element::I64, Vec::new())),
                FieldKind::Float => FieldContent::Floats(layout.add_column(Element::F32, Vec::new())),
                FieldKind::Array => {
                    let all: Vec<&FieldOptions> = asked.iter().map(|(_, field)| field).collect();
                    let window = FieldWindow::new(field, &all);
                    let plan = ArrayPlan::new(field, window.as_ref(), index, member)?;
                    let at = plan.place(field.ragged || is_stored, &mut layout);
                    arrays.push(plan);
                    FieldContent::Arrays { plan: arrays.len() - 1, at }
                }
                FieldKind::Text | FieldKind::Json | FieldKind::Bytes => {
                    FieldContent::Values(layout.add_values(Raggedness::AsTheyAre), kind)
                }
            };
            let optional = field.optional.then(|| layout.add_column(Element::Bool, Vec::new()));
            list.push(Field { member: Some(member), optional, ..known(content) });
        }
        Ok((Self { list, arrays }, layout))
    }

    /// Whether one field that is a sample's image is all that is made of the bytes of a sample.
    pub fn is_image_alone(&self) -> bool {
        let is_beside =
            |field: &Field| !matches!(field.content, FieldContent::Label | FieldContent::Images { .. });
        let is_alone =
            |field: &Field| field.member.is_none() || field.source == IMAGE && field.optional.is_none();
        self.list.iter().filter(|field| field.member.is_some()).count() <= 1
            && self.list.iter().all(|field| !is_beside(field) && is_alone(field))
    }

    /// Whether masks or boxes follow the image with the index `image`.
    pub fn follow(&self, image: usize) -> bool {
        self.list.iter().any(|field| field.followed_image() == Some(image))
    }

    /// Whether the label field comes from `labels` and not from the dataset.
    pub fn gives_label(&self) -> bool {
        self.named(LABEL).is_some_and(|field| field.content != FieldContent::Label)
    }

    /// Returns the field of this name.
    pub fn named(&self, name: &str) -> Option<&Field> {
        self.list.iter().find(|field| field.name == name)
    }
}

fn check_always_there(field: &FieldOptions, what: &str) -> Result<()> {
    if !field.optional {
        return Ok(());
    }
    let message =
        format!("has {}, {what}, as optional, but all samples have it: remove optional", field.shown());
    Err(Error::config("fields", message))
}

/// Adds the views of each image field to `layout`, and returns their positions: a tensor for each view, or a list of
/// values if images keep their own sizes.
fn places(images: &Images, layout: &mut BatchLayout) -> Vec<FieldContent> {
    let place = |image| {
        let views = images.recipe(image).views();
        let kind = ViewKind::of(images.recipe(image));
        let first = match kind {
            ViewKind::Tensors => layout.images.len(),
            ViewKind::Values | ViewKind::Patches => layout.values.len(),
        };
        match kind {
            ViewKind::Tensors => layout.images.extend(views.iter().map(|view| view.fixed_output().clone())),
            ViewKind::Values => layout.values.extend(views.iter().map(|_| Raggedness::Never)),
            ViewKind::Patches => {
                let (dtype, side) =
                    (views[0].fixed_output().dtype, images.recipe(image).patch().unwrap_or(1));
                let rows = |element, columns| Raggedness::Always {
                    element,
                    columns: Some(columns),
                    offsets: Element::I32,
                };
                layout.values.extend([rows(dtype.into(), 3 * side * side), rows(Element::I32, 2)]);
            }
        }
        FieldContent::Images { image, at: ViewPlaces { first, views: views.len(), kind } }
    };
    (0..images.list().len()).map(place).collect()
}

impl Field {
    /// Returns the kind of the field's content. A label is an integer.
    pub fn kind(&self) -> FieldKind {
        match self.content {
            FieldContent::Images { .. } => FieldKind::Image,
            FieldContent::Masks { .. } => FieldKind::Mask,
            FieldContent::Boxes { .. } => FieldKind::Boxes,
            FieldContent::Label | FieldContent::Integers(_) => FieldKind::Integer,
            FieldContent::Floats(_) => FieldKind::Float,
            FieldContent::ColumnNumbers { .. }
            | FieldContent::MixedLabels { .. }
            | FieldContent::Arrays { .. } => FieldKind::Array,
            FieldContent::ColumnTexts { .. } => FieldKind::Text,
            FieldContent::Values(_, kind) => kind,
        }
    }

    /// Returns the index of the image that masks or boxes follow; `None` for all other fields.
    pub fn followed_image(&self) -> Option<usize> {
        match self.content {
            FieldContent::Masks { image, .. } | FieldContent::Boxes { image, .. } => Some(image),
            _ => None,
        }
    }
}
