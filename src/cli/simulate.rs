//! The command `foreload simulate`, which computes the cost of a training under each policy, as a table, JSON and a
//! plot.

use super::{output, plot};
use base::error::Result;
use base::names::NamedValue;
use serde::Serialize;
use simulate::{Policy, PolicyOutcome, Scenario, Simulation, counts};
use std::path::PathBuf;
use std::time::Instant;

/// The arguments of `foreload simulate`.
#[derive(clap::Args, Debug)]
pub(super) struct SimulateArgs {
    /// nopfs-1, nopfs-2, nopfs-3, nopfs-4 or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    scenario: String,
    /// Policies to run, e.g. naive,lru,foreload [default: all]
    #[arg(long, value_delimiter = ',', value_parser = Policy::parse)]
    policies: Vec<Policy>,
    /// Nodes, instead of the scenario's
    #[arg(long)]
    nodes: Option<u32>,
    /// Epochs, instead of the scenario's
    #[arg(long)]
    epochs: Option<u32>,
    /// Samples, instead of the scenario's
    #[arg(long)]
    samples: Option<u64>,
    /// Samples per rank and step, instead of the scenario's
    #[arg(long)]
    batch_size: Option<u32>,
    /// How many times each sample occurs in a global batch, instead of the scenario's
    #[arg(long)]
    repeats: Option<u32>,
    /// Seed of the order, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Count the samples that a node uses more often than this [default: 1.1 times the mean]
    #[arg(long)]
    above: Option<u32>,
    /// Plot the seconds and stalls of each policy, and its epochs
    #[arg(long, value_name = "FILE.svg", value_parser = plot::svg_path)]
    plot: Option<PathBuf>,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
}

/// The report that `--json` prints. Later versions may add fields, but do not change the meaning of existing fields.
#[derive(Debug, Serialize)]
struct SimulateReport {
    scenario: String,
    nodes: u32,
    repeats: u32,
    epochs: u32,
    samples: u64,
    dataset_bytes: u64,
    /// The bytes of a node's caches, averaged over all nodes.
    node_cache_bytes: u64,
    accesses: AccessReport,
    simulated_in_seconds: f64,
    policies: Vec<PolicyOutcome>,
}

/// How often a node uses a sample. Repeats of a sample in one step count once.
#[derive(Debug, Serialize)]
struct AccessReport {
    /// The mean number of uses of a sample by a node in all epochs.
    mean: f64,
    above: u32,
    /// The expected number of samples with more than `above` uses, by the binomial distribution.
    expected: f64,
    /// The number of samples with more than `above` uses on the first node, in this schedule.
    counted: u64,
    /// The share of local hits if a node caches its most frequently used samples.
    frequency_hits: f64,
    /// The share of local hits if a node caches the same number of arbitrary samples.
    random_hits: f64,
}

pub(super) fn run(args: &SimulateArgs) -> Result<()> {
    let started = Instant::now();
    let simulation = Simulation::new(scenario(args)?)?;
    let mut policies = args.policies.clone();
    if policies.is_empty() {
        policies.extend(Policy::NAMES.iter().map(|(_, policy)| *policy).filter(|&policy| {
            match simulation.can(policy) {
                Ok(()) => true,
                Err(error) => {
                    eprintln!("note: skipped: {error}");
                    false
                }
            }
        }));
    }
    let outcomes = simulation.run(&policies)?;
    let scenario = simulation.scenario();
    let report = SimulateReport {
        scenario: scenario.name.clone(),
        nodes: scenario.nodes,
        repeats: scenario.repeats,
        epochs: scenario.epochs,
        samples: simulation.sizes().samples(),
        dataset_bytes: simulation.sizes().total() as u64,
        node_cache_bytes: (scenario.all_caches() / f64::from(scenario.nodes)) as u64,
        accesses: AccessReport::of(&simulation, args.above),
        simulated_in_seconds: started.elapsed().as_secs_f64(),
        policies: outcomes,
    };
    if let Some(path) = &args.plot {
        plot::outcomes(path, &report.scenario, &report.policies)?;
    }
    output::print_report(&report, args.json, describe)
}

