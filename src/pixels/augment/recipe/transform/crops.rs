//! Transforms that take a part of an image, and pad what is too small for that.

use super::values::{BadParameter, FillLevels, Margins, Sides};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::{centre_padding, centred, random_place};
use crate::augment::{ImageSize, Padding};
use serde::Deserialize;

/// Takes the middle. A smaller image is padded with black.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// The output's size.
    pub size: Sides,
}

impl GeometryTransform for CenterCrop {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.may_pad();
        list.cut(Some(self.size.square()));
        Ok(())
    }

    /// One that is smaller is padded with black first, as torchvision does.
    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ImageSize { width, height } = self.size.square();
        let ImageSize { width: w, height: h } = draw.fold.size();
        if w < width || h < height {
            if let Some(by) = draw.padded_otherwise_by() {
                return Err(format!(
                    "would pad {w}×{h} pixels with black, where {by} pads otherwise: enlarge the image before"
                ));
            }
            let (left, right) = centre_padding(width.saturating_sub(w));
            let (top, bottom) = centre_padding(height.saturating_sub(h));
            draw.fold.pad([left, top, right, bottom], Padding::Constant)?;
        }
        let ImageSize { width: w, height: h } = draw.fold.size();
        draw.fold.crop([centred(w - width), centred(h - height), width, height]);
        Ok(())
    }
}

/// Pads, and takes a part at a random place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// The output's size.
    size: Sides,
    /// The pixels that are added before the crop.
    #[serde(default)]
    padding: Option<Margins>,
    /// Whether a smaller image gets as many pixels as it lacks, on each of both sides.
    #[serde(default)]
    pad_if_needed: bool,
    /// The grey levels of constant padding.
    #[serde(default)]
    fill: FillLevels,
    /// What the added pixels show.
    #[serde(default)]
    padding_mode: Padding,
}

impl RandomCrop {
    /// The pixels that are added at the left, top, right and bottom, whatever the image's size.
    fn margins(&self) -> [u32; 4] {
        self.padding.map_or([0; 4], Margins::sides)
    }
}

impl GeometryTransform for RandomCrop {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()?;
        self.padding.map_or(Ok(()), Margins::check)
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.channels()
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        if self.padding.is_some() || self.pad_if_needed {
            list.pad(self.padding_mode, self.fill())?;
        }
        let size @ ImageSize { width, height } = self.size.square();
        if let (Some(ImageSize { width: w, height: h }), false) = (list.size(), self.pad_if_needed) {
            let [left, top, right, bottom] = self.margins();
            let (h, w) = (h + top + bottom, w + left + right);
            if h < height || w < width {
                return Err(format!(
                    "size: is {height} rows and {width} columns, but there the image has {h} and {w}: resize it to \
                     more before, or say pad_if_needed=True"
                ));
            }
        }
        list.cut(Some(size));
        Ok(())
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ImageSize { width, height } = self.size.square();
        let mut margins = self.margins();
        if self.pad_if_needed {
            let ImageSize { width: w, height: h } = fold.size();
            let x = width.saturating_sub(w + margins[0] + margins[2]);
            let y = height.saturating_sub(h + margins[1] + margins[3]);
            margins = [margins[0] + x, margins[1] + y, margins[2] + x, margins[3] + y];
        }
        fold.pad(margins, self.padding_mode)?;
        let ImageSize { width: w, height: h } = fold.size();
        if w < width || h < height {
            return Err(format!(
                "cannot take {width}×{height} pixels of {w}×{h}; pad_if_needed=True pads what is smaller, a Resize \
                 before it enlarges"
            ));
        }
        let (left, top) = random_place(stream, (w - width, h - height));
        fold.crop([left, top, width, height]);
        Ok(())
    }
}
