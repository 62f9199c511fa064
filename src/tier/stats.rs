//! What the tiers did: counters since the cache was opened, and gauges.

/// Which tier gave how much, what was kept and what was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TierStats {
    /// Samples that came from the fast tier.
    pub nvme_hits: u64,
    /// Their bytes.
    pub nvme_bytes: u64,
    /// Samples that came from the source because somebody needed them.
    pub source_reads: u64,
    /// Their bytes, and those read to measure the source.
    pub source_bytes: u64,
    /// Samples that the fast tier had and could not give: damaged, evicted meanwhile, not readable. They came from the
    /// source.
    pub fallbacks: u64,
    /// Bytes read from the source ahead of their use.
    pub staged_bytes: u64,
    /// Samples kept of these.
    pub staged_samples: u64,
    /// Shards (of loose files: batches) staged, and to be staged in this epoch.
    pub staged_units: u64,
    /// Of how many.
    pub units: u64,
    /// Samples written to the fast tier.
    pub admitted_samples: u64,
    /// Their bytes.
    pub admitted_bytes: u64,
    /// Samples not kept because writing was behind.
    pub dropped_busy: u64,
    /// Samples not kept because the quota was reached.
    pub dropped_full: u64,
    /// Samples not kept because a write had failed.
    pub dropped_off: u64,
    /// Failed writes; each loses a segment, and none a sample.
    pub write_errors: u64,
    /// Segments or samples found damaged.
    pub damaged: u64,
    /// Bytes evicted.
    pub evicted_bytes: u64,
    /// Samples of this dataset in the fast tier.
    pub held_samples: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Bytes of all the fast tier may hold.
    pub quota: u64,
}

impl TierStats {
    /// All numbers by their names.
    pub fn by_name(&self) -> [(&'static str, u64); 20] {
        [
            ("nvme_hits", self.nvme_hits),
            ("nvme_bytes", self.nvme_bytes),
            ("source_reads", self.source_reads),
            ("source_bytes", self.source_bytes),
            ("fallbacks", self.fallbacks),
            ("staged_bytes", self.staged_bytes),
            ("staged_samples", self.staged_samples),
            ("staged_units", self.staged_units),
            ("units", self.units),
            ("admitted_samples", self.admitted_samples),
            ("admitted_bytes", self.admitted_bytes),
            ("dropped_busy", self.dropped_busy),
            ("dropped_full", self.dropped_full),
            ("dropped_off", self.dropped_off),
            ("write_errors", self.write_errors),
            ("damaged", self.damaged),
            ("evicted_bytes", self.evicted_bytes),
            ("held_samples", self.held_samples),
            ("held_bytes", self.held_bytes),
            ("quota", self.quota),
        ]
    }

    /// How full the fast tier is, by its quota: 0 to 1.
    pub fn fill(&self) -> f64 {
        self.held_bytes as f64 / self.quota.max(1) as f64
    }

    /// What happened since `before`; gauges stay as they are.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            nvme_hits: self.nvme_hits - before.nvme_hits,
            nvme_bytes: self.nvme_bytes - before.nvme_bytes,
            source_reads: self.source_reads - before.source_reads,
            source_bytes: self.source_bytes - before.source_bytes,
            fallbacks: self.fallbacks - before.fallbacks,
            staged_bytes: self.staged_bytes - before.staged_bytes,
            staged_samples: self.staged_samples - before.staged_samples,
            admitted_samples: self.admitted_samples - before.admitted_samples,
            admitted_bytes: self.admitted_bytes - before.admitted_bytes,
            dropped_busy: self.dropped_busy - before.dropped_busy,
            dropped_full: self.dropped_full - before.dropped_full,
            dropped_off: self.dropped_off - before.dropped_off,
            write_errors: self.write_errors - before.write_errors,
            damaged: self.damaged - before.damaged,
            evicted_bytes: self.evicted_bytes - before.evicted_bytes,
            ..*self
        }
    }
}

impl std::ops::AddAssign for TierStats {
    /// Adds what happened; gauges are the latter's.
    fn add_assign(&mut self, more: Self) {
        *self = Self {
            nvme_hits: self.nvme_hits + more.nvme_hits,
            nvme_bytes: self.nvme_bytes + more.nvme_bytes,
            source_reads: self.source_reads + more.source_reads,
            source_bytes: self.source_bytes + more.source_bytes,
            fallbacks: self.fallbacks + more.fallbacks,
            staged_bytes: self.staged_bytes + more.staged_bytes,
            staged_samples: self.staged_samples + more.staged_samples,
            admitted_samples: self.admitted_samples + more.admitted_samples,
            admitted_bytes: self.admitted_bytes + more.admitted_bytes,
            dropped_busy: self.dropped_busy + more.dropped_busy,
            dropped_full: self.dropped_full + more.dropped_full,
            dropped_off: self.dropped_off + more.dropped_off,
            write_errors: self.write_errors + more.write_errors,
            damaged: self.damaged + more.damaged,
            evicted_bytes: self.evicted_bytes + more.evicted_bytes,
            ..more
        };
    }
}
