//! The recipe of each image: its size, coding and bits per pixel, in ImageNet's mix.
//!
//! ImageNet's training set has 1.28 million files of 138 GB: 108 KB each, most of them 500 pixels on the long side.

use base::rng::RandomStream;

/// How the pixels are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JpegCoding {
    /// Baseline, chroma halved both ways: nearly all photographs.
    Yuv420,
    /// Baseline, chroma at full resolution.
    Yuv444,
    /// Baseline, one component.
    Gray,
    /// Baseline, four components, inverted as Adobe does.
    Cmyk,
    /// Progressive, chroma halved both ways.
    Progressive,
}

impl JpegCoding {
    /// Every coding with its share in 1000 images and its name in the summary.
    pub(crate) const SHARES: [(Self, u32, &'static str); 5] = [
        (Self::Progressive, 20, "progressive"),
        (Self::Gray, 10, "gray"),
        (Self::Cmyk, 3, "cmyk"),
        (Self::Yuv444, 100, "yuv444"),
        (Self::Yuv420, 867, "yuv420"),
    ];

    /// The coding of image `index` of a dataset whose codings begin at `start` in [0, 1).
    ///
    /// It steps by the golden ratio instead of drawing at random, so that any run of images has nearly the right
    /// shares.
    pub(crate) fn of(index: u64, start: f64) -> Self {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let mut left = (start + GOLDEN * index as f64).fract() * 1000.0;
        for (coding, share, _) in Self::SHARES {
            left -= f64::from(share);
            if left < 0.0 {
                return coding;
            }
        }
        Self::Yuv420
    }
}

/// One image to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PhotoRecipe {
    /// The pixels of a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The coding of the image.
    pub coding: JpegCoding,
    /// The bits per pixel to aim at, before the photograph's own are considered.
    pub bits_per_pixel: f64,
    /// The highest quality: photographs that are too smooth for their bits per pixel get grain instead.
    pub best_quality: u8,
}

impl PhotoRecipe {
    /// Draws the recipe of image `index`.
    pub(crate) fn draw(index: u64, start: f64, random: &mut RandomStream) -> Self {
        let (width, height) = size(random);
        let coding = JpegCoding::of(index, start);
        let large = (width * height) as f64 > 6e5;
        // Large files come from cameras and editors at lower rates than the 500-pixel thumbnails of photo sites.
        let median: f64 = if large { 2.8 } else { 4.9 };
        let spread = match coding {
            JpegCoding::Gray => 0.85,
            JpegCoding::Cmyk => 1.5,
            JpegCoding::Yuv444 => 1.15,
            JpegCoding::Yuv420 | JpegCoding::Progressive => 1.0,
        };
        let bits_per_pixel = (median * (0.3 * normal(random)).exp()).clamp(1.2, 9.0) * spread;
        Self { width, height, coding, bits_per_pixel, best_quality: 94 + random.below(5) as u8 }
    }
}

/// Draws a standard normal number (Box and Muller, 1958).
pub(crate) fn normal(random: &mut RandomStream) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// Draws one of ImageNet's sizes: the long side 500 for four of five, a few small, a few up to 3000 pixels.
fn size(random: &mut RandomStream) -> (usize, usize) {
    let mut between = |low: u64, high: u64| (low + random.below(high - low + 1)) as usize;
    match between(0, 999) {
        0..=379 => (500, 375),
        380..=499 => (375, 500),
        500..=649 => (500, 333),
        650..=699 => (333, 500),
        700..=789 => (500, between(281, 499)),
        790..=839 => (between(281, 499), 500),
        840..=869 => (640, 480),
        870..=899 => (between(110, 299), between(110, 299)),
        900..=974 => (between(300, 500), between(300, 500)),
        975..=983 => (800, 600),
        984..=991 => (1024, 768),
        992..=996 => (between(1100, 1700), between(1000, 1300)),
        _ => (between(1700, 3000), between(1300, 2000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    #[test]
    fn shares_hold_in_any_run_of_images() {
        assert_eq!(JpegCoding::SHARES.iter().map(|s| s.1).sum::<u32>(), 1000);
        for first in [0u64, 777, 123_456] {
            for (coding, share, name) in JpegCoding::SHARES {
                let count =
                    (first..first + 2000).filter(|&i| JpegCoding::of(i, 0.3) == coding).count() as i64;
                assert!((count - 2 * i64::from(share)).abs() <= 3, "{name}: {count} of 2000 from {first}");
            }
        }
    }

    #[test]
    fn sizes_are_imagenets() {
        let key = RandomKey::new(b"sizes", 1, 0, Use::Augment);
        let recipes: Vec<PhotoRecipe> =
            (0..4000).map(|i| PhotoRecipe::draw(i, 0.0, &mut key.stream(i))).collect();
        let median = |mut values: Vec<usize>| {
            values.sort_unstable();
            values[values.len() / 2]
        };
        assert_eq!(median(recipes.iter().map(|r| r.width).collect()), 500);
        let height = median(recipes.iter().map(|r| r.height).collect());
        assert!((370..=380).contains(&height), "{height}");
        let mean = recipes.iter().map(|r| (r.width * r.height) as f64).sum::<f64>() / 4000.0;
        assert!((190e3..230e3).contains(&mean), "{mean}");
        assert!(recipes.iter().any(|r| r.width >= 2000));
    }
}
