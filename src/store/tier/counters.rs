//! Counters and gauges of a tier that keeps copies, for telemetry.

use base::counting::{count, counters};
use base::locks::lock;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

counters! {
    /// Counters since the tier was opened, and gauges with the present values.
    #[derive(serde::Serialize)]
    CopyStats,
    /// The atomic counters. Gauges that are kept elsewhere are 0.
    pub(in crate::tier) AtomicCopyStats:
    /// The number of samples written into segments that were published.
    admitted_samples,
    /// The bytes of the samples written into segments that were published.
    admitted_bytes,
    /// The number of samples dropped because all write buffers were in use: samples arrived faster than the drive
    /// writes.
    dropped_busy,
    /// The number of samples dropped because they did not fit into the quota.
    dropped_full,
    /// The number of samples dropped because their write failed, or because filling was paused after a failed write.
    dropped_off,
    /// The number of failed writes, links and listings of the directory.
    write_errors,
    /// The number of segments that were unusable: incomplete, changed or unreadable.
    damaged_segments,
    /// The number of copies that are unusable because their source file has changed since they were made.
    stale,
    /// The number of samples dropped because their source file changed while it was read.
    dropped_changed,
    /// The number of segments that this process had loaded and another process evicted.
    vanished_segments,
    /// The number of segments that this process evicted, to stay within the quota or because their group was evicted.
    evicted_segments,
    /// The bytes of the segments that this process evicted.
    evicted_bytes,
    /// The number of copies that were converted to another storage format (`form=`).
    converted_samples,
    /// The number of copies that stay as they are, because they cannot be converted or would become too large.
    unconvertible_samples,
    /// Gauge: the number of this dataset's samples that can be located.
    held_samples,
    /// Gauge: the bytes of this dataset's segment files that this process has loaded, including their footers.
    held_bytes,
    /// Gauge: the bytes on disk of all datasets' segments, including unfinished segments, at the latest count.
    used_bytes,
    /// Gauge: the quota in bytes.
    quota_bytes,
}

#[derive(Default)]
pub(in crate::tier) struct CopyCounters {
    numbers: AtomicCopyStats,
    last_error: Mutex<Option<String>>,
}

impl std::ops::Deref for CopyCounters {
    type Target = AtomicCopyStats;
    fn deref(&self) -> &AtomicCopyStats {
        &self.numbers
    }
}

impl CopyCounters {
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
        *lock(&self.last_error) = Some(error);
    }

    pub(in crate::tier) fn forget_error(&self) {
        *lock(&self.last_error) = None;
    }

    pub(in crate::tier) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }
}
