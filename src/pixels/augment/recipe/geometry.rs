//! The geometry of a recipe: which transforms can follow one another, and what view of an image they draw.

use super::DrawnView;
use super::fold::Fold;
use super::transform::{LARGEST_SIDE, Transform};
use crate::augment::{BoxFormat, Filter, ImageSize, Padding};
use base::rng::RandomStream;

/// What a list does to an image's grid of pixels. It folds into one view of any image that is large enough, because the
/// builder refuses every list that does not.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Geometry {
    filter: Filter,
    padding: Padding,
    fill: [u8; 3],
    /// The transform that chose `padding` and `fill`; empty where none does.
    padded_by: &'static str,
    /// The transform that pads before one that resizes.
    resizes_padding_of: Option<&'static str>,
    /// Whether images may be padded before they are resized.
    may_resize_padding: bool,
    size: Option<ImageSize>,
}

/// Adds one transform after another. Each joins by the methods that say what it does to the grid of pixels.
#[derive(Debug, Default)]
pub(super) struct GeometryBuilder {
    made: Geometry,
    /// The transform that joins.
    name: &'static str,
    grid: Grid,
    /// The transform that made the grid what it is.
    by: &'static str,
    is_resampled: bool,
    /// Whether a transform may have padded the grid, or what it is a part of.
    may_be_padded: bool,
    /// The transform that mirrors, if one does.
    mirrored_by: Option<&'static str>,
}

/// The state of the grid of pixels after some steps, which decides what may be padded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Grid {
    /// The grid of the source or a part of it, or the one that a resize made.
    #[default]
    Whole,
    /// A grid with padding around it.
    Padded,
    /// A part of a resized or padded grid.
    Cut,
}

impl GeometryBuilder {
    /// Adds a transform; one that does not change geometry does nothing here.
    ///
    /// # Errors
    /// The message why the transform cannot follow those before it and what to do, to follow the transform's name.
    pub(super) fn add(&mut self, transform: &Transform) -> Result<(), String> {
        let Some(geometry) = transform.geometry() else { return Ok(()) };
        self.name = transform.name();
        geometry.join(self)?;
        match self.made.size.filter(|size| size.longest() > LARGEST_SIDE) {
            None => Ok(()),
            Some(ImageSize { width, height }) => {
                Err(format!("makes images of {width}×{height} pixels, must be at most {LARGEST_SIDE} a side"))
            }
        }
    }

    /// The size of the image so far, where every image has the same.
    pub(super) fn size(&self) -> Option<ImageSize> {
        self.made.size
    }

    /// Resamples the grid to `size`, which is `None` where each image gets one of its own.
    ///
    /// # Errors
    /// The message why it cannot be resampled after what comes before.
    pub(super) fn resample(&mut self, filter: Filter, size: Option<ImageSize>) -> Result<(), String> {
        let by = self.by;
        if self.is_resampled {
            return Err(format!(
                "cannot come after {by}: pixels are resampled once, and padded or cut after that; leave one out, or \
                 put {by} after it"
            ));
        }
        if let (Some(by), Filter::Nearest | Filter::NearestExact) = (self.mirrored_by, filter) {
            return Err(format!(
                "cannot come after {by}: the nearest pixels of a mirrored image are others; put {by} after it"
            ));
        }
        self.made.may_resize_padding = self.may_be_padded;
        self.made.resizes_padding_of = Some(self.made.padded_by).filter(|by| !by.is_empty());
        (self.grid, self.is_resampled) = (Grid::Whole, true);
        (self.by, self.made.filter, self.made.size) = (self.name, filter, size);
        Ok(())
    }

