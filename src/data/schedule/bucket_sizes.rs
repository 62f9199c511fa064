//! The sizes of buckets, and which of them an image is nearest to.

use base::error::{Error, Result};
use pixels::augment::ImageSize;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest number of buckets. The number of a bucket is a byte, and 255 means none.
const MOST: usize = 255;

/// The sizes of all buckets, from the narrowest to the widest; of the same aspect ratio, the smallest first. There is
/// at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketSizes {
    sizes: Vec<ImageSize>,
    /// The numbers of the sizes of each aspect ratio.
    of_ratio: Vec<Range<usize>>,
    /// Between each aspect ratio and the next, the ratio that is as near to the one as to the other.
    borders: Vec<f64>,
}

impl BucketSizes {
    /// Returns the sizes with about `area` pixels, whose sides are multiples of `step`, and whose longer side is at
    /// most `max_ratio` times the shorter one.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such size, or if there are more than 255.
    pub fn of_area(area: u64, step: u32, max_ratio: f64) -> Result<Self> {
        let mut by_ratio: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let by = u64::from(step.max(1));
        let mut add = |width: u64, height: u64| {
            let (short, long) = (width.min(height), width.max(height));
            if short == 0 || long > u64::from(u32::MAX) || long as f64 > max_ratio * short as f64 {
                return;
            }
            let common = gcd(width, height);
            let largest = by_ratio.entry((width / common, height / common)).or_default();
            *largest = common.max(*largest);
        };
        let side = area.isqrt() / by * by;
        add(side, side);
        // A side that is longer than this makes the ratio too large.
        let longest = ((area as f64 * max_ratio).sqrt() as u64).saturating_add(by);
        for width in (by..=longest).step_by(by as usize).take(1 << 20) {
            let height = area / (width * by) * by;
            add(width, height);
            add(height, width);
        }
        let size = |((w, h), common): ((u64, u64), u64)| ImageSize {
            width: (w * common) as u32,
            height: (h * common) as u32,
        };
        Self::sorted(by_ratio.into_iter().map(size).collect(), "raise step, or lower max_ratio")
    }

    /// Returns the given sizes.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no size, if a side is 0, or if there are more than 255.
    pub fn listed(sizes: Vec<ImageSize>) -> Result<Self> {
        if sizes.iter().any(|size| size.width == 0 || size.height == 0) {
            return Err(Error::config("buckets", "has a size of 0 pixels, must have sides of at least 1"));
        }
        Self::sorted(sizes, "give fewer")
    }

    fn sorted(mut sizes: Vec<ImageSize>, remedy: &str) -> Result<Self> {
        let wider = |a: &ImageSize, b: &ImageSize| {
            let [a_to_b, b_to_a] =
                [(a.width, b.height), (b.width, a.height)].map(|(w, h)| u64::from(w) * u64::from(h));
            a_to_b.cmp(&b_to_a).then(a.width.cmp(&b.width))
        };
        sizes.sort_unstable_by(wider);
        sizes.dedup();
        match sizes.len() {
            0 => Err(Error::config("buckets", "has no size: raise area or max_ratio, or lower step")),
            1..=MOST => Ok(Self::of(sizes)),
            several => {
                Err(Error::config("buckets", format!("are {several} sizes, at most {MOST}: {remedy}")))
            }
        }
    }

    fn of(sizes: Vec<ImageSize>) -> Self {
        let is_same = |a: &ImageSize, b: &ImageSize| {
            u64::from(a.width) * u64::from(b.height) == u64::from(b.width) * u64::from(a.height)
        };
        let mut end = 0;
        let of_ratio: Vec<Range<usize>> = sizes
            .chunk_by(is_same)
            .map(|chunk| {
                end += chunk.len();
                end - chunk.len()..end
            })
            .collect();
        let ratio = |of: &Range<usize>| f64::from(sizes[of.start].width) / f64::from(sizes[of.start].height);
        let borders =
            of_ratio.iter().zip(&of_ratio[1..]).map(|(a, b)| (ratio(a) * ratio(b)).sqrt()).collect();
        Self { sizes, of_ratio, borders }
    }

    /// Returns the sizes by the numbers of their buckets.
    pub fn list(&self) -> &[ImageSize] {
        &self.sizes
    }

    /// Returns the number of the bucket whose aspect ratio is nearest to that of an image. If several have that ratio,
    /// it is the largest one for which the image need not be enlarged, else the smallest.
    pub fn nearest(&self, width: u32, height: u32) -> u8 {
        let ratio = f64::from(width.max(1)) / f64::from(height.max(1));
        let of_ratio = self.of_ratio[self.borders.iter().filter(|border| **border < ratio).count()].clone();
        let first = of_ratio.start;
        let fits = |size: &&ImageSize| size.width <= width && size.height <= height;
        let fitting = if of_ratio.len() == 1 { 1 } else { self.sizes[of_ratio].iter().filter(fits).count() };
        (first + fitting.saturating_sub(1)) as u8
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    #[test]
    fn sizes_of_an_area_are_those_of_sdxl() {
        let of = |step, ratio| BucketSizes::of_area(1 << 20, step, ratio).unwrap().sizes;
        let thirteen = of(64, 2.0);
        assert_eq!((thirteen.len(), of(64, 4.0).len(), of(16, 4.0).len()), (13, 33, 129));
        assert!(thirteen.contains(&ImageSize { width: 1024, height: 1024 }));
        for size in &thirteen {
            let ImageSize { width, height } = *size;
            assert!(width * height <= 1 << 20 && width % 64 == 0 && height % 64 == 0, "{size:?}");
            assert!(thirteen.contains(&ImageSize { width: height, height: width }), "{size:?}");
        }
        assert!(BucketSizes::of_area(1 << 20, 8, 16.0).unwrap_err().to_string().contains("at most 255"));
        assert!(BucketSizes::of_area(100, 64, 2.0).is_err());
    }

    #[test]
    fn the_nearest_bucket_has_the_nearest_logarithm_of_the_ratio() {
        let seed = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("FORELOAD_SEED={seed}");
        let sizes = BucketSizes::of_area(1 << 20, 64, 4.0).unwrap();
        let random = &mut RandomKey::new(b"buckets", seed, 0, Use::Augment).stream(0);
        let log = |w: u32, h: u32| (f64::from(w) / f64::from(h)).ln();
        for _ in 0..10_000 {
            let [w, h] = [0; 2].map(|_| 1 + random.below(5000) as u32);
            let far = |size: &ImageSize| (log(size.width, size.height) - log(w, h)).abs();
            let least = sizes.sizes.iter().map(far).fold(f64::MAX, f64::min);
            let found = sizes.sizes[usize::from(sizes.nearest(w, h))];
            assert!(far(&found) <= least + 1e-12, "{w}×{h}: {found:?}");
        }
        let size = |side| ImageSize { width: side, height: side };
        let same = BucketSizes::listed(vec![size(64), size(256), size(128)]).unwrap();
        let nearest = |w, h| same.list()[usize::from(same.nearest(w, h))].width;
        assert_eq!(
            [nearest(50, 50), nearest(100, 64), nearest(130, 400), nearest(999, 999)],
            [64, 64, 128, 256]
        );
    }
}