fn scenario(args: &SimulateArgs) -> Result<Scenario> {
    let mut scenario = Scenario::load(&args.scenario)?;
    scenario.nodes = args.nodes.unwrap_or(scenario.nodes);
    scenario.epochs = args.epochs.unwrap_or(scenario.epochs);
    scenario.dataset.samples = args.samples.unwrap_or(scenario.dataset.samples);
    scenario.batch_size = args.batch_size.unwrap_or(scenario.batch_size);
    scenario.repeats = args.repeats.unwrap_or(scenario.repeats);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    Ok(scenario)
}

impl AccessReport {
    fn of(simulation: &Simulation, above: Option<u32>) -> Self {
        let (epochs, nodes) = (simulation.scenario().epochs, simulation.scenario().epochs_between_uses());
        let mean = f64::from(epochs) / f64::from(nodes);
        let above = above.unwrap_or((1.1 * mean) as u32);
        let cached = (simulation.scenario().node_cache(0) / simulation.sizes().total()).min(1.0);
        Self {
            mean,
            above,
            expected: counts::expected_above(epochs, nodes, simulation.sizes().samples(), above),
            counted: counts::counted_above(simulation.accesses(), simulation.sizes(), above),
            frequency_hits: counts::frequency_hits(epochs, nodes, cached),
            random_hits: cached,
        }
    }
}

fn describe(report: &SimulateReport) -> String {
    let SimulateReport { scenario, nodes, epochs, samples, accesses, .. } = report;
    let names = report.policies.first().map(|outcome| &outcome.tiers[..]).unwrap_or_default();
    let tiers: String = names.iter().map(|tier| format!(" {:>9}", tier.name)).collect();
    let repeats =
        if report.repeats > 1 { format!(" with {} repeats", report.repeats) } else { String::new() };
    let mut lines = vec![
        format!(
            "{scenario}: {nodes} nodes, {samples} samples of {}, {} in all, {epochs} epochs{repeats}; caches of {} a \
             node",
            output::bytes(report.dataset_bytes / (*samples).max(1)),
            output::bytes(report.dataset_bytes),
            output::bytes(report.node_cache_bytes)
        ),
        format!(
            "a node uses a sample {:.2} times on average, {} samples more than {} times ({:.1} expected); its caches \
             hit {:.3} if they hold those, {:.3} if they hold random samples",
            accesses.mean,
            accesses.counted,
            accesses.above,
            accesses.expected,
            accesses.frequency_hits,
            accesses.random_hits
        ),
        String::new(),
        format!(
            "{:<14} {:>10} {:>10} {:>7} {:>6} {:>6} {:>9}{tiers} {:>9} {:>9}",
            "policy", "seconds", "stall", "stall %", "hits", "local", "slow tier", "network", "at most"
        ),
    ];
    for outcome in &report.policies {
        let tiers = outcome.tiers.iter().map(|tier| output::bytes(tier.local_bytes + tier.peer_bytes));
        let tiers: String = tiers.map(|bytes| format!(" {bytes:>9}")).collect();
        lines.push(format!(
            "{:<14} {:>10.2} {:>10.2} {:>7.1} {:>6.3} {:>6.3} {:>9}{tiers} {:>9} {:>9}",
            outcome.policy.name(),
            outcome.seconds,
            outcome.stall_seconds,
            100.0 * outcome.stall_seconds / outcome.seconds.max(f64::MIN_POSITIVE),
            outcome.hits,
            outcome.local_hits,
            output::bytes(outcome.slow_bytes),
            output::bytes(outcome.network.mean),
            output::bytes(outcome.network.max),
        ));
    }
    lines.push("\nslow tier and caches: bytes that all nodes read there; network: bytes per node".into());
    lines.extend(report.policies.iter().filter_map(|outcome| {
        Some(format!("\n{} chose {}", outcome.policy.name(), outcome.chosen.as_ref()?))
    }));
    lines.push(format!("\nsimulated in {:.1} s", report.simulated_in_seconds));
    lines.join("\n")
}
