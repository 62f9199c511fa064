//! The setting `mix` (MixUp, CutMix) for one dataset: which images are mixed, and how their labels are mixed.
//!
//! Images are mixed within groups of [`MIX_GROUP_SIZE`] neighbouring samples of a batch, so a batch must consist of
//! whole groups.

use super::fields::{FieldContent, Fields, LABEL};
use super::requested::RequestedFields;
use super::views::ViewKind;
use super::{Images, LoaderOptions};
use crate::batch::{BatchLayout, Element, Ticket};
use base::error::{Error, Result};
use data::dataset::{ColumnValues, DatasetIndex, FieldKind, SampleColumn};
use data::schedule::Selection;
use pixels::augment::{
    DType, DrawnMix, ImageSize, MIX_GROUP_SIZE, MixKeys, MixWeights, Mixing, Output, RecipeView,
};
use std::sync::Arc;

/// The mixing of images and labels for the batches of a loader.
#[derive(Debug, Clone)]
pub struct MixPlan {
    /// The distribution that each batch draws from.
    pub mixing: Mixing,
    /// Size of the images. CutMix draws its rectangles within this size.
    pub size: ImageSize,
    /// The mixing of the labels.
    pub labels: MixedLabels,
}

impl MixPlan {
    /// Draws how the image at position `place` of the epoch is mixed. `keys` are the epoch's random keys;
    /// `global_batch` is the number of samples that all ranks take in one step.
    pub fn draw(&self, keys: &MixKeys, place: u64, global_batch: u64) -> DrawnMix {
        self.mixing.draw(keys, place / global_batch, self.size)
    }
}

/// Where the labels of two mixed images come from, and the columns of the batch that hold the mixed labels.
#[derive(Debug, Clone)]
pub struct MixedLabels {
    columns: Arc<Vec<SampleColumn>>,
    source: LabelNumbers,
    /// Batch column of the mixed labels, float32.
    soft: Option<usize>,
    /// Batch columns of hard labels: the class number of the image that is mixed in, int64, and the share of the main
    /// image in the mix, float32.
    hard: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Copy)]
enum LabelNumbers {
    Class,
    /// The class number in this column of `labels`.
    ColumnClass(usize),
    /// The row of numbers in this column of `labels`.
    Row(usize),
}

impl LoaderOptions {
    /// Checks `mix` without the dataset.
    ///
    /// # Errors
    /// [`Error::Config`] for `mix`, or for a `batch_size` that is not a multiple of the mixing group of four.
    pub(super) fn check_mix(&self, fields: Option<&RequestedFields<'_>>, images: &Images) -> Result<()> {
        let Some(mixing) = &self.mix else { return Ok(()) };
        let refused = |message: String| Err(Error::config("mix", message));
        if !self.decoded {
            return refused(
                "needs decoded images, but decoded=False gives files: remove one of the two".into(),
            );
        }
        if !self.batch_size.is_multiple_of(MIX_GROUP_SIZE) {
            let message = format!(
                "is {}, must be a multiple of {MIX_GROUP_SIZE} with mix=, because images are mixed in groups of \
                 {MIX_GROUP_SIZE}",
                self.batch_size
            );
            return Err(Error::config("batch_size", message));
        }
        let unmixed = fields.and_then(|fields| {
            let mut fields = fields.iter().map(|(_, field)| field);
            fields.find(|field| matches!(field.kind(), FieldKind::Mask | FieldKind::Boxes))
        });
        if let Some(field) = unmixed {
            let message = format!(
                "cannot be used with the field {:?}: masks and boxes are not mixed, so they would not match the mixed \
                 images",
                field.name
            );
            return refused(message);
        }
        if images.list().is_empty() {
            return refused("needs an image field: add one to fields=".into());
        }
        for image in images.list() {
            let recipe = &images.recipes()[image.primary];
            if ViewKind::of(recipe) != ViewKind::Tensors {
                let message = format!(
                    "needs images of one size: add a crop or a resize to one size to the transforms of {:?}",
                    image.name
                );
                return refused(message);
            }
        }
        if images.views().any(|view| view.fixed_output().dtype == DType::U8) {
            let message = "needs normalised images (float32, float16 or bfloat16), but these are uint8: choose another \
                           dtype";
            return refused(message.into());
        }
        let mut sizes: Vec<ImageSize> = images.views().filter_map(RecipeView::size).collect();
        sizes.dedup();
        if let ([one, other, ..], true) = (&sizes[..], mixing.pastes()) {
            let message = format!(
                "has CutMix, which needs images of one size, but there are {}×{} and {}×{} pixels: give all images one \
                 size, or use MixUp",
                one.width, one.height, other.width, other.height
            );
            return refused(message);
        }
        Ok(())
    }

