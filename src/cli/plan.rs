//! The command `foreload plan`, which predicts the cost of a job: the seconds of an epoch and what limits it. It also
//! predicts the effect of more NVMe, more nodes, peers' caches, and other ways to store the dataset or fill the cache.

mod alternatives;

use super::calibrate::{self, KnownRates};
use super::settings::{Settings, TakesSettings};
use super::{DATASET, output};
use alternatives::{Alternative, alternatives, by_block};
use base::error::{Error, Result};
use base::notices::Notice;
use data::dataset::{BlockCosts, Contents, DatasetIndex, MAX_NEIGHBOUR_BLOCK_BYTES, NeighbourBlocks};
use data::schedule::Shuffling;
use engine::config::{LoaderOptions, parse_bytes, parse_duration};
use serde::Serialize;
use simulate::predict::{EpochCost, Limit, PredictedJob, Prediction, predict};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::tier::{Machine, TierRates};

/// The arguments of `foreload plan`.
#[derive(clap::Args, Debug)]
pub(super) struct PlanArgs {
    #[arg(value_name = "DATASET", help = DATASET)]
    dir: PathBuf,
    /// How much of each node's NVMe the cache may use, e.g. 800GB; needs --cache or --rates [default: no cache]
    #[arg(long, value_parser = |text: &str| parse_bytes("cache-size", text))]
    cache_size: Option<u64>,
    /// Directory of the cache: its rates and the dataset's are measured in a few seconds. Without --rates the dataset's
    /// rates are always measured
    #[arg(long, value_name = "DIRECTORY", requires = "cache_size")]
    cache: Option<PathBuf>,
    /// Rates of the machine, as `foreload calibrate --out` writes them
    #[arg(long, value_name = "FILE.json", conflicts_with = "cache")]
    rates: Option<PathBuf>,
    /// Nodes, each with its own cache
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Ranks that share a node's cache
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: u32,
    /// Network bandwidth per node, e.g. 25Gb/s or 3GB/s: nodes read from each other's caches
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    network: Option<f64>,
    /// How the samples of a global batch are assigned to ranks: by order, or by locality to the node that caches them
    #[arg(long, default_value = "order", value_parser = ["order", "locality"], requires = "network")]
    assignment: String,
    /// Number of additional nodes to evaluate [default: half as many again]
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    more_nodes: Option<u32>,
    /// Epochs of the job
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Duration of a training step, e.g. 20ms
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_duration("consume", text))]
    consume: Duration,
    /// Price of 1000 requests to the slow tier, e.g. 0.0004 (US dollars, GET of Amazon S3 Standard): shows their cost
    #[arg(long, value_name = "PRICE", value_parser = parse_price)]
    price_per_1000: Option<f64>,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings<PlanArgs>,
}

impl TakesSettings for PlanArgs {
    const NAMES: Option<&'static [&'static str]> = Some(&[
        "split",
        "label",
        "images",
        "batch_size",
        "shuffle",
        "repeats",
        "fields",
        "queue_depth",
        "cache_fill",
        "index_dir",
        "changed",
        "bad_shards",
    ]);
    const DEFAULTS: &'static [(&'static str, &'static str)] = &[("queue_depth", "32")];
}

/// The report that `--json` prints. Later versions may add fields, but do not change the meaning of existing fields.
#[derive(Debug, Serialize)]
struct PlanReport {
    dataset: PathBuf,
    samples: u64,
    dataset_bytes: u64,
    shards: Option<u64>,
    nodes: u32,
    ranks_per_node: u32,
    epochs: u32,
    batch_size: u32,
    repeats: u32,
    consume_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<f64>,
    assignment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_1000: Option<f64>,
    machine: KnownRates,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed: Option<BlockCosts>,
    plan: Prediction,
    /// The predictions with other caches: none, half, a terabyte more, twice as much.
    others: Vec<OtherPrediction>,
    /// The predictions for other ways to fill the cache and to store the dataset, if they change anything.
    ways: Vec<Alternative>,
    more_nodes: MoreNodes,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_peers: Option<Prediction>,
    notices: Vec<Notice>,
}

#[derive(Debug, Serialize)]
struct OtherPrediction {
    /// The size as a word, relative to the requested size: "none", "half", "+1 TB" or "double".
    size: &'static str,
    #[serde(flatten)]
    plan: Prediction,
}

#[derive(Debug, Serialize)]
struct MoreNodes {
    nodes: u32,
    #[serde(flatten)]
    plan: Prediction,
}

