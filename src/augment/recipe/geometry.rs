//! The geometry of a recipe: which transforms can follow one another, and what view of an image they draw.

use super::DrawnView;
use super::fold::Fold;
use super::torchvision::{
    centre_padding, centred, jittered, random_place, random_resized_crop, resized, with_short_side,
    zoomed_out,
};
use super::transform::{IouCrop, LARGEST_SIDE, Margins, Sides, Transform};
use crate::augment::{BoxFormat, Filter, Padding};
use crate::rng::RandomStream;

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
    size: Option<(u32, u32)>,
}

/// Adds one transform after another.
#[derive(Debug, Default)]
pub(super) struct GeometryBuilder {
    made: Geometry,
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
        match *transform {
            Transform::RandomResizedCrop { size, interpolation, .. } => {
                self.resample(transform.name(), interpolation)?;
                self.made.size = Some(size.square());
            }
            Transform::Resize { size, max_size, interpolation } => {
                self.resample(transform.name(), interpolation)?;
                self.made.size = match size {
                    Some(Sides::Both([height, width])) => Some((height, width)),
                    _ => self.made.size.map(|(height, width)| {
                        let (width, height) = after_resize((width, height), size, max_size);
                        (height, width)
                    }),
                };
            }
            Transform::RandomResize { interpolation, .. }
            | Transform::RandomShortestSize { interpolation, .. }
            | Transform::ScaleJitter { interpolation, .. } => {
                self.resample(transform.name(), interpolation)?;
                self.made.size = None;
            }
            Transform::CenterCrop { size } => {
                self.may_be_padded = true;
                self.cut(transform.name());
                self.made.size = Some(size.square());
            }
            Transform::RandomCrop { size, padding, pad_if_needed, fill, padding_mode } => {
                if padding.is_some() || pad_if_needed {
                    self.pad(transform.name(), padding_mode, fill.channels())?;
                }
                let (height, width) = size.square();
                if let (Some((h, w)), false) = (self.made.size, pad_if_needed) {
                    let [left, top, right, bottom] = padding.map_or([0; 4], Margins::sides);
                    let (h, w) = (h + top + bottom, w + left + right);
                    if h < height || w < width {
                        return Err(format!(
                            "size: is {height} rows and {width} columns, but there the image has {h} and {w}: resize \
                             it to more before, or say pad_if_needed=True"
                        ));
                    }
                }
                self.cut(transform.name());
                self.made.size = Some((height, width));
            }
            Transform::Pad { padding, fill, padding_mode } => {
                self.pad(transform.name(), padding_mode, fill.channels())?;
                let [left, top, right, bottom] = padding.sides();
                self.made.size =
                    self.made.size.map(|(height, width)| (height + top + bottom, width + left + right));
            }
            Transform::RandomZoomOut { fill, .. } => {
                self.pad(transform.name(), Padding::Constant, fill.channels())?;
                self.made.size = None;
            }
            Transform::RandomIoUCrop(_) => {
                self.cut(transform.name());
                self.made.size = None;
            }
            Transform::RandomHorizontalFlip { .. } | Transform::RandomVerticalFlip { .. } => {
                self.mirrored_by = Some(transform.name());
            }
            _ => return Ok(()),
        }
        if let Some((height, width)) = self.made.size.filter(|size| size.0.max(size.1) > LARGEST_SIDE) {
            return Err(format!(
                "makes images of {width}×{height} pixels, must be at most {LARGEST_SIDE} a side"
            ));
        }
        Ok(())
    }

    fn resample(&mut self, name: &'static str, filter: Filter) -> Result<(), String> {
        let by = self.by;
        if self.is_resampled {
            return Err(format!(
                "cannot come after {by}: pixels are resampled once, and padded or cut after that; leave one \
                 out, or put {by} after it"
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
        (self.by, self.made.filter) = (name, filter);
        Ok(())
    }

    fn pad(&mut self, name: &'static str, padding: Padding, fill: [u8; 3]) -> Result<(), String> {
        let (by, padded_by) = (self.by, self.made.padded_by);
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

    fn cut(&mut self, name: &'static str) {
        if self.is_resampled || self.grid != Grid::Whole {
            (self.grid, self.by) = (Grid::Cut, name);
        }
    }

    /// The geometry of all transforms that were added.
    pub(super) fn finish(self) -> Geometry {
        self.made
    }
}

impl Geometry {
    /// The height and width of the output, where every image has the same; `None` where each has its own.
    pub(super) fn size(&self) -> Option<(u32, u32)> {
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

    /// Draws the view of an image of `size`, its width and height. `steps` are the list's transforms, each with its
    /// random numbers; those that do not change geometry do nothing here. `boxes` are the sample's, left, top, right
    /// and bottom in pixels of the image.
    ///
    /// # Errors
    /// The message which transform cannot be done to an image of that size, and why.
    pub(super) fn draw<'a>(
        &self,
        steps: impl Iterator<Item = (&'a Transform, RandomStream)>,
        size: (u32, u32),
        boxes: &[[f32; 4]],
    ) -> Result<DrawnView, String> {
        let (mut fold, mut dropped) = (Fold::new(size), Vec::new());
        for (transform, mut stream) in steps {
            if let Transform::RandomIoUCrop(crop) = transform {
                // The boxes are where the steps so far have put them.
                let so_far = self.drawn(&fold, std::mem::take(&mut dropped));
                let mut boxes = boxes.to_vec();
                so_far.follow(BoxFormat::Xyxy, &mut boxes);
                dropped = so_far.dropped;
                if let Some(IouCrop { part, dropped: outside }) = crop.draw(&mut stream, fold.size(), &boxes)
                {
                    fold.crop(part);
                    dropped = outside;
                }
                continue;
            }
            self.apply(transform, &mut stream, &mut fold).map_err(|why| {
                let (name, (width, height)) = (transform.name(), size);
                format!("{name} {why} (the sample has {width}×{height} pixels)")
            })?;
        }
        let (width, height) = fold.size();
        if width.max(height) > LARGEST_SIDE {
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
        let ((width, height), is_resized_mirrored) = (fold.size(), fold.is_resized_mirrored());
        let (ops, erasures) = Default::default();
        DrawnView { view, width, height, is_resized_mirrored, canvas, dropped, ops, erasures }
    }

    /// Applies one transform. Random numbers are read in the order in which torchvision draws them.
    fn apply(&self, transform: &Transform, stream: &mut RandomStream, fold: &mut Fold) -> Result<(), String> {
        match *transform {
            Transform::RandomResizedCrop { size, scale, ratio, .. } => {
                fold.crop(random_resized_crop(stream, fold.size(), scale, ratio));
                let (height, width) = size.square();
                fold.resize((width, height))
            }
            Transform::Resize { size, max_size, .. } => {
                fold.resize(after_resize(fold.size(), size, max_size))
            }
            Transform::RandomResize { min_size, max_size, .. } => {
                let short = min_size + stream.below(u64::from(max_size - min_size)) as u32;
                fold.resize(resized(fold.size(), Some(short), None))
            }
            Transform::RandomShortestSize { ref min_size, max_size, .. } => {
                let lengths = min_size.list();
                let short = lengths[stream.below(lengths.len() as u64) as usize];
                fold.resize(with_short_side(fold.size(), short, max_size))
            }
            Transform::ScaleJitter { target_size, scale_range: (low, high), .. } => {
                fold.resize(jittered(fold.size(), target_size, stream.uniform(low, high)))
            }
            Transform::CenterCrop { size } => self.center_crop(size.square(), fold),
            Transform::RandomCrop { size, padding, pad_if_needed, padding_mode, .. } => {
                let (height, width) = size.square();
                let mut margins = padding.map_or([0; 4], Margins::sides);
                if pad_if_needed {
                    let (w, h) = fold.size();
                    let x = width.saturating_sub(w + margins[0] + margins[2]);
                    let y = height.saturating_sub(h + margins[1] + margins[3]);
                    margins = [margins[0] + x, margins[1] + y, margins[2] + x, margins[3] + y];
                }
                fold.pad(margins, padding_mode)?;
                let (w, h) = fold.size();
                if w < width || h < height {
                    return Err(format!(
                        "cannot take {width}×{height} pixels of {w}×{h}; pad_if_needed=True pads what is smaller, a \
                         Resize before it enlarges"
                    ));
                }
                let (left, top) = random_place(stream, (w - width, h - height));
                fold.crop([left, top, width, height]);
                Ok(())
            }
            Transform::Pad { padding, padding_mode, .. } => fold.pad(padding.sides(), padding_mode),
            Transform::RandomZoomOut { side_range: (low, high), p, .. } => {
                if stream.unit() >= p {
                    return Ok(());
                }
                fold.pad(zoomed_out(stream, fold.size(), (low, high)), Padding::Constant)
            }
            Transform::RandomHorizontalFlip { p } => {
                if stream.unit() < p {
                    fold.mirror();
                }
                Ok(())
            }
            Transform::RandomVerticalFlip { p } => {
                if stream.unit() < p {
                    fold.mirror_vertically();
                }
                Ok(())
            }
            // The others do not change geometry.
            _ => Ok(()),
        }
    }

    /// Takes the middle of an image. One that is smaller is padded with black first, as torchvision does.
    fn center_crop(&self, (height, width): (u32, u32), fold: &mut Fold) -> Result<(), String> {
        let (w, h) = fold.size();
        if w < width || h < height {
            if (self.padding, self.fill) != (Padding::Constant, [0; 3]) {
                return Err(format!(
                    "would pad {w}×{h} pixels with black, where {} pads otherwise: enlarge the image before",
                    self.padded_by
                ));
            }
            let (left, right) = centre_padding(width.saturating_sub(w));
            let (top, bottom) = centre_padding(height.saturating_sub(h));
            fold.pad([left, top, right, bottom], Padding::Constant)?;
        }
        let (w, h) = fold.size();
        fold.crop([centred(w - width), centred(h - height), width, height]);
        Ok(())
    }
}

/// The width and height of an image after Resize.
fn after_resize(size: (u32, u32), to: Option<Sides>, max_size: Option<u32>) -> (u32, u32) {
    match to {
        Some(Sides::Both([height, width])) => (width, height),
        Some(Sides::One(short)) => resized(size, Some(short), max_size),
        None => resized(size, None, max_size),
    }
}
