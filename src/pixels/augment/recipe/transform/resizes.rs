//! Transforms that resize.

use super::table::transform;
use super::values::{BadParameter, Lengths, MAX_SIDE, SizeParameter, bounds, check_length};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::recipe::torchvision::{
    covering, jittered, random_resized_crop, resized, with_short_side,
};
use crate::augment::{Filter, ImageSize};

transform! {
    /// Crops a box of random area and aspect ratio at a random place, and resizes it.
    pub RandomResizedCrop {
        /// The output's size in pixels: the side of a square, (height, width), or `"bucket"`.
        pub size: SizeParameter;
        /// The bounds of the crop's area, as a fraction of the image's area; uniform between them.
        pub scale: (f64, f64) = [0.08, 1.0], must("two numbers, the least and the largest area fraction");
        /// The bounds of the crop's width / height; log-uniform between them.
        pub ratio: (f64, f64) = [0.75, 1.3333333333333333],
            must("two numbers, the least and the largest width / height");
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased, as with torchvision's `antialias=True`),
        /// `nearest` or `nearest-exact`; or torchvision's `InterpolationMode`.
        pub interpolation: Filter = "bilinear";
    }
}

impl GeometryTransform for RandomResizedCrop {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()?;
        bounds("scale", self.scale, 1.0)?;
        bounds("ratio", self.ratio, 1e6)
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, Some(self.size.square()))
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let GeometryDraw { stream, fold, .. } = draw;
        fold.crop(random_resized_crop(stream, fold.size(), self.scale, self.ratio));
        fold.resize(self.size.square())
    }
}

transform! {
    /// Resizes the whole image.
    pub WholeResize {
        /// The length of the shorter side in pixels, which keeps the aspect ratio; (height, width); or `"bucket"`.
        /// None, with `max_size`: the longer side gets the length `max_size`.
        pub size: Option<SizeParameter>, checked_by("resize_sides");
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
        /// torchvision's `InterpolationMode`.
        pub interpolation: Filter = "bilinear";
        /// The largest length of the longer side in pixels, if `size` is that of the shorter side.
        pub max_size: Option<u32> = null;
    }
}

impl WholeResize {
    fn after(&self, size: ImageSize) -> ImageSize {
        match self.size {
            Some(both @ (SizeParameter::Both(_) | SizeParameter::Bucket(_))) => both.square(),
            Some(SizeParameter::One(short)) => resized(size, Some(short), self.max_size),
            None => resized(size, None, self.max_size),
        }
    }
}

impl GeometryTransform for WholeResize {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { size, max_size, .. } = *self;
        size.map_or(Ok(()), SizeParameter::check)?;
        let Some(longest) = max_size else {
            let missing = || BadParameter::new("size", "is None: give a length, or set max_size");
            return size.map(|_| ()).ok_or_else(missing);
        };
        let wrong = |message: String| Err(BadParameter::new("max_size", message));
        match size {
            _ if longest == 0 || longest > MAX_SIDE => {
                wrong(format!("is {longest}, must be from 1 to {MAX_SIDE}"))
            }
            Some(SizeParameter::Both(_)) => {
                wrong(format!("is {longest}, but size already sets both sides: remove max_size"))
            }
            Some(SizeParameter::One(short)) if longest <= short => {
                wrong(format!("is {longest}, must be more than size, {short}"))
            }
            _ => Ok(()),
        }
    }

    fn is_random(&self) -> bool {
        false
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        let size = match self.size {
            Some(both @ SizeParameter::Both(_)) => Some(both.square()),
            _ => list.size().map(|size| self.after(size)),
        };
        list.resample(self.interpolation, size)
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        draw.fold.resize(self.after(draw.fold.size()))
    }
}

transform! {
    /// Resizes the whole image to the smallest size of the same aspect ratio that covers `size`.
    ///
    /// A crop to `size` after it cuts off as little as possible: `size="bucket"` for both, with `buckets=` of the
    /// loader.
    pub ResizeToCover {
        /// The size in pixels that the image covers: the side of a square, (height, width), or `"bucket"`.
        pub size: SizeParameter;
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
        /// torchvision's `InterpolationMode`.
        pub interpolation: Filter = "bilinear";
    }
}

impl GeometryTransform for ResizeToCover {
    fn check(&self) -> Result<(), BadParameter> {
        self.size.check()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        let size = list.size().map(|size| covering(size, self.size.square()));
        list.resample(self.interpolation, size)
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        draw.fold.resize(covering(draw.fold.size(), self.size.square()))
    }
}

transform! {
    /// Resizes the whole image so that its shorter side has a random length.
    pub RandomResize {
        /// The smallest length in pixels.
        min_size: u32;
        /// The upper bound of the length, exclusive: the largest length is one less, as in torchvision.
        max_size: u32;
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
        /// torchvision's `InterpolationMode`.
        interpolation: Filter = "bilinear";
    }
}

impl GeometryTransform for RandomResize {
    fn check(&self) -> Result<(), BadParameter> {
        let Self { min_size, max_size, .. } = *self;
        check_length("min_size", min_size)?;
        check_length("max_size", max_size)?;
        let wrong = || format!("is {max_size}, must be more than min_size, {min_size}");
        (min_size < max_size).then_some(()).ok_or_else(|| BadParameter::new("max_size", wrong()))
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let short = self.min_size + stream.below(u64::from(self.max_size - self.min_size)) as u32;
        fold.resize(resized(fold.size(), Some(short), None))
    }
}

transform! {
    /// Resizes the whole image so that its shorter side has one of several lengths.
    pub RandomShortestSize {
        /// The lengths in pixels, all equally likely; or a single length.
        min_size: Lengths;
        /// The largest length of the longer side in pixels. An image that would be longer is shrunk to it.
        max_size: Option<u32> = null;
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
        /// torchvision's `InterpolationMode`.
        interpolation: Filter = "bilinear";
    }
}

impl GeometryTransform for RandomShortestSize {
    fn check(&self) -> Result<(), BadParameter> {
        self.min_size.check("min_size")?;
        self.max_size.map_or(Ok(()), |longest| check_length("max_size", longest))
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let lengths = self.min_size.list();
        let short = lengths[stream.below(lengths.len() as u64) as usize];
        fold.resize(with_short_side(fold.size(), short, self.max_size))
    }
}

transform! {
    /// Resizes the whole image to a random multiple of the largest size that fits into a rectangle.
    pub ScaleJitter {
        /// The rectangle's (width, height) in pixels, in this order, as torchvision computes it.
        target_size: [u32; 2];
        /// The bounds of the multiple; uniform between them.
        scale_range: (f64, f64) = [0.1, 2.0], must("two numbers, the least and the largest multiple");
        /// The filter: `bilinear`, `bicubic`, `lanczos` (all antialiased), `nearest` or `nearest-exact`; or
        /// torchvision's `InterpolationMode`.
        interpolation: Filter = "bilinear";
    }
}

impl GeometryTransform for ScaleJitter {
    fn check(&self) -> Result<(), BadParameter> {
        self.target_size.iter().try_for_each(|&side| check_length("target_size", side))?;
        bounds("scale_range", self.scale_range, 1e6)
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        list.resample(self.interpolation, None)
    }

    fn apply(&self, GeometryDraw { stream, fold, .. }: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ([width, height], (low, high)) = (self.target_size, self.scale_range);
        fold.resize(jittered(fold.size(), ImageSize { width, height }, stream.uniform(low, high)))
    }
}