/// Parses a network rate for clap, in bytes per second: `b` means bits, `B` means bytes.
fn parse_rate(text: &str) -> Result<f64> {
    let rate = text.trim().trim_end_matches("/s").trim_end_matches("ps");
    let (number, parts) = match rate.strip_suffix("bit").or_else(|| rate.strip_suffix('b')) {
        Some(bits) => (bits, 8.0),
        None => (rate, 1.0),
    };
    match parse_bytes("network", number) {
        Ok(rate) if rate > 0 => Ok(rate as f64 / parts),
        _ => Err(Error::config("network", format!("is {text:?}, must be a rate such as 25Gb/s or 3GB/s"))),
    }
}

fn parse_price(text: &str) -> Result<f64> {
    let price = text.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| {
        Error::config("price_per_1000", format!("is {text:?}, must be a price such as 0.0004"))
    })
}

pub(super) fn run(args: &PlanArgs) -> Result<()> {
    let checked = args.settings.validate()?;
    let known = match (&args.rates, &args.cache, args.cache_size) {
        (Some(file), ..) => rates(file)?.into(),
        (None, None, Some(_)) => {
            let message = "is set, but the speed of its drive is unknown: pass --cache or --rates";
            return Err(Error::config("cache_size", message));
        }
        (None, cache, _) => calibrate::rates(&args.dir, cache.as_deref(), measure_options(args))?,
    };
    let (source, decode_bandwidth) = (known.source, known.decode_bandwidth);
    // Without a cache, the rates of the cache's tier are not used.
    let machine = Machine { source, nvme: known.nvme.unwrap_or(source), decode_bandwidth };
    let index = DatasetIndex::open(&args.dir, &checked.index_options(Contents::Images))?;
    let notices = output::print_notices(index.notices());
    let compressed = index.block_costs();
    let by_blocks = requests_by_blocks(&index, u64::from(args.nodes) * u64::from(args.ranks_per_node));
    let mut job = job(args, &index, compressed.as_ref());
    if let Some(requests) = by_blocks.filter(|_| args.is_by_blocks()) {
        job = by_block(&job, requests);
    }
    let size = args.cache_size.unwrap_or(0);
    let mut others = vec![
        ("none", 0),
        ("half", size / 2),
        ("+1 TB", size.saturating_add(1_000_000_000_000)),
        ("double", size.saturating_mul(2)),
    ];
    others.retain(|(_, other)| *other != size && known.nvme.is_some());
    let other = |(size, cache_bytes)| OtherPrediction {
        size,
        plan: predict(&PredictedJob { cache_bytes, ..job }, &machine),
    };
    let more = args.more_nodes.unwrap_or(args.nodes.div_ceil(2));
    let more_nodes = PredictedJob { nodes: args.nodes.saturating_add(more), ..job };
    let without_peers = |_| predict(&PredictedJob { network: None, ..job }, &machine);
    let plan = predict(&job, &machine);
    let report = PlanReport {
        dataset: index.root().to_owned(),
        samples: job.samples,
        dataset_bytes: job.bytes,
        shards: job.shards,
        nodes: job.nodes,
        ranks_per_node: job.ranks_per_node,
        epochs: job.epochs,
        batch_size: job.batch_size,
        repeats: job.repeats,
        consume_seconds: job.consume_seconds,
        network: job.network,
        assignment: args.assignment.clone(),
        price_per_1000: args.price_per_1000,
        machine: known,
        compressed,
        more_nodes: MoreNodes { nodes: more, plan: predict(&more_nodes, &machine) },
        without_peers: job.network.map(without_peers),
        ways: alternatives(
            &job,
            &machine,
            &plan,
            data::pack::can_pack(&index),
            by_blocks.filter(|_| !args.is_by_blocks()),
        ),
        plan,
        others: others.into_iter().map(other).collect(),
        notices,
    };
    output::print_report(&report, args.json, describe)
}

/// The settings for measuring rates. The measurement opens the same index as the prediction. The index may change
/// between the two.
fn measure_options(args: &PlanArgs) -> LoaderOptions {
    let LoaderOptions { fields, split, queue_depth, index_dir, bad_shards, .. } = (*args.settings).clone();
    LoaderOptions { fields, split, queue_depth, index_dir, bad_shards, ..LoaderOptions::default() }
}

