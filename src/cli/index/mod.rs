//! The command `foreload index`, which builds, checks and shows the persistent index of a dataset.

mod classes;
mod decode;
mod packed;
mod samples;
mod sizes;

use super::settings::{Settings, TakesSettings};
use super::{DATASET, choice, output};
use base::error::{Error, Result};
use base::names::NamedValue;
use base::notices::{Notice, Notices};
use classes::ClassComparison;
use data::dataset::{
    BadShard, BadShards, BlockCosts, Changed, Contents, DatasetIndex, IndexOptions, IndexOrigin,
    IndexRequests, IndexSummary, Layout, Notes, SampleBytes, TableField,
};
use decode::{DecodedImages, ImageMembers};
use samples::FirstSamples;
use serde::Serialize;
use serde_json::{Map, Value};
use sizes::SizesFound;
use std::path::PathBuf;
use std::sync::Arc;

/// The arguments of `foreload index`.
#[derive(Debug, clap::Args)]
pub(crate) struct IndexArgs {
    #[arg(value_name = "DATASET", required = true, help = format!("{DATASET}; several are read as one"))]
    directories: Vec<PathBuf>,
    /// Index files of any kind, or the records of .tfrecord shards, instead of images
    #[arg(long)]
    files: bool,
    /// List every directory and parse every shard again, and compare them with the index
    #[arg(long)]
    verify: bool,
    /// Verify, and also decode every image and mask on all processors and list the damaged ones; exit code 1 if any
    /// cannot be decoded. In shards, the names of members decide which are images and masks. All members of packed
    /// datasets are compared with their checksums
    #[arg(long, conflicts_with = "files")]
    decode: bool,
    /// If the dataset has changed since it was indexed: rebuild the index, warn (use the old index) or refuse
    /// [default: rebuild; with --verify or --decode: refuse]
    #[arg(long, value_parser = choice::<Changed>("changed"))]
    changed: Option<Changed>,
    /// Threads that list directories and read shards [default: one per processor, at least 4, for arrays 16], or decode
    /// [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Show the field values of the first N samples, shortened [default: 10 for tables (tf.Example, MDS, Parquet,
    /// Arrow), none for other datasets]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Read the sizes of all images from their headers, and store them next to the index for `buckets` and `where`.
    /// With --buckets, show how many images each bucket has; with --where, how many samples it chooses. With --fields,
    /// the sizes are those of the first field
    #[arg(long, conflicts_with = "files")]
    sizes: bool,
    /// Compare the classes and their numbers with those of this dataset, for example of training with validation
    #[arg(long, value_name = "OTHER", conflicts_with = "files")]
    compare: Option<PathBuf>,
    /// The split of OTHER to compare with
    #[arg(long, value_name = "SPLIT", requires = "compare")]
    compare_split: Option<String>,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings<IndexArgs>,
}

/// The settings of the index except `changed`, which has its own flag because its default differs.
impl TakesSettings for IndexArgs {
    const NAMES: Option<&'static [&'static str]> = Some(&[
        "split",
        "fields",
        "sample_axis",
        "label",
        "images",
        "class_names",
        "index_dir",
        "rebuild_index",
        "bad_shards",
        "orientation",
        "where",
        "buckets_area",
        "buckets_step",
        "buckets_max_ratio",
    ]);
}

#[derive(Serialize)]
struct IndexReport {
    version: &'static str,
    #[serde(flatten)]
    summary: IndexSummary,
    /// Whether the index was verified. Present with `--verify` or `--decode`, and then true, because a failed check is
    /// an error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    verified: bool,
}

#[derive(Serialize)]
struct IndexFindings {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_samples: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes_compared: Option<ClassComparison>,
    #[serde(flatten)]
    decoded: Option<DecodedImages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<SizesFound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed: Option<BlockCosts>,
    notices: Vec<Notice>,
}

#[derive(Serialize)]
struct SingleReport {
    #[serde(flatten)]
    report: IndexReport,
    #[serde(flatten)]
    findings: IndexFindings,
}

#[derive(Serialize)]
struct CombinedReport {
    samples: u64,
    classes: u32,
    fingerprint: String,
    datasets: Vec<IndexReport>,
    #[serde(flatten)]
    findings: IndexFindings,
}

