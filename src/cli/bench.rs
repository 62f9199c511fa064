//! `foreload bench`: the whole pipeline as fast as it goes, with where the time went.

use super::output;
use super::usage::Usage;
use crate::augment::{DType, Fidelity, MemoryFormat};
use crate::batch::Batch;
use crate::config::{Choice, CpuDecode, Device, LoaderConfig, LoaderOptions, OnError, parse_bytes};
use crate::dataset::{DatasetIndex, IndexOptions};
use crate::error::Result;
use crate::io::{Direct, IoChoice};
use crate::pipeline::{Epoch, EpochStats, Pipeline, StageTimes};
use crate::schedule::LastBatch;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What `foreload bench` takes.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The dataset: a directory of class directories or of tar shards
    dir: PathBuf,
    /// Samples per batch
    #[arg(long, default_value_t = 256)]
    batch_size: u32,
    /// Epochs to run; the n-th has number n, from 0
    #[arg(long, default_value_t = 2)]
    epochs: u64,
    /// Stop each epoch after this many batches
    #[arg(long)]
    steps: Option<u64>,
    /// Decoding threads [default: the processors this process may use]
    #[arg(long)]
    threads: Option<u32>,
    /// Where the batch ends: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// What the CPU decodes when that is a GPU: fallback, auto or never
    #[arg(long, default_value = "fallback", value_parser = choice::<CpuDecode>("cpu-decode"))]
    cpu_decode: CpuDecode,
    /// Cap of the memory on the GPU, e.g. 8GB [default: a quarter of it]
    #[arg(long, value_parser = |text: &str| parse_bytes("device-memory", text))]
    device_memory: Option<u64>,
    /// Side of the square output, pixels
    #[arg(long, default_value_t = 224)]
    image_size: u32,
    /// Resize + CenterCrop in order, instead of random crops and flips in shuffled order
    #[arg(long)]
    eval: bool,
    /// float32, float16, bfloat16 or uint8
    #[arg(long, default_value = "float32", value_parser = choice::<DType>("dtype"))]
    dtype: DType,
    /// nchw or nhwc
    #[arg(long, default_value = "nchw", value_parser = choice::<MemoryFormat>("memory-format"))]
    memory_format: MemoryFormat,
    /// fast or exact (as PIL and torchvision)
    #[arg(long, default_value = "fast", value_parser = choice::<Fidelity>("decode"))]
    decode: Fidelity,
    /// auto, io_uring or pread
    #[arg(long, default_value = "auto", value_parser = choice::<IoChoice>("io"))]
    io: IoChoice,
    /// Bypass the page cache: auto, on or off
    #[arg(long, default_value = "auto", value_parser = choice::<Direct>("direct"))]
    direct: Direct,
    /// Reads in flight [default: 32]
    #[arg(long)]
    queue_depth: Option<u32>,
    /// Cap of all pools, e.g. 300MB [default: what the settings need]
    #[arg(long, value_parser = |text: &str| parse_bytes("memory", text))]
    memory: Option<u64>,
    /// Seed of order and augmentation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// drop, pad or partial [default: drop in training, else partial]
    #[arg(long, value_parser = choice::<LastBatch>("last-batch"))]
    last_batch: Option<LastBatch>,
    /// What a bad sample does: raise, skip or zero
    #[arg(long, default_value = "raise", value_parser = choice::<OnError>("on-error"))]
    on_error: OnError,
    /// Bad samples an epoch survives with skip and zero
    #[arg(long, default_value_t = 100)]
    max_errors: u64,
    /// Where index files are kept [default: $FORELOAD_INDEX_DIR, else the user's cache directory]
    #[arg(long)]
    index_dir: Option<PathBuf>,
    /// Hash all batches of each epoch, in order (costs time)
    #[arg(long)]
    checksum: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
}

