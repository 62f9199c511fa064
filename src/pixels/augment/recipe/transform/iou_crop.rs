//! The crop that is used to train SSD: the boxes of a sample decide which crop is taken.

use super::table::transform;
use super::values::{BadParameter, bounds};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::ImageSize;
use base::rng::RandomStream;

/// The maximum number of times that an option (a minimum overlap) is chosen before the image stays whole. torchvision
/// has no such limit: for an image without a suitable crop it never returns, unless one of the options is 1. With the
/// default options, the probability of reaching the limit is 2e-7.
const MAX_CHOICES: usize = 100;

/// The maximum number of crops that are tried for one option.
const MAX_TRIALS: u32 = 1000;

transform! {
    /// Crops a part with enough intersection over union with one of the sample's boxes, as SSD does.
    ///
    /// The boxes are those of the only field of `fields.Boxes` that follows the image. Boxes with their centre outside
    /// of the crop become zeros and keep their rows. An image stays whole if no box has its centre inside of the image.
    pub RandomIoUCrop {
        /// The smallest width and height of the crop, as fractions of the image's.
        min_scale: f64 = 0.3;
        /// The largest width and height of the crop, as fractions of the image's, at most 1.
        max_scale: f64 = 1.0;
        /// The smallest width / height of the crop.
        min_aspect_ratio: f64 = 0.5;
        /// The largest width / height of the crop.
        max_aspect_ratio: f64 = 2.0;
        /// The minimums of the intersection over union of crop and box. One of them is drawn for each image. A value of
        /// 1 or more leaves the image whole. None means 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        sampler_options: Option<Vec<f64>> = null, must("a list of overlaps, or None");
        /// The number of crops that are tried before another minimum is drawn, at most 1000. After 100 minimums, the
        /// image stays whole.
        trials: u32 = 40;
    }
}

#[derive(Debug, Clone, PartialEq)]
struct IouCrop {
    /// Left, top, width and height.
    part: [u32; 4],
    /// For each box, whether its centre is outside of the crop.
    dropped: Vec<bool>,
}

impl GeometryTransform for RandomIoUCrop {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { min_scale, max_scale, min_aspect_ratio, max_aspect_ratio, .. } = *self;
        if !(0.0 < min_scale && min_scale <= max_scale && max_scale <= 1.0) {
            let wrong =
                format!("is {min_scale} (max_scale={max_scale}), must be 0 < min_scale <= max_scale <= 1");
            return Err(BadParameter::new("min_scale", wrong));
        }
        bounds("min_aspect_ratio", (min_aspect_ratio, max_aspect_ratio), 1e6)?;
        if self.options().is_empty() || !self.options().iter().all(|option| option.is_finite()) {
            let wrong = format!("is {:?}, must be a list of at least one finite overlap", self.options());
            return Err(BadParameter::new("sampler_options", wrong));
        }
        if !(1..=MAX_TRIALS).contains(&self.trials) {
            let wrong = format!("is {}, must be from 1 to {MAX_TRIALS}", self.trials);
            return Err(BadParameter::new("trials", wrong));
        }
        Ok(())
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.cut(None);
        Ok(())
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let (size, boxes) = (draw.fold.size(), draw.boxes());
        if let Some(IouCrop { part, dropped }) = self.draw(&mut draw.stream, size, &boxes) {
            draw.fold.crop(part);
            draw.drop_boxes(dropped);
        }
        Ok(())
    }
}

impl RandomIoUCrop {
    const OPTIONS: [f64; 7] = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0];

    fn options(&self) -> &[f64] {
        self.sampler_options.as_deref().unwrap_or(&Self::OPTIONS)
    }

    /// Draws a crop of an image of `size` with these `boxes` (left, top, right, bottom). `None` leaves the image whole.
    /// An image also stays whole if no box has its centre inside of the image; torchvision repeats until it chooses an
    /// option that leaves the image whole.
    ///
    /// First the option is drawn, then for each trial the shares of the width and the height. If the aspect ratio is
    /// within its bounds, the left and the top are drawn. torchvision keeps these numbers in tensors, so products are
    /// in float32.
    fn draw(&self, stream: &mut RandomStream, size: ImageSize, boxes: &[[f32; 4]]) -> Option<IouCrop> {
        // A centre that is NaN is not inside of the image.
        let whole = [0, 0, size.width, size.height];
        let candidates: Vec<&[f32; 4]> = boxes.iter().filter(|of| has_centre_of(whole, of)).collect();
        if candidates.is_empty() {
            return None;
        }
        let options = self.options();
        for _ in 0..MAX_CHOICES {
            let least = options[stream.below(options.len() as u64) as usize];
            if least >= 1.0 {
                return None;
            }
            for _ in 0..self.trials {
                let Some(part) = self.try_part(stream, size) else { continue };
                let mut within = candidates.iter().filter(|of| has_centre_of(part, of));
                if within.any(|of| overlap(part, of) >= least) {
                    let dropped = boxes.iter().map(|of| !has_centre_of(part, of)).collect();
                    return Some(IouCrop { part, dropped });
                }
            }
        }
        None
    }

    /// Draws a crop. Returns `None` if its aspect ratio is out of bounds, or if it has no pixel.
    fn try_part(
        &self,
        stream: &mut RandomStream,
        ImageSize { width, height }: ImageSize,
    ) -> Option<[u32; 4]> {
        let (low, range) = (self.min_scale as f32, (self.max_scale - self.min_scale) as f32);
        let mut side = |full: u32| {
            let share = low + range * stream.unit() as f32;
            ((full as f32 * share) as u32).min(full)
        };
        let (w, h) = (side(width), side(height));
        let ratio = f64::from(w) / f64::from(h);
        if w == 0 || h == 0 || !(self.min_aspect_ratio..=self.max_aspect_ratio).contains(&ratio) {
            return None;
        }
        let mut place = |room: u32| ((room as f32 * stream.unit() as f32) as u32).min(room);
        let (left, top) = (place(width - w), place(height - h));
        Some([left, top, w, h])
    }
}

