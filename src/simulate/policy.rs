//! The policies, what each costs, and the simulation that runs them.

use super::access::{Accesses, Sizes};
use super::cache::{Belady, Lru, NeverEvict, NodeCache, Planned, Shelves};
use super::clock::{self, Reading};
use super::ledger::{Cells, Ledger, NodeLedger, Source};
use super::scenario::Scenario;
use super::shared::{self, World};
use super::{nodes, scenario};
use crate::dataset::{DatasetIndex, Fingerprint, IndexOptions};
use crate::error::{Error, Result};
use crate::tier::plan::Rule;
use serde::Serialize;

/// Who keeps what, and how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// No reading takes time: Σ over steps of the slowest node's bytes / c. Nothing can be faster.
    LowerBound,
    /// Every sample from the slow tier when it is needed, one after the other.
    Naive,
    /// Every sample from the slow tier, read ahead by the staging threads as far as the staging buffer reaches.
    StagingPool,
    /// Private caches, filled with what is read; whoever was used longest ago leaves.
    Lru,
    /// Private caches, filled with what is read until they are full.
    NeverEvict,
    /// Private caches, filled with what is read; whoever is used last in the known future leaves.
    Belady,
    /// NoPFS: each node prefetches what it will use most often; nodes read from each other.
    Frequency,
    /// This program: of the placements that a deployment can do, the one with the least predicted time.
    Foreload,
}

impl Policy {
    /// All, as tables list them.
    pub const ALL: [Self; 8] = [
        Self::LowerBound,
        Self::Naive,
        Self::StagingPool,
        Self::Lru,
        Self::NeverEvict,
        Self::Belady,
        Self::Frequency,
        Self::Foreload,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LowerBound => "lower-bound",
            Self::Naive => "naive",
            Self::StagingPool => "staging-pool",
            Self::Lru => "lru",
            Self::NeverEvict => "never-evict",
            Self::Belady => "belady",
            Self::Frequency => "frequency",
            Self::Foreload => "foreload",
        }
    }

    /// The policy called so.
    ///
    /// # Errors
    /// [`Error::Config`] that lists the names there are.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|policy| policy.name()).collect();
            Error::config("policies", format!("has {name:?}, must be of {}", names.join(", ")))
        })
    }
}

/// What a policy costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: Policy,
    /// Seconds of all epochs.
    pub seconds: f64,
    /// Of them, seconds more than the lower bound: how long storage holds the consumers up.
    pub stall_seconds: f64,
    /// Share of all samples used that a cache gave, on the node or on another.
    pub hits: f64,
    /// Share that a cache of the node itself gave.
    pub local_hits: f64,
    /// Bytes that left the slow tier.
    pub slow_bytes: u64,
    /// The epochs one by one.
    pub epochs: Vec<EpochOutcome>,
    /// Which placement was chosen, and why; of `foreload` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// One epoch of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochOutcome {
    /// Seconds.
    pub seconds: f64,
    /// Seconds more than the lower bound.
    pub stall_seconds: f64,
    /// Share of the samples used that a cache gave.
    pub hits: f64,
    /// Bytes that left the slow tier.
    pub slow_bytes: u64,
}

/// A scenario made ready: its order, its sizes, and the time without any stall.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    sizes: Sizes,
    accesses: Accesses,
    cells: Cells,
    /// Every byte from the slow tier: what the first three policies read.
    direct: Ledger,
    /// When cells end without any stall.
    least: Vec<f64>,
}

/// A cache that a node has to itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Private {
    Lru,
    NeverEvict,
    Belady,
    Planned(Rule),
}

impl Simulation {
    /// Makes `scenario` ready; opens (or builds) the index of its dataset if it names one.
    ///
    /// # Errors
    /// Those of [`DatasetIndex::open`]; [`Error::Config`] when the dataset is smaller than a global batch.
    pub fn new(scenario: Scenario) -> Result<Self> {
        scenario.check()?;
        let (sizes, fingerprint) = dataset(&scenario.dataset)?;
        let accesses = Accesses::new(&scenario, fingerprint, sizes.samples())?;
        let cells = Cells::of(&scenario, &accesses);
        let direct = |node| {
            let mut ledger = NodeLedger::new(cells);
            for epoch in 0..accesses.epochs() {
                for (step, sample) in accesses.of_node(epoch, node) {
                    ledger.read(epoch * accesses.steps() + step, Source::Slow, sizes.get(sample) as f32);
                }
            }
            ledger
        };
        let direct = Ledger::new(cells, nodes::each(scenario.nodes, direct));
        let least = clock::ends(&scenario, &direct, Reading::Perfect);
        Ok(Self { scenario, sizes, accesses, cells, direct, least })
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Bytes of the dataset.
    pub fn dataset_bytes(&self) -> f64 {
        self.sizes.total()
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.sizes.samples()
    }

    /// Who uses what when.
    pub fn accesses(&self) -> &Accesses {
        &self.accesses
    }

    /// Seconds that the best policy takes at least.
    pub fn lower_bound(&self) -> f64 {
        self.least.last().copied().unwrap_or(0.0)
    }

    /// What each of `policies` costs.
    pub fn run(&self, policies: &[Policy]) -> Vec<Outcome> {
        policies.iter().map(|&policy| self.outcome(policy)).collect()
    }

    fn outcome(&self, policy: Policy) -> Outcome {
        match policy {
            Policy::LowerBound => self.priced(policy, &self.direct, Reading::Perfect),
            Policy::Naive => self.priced(policy, &self.direct, Reading::OnDemand),
            Policy::StagingPool => self.priced(policy, &self.direct, Reading::Ahead),
            Policy::Lru => self.priced(policy, &self.private(Private::Lru), Reading::Ahead),
            Policy::NeverEvict => self.priced(policy, &self.private(Private::NeverEvict), Reading::Ahead),
            Policy::Belady => self.priced(policy, &self.private(Private::Belady), Reading::Ahead),
            Policy::Frequency => {
                self.priced(policy, &shared::by_frequency(self.world(), &self.least), Reading::Ahead)
            }
            Policy::Foreload => self.cheapest(),
        }
    }

    fn world(&self) -> World<'_> {
        World { scenario: &self.scenario, sizes: &self.sizes, accesses: &self.accesses, cells: self.cells }
    }

