//! The geometry of a recipe: which transforms can follow one another, and which view of an image they draw.

use super::DrawnView;
use super::fold::Fold;
use super::transform::{MAX_SIDE, Transform};
use crate::augment::{BoxFormat, Filter, ImageSize, Padding};
use base::rng::RandomStream;

/// The changes that a list makes to an image's grid of pixels. They fold into one view of any image that is large
/// enough, because the builder refuses every list that does not.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Geometry {
    filter: Filter,
    padding: Padding,
    fill: [u8; 3],
    /// The transform that chose `padding` and `fill`; empty if none did.
    padded_by: &'static str,
    /// The transform that pads before a resize.
    resizes_padding_of: Option<&'static str>,
    /// Whether images may be padded before they are resized.
    may_resize_padding: bool,
    size: Option<ImageSize>,
}

/// Builds a [`Geometry`] from one transform after another. Each describes its change of the grid by the builder's
/// methods.
#[derive(Debug, Default)]
pub(super) struct GeometryBuilder {
    made: Geometry,
    /// The transform that is added now.
    name: &'static str,
    grid: Grid,
    /// The transform that gave the grid its state.
    by: &'static str,
    is_resampled: bool,
    /// Whether a transform may have padded the grid, or the one that it was cut from.
    may_be_padded: bool,
    /// The transform that mirrors, if there is one.
    mirrored_by: Option<&'static str>,
}

/// The state of the grid of pixels after some steps, which decides what may be padded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Grid {
    /// The source's grid, a part of it, or the grid that a resize made.
    #[default]
    Whole,
    /// A grid with padding around it.
    Padded,
    /// A part of a resized or padded grid.
    Cut,
}

impl GeometryBuilder {
    /// Adds a transform. One that does not change geometry is ignored.
    ///
    /// # Errors
    /// Why the transform cannot follow those before it, and what to do. The message continues the transform's name.
    pub(super) fn add(&mut self, transform: &Transform) -> Result<(), String> {
        let Some(geometry) = transform.geometry() else { return Ok(()) };
        self.name = transform.name();
        geometry.join(self)?;
        match self.made.size.filter(|size| size.longest() > MAX_SIDE) {
            None => Ok(()),
            Some(ImageSize { width, height }) => {
                Err(format!("makes images of {width}×{height} pixels, but sides must be at most {MAX_SIDE}"))
            }
        }
    }

    /// Returns the size of the image so far, if every image has the same.
    pub(super) fn size(&self) -> Option<ImageSize> {
        self.made.size
    }

    /// Resamples the grid to `size`, or if that is `None`, to a size of its own for each image.
    ///
    /// # Errors
    /// Why it cannot be resampled after the transforms before.
    pub(super) fn resample(&mut self, filter: Filter, size: Option<ImageSize>) -> Result<(), String> {
        let by = self.by;
        if self.is_resampled {
            return Err(format!(
                "cannot come after {by}: an image is resized only once, and padded or cropped after that; remove one, \
                 or put {by} after it"
            ));
        }
        if let (Some(by), Filter::Nearest | Filter::NearestExact) = (self.mirrored_by, filter) {
            return Err(format!(
                "cannot come after {by} with nearest interpolation, which takes other pixels of a mirrored image: put \
                 {by} after it"
            ));
        }
        self.made.may_resize_padding = self.may_be_padded;
        self.made.resizes_padding_of = Some(self.made.padded_by).filter(|by| !by.is_empty());
        (self.grid, self.is_resampled) = (Grid::Whole, true);
        (self.by, self.made.filter, self.made.size) = (self.name, filter, size);
        Ok(())
    }

    /// Pads the grid. [`GeometryBuilder::resize_grid`] sets the new size.
    ///
    /// # Errors
    /// Why it cannot be padded after the transforms before.
    pub(super) fn pad(&mut self, padding: Padding, fill: [u8; 3]) -> Result<(), String> {
        let (name, by, padded_by) = (self.name, self.by, self.made.padded_by);
        if self.grid == Grid::Cut {
            return Err(format!("cannot pad an image that {by} has cropped: put {name} before {by}"));
        }
        let is_first = padded_by.is_empty();
        if !is_first
            && (padding != Padding::Constant || (self.made.padding, self.made.fill) != (padding, fill))
        {
            return Err(format!(
                "cannot pad an image that {padded_by} has padded, unless both use the same constant fill: remove one \
                 of them"
            ));
        }
        (self.grid, self.by, self.may_be_padded) = (Grid::Padded, name, true);
        (self.made.padding, self.made.fill, self.made.padded_by) = (padding, fill, name);
        Ok(())
    }

    /// Sets how padding changes the size that every image has.
    pub(super) fn resize_grid(&mut self, after: impl FnOnce(ImageSize) -> Option<ImageSize>) {
        self.made.size = self.made.size.and_then(after);
    }