fn has_centre_of([left, top, width, height]: [u32; 4], [x1, y1, x2, y2]: &[f32; 4]) -> bool {
    let inside = |at: f32, first: u32, n: u32| (first as f32) < at && at < (first + n) as f32;
    inside(0.5 * (x1 + x2), left, width) && inside(0.5 * (y1 + y2), top, height)
}

fn overlap([left, top, width, height]: [u32; 4], of: &[f32; 4]) -> f64 {
    let [x1, y1, x2, y2] = of.map(f64::from);
    let [x, y, w, h] = [left, top, width, height].map(f64::from);
    let shared = (x2.min(x + w) - x1.max(x)).max(0.0) * (y2.min(y + h) - y1.max(y)).max(0.0);
    shared / (w * h + (x2 - x1) * (y2 - y1) - shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    const SIZE: ImageSize = ImageSize { width: 100, height: 80 };

    fn crop(parameters: &str) -> RandomIoUCrop {
        serde_json::from_str(parameters).unwrap()
    }

    fn stream(number: u64) -> RandomStream {
        RandomKey::new(b"iou", 1, 0, Use::Augment).stream(number)
    }

    #[test]
    fn a_crop_suits_a_box_and_drops_those_whose_centre_is_outside() {
        let half = crop(r#"{"sampler_options": [0.5]}"#);
        let boxes = [[10.0, 10.0, 60.0, 70.0], [80.0, 5.0, 95.0, 20.0], [0.0; 4]];
        let mut dropped = [0; 3];
        for number in 0..200 {
            let IouCrop { part, dropped: of } = half.draw(&mut stream(number), SIZE, &boxes).unwrap();
            let [left, top, w, h] = part;
            assert!(left + w <= 100 && top + h <= 80 && (30..=100).contains(&w) && (24..=80).contains(&h));
            assert!((0.5..=2.0).contains(&(f64::from(w) / f64::from(h))));
            let kept = boxes.iter().zip(&of).filter(|(_, dropped)| !**dropped);
            assert!(kept.map(|(of, _)| overlap(part, of)).fold(0.0, f64::max) >= 0.5);
            for (dropped, of) in dropped.iter_mut().zip(of) {
                *dropped += u32::from(of);
            }
        }
        assert!(dropped[0] < 10 && (20..200).contains(&dropped[1]) && dropped[2] == 200, "{dropped:?}");
    }

    #[test]
    fn hostile_boxes_leave_the_image_whole() {
        let (nan, huge) = (f32::NAN, f32::MAX);
        let never = crop(r#"{"sampler_options": [0.99], "trials": 5}"#);
        for boxes in [
            &[][..],
            &[[nan; 4], [nan, 0.0, 10.0, 10.0]],
            &[[-huge, -huge, -huge, -huge], [huge; 4], [f32::NEG_INFINITY, 0.0, f32::INFINITY, 9.0]],
            &[[0.0; 4]],
            // A box that is a point has no area that a crop could overlap.
            &[[20.0, 20.0, 20.0, 20.0], [-huge, -huge, huge, huge]],
        ] {
            assert_eq!(never.draw(&mut stream(1), SIZE, boxes), None, "{boxes:?}");
        }
        let any = crop(r#"{"sampler_options": [0.0]}"#);
        // Crops of this image are 0 pixels high, and torchvision would divide by that height.
        assert_eq!(
            any.draw(&mut stream(1), ImageSize { width: 9, height: 1 }, &[[2.0, 0.0, 7.0, 1.0]]),
            None
        );
    }
}
