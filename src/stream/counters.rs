//! The sample counters of a stream: what became of every sample that was received.

use serde::{Deserialize, Serialize};

/// Counters of samples. At every instant each received sample is counted in exactly one counter from `delivered` to
/// `lost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounters {
    /// Samples that the sources gave.
    pub received: u64,
    /// Samples that were handed over in batches for the first time.
    pub delivered: u64,
    /// Samples that wait in memory or are on their way to a batch.
    pub queued: u64,
    /// Samples that wait in the spill directory because memory is full.
    pub spilled: u64,
    /// Samples that the overflow policy dropped.
    pub dropped: u64,
    /// Samples that could not be read or decoded.
    pub failed: u64,
    /// Samples that were withdrawn before they were used.
    pub withdrawn: u64,
    /// Samples that a former run had received and not used, and that their source cannot give again.
    pub lost: u64,
    /// Samples of the rehearsal buffer that were handed over again. Each use counts.
    pub rehearsed: u64,
    /// Samples that a source gave again while the first copy was still waiting. The copies are skipped and counted
    /// nowhere else.
    pub repeated: u64,
    /// Samples that never arrived, as gaps in the sources' own sequence numbers show.
    pub missing: u64,
}

impl StreamCounters {
    /// The sum of the counters `delivered` to `lost`, which must equal `received`.
    pub fn sum_of_outcomes(&self) -> u64 {
        self.delivered + self.queued + self.spilled + self.dropped + self.failed + self.withdrawn + self.lost
    }

    /// Whether the counters add up to the number of received samples.
    pub fn balances(&self) -> bool {
        self.received == self.sum_of_outcomes()
    }

    /// The counters with their names, in order.
    pub fn by_name(&self) -> [(&'static str, u64); 11] {
        [
            ("received", self.received),
            ("delivered", self.delivered),
            ("queued", self.queued),
            ("spilled", self.spilled),
            ("dropped", self.dropped),
            ("failed", self.failed),
            ("withdrawn", self.withdrawn),
            ("lost", self.lost),
            ("rehearsed", self.rehearsed),
            ("repeated", self.repeated),
            ("missing", self.missing),
        ]
    }
}

impl std::iter::Sum for StreamCounters {
    fn sum<I: Iterator<Item = Self>>(all_counters: I) -> Self {
        all_counters.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            delivered: sum.delivered + one.delivered,
            queued: sum.queued + one.queued,
            spilled: sum.spilled + one.spilled,
            dropped: sum.dropped + one.dropped,
            failed: sum.failed + one.failed,
            withdrawn: sum.withdrawn + one.withdrawn,
            lost: sum.lost + one.lost,
            rehearsed: sum.rehearsed + one.rehearsed,
            repeated: sum.repeated + one.repeated,
            missing: sum.missing + one.missing,
        })
    }
}