/// A clap parser for a named choice.
fn choice<T: Choice + Send + Sync>(
    setting: &'static str,
) -> impl Fn(&str) -> Result<T, crate::Error> + Clone + Send + Sync + 'static {
    move |name| T::parse(setting, name)
}

/// What `--json` prints. Later versions add fields; the meaning of these stays.
#[derive(Debug, Serialize)]
struct Report {
    version: String,
    device: String,
    device_reason: String,
    decode: &'static str,
    dtype: &'static str,
    memory_format: &'static str,
    image_size: u32,
    simd: &'static str,
    io: String,
    threads: usize,
    batch_size: u32,
    samples: u64,
    index_seconds: f64,
    first_batch_seconds: f64,
    epochs: Vec<EpochReport>,
    stages: Stages,
    decoded_by: DecodedBy,
    /// What the GPU did; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<Gpu>,
    peak_rss_bytes: u64,
}

#[derive(Debug, Serialize)]
struct EpochReport {
    epoch: u64,
    images: u64,
    seconds: f64,
    images_per_s: f64,
    cpu_seconds: f64,
    wait_seconds: f64,
    source_bytes: u64,
    source_reads: u64,
    source_opens: u64,
    cache_bytes: u64,
    errors: u64,
    sha256: Option<String>,
}

/// Shares of the wall time of all epochs, per thread of the stage.
#[derive(Debug, Serialize)]
struct Stages {
    /// The stage that holds the others up: read, decode, augment or consumer.
    limit: &'static str,
    read: Stage,
    decode: Stage,
    augment: Stage,
    consumer: Stage,
}

#[derive(Debug, Serialize)]
struct Stage {
    threads: usize,
    /// Working.
    busy: f64,
    /// Waiting for its input (for `read`: for storage).
    waiting: f64,
    /// Waiting for room behind it.
    blocked: f64,
}

#[derive(Debug, Default, Serialize)]
struct DecodedBy {
    region: u64,
    zune: u64,
    png: u64,
}

/// What the GPU did in all epochs; seconds are summed over batches that are under way side by side.
#[derive(Debug, Default, Serialize)]
struct Gpu {
    ordinal: u32,
    cpu_decode: &'static str,
    decoded_hardware: u64,
    decoded_cuda: u64,
    decoded_cpu: u64,
    h2d_bytes: u64,
    copy_seconds: f64,
    decode_seconds: f64,
    augment_seconds: f64,
    /// In which nothing was queued on it.
    idle_seconds: f64,
}

/// Runs the command.
///
/// # Errors
/// Whatever the loader raises.
pub(super) fn run(args: &Args) -> Result<()> {
    let options = LoaderOptions {
        batch_size: args.batch_size,
        image_size: (args.image_size, args.image_size),
        seed: args.seed,
        train: !args.eval,
        last_batch: args.last_batch,
        device: args.device.clone(),
        cpu_decode: args.cpu_decode,
        device_memory: args.device_memory,
        dtype: args.dtype,
        memory_format: args.memory_format,
        decode: args.decode,
        threads: args.threads,
        memory: args.memory,
        io: args.io,
        direct: args.direct,
        queue_depth: args.queue_depth,
        on_error: args.on_error,
        max_errors: args.max_errors,
        ..LoaderOptions::default()
    };
    options.validate()?;
    let start = Instant::now();
    let index_options =
        IndexOptions { directory: args.index_dir.clone(), progress: true, ..IndexOptions::default() };
    let index = Arc::new(DatasetIndex::open(&args.dir, &index_options)?);
    let index_seconds = start.elapsed().as_secs_f64();
    let config = options.check(&index)?;
    let pipeline = Pipeline::new(index.clone(), config);

    let (mut epochs, mut total) = (Vec::new(), EpochStats::default());
    let mut first_batch_seconds = None;
    for number in 0..args.epochs {
        let mut epoch = pipeline.epoch(number, 0, 1, 0)?;
        let report = run_epoch(args, &mut epoch, &mut || {
            first_batch_seconds.get_or_insert_with(|| start.elapsed().as_secs_f64());
        })?;
        total += epoch.stats();
        if !args.json {
            output::print(&epoch_line(&report))?;
        }
        epochs.push(report);
    }
    let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
    let waited: f64 = epochs.iter().map(|epoch| epoch.wait_seconds).sum();
    let config = pipeline.config();
    let report = Report {
        version: super::version(),
        device: if config.device == Device::Cpu { "cpu" } else { "cuda" }.into(),
        device_reason: config.device_reason.clone(),
        decode: config.output.fidelity.name(),
        dtype: config.output.dtype.name(),
        memory_format: config.output.format.name(),
        image_size: args.image_size,
        simd: crate::simd::Level::detect().name(),
        io: pipeline.io(),
        threads: config.threads,
        batch_size: config.batch_size,
        samples: index.len(),
        index_seconds,
        first_batch_seconds: first_batch_seconds.unwrap_or(0.0),
        epochs,
        stages: stages(&total.stages, seconds, waited, config.threads),
        gpu: gpu_report(config, &total),
        decoded_by: DecodedBy {
            region: total.decoded_region,
            zune: total.decoded_zune,
            png: total.decoded_png,
        },
        peak_rss_bytes: Usage::now().peak_rss_bytes,
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&summary(&report))?;
    }
    Ok(())
}

