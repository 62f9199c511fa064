//! The account of a stream: what became of every sample that was received.

use serde::{Deserialize, Serialize};

/// Counters of samples. At every instant what was received is in one of the places below it, and in no two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAccount {
    /// The samples that sources gave.
    pub received: u64,
    /// Those that were handed over in batches for the first time.
    pub delivered: u64,
    /// Those that wait in memory, or are on the way to a batch.
    pub queued: u64,
    /// Those that wait in the directory, because memory is full of those before them.
    pub spilled: u64,
    /// Those that the policy dropped.
    pub dropped: u64,
    /// Those that could not be read or decoded.
    pub failed: u64,
    /// Those that were withdrawn before they were used.
    pub withdrawn: u64,
    /// Those that had been received when a former run ended, and cannot be had again.
    pub lost: u64,
    /// The samples that were handed over once more, from the rehearsal buffer. They count each time.
    pub rehearsed: u64,
    /// The samples that sources gave once more while the first ones were still waiting; they were left out and count
    /// nowhere else.
    pub repeated: u64,
    /// The numbers that are missing in the sources' own numbering: samples that never arrived here.
    pub missing: u64,
}

impl StreamAccount {
    /// The samples that are somewhere, which must be as many as were received.
    pub fn accounted(&self) -> u64 {
        self.delivered + self.queued + self.spilled + self.dropped + self.failed + self.withdrawn + self.lost
    }

    /// Whether every sample that was received is somewhere.
    pub fn balances(&self) -> bool {
        self.received == self.accounted()
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

impl std::iter::Sum for StreamAccount {
    fn sum<I: Iterator<Item = Self>>(accounts: I) -> Self {
        accounts.fold(Self::default(), |sum, one| Self {
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
