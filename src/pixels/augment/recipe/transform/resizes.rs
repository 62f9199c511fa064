//! Transforms that resize.

use super::values::{BadParameter, LARGEST_SIDE, Lengths, Sides, bounds, check_length};
use super::{CROP_RATIO, CROP_SCALE, GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::{jittered, random_resized_crop, resized, with_short_side};
use crate::augment::{Filter, ImageSize};
use serde::Deserialize;

/// Crops a part of random area and shape, and resizes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// The output's size.
    pub size: Sides,
    /// Bounds of the crop's share of the area.
    #[serde(default = "crop_scale")]
    pub scale: (f64, f64),
    /// Bounds of the crop's width / height.
    #[serde(default = "crop_ratio")]
    pub ratio: (f64, f64),
    /// How the pixels are resampled.
    #[serde(default)]
    pub interpolation: Filter,
}

fn crop_scale() -> (f64, f64) {
    CROP_SCALE
}

fn crop_ratio() -> (f64, f64) {
    CROP_RATIO
}

impl GeometryTransform for RandomResizedCrop {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()?;
        bounds("scale", self.scale, 1.0)?;
        bounds("ratio", self.ratio, 1e6)
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, Some(self.size.square()))
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let GeometryDraw { stream, fold, .. } = draw;
        fold.crop(random_resized_crop(stream, fold.size(), self.scale, self.ratio));
        fold.resize(self.size.square())
    }
}

/// Resizes the whole image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WholeResize {
    /// The size after the resize, where one number is the length of the shorter side. `None` needs `max_size`, which is
    /// then the length of the longer side.
    pub size: Option<Sides>,
    /// The longest that the longer side may become.
    #[serde(default)]
    pub max_size: Option<u32>,
    /// How the pixels are resampled.
    #[serde(default)]
    pub interpolation: Filter,
}

impl WholeResize {
    /// The size of an image after it.
    fn after(&self, size: ImageSize) -> ImageSize {
        match self.size {
            Some(both @ Sides::Both(_)) => both.square(),
            Some(Sides::One(short)) => resized(size, Some(short), self.max_size),
            None => resized(size, None, self.max_size),
        }
    }
}

impl GeometryTransform for WholeResize {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { size, max_size, .. } = *self;
        size.map_or(Ok(()), Sides::check)?;
        let Some(longest) = max_size else {
            let missing = || BadParameter::new("size", "is None, must be a length, or come with max_size");
            return size.map(|_| ()).ok_or_else(missing);
        };
        let wrong = |message: String| Err(BadParameter::new("max_size", message));
        match size {
            _ if longest == 0 || longest > LARGEST_SIDE => {
                wrong(format!("is {longest}, must be from 1 to {LARGEST_SIDE}"))
            }
            Some(Sides::Both(_)) => {
                wrong(format!("is {longest}, but size gives both sides already: leave one out"))
            }
            Some(Sides::One(short)) if longest <= short => {
                wrong(format!("is {longest}, must be more than the shorter side's {short}"))
            }
            _ => Ok(()),
        }
    }

    fn is_random(&self) -> bool {
        false
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        let size = match self.size {
            Some(both @ Sides::Both(_)) => Some(both.square()),
            _ => list.size().map(|size| self.after(size)),
        };
        list.resample(self.interpolation, size)
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        draw.fold.resize(self.after(draw.fold.size()))
    }
}

/// Resizes the whole image to a random size.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResize {
    /// The least length of the shorter side.
    min_size: u32,
    /// The first length that is too long.
    max_size: u32,
    /// How the pixels are resampled.
    #[serde(default)]
    interpolation: Filter,
}

impl GeometryTransform for RandomResize {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { min_size, max_size, .. } = *self;
        check_length("min_size", min_size)?;
        check_length("max_size", max_size)?;
        let wrong = || format!("is {max_size}, must be more than min_size, {min_size}");
        (min_size < max_size).then_some(()).ok_or_else(|| BadParameter::new("max_size", wrong()))
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let short = self.min_size + stream.below(u64::from(self.max_size - self.min_size)) as u32;
        fold.resize(resized(fold.size(), Some(short), None))
    }
}

/// Resizes the whole image to one of several sizes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// The lengths of the shorter side, of which one is drawn.
    min_size: Lengths,
    /// The longest that the longer side may become.
    #[serde(default)]
    max_size: Option<u32>,
    /// How the pixels are resampled.
    #[serde(default)]
    interpolation: Filter,
}

impl GeometryTransform for RandomShortestSize {
    fn check(&self) -> Result<(), BadParameter> {
        self.min_size.check("min_size")?;
        self.max_size.map_or(Ok(()), |longest| check_length("max_size", longest))
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let lengths = self.min_size.list();
        let short = lengths[stream.below(lengths.len() as u64) as usize];
        fold.resize(with_short_side(fold.size(), short, self.max_size))
    }
}

/// Resizes the whole image to a random multiple of the largest size that fits into a rectangle.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// The width and the height of the rectangle.
    target_size: [u32; 2],
    /// Bounds of the multiple.
    #[serde(default = "jitter_range")]
    scale_range: (f64, f64),
    /// How the pixels are resampled.
    #[serde(default)]
    interpolation: Filter,
}

fn jitter_range() -> (f64, f64) {
    (0.1, 2.0)
}

impl GeometryTransform for ScaleJitter {
    fn check(&self) -> Result<(), BadParameter> {
        self.target_size.iter().try_for_each(|&side| check_length("target_size", side))?;
        bounds("scale_range", self.scale_range, 1e6)
    }

    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ([width, height], (low, high)) = (self.target_size, self.scale_range);
        fold.resize(jittered(fold.size(), ImageSize { width, height }, stream.uniform(low, high)))
    }
}
