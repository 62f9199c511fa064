//! The policies and the simulation that runs them and computes what each costs.

use super::access::{AccessSchedule, AccessTrace, Sizes};
use super::cache::{Belady, Lru, NeverEvict, NodeCache, PlannedCache, Shelves};
use super::clock::{self, Reading};
use super::ledger::{ByteSource, EpochCounts, Ledger, LedgerCells, NodeLedger};
use super::scenario::Scenario;
use super::shared::{self, FrequencyPlacement, SimulationWorld};
use super::{nodes, scenario};
use crate::dataset::{DatasetIndex, Fingerprint, IndexOptions};
use crate::error::{Error, Result};
use crate::tier::plan::RetentionRule;
use serde::Serialize;

/// Which samples are kept where, and how they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Reading takes no time: Σ over steps of the slowest node's bytes / c. Nothing can be faster.
    LowerBound,
    /// Every sample comes from the slow tier when it is needed, one after the other.
    Naive,
    /// Every sample comes from the slow tier, read ahead by the staging threads as far as the staging buffer reaches.
    StagingPool,
    /// Private caches are filled with what is read, and evict the least recently used sample.
    Lru,
    /// Private caches are filled with what is read until they are full.
    NeverEvict,
    /// Private caches are filled with what is read, and evict the sample whose next use is the furthest away.
    Belady,
    /// NoPFS: each node prefetches what it will use most often, and nodes read from each other.
    Frequency,
    /// Foreload takes, of the placements that a deployment can do, the one with the least predicted time.
    Foreload,
}

impl Policy {
    /// All policies, in the order of tables.
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

    /// The name on the command line.
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

    /// Finds the policy of this name.
    ///
    /// # Errors
    /// [`Error::Config`], which lists the names there are.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|policy| policy.name()).collect();
            Error::config("policies", format!("has {name:?}, must be of {}", names.join(", ")))
        })
    }
}

/// What a policy costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    /// The policy.
    pub policy: Policy,
    /// The seconds of all epochs.
    pub seconds: f64,
    /// The seconds more than the lower bound: how long storage holds the consumers up.
    pub stall_seconds: f64,
    /// The share of all used samples that a cache served, on the node or on another; a step's repeats on a node count
    /// once.
    pub hits: f64,
    /// The share that a cache of the node itself served.
    pub local_hits: f64,
    /// The bytes that left the slow tier.
    pub slow_bytes: u64,
    /// The epochs one by one.
    pub epochs: Vec<EpochOutcome>,
    /// Which placement was chosen, and why; only for `foreload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// What one epoch costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochOutcome {
    /// The seconds of the epoch.
    pub seconds: f64,
    /// The seconds more than the lower bound.
    pub stall_seconds: f64,
    /// The share of the used samples that a cache served.
    pub hits: f64,
    /// The bytes that left the slow tier.
    pub slow_bytes: u64,
}

/// A scenario that is ready to run, with its sizes and its order.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    sizes: Sizes,
    accesses: AccessSchedule,
    cells: LedgerCells,
}

/// A cache that one node has for itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PrivateCache {
    /// There is no cache: every byte comes from the slow tier.
    Direct,
    Lru,
    NeverEvict,
    Belady,
    Planned(RetentionRule),
}

/// What one walk over all nodes gave: a ledger for each kind of private cache that some policy has.
struct NodeWalk {
    ledgers: Vec<(PrivateCache, Ledger)>,
    /// When the cells end without any stall.
    least: Vec<f64>,
}

impl NodeWalk {
    fn ledger(&self, kind: PrivateCache) -> &Ledger {
        let found = self.ledgers.iter().find(|(known, _)| *known == kind);
        &found.expect("a ledger for each kind that was asked for").1
    }
}

