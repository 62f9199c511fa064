//! Transforms that add pixels around an image.

use super::table::transform;
use super::values::{BadParameter, FillLevels, MAX_SIDE, Margins, check_probability};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::zoomed_out;
use crate::augment::{ImageSize, Padding};

transform! {
    /// Adds pixels around the image.
    pub Pad {
        /// The pixels added: on all sides; or (left and right, top and bottom); or (left, top, right, bottom).
        padding: Margins;
        /// The value of added pixels, 0 to 255, or the values of R, G and B. It is for `constant`.
        fill: FillLevels = 0;
        /// How added pixels are filled: `constant`, with `fill`; `edge`, with the nearest pixel; `reflect`, mirrored
        /// without repeating the outermost pixel; or `symmetric`, mirrored with it.
        padding_mode: Padding = "constant";
    }
}

impl GeometryTransform for Pad {
    fn check(&self) -> Result<(), BadParameter> {
        self.padding.check()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.channels()
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.pad(self.padding_mode, self.fill())?;
        let [left, top, right, bottom] = self.padding.sides();
        list.resize_grid(|ImageSize { width, height }| {
            Some(ImageSize { width: width + left + right, height: height + top + bottom })
        });
        Ok(())
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        draw.fold.pad(self.padding.sides(), self.padding_mode)
    }
}

transform! {
    /// Places the image on a larger canvas, at random.
    pub RandomZoomOut {
        /// The value of added pixels, 0 to 255, or the values of R, G and B.
        fill: FillLevels = 0;
        /// The bounds of the canvas's sides, as multiples of the image's; at least 1.
        side_range: (f64, f64) = [1.0, 4.0], must("two numbers, the least and the largest multiple");
        /// The probability that an image gets a canvas.
        p: f64 = 0.5;
    }
}

impl GeometryTransform for RandomZoomOut {
    fn check(&self) -> Result<(), BadParameter> {
        let ((low, high), most) = (self.side_range, f64::from(MAX_SIDE));
        if !(1.0 <= low && low <= high && high <= most) {
            let wrong = format!("is ({low}, {high}), must be 1 <= low <= high <= {most}");
            return Err(BadParameter::new("side_range", wrong));
        }
        check_probability("p", self.p)
    }

    fn fill(&self) -> [u8; 3] {
        self.fill.channels()
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.pad(Padding::Constant, self.fill())?;
        list.resize_grid(|_| None);
        Ok(())
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        if stream.unit() >= self.p {
            return Ok(());
        }
        fold.pad(zoomed_out(stream, fold.size(), self.side_range), Padding::Constant)
    }
}
