//! What the store did and what it holds, for telemetry.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the store was opened, and gauges of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreStats {
    /// Samples that were offered and written into segments that are published.
    pub admitted_samples: u64,
    /// Their bytes.
    pub admitted_bytes: u64,
    /// Samples offered while every write buffer was waiting to be written: the drive is slower than what arrives.
    pub dropped_busy: u64,
    /// Samples that did not fit into the quota.
    pub dropped_full: u64,
    /// Samples lost to a failed write, or offered while filling paused after one.
    pub dropped_off: u64,
    /// Writes, links and looks at the directory that failed. [`super::Store::last_error`] says how the last did.
    pub write_errors: u64,
    /// Segments found unusable: torn, changed, unreadable.
    pub damaged_segments: u64,
    /// Samples of files that have changed since: their copies are not used.
    pub stale: u64,
    /// Samples not kept because their file changed while it was read.
    pub dropped_changed: u64,
    /// Segments that another process evicted while this one knew them.
    pub vanished_segments: u64,
    /// Segments this process evicted to come below the quota or because their group had died.
    pub evicted_segments: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Gauge: samples of this dataset that can be located.
    pub held_samples: u64,
    /// Gauge: bytes of this dataset's segment files that this process knows, tables included.
    pub held_bytes: u64,
    /// Gauge: bytes on disk of all datasets' segments and of those being filled, as last looked at.
    pub used_bytes: u64,
    /// Gauge: the quota in bytes.
    pub quota_bytes: u64,
}

/// The counters as they are counted, by several threads.
#[derive(Default)]
pub(super) struct StoreCounters {
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
    pub used_bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

impl StoreCounters {
    /// The counters; gauges that others know are left at 0.
    pub(crate) fn stats(&self) -> StoreStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        StoreStats {
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
            used_bytes: read(&self.used_bytes),
            ..StoreStats::default()
        }
    }

    /// Lowers the gauge of what is used, until it is looked at again.
    pub(crate) fn freed(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used_bytes.fetch_update(Relaxed, Relaxed, less);
    }

    /// Counts what failed and keeps what it said.
    pub(crate) fn failed(&self, error: String) {
        count(&self.write_errors, 1);
        self.note(error);
    }

    /// Keeps what there is to say of something that is counted elsewhere.
    pub(crate) fn note(&self, error: String) {
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
    }

    pub(crate) fn forget_error(&self) {
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
