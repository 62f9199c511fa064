//! Draws how the images of a batch are mixed, from (seed, epoch, global batch).

use super::request::{MixKind, Mixing};
use crate::augment::ImageSize;
use base::rng::{RandomKey, RandomStream, Use};

/// How each image of a batch is mixed with its partner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawnMix {
    /// The weight λ of the image itself in each result. The partner has the weight 1 − λ.
    pub share: f64,
    /// Where the partner is shown.
    pub region: MixRegion,
}

/// Where in an image its partner is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixRegion {
    /// The partner is blended with the whole image.
    Everywhere,
    /// The partner replaces a rectangle: columns `left..right` of rows `top..bottom`.
    #[allow(missing_docs, reason = "the variant says what they are")]
    Rectangle { left: u32, top: u32, right: u32, bottom: u32 },
}

/// The keys of an epoch's random numbers: one key for the choice, and one key for each transform to choose from.
#[derive(Debug, Clone)]
pub struct MixKeys {
    choice: RandomKey,
    parts: Vec<RandomKey>,
}

impl DrawnMix {
    /// Returns the name of the transform that was drawn.
    pub fn name(&self) -> &'static str {
        match self.region {
            MixRegion::Everywhere => MixKind::MixUp.name(),
            MixRegion::Rectangle { .. } => MixKind::CutMix.name(),
        }
    }
}

impl Mixing {
    /// Returns the keys of all random numbers of an epoch.
    pub fn keys(&self, seed: u64, epoch: u64) -> MixKeys {
        let choice = RandomKey::new(&[], seed, epoch, Use::Mix);
        let part = |choice: &super::request::MixChoice| (choice.kind.name(), choice.nth);
        let parts = self.choices.iter().map(part).map(|(name, nth)| choice.part([0, 0], name, nth)).collect();
        MixKeys { choice, parts }
    }

    /// Draws how the images of global batch number `batch` are mixed in the epoch of `keys`. The images have the given
    /// size. There is one draw for a batch, as in torchvision and timm.
    ///
    /// A rectangle is drawn and rounded as in torchvision's `CutMix`: its sides are √(1 − λ) times the image's sides,
    /// and its centre is any pixel. If the border cuts off a part of the rectangle, λ grows by the area of this part.
    pub fn draw(&self, keys: &MixKeys, batch: u64, ImageSize { width, height }: ImageSize) -> DrawnMix {
        let number = match &self.choices[..] {
            [_] => 0,
            several => {
                let at = keys.choice.stream(batch).unit();
                several.iter().position(|choice| at < choice.up_to).unwrap_or(several.len() - 1)
            }
        };
        let (choice, mut stream) = (&self.choices[number], keys.parts[number].stream(batch));
        let share = symmetric_beta(&mut stream, choice.alpha);
        if choice.kind == MixKind::MixUp {
            return DrawnMix { share, region: MixRegion::Everywhere };
        }
        let (x, y) = (stream.below(u64::from(width)) as u32, stream.below(u64::from(height)) as u32);
        let half = 0.5 * (1.0 - share).sqrt();
        // `as` truncates, as Python's `int` does.
        let half = |side: u32| (half * f64::from(side)) as u32;
        let (left, right) = (x.saturating_sub(half(width)), (x + half(width)).min(width));
        let (top, bottom) = (y.saturating_sub(half(height)), (y + half(height)).min(height));
        let pasted = f64::from(right - left) * f64::from(bottom - top);
        DrawnMix {
            share: 1.0 - pasted / (f64::from(width) * f64::from(height)),
            region: MixRegion::Rectangle { left, top, right, bottom },
        }
    }
}

