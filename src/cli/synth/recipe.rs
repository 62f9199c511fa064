//! The recipe of each image: its size, coding, bits per pixel and quality, drawn from a profile.

use super::profile::{Kind, Profile, RANKS};
use base::names::named;
use base::rng::RandomStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JpegCoding {
    /// Baseline, one component.
    Gray,
    /// Baseline, chroma halved in both directions.
    Yuv420,
    /// Baseline, chroma halved horizontally.
    Yuv422,
    /// Baseline, chroma at full resolution.
    Yuv444,
    /// Progressive, chroma halved in both directions.
    Progressive,
}

named!(
    JpegCoding:
    "gray" => Gray, "yuv420" => Yuv420, "yuv422" => Yuv422, "yuv444" => Yuv444, "progressive" => Progressive,
);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PhotoRecipe {
    pub width: usize,
    pub height: usize,
    pub coding: JpegCoding,
    pub own_tables: bool,
    pub bits_per_pixel: f64,
    /// The quality, 1 to 100. The photograph is sharpened or softened until it has the target bits per pixel at this
    /// quality.
    pub quality: u8,
    pub orientation: Option<u8>,
}

impl PhotoRecipe {
    /// Draws the recipe of image `index`. `start` in [0, 1) is where the sequence of kinds begins in this dataset.
    pub(crate) fn draw(profile: Profile, index: u64, start: f64, random: &mut RandomStream) -> Self {
        let kind = kind_of(profile, index, start);
        let (width, height) = size(kind, random);
        let rank = random.unit();
        // Three of five files have the quality that matches their bits per pixel. The other files have a random
        // quality.
        let of_quality = if random.unit() < 0.6 { rank } else { random.unit() };
        let held = [1, 1, 1, 1, 6, 6, 8, 3][random.below(8) as usize];
        Self {
            width,
            height,
            coding: kind.coding,
            own_tables: random.below(1000) < u64::from(kind.own_tables),
            bits_per_pixel: quantile(&kind.rates, rank),
            quality: quantile(&kind.qualities, of_quality).round().min(98.0) as u8,
            orientation: (profile == Profile::Phone).then_some(held),
        }
    }
}

/// The kind of image `index`.
///
/// Steps by the golden ratio instead of drawing at random, so that any range of images has nearly the right shares.
fn kind_of(profile: Profile, index: u64, start: f64) -> &'static Kind {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    chosen(profile.kinds(), (start + GOLDEN * index as f64).fract() * 1000.0, |kind| kind.share)
}

/// The element whose interval contains `at`, in [0, 1000). The intervals are consecutive, and `share` gives their
/// lengths.
fn chosen<T>(of: &[T], at: f64, share: impl Fn(&T) -> u32) -> &T {
    let mut left = at;
    let found = of.iter().find(|one| {
        left -= f64::from(share(one));
        left < 0.0
    });
    found.unwrap_or(&of[of.len() - 1])
}

fn size(kind: &Kind, random: &mut RandomStream) -> (usize, usize) {
    let &(_, width, height) = chosen(kind.sizes, random.below(1000) as f64, |size| size.0);
    let mut between =
        |(low, high): (u32, u32)| low as usize + random.below(u64::from(high - low) + 1) as usize;
    (between(width), between(height))
}

/// The quantile `rank`, from the values at the quantiles 5, 25, 50, 75 and 95 %. Interpolates the logarithm linearly
/// between these quantiles, and extrapolates from the nearest two quantiles.
fn quantile(values: &[f64; 5], rank: f64) -> f64 {
    let after = RANKS[1..4].iter().take_while(|&&r| r <= rank).count();
    let part = (rank - RANKS[after]) / (RANKS[after + 1] - RANKS[after]);
    let (low, high) = (values[after].ln(), values[after + 1].ln());
    (low + (high - low) * part).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    const PROFILES: [Profile; 3] = [Profile::Imagenet, Profile::Web, Profile::Phone];

    #[test]
    fn shares_hold_in_any_run_of_images() {
        for profile in PROFILES {
            assert_eq!(profile.kinds().iter().map(|kind| kind.share).sum::<u32>(), 1000);
            for kind in profile.kinds() {
                assert_eq!(kind.sizes.iter().map(|size| size.0).sum::<u32>(), 1000, "{:?}", kind.coding);
            }
            for first in [0u64, 777, 123_456] {
                for kind in profile.kinds() {
                    let of = |i: &u64| kind_of(profile, *i, 0.3).coding == kind.coding;
                    let count = (first..first + 2000).filter(of).count() as i64;
                    assert!(
                        (count - 2 * i64::from(kind.share)).abs() <= 3,
                        "{profile:?} {:?}: {count}",
                        kind.coding
                    );
                }
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let rates = [1.95, 4.02, 5.32, 6.82, 9.01];
        for (rank, rate) in RANKS.into_iter().zip(rates) {
            assert!((quantile(&rates, rank) - rate).abs() < 1e-9);
        }
        let key = RandomKey::new(b"rates", 1, 0, Use::Augment);
        let drawn = |profile, i| PhotoRecipe::draw(profile, i, 0.0, &mut key.stream(i));
        for profile in PROFILES {
            for kind in profile.kinds() {
                let of_kind =
                    (0..20_000).map(|i| drawn(profile, i)).filter(|recipe| recipe.coding == kind.coding);
                let mut rates: Vec<f64> = of_kind.map(|recipe| recipe.bits_per_pixel).collect();
                rates.sort_by(f64::total_cmp);
                let (median, wanted) = (rates[rates.len() / 2], kind.rates[2]);
                assert!((median / wanted - 1.0).abs() < 0.12, "{profile:?} {:?}: {median}", kind.coding);
            }
        }
    }

    #[test]
    fn sizes_are_imagenets() {
        // The 5, 25, 50, 75 and 95 % quantiles of width and height of the real files.
        let real = [
            (JpegCoding::Yuv444, [300, 375, 500, 500, 500], [283, 334, 375, 500, 500]),
            (JpegCoding::Yuv420, [140, 308, 468, 600, 800], [150, 280, 375, 480, 864]),
            (JpegCoding::Gray, [320, 334, 500, 500, 680], [221, 333, 375, 500, 500]),
            (JpegCoding::Yuv422, [243, 500, 600, 800, 1024], [240, 399, 480, 640, 768]),
        ];
        let key = RandomKey::new(b"sizes", 1, 0, Use::Augment);
        let draw = |i| PhotoRecipe::draw(Profile::Imagenet, i, 0.0, &mut key.stream(i));
        let recipes: Vec<PhotoRecipe> = (0..40_000).map(draw).collect();
        for (coding, widths, heights) in real {
            for (of, wanted) in
                [((|r| r.width) as fn(&PhotoRecipe) -> usize, widths), (|r| r.height, heights)]
            {
                let mut values: Vec<usize> = recipes.iter().filter(|r| r.coding == coding).map(of).collect();
                values.sort_unstable();
                for (rank, wanted) in RANKS.into_iter().zip(wanted) {
                    let value = values[(rank * values.len() as f64) as usize] as f64;
                    assert!(
                        (value / f64::from(wanted) - 1.0).abs() < 0.2,
                        "{coding:?} at {rank}: {value}, {wanted}"
                    );
                }
            }
        }
    }
}
