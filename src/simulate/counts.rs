//! How often a node uses a sample: the binomial distribution on which placement by frequency is based (Dryden et al.,
//! SC'21, section 3). If each sample occurs `repeats` times in a global batch, a node uses as few samples per epoch as
//! one of `repeats` nodes would without repeats.

use super::access::{AccessSchedule, Sizes};

/// Returns the probabilities P(X = k) for X ~ Bin(`epochs`, 1/`nodes`) and k = 0 … `epochs`.
pub fn distribution(epochs: u32, nodes: u32) -> Vec<f64> {
    let (n, p) = (epochs as usize, 1.0 / f64::from(nodes.max(1)));
    if nodes <= 1 {
        return (0..=n).map(|k| if k == n { 1.0 } else { 0.0 }).collect();
    }
    // Use logarithms, because (1-p)^n underflows for many epochs.
    let mut log = n as f64 * (1.0 - p).ln();
    let mut probabilities = vec![log.exp()];
    for k in 1..=n {
        log += ((n - k + 1) as f64 / k as f64).ln() + (p / (1.0 - p)).ln();
        probabilities.push(log.exp());
    }
    probabilities
}

/// Returns the expected number of samples that a node uses more than `above` times in `epochs` epochs, for a dataset of
/// `samples` samples.
pub fn expected_above(epochs: u32, nodes: u32, samples: u64, above: u32) -> f64 {
    let more: f64 = distribution(epochs, nodes).iter().skip(above as usize + 1).sum();
    more * samples as f64
}

/// Returns the number of samples that the first node uses more than `above` times in this schedule.
pub fn counted_above(accesses: &AccessSchedule, sizes: &Sizes, above: u32) -> u64 {
    accesses.trace(0, sizes).uses.iter().filter(|&&uses| uses > above).count() as u64
}

/// Returns the hit rate of a node that caches the samples that it uses most often, as many as make up the fraction
/// `cached` of the dataset. For comparison: with randomly chosen samples, the hit rate is `cached`.
pub fn frequency_hits(epochs: u32, nodes: u32, cached: f64) -> f64 {
    let (mut left, mut hits) = (cached.clamp(0.0, 1.0), 0.0);
    for (uses, probability) in distribution(epochs, nodes).into_iter().enumerate().rev() {
        let taken = probability.min(left);
        hits += taken * uses as f64;
        left -= taken;
    }
    (hits * f64::from(nodes) / f64::from(epochs.max(1))).min(1.0)
}