pub(crate) fn run(args: &IndexArgs) -> Result<()> {
    let verifies = args.verify || args.decode;
    let contents = if args.files { Contents::Files } else { Contents::Images };
    if args.files && args.settings.fields.is_some() {
        return Err(Error::config("fields", "has no effect with --files: remove one of the two"));
    }
    let asked = args.settings.validate()?.index_options(contents);
    let options = IndexOptions {
        // Without chosen fields, show and verify all members in the index.
        members: asked.members.clone().or_else(|| Some(Vec::new())),
        changed: args.changed.unwrap_or(if verifies { Changed::Refuse } else { Changed::Rebuild }),
        threads: args.threads.map_or(0, usize::from),
        // Show everything that can be read first, then list the shards that cannot be read.
        bad_shards_later: true,
        ..asked
    };
    let index = DatasetIndex::open_all(&args.directories, &options, &Arc::default())?;
    index.check_listed()?;
    if verifies {
        index.verify()?;
    }
    let decoded = args.decode.then(|| decode(args, &index, &options)).transpose()?;
    let verdict = decoded.as_ref().map_or(Ok(()), |decoded| verdict(&index, decoded));
    let first_samples = first_samples(args, &index, &options)?;
    let verdict = verdict.and(first_samples.verdict(index.root())).and(bad_shards(args, &index));
    let first_samples = first_samples.values;
    let other = args.compare.as_ref();
    let classes_compared = other
        .map(|other| classes::compare(&index, other, args.compare_split.clone(), &options))
        .transpose()?;
    let sizes = sizes(args, &index)?;
    let notices = output::print_notices(index.notices());
    let compressed = index.block_costs();
    let findings = IndexFindings { first_samples, classes_compared, decoded, sizes, compressed, notices };
    show(args, &index, findings)?;
    verdict
}

fn decode(args: &IndexArgs, index: &DatasetIndex, options: &IndexOptions) -> Result<DecodedImages> {
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(here, usize::from);
    let members = ImageMembers::of(index);
    let Some(names) = members.names() else { return decode::damaged(index, &members, threads) };
    // The user has seen all notices about the dataset when it was first opened, so drop the new ones.
    let notices = Notices::default();
    let options = IndexOptions { members: Some(names), rebuild: false, notices, ..options.clone() };
    let index = DatasetIndex::open_all(&args.directories, &options, &Arc::default())?;
    decode::damaged(&index, &members, threads)
}

/// The sizes of images, if a flag needs them.
fn sizes(args: &IndexArgs, index: &DatasetIndex) -> Result<Option<SizesFound>> {
    let settings = &args.settings;
    if !args.sizes && !settings.buckets.is_set() && settings.condition.is_none() {
        return Ok(None);
    }
    if args.files {
        return Err(Error::config("where", "and buckets need images: remove --files"));
    }
    // Only the image is needed, and the columns in the condition. Keep the warnings about them.
    let notices = index.notices().clone();
    let options =
        IndexOptions { rebuild: false, notices, ..settings.validate()?.index_options(Contents::Images) };
    let index = DatasetIndex::open_all(&args.directories, &options, &Arc::default())?;
    sizes::find(&index, settings).map(Some)
}

fn first_samples(args: &IndexArgs, index: &DatasetIndex, options: &IndexOptions) -> Result<FirstSamples> {
    let usual = if index.has_tables() { samples::DEFAULT_SAMPLES } else { 0 };
    let (count, fields) = (args.samples.unwrap_or(usual), samples::shown_fields(index));
    if count == 0 || fields.is_empty() {
        return Ok(FirstSamples::default());
    }
    let names = fields.iter().map(|field| field.name.clone()).collect();
    let notices = Notices::default();
    let options = IndexOptions { members: Some(names), rebuild: false, notices, ..options.clone() };
    let index = DatasetIndex::open_all(&args.directories, &options, &Arc::default())?;
    Ok(samples::first_samples(&index, &fields, count))
}

fn bad_shards(args: &IndexArgs, index: &DatasetIndex) -> Result<()> {
    let count: usize = index.summaries().map(|summary| summary.notes.bad_shards.len()).sum();
    if count == 0 || args.settings.bad_shards == BadShards::Skip {
        return Ok(());
    }
    let message = format!(
        "{count} shards cannot be read: repair them or download them again, or train without them with \
         bad_shards=\"skip\" or a list of the other shards (files)"
    );
    Err(Error::dataset(index.root(), message))
}

fn verdict(index: &DatasetIndex, decoded: &DecodedImages) -> Result<()> {
    let DecodedImages { images, compared, damaged, what, .. } = decoded;
    if damaged.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} of {images} {what}{} cannot be decoded: repair or remove them, or train with on_error=\"skip\"",
        damaged.len(),
        and_others(*compared, "")
    );
    Err(Error::dataset(index.root(), message))
}

fn show(args: &IndexArgs, index: &DatasetIndex, findings: IndexFindings) -> Result<()> {
    let (version, verified) = (base::version::get(), args.verify || args.decode);
    let report = |summary| IndexReport { version, summary, verified };
    let mut reports: Vec<_> = index.summaries().map(report).collect();
    let (samples, classes, fingerprint) = (index.len(), index.num_classes(), index.fingerprint().to_string());
    if args.json && reports.len() == 1 {
        return output::print_json(&SingleReport { report: reports.remove(0), findings });
    }
    if args.json {
        return output::print_json(&CombinedReport {
            samples,
            classes,
            fingerprint,
            datasets: reports,
            findings,
        });
    }
    let mut lines: Vec<_> = reports.iter().map(describe).collect();
    if reports.len() > 1 {
        let of = of_classes(classes);
        lines.push(format!("together: {samples} samples {of}\n  fingerprint  {fingerprint}"));
    }
    lines.extend(
        findings.compressed.as_ref().map(|costs| format!("  compressed   {}", output::blocks(costs))),
    );
    lines.extend(findings.sizes.iter().flat_map(SizesFound::lines));
    lines.extend(samples::describe(&findings.first_samples));
    lines.extend(findings.classes_compared.iter().flat_map(ClassComparison::lines));
    if let Some(DecodedImages { images, compared, damaged, concealed, what }) = &findings.decoded {
        lines.extend(damaged.iter().map(|one| format!("damaged: {}", one.describe())));
        lines.extend(concealed.iter().map(|one| format!("damaged, but used: {}", one.describe())));
        let others = and_others(*compared, " compared with their checksums");
        let mut sum = format!("{images} {what} decoded{others}, {} damaged", damaged.len());
        if !concealed.is_empty() {
            let count = concealed.len();
            sum +=
                &format!(", {count} more damaged but decoded, as PIL does; damaged=\"refuse\" rejects them");
        }
        lines.push(sum);
    }
    output::print(&lines.join("\n"))
}

