//! The report as text: a line for each epoch, then the limiting stage.

use super::report::{BenchReport, EpochReport, Percentiles, StageReports};
use super::stall::{HeldUpBy, Stall, StallVerdict};
use crate::output;
use base::trace::TraceTotals;
use pixels::decode::Backend;
use std::path::Path;

pub(super) fn epoch(epoch: &EpochReport) -> String {
    let unit = epoch.unit;
    let mut line = format!(
        "epoch {}: {} {unit} in {:.2} s: {:.0} {unit}/s, {:.3} CPU s per 1000 {unit}, waited {:.2} s, {} read",
        epoch.epoch,
        epoch.images,
        epoch.seconds,
        epoch.images_per_s,
        1000.0 * epoch.cpu_seconds / epoch.images.max(1) as f64,
        epoch.wait_seconds,
        output::bytes(epoch.source_bytes),
    );
    if epoch.source_bytes_skipped > 0 {
        line += &format!(", {} not needed", output::bytes(epoch.source_bytes_skipped));
    }
    if epoch.source_requests > 0 {
        line += &format!(
            ", {} requests ({} retried, {} hedged)",
            epoch.source_requests, epoch.source_retries, epoch.source_hedges
        );
    }
    if epoch.blocks_unpacked > 0 {
        let bytes = output::bytes(epoch.blocks_unpacked_bytes);
        line += &format!(", {} blocks decompressed to {bytes}", epoch.blocks_unpacked);
    }
    if let Some(cache) = &epoch.cache {
        for (name, tier) in &cache.tiers {
            line += &format!(
                ", {} from {name} ({} samples cached, {} not)",
                output::bytes(tier.bytes),
                tier.admitted_samples,
                tier.dropped_busy + tier.dropped_full + tier.dropped_off
            );
        }
    }
    if epoch.errors > 0 {
        line += &format!(", {} samples failed", epoch.errors);
    }
    if let Some(sha256) = &epoch.sha256 {
        line += &format!("\n         sha256 {sha256}");
    }
    line
}

pub(super) fn summary(report: &BenchReport) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let StageReports { limit, read, decode, augment, consumer } = &report.stages;
    let mut lines = vec![String::new(), "stage     threads  busy   waiting  blocked".into()];
    for (name, stage) in [("read", read), ("decode", decode), ("augment", augment), ("consumer", consumer)] {
        let (busy, waiting, blocked) = (percent(stage.busy), percent(stage.waiting), percent(stage.blocked));
        let mark = if name == *limit { " <- limits" } else { "" };
        lines.push(format!("{name:<9} {:>7}  {busy:<6} {waiting:<8} {blocked:<8}{mark}", stage.threads));
    }
    if let Some(gpu) = &report.gpu {
        let stats = &gpu.stats;
        lines.extend([
            String::new(),
            format!("GPU          cuda:{}, {}", gpu.ordinal, report.device_reason),
            format!(
                "decoded      packed {}, indexed {}, by its engine {}, by CUDA in batches {}, one by one {}, by the \
                 CPU {} (decoder={}, cpu_decode={})",
                stats.decoded_cuda_packed,
                stats.decoded_cuda_indexed,
                stats.decoded_hardware,
                stats.decoded_cuda_batched,
                stats.decoded_cuda,
                gpu.decoded_cpu,
                gpu.decoder,
                gpu.cpu_decode
            ),
            format!(
                "GPU time     copies {:.2} s, decoding {:.2} s, augmenting {:.2} s, idle {:.2} s; {} uploaded",
                stats.copy,
                stats.decode,
                stats.augment,
                stats.idle,
                output::bytes(stats.h2d_bytes)
            ),
        ]);
    }
    let (rows_known, concealed) = (report.decoded_by.rows_known, report.decoded_by.concealed);
    let decoders = report.decoded_by.images.iter().map(|(backend, images)| {
        let some = |count: u64, what: &str| match backend {
            Backend::Region if count > 0 => format!(", {count} of them {what}"),
            _ => String::new(),
        };
        let (known, damaged) = (some(rows_known, "with known rows"), some(concealed, "damaged"));
        format!("{} {images}{known}{damaged}", backend.title())
    });
    let decoders = decoders.collect::<Vec<_>>().join(", ");
    let has_images = report.epochs.iter().any(|epoch| epoch.unit == "images");
    lines.extend([String::new(), format!("read by      {}", report.io)]);
    if has_images {
        lines.push(format!("decoded by   {decoders} ({}, {})", report.decode, report.simd));
    }
    lines.extend([
        format!(
            "first batch  after {:.2} s (index {:.2} s)",
            report.first_batch_seconds, report.index_seconds
        ),
        format!("stalls       {}", percentiles(&report.stall_per_step, "steps")),
    ]);
    let latencies = report.latency.tiers.iter().filter(|(_, times)| times.count > 0);
    for (number, (tier, times)) in latencies.enumerate() {
        let title = if number == 0 { "latency" } else { "" };
        lines.push(format!("{title:<12} {}", percentiles(times, &format!("reads from {tier}"))));
    }
    let asked = report.peers.iter().flat_map(|peers| &peers.nodes).map(|(_, peer)| peer.counts);
    let (reads, troubles) =
        asked.fold((0, 0), |(reads, troubles), one| (reads + one.reads, troubles + one.troubles()));
    if troubles > 0 {
        lines.push(format!(
            "peers        {troubles} of {reads} samples were refused, late or failed; --json lists the nodes"
        ));
    }
    if !report.labeled && has_images {
        lines.push("labels       none: the dataset has only images".into());
    }
    lines.push(format!("peak memory  {}", output::bytes(report.peak_rss_bytes)));
    if let Some(stall) = &report.stall {
        lines.extend(held_up(stall));
    }
    lines.join("\n")
}

