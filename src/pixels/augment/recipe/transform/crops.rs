//! Transforms that take a part of an image, and pad images that are too small.

use super::table::transform;
use super::values::{BadParameter, FillLevels, Margins, SizeParameter};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::{centre_padding, centred, random_place};
use crate::augment::{ImageSize, Padding};

transform! {
    /// Crops the middle of an image; a smaller image is padded with black.
    pub CenterCrop {
        /// The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
        pub size: SizeParameter;
    }
}

impl GeometryTransform for CenterCrop {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.may_pad();
        list.cut(Some(self.size.square()));
        Ok(())
    }

    /// Pads a smaller image with black first, as torchvision does.
    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ImageSize { width, height } = self.size.square();
        let ImageSize { width: w, height: h } = draw.fold.size();
        if w < width || h < height {
            if let Some(by) = draw.non_black_padding() {
                return Err(format!(
                    "would pad {w}×{h} pixels with black, but {by} pads differently: resize the image to a larger size \
                     before"
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

transform! {
    /// Pads an image, and crops it at a random place.
    ///
    /// An image that is smaller than the crop fails its sample, unless `pad_if_needed` is set.
    pub RandomCrop {
        /// The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
        pub size: SizeParameter;
        /// The pixels added before the crop: on all sides; or (left and right, top and bottom); or (left, top, right,
        /// bottom).
        padding: Option<Margins> = null;
        /// Whether a smaller image is padded by the number of missing pixels, on both sides.
        pad_if_needed: bool = false;
        /// The value of added pixels, 0 to 255, or the values of R, G and B. It is for `constant`.
        fill: FillLevels = 0;
        /// How added pixels are filled: `constant`, with `fill`; `edge`, with the nearest pixel; `reflect`, mirrored
        /// without repeating the outermost pixel; or `symmetric`, mirrored with it.
        padding_mode: Padding = "constant";
    }
}

impl RandomCrop {
    /// Returns a crop of this size without padding.
    pub fn of_size(size: SizeParameter) -> Self {
        let (fill, padding_mode) = (FillLevels::One(0), Padding::Constant);
        Self { size, padding: None, pad_if_needed: false, fill, padding_mode }
    }

    /// Returns the padding at the left, top, right and bottom, in pixels.
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

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        if self.padding.is_some() || self.pad_if_needed {
            list.pad(self.padding_mode, self.fill())?;
        }
        let size @ ImageSize { width, height } = self.size.square();
        if let (Some(ImageSize { width: w, height: h }), false) = (list.size(), self.pad_if_needed) {
            let [left, top, right, bottom] = self.margins();
            let (h, w) = (h + top + bottom, w + left + right);
            if h < height || w < width {
                return Err(format!(
                    "size: is {height} rows and {width} columns, but the image has {h} and {w} at this step: resize it \
                     to a larger size before, or set pad_if_needed=True"
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
                "cannot crop {width}×{height} pixels from an image of {w}×{h}: set pad_if_needed=True to pad smaller \
                 images, or put a Resize before it"
            ));
        }
        let (left, top) = random_place(stream, (w - width, h - height));
        fold.crop([left, top, width, height]);
        Ok(())
    }
}
