//! The geometry of a recipe: which transforms can follow one another, and which view of an image they draw.

use super::DrawnView;
use super::fold::Fold;
use super::transform::{MAX_SIDE, Transform};
use crate::augment::{BoxFormat, Filter, ImageSize, Padding};
use base::rng::RandomStream;

/// The geometry of a list of transforms: how the list crops, resizes, pads and mirrors images. [`GeometryBuilder`]
/// refuses lists whose geometry cannot be expressed as one view of an image.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Geometry {
    filter: Filter,
    padding: Padding,
    /// The grey levels of constant padding: R, G, B.
    pub(super) fill: [u8; 3],
    /// The name of the transform that chose `padding` and `fill`; empty if no transform did.
    padded_by: &'static str,
    /// The name of the transform that pads before a resize, so that images are resized with their padding.
    pub(super) padding_before_resize: Option<&'static str>,
    /// Whether images may be resized with their padding. This is also true if CenterCrop is before a resize, because it
    /// pads small images.
    pub(super) may_pad_before_resize: bool,
    /// The size of the output if all images have the same size; `None` if each image has its own size.
    pub(super) size: Option<ImageSize>,
}

/// Builds a [`Geometry`] from transforms, one after another. Each transform describes its change of the grid by calling
/// the builder's methods.
#[derive(Debug, Default)]
pub(super) struct GeometryBuilder {
    geometry: Geometry,
    current_transform: &'static str,
    grid: Grid,
    /// The name of the transform that gave the grid its state.
    last_change_by: &'static str,
    is_resampled: bool,
    /// Whether some images may have been padded, even if they were cropped afterwards.
    may_be_padded: bool,
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
    /// Adds a transform. A transform that does not change geometry is ignored.
    ///
    /// # Errors
    /// The reason why the transform cannot follow the transforms before it, and what to do. The message continues the
    /// transform's name.
    pub(super) fn add(&mut self, transform: &Transform) -> Result<(), String> {
        let Some(geometry) = transform.geometry() else { return Ok(()) };
        self.current_transform = transform.name();
        geometry.add_to(self)?;
        match self.geometry.size.filter(|size| size.longest() > MAX_SIDE) {
            None => Ok(()),
            Some(ImageSize { width, height }) => {
                Err(format!("makes images of {width}×{height} pixels, but sides must be at most {MAX_SIDE}"))
            }
        }
    }

    /// Returns the size of the image so far, if all images have the same size.
    pub(super) fn size(&self) -> Option<ImageSize> {
        self.geometry.size
    }

    /// Resamples the grid to `size`. If `size` is `None`, each image gets its own size.
    ///
    /// # Errors
    /// The reason why the grid cannot be resampled after the transforms before.
    pub(super) fn resample(&mut self, filter: Filter, size: Option<ImageSize>) -> Result<(), String> {
        let by = self.last_change_by;
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
        self.geometry.may_pad_before_resize = self.may_be_padded;
        self.geometry.padding_before_resize = Some(self.geometry.padded_by).filter(|by| !by.is_empty());
        (self.grid, self.is_resampled) = (Grid::Whole, true);
        self.last_change_by = self.current_transform;
        (self.geometry.filter, self.geometry.size) = (filter, size);
        Ok(())
    }

    /// Pads the grid. [`GeometryBuilder::resize_grid`] sets the new size.
    ///
    /// # Errors
    /// The reason why the grid cannot be padded after the transforms before.
    pub(super) fn pad(&mut self, padding: Padding, fill: [u8; 3]) -> Result<(), String> {
        let (name, by, padded_by) = (self.current_transform, self.last_change_by, self.geometry.padded_by);
        if self.grid == Grid::Cut {
            return Err(format!("cannot pad an image that {by} has cropped: put {name} before {by}"));
        }
        let is_first = padded_by.is_empty();
        if !is_first
            && (padding != Padding::Constant
                || (self.geometry.padding, self.geometry.fill) != (padding, fill))
        {
            return Err(format!(
                "cannot pad an image that {padded_by} has padded, unless both use the same constant fill: remove one \
                 of them"
            ));
        }
        (self.grid, self.last_change_by, self.may_be_padded) = (Grid::Padded, name, true);
        (self.geometry.padding, self.geometry.fill, self.geometry.padded_by) = (padding, fill, name);
        Ok(())
    }

    /// Replaces the common size of all images after padding: `after` computes the new size from the old size.
    pub(super) fn resize_grid(&mut self, after: impl FnOnce(ImageSize) -> Option<ImageSize>) {
        self.geometry.size = self.geometry.size.and_then(after);
    }

    /// Records that small images are padded with black.
    pub(super) fn may_pad(&mut self) {
        self.may_be_padded = true;
    }

    /// Crops the image. `size` is the size of the crop, if it is the same for all images.
    pub(super) fn cut(&mut self, size: Option<ImageSize>) {
        if self.is_resampled || self.grid != Grid::Whole {
            (self.grid, self.last_change_by) = (Grid::Cut, self.current_transform);
        }
        self.geometry.size = size;
    }

    pub(super) fn mirror(&mut self) {
        self.mirrored_by = Some(self.current_transform);
    }

    pub(super) fn finish(self) -> Geometry {
        self.geometry
    }
}

/// The state from which one transform of geometry draws: its random numbers, and the image after the transforms before.
pub(super) struct GeometryDraw<'a> {
    pub(super) stream: RandomStream,
    pub(super) fold: &'a mut Fold,
    list: &'a Geometry,
    boxes: &'a [[f32; 4]],
    dropped: &'a mut Vec<bool>,
}

impl GeometryDraw<'_> {
    /// Returns the name of the transform whose padding is not black, if there is one.
    pub(super) fn non_black_padding(&self) -> Option<&'static str> {
        let Geometry { padding, fill, padded_by, .. } = self.list;
        ((*padding, *fill) != (Padding::Constant, [0; 3])).then_some(padded_by)
    }

    /// Returns the sample's boxes (left, top, right, bottom) after the steps so far.
    pub(super) fn boxes(&mut self) -> Vec<[f32; 4]> {
        let so_far = self.list.drawn(self.fold, std::mem::take(self.dropped));
        let mut boxes = self.boxes.to_vec();
        so_far.map_boxes(BoxFormat::Xyxy, &mut boxes);
        *self.dropped = so_far.dropped;
        boxes
    }

    pub(super) fn drop_boxes(&mut self, dropped: Vec<bool>) {
        *self.dropped = dropped;
    }
}

impl Geometry {
    /// Draws the view of an image of `size`. `steps` are the list's transforms, each with its random numbers;
    /// transforms that do not change geometry are ignored. `boxes` are the boxes of the sample: left, top, right and
    /// bottom in pixels of the image.
    ///
    /// # Errors
    /// Names the transform that cannot be applied to an image of that size, and the reason.
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
        let (of_planes, ops, erasures) = Default::default();
        DrawnView { view, of_planes, width, height, is_resized_mirrored, canvas, dropped, ops, erasures }
    }
}