/// Draws a number from the distribution Beta(α, α), for any α above 0.
///
/// If T has Student's t-distribution with 2α degrees of freedom, ½ + ½·T / √(2α + T²) has the distribution Beta(α, α)
/// (Devroye, "Non-Uniform Random Variate Generation", 1986, chapter IX.3). T is drawn by Bailey's method: with a point
/// (u, v) of the unit circle and w = u² + v², T² = 2α·(w^(−1/α) − 1)·u²/w ("Polar Generation of Random Variates with
/// the t-Distribution", Mathematics of Computation 62, 1994). With q = w^(1/α), the two formulas become one, in which
/// nothing overflows.
fn symmetric_beta(stream: &mut RandomStream, alpha: f64) -> f64 {
    loop {
        let (u, v) = (stream.uniform(-1.0, 1.0), stream.uniform(-1.0, 1.0));
        let w = u * u + v * v;
        if w > 1.0 || u == 0.0 {
            continue;
        }
        // The function of libm, unlike the system's function, gives the same last digit on all machines.
        let q = libm::pow(w, 1.0 / alpha);
        let rest = (1.0 - q) * (u * u / w);
        return 0.5 + 0.5 * (rest / (q + rest)).sqrt().copysign(u);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(list: &str, seed: u64, batches: u64, (height, width): (u32, u32)) -> Vec<DrawnMix> {
        let mixing = Mixing::from_json(list).unwrap();
        let keys = mixing.keys(seed, 3);
        (0..batches).map(|batch| mixing.draw(&keys, batch, ImageSize { width, height })).collect()
    }

    #[test]
    fn the_first_batches_stay_what_they_were_promised() {
        let list = r#"[{"RandomChoice": {"transforms": [{"MixUp": {"alpha": 0.2}}, {"CutMix": {}}]}}]"#;
        let rectangle = |left, top, right, bottom| MixRegion::Rectangle { left, top, right, bottom };
        let promised = [
            (0.999815483532293, MixRegion::Everywhere),
            (0.8191964285714286, rectangle(79, 0, 151, 90)),
            (0.7742466517857143, rectangle(0, 0, 87, 93)),
            (0.18035714285714288, rectangle(0, 0, 144, 204)),
        ];
        let promised = promised.map(|(share, region)| DrawnMix { share, region });
        assert_eq!(drawn(list, 1, 4, (224, 160)), promised);
    }

    /// A transform draws the same numbers alone and as one of several.
    #[test]
    fn a_choice_changes_no_draw_of_what_is_chosen() {
        let choice =
            r#"[{"RandomChoice": {"transforms": [{"CutMix": {"alpha": 0.7}}, {"MixUp": {"alpha": 0.2}}]}}]"#;
        let (up, cut) = (r#"[{"MixUp": {"alpha": 0.2}}]"#, r#"[{"CutMix": {"alpha": 0.7}}]"#);
        let size = (30, 20);
        let (up, cut) = (drawn(up, 5, 500, size), drawn(cut, 5, 500, size));
        for ((chosen, up), cut) in drawn(choice, 5, 500, size).into_iter().zip(up).zip(cut) {
            assert!(chosen == up || chosen == cut, "{chosen:?}");
        }
    }

    /// The distribution function of Beta(α, α) by Simpson's rule. For α below 1 it substitutes t = x^α, which removes
    /// the pole at 0.
    fn cumulative(alpha: f64, x: f64) -> f64 {
        let density = |at: f64| match alpha < 1.0 {
            true => (1.0 - at.powf(1.0 / alpha)).powf(alpha - 1.0),
            false => (at * (1.0 - at)).powf(alpha - 1.0),
        };
        let below_half = |x: f64| {
            let steps = 2000;
            let end = if alpha < 1.0 { x.powf(alpha) } else { x };
            let value = |i: usize| density(end * i as f64 / steps as f64);
            let inner: f64 = (1..steps).map(|i| value(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            (value(0) + inner + value(steps)) * end / steps as f64 / 3.0
        };
        let half = 2.0 * below_half(0.5);
        if x <= 0.5 { below_half(x) / half } else { 1.0 - below_half(1.0 - x) / half }
    }

    #[test]
    fn shares_have_the_beta_distribution() {
        // For smaller alpha, much of the distribution is nearer to 1 than f64 can represent.
        for alpha in [0.2, 0.5, 0.8, 1.0, 2.5, 30.0] {
            let seed = 77;
            let list = format!(r#"[{{"MixUp": {{"alpha": {alpha}}}}}]"#);
            let mut shares: Vec<f64> =
                drawn(&list, seed, 100_000, (1, 1)).iter().map(|mix| mix.share).collect();
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            shares.sort_by(f64::total_cmp);
            let n = shares.len() as f64;
            // Comparing every 50th value is enough to detect another distribution.
            let distance = shares
                .iter()
                .enumerate()
                .step_by(50)
                .map(|(i, share)| (cumulative(alpha, *share) - (i as f64 + 0.5) / n).abs());
            let distance = distance.fold(0.0, f64::max);
            // The Kolmogorov-Smirnov distance exceeds this bound with a probability of 1e-4.
            assert!(distance < 2.23 / n.sqrt(), "seed {seed}, alpha {alpha}: {distance}");
        }
    }

    #[test]
    fn absurd_parameters_still_give_shares() {
        for alpha in [1e-300, 1e-5, 1e5, 1e300] {
            let list = format!(r#"[{{"CutMix": {{"alpha": {alpha:e}}}}}]"#);
            for mix in drawn(&list, 1, 300, (3, 7)) {
                assert!((0.0..=1.0).contains(&mix.share), "{alpha}: {mix:?}");
            }
        }
    }

    #[test]
    fn choices_come_as_often_as_their_weights_say() {
        let list = r#"[{"RandomChoice": {"transforms": [{"MixUp": {}}, {"CutMix": {}}], "p": [1, 3]}}]"#;
        let all = drawn(list, 9, 40_000, (8, 8));
        let ups = all.iter().filter(|mix| mix.name() == "MixUp").count() as f64;
        // Four standard deviations of the binomial distribution.
        assert!((ups - 10_000.0).abs() < 4.0 * (40_000.0f64 * 0.25 * 0.75).sqrt(), "seed 9: {ups}");
    }
}