    /// Pads the grid. What that makes of its size, [`GeometryBuilder::resize_grid`] says.
    ///
    /// # Errors
    /// The message why it cannot be padded after what comes before.
    pub(super) fn pad(&mut self, padding: Padding, fill: [u8; 3]) -> Result<(), String> {
        let (name, by, padded_by) = (self.name, self.by, self.made.padded_by);
        if self.grid == Grid::Cut {
            return Err(format!("cannot pad what {by} has cut: put {name} before {by}"));
        }
        let is_first = padded_by.is_empty();
        if !is_first
            && (padding != Padding::Constant || (self.made.padding, self.made.fill) != (padding, fill))
        {
            return Err(format!(
                "cannot pad again what {padded_by} has padded, unless both pad with the same constant fill: leave one \
                 out"
            ));
        }
        (self.grid, self.by, self.may_be_padded) = (Grid::Padded, name, true);
        (self.made.padding, self.made.fill, self.made.padded_by) = (padding, fill, name);
        Ok(())
    }

    /// Says what padding makes of the size that every image has.
    pub(super) fn resize_grid(&mut self, after: impl FnOnce(ImageSize) -> Option<ImageSize>) {
        self.made.size = self.made.size.and_then(after);
    }

    /// Says that small images are padded with black.
    pub(super) fn may_pad(&mut self) {
        self.may_be_padded = true;
    }

    /// Takes a part of the grid, of `size` where every image has the same.
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

    /// The geometry of all transforms that were added.
    pub(super) fn finish(self) -> Geometry {
        self.made
    }
}

/// What a transform of geometry draws from, and what it changes.
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
    /// The transform of the list that pads otherwise than with black, if one does.
    pub(super) fn padded_otherwise_by(&self) -> Option<&'static str> {
        let Geometry { padding, fill, padded_by, .. } = self.list;
        ((*padding, *fill) != (Padding::Constant, [0; 3])).then_some(padded_by)
    }

    /// The sample's boxes, left, top, right and bottom, where the steps so far have put them.
    pub(super) fn boxes(&mut self) -> Vec<[f32; 4]> {
        let so_far = self.list.drawn(self.fold, std::mem::take(self.dropped));
        let mut boxes = self.boxes.to_vec();
        so_far.follow(BoxFormat::Xyxy, &mut boxes);
        *self.dropped = so_far.dropped;
        boxes
    }

    /// Says which of the sample's boxes are dropped.
    pub(super) fn drop_boxes(&mut self, dropped: Vec<bool>) {
        *self.dropped = dropped;
    }
}

impl Geometry {
    /// The size of the output, where every image has the same; `None` where each has its own.
    pub(super) fn size(&self) -> Option<ImageSize> {
        self.size
    }

    /// The transform that pads before one that resizes, so that images are resized with their padding.
    pub(super) fn resizes_padding_of(&self) -> Option<&'static str> {
        self.resizes_padding_of
    }

    /// Whether images may be resized with their padding: small ones may where CenterCrop comes before a resize, too.
    pub(super) fn may_resize_padding(&self) -> bool {
        self.may_resize_padding
    }

    /// Grey levels of constant padding: R, G, B.
    pub(super) fn fill(&self) -> [u8; 3] {
        self.fill
    }

    /// Draws the view of an image of `size`. `steps` are the list's transforms, each with its random numbers; those
    /// that do not change geometry do nothing here. `boxes` are the sample's, left, top, right and bottom in pixels of
    /// the image.
    ///
    /// # Errors
    /// The message which transform cannot be done to an image of that size, and why.
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
        if drawn.longest() > LARGEST_SIDE {
            return Err(format!(
                "the image becomes {width}×{height} pixels, more than {LARGEST_SIDE} a side; max_size= of Resize \
                 bounds the longer side"
            ));
        }
        Ok(self.drawn(&fold, dropped))
    }

    /// What is drawn of an image whose geometry is `fold`, of whose boxes some are `dropped`.
    fn drawn(&self, fold: &Fold, dropped: Vec<bool>) -> DrawnView {
        let (view, canvas) = fold.view(self.filter, self.padding, self.fill);
        let (ImageSize { width, height }, is_resized_mirrored) = (fold.size(), fold.is_resized_mirrored());
        let (ops, erasures) = Default::default();
        DrawnView { view, width, height, is_resized_mirrored, canvas, dropped, ops, erasures }
    }
}