impl Simulation {
    /// Prepares `scenario`; opens (or builds) the index of its dataset if it names one.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::open`]; [`Error::Config`] when the dataset is smaller than a global batch.
    pub fn new(scenario: Scenario) -> Result<Self> {
        scenario.check()?;
        let (sizes, fingerprint) = dataset(&scenario.dataset)?;
        let accesses = AccessSchedule::new(&scenario, fingerprint, sizes.samples())?;
        let cells = LedgerCells::of(&scenario, &accesses);
        Ok(Self { scenario, sizes, accesses, cells })
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The sizes of the samples.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Which node uses which sample when.
    pub fn accesses(&self) -> &AccessSchedule {
        &self.accesses
    }

    /// Computes what each of `policies` costs.
    pub fn run(&self, policies: &[Policy]) -> Vec<PolicyOutcome> {
        let frequency = policies.contains(&Policy::Frequency).then(|| FrequencyPlacement::new(self.world()));
        let walk = self.walk(policies, frequency.as_ref());
        let outcome = |&policy| {
            let price = |ledger, reading| self.priced(policy, &walk.least, ledger, reading);
            match (policy, &frequency) {
                (Policy::LowerBound, _) => price(walk.ledger(PrivateCache::Direct), Reading::Perfect),
                (Policy::Naive, _) => price(walk.ledger(PrivateCache::Direct), Reading::OnDemand),
                (Policy::StagingPool, _) => price(walk.ledger(PrivateCache::Direct), Reading::Ahead),
                (Policy::Lru, _) => price(walk.ledger(PrivateCache::Lru), Reading::Ahead),
                (Policy::NeverEvict, _) => price(walk.ledger(PrivateCache::NeverEvict), Reading::Ahead),
                (Policy::Belady, _) => price(walk.ledger(PrivateCache::Belady), Reading::Ahead),
                (Policy::Frequency, Some(frequency)) => price(&frequency.ledger(), Reading::Ahead),
                (Policy::Frequency, None) | (Policy::Foreload, _) => self.cheapest(&walk),
            }
        };
        policies.iter().map(outcome).collect()
    }

    fn world(&self) -> SimulationWorld<'_> {
        SimulationWorld {
            scenario: &self.scenario,
            sizes: &self.sizes,
            accesses: &self.accesses,
            cells: self.cells,
        }
    }

    /// Goes once through the accesses of every node for all `policies` together, because finding the accesses is most
    /// of the work.
    fn walk(&self, policies: &[Policy], frequency: Option<&FrequencyPlacement>) -> NodeWalk {
        let kind = |policy: &Policy| match policy {
            Policy::Lru => Some(PrivateCache::Lru),
            Policy::NeverEvict => Some(PrivateCache::NeverEvict),
            Policy::Belady => Some(PrivateCache::Belady),
            Policy::Foreload if !self.peers_suffice() => Some(PrivateCache::Planned(self.rule())),
            _ => None,
        };
        let kinds: Vec<PrivateCache> =
            std::iter::once(PrivateCache::Direct).chain(policies.iter().filter_map(kind)).collect();
        let nodes = nodes::each(self.scenario.nodes, |node| {
            let trace = self.accesses.trace(node, &self.sizes);
            if let Some(frequency) = frequency {
                frequency.publish(&trace);
            }
            kinds.iter().map(|&kind| self.private(kind, &trace)).collect::<Vec<_>>()
        });
        let mut by_kind: Vec<Vec<NodeLedger>> = kinds.iter().map(|_| Vec::new()).collect();
        for node in nodes {
            by_kind.iter_mut().zip(node).for_each(|(all, ledger)| all.push(ledger));
        }
        let ledgers = by_kind.into_iter().map(|nodes| Ledger::new(self.cells, nodes));
        let ledgers: Vec<_> = kinds.into_iter().zip(ledgers).collect();
        let least = clock::ends(&self.scenario, &ledgers[0].1, Reading::Perfect);
        NodeWalk { ledgers, least }
    }

    /// The ledger of a node with a private cache of this kind.
    fn private(&self, kind: PrivateCache, trace: &AccessTrace) -> NodeLedger {
        let shelves = || Shelves::of(&self.scenario);
        let mut cache: Box<dyn NodeCache> = match kind {
            PrivateCache::Direct => Box::new(NeverEvict::new(Shelves::new(Vec::new()), trace)),
            PrivateCache::Lru => Box::new(Lru::new(shelves(), trace)),
            PrivateCache::NeverEvict => Box::new(NeverEvict::new(shelves(), trace)),
            PrivateCache::Belady => Box::new(Belady::new(shelves(), trace)),
            PrivateCache::Planned(rule) => {
                let capacities = self.scenario.cache.iter().map(|cache| cache.capacity.0).collect();
                Box::new(PlannedCache::new(rule, capacities, trace))
            }
        };
        let mut ledger = NodeLedger::new(self.cells);
        for (access, &id) in trace.ids.iter().enumerate() {
            if trace.is_again(access) {
                ledger.used_again(trace.step(access), trace.bytes[id as usize]);
                continue;
            }
            let source = cache.access(trace, access).map_or(ByteSource::Slow, ByteSource::Local);
            ledger.read(trace.step(access), source, trace.bytes[id as usize]);
        }
        ledger
    }

    /// The rule of private caches. Groups are as long as those of [`RetentionRule::best`], counted in accesses of the
    /// node.
    fn rule(&self) -> RetentionRule {
        let each = self.accesses.steps() * u64::from(self.scenario.node_batch());
        if self.scenario.epochs_between_uses() == 1 || self.scenario.node_cache() >= self.sizes.total() {
            RetentionRule::Keep
        } else {
            RetentionRule::NextUse { moments: (each / 8).max(1) }
        }
    }

