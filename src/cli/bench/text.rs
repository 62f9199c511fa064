//! The same in words: a line an epoch, then what limits.

use super::report::{DecodedBy, EpochReport, Report, Stages};
use crate::cli::output;

/// An epoch.
pub(super) fn epoch(epoch: &EpochReport) -> String {
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

/// All epochs.
pub(super) fn summary(report: &Report) -> String {
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