    /// Records that small images are padded with black.
    pub(super) fn may_pad(&mut self) {
        self.may_be_padded = true;
    }

    /// Cuts a part out of the grid, of `size` if every image has the same.
    pub(super) fn cut(&mut self, size: Option<ImageSize>) {
        if self.is_resampled || self.grid != Grid::Whole {
            (self.grid, self.by) = (Grid::Cut, self.name);
        }
        self.made.size = size;
    }

    /// Mirrors the grid.
    pub(super) fn mirror(&mut self) {
        self.mirrored_by = Some(self.name);
    }

    /// Returns the geometry of all added transforms.
    pub(super) fn finish(self) -> Geometry {
        self.made
    }
}

/// The image so far and the random numbers of one transform of geometry.
pub(super) struct GeometryDraw<'a> {
    /// The transform's own random numbers.
    pub(super) stream: RandomStream,
    /// The geometry of the image so far.
    pub(super) fold: &'a mut Fold,
    list: &'a Geometry,
    boxes: &'a [[f32; 4]],
    dropped: &'a mut Vec<bool>,
}

impl GeometryDraw<'_> {
    /// Returns the transform of the list that pads with anything but black, if there is one.
    pub(super) fn non_black_padding(&self) -> Option<&'static str> {
        let Geometry { padding, fill, padded_by, .. } = self.list;
        ((*padding, *fill) != (Padding::Constant, [0; 3])).then_some(padded_by)
    }

    /// Returns the sample's boxes (left, top, right, bottom) after the steps so far.
    pub(super) fn boxes(&mut self) -> Vec<[f32; 4]> {
        let so_far = self.list.drawn(self.fold, std::mem::take(self.dropped));
        let mut boxes = self.boxes.to_vec();
        so_far.follow(BoxFormat::Xyxy, &mut boxes);
        *self.dropped = so_far.dropped;
        boxes
    }

    /// Sets which of the sample's boxes are dropped.
    pub(super) fn drop_boxes(&mut self, dropped: Vec<bool>) {
        *self.dropped = dropped;
    }
}

impl Geometry {
    /// Returns the size of the output if all images have the same; `None` if each has its own.
    pub(super) fn size(&self) -> Option<ImageSize> {
        self.size
    }

    /// Returns the transform that pads before a resize, so that images are resized with their padding.
    pub(super) fn resizes_padding_of(&self) -> Option<&'static str> {
        self.resizes_padding_of
    }

    /// Returns whether images may be resized with their padding. Small images may be, too, if CenterCrop is before a
    /// resize.
    pub(super) fn may_resize_padding(&self) -> bool {
        self.may_resize_padding
    }

    /// Returns the grey levels of constant padding: R, G, B.
    pub(super) fn fill(&self) -> [u8; 3] {
        self.fill
    }

    /// Draws the view of an image of `size`. `steps` are the list's transforms, each with its random numbers; those
    /// that do not change geometry are ignored. `boxes` are the sample's: left, top, right and bottom in pixels of the
    /// image.
    ///
    /// # Errors
    /// Which transform cannot be applied to an image of that size, and why.
    pub(super) fn draw<'a>(
        &self,
        steps: impl Iterator<Item = (&'a Transform, RandomStream)>,
        size: ImageSize,
        boxes: &[[f32; 4]],
    ) -> Result<DrawnView, String> {
        let (mut fold, mut dropped) = (Fold::new(size), Vec::new());
        for (transform, stream) in steps {
            let Some(geometry) = transform.geometry() else { continue };
            let (fold, dropped) = (&mut fold, &mut dropped);
            geometry.apply(&mut GeometryDraw { stream, fold, list: self, boxes, dropped }).map_err(
                |why| {
                    let (name, ImageSize { width, height }) = (transform.name(), size);
                    format!("{name} {why} (the sample has {width}×{height} pixels)")
                },
            )?;
        }
        let drawn @ ImageSize { width, height } = fold.size();
        if drawn.longest() > MAX_SIDE {
            return Err(format!(
                "the image becomes {width}×{height} pixels, more than {MAX_SIDE} a side: limit the longer side with \
                 max_size= of Resize"
            ));
        }
        Ok(self.drawn(&fold, dropped))
    }

    /// Returns the view of an image whose geometry is `fold`. `dropped` says which boxes are dropped.
    fn drawn(&self, fold: &Fold, dropped: Vec<bool>) -> DrawnView {
        let (view, canvas) = fold.view(self.filter, self.padding, self.fill);
        let (ImageSize { width, height }, is_resized_mirrored) = (fold.size(), fold.is_resized_mirrored());
        let (ops, erasures) = Default::default();
        DrawnView { view, width, height, is_resized_mirrored, canvas, dropped, ops, erasures }
    }
}