fn and_others(count: u64, how: &str) -> String {
    if count == 0 { String::new() } else { format!(" and {count} other members{how}") }
}

fn of_classes(count: u32) -> String {
    if count == 0 { "without labels".to_owned() } else { format!("of {count} classes") }
}

fn describe(report: &IndexReport) -> String {
    let IndexSummary { root, layout, samples, classes, groups, .. } = &report.summary;
    let SampleBytes { total_bytes, largest } = report.summary.bytes();
    let origin = match &report.summary.origin {
        IndexOrigin::Loaded => "loaded".to_owned(),
        IndexOrigin::Built(because) => format!("built ({because})"),
    };
    let of = of_classes(*classes);
    let mut lines = vec![
        format!("{}: {samples} samples {of} in {groups} {}", root.display(), layout.group_title()),
        format!("  layout       {}{}", layout.title(), dataset_origin(*layout, &report.summary.notes)),
        format!(
            "  bytes        {}; {} a sample, {} at most",
            output::bytes(total_bytes),
            output::bytes(total_bytes / (*samples).max(1)),
            output::bytes(largest)
        ),
        format!("  fingerprint  {}", report.summary.fingerprint),
        format!(
            "  index        {}, {}, {origin} in {:.3} s",
            report.summary.index_path.display(),
            output::bytes(report.summary.index_bytes),
            report.summary.seconds
        ),
    ];
    if let Some(IndexRequests { heads, gets, lists, bytes }) = report.summary.requests {
        let bytes = output::bytes(bytes);
        lines.push(format!("  requests     {gets} GET, {heads} HEAD, {lists} LIST; {bytes}"));
    }
    let fields = report.summary.fields.iter();
    if fields.len() > 0 {
        let named = |field: &TableField| match &field.refused {
            Some(reason) => format!("{} (refused: {reason})", field.name),
            None => format!("{} ({})", field.name, field.kind.name()),
        };
        lines.push(format!("  fields       {}", fields.map(named).collect::<Vec<_>>().join(", ")));
    } else if !report.summary.keys.is_empty() {
        lines.push(format!("  fields       {}", report.summary.keys.join(", ")));
    }
    lines.extend(left_out(&report.summary));
    let bad = report.summary.notes.bad_shards.iter();
    lines.extend(bad.map(|BadShard { shard, message }| format!("  bad shard    {shard}: {message}")));
    if report.verified {
        lines.push("  verified     the index file is valid and the dataset is unchanged".to_owned());
    }
    lines.join("\n")
}

/// A phrase that names the source of the dataset: for a packed dataset the layout that was packed, for a manifest the
/// column with the file names.
fn dataset_origin(layout: Layout, notes: &Notes) -> String {
    match &notes.image {
        Some(column) if layout == Layout::Manifest => format!(", named by its column {column:?}"),
        _ => notes.packed_of.map_or_else(String::new, |layout| format!(", packed from {}", layout.title())),
    }
}

/// The maximum number of reasons that the text output lists. There may be one reason per file.
const REASONS_LISTED: usize = 20;

fn left_out(IndexSummary { notes, to_label, .. }: &IndexSummary) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(fault) = &notes.label_fault {
        lines.push(format!("  labels       unusable: {}", fault.message()));
    } else if let Some(to_label) = to_label {
        lines.push(format!("  labels       none: {to_label}"));
    } else if let Some(column) = &notes.label_column {
        lines.push(format!("  labels       {column}"));
    }
    if let Some(why) = &notes.incomplete {
        lines.push(format!("  shards       according to their names, the dataset {why}"));
    }
    if let Some(first) = notes.empty_classes.first() {
        let count = notes.empty_classes.len();
        lines.push(format!("  empty        {count} classes without a sample, e.g. {first}"));
    }
    for (reason, skipped) in notes.skipped.iter().take(REASONS_LISTED) {
        lines.push(format!("  skipped      {}: {reason}, e.g. {}", skipped.count, skipped.example));
    }
    if let Some(more) = notes.skipped.len().checked_sub(REASONS_LISTED).filter(|&more| more > 0) {
        lines.push(format!("  skipped      {more} other kinds of files; --json lists all"));
    }
    lines
}