    /// Resolves `mix` for the fields of a dataset, and adds the columns of the mixed labels to `layout`. If the mixed
    /// labels are one column, the label field refers to that column.
    ///
    /// # Errors
    /// [`Error::Config`] for `mix`, if there are no labels that can be mixed.
    pub(super) fn mix_plan(
        &self,
        index: &DatasetIndex,
        images: &Images,
        fields: &mut Fields,
        layout: &mut BatchLayout,
        (columns, selection): (&Arc<Vec<SampleColumn>>, &Selection),
    ) -> Result<Option<MixPlan>> {
        let Some(mixing) = &self.mix else { return Ok(None) };
        let refused = |message: String| Err(Error::config("mix", message));
        let Some(field) = fields.list.iter_mut().find(|field| field.name == LABEL) else {
            let message = match self.fields {
                Some(_) => "also mixes labels: add \"label\" to fields=",
                None => "also mixes labels, but the dataset has none: pass labels=",
            };
            return refused(message.into());
        };
        let source = match field.content {
            FieldContent::Label => LabelNumbers::Class,
            FieldContent::ColumnNumbers { of, .. } => match &columns[of].values {
                ColumnValues::Bools(None, _) | ColumnValues::Integers(None, _) => {
                    LabelNumbers::ColumnClass(of)
                }
                _ => LabelNumbers::Row(of),
            },
            _ => {
                return refused(
                    "also mixes labels, but these are not numbers: use class numbers or vectors".into(),
                );
            }
        };
        let mut labels = MixedLabels { columns: columns.clone(), source, soft: None, hard: None };
        labels.check(mixing.num_classes(), index, selection)?;
        let shape = match source {
            LabelNumbers::Row(of) => Some(columns[of].values.each().into_iter().collect()),
            _ => mixing.num_classes().map(|classes| vec![classes]),
        };
        labels.soft = shape.map(|shape| layout.add_column(Element::F32, shape));
        if !matches!(source, LabelNumbers::Row(_)) {
            let partners = layout.add_column(Element::I64, Vec::new());
            labels.hard = Some((partners, layout.add_column(Element::F32, Vec::new())));
        }
        if let Some(column) = labels.soft {
            field.content = FieldContent::MixedLabels { column };
        }
        let &Output { width, height, .. } = images.first_recipe().views()[0].fixed_output();
        Ok(Some(MixPlan { mixing: mixing.clone(), size: ImageSize { width, height }, labels }))
    }
}

impl MixedLabels {
    /// Checks the labels of all samples that are drawn.
    ///
    /// # Errors
    /// [`Error::Config`] for `mix` that names a sample whose label is not a class number below `num_classes`.
    fn check(&self, num_classes: Option<u32>, index: &DatasetIndex, drawn: &Selection) -> Result<()> {
        let refused = |message: String| Err(Error::config("mix", message));
        if let LabelNumbers::Row(of) = self.source {
            let length = self.columns[of].values.each();
            return match (length, num_classes) {
                (Some(length), Some(classes)) if length != classes => refused(format!(
                    "num_classes: is {classes}, but the labels are vectors of length {length}: remove it, or set it to \
                     {length}"
                )),
                (None, Some(classes)) => refused(format!(
                    "num_classes: is {classes}, but the labels are fractional numbers and not classes: remove it"
                )),
                _ => Ok(()),
            };
        }
        let below = num_classes.map_or(i64::from(u32::MAX), i64::from);
        for sample in (0..drawn.members()).map(|place| drawn.member(place)) {
            let class = match self.source {
                LabelNumbers::ColumnClass(of) => self.columns[of].values.whole(sample),
                _ => i64::from(index.label(sample)),
            };
            if !(0..below).contains(&class) {
                let is = format!("sample {sample} of {} has the class {class}", index.root().display());
                return refused(match num_classes {
                    Some(classes) if class >= 0 => {
                        format!("num_classes: is {classes}, but {is}: it must be at least {}", class + 1)
                    }
                    _ => format!("also mixes labels, but {is}: class numbers start at 0"),
                });
            }
        }
        Ok(())
    }

    /// Whether the batch holds mixed labels.
    pub fn are_mixed(&self) -> bool {
        self.soft.is_some()
    }

    /// Returns the class number of a sample; 0 if the labels are vectors.
    pub fn class(&self, index: &DatasetIndex, sample: u64) -> u32 {
        match self.source {
            LabelNumbers::Class => index.label(sample),
            LabelNumbers::ColumnClass(of) => self.columns[of].values.whole(sample) as u32,
            LabelNumbers::Row(_) => 0,
        }
    }

    /// Returns the batch columns with the class number of the image that is mixed in, and the share of the main image;
    /// `None` if the labels are vectors.
    pub fn hard_columns(&self) -> Option<(usize, usize)> {
        self.hard
    }

    /// Fills the label columns of the ticket's sample. Its image is of the sample `own`, mixed with the image of the
    /// sample `partner`. An image that is not mixed is its own partner, with a share of 1.
    pub fn fill(&self, index: &DatasetIndex, ticket: &mut Ticket, (own, partner): (u64, u64), share: f64) {
        if let Some((partners, shares)) = self.hard {
            let class = i64::from(self.class(index, partner));
            ticket.column(partners).copy_from_slice(&class.to_ne_bytes());
            ticket.column(shares).copy_from_slice(&(share as f32).to_ne_bytes());
        }
        let Some(soft) = self.soft else { return };
        let weights = MixWeights::new(share);
        let row = ticket.column(soft).as_chunks_mut::<4>().0;
        match self.source {
            LabelNumbers::Row(of) => {
                let values = &self.columns[of].values;
                let pairs = values.floats(own).zip(values.floats(partner));
                for (element, (own, partner)) in row.iter_mut().zip(pairs) {
                    *element = weights.of(own, partner).to_ne_bytes();
                }
            }
            _ => {
                let (own, partner) = (self.class(index, own) as usize, self.class(index, partner) as usize);
                row.fill(0f32.to_ne_bytes());
                let of = |class: usize| {
                    let hot = |other: usize| f32::from(u8::from(class == other));
                    weights.of(hot(own), hot(partner)).to_ne_bytes()
                };
                (row[own], row[partner]) = (of(own), of(partner));
            }
        }
    }
}
