//! Statistics of the tiers: counters since the cache was opened, and gauges.

use super::copies::CacheTier;
use base::counting::atomic_counters;
use base::tier_name::TierName;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq, Eq)]
enum StatKind {
    /// A counter, which begins at 0 in each period.
    Counter,
    Gauge,
}

type StatFields<'a> = Vec<(&'static str, StatKind, &'a mut u64)>;

/// Defines a struct of numbers, with the one list of their names and kinds. With a second name, also defines a struct
/// of atomic counters with the same fields.
macro_rules! stats {
    ($(#[$about:meta])* $type:ident { $($(#[doc = $line:literal])+ $kind:ident $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $type { $($(#[doc = $line])+ pub $name: u64,)* }

        impl $type {
            fn fields(&mut self) -> StatFields<'_> {
                vec![$((stringify!($name), StatKind::$kind, &mut self.$name)),*]
            }

            /// Returns all numbers with their names.
            pub fn by_name(mut self) -> Vec<(&'static str, u64)> {
                self.fields().into_iter().map(|(name, _, number)| (name, *number)).collect()
            }
        }
    };
    ($(#[$about:meta])* $type:ident, $shared:ident { $($(#[doc = $line:literal])+ $kind:ident $name:ident,)* }) => {
        stats! { $(#[$about])* $type { $($(#[doc = $line])+ $kind $name,)* } }
        atomic_counters! { pub(super) $shared, $type: $($name,)* }
    };
}

stats! {
    /// Counters and gauges of a tier that keeps copies.
    TierStats {
        /// The number of samples that came from the tier.
        Counter hits,
        /// The bytes that were read of the samples that came from the tier.
        Counter bytes,
        /// The number of samples that the tier had but could not give, because their copies were damaged, evicted or
        /// unreadable. They were read from the source.
        Counter fallbacks,
        /// The number of copies that were not used because their file has changed since they were made.
        Counter stale,
        /// The number of copies that differ from the source's bytes although nothing shows that the file changed (with
        /// `verify="checksum"`).
        Counter mismatched,
        /// The number of samples written to the tier.
        Counter admitted_samples,
        /// The bytes of the samples written to the tier.
        Counter admitted_bytes,
        /// The number of samples not kept because the writer could not keep up.
        Counter dropped_busy,
        /// The number of samples not kept because the tier was full; a slower tier may have taken them.
        Counter dropped_full,
        /// The number of samples not kept because a write had failed.
        Counter dropped_off,
        /// The number of samples not kept because their file changed while it was read.
        Counter dropped_changed,
        /// The number of failed writes. Each loses a segment of copies, but no sample of the dataset.
        Counter write_errors,
        /// The number of segments or samples found damaged.
        Counter damaged,
        /// The bytes evicted.
        Counter evicted_bytes,
        /// The number of copies converted to another storage format (`form=`) since the tier was opened. It is a gauge
        /// because many conversions happen between epochs, outside of any period.
        Gauge converted_samples,
        /// The number of copies since the tier was opened that stay as they are, because they cannot be converted, or
        /// take too much space.
        Gauge unconvertible_samples,
        /// The number of this dataset's samples in the tier.
        Gauge held_samples,
        /// The bytes that these samples take.
        Gauge held_bytes,
        /// The bytes that the tier may hold in total.
        Gauge quota,
    }
}

stats! {
    /// Counters and gauges of reads from the source, on demand and ahead.
    SourceStats, SourceCounters {
        /// The number of samples that came from the source because they were needed.
        Counter source_reads,
        /// The bytes of these samples, and the bytes read to measure the source.
        Counter source_bytes,
        /// The number of queries for the version of a file.
        Counter looks,
        /// The bytes read from the source ahead of their use.
        Counter staged_bytes,
        /// The number of requests to servers for staging, and for measuring the source.
        Counter staged_requests,
        /// The number of samples that were kept from staging reads.
        Counter staged_samples,
        /// The number of shards (or batches, where each sample is a file) that have been staged in this epoch.
        Gauge staged_units,
        /// The number of shards or batches that must be staged in this epoch.
        Gauge units,
    }
}

/// The statistics of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Counters and gauges of reads from the source.
    pub source: SourceStats,
    /// Counters and gauges of each tier that keeps copies, from the fastest to the slowest.
    pub tiers: Vec<(TierName, TierStats)>,
}

/// Writes the numbers of the source, and under `tiers` the numbers of each tier by its name.
impl Serialize for CacheStats {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        struct ByTier<'a>(&'a [(TierName, TierStats)]);
        impl Serialize for ByTier<'_> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(self.0.iter().map(|(name, tier)| (name, tier)))
            }
        }
        let mut map = to.serialize_map(None)?;
        for (name, number) in self.source.by_name() {
            map.serialize_entry(name, &number)?;
        }
        map.serialize_entry("tiers", &ByTier(&self.tiers))?;
        map.end()
    }
}

