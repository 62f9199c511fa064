//! Cost of a policy: seconds, and bytes by tier, node and epoch.

use super::clock::{self, ReadMode};
use super::policy::Policy;
use super::scenario::Scenario;
use super::traffic::{ByteSource, EpochCounts, TrafficTable};
use serde::Serialize;
use std::ops::Range;

/// Cost of a policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    /// The policy.
    pub policy: Policy,
    /// Duration of all epochs in seconds.
    pub seconds: f64,
    /// Time in seconds in which consumers wait for storage: the duration minus the duration of [`Policy::LowerBound`].
    pub stall_seconds: f64,
    /// Fraction (0 to 1) of the used samples that a cache served, on the same node or on another node. Several uses of
    /// a sample by one node in a step count once.
    pub hits: f64,
    /// Fraction (0 to 1) of the used samples that the node's own caches served.
    pub local_hits: f64,
    /// Bytes read from the slow tier.
    pub slow_bytes: u64,
    /// Bytes that each cache served, in the scenario's order.
    pub tiers: Vec<TierBytes>,
    /// Bytes that nodes received from other nodes. `max` uses the bytes that a node sent instead, if these are known
    /// and are more than it received.
    pub network: NodeBytes,
    /// Bytes that nodes read from the slow tier.
    pub slow: NodeBytes,
    /// Costs of the epochs.
    pub epochs: Vec<EpochOutcome>,
    /// The chosen placement, and the reason for it; only for `foreload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// Cost of one epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpochOutcome {
    /// Duration of the epoch in seconds.
    pub seconds: f64,
    /// Time in seconds in which consumers wait for storage: the duration minus the duration of [`Policy::LowerBound`].
    pub stall_seconds: f64,
    /// Fraction (0 to 1) of the used samples that a cache served.
    pub hits: f64,
    /// Bytes read from the slow tier.
    pub slow_bytes: u64,
    /// Bytes that each cache served, in the scenario's order.
    pub tiers: Vec<TierBytes>,
    /// Bytes that nodes received from other nodes, counted as in [`PolicyOutcome::network`].
    pub network: NodeBytes,
    /// Bytes that nodes read from the slow tier.
    pub slow: NodeBytes,
}

/// Bytes that the caches of one kind (one name in the scenario) served, on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierBytes {
    /// Name of the cache.
    pub name: String,
    /// Bytes that nodes read from their own cache.
    pub local_bytes: u64,
    /// Bytes that nodes read from the caches of other nodes.
    pub peer_bytes: u64,
}

/// Bytes per node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NodeBytes {
    /// Mean over all nodes.
    pub mean: u64,
    /// Maximum over all nodes.
    pub max: u64,
}

impl NodeBytes {
    fn of(nodes: usize, bytes: impl Fn(usize) -> f64) -> Self {
        let all = || (0..nodes).map(&bytes);
        Self {
            mean: (all().sum::<f64>() / nodes.max(1) as f64) as u64,
            max: all().fold(0.0, f64::max) as u64,
        }
    }
}

pub(crate) struct CostInput<'a> {
    pub scenario: &'a Scenario,
    pub traffic: &'a TrafficTable,
    pub reading: ReadMode,
    /// Time at which each cell (one or more steps) ends, in seconds, if no consumer ever waits.
    pub least: &'a [f64],
}

impl CostInput<'_> {
    pub(crate) fn outcome(&self, policy: Policy) -> PolicyOutcome {
        let cells = self.traffic.cells;
        let ends = clock::ends(self.scenario, self.traffic, self.reading);
        let count = |epoch| match (self.traffic.count(epoch as usize), self.reading) {
            // In the lower bound, reading takes no time: every use counts as served by the node's own cache.
            (count, ReadMode::Perfect) => EpochCounts { local: count.uses, slow_bytes: 0.0, ..count },
            (count, _) => count,
        };
        let counts: Vec<EpochCounts> = (0..cells.epochs).map(count).collect();
        let epochs = (0..).zip(&counts).map(|(epoch, count)| {
            let of_epoch = cells.of_epoch(epoch);
            let seconds = during(&ends, &of_epoch);
            EpochOutcome {
                seconds,
                stall_seconds: (seconds - during(self.least, &of_epoch)).max(0.0),
                hits: count.hits(),
                slow_bytes: count.slow_bytes as u64,
                tiers: self.tiers(of_epoch.clone()),
                network: self.network(of_epoch),
                slow: self.slow(epoch..epoch + 1),
            }
        });
        let mut all = EpochCounts::default();
        counts.iter().for_each(|count| all.add(count));
        let whole = 0..cells.count();
        let seconds = during(&ends, &whole);
        PolicyOutcome {
            policy,
            seconds,
            stall_seconds: (seconds - during(self.least, &whole)).max(0.0),
            hits: all.hits(),
            local_hits: all.local as f64 / all.uses.max(1) as f64,
            slow_bytes: all.slow_bytes as u64,
            tiers: self.tiers(whole.clone()),
            network: self.network(whole),
            slow: self.slow(0..cells.epochs as usize),
            epochs: epochs.collect(),
            chosen: None,
        }
    }

    fn tiers(&self, cells: Range<usize>) -> Vec<TierBytes> {
        let of = |source| -> u64 {
            let node =
                |node| cells.clone().map(move |cell| self.traffic.bytes(node, cell, source)).sum::<f64>();
            (0..self.traffic.nodes()).map(node).sum::<f64>() as u64
        };
        let tier = |(number, name): (u8, &String)| TierBytes {
            name: name.clone(),
            local_bytes: of(ByteSource::Local(number)),
            peer_bytes: of(ByteSource::Peer(number)),
        };
        (0..).zip(self.scenario.cache.iter().map(|cache| &cache.name)).map(tier).collect()
    }

    fn network(&self, cells: Range<usize>) -> NodeBytes {
        let sum = |bytes: &dyn Fn(usize) -> f64| cells.clone().map(bytes).sum::<f64>();
        let received = |node| sum(&|cell| self.traffic.received(node, cell));
        let most = NodeBytes::of(self.traffic.nodes(), |node| {
            received(node).max(sum(&|cell| self.traffic.sent(node, cell)))
        });
        NodeBytes { mean: NodeBytes::of(self.traffic.nodes(), received).mean, ..most }
    }

    fn slow(&self, epochs: Range<usize>) -> NodeBytes {
        if self.reading == ReadMode::Perfect {
            return NodeBytes::default();
        }
        NodeBytes::of(self.traffic.nodes(), |node| {
            epochs.clone().map(|epoch| self.traffic.slow_bytes(node, epoch)).sum()
        })
    }
}

fn during(ends: &[f64], cells: &Range<usize>) -> f64 {
    let at = |cell: usize| cell.checked_sub(1).map_or(0.0, |before| ends[before]);
    at(cells.end) - at(cells.start)
}
