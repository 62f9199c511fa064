//! Counters and gauges of a tier that keeps copies, for telemetry.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the tier was opened, and gauges with the present values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CopyStats {
    /// The number of samples written into segments that were published.
    pub admitted_samples: u64,
    /// The bytes of the samples written into segments that were published.
    pub admitted_bytes: u64,
    /// The number of samples dropped because all write buffers were in use: samples arrived faster than the drive
    /// writes.
    pub dropped_busy: u64,
    /// The number of samples dropped because they did not fit into the quota.
    pub dropped_full: u64,
    /// The number of samples dropped because their write failed, or because filling was paused after a failed write.
    pub dropped_off: u64,
    /// The number of failed writes, links and listings of the directory.
    pub write_errors: u64,
    /// The number of segments that were unusable: incomplete, changed or unreadable.
    pub damaged_segments: u64,
    /// The number of copies that are unusable because their source file has changed since they were made.
    pub stale: u64,
    /// The number of samples dropped because their source file changed while it was read.
    pub dropped_changed: u64,
    /// The number of segments that this process had loaded and another process evicted.
    pub vanished_segments: u64,
    /// The number of segments that this process evicted, to stay within the quota or because their group was evicted.
    pub evicted_segments: u64,
    /// The bytes of the segments that this process evicted.
    pub evicted_bytes: u64,
    /// The number of copies that were converted to another storage format (`form=`).
    pub converted_samples: u64,
    /// The number of copies that stay as they are, because they cannot be converted or would become too large.
    pub unconvertible_samples: u64,
    /// Gauge: the number of this dataset's samples that can be located.
    pub held_samples: u64,
    /// Gauge: the bytes of this dataset's segment files that this process has loaded, including their footers.
    pub held_bytes: u64,
    /// Gauge: the bytes on disk of all datasets' segments, including unfinished segments, at the latest count.
    pub used_bytes: u64,
    /// Gauge: the quota in bytes.
    pub quota_bytes: u64,
}

#[derive(Default)]
pub(in crate::tier) struct CopyCounters {
    pub admitted_samples: AtomicU64,
    pub admitted_bytes: AtomicU64,
    pub dropped_busy: AtomicU64,
    pub dropped_full: AtomicU64,
    pub dropped_off: AtomicU64,
    pub write_errors: AtomicU64,
    pub damaged_segments: AtomicU64,
    pub stale: AtomicU64,
    pub dropped_changed: AtomicU64,
    pub vanished_segments: AtomicU64,
    pub evicted_segments: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub converted_samples: AtomicU64,
    pub unconvertible_samples: AtomicU64,
    pub used_bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
}

pub(in crate::tier) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

impl CopyCounters {
    /// Returns the counters. Gauges that are kept elsewhere are 0.
    pub(in crate::tier) fn stats(&self) -> CopyStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        CopyStats {
            admitted_samples: read(&self.admitted_samples),
            admitted_bytes: read(&self.admitted_bytes),
            dropped_busy: read(&self.dropped_busy),
            dropped_full: read(&self.dropped_full),
            dropped_off: read(&self.dropped_off),
            write_errors: read(&self.write_errors),
            damaged_segments: read(&self.damaged_segments),
            stale: read(&self.stale),
            dropped_changed: read(&self.dropped_changed),
            vanished_segments: read(&self.vanished_segments),
            evicted_segments: read(&self.evicted_segments),
            evicted_bytes: read(&self.evicted_bytes),
            converted_samples: read(&self.converted_samples),
            unconvertible_samples: read(&self.unconvertible_samples),
            used_bytes: read(&self.used_bytes),
            ..CopyStats::default()
        }
    }

    /// Subtracts `bytes` from the gauge of used bytes, until they are counted again.
    pub(in crate::tier) fn freed(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used_bytes.fetch_update(Relaxed, Relaxed, less);
    }

    pub(in crate::tier) fn failed(&self, error: String) {
        count(&self.write_errors, 1);
        self.note(error);
    }

    /// Keeps the message of a failure that is counted elsewhere.
    pub(in crate::tier) fn note(&self, error: String) {
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
    }

    pub(in crate::tier) fn forget_error(&self) {
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    pub(in crate::tier) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
