//! What every stage did and how long it waited, counted while an epoch runs.

use crate::decode::nvjpeg::NvJpegBackend;
use crate::decode::{Backend, DecodedBy};
use crate::io::{ReadStats, Tier};
use crate::tier::TierStats;
use crate::trace::{Histogram, SharedHistogram};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    /// Images by decoder for the CPU.
    decoded: [AtomicU64; Backend::ALL.len()],
    pub concealed: AtomicU64,
    pub gpu: GpuClock,
    /// From asking to having, by tier.
    pub from_source: SharedHistogram,
    pub from_nvme: SharedHistogram,
    /// What the consumer waited for each batch.
    pub stalls: SharedHistogram,
}

/// Counters of the way to a GPU.
#[derive(Default)]
pub(super) struct GpuClock {
    /// Images by backend.
    decoded: [AtomicU64; NvJpegBackend::ALL.len()],
    decoded_again: AtomicU64,
    uploaded: AtomicU64,
    copy: AtomicU64,
    decode: AtomicU64,
    augment: AtomicU64,
    idle: AtomicU64,
    /// When the last work known of ended, in nanoseconds since the stage's beginning; 0: none yet.
    busy_until: AtomicU64,
}

/// When the GPU worked on a chunk of images, since the stage's beginning, and how long each part took.
pub(super) struct GpuTimes {
    pub begin: Duration,
    pub copy: Duration,
    pub decode: Duration,
    pub augment: Duration,
    pub done: Duration,
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
            decoded: Default::default(),
            concealed: zero(),
            gpu: GpuClock::default(),
            from_source: SharedHistogram::default(),
            from_nvme: SharedHistogram::default(),
            stalls: SharedHistogram::default(),
        }
    }
}

