//! Caches that keep the samples their own node uses soonest, and that other nodes can read.
//!
//! The node that holds a sample changes from step to step, so all nodes' accesses are in memory at once.

use super::access::AccessTrace;
use super::cache::{NodeCache, PlannedCache};
use super::ledger::{ByteSource, Ledger, NodeLedger};
use super::nodes;
use super::shared::SimulationWorld;
use std::collections::HashMap;
use store::tier::plan::RetentionRule;

/// Returns the byte counts of private caches with `rule`. A sample that is missing on a node comes from any other node
/// that has it at that step.
pub(crate) fn ledger(world: SimulationWorld, rule: impl Fn(u32) -> RetentionRule + Sync) -> Ledger {
    let SimulationWorld { scenario, sizes, accesses, cells, .. } = world;
    let mut all: Vec<PeeredNode> = nodes::each(scenario.nodes, |node| {
        let trace = accesses.trace(node, sizes);
        let cache = PlannedCache::new(rule(node), scenario.capacities(node), &trace);
        PeeredNode { cache, trace, ledger: NodeLedger::new(cells) }
    });
    // Nodes that have kept a sample at some time, and perhaps evicted it since.
    let mut keepers: HashMap<u32, Vec<usize>> = HashMap::new();
    let batch = scenario.node_batch() as usize;
    for step in 0..(accesses.steps() * accesses.epochs()) as usize {
        let of_step = step * batch..(step + 1) * batch;
        // A peer can only serve samples that it had before the step.
        let peers: Vec<Vec<Option<u8>>> = all
            .iter()
            .map(|node| {
                let sample = |access| node.trace.samples[node.trace.ids[access] as usize];
                of_step
                    .clone()
                    .map(|access| at_a_peer(&all, keepers.get_mut(&sample(access)), sample(access)))
                    .collect()
            })
            .collect();
        for (number, (node, peers)) in all.iter_mut().zip(peers).enumerate() {
            for (access, peer) in of_step.clone().zip(peers) {
                let id = node.trace.ids[access] as usize;
                let bytes = node.trace.bytes[id];
                if node.trace.is_again(access) {
                    node.ledger.used_again(step as u64, bytes);
                    continue;
                }
                let local = node.cache.access(&node.trace, access).map(ByteSource::Local);
                let source = local.or(peer.map(ByteSource::Peer)).unwrap_or(ByteSource::Slow);
                node.ledger.read(step as u64, source, bytes);
                if local.is_none() && node.cache.find(id).is_some() {
                    let keepers = keepers.entry(node.trace.samples[id]).or_default();
                    if !keepers.contains(&number) {
                        keepers.push(number);
                    }
                }
            }
        }
    }
    Ledger::new(cells, all.into_iter().map(|node| node.ledger).collect())
}

/// A node with its cache and all its accesses.
struct PeeredNode {
    cache: PlannedCache,
    trace: AccessTrace,
    ledger: NodeLedger,
}

/// Returns the cache of the first keeper that has `sample`. Keepers that have evicted it are removed from the list.
fn at_a_peer(all: &[PeeredNode], keepers: Option<&mut Vec<usize>>, sample: u32) -> Option<u8> {
    let keepers = keepers?;
    let find = |node: &PeeredNode| node.cache.find(node.trace.samples.binary_search(&sample).ok()?);
    keepers.retain(|&number| find(&all[number]).is_some());
    keepers.first().and_then(|&number| find(&all[number]))
}