impl CacheStats {
    /// Returns the numbers of the tier `name`; zeros if there is no such tier.
    pub fn tier(&self, name: TierName) -> TierStats {
        self.tiers.iter().find(|(known, _)| *known == name).map(|(_, stats)| *stats).unwrap_or_default()
    }

    /// Returns the sum over all tiers that keep copies.
    pub fn all(&self) -> TierStats {
        let mut all = TierStats::default();
        for (_, mut tier) in self.tiers.iter().copied() {
            all.fields().into_iter().zip(tier.fields()).for_each(|((_, _, sum), (_, _, more))| *sum += *more);
        }
        all
    }

    /// Returns the used share of the tiers' capacity: 0 to 1.
    pub fn fill(&self) -> f64 {
        let all = self.all();
        all.held_bytes as f64 / all.quota.max(1) as f64
    }

    /// Returns the counts since `before`. Gauges keep their current values.
    pub fn since(&self, before: &Self) -> Self {
        let mut now = self.clone();
        now.combine(before, |now, then, kind| match kind {
            StatKind::Counter => *now -= then,
            StatKind::Gauge => {}
        });
        now
    }

    /// Combines each number with the number of the same name and tier in `other`, or with 0 if there is none.
    fn combine(&mut self, other: &Self, with: impl Fn(&mut u64, u64, StatKind)) {
        let mut source = other.source;
        let each = |ours: StatFields<'_>, theirs: StatFields<'_>| {
            ours.into_iter().zip(theirs).for_each(|((_, kind, our), (_, _, their))| with(our, *their, kind));
        };
        each(self.source.fields(), source.fields());
        for (name, tier) in &mut self.tiers {
            let mut theirs = other.tier(*name);
            each(tier.fields(), theirs.fields());
        }
    }
}

impl std::ops::AddAssign for CacheStats {
    /// Adds the counters; gauges take the values of `more`.
    fn add_assign(&mut self, more: Self) {
        for (name, _) in &more.tiers {
            if self.tiers.iter().all(|(known, _)| known != name) {
                self.tiers.push((*name, TierStats::default()));
            }
        }
        self.combine(&more, |sum, more, kind| {
            *sum = if kind == StatKind::Counter { *sum + more } else { more }
        });
    }
}

/// Counters that the cache keeps for a tier. The tier itself keeps all other counters.
#[derive(Default)]
pub(super) struct UseCounters {
    pub hits: AtomicU64,
    pub bytes: AtomicU64,
    pub fallbacks: AtomicU64,
    pub mismatched: AtomicU64,
}

impl UseCounters {
    pub(super) fn with(&self, tier: &dyn CacheTier) -> TierStats {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        let copies = tier.stats();
        TierStats {
            hits: number(&self.hits),
            bytes: number(&self.bytes),
            fallbacks: number(&self.fallbacks),
            stale: copies.stale,
            mismatched: number(&self.mismatched),
            admitted_samples: copies.admitted_samples,
            admitted_bytes: copies.admitted_bytes,
            dropped_busy: copies.dropped_busy,
            dropped_full: copies.dropped_full,
            dropped_off: copies.dropped_off,
            dropped_changed: copies.dropped_changed,
            write_errors: copies.write_errors,
            damaged: copies.damaged_segments,
            evicted_bytes: copies.evicted_bytes,
            converted_samples: copies.converted_samples,
            unconvertible_samples: copies.unconvertible_samples,
            held_samples: copies.held_samples,
            held_bytes: copies.held_bytes,
            quota: tier.parts().capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_and_gauges_are_the_last() {
        let stats = |hits, evicted_bytes, held_samples, converted_samples, source_reads| CacheStats {
            source: SourceStats { source_reads, ..SourceStats::default() },
            tiers: vec![(
                TierName::NVME,
                TierStats { hits, evicted_bytes, held_samples, converted_samples, ..TierStats::default() },
            )],
        };
        let first = stats(3, 5, 7, 4, 1);
        let mut both = CacheStats::default();
        both += first.clone();
        both += stats(4, 0, 3, 9, 2);
        assert_eq!(both, stats(7, 5, 3, 9, 3));
        assert_eq!(both.since(&first), stats(4, 0, 3, 9, 2));
        assert_eq!(both.since(&CacheStats::default()), both);
        let json = serde_json::to_value(&both).expect("numbers");
        assert_eq!((&json["tiers"]["nvme"]["hits"], &json["source_reads"]), (&7.into(), &3.into()));
    }
}
