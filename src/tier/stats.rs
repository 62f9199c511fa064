//! What the tiers did: counters since the cache was opened, and gauges.

use super::store::StoreStats;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where samples came from, what was kept and what was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TierStats {
    /// The number of samples that came from the fast tier.
    pub nvme_hits: u64,
    /// The bytes of these samples.
    pub nvme_bytes: u64,
    /// The number of samples that came from the source because they were needed.
    pub source_reads: u64,
    /// The bytes of these samples, and the bytes read to measure the source.
    pub source_bytes: u64,
    /// The number of samples that the fast tier had and could not give, because they were damaged, evicted or
    /// unreadable. They came from the source.
    pub fallbacks: u64,
    /// The number of times that the file system was asked for a file's version.
    pub looks: u64,
    /// The number of copies that were not used because their file has changed since.
    pub stale: u64,
    /// The number of copies that differ from the source's bytes though nothing shows that it changed (with
    /// `verify="checksum"`).
    pub mismatched: u64,
    /// The bytes read from the source ahead of their use.
    pub staged_bytes: u64,
    /// The number of samples that were kept of these.
    pub staged_samples: u64,
    /// The number of shards (or batches, where each sample is a file) that have been staged in this epoch.
    pub staged_units: u64,
    /// The number of shards or batches that are to be staged in this epoch.
    pub units: u64,
    /// The number of samples written to the fast tier.
    pub admitted_samples: u64,
    /// The bytes of these samples.
    pub admitted_bytes: u64,
    /// The number of samples not kept because writing was behind.
    pub dropped_busy: u64,
    /// The number of samples not kept because the quota was reached.
    pub dropped_full: u64,
    /// The number of samples not kept because a write had failed.
    pub dropped_off: u64,
    /// The number of samples not kept because their file changed while it was read.
    pub dropped_changed: u64,
    /// The number of failed writes; each loses a segment, and none a sample.
    pub write_errors: u64,
    /// The number of segments or samples found damaged.
    pub damaged: u64,
    /// The bytes evicted.
    pub evicted_bytes: u64,
    /// The number of this dataset's samples in the fast tier.
    pub held_samples: u64,
    /// The bytes of this dataset's segments.
    pub held_bytes: u64,
    /// The bytes that the fast tier may hold in all.
    pub quota: u64,
}

/// The counters of the cache itself, on several threads; the store counts all else.
#[derive(Default)]
pub(super) struct TierCounters {
    pub nvme_hits: AtomicU64,
    pub nvme_bytes: AtomicU64,
    pub source_reads: AtomicU64,
    pub source_bytes: AtomicU64,
    pub looks: AtomicU64,
    pub mismatched: AtomicU64,
    pub fallbacks: AtomicU64,
    pub staged_bytes: AtomicU64,
    pub staged_samples: AtomicU64,
    pub staged_units: AtomicU64,
    pub units: AtomicU64,
}

impl TierCounters {
    /// These counters and those of the store, which may hold `quota` bytes.
    pub(super) fn with(&self, store: &StoreStats, quota: u64) -> TierStats {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        TierStats {
            nvme_hits: number(&self.nvme_hits),
            nvme_bytes: number(&self.nvme_bytes),
            source_reads: number(&self.source_reads),
            source_bytes: number(&self.source_bytes),
            fallbacks: number(&self.fallbacks),
            looks: number(&self.looks),
            stale: store.stale,
            mismatched: number(&self.mismatched),
            staged_bytes: number(&self.staged_bytes),
            staged_samples: number(&self.staged_samples),
            staged_units: number(&self.staged_units),
            units: number(&self.units),
            admitted_samples: store.admitted_samples,
            admitted_bytes: store.admitted_bytes,
            dropped_busy: store.dropped_busy,
            dropped_full: store.dropped_full,
            dropped_off: store.dropped_off,
            dropped_changed: store.dropped_changed,
            write_errors: store.write_errors,
            damaged: store.damaged_segments,
            evicted_bytes: store.evicted_bytes,
            held_samples: store.held_samples,
            held_bytes: store.held_bytes,
            quota,
        }
    }
}

/// How a number behaves over time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatKind {
    /// A counter, which begins at 0 in each period.
    Counter,
    /// A gauge, which says how things stand.
    Gauge,
}

impl TierStats {
    /// All numbers with their names and kinds: the one list of them.
    fn fields(&mut self) -> [(&'static str, StatKind, &mut u64); 24] {
        use StatKind::{Counter, Gauge};
        [
            ("nvme_hits", Counter, &mut self.nvme_hits),
            ("nvme_bytes", Counter, &mut self.nvme_bytes),
            ("source_reads", Counter, &mut self.source_reads),
            ("source_bytes", Counter, &mut self.source_bytes),
            ("fallbacks", Counter, &mut self.fallbacks),
            ("looks", Counter, &mut self.looks),
            ("stale", Counter, &mut self.stale),
            ("mismatched", Counter, &mut self.mismatched),
            ("staged_bytes", Counter, &mut self.staged_bytes),
            ("staged_samples", Counter, &mut self.staged_samples),
            ("staged_units", Gauge, &mut self.staged_units),
            ("units", Gauge, &mut self.units),
            ("admitted_samples", Counter, &mut self.admitted_samples),
            ("admitted_bytes", Counter, &mut self.admitted_bytes),
            ("dropped_busy", Counter, &mut self.dropped_busy),
            ("dropped_full", Counter, &mut self.dropped_full),
            ("dropped_off", Counter, &mut self.dropped_off),
            ("dropped_changed", Counter, &mut self.dropped_changed),
            ("write_errors", Counter, &mut self.write_errors),
            ("damaged", Counter, &mut self.damaged),
            ("evicted_bytes", Counter, &mut self.evicted_bytes),
            ("held_samples", Gauge, &mut self.held_samples),
            ("held_bytes", Gauge, &mut self.held_bytes),
            ("quota", Gauge, &mut self.quota),
        ]
    }

    /// All numbers with their names.
    pub fn by_name(mut self) -> [(&'static str, u64); 24] {
        self.fields().map(|(name, _, number)| (name, *number))
    }

    /// The share of the quota that is used: 0 to 1.
    pub fn fill(&self) -> f64 {
        self.held_bytes as f64 / self.quota.max(1) as f64
    }

    /// The counters since `before`; gauges stay as they are.
    pub fn since(&self, before: &Self) -> Self {
        let (mut now, mut before) = (*self, *before);
        for ((_, kind, number), (_, _, then)) in now.fields().into_iter().zip(before.fields()) {
            if kind == StatKind::Counter {
                *number -= *then;
            }
        }
        now
    }
}

impl std::ops::AddAssign for TierStats {
    /// Adds the counters; gauges are those of `more`.
    fn add_assign(&mut self, mut more: Self) {
        for ((_, kind, number), (_, _, added)) in self.fields().into_iter().zip(more.fields()) {
            *number = if kind == StatKind::Counter { *number + *added } else { *added };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_and_gauges_are_the_last() {
        let first = TierStats { nvme_hits: 3, evicted_bytes: 5, held_samples: 7, ..TierStats::default() };
        let second = TierStats { nvme_hits: 4, held_samples: 3, quota: 9, ..TierStats::default() };
        let mut both = first;
        both += second;
        let expected =
            TierStats { nvme_hits: 7, evicted_bytes: 5, held_samples: 3, quota: 9, ..TierStats::default() };
        assert_eq!(both, expected);
        assert_eq!(both.since(&first), TierStats { nvme_hits: 4, evicted_bytes: 0, ..both });
        assert!(both.by_name().contains(&("nvme_hits", 7)));
    }
}
