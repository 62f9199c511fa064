//! The report as tables, one for each epoch.

use super::peers;
use crate::output;
use base::trace::{EpochSummary, StageSummary, TraceSummary};

pub(super) fn tables(summary: &TraceSummary) -> String {
    let mut parts: Vec<String> = summary.epochs.iter().map(table).collect();
    if summary.epochs.is_empty() {
        parts.push("nothing was logged".into());
    }
    parts.extend(summary.peers.iter().map(peers::table));
    if !summary.complete {
        parts.push("the run ended early: its last moments are missing".into());
    }
    parts.join("\n\n")
}

fn table(epoch: &EpochSummary) -> String {
    let columns = ["stage", "threads", "intervals", "merged", "share", "load", "bytes", "bandwidth"];
    let mut rows = vec![columns.map(String::from)];
    rows.extend(epoch.stages.iter().map(row));
    format!("{}\n{}", headline(epoch), output::table(&rows).join("\n"))
}

pub(super) fn headline(epoch: &EpochSummary) -> String {
    let mut line = format!("epoch {} of {}: {}", epoch.epoch, epoch.process, facts(epoch));
    if let Some(limit) = &epoch.limit {
        line += &format!("; busiest stage: {limit}");
    }
    line
}

pub(super) fn facts(epoch: &EpochSummary) -> String {
    format!(
        "{}, {} samples, {:.0} samples/s, the consumer waited {}",
        output::seconds(epoch.seconds),
        epoch.samples,
        epoch.samples as f64 / epoch.seconds.max(f64::MIN_POSITIVE),
        percent(epoch.waiting),
    )
}

fn row(stage: &StageSummary) -> [String; 8] {
    [
        stage.stage.clone(),
        stage.threads.to_string(),
        stage.intervals.to_string(),
        output::seconds(stage.merged_seconds),
        percent(stage.share),
        percent(stage.load),
        if stage.bytes > 0 { output::bytes(stage.bytes) } else { String::new() },
        bandwidth(stage),
    ]
}

/// Formats the bandwidth: bytes per second of the stage's merged intervals. Empty if no bytes were moved.
pub(super) fn bandwidth(stage: &StageSummary) -> String {
    if stage.bytes > 0 { format!("{}/s", output::bytes(stage.bandwidth as u64)) } else { String::new() }
}

pub(super) fn percent(share: f64) -> String {
    let digits = usize::from(share > 0.0 && share < 0.0995);
    format!("{:.digits$} %", 100.0 * share)
}
