//! Simulates a scenario: one pass over the nodes for all policies, then the cost of each policy.

use super::access::{AccessSchedule, AccessTrace, Sizes};
use super::cache::{Belady, CacheSpace, Lru, NeverEvict, NodeCache, PlannedCache};
use super::clock::{self, ReadMode};
use super::outcome::{CostInput, PolicyOutcome};
use super::owner;
use super::policy::Policy;
use super::scenario::Scenario;
use super::shared::{self, FrequencyPlacement, PolicyInput};
use super::traffic::{ByteSource, NodeTraffic, TrafficCells, TrafficTable};
use super::{next_use, nodes, scenario};
use base::error::{Error, Result};
use data::dataset::{DatasetIndex, Fingerprint, IndexOptions};
use data::schedule::Assignment;
use store::tier::plan::RetentionRule;

/// A scenario ready to run, with sample sizes and order.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    sizes: Sizes,
    fingerprint: Fingerprint,
    accesses: AccessSchedule,
    cells: TrafficCells,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum PrivateCache {
    Direct,
    Lru,
    NeverEvict,
    Belady,
    Planned,
}

struct PolicyTraffic<'a> {
    private: Vec<(PrivateCache, TrafficTable)>,
    by_owner: Vec<(Assignment, TrafficTable)>,
    frequency: Option<FrequencyPlacement<'a>>,
    /// Time at which each cell (one or more steps) ends, in seconds, if no consumer ever waits.
    least: Vec<f64>,
}

impl PolicyTraffic<'_> {
    fn private(&self, kind: PrivateCache) -> &TrafficTable {
        let found = self.private.iter().find(|(known, _)| *known == kind);
        &found.expect("a table for each requested kind").1
    }

    fn by_owner(&self, assignment: Assignment) -> &TrafficTable {
        let found = self.by_owner.iter().find(|(known, _)| *known == assignment);
        &found.expect("a table for each requested assignment").1
    }
}

/// Maximum number of accesses, of all nodes together, that [`Policy::NextUsePeers`] may keep in memory (about 2 GB).
const MAX_ACCESSES: u64 = 100_000_000;

impl Simulation {
    /// Prepares `scenario`. If the scenario names a dataset, opens or builds the index of that dataset.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::open`]; [`Error::Config`] if the dataset is smaller than a global batch.
    pub fn new(scenario: Scenario) -> Result<Self> {
        scenario.check()?;
        let (sizes, fingerprint) = dataset(&scenario.dataset)?;
        let accesses = AccessSchedule::new(&scenario, fingerprint, sizes.samples())?;
        let cells = TrafficCells::of(&scenario, &accesses);
        Ok(Self { scenario, sizes, fingerprint, accesses, cells })
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the sizes of the samples.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns which node uses which sample when.
    pub fn accesses(&self) -> &AccessSchedule {
        &self.accesses
    }

    /// Checks that a policy can be simulated in this scenario.
    ///
    /// # Errors
    /// [`Error::Config`] with the reason.
    pub fn can(&self, policy: Policy) -> Result<()> {
        use Policy::{FirstUser, NextUsePeers, Owner, OwnerLocality};
        let bad =
            |message: String| Err(Error::config("policies", format!("has {}: {message}", policy.name())));
        let shared = matches!(policy, NextUsePeers | FirstUser | Owner | OwnerLocality);
        if shared && self.scenario.network.is_none() {
            return bad("it needs a network between nodes: set network in the scenario".into());
        }
        let accesses = self.accesses.steps() * self.accesses.epochs() * self.scenario.global_batch();
        if policy == NextUsePeers && accesses > MAX_ACCESSES {
            return bad(format!(
                "it keeps all nodes' accesses in memory, and {accesses} are too many: use fewer samples or epochs"
            ));
        }
        Ok(())
    }

    /// Computes the cost of each of `policies`.
    ///
    /// # Errors
    /// The errors of [`Simulation::can`].
    pub fn run(&self, policies: &[Policy]) -> Result<Vec<PolicyOutcome>> {
        policies.iter().try_for_each(|&policy| self.can(policy))?;
        let node_traffic = self.node_traffic(policies)?;
        policies.iter().map(|&policy| self.outcome(policy, &node_traffic)).collect()
    }

    fn outcome(&self, policy: Policy, node_traffic: &PolicyTraffic) -> Result<PolicyOutcome> {
        let price =
            |traffic: &TrafficTable, reading| self.priced(policy, &node_traffic.least, traffic, reading);
        Ok(match (policy, &node_traffic.frequency) {
            (Policy::LowerBound, _) => price(node_traffic.private(PrivateCache::Direct), ReadMode::Perfect),
            (Policy::Naive, _) => price(node_traffic.private(PrivateCache::Direct), ReadMode::OnDemand),
            (Policy::StagingPool, _) => price(node_traffic.private(PrivateCache::Direct), ReadMode::Ahead),
            (Policy::Lru, _) => price(node_traffic.private(PrivateCache::Lru), ReadMode::Ahead),
            (Policy::NeverEvict, _) => price(node_traffic.private(PrivateCache::NeverEvict), ReadMode::Ahead),
            (Policy::Belady, _) => price(node_traffic.private(PrivateCache::Belady), ReadMode::Ahead),
            (Policy::NextUse, _) => price(node_traffic.private(PrivateCache::Planned), ReadMode::AllAhead),
            (Policy::NextUsePeers, _) => {
                price(&next_use::traffic(self.input(), |node| self.rule(node)), ReadMode::AllAhead)
            }
            (Policy::FirstUser, _) => price(&shared::first_user(self.input()), ReadMode::AllAhead),
            (Policy::Owner, _) => price(node_traffic.by_owner(Assignment::Order), ReadMode::AllAhead),
            (Policy::OwnerLocality, _) => {
                price(node_traffic.by_owner(Assignment::Locality), ReadMode::AllAhead)
            }
            (Policy::Frequency, Some(frequency)) => price(&frequency.traffic(), ReadMode::Ahead),
            (Policy::Frequency, None) | (Policy::Foreload, _) => self.cheapest(node_traffic),
        })
    }

    fn input(&self) -> PolicyInput<'_> {
        PolicyInput {
            scenario: &self.scenario,
            sizes: &self.sizes,
            accesses: &self.accesses,
            cells: self.cells,
            fingerprint: self.fingerprint,
        }
    }

