//! The sample counters of a stream: what became of every sample that was received.

use base::counting::counters;
use serde::{Deserialize, Serialize};

counters! {
    /// Counters of samples. At every instant each received sample is counted in exactly one counter from `delivered` to
    /// `lost`.
    #[derive(Serialize, Deserialize)]
    StreamCounters:
    /// Samples that the sources gave.
    received,
    /// Samples that were handed over in batches for the first time.
    delivered,
    /// Samples that wait in memory or are on their way to a batch.
    queued,
    /// Samples that wait in the spill directory because memory is full.
    spilled,
    /// Samples that the overflow policy dropped.
    dropped,
    /// Samples that could not be read or decoded.
    failed,
    /// Samples that were withdrawn before they were used.
    withdrawn,
    /// Samples that a former run had received and not used, and that their source cannot give again.
    lost,
    /// Samples of the rehearsal buffer that were handed over again. Each use counts.
    rehearsed,
    /// Samples that a source gave again while the first copy was still waiting. The copies are skipped and counted
    /// nowhere else.
    repeated,
    /// Samples that never arrived, as gaps in the sources' own sequence numbers show.
    missing,
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
}