fn percentiles(times: &Percentiles, of: &str) -> String {
    let Percentiles { count, p50, p90, p99, max } = *times;
    let [p50, p90, p99, max] = [p50, p90, p99, max].map(output::seconds);
    format!("median {p50}, 90 % {p90}, 99 % {p99}, longest {max} ({count} {of})")
}

fn held_up(stall: &Stall) -> Vec<String> {
    let mut lines = vec![String::new(), "epoch  as given  from memory  waited longer  per step".into()];
    for epoch in &stall.epochs {
        lines.push(format!(
            "{:>5}  {:>8}  {:>11}  {:>13}  {:>8}",
            epoch.epoch,
            output::seconds(epoch.seconds),
            output::seconds(epoch.seconds_from_memory),
            output::seconds(epoch.held_up_seconds),
            output::seconds(epoch.held_up_seconds_per_step),
        ));
    }
    let StallVerdict { pairs, median_share, spread_share, held_up_by } = stall.verdict;
    let (median, spread) = (100.0 * median_share, 100.0 * spread_share);
    let measured = format!("{median:.1} % of an epoch longer than from memory (median of {pairs} pairs");
    let apart = format!("spread {spread:.1} %)");
    lines.push(match held_up_by {
        None => format!(
            "not distinguishable from memory: the consumer waits {measured} of epochs after the first, {apart}"
        ),
        Some(HeldUpBy::Storage) => format!(
            "storage delays the consumer: it waits {measured} of epochs after the first, {apart}, mostly for reads of \
             the dataset"
        ),
        Some(HeldUpBy::Cache) => format!(
            "the cache delays the consumer: it waits {measured} of epochs after the first, {apart}, mostly for reads \
             of the cache's copies"
        ),
        Some(HeldUpBy::Decode) => format!(
            "decoding delays the consumer, not reads: it waits {measured} of epochs after the first, {apart}; reading \
             and caching take processor time from decoding, or the cache has copies in another format"
        ),
    });
    lines
}

pub(super) fn trace(path: &Path, written: TraceTotals) -> String {
    format!("trace        {} intervals; see foreload report {}", written.intervals, path.display())
}

pub(super) fn lost(written: TraceTotals) -> String {
    format!(
        "{} intervals are missing in the trace, because its disk was too slow: write it to a local drive",
        written.dropped
    )
}