    /// Determining the accesses is most of the work. So the private caches of all `policies` are simulated in one pass
    /// over the accesses of every node, and the policies with owner nodes in one pass over all steps.
    fn node_traffic(&self, policies: &[Policy]) -> Result<PolicyTraffic<'_>> {
        let frequency = policies.contains(&Policy::Frequency).then(|| FrequencyPlacement::new(self.input()));
        let kind = |policy: &Policy| match policy {
            Policy::Lru => Some(PrivateCache::Lru),
            Policy::NeverEvict => Some(PrivateCache::NeverEvict),
            Policy::Belady => Some(PrivateCache::Belady),
            Policy::NextUse => Some(PrivateCache::Planned),
            Policy::Foreload if !self.peers_suffice() => Some(PrivateCache::Planned),
            _ => None,
        };
        let mut kinds = vec![PrivateCache::Direct];
        for kind in policies.iter().filter_map(kind) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let nodes = nodes::each(self.scenario.nodes, |node| {
            let trace = self.accesses.trace(node, &self.sizes);
            if let Some(frequency) = &frequency {
                frequency.publish(node, &trace);
            }
            kinds.iter().map(|&kind| self.private(kind, node, &trace)).collect::<Vec<_>>()
        });
        let mut by_kind: Vec<Vec<NodeTraffic>> = kinds.iter().map(|_| Vec::new()).collect();
        for node in nodes {
            by_kind.iter_mut().zip(node).for_each(|(all, traffic)| all.push(traffic));
        }
        let node_traffic = by_kind.into_iter().map(|nodes| TrafficTable::new(self.cells, nodes));
        let private: Vec<_> = kinds.into_iter().zip(node_traffic).collect();
        let least = clock::ends(&self.scenario, &private[0].1, ReadMode::Perfect);
        let wanted = [
            (Assignment::Order, policies.contains(&Policy::Owner) || self.has_peers(policies)),
            (Assignment::Locality, policies.contains(&Policy::OwnerLocality)),
        ];
        let wanted: Vec<Assignment> =
            wanted.into_iter().filter(|(_, asked)| *asked).map(|(kind, _)| kind).collect();
        let by_owner = match wanted.is_empty() {
            true => Vec::new(),
            false => owner::node_traffic(self.input(), &wanted)?,
        };
        Ok(PolicyTraffic { private, by_owner: wanted.into_iter().zip(by_owner).collect(), frequency, least })
    }

    fn private(&self, kind: PrivateCache, node: u32, trace: &AccessTrace) -> NodeTraffic {
        let space = || CacheSpace::of(&self.scenario, node);
        let mut cache: Box<dyn NodeCache> = match kind {
            PrivateCache::Direct => Box::new(NeverEvict::new(CacheSpace::new(Vec::new()), trace)),
            PrivateCache::Lru => Box::new(Lru::new(space(), trace)),
            PrivateCache::NeverEvict => Box::new(NeverEvict::new(space(), trace)),
            PrivateCache::Belady => Box::new(Belady::new(space(), trace)),
            PrivateCache::Planned => {
                Box::new(PlannedCache::new(self.rule(node), self.scenario.capacities(node), trace))
            }
        };
        let mut traffic = NodeTraffic::new(self.cells);
        for (access, &id) in trace.ids.iter().enumerate() {
            if trace.is_again(access) {
                traffic.used_again(trace.step(access), trace.bytes[id as usize]);
                continue;
            }
            let source = cache.access(trace, access).map_or(ByteSource::Slow, ByteSource::Local);
            traffic.read(trace.step(access), source, trace.bytes[id as usize]);
        }
        traffic
    }

    /// Returns the retention rule of a node's private caches, with groups as long as [`RetentionRule::best`] chooses,
    /// in accesses of the node.
    fn rule(&self, node: u32) -> RetentionRule {
        let each = self.accesses.steps() * u64::from(self.scenario.node_batch());
        if self.scenario.epochs_between_uses() == 1 || self.scenario.node_cache(node) >= self.sizes.total() {
            RetentionRule::Keep
        } else {
            RetentionRule::NextUse { moments: (each / 8).max(1) }
        }
    }

    fn has_peers(&self, policies: &[Policy]) -> bool {
        policies.contains(&Policy::Foreload) && self.scenario.network.is_some() && self.scenario.nodes > 1
    }

    /// Whether the caches of all nodes together hold the dataset, and peers are at least as fast as the slow tier. If
    /// so, no sample is read twice from the slow tier, and no other placement has to be computed.
    fn peers_suffice(&self) -> bool {
        let Scenario { nodes, slow, network, .. } = &self.scenario;
        let all = self.held_together() >= 1.0;
        *nodes > 1 && all && network.is_some_and(|network| network.0 >= slow.share(*nodes))
    }

    fn held_together(&self) -> f64 {
        self.scenario.all_caches() / self.sizes.total()
    }

    /// Returns the cheapest placement that a deployment can use. If two placements cost the same, returns the one that
    /// reads fewer bytes from the slow tier.
    fn cheapest(&self, node_traffic: &PolicyTraffic) -> PolicyOutcome {
        let price = |traffic: &TrafficTable, chosen: String| {
            let outcome = self.priced(Policy::Foreload, &node_traffic.least, traffic, ReadMode::AllAhead);
            PolicyOutcome { chosen: Some(chosen), ..outcome }
        };
        let mut candidates = Vec::new();
        if self.has_peers(&[Policy::Foreload]) {
            let percent = 100.0 * self.held_together().min(1.0);
            let held =
                format!("peers: the caches of all nodes hold one copy of {percent:.0} % of the dataset");
            candidates.push(price(node_traffic.by_owner(Assignment::Order), held));
        }
        if !self.peers_suffice() {
            let held = match (self.scenario.nodes, self.rule(0)) {
                (1, RetentionRule::Keep) => "one node: it keeps the first samples until its cache is full",
                (1, RetentionRule::NextUse { .. }) => "one node: it keeps the samples that it uses soonest",
                (_, RetentionRule::Keep) => "private caches: each holds the dataset",
                (_, RetentionRule::NextUse { .. }) => {
                    "private caches: each keeps the samples that its node uses soonest"
                }
            };
            candidates.push(price(node_traffic.private(PrivateCache::Planned), held.to_owned()));
        }
        let cost = |outcome: &PolicyOutcome| (outcome.seconds, outcome.slow_bytes);
        let order = |a: &PolicyOutcome, b: &PolicyOutcome| {
            cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)
        };
        candidates.into_iter().min_by(order).expect("there is always one")
    }

    fn priced(
        &self,
        policy: Policy,
        least: &[f64],
        traffic: &TrafficTable,
        reading: ReadMode,
    ) -> PolicyOutcome {
        CostInput { scenario: &self.scenario, traffic, reading, least }.outcome(policy)
    }
}

fn dataset(dataset: &scenario::DatasetSpec) -> Result<(Sizes, Fingerprint)> {
    let Some(root) = &dataset.index else {
        return Ok((Sizes::normal(dataset), Fingerprint([0; 32])));
    };
    let index = DatasetIndex::open(root, &IndexOptions { progress: true, ..IndexOptions::default() })?;
    Ok((Sizes::of_index(&index), index.fingerprint()))
}