    /// What private caches of all nodes give.
    fn private(&self, kind: Private) -> Ledger {
        let node = |node| {
            let trace = self.accesses.trace(node, &self.sizes);
            let shelves = Shelves::of(&self.scenario);
            let mut cache: Box<dyn NodeCache> = match kind {
                Private::Lru => Box::new(Lru::new(shelves, &trace)),
                Private::NeverEvict => Box::new(NeverEvict::new(shelves, &trace)),
                Private::Belady => Box::new(Belady::new(shelves, &trace)),
                Private::Planned(rule) => {
                    let capacities = self.scenario.cache.iter().map(|cache| cache.capacity.0).collect();
                    Box::new(Planned::new(rule, capacities, &trace))
                }
            };
            let mut ledger = NodeLedger::new(self.cells);
            for (access, &id) in trace.ids.iter().enumerate() {
                let source = cache.access(&trace, access).map_or(Source::Slow, Source::Local);
                ledger.read(trace.step(access), source, trace.bytes[id as usize]);
            }
            ledger
        };
        Ledger::new(self.cells, nodes::each(self.scenario.nodes, node))
    }

    /// Prices what a deployment can do, and takes the cheapest; of equals the one that reads less from the slow tier.
    fn cheapest(&self) -> Outcome {
        let price = |ledger: &Ledger, chosen: String| {
            let outcome = self.priced(Policy::Foreload, ledger, Reading::AllAhead);
            Outcome { chosen: Some(chosen), ..outcome }
        };
        let Scenario { nodes, slow, network, .. } = &self.scenario;
        let mut candidates = Vec::new();
        if let Some(network) = network.filter(|_| *nodes > 1) {
            let together = self.scenario.node_cache() * f64::from(*nodes);
            let all = together >= self.dataset_bytes();
            let share = (together / self.dataset_bytes()).min(1.0);
            let held = format!(
                "peers: one copy of {:.0} % of the dataset in the caches of all nodes",
                100.0 * share
            );
            candidates.push(price(&shared::one_copy(self.world()), held));
            if all && network.0 >= slow.share(*nodes) {
                // Nothing is read twice, and peers are not slower than what they spare.
                return candidates.remove(0);
            }
        }
        let per_node = self.accesses.steps() * u64::from(self.scenario.node_batch());
        let rules = match nodes {
            1 => vec![(Rule::Keep, "one node: it keeps what came first")],
            _ => vec![
                // As long as the groups of `Rule::best`, in accesses of the node.
                (
                    Rule::NextUse { moments: (per_node / 8).max(1) },
                    "private caches keep what is used soonest",
                ),
            ],
        };
        for (rule, held) in rules {
            candidates.push(price(&self.private(Private::Planned(rule)), held.to_owned()));
        }
        let cost = |outcome: &Outcome| (outcome.seconds, outcome.slow_bytes);
        let better =
            |a: &Outcome, b: &Outcome| cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal);
        candidates.into_iter().min_by(better).expect("at least one candidate")
    }

    fn priced(&self, policy: Policy, ledger: &Ledger, reading: Reading) -> Outcome {
        let ends = clock::ends(&self.scenario, ledger, reading);
        let at = |ends: &[f64], epoch: u64| match (epoch * self.cells.per_epoch) as usize {
            0 => 0.0,
            cell => ends[cell - 1],
        };
        let during = |ends: &[f64], epoch| at(ends, epoch + 1) - at(ends, epoch);
        let perfect = reading == Reading::Perfect;
        let (mut uses, mut local, mut hit, mut slow) = (0, 0, 0, 0.0);
        let epochs = (0..self.accesses.epochs()).map(|epoch| {
            let count = ledger.count(epoch as usize);
            let hits = if perfect { count.uses } else { count.local + count.peer };
            let slow_bytes = if perfect { 0.0 } else { count.slow_bytes };
            uses += count.uses;
            local += if perfect { count.uses } else { count.local };
            hit += hits;
            slow += slow_bytes;
            let seconds = during(&ends, epoch);
            EpochOutcome {
                seconds,
                stall_seconds: (seconds - during(&self.least, epoch)).max(0.0),
                hits: share(hits, count.uses),
                slow_bytes: slow_bytes as u64,
            }
        });
        let epochs = epochs.collect();
        let seconds = ends.last().copied().unwrap_or(0.0);
        Outcome {
            policy,
            seconds,
            stall_seconds: (seconds - self.lower_bound()).max(0.0),
            hits: share(hit, uses),
            local_hits: share(local, uses),
            slow_bytes: slow as u64,
            epochs,
            chosen: None,
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Sizes and fingerprint of what a scenario names.
fn dataset(dataset: &scenario::Dataset) -> Result<(Sizes, Fingerprint)> {
    let Some(root) = &dataset.index else {
        return Ok((Sizes::normal(dataset), Fingerprint([0; 32])));
    };
    let index = DatasetIndex::open(root, &IndexOptions { progress: true, ..IndexOptions::default() })?;
    Ok((Sizes::of_index(&index), index.fingerprint()))
}
