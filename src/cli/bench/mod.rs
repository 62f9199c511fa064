//! `foreload bench`: the whole pipeline as fast as it goes, with where the time went.

mod args;
mod report;
mod text;

pub(super) use args::Args;

use super::usage::Usage;
use super::{emulate, output};
use crate::batch::Batch;
use crate::config::{Choice, Device};
use crate::dataset::{DatasetIndex, IndexOptions};
use crate::error::Result;
use crate::pipeline::{Epoch, EpochStats, Pipeline};
use report::{DecodedBy, EpochReport, Report};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the command.
///
/// # Errors
/// Whatever the loader raises.
pub(super) fn run(args: &Args) -> Result<()> {
    let options = args.options();
    options.validate()?;
    let start = Instant::now();
    let index_options =
        IndexOptions { directory: args.index_dir.clone(), progress: true, ..IndexOptions::default() };
    let index = Arc::new(DatasetIndex::open(&args.dir, &index_options)?);
    let index_seconds = start.elapsed().as_secs_f64();
    let config = options.check(&index)?;
    let open_reader = emulate::open_reader(args.emulate_pfs);
    let pipeline = Pipeline::with_reader(index.clone(), config, open_reader);

    let (mut epochs, mut total) = (Vec::new(), EpochStats::default());
    let mut first_batch_seconds = None;
    for number in 0..args.epochs {
        let mut epoch = pipeline.epoch(number, args.rank, args.world_size, 0)?;
        let report = run_epoch(args, &mut epoch, &mut || {
            first_batch_seconds.get_or_insert_with(|| start.elapsed().as_secs_f64());
        })?;
        total += epoch.stats();
        if !args.json {
            output::print(&text::epoch(&report))?;
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
        stages: report::stages(&total.stages, seconds, waited, config.threads),
        gpu: report::gpu(config, &total),
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
        output::print(&text::summary(&report))?;
    }
    Ok(())
}

fn run_epoch(args: &Args, epoch: &mut Epoch, on_batch: &mut dyn FnMut()) -> Result<EpochReport> {
    let steps = args.steps.unwrap_or(u64::MAX).min(epoch.steps());
    let bar = output::bar(steps * u64::from(args.batch_size), "images");
    let before = Usage::now();
    let start = Instant::now();
    let mut hash = args.checksum.then(Sha256::new);
    let mut images = 0;
    while epoch.next_step() < steps {
        let Some(batch) = epoch.next_batch()? else { break };
        epoch.synchronize(&batch)?;
        on_batch();
        images += batch.len() as u64;
        bar.inc(batch.len() as u64);
        if let Some(hash) = &mut hash {
            update(hash, &batch)?;
        }
        train(args.consume);
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
        wait_seconds: stats.stages.consumer_waiting,
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

/// Keeps this thread busy for `step`, as a training step would: a sleep alone ends up to a tenth of a millisecond late.
fn train(step: Duration) {
    const SPIN: Duration = Duration::from_micros(150);
    let end = Instant::now() + step;
    std::thread::sleep(step.saturating_sub(SPIN));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