fn job(args: &PlanArgs, index: &DatasetIndex, compressed: Option<&BlockCosts>) -> PredictedJob {
    let (each, by_block) = (index.total_reads(), index.reads_by_block());
    let ranks = u64::from(args.nodes) * u64::from(args.ranks_per_node);
    // Each rank keeps the blocks that it has decompressed, but only if they all fit into memory.
    let fit = compressed.is_some_and(BlockCosts::fit_in_memory);
    let requests = if fit { each.min(by_block.saturating_mul(ranks)) } else { each };
    // On one node, the cache keeps all samples of a block when one rank reads the block. With several nodes, each node
    // keeps only the samples that it uses.
    let requests_kept = if args.nodes == 1 { by_block } else { requests };
    let shards = index.is_sharded().then(|| index.summaries().map(|summary| summary.groups).sum());
    PredictedJob {
        samples: index.len(),
        bytes: index.total_bytes(),
        requests,
        requests_kept,
        shards,
        charged: index.is_charged(),
        nodes: args.nodes,
        ranks_per_node: args.ranks_per_node,
        batch_size: args.settings.batch_size,
        repeats: args.settings.repeats,
        epochs: args.epochs,
        depth: args.settings.queue_depth.unwrap_or(32),
        consume_seconds: args.consume.as_secs_f64(),
        cache_bytes: args.cache_size.unwrap_or(0),
        fill: args.settings.cache.directory.fill,
        network: args.network.filter(|_| args.nodes > 1),
        by_locality: args.assignment == "locality",
    }
}

/// In an order that keeps neighbouring samples together: the bytes of the blocks at the border of two ranks' ranges,
/// which both ranks read.
const SHARED_AT_ENDS: u64 = 100 << 20;

/// The number of reads or requests with which all `ranks` together read all samples, in an order that keeps
/// neighbouring samples together. `None` if the storage is read sample by sample even in such an order, as file systems
/// are.
fn requests_by_blocks(index: &DatasetIndex, ranks: u64) -> Option<u64> {
    if !index.has_blocks() && !index.has_remote() {
        return None;
    }
    let neighbour_blocks =
        NeighbourBlocks::new(index, index.len(), |sample| sample, MAX_NEIGHBOUR_BLOCK_BYTES);
    // At each end of a rank's range, the next rank also reads the blocks that are in use there.
    let count = neighbour_blocks.len() as u64;
    let bytes: u64 = (0..neighbour_blocks.len()).map(|number| neighbour_blocks.bytes_of(number)).sum();
    let at_an_end = SHARED_AT_ENDS / (bytes / count.max(1)).max(1) + 1;
    let of_images = (count + (ranks - 1) * at_an_end.min(count)).min(index.len());
    Some(of_images + index.total_reads().saturating_sub(index.len()))
}

impl PlanArgs {
    /// Whether the epoch's order keeps neighbouring samples together.
    fn is_by_blocks(&self) -> bool {
        self.settings.shuffle == Some(Shuffling::Blocks)
    }
}

