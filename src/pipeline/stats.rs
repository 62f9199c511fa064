//! What every stage did and how long it waited, counted while an epoch runs.

use crate::decode::Backend;
use crate::io::ReadStats;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counters of one epoch, written by all threads.
pub(super) struct Clock {
    pub started: Instant,
    pub read_busy: AtomicU64,
    pub read_waiting: AtomicU64,
    pub read_blocked: AtomicU64,
    pub decode: AtomicU64,
    pub augment: AtomicU64,
    pub idle: AtomicU64,
    pub consumer: AtomicU64,
    pub bytes: AtomicU64,
    pub reads: AtomicU64,
    pub opens: AtomicU64,
    pub region: AtomicU64,
    pub zune: AtomicU64,
    pub png: AtomicU64,
}

/// Adds the time since `since` to `counter` and returns now.
pub(super) fn lap(counter: &AtomicU64, since: Instant) -> Instant {
    let now = Instant::now();
    counter.fetch_add((now - since).as_nanos() as u64, Ordering::Relaxed);
    now
}

impl Default for Clock {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            started: Instant::now(),
            read_busy: zero(),
            read_waiting: zero(),
            read_blocked: zero(),
            decode: zero(),
            augment: zero(),
            idle: zero(),
            consumer: zero(),
            bytes: zero(),
            reads: zero(),
            opens: zero(),
            region: zero(),
            zune: zero(),
            png: zero(),
        }
    }
}

impl Clock {
    pub(super) fn count(&self, backend: Backend) {
        let counter = match backend {
            Backend::Region => &self.region,
            Backend::Zune => &self.zune,
            Backend::Png => &self.png,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_reads(&self, more: ReadStats) {
        self.bytes.fetch_add(more.bytes, Ordering::Relaxed);
        self.reads.fetch_add(more.reads, Ordering::Relaxed);
        self.opens.fetch_add(more.opens, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> EpochStats {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 * 1e-9;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EpochStats {
            stages: StageTimes {
                read_busy: seconds(&self.read_busy),
                read_waiting: seconds(&self.read_waiting),
                read_blocked: seconds(&self.read_blocked),
                decode_busy: seconds(&self.decode),
                augment_busy: seconds(&self.augment),
                workers_waiting: seconds(&self.idle),
                consumer_waiting: seconds(&self.consumer),
            },
            reads: ReadStats {
                bytes: number(&self.bytes),
                reads: number(&self.reads),
                opens: number(&self.opens),
            },
            decoded_region: number(&self.region),
            decoded_zune: number(&self.zune),
            decoded_png: number(&self.png),
        }
    }
}

/// What happened in an epoch so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EpochStats {
    /// Where the time went.
    pub stages: StageTimes,
    /// What was read from the source.
    pub reads: ReadStats,
    /// Images decoded by the region decoder.
    pub decoded_region: u64,
    /// Images decoded by zune-jpeg.
    pub decoded_zune: u64,
    /// Images decoded by png.
    pub decoded_png: u64,
}

/// Seconds of each stage, summed over its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes {
    /// The reading thread working.
    pub read_busy: f64,
    /// The reading thread waiting for storage.
    pub read_waiting: f64,
    /// The reading thread waiting for a free slot or batch buffer: the stages behind it are slower.
    pub read_blocked: f64,
    /// Workers decoding.
    pub decode_busy: f64,
    /// Workers resizing, converting, storing.
    pub augment_busy: f64,
    /// Workers waiting for bytes.
    pub workers_waiting: f64,
    /// The consumer waiting for a batch.
    pub consumer_waiting: f64,
}