impl Clock {
    pub(super) fn count(&self, backend: Backend) {
        self.decoded[backend as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Of reads from `tier`.
    pub(super) fn latency(&self, tier: Tier) -> &SharedHistogram {
        match tier {
            Tier::Source => &self.from_source,
            Tier::Nvme => &self.from_nvme,
        }
    }

    pub(super) fn add_reads(&self, more: ReadStats) {
        self.bytes.fetch_add(more.bytes, Ordering::Relaxed);
        self.reads.fetch_add(more.reads, Ordering::Relaxed);
        self.opens.fetch_add(more.opens, Ordering::Relaxed);
    }

    pub(super) fn count_nvjpeg(&self, backend: NvJpegBackend, images: usize) {
        self.gpu.decoded[backend as usize].fetch_add(images as u64, Ordering::Relaxed);
    }

    pub(super) fn count_decoded_again(&self) {
        self.gpu.decoded_again.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_uploaded(&self, bytes: usize) {
        self.gpu.uploaded.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What the GPU did between two moments. Lanes report in nearly the order in which they were done; what one reports
    /// late counts as work beside another's.
    pub(super) fn add_gpu(&self, times: &GpuTimes) {
        let gpu = &self.gpu;
        let add = |counter: &AtomicU64, time: Duration| {
            counter.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        };
        add(&gpu.copy, times.copy);
        add(&gpu.decode, times.decode);
        add(&gpu.augment, times.augment);
        let former = gpu.busy_until.fetch_max(times.done.as_nanos() as u64, Ordering::Relaxed);
        if former > 0 {
            add(&gpu.idle, times.begin.saturating_sub(Duration::from_nanos(former)));
        }
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
            decoded: DecodedBy::counted(|backend| number(&self.decoded[backend as usize])),
            concealed: number(&self.concealed),
            gpu: GpuStats {
                decoded_hardware: number(&self.gpu.decoded[NvJpegBackend::Hardware as usize]),
                decoded_cuda_batched: number(&self.gpu.decoded[NvJpegBackend::CudaBatched as usize]),
                decoded_cuda: number(&self.gpu.decoded[NvJpegBackend::Cuda as usize]),
                decoded_again: number(&self.gpu.decoded_again),
                h2d_bytes: number(&self.gpu.uploaded),
                copy: seconds(&self.gpu.copy),
                decode: seconds(&self.gpu.decode),
                augment: seconds(&self.gpu.augment),
                idle: seconds(&self.gpu.idle),
            },
            from_source: self.from_source.snapshot(),
            from_nvme: self.from_nvme.snapshot(),
            stalls: self.stalls.snapshot(),
            tiers: TierStats::default(),
        }
    }
}

/// What happened in an epoch so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpochStats {
    /// Where the time went.
    pub stages: StageTimes,
    /// What was read from the source.
    pub reads: ReadStats,
    /// Images decoded by the CPU, by decoder.
    pub decoded: DecodedBy,
    /// Of those that the region decoder decoded, damaged images that gave what libjpeg makes of them.
    pub concealed: u64,
    /// What the GPU did; all zero without one.
    pub gpu: GpuStats,
    /// From asking the source for a sample to having it.
    pub from_source: Histogram,
    /// From asking the NVMe tier for a sample to having it.
    pub from_nvme: Histogram,
    /// What the consumer waited for each batch.
    pub stalls: Histogram,
    /// What came from which tier; all zero without a cache.
    pub tiers: TierStats,
}

impl EpochStats {
    /// Images decoded by the CPU, whoever did it there.
    pub fn decoded_cpu(&self) -> u64 {
        self.decoded.total()
    }
}

impl std::ops::AddAssign for EpochStats {
    fn add_assign(&mut self, more: Self) {
        self.stages += more.stages;
        self.reads.bytes += more.reads.bytes;
        self.reads.reads += more.reads.reads;
        self.reads.opens += more.reads.opens;
        self.decoded += more.decoded;
        self.concealed += more.concealed;
        self.gpu += more.gpu;
        self.from_source += &more.from_source;
        self.from_nvme += &more.from_nvme;
        self.stalls += &more.stalls;
        self.tiers += more.tiers;
    }
}

/// What a GPU did in an epoch so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuStats {
    /// Images decoded by its decoding engine.
    pub decoded_hardware: u64,
    /// Images decoded by CUDA kernels, in large batches.
    pub decoded_cuda_batched: u64,
    /// Images decoded by CUDA kernels one by one, most of them after the CPU decoded their Huffman codes.
    pub decoded_cuda: u64,
    /// Images that a decoder reported as decoded and did not write, or perhaps not, and that were decoded once more.
    pub decoded_again: u64,
    /// Bytes of files and planes that it was given.
    pub h2d_bytes: u64,
    /// Seconds of copies of planes and tables, summed over the lanes, which work side by side.
    pub copy: f64,
    /// Seconds of decoding, likewise.
    pub decode: f64,
    /// Seconds of augmenting, likewise.
    pub augment: f64,
    /// Seconds in which no lane had work queued, between the first work and the last.
    pub idle: f64,
}

impl std::ops::AddAssign for GpuStats {
    fn add_assign(&mut self, more: Self) {
        self.decoded_hardware += more.decoded_hardware;
        self.decoded_cuda_batched += more.decoded_cuda_batched;
        self.decoded_cuda += more.decoded_cuda;
        self.decoded_again += more.decoded_again;
        self.h2d_bytes += more.h2d_bytes;
        self.copy += more.copy;
        self.decode += more.decode;
        self.augment += more.augment;
        self.idle += more.idle;
    }
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

impl std::ops::AddAssign for StageTimes {
    fn add_assign(&mut self, more: Self) {
        self.read_busy += more.read_busy;
        self.read_waiting += more.read_waiting;
        self.read_blocked += more.read_blocked;
        self.decode_busy += more.decode_busy;
        self.augment_busy += more.augment_busy;
        self.workers_waiting += more.workers_waiting;
        self.consumer_waiting += more.consumer_waiting;
    }
}
