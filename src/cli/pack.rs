//! The command `foreload pack`, which packs a dataset into shards whose images decode faster, or into tar shards.

use super::choice;
use super::output;
use super::settings::{Settings, TakesSettings};
use base::error::{Error, Result};
use base::notices::Notice;
use data::dataset::{Contents, IndexOptions, Skipped};
use data::pack::{self, PackOptions, PackReport, PackedAs, TarReport};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The arguments of `foreload pack`.
#[derive(Debug, clap::Args)]
pub(super) struct PackArgs {
    #[arg(value_name = "SRC", help = super::DATASET)]
    source: PathBuf,
    /// The directory that becomes the packed dataset: new, empty, or from an unfinished run
    #[arg(value_name = "DST")]
    into: PathBuf,
    /// Output format: packed shards, or tar shards for WebDataset
    #[arg(long, value_name = "packed|tar", default_value = "packed", value_parser = choice::<PackedAs>("to"))]
    to: PackedAs,
    /// Pack files of any kind, or the records of .tfrecord shards, instead of images
    #[arg(long)]
    files: bool,
    /// Maximum bytes of the dataset in a shard; a larger sample gets a shard to itself
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    shard_size: u64,
    /// Threads, each packing one shard at a time [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Start even if DST may have too little space
    #[arg(long)]
    force: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings<PackArgs>,
}

impl TakesSettings for PackArgs {
    const NAMES: Option<&'static [&'static str]> = Some(&[
        "index_dir",
        "rebuild_index",
        "split",
        "label",
        "images",
        "class_names",
        "bad_shards",
        "fields",
    ]);
}

#[derive(Serialize)]
struct PackSummary {
    #[serde(flatten)]
    report: PackReport,
    /// The images packed per second in this run.
    samples_per_second: f64,
    /// The bytes of all shards per byte of the source.
    ratio: f64,
    notices: Vec<Notice>,
}

#[derive(Serialize)]
struct TarSummary {
    #[serde(flatten)]
    report: TarReport,
    notices: Vec<Notice>,
}

pub(super) fn run(args: &PackArgs) -> Result<()> {
    let contents = if args.files { Contents::Files } else { Contents::Images };
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    let index = IndexOptions {
        // Pack all members, and pack labels unchanged, even labels that cannot be used.
        members: Some(Vec::new()),
        without_labels: true,
        ..args.settings.validate()?.index_options(contents)
    };
    let notices = index.notices.clone();
    let options = PackOptions {
        source: args.source.clone(),
        into: args.into.clone(),
        index,
        shard_size: args.shard_size,
        threads: args.threads.map_or_else(here, usize::from),
        force: args.force,
    };
    if args.to == PackedAs::Tar {
        let report = with_bar("samples", |progress| pack::pack_as_tars(&options, progress));
        let notices = output::print_notices(&notices);
        let summary = TarSummary { report: report?, notices };
        return output::print_report(&summary, args.json, |summary| describe_tars(args, &summary.report));
    }
    let report = with_bar("samples", |progress| pack::pack(&options, progress));
    let notices = output::print_notices(&notices);
    let report = report?;
    let done = report.tally.samples.saturating_sub(report.samples_before);
    let summary = PackSummary {
        samples_per_second: done as f64 / report.seconds.max(f64::MIN_POSITIVE),
        ratio: report.bytes as f64 / report.tally.source_bytes.max(1) as f64,
        report,
        notices,
    };
    output::print_report(&summary, args.json, |summary| describe(args, summary))
}

/// Runs `work` with a progress bar. `work` first reports the total number of items, then `None` for each finished item.
pub(super) fn with_bar<T>(
    things: &str,
    work: impl FnOnce(&(dyn Fn(Option<u64>) + Sync)) -> Result<T, Error>,
) -> Result<T, Error> {
    let bar = output::bar(0, things);
    let outcome = work(&|step| match step {
        Some(total) => bar.set_length(total),
        None => bar.inc(1),
    });
    bar.finish_and_clear();
    outcome
}

fn describe(args: &PackArgs, summary: &PackSummary) -> String {
    let PackReport { tally, bytes, shards, samples_before, shards_again, threads, seconds, .. } =
        &summary.report;
    let mut lines = vec![
        format!("{}: {} samples in {shards} packed shards", args.into.display(), tally.samples),
        format!(
            "  bytes        {}, {:.3} times the {} of {}",
            output::bytes(*bytes),
            summary.ratio,
            output::bytes(tally.source_bytes),
            data::source::shown(&args.source).display()
        ),
        format!("  packed       {} files", tally.packed),
    ];
    let kept = tally
        .kept
        .iter()
        .map(|(reason, count)| format!("  kept         {count} files as they are: {reason}"));
    lines.extend(kept);
    lines.extend(left_out(&summary.report.left_out, tally.members_left_out));
    if *samples_before > 0 {
        lines.push(format!("  before       {samples_before} samples were packed by an earlier run"));
    }
    lines.extend(again(*shards_again));
    let rate = summary.samples_per_second;
    lines.push(format!(
        "  speed        {rate:.0} samples/s by {threads} threads in {}",
        output::seconds(*seconds)
    ));
    lines.join("\n")
}

fn again(shards: u64) -> Option<String> {
    let line =
        || format!("  rewritten    {shards} shards of an earlier run, because their files have changed");
    (shards > 0).then(line)
}

fn describe_tars(args: &PackArgs, report: &TarReport) -> String {
    let TarReport { samples, shards, bytes, samples_before, shards_again, threads, seconds, .. } = report;
    let mut lines = vec![
        format!("{}: {samples} samples in {shards} tar shards", args.into.display()),
        format!("  bytes        {}", output::bytes(*bytes)),
    ];
    let column = |(name, reason): (&String, &String)| format!("  skipped      column {name:?}: {reason}");
    lines.extend(report.columns_left_out.iter().map(column));
    lines.extend(left_out(&report.left_out, 0));
    if *samples_before > 0 {
        lines.push(format!("  before       {samples_before} samples were written by an earlier run"));
    }
    lines.extend(again(*shards_again));
    lines.push(format!("  written      by {threads} threads in {}", output::seconds(*seconds)));
    lines.join("\n")
}

pub(super) fn left_out(reasons: &BTreeMap<String, Skipped>, members: u64) -> Vec<String> {
    let line = |(reason, skipped): (&String, &Skipped)| {
        format!("  skipped      {}: {reason}, e.g. {}", skipped.count, skipped.example)
    };
    let mut lines: Vec<String> = reasons.iter().map(line).collect();
    if members > 0 {
        lines.push(format!("  skipped      {members} members of tar shards that belong to no sample"));
    }
    lines
}
