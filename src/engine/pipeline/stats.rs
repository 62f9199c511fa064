//! Counts the work and the waiting time of every stage while an epoch runs.

use crate::config::LoaderConfig;
use base::counting::count;
use base::tier_name::TierName;
use base::trace::{Histogram, SharedHistogram, TraceNumber};
use data::dataset::{DatasetIndex, UnpackStats};
use pixels::decode::nvjpeg::NvJpegBackend;
use pixels::decode::{Backend, ConvertedFormat, DecodeCounts, Decoded};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::io::{ReadCounters, ReadStats};
use store::tier::{CacheOptions, CacheStats};

/// The counters of an epoch. Times are in nanoseconds. Threads count without a lock, because a forked child could not
/// read numbers whose lock a thread of the parent held when the process forked.
#[derive(Default)]
pub(crate) struct EpochCounters {
    /// The counters of decompressed blocks when the epoch began. They are subtracted to get the epoch's own counts.
    pub unpacked: UnpackStats,
    /// The time from submitting a read to its completion, by tier; the source comes first.
    latencies: Vec<(TierName, SharedHistogram)>,
    pub stalls: SharedHistogram,
    pub read_busy: AtomicU64,
    pub read_waiting: AtomicU64,
    pub read_blocked: AtomicU64,
    pub decode: AtomicU64,
    pub augment: AtomicU64,
    pub idle: AtomicU64,
    pub consumer: AtomicU64,
    /// The time in which at least one read was in flight, even if the reading thread waited for memory.
    pub reading: AtomicU64,
    /// The time in which no read was in flight because too few samples of a stream had arrived.
    pub arrivals: AtomicU64,
    /// The number of reads in flight when the reading thread last counted them.
    pub in_flight: AtomicU64,
    pub delivered: AtomicU64,
    reads: ReadCounters,
    decoded: [AtomicU64; Backend::ALL.len()],
    rows_known: AtomicU64,
    pub concealed: AtomicU64,
    pub rebuilt: AtomicU64,
    gpu: GpuCounters,
}

#[derive(Default)]
struct GpuCounters {
    decoded: [AtomicU64; NvJpegBackend::ALL.len()],
    decoded_packed: AtomicU64,
    decoded_indexed: AtomicU64,
    decoded_again: AtomicU64,
    uploaded: AtomicU64,
    copy: AtomicU64,
    decode: AtomicU64,
    augment: AtomicU64,
    idle: AtomicU64,
    /// When the latest GPU work that a lane has reported ended, in nanoseconds since the stage was opened; 0 before the
    /// first report.
    busy_until: AtomicU64,
}

/// When the GPU worked on a chunk of a sub-batch, measured from the opening of the stage, and how long each step took.
pub(crate) struct GpuTimes {
    pub begin: Duration,
    pub copy: Duration,
    pub decode: Duration,
    pub augment: Duration,
    pub done: Duration,
}

