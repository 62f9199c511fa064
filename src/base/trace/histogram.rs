//! Histograms of durations, to compute percentiles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets for each doubling of the duration. So a percentile is off by at most a sixteenth.
const PER_DOUBLING: usize = 8;

/// The number of buckets. They range from a nanosecond to 18 minutes. Longer durations are in the last bucket, but
/// [`Histogram::max`] is exact.
const BUCKETS: usize = 38 * PER_DOUBLING;

/// The bucket of a value. Each value below 8 has its own bucket. Above, each doubling has 8 buckets.
fn bucket(nanoseconds: u64) -> usize {
    let Some(shift) = nanoseconds.max(1).ilog2().checked_sub(3) else { return nanoseconds as usize };
    let within = (nanoseconds >> shift) as usize - PER_DOUBLING;
    ((shift as usize + 1) * PER_DOUBLING + within).min(BUCKETS - 1)
}

fn middle(bucket: usize) -> u64 {
    let (doubling, within) = (bucket / PER_DOUBLING, (bucket % PER_DOUBLING) as u64);
    let Some(shift) = doubling.checked_sub(1) else { return within };
    ((PER_DOUBLING as u64 + within) << shift) + ((1 << shift) >> 1)
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    max: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, time: Duration) {
        let nanoseconds = time.as_nanos() as u64;
        self.counts.resize(BUCKETS, 0);
        self.counts[bucket(nanoseconds)] += 1;
        self.max = self.max.max(nanoseconds);
    }

    /// The number of counted durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The quantile in seconds: a fraction `quantile` of all durations is at most this long. 0 if nothing was counted.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let rank = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0.0, |bucket| middle(bucket).min(self.max) as f64 * 1e-9)
    }

    /// The sum of all durations in seconds, off by at most a sixteenth.
    pub fn total(&self) -> f64 {
        let counted = self.counts.iter().enumerate();
        counted.map(|(bucket, &count)| count as f64 * middle(bucket) as f64 * 1e-9).sum()
    }

    /// The longest duration in seconds.
    pub fn max(&self) -> f64 {
        self.max as f64 * 1e-9
    }
}

impl std::ops::AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, more: &Self) {
        self.counts.resize(self.counts.len().max(more.counts.len()), 0);
        self.counts.iter_mut().zip(&more.counts).for_each(|(own, more)| *own += more);
        self.max = self.max.max(more.max);
    }
}

/// A histogram that threads write to while others read it.
pub struct SharedHistogram {
    counts: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    /// Counts one duration.
    pub fn record(&self, time: Duration) {
        let nanoseconds = time.as_nanos() as u64;
        self.counts[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.max.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// A copy of the counts so far.
    pub fn snapshot(&self) -> Histogram {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        if counts.iter().all(|&count| count == 0) {
            return Histogram::default();
        }
        Histogram { counts, max: self.max.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RandomKey, Use};

    #[test]
    fn a_value_lies_within_a_sixteenth_of_its_bucket() {
        let mut previous = 0;
        for nanoseconds in
            (0..2000).chain((11..=40).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)]))
        {
            let found = bucket(nanoseconds);
            assert!(found >= previous || nanoseconds < 1 << 12, "{nanoseconds}: order");
            previous = found;
            if nanoseconds < 1 << 40 {
                let error = middle(found).abs_diff(nanoseconds);
                assert!(16 * error <= nanoseconds, "{nanoseconds}: {}", middle(found));
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let seed = 20;
        let mut stream = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
        let mut value = || {
            let top = 1 << stream.below(30);
            1 + stream.below(top)
        };
        let mut values: Vec<u64> = (0..5000).map(|_| value()).collect();
        let (mut all, mut half, shared) =
            (Histogram::default(), Histogram::default(), SharedHistogram::default());
        for (i, &value) in values.iter().enumerate() {
            let time = Duration::from_nanos(value);
            if i % 2 == 0 {
                all.record(time)
            } else {
                half.record(time)
            }
            shared.record(time);
        }
        all += &half;
        assert_eq!(all, shared.snapshot());
        assert_eq!(all.count(), 5000);
        values.sort_unstable();
        for (quantile, rank) in [(0.5, 2499), (0.9, 4499), (0.99, 4949), (1.0, 4999)] {
            let (found, exact) = (all.quantile(quantile), values[rank] as f64 * 1e-9);
            assert!(
                (found - exact).abs() <= exact / 16.0 + 1e-12,
                "{quantile}: {found}, {exact}; seed {seed}"
            );
        }
        assert!((all.max() - values[4999] as f64 * 1e-9).abs() < 1e-15);
        let sum = values.iter().sum::<u64>() as f64 * 1e-9;
        assert!((all.total() / sum - 1.0).abs() <= 1.0 / 16.0, "{} of {sum}; seed {seed}", all.total());
    }

    #[test]
    fn nothing_counted_is_zero() {
        let empty = Histogram::default();
        assert_eq!((empty.count(), empty.quantile(0.5), empty.max(), empty.total()), (0, 0.0, 0.0, 0.0));
        assert_eq!(SharedHistogram::default().snapshot(), empty);
    }
}
