//! The samples that wait in memory, in the order of their arrival, and which of them are dropped. No I/O.

use super::record::Record;
use base::names::named;
use base::rng::{RandomKey, Use};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// What happens when samples arrive faster than they are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamPolicy {
    /// Sources wait until there is free space.
    #[default]
    Block,
    /// The sample that has waited longest is dropped.
    DropOldest,
    /// A random sample is dropped, so that the waiting samples are a uniform choice of all that arrived.
    DropRandom,
    /// Samples for which memory has no space wait in the spill directory.
    Spill,
}

named!(StreamPolicy: "block" => Block, "drop_oldest" => DropOldest, "drop_random" => DropRandom, "spill" => Spill);

#[derive(Debug, Clone)]
pub(super) struct WaitingSample {
    /// The arrival number, counted over all sources.
    pub arrival: u64,
    pub source: usize,
    /// The sample's number in the progress of that source.
    pub number: u64,
    pub record: Arc<Record>,
    pub since: Instant,
}

pub(super) struct WaitingSamples {
    by_arrival: BTreeMap<u64, WaitingSample>,
    /// With [`StreamPolicy::DropRandom`]: (random number, arrival number) of each sample. The last entry is dropped
    /// next.
    by_draw: Option<BTreeSet<(u64, u64)>>,
    draw: RandomKey,
    bytes: u64,
    most_bytes: u64,
    /// The number of samples that may wait even if `most_bytes` is exceeded, so that a batch is possible.
    always_admitted: usize,
}

impl WaitingSamples {
    pub(super) fn new(policy: StreamPolicy, seed: u64, most_bytes: u64, always_admitted: usize) -> Self {
        let by_draw = (policy == StreamPolicy::DropRandom).then(BTreeSet::new);
        let draw = RandomKey::new(&[], seed, 0, Use::Drop);
        Self { by_arrival: BTreeMap::new(), by_draw, draw, bytes: 0, most_bytes, always_admitted }
    }

    pub(super) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    pub(super) fn has_space(&self) -> bool {
        self.bytes < self.most_bytes || self.len() < self.always_admitted
    }

    pub(super) fn overflows(&self) -> bool {
        self.bytes > self.most_bytes && self.len() > self.always_admitted
    }

    pub(super) fn add(&mut self, sample: WaitingSample) {
        self.bytes += sample.record.bytes().len() as u64;
        if let Some(by_draw) = &mut self.by_draw {
            by_draw.insert((draw_of(&self.draw, &sample), sample.arrival));
        }
        self.by_arrival.insert(sample.arrival, sample);
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<WaitingSample> {
        let arrivals: Vec<u64> = self.by_arrival.keys().take(count).copied().collect();
        arrivals.into_iter().filter_map(|arrival| self.remove(arrival)).collect()
    }

    pub(super) fn drop_one(&mut self) -> Option<WaitingSample> {
        let arrival = match &self.by_draw {
            Some(by_draw) => by_draw.last()?.1,
            None => *self.by_arrival.first_key_value()?.0,
        };
        self.remove(arrival)
    }

    pub(super) fn take_all(&mut self, wanted: impl Fn(&Record) -> bool) -> Vec<WaitingSample> {
        let found = self.by_arrival.values().filter(|sample| wanted(&sample.record));
        let arrivals: Vec<u64> = found.map(|sample| sample.arrival).collect();
        arrivals.into_iter().filter_map(|arrival| self.remove(arrival)).collect()
    }

    fn remove(&mut self, arrival: u64) -> Option<WaitingSample> {
        let sample = self.by_arrival.remove(&arrival)?;
        self.bytes -= sample.record.bytes().len() as u64;
        if let Some(by_draw) = &mut self.by_draw {
            by_draw.remove(&(draw_of(&self.draw, &sample), arrival));
        }
        Some(sample)
    }
}

/// The random number of a sample. Samples with the smallest numbers stay, regardless of their arrival.
fn draw_of(key: &RandomKey, sample: &WaitingSample) -> u64 {
    key.stream(sample.record.id).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arrival: u64, bytes: usize) -> WaitingSample {
        let record = Record::new("s", &arrival.to_string(), &[("jpg", &vec![0; bytes])]).unwrap();
        WaitingSample { arrival, source: 0, number: arrival, record: record.into(), since: Instant::now() }
    }

    fn arrivals(samples: &[WaitingSample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.arrival).collect()
    }

    #[test]
    fn samples_are_taken_in_their_order_and_may_come_back() {
        let mut waiting = WaitingSamples::new(StreamPolicy::Block, 0, 1000, 2);
        (0..5).for_each(|arrival| waiting.add(sample(arrival, 10)));
        let taken = waiting.take(3);
        assert_eq!(arrivals(&taken), [0, 1, 2]);
        taken.into_iter().rev().for_each(|sample| waiting.add(sample));
        assert_eq!(arrivals(&waiting.take(9)), [0, 1, 2, 3, 4]);
        assert_eq!((waiting.len(), waiting.bytes), (0, 0));
    }

    #[test]
    fn a_batch_has_room_whatever_its_samples_take() {
        let mut waiting = WaitingSamples::new(StreamPolicy::DropOldest, 0, 100, 3);
        for arrival in 0..3 {
            assert!(waiting.has_space());
            waiting.add(sample(arrival, 90));
            assert!(!waiting.overflows());
        }
        assert!(!waiting.has_space());
        waiting.add(sample(3, 90));
        assert!(waiting.overflows());
        assert_eq!(waiting.drop_one().unwrap().arrival, 0);
        assert!(!waiting.overflows());
    }

    #[test]
    fn those_that_are_left_at_random_are_a_uniform_choice_and_do_not_depend_on_the_order() {
        let rounds = 2000;
        let mut left = [0u32; 20];
        for seed in 0..rounds {
            let keep = |order: &[u64]| {
                let mut waiting = WaitingSamples::new(StreamPolicy::DropRandom, seed, 0, 5);
                for &arrival in order {
                    waiting.add(sample(arrival, 0));
                    while waiting.overflows() {
                        waiting.drop_one().unwrap();
                    }
                }
                arrivals(&waiting.take(9))
            };
            let forwards: Vec<u64> = (0..20).collect();
            let kept = keep(&forwards);
            assert_eq!(kept, keep(&forwards.iter().rev().copied().collect::<Vec<_>>()));
            kept.iter().for_each(|&arrival| left[arrival as usize] += 1);
        }
        // The statistic has 19 degrees of freedom. By chance it exceeds 50 only once in 7000 times.
        let mean = f64::from(rounds as u32) * 5.0 / 20.0;
        let chi: f64 = left.iter().map(|&count| (f64::from(count) - mean).powi(2) / (mean * 0.75)).sum();
        assert!(chi < 50.0, "{left:?}: {chi}");
    }
}