fn run_epoch(args: &Args, epoch: &mut Epoch, on_batch: &mut dyn FnMut()) -> Result<EpochReport> {
    let steps = args.steps.unwrap_or(u64::MAX).min(epoch.steps());
    let bar = output::bar(steps * u64::from(args.batch_size), "images");
    let before = Usage::now();
    let start = Instant::now();
    let mut hash = args.checksum.then(Sha256::new);
    let (mut images, mut waited) = (0, Duration::ZERO);
    while epoch.next_step() < steps {
        let Some(batch) = epoch.next_batch()? else { break };
        // On a GPU the batch may still be in the making.
        let arrived = Instant::now();
        batch.synchronize()?;
        waited += arrived.elapsed();
        on_batch();
        images += batch.len() as u64;
        if let Some(hash) = &mut hash {
            update(hash, &batch)?;
        }
        bar.inc(batch.len() as u64);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = Usage::now().cpu_seconds - before.cpu_seconds;
    bar.finish_and_clear();
    let stats = epoch.stats();
    Ok(EpochReport {
        epoch: epoch.number(),
        images,
        seconds,
        images_per_s: images as f64 / seconds,
        cpu_seconds,
        wait_seconds: stats.stages.consumer_waiting + waited.as_secs_f64(),
        source_bytes: stats.reads.bytes,
        source_reads: stats.reads.reads,
        source_opens: stats.reads.opens,
        cache_bytes: 0,
        errors: epoch.failed(),
        sha256: hash.map(|hash| hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
    })
}

/// Images, labels, ids, mask: every byte the consumer sees.
fn update(hash: &mut Sha256, batch: &Batch) -> Result<()> {
    for tensor in [batch.images(), batch.labels(), batch.sample_ids(), batch.mask()] {
        hash.update(tensor.read()?);
    }
    Ok(())
}

fn gpu_report(config: &LoaderConfig, total: &EpochStats) -> Option<Gpu> {
    let Device::Cuda { ordinal } = config.device else { return None };
    let stats = &total.gpu;
    Some(Gpu {
        ordinal,
        cpu_decode: config.cpu_decode.name(),
        decoded_hardware: stats.decoded_hardware,
        decoded_cuda: stats.decoded_cuda,
        decoded_cpu: total.decoded_cpu(),
        h2d_bytes: stats.h2d_bytes,
        copy_seconds: stats.copy,
        decode_seconds: stats.decode,
        augment_seconds: stats.augment,
        idle_seconds: stats.idle,
    })
}

fn stages(times: &StageTimes, seconds: f64, waited: f64, threads: usize) -> Stages {
    let of_one = |time: f64| time / seconds.max(f64::MIN_POSITIVE);
    let of_workers = |time: f64| of_one(time) / threads as f64;
    let (decode, augment) = (of_workers(times.decode_busy), of_workers(times.augment_busy));
    let waiting = of_workers(times.workers_waiting);
    let consumer_waits = of_one(waited);
    let consumer_busy = (1.0 - consumer_waits).max(0.0);
    let storage = of_one(times.read_busy) + of_one(times.read_waiting);
    // The stage that has the least time to spare. The workers do two stages' work.
    let limit = if consumer_busy > storage.max(decode + augment) {
        "consumer"
    } else if storage > decode + augment {
        "read"
    } else if decode >= augment {
        "decode"
    } else {
        "augment"
    };
    Stages {
        limit,
        read: Stage {
            threads: 1,
            busy: of_one(times.read_busy),
            waiting: of_one(times.read_waiting),
            blocked: of_one(times.read_blocked),
        },
        decode: Stage { threads, busy: decode, waiting, blocked: 0.0 },
        augment: Stage { threads, busy: augment, waiting, blocked: 0.0 },
        consumer: Stage { threads: 1, busy: consumer_busy, waiting: consumer_waits, blocked: 0.0 },
    }
}

fn epoch_line(epoch: &EpochReport) -> String {
    let mut line = format!(
        "epoch {}: {} images in {:.2} s: {:.0} images/s, {:.3} CPU s per 1000 images, waited {:.2} s, {} read",
        epoch.epoch,
        epoch.images,
        epoch.seconds,
        epoch.images_per_s,
        1000.0 * epoch.cpu_seconds / epoch.images.max(1) as f64,
        epoch.wait_seconds,
        output::bytes(epoch.source_bytes),
    );
    if epoch.errors > 0 {
        line += &format!(", {} samples failed", epoch.errors);
    }
    if let Some(sha256) = &epoch.sha256 {
        line += &format!("\n         sha256 {sha256}");
    }
    line
}

fn summary(report: &Report) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let Stages { limit, read, decode, augment, consumer } = &report.stages;
    let mut lines = vec![String::new(), "stage     threads  busy   waiting  blocked".into()];
    for (name, stage) in [("read", read), ("decode", decode), ("augment", augment), ("consumer", consumer)] {
        let (busy, waiting, blocked) = (percent(stage.busy), percent(stage.waiting), percent(stage.blocked));
        let mark = if name == *limit { " <- limits" } else { "" };
        lines.push(format!("{name:<9} {:>7}  {busy:<6} {waiting:<8} {blocked:<8}{mark}", stage.threads));
    }
    if let Some(gpu) = &report.gpu {
        lines.extend([
            String::new(),
            format!("GPU          cuda:{}, {}", gpu.ordinal, report.device_reason),
            format!(
                "decoded      by its engine {}, by CUDA {}, by the CPU {} (cpu_decode={})",
                gpu.decoded_hardware, gpu.decoded_cuda, gpu.decoded_cpu, gpu.cpu_decode
            ),
            format!(
                "GPU time     copies {:.2} s, decoding {:.2} s, augmenting {:.2} s, idle {:.2} s; {} uploaded",
                gpu.copy_seconds,
                gpu.decode_seconds,
                gpu.augment_seconds,
                gpu.idle_seconds,
                output::bytes(gpu.h2d_bytes)
            ),
        ]);
    }
    let DecodedBy { region, zune, png } = report.decoded_by;
    lines.extend([
        String::new(),
        format!("read by      {}", report.io),
        format!(
            "decoded by   region decoder {region}, zune-jpeg {zune}, png {png} ({}, {})",
            report.decode, report.simd
        ),
        format!(
            "first batch  after {:.2} s (index {:.2} s)",
            report.first_batch_seconds, report.index_seconds
        ),
        format!("peak memory  {}", output::bytes(report.peak_rss_bytes)),
    ]);
    lines.join("\n")
}