fn rates(path: &Path) -> Result<Machine> {
    let bad = |message: String| Error::config("rates", format!("{}: {message}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let mut value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| bad(format!("is not JSON: {error}")))?;
    if let Some(machine) = value.get_mut("machine") {
        value = machine.take();
    }
    let machine: Machine = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
    let rates = [
        ("source.read_bandwidth", machine.source.read_bandwidth),
        ("nvme.read_bandwidth", machine.nvme.read_bandwidth),
        ("decode_bandwidth", machine.decode_bandwidth),
    ];
    match rates.into_iter().find(|(_, rate)| rate.is_nan() || *rate <= 0.0) {
        Some((key, rate)) => Err(bad(format!("{key} is {rate}, must be more than 0 bytes per second"))),
        None => Ok(machine),
    }
}

fn describe(report: &PlanReport) -> String {
    let PlanReport { plan, others, epochs, machine, .. } = report;
    let layout = report.shards.map_or("loose files".to_owned(), |shards| format!("{shards} shards"));
    let mut lines = vec![
        format!(
            "{}: {} samples, {} in {layout}",
            report.dataset.display(),
            report.samples,
            output::bytes(report.dataset_bytes)
        ),
        format!("slow tier  {}", tier(&machine.source)),
        format!(
            "NVMe       {}",
            machine.nvme.as_ref().map_or("not measured: no cache was requested".into(), tier)
        ),
        format!("decoding   {}/s", output::bytes(machine.decode_bandwidth as u64)),
        match report.network {
            Some(rate) => format!("network    {}/s per node, to peers' caches", output::bytes(rate as u64)),
            None => "network    none: caches are private".to_owned(),
        },
        format!("fill       {} ({})", if plan.ahead { "ahead of use" } else { "on use" }, plan.fill_reason),
    ];
    lines.extend(report.compressed.as_ref().map(|costs| format!("compressed {}", output::blocks(costs))));
    lines.extend([
        String::new(),
        format!(
            "{:<12} {:>10} {:>10} {:>6} {:>10} {:>10}  limited by",
            "", "takes", "waits", "hits", "slow tier", "requests"
        ),
        epoch("first epoch", &plan.first),
        epoch("later epoch", &plan.later),
        String::new(),
        format!(
            "{:<8} {:>9} {:>6} {:>11} {:>11} {:>11} {:>10} {:>10}{}",
            "cache",
            "a node",
            "holds",
            "first",
            "later",
            "all epochs",
            "slow tier",
            "requests",
            report.price_per_1000.map_or("", |_| "      price")
        ),
    ]);
    let mut rows: Vec<(&str, &Prediction)> = others.iter().map(|other| (other.size, &other.plan)).collect();
    rows.push(("as asked", plan));
    rows.sort_by_key(|(_, plan)| plan.cache_bytes);
    let costs = |plan: &Prediction| {
        format!(
            "{:>11} {:>11} {:>11} {:>10} {:>10}{}",
            time(plan.first.seconds),
            time(plan.later.seconds),
            time(plan.seconds),
            output::bytes(plan.slow_bytes),
            count(plan.slow_requests),
            price(plan, report.price_per_1000)
        )
    };
    lines.extend(rows.into_iter().map(|(size, plan)| {
        let (bytes, held) = (output::bytes(plan.cache_bytes), 100.0 * plan.held_together);
        format!("{size:<8} {bytes:>9} {held:>5.0}% {}", costs(plan))
    }));
    if !report.ways.is_empty() {
        lines.extend([String::new(), "with this cache, but".to_owned()]);
    }
    lines.extend(report.ways.iter().map(|way| format!("{:<25} {}", way.title(), costs(&way.plan))));
    lines.push(String::new());
    lines.push(format!("{epochs} epochs take {}{}", time(plan.seconds), another_terabyte(plan, others)));
    let MoreNodes { nodes, plan: more } = &report.more_nodes;
    lines.push(format!("with {nodes} more nodes: {}", compared(more)));
    lines.extend(
        report.without_peers.as_ref().map(|private| format!("without peers' caches: {}", compared(private))),
    );
    lines.join("\n")
}

fn another_terabyte(plan: &Prediction, others: &[OtherPrediction]) -> String {
    let Some(more) = others.iter().find(|other| other.size == "+1 TB") else { return String::new() };
    let saved = plan.seconds - more.plan.seconds;
    if saved > 0.01 * plan.seconds {
        return format!("; another terabyte per node saves {}", time(saved));
    }
    let why = match plan.later.limit {
        _ if plan.held_together >= 1.0 => "the caches hold the whole dataset",
        Limit::Consumer => "the consumer is the limit",
        Limit::Decode => "decoding is the limit",
        _ => "it would add few hits",
    };
    format!("; another terabyte per node gains nothing: {why}")
}

fn compared(plan: &Prediction) -> String {
    let EpochCost { seconds, slow_bytes, limit, .. } = &plan.later;
    format!(
        "a later epoch takes {}, limited by {}, and reads {} from the slow tier; all epochs take {}",
        time(*seconds),
        limit.name(),
        output::bytes(*slow_bytes),
        time(plan.seconds)
    )
}

fn epoch(name: &str, cost: &EpochCost) -> String {
    format!(
        "{name:<12} {:>10} {:>10} {:>6.3} {:>10} {:>10}  {}",
        time(cost.seconds),
        time(cost.wait_seconds),
        cost.hits,
        output::bytes(cost.slow_bytes),
        count(cost.slow_requests),
        cost.limit.name()
    )
}

fn price(plan: &Prediction, per_1000: Option<f64>) -> String {
    per_1000.map_or(String::new(), |price| format!(" {:>10.2}", price * plan.slow_requests as f64 / 1000.0))
}

fn count(requests: u64) -> String {
    match requests {
        0..100_000 => requests.to_string(),
        100_000..100_000_000 => format!("{:.2} M", requests as f64 / 1e6),
        _ => format!("{:.0} M", requests as f64 / 1e6),
    }
}

fn tier(rates: &TierRates) -> String {
    format!(
        "{}/s; {} to open a file, {} to the first byte, {:.0} concurrent reads",
        output::bytes(rates.read_bandwidth as u64),
        time(rates.open_seconds),
        time(rates.read_seconds),
        rates.concurrency
    )
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.2} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