impl EpochCounters {
    pub(crate) fn new(config: &LoaderConfig, index: &DatasetIndex) -> Self {
        let tiers =
            std::iter::once(TierName::SOURCE).chain(config.cache.iter().flat_map(CacheOptions::names));
        Self {
            unpacked: index.unpacked().stats(),
            latencies: tiers.map(|tier| (tier, SharedHistogram::default())).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn count(&self, decoded: &Decoded) {
        self.decoded[decoded.backend as usize].fetch_add(1, Ordering::Relaxed);
        self.rows_known.fetch_add(decoded.used_row_starts.into(), Ordering::Relaxed);
    }

    pub(crate) fn latency(&self, tier: TierName) -> &SharedHistogram {
        let found = self.latencies.iter().find(|(name, _)| *name == tier);
        &found.unwrap_or(&self.latencies[0]).1
    }

    pub(crate) fn add_reads(&self, more: ReadStats) {
        let ReadStats { bytes, skipped, reads, opens, requests, retries, hedges } = more;
        count(&self.reads.bytes, bytes);
        count(&self.reads.skipped, skipped);
        count(&self.reads.reads, reads);
        count(&self.reads.opens, opens);
        count(&self.reads.requests, requests);
        count(&self.reads.retries, retries);
        count(&self.reads.hedges, hedges);
    }

    pub(crate) fn count_nvjpeg(&self, backend: NvJpegBackend) {
        self.gpu.decoded[backend as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_own(&self, form: ConvertedFormat) {
        let counter = match form {
            ConvertedFormat::Packed => &self.gpu.decoded_packed,
            ConvertedFormat::Indexed => &self.gpu.decoded_indexed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_decoded_again(&self) {
        self.gpu.decoded_again.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_uploaded(&self, bytes: usize) {
        self.gpu.uploaded.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds the GPU's work on one chunk. Lanes report in nearly the order in which their work was done. The work of a
    /// late report counts as work that overlapped the work of another lane.
    pub(crate) fn add_gpu(&self, times: &GpuTimes) {
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

    pub(crate) fn snapshot(&self) -> EpochStats {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 * 1e-9;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EpochStats {
            stages: StageTimes {
                read_busy: seconds(&self.read_busy),
                read_waiting: seconds(&self.read_waiting),
                read_blocked: seconds(&self.read_blocked),
                reading: seconds(&self.reading),
                arrivals: seconds(&self.arrivals),
                decode_busy: seconds(&self.decode),
                augment_busy: seconds(&self.augment),
                workers_waiting: seconds(&self.idle),
                consumer_waiting: seconds(&self.consumer),
            },
            reads: self.reads.read(),
            decoded: DecodeCounts::counted(|backend| number(&self.decoded[backend as usize])),
            rows_known: number(&self.rows_known),
            concealed: number(&self.concealed),
            rebuilt: number(&self.rebuilt),
            gpu: GpuStats {
                decoded_hardware: number(&self.gpu.decoded[NvJpegBackend::Hardware as usize]),
                decoded_cuda_batched: number(&self.gpu.decoded[NvJpegBackend::CudaBatched as usize]),
                decoded_cuda: number(&self.gpu.decoded[NvJpegBackend::Cuda as usize]),
                decoded_cuda_packed: number(&self.gpu.decoded_packed),
                decoded_cuda_indexed: number(&self.gpu.decoded_indexed),
                decoded_again: number(&self.gpu.decoded_again),
                h2d_bytes: number(&self.gpu.uploaded),
                copy: seconds(&self.gpu.copy),
                decode: seconds(&self.gpu.decode),
                augment: seconds(&self.gpu.augment),
                idle: seconds(&self.gpu.idle),
            },
            latencies: self.latencies.iter().map(|(tier, times)| (*tier, times.snapshot())).collect(),
            stalls: self.stalls.snapshot(),
            cache: CacheStats::default(),
            unpacked: UnpackStats::default(),
        }
    }
}

/// Statistics of an epoch so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpochStats {
    /// How long each stage worked and waited.
    pub stages: StageTimes,
    /// Reads from the source.
    pub reads: ReadStats,
    /// The number of images that the CPU decoded, by decoder.
    pub decoded: DecodeCounts,
    /// The number of JPEGs whose decode began in the middle of the file, at the start of a row that an earlier decode
    /// had found.
    pub rows_known: u64,
    /// The number of damaged images that Foreload's region decoder, which decodes parts of JPEGs, decoded anyway, to
    /// the same pixel values as libjpeg.
    pub concealed: u64,
    /// The number of files that were rebuilt from packed images, because their bytes were needed.
    pub rebuilt: u64,
    /// The work of the GPU; all zero without a GPU.
    pub gpu: GpuStats,
    /// The time from requesting a sample to receiving it, by the tier that delivered it; the source comes first.
    pub latencies: Vec<(TierName, Histogram)>,
    /// How long the consumer waited for each batch.
    pub stalls: Histogram,
    /// The samples that each tier delivered and kept; all zero without a cache.
    pub cache: CacheStats,
    /// The compressed blocks that were decompressed, including those that were decompressed ahead of use.
    pub unpacked: UnpackStats,
}

impl EpochStats {
    /// Returns the number of images that the CPU decoded, with all its decoders.
    pub fn decoded_cpu(&self) -> u64 {
        self.decoded.total()
    }

    /// Returns the numbers of the GPU, and of the images that the CPU decoded for it, with their names.
    pub fn gpu_by_name(&self) -> [(&'static str, TraceNumber); 12] {
        let (gpu, count, seconds) = (&self.gpu, TraceNumber::Whole, TraceNumber::Real);
        [
            ("decoded_hardware", count(gpu.decoded_hardware)),
            ("decoded_cuda_batched", count(gpu.decoded_cuda_batched)),
            ("decoded_cuda", count(gpu.decoded_cuda)),
            ("decoded_cuda_packed", count(gpu.decoded_cuda_packed)),
            ("decoded_cuda_indexed", count(gpu.decoded_cuda_indexed)),
            ("decoded_cpu", count(self.decoded_cpu())),
            ("decoded_again", count(gpu.decoded_again)),
            ("h2d_bytes", count(gpu.h2d_bytes)),
            ("copy_seconds", seconds(gpu.copy)),
            ("decode_seconds", seconds(gpu.decode)),
            ("augment_seconds", seconds(gpu.augment)),
            ("idle_seconds", seconds(gpu.idle)),
        ]
    }

    /// Returns the latencies of samples that `tier` delivered.
    pub fn latency(&self, tier: TierName) -> Histogram {
        self.latencies
            .iter()
            .find(|(name, _)| *name == tier)
            .map(|(_, times)| times.clone())
            .unwrap_or_default()
    }
}

impl AddAssign for EpochStats {
    fn add_assign(&mut self, more: Self) {
        self.stages += more.stages;
        self.reads = self.reads + more.reads;
        self.decoded += more.decoded;
        self.rows_known += more.rows_known;
        self.concealed += more.concealed;
        self.rebuilt += more.rebuilt;
        self.gpu += more.gpu;
        for (tier, times) in more.latencies {
            match self.latencies.iter_mut().find(|(known, _)| *known == tier) {
                Some((_, sum)) => *sum += &times,
                None => self.latencies.push((tier, times)),
            }
        }
        self.stalls += &more.stalls;
        self.cache += more.cache;
        self.unpacked += more.unpacked;
    }
}

/// Implements `+=` for a type, field by field.
macro_rules! sums {
    ($sum:ty: $($field:ident),*) => {
        impl AddAssign for $sum {
            fn add_assign(&mut self, more: Self) {
                $(self.$field += more.$field;)*
            }
        }
    };
}

/// Statistics of a GPU in an epoch so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuStats {
    /// The number of images that the GPU's decoding engine decoded.
    pub decoded_hardware: u64,
    /// The number of images that CUDA kernels decoded in large batches.
    pub decoded_cuda_batched: u64,
    /// The number of images that CUDA kernels decoded one by one, most of them after the CPU decoded their Huffman
    /// codes.
    pub decoded_cuda: u64,
    /// The number of packed images that Foreload's own kernels decoded.
    pub decoded_cuda_packed: u64,
    /// The number of indexed images that Foreload's own kernels decoded.
    pub decoded_cuda_indexed: u64,
    /// The number of images that were decoded again. For some of them a decoder reported success, but the image was not
    /// written, or it was uncertain whether it was written. The others are packed or indexed images with damaged rows.
    pub decoded_again: u64,
    /// The number of bytes of files, planes and rows that the GPU received. Kernels read packed and indexed images from
    /// host memory while they decode them; those bytes are included.
    pub h2d_bytes: u64,
    /// Seconds of copying planes and tables, summed over the lanes, which work in parallel.
    pub copy: f64,
    /// Seconds of decoding, summed over the lanes.
    pub decode: f64,
    /// Seconds of augmenting, summed over the lanes.
    pub augment: f64,
    /// Seconds in which no lane had work queued, between the first work and the last.
    pub idle: f64,
}

sums! {
    GpuStats:
    decoded_hardware, decoded_cuda_batched, decoded_cuda, decoded_cuda_packed, decoded_cuda_indexed, decoded_again,
    h2d_bytes, copy, decode, augment, idle
}

/// Seconds of each stage, summed over its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTimes {
    /// Time in which the reading thread worked.
    pub read_busy: f64,
    /// Time in which the reading thread waited for storage.
    pub read_waiting: f64,
    /// Time in which the reading thread waited for a free slot or batch buffer, because later stages are slower.
    pub read_blocked: f64,
    /// Time in which any read was in flight, even if the reading thread did not wait for it.
    pub reading: f64,
    /// Time in which no read was in flight, because too few samples of a stream had arrived.
    pub arrivals: f64,
    /// Time in which workers decoded.
    pub decode_busy: f64,
    /// Time in which workers resized, converted and stored.
    pub augment_busy: f64,
    /// Time in which workers waited for bytes.
    pub workers_waiting: f64,
    /// Time in which the consumer waited for a batch.
    pub consumer_waiting: f64,
}

sums! {
    StageTimes:
    read_busy, read_waiting, read_blocked, reading, arrivals, decode_busy,
    augment_busy, workers_waiting, consumer_waiting
}
