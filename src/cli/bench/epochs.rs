//! Runs epochs and counts their work.

use super::args::BenchArgs;
use super::checksum::EpochChecksum;
use super::place::BenchPlace;
use super::report::{EpochReport, Latency, Percentiles};
use super::text;
use crate::output;
use crate::usage::ProcessUsage;
use base::error::Result;
use base::notices::Notice;
use base::tier_name::TierName;
use engine::pipeline::{Epoch, EpochStats, Pipeline};
use std::time::{Duration, Instant};
use store::tier::Cache;

#[derive(Default)]
pub(super) struct BenchRun {
    pub(super) epochs: Vec<EpochReport>,
    pub(super) total: EpochStats,
    pub(super) first_batch: Option<Instant>,
    pub(super) notices: Vec<Notice>,
}

impl BenchRun {
    pub(super) fn run(args: &BenchArgs, place: &BenchPlace, pipeline: &Pipeline) -> Result<Self> {
        let mut pass = Self::default();
        for number in 0..args.epochs {
            pass.epoch(args, place, pipeline, number)?;
        }
        Ok(pass)
    }

    pub(super) fn epoch(
        &mut self,
        args: &BenchArgs,
        place: &BenchPlace,
        pipeline: &Pipeline,
        number: u64,
    ) -> Result<()> {
        let mut epoch = pipeline.epoch(number, place.rank, place.world_size, 0)?;
        let cache = pipeline.cache().map(|cache| &**cache);
        let config = pipeline.config();
        let unit = if config.images.list().is_empty() { "samples" } else { "images" };
        let report = run_epoch(args, &mut epoch, cache, (config.threads, unit), &mut || {
            self.first_batch.get_or_insert_with(Instant::now);
        })?;
        place.wait_for_all()?;
        self.total += epoch.stats();
        self.notices.extend(output::print_notices(pipeline.index().notices()));
        if !args.json {
            output::print(&text::epoch(&report))?;
        }
        self.epochs.push(report);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct EpochWork {
    /// The seconds in which the reading thread worked or waited for bytes.
    pub(super) reading: f64,
    /// The part of the read latency that is due to the dataset's storage, from 0 to 1. The rest is due to the cache.
    pub(super) from_source: f64,
    /// The seconds in which a worker decoded and augmented, averaged over all workers.
    pub(super) decoding: f64,
}

impl EpochWork {
    fn of(stats: &EpochStats, threads: usize) -> Self {
        let all: f64 = stats.latencies.iter().map(|(_, times)| times.total()).sum();
        let of_source = stats.latency(TierName::SOURCE).total();
        Self {
            reading: stats.stages.read_busy + stats.stages.read_waiting,
            from_source: if all > 0.0 { of_source / all } else { 1.0 },
            decoding: (stats.stages.decode_busy + stats.stages.augment_busy) / threads.max(1) as f64,
        }
    }
}

fn run_epoch(
    args: &BenchArgs,
    epoch: &mut Epoch,
    cache: Option<&Cache>,
    (threads, unit): (usize, &'static str),
    on_batch: &mut dyn FnMut(),
) -> Result<EpochReport> {
    let steps = args.steps.unwrap_or(u64::MAX).min(epoch.steps());
    let bar = output::bar(steps * u64::from(args.options().batch_size), unit);
    let before = ProcessUsage::now();
    let start = Instant::now();
    let mut checksum = args.checksum.then(EpochChecksum::default);
    let mut images = 0;
    while epoch.next_step() < steps {
        let Some(batch) = epoch.next_batch()? else { break };
        epoch.synchronize(&batch)?;
        on_batch();
        images += batch.len() as u64;
        bar.inc(batch.len() as u64);
        if let Some(cache) = cache {
            bar.set_message(format!("cache {:.0} % full", 100.0 * cache.stats().fill()));
        }
        if let Some(checksum) = &mut checksum {
            checksum.add(&batch)?;
        }
        train(args.consume);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = ProcessUsage::now().cpu_seconds - before.cpu_seconds;
    bar.finish_and_clear();
    let stats = epoch.stats();
    let cached = stats.cache.all();
    Ok(EpochReport {
        epoch: epoch.number(),
        unit,
        images,
        seconds,
        images_per_s: images as f64 / seconds,
        cpu_seconds,
        wait_seconds: stats.stages.consumer_waiting,
        source_bytes: stats.reads.bytes + stats.cache.source.staged_bytes,
        source_bytes_skipped: stats.reads.skipped,
        source_reads: stats.reads.reads,
        source_opens: stats.reads.opens,
        source_requests: stats.reads.requests + stats.cache.source.staged_requests,
        source_retries: stats.reads.retries,
        source_hedges: stats.reads.hedges,
        blocks_unpacked: stats.unpacked.blocks,
        blocks_unpacked_bytes: stats.unpacked.unpacked,
        cache_hits: cached.hits,
        cache_bytes: cached.bytes,
        cache: cache.map(|_| stats.cache.clone()),
        errors: epoch.failed(),
        steps: epoch.next_step(),
        stall_per_step: Percentiles::of(&stats.stalls),
        latency: Latency::of(&stats),
        sha256: checksum.map(EpochChecksum::finish),
        work: EpochWork::of(&stats, threads),
    })
}

/// Keeps this thread busy for `step`, as a training step would. A plain sleep may return 0.1 ms late, so the end is
/// spun.
fn train(step: Duration) {
    const SPIN: Duration = Duration::from_micros(150);
    let end = Instant::now() + step;
    std::thread::sleep(step.saturating_sub(SPIN));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
