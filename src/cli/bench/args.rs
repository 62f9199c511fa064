//! What `foreload bench` takes.

use crate::augment::{DType, Fidelity, MemoryFormat};
use crate::cli::choice;
use crate::cli::emulate;
use crate::config::{CpuDecode, LoaderOptions, OnError, parse_bytes, parse_duration};
use crate::dataset::Changed;
use crate::decode::Damaged;
use crate::io::{Direct, IoChoice, PfsRates};
use crate::schedule::LastBatch;
use crate::tier::{FillChoice, Verify};
use std::path::PathBuf;
use std::time::Duration;

/// What `foreload bench` takes.
#[derive(clap::Args, Debug)]
pub(in crate::cli) struct Args {
    /// The dataset: a directory of class directories or of tar shards
    pub(super) dir: PathBuf,
    /// Samples per batch
    #[arg(long, default_value_t = 256)]
    pub(super) batch_size: u32,
    /// Epochs to run, at least 1; the n-th has number n, from 0
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) epochs: u64,
    /// Stop each epoch after this many batches, at least 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) steps: Option<u64>,
    /// This process' rank among those of the job; it gets its share of each global batch
    #[arg(long, default_value_t = 0)]
    pub(super) rank: u32,
    /// Processes of the job
    #[arg(long, default_value_t = 1)]
    pub(super) world_size: u32,
    /// Keep the consumer busy for so long after each batch, e.g. 20ms: it stands for the training step
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_duration("consume", text))]
    pub(super) consume: Duration,
    /// Make the dataset's storage as slow as a parallel file system, e.g. open=2ms,read=1ms,bandwidth=200MB; also
    /// opens=6000 (a second) and concurrency=64 (requests at once)
    #[arg(long, value_name = "SPEC", value_parser = emulate::rates)]
    pub(super) emulate_pfs: Option<PfsRates>,
    /// Decoding threads [default: the processors this process may use, shared with the node's other ranks]
    #[arg(long)]
    pub(super) threads: Option<u32>,
    /// Where the batch ends: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub(super) device: String,
    /// What the CPU decodes when that is a GPU: fallback, auto or never
    #[arg(long, default_value = "fallback", value_parser = choice::<CpuDecode>("cpu-decode"))]
    pub(super) cpu_decode: CpuDecode,
    /// Cap of the memory on the GPU, e.g. 8GB [default: a quarter of it]
    #[arg(long, value_parser = |text: &str| parse_bytes("device-memory", text))]
    pub(super) device_memory: Option<u64>,
    /// Side of the square output, pixels
    #[arg(long, default_value_t = 224)]
    pub(super) image_size: u32,
    /// Resize + CenterCrop in order, instead of random crops and flips in shuffled order
    #[arg(long)]
    pub(super) eval: bool,
    /// float32, float16, bfloat16 or uint8
    #[arg(long, default_value = "float32", value_parser = choice::<DType>("dtype"))]
    pub(super) dtype: DType,
    /// nchw or nhwc
    #[arg(long, default_value = "nchw", value_parser = choice::<MemoryFormat>("memory-format"))]
    pub(super) memory_format: MemoryFormat,
    /// fast or exact (as PIL and torchvision)
    #[arg(long, default_value = "fast", value_parser = choice::<Fidelity>("decode"))]
    pub(super) decode: Fidelity,
    /// auto, io_uring or pread
    #[arg(long, default_value = "auto", value_parser = choice::<IoChoice>("io"))]
    pub(super) io: IoChoice,
    /// Bypass the page cache: auto, on or off
    #[arg(long, default_value = "auto", value_parser = choice::<Direct>("direct"))]
    pub(super) direct: Direct,
    /// Reads in flight [default: 32]
    #[arg(long)]
    pub(super) queue_depth: Option<u32>,
    /// Keep samples in this directory on local NVMe
    #[arg(long, value_name = "DIR", requires = "cache_size")]
    pub(super) cache: Option<PathBuf>,
    /// Bytes that the cache may take, e.g. 800GB
    #[arg(long, requires = "cache", value_parser = |text: &str| parse_bytes("cache-size", text))]
    pub(super) cache_size: Option<u64>,
    /// How the cache is filled: use (with what is read), ahead (whole shards, beside training) or auto
    #[arg(long, default_value = "auto", value_parser = choice::<FillChoice>("fill"))]
    pub(super) fill: FillChoice,
    /// How the cache's copies of earlier runs are known to be the dataset's: stamp (its files' sizes, times and inodes) or
    /// checksum (its bytes, read once a run)
    #[arg(long, default_value = "stamp", value_parser = choice::<Verify>("verify"))]
    pub(super) verify: Verify,
    /// The dataset never changes: use the cache's copies without a look at it
    #[arg(long)]
    pub(super) immutable: bool,
    /// Bytes per second that filling ahead may take of the source, e.g. 500MB [default: what is left over]
    #[arg(long, value_parser = |text: &str| parse_bytes("stage-bandwidth", text))]
    pub(super) stage_bandwidth: Option<u64>,
    /// Ranks of this node, which share the cache, processors and memory [default: all share the cache, and this process
    /// has processors and memory alone]
    #[arg(long)]
    pub(super) local_world_size: Option<u32>,
    /// Cap of all pools, e.g. 300MB [default: what the settings need]
    #[arg(long, value_parser = |text: &str| parse_bytes("memory", text))]
    pub(super) memory: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// drop, pad or partial [default: drop in training, else partial]
    #[arg(long, value_parser = choice::<LastBatch>("last-batch"))]
    pub(super) last_batch: Option<LastBatch>,
    /// What happens to JPEGs with damage inside their coded data: conceal (as PIL) or refuse
    #[arg(long, default_value = "conceal", value_parser = choice::<Damaged>("damaged"))]
    pub(super) damaged: Damaged,
    /// What a bad sample does: raise, skip or zero
    #[arg(long, default_value = "raise", value_parser = choice::<OnError>("on-error"))]
    pub(super) on_error: OnError,
    /// Bad samples an epoch survives with skip and zero
    #[arg(long, default_value_t = 100)]
    pub(super) max_errors: u64,
    /// A dataset that is not what its index says: rebuild (index it anew), warn (go on with the old index) or refuse
    #[arg(long, default_value = "rebuild", value_parser = choice::<Changed>("changed"))]
    pub(super) changed: Changed,
    /// Where index files are kept [default: $FORELOAD_INDEX_DIR, else the user's cache directory]
    #[arg(long)]
    pub(super) index_dir: Option<PathBuf>,
    /// Log which stage did what when to this file; `foreload report` shows it, and so do Perfetto and chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Run the same epochs again from memory, and show how long storage holds the consumer up
    #[arg(long)]
    pub(super) stall: bool,
    /// Hash all batches of each epoch, in order (costs time)
    #[arg(long)]
    pub(super) checksum: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    /// The settings of the loader.
    pub(super) fn options(&self) -> LoaderOptions {
        LoaderOptions {
            batch_size: self.batch_size,
            image_size: (self.image_size, self.image_size),
            seed: self.seed,
            train: !self.eval,
            last_batch: self.last_batch,
            device: self.device.clone(),
            cpu_decode: self.cpu_decode,
            device_memory: self.device_memory,
            dtype: self.dtype,
            memory_format: self.memory_format,
            decode: self.decode,
            threads: self.threads,
            memory: self.memory,
            io: self.io,
            direct: self.direct,
            queue_depth: self.queue_depth,
            cache_dir: self.cache.clone(),
            cache_size: self.cache_size,
            cache_fill: self.fill,
            verify: self.verify,
            immutable: self.immutable,
            stage_bandwidth: self.stage_bandwidth,
            local_world_size: self.local_world_size,
            damaged: self.damaged,
            on_error: self.on_error,
            max_errors: self.max_errors,
            ..LoaderOptions::default()
        }
    }
}