    /// Whether the caches of all nodes hold the dataset and peers are no slower than the slow tier that they spare.
    /// Then nothing is read twice from the slow tier, and no other placement needs a price.
    fn peers_suffice(&self) -> bool {
        let Scenario { nodes, slow, network, .. } = &self.scenario;
        let all = self.held_together() >= 1.0;
        *nodes > 1 && all && network.is_some_and(|network| network.0 >= slow.share(*nodes))
    }

    /// The share of the dataset that the caches of all nodes hold.
    fn held_together(&self) -> f64 {
        self.scenario.node_cache() * f64::from(self.scenario.nodes) / self.sizes.total()
    }

    /// Computes the cost of each placement that a deployment can do, and takes the cheapest. Between equal costs it
    /// takes the one that reads less from the slow tier.
    fn cheapest(&self, walk: &NodeWalk) -> PolicyOutcome {
        let price = |ledger: &Ledger, chosen: String| {
            let outcome = self.priced(Policy::Foreload, &walk.least, ledger, Reading::AllAhead);
            PolicyOutcome { chosen: Some(chosen), ..outcome }
        };
        let mut candidates = Vec::new();
        if self.scenario.network.is_some() && self.scenario.nodes > 1 {
            let percent = 100.0 * self.held_together().min(1.0);
            let held = format!("peers: one copy of {percent:.0} % of the dataset in the caches of all nodes");
            candidates.push(price(&shared::one_copy(self.world()), held));
        }
        if !self.peers_suffice() {
            let rule = self.rule();
            let held = match (self.scenario.nodes, rule) {
                (1, RetentionRule::Keep) => "one node: it keeps what came first",
                (1, RetentionRule::NextUse { .. }) => "one node: it keeps what it uses soonest",
                (_, RetentionRule::Keep) => "private caches: each holds the dataset",
                (_, RetentionRule::NextUse { .. }) => "private caches: each keeps what its node uses soonest",
            };
            candidates.push(price(walk.ledger(PrivateCache::Planned(rule)), held.to_owned()));
        }
        let cost = |outcome: &PolicyOutcome| (outcome.seconds, outcome.slow_bytes);
        let order = |a: &PolicyOutcome, b: &PolicyOutcome| {
            cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)
        };
        candidates.into_iter().min_by(order).expect("there is always one")
    }

    /// What `ledger` costs when it is read like `reading`; `least` says when the cells end without any stall.
    fn priced(&self, policy: Policy, least: &[f64], ledger: &Ledger, reading: Reading) -> PolicyOutcome {
        let ends = clock::ends(&self.scenario, ledger, reading);
        let at = |ends: &[f64], epoch: u64| match (epoch * self.cells.per_epoch) as usize {
            0 => 0.0,
            cell => ends[cell - 1],
        };
        let during = |ends: &[f64], epoch| at(ends, epoch + 1) - at(ends, epoch);
        let count = |epoch| match (ledger.count(epoch as usize), reading) {
            // The bound reads for free: every use counts as served by the node's own cache.
            (count, Reading::Perfect) => EpochCounts { local: count.uses, slow_bytes: 0.0, ..count },
            (count, _) => count,
        };
        let counts: Vec<EpochCounts> = (0..self.accesses.epochs()).map(count).collect();
        let epochs = (0..).zip(&counts).map(|(epoch, count)| EpochOutcome {
            seconds: during(&ends, epoch),
            stall_seconds: (during(&ends, epoch) - during(least, epoch)).max(0.0),
            hits: count.hits(),
            slow_bytes: count.slow_bytes as u64,
        });
        let mut all = EpochCounts::default();
        counts.iter().for_each(|count| all.add(count));
        let seconds = at(&ends, self.accesses.epochs());
        PolicyOutcome {
            policy,
            seconds,
            stall_seconds: (seconds - at(least, self.accesses.epochs())).max(0.0),
            hits: all.hits(),
            local_hits: all.local as f64 / all.uses.max(1) as f64,
            slow_bytes: all.slow_bytes as u64,
            epochs: epochs.collect(),
            chosen: None,
        }
    }
}

/// The sizes and the fingerprint of the dataset that a scenario names.
fn dataset(dataset: &scenario::DatasetSpec) -> Result<(Sizes, Fingerprint)> {
    let Some(root) = &dataset.index else {
        return Ok((Sizes::normal(dataset), Fingerprint([0; 32])));
    };
    let index = DatasetIndex::open(root, &IndexOptions { progress: true, ..IndexOptions::default() })?;
    Ok((Sizes::of_index(&index), index.fingerprint()))
}
