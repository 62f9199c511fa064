//! Caches that keep the samples that their own node uses soonest. Other nodes can read these samples.
//!
//! The nodes that hold a sample change from step to step. So all nodes are simulated together, with all their accesses
//! in memory.

use super::access::AccessTrace;
use super::cache::{NodeCache, PlannedCache};
use super::nodes;
use super::shared::PolicyInput;
use super::traffic::{ByteSource, NodeTraffic, TrafficTable};
use std::collections::HashMap;
use store::tier::plan::RetentionRule;

/// Returns the byte counts of private caches with `rule`. If a node does not have a sample, it reads the sample from
/// any other node that has it at that step.
pub(crate) fn traffic(input: PolicyInput, rule: impl Fn(u32) -> RetentionRule + Sync) -> TrafficTable {
    let PolicyInput { scenario, sizes, accesses, cells, .. } = input;
    let mut all: Vec<PeeredNode> = nodes::each(scenario.nodes, |node| {
        let trace = accesses.trace(node, sizes);
        let cache = PlannedCache::new(rule(node), scenario.capacities(node), &trace);
        PeeredNode { cache, trace, traffic: NodeTraffic::new(cells) }
    });
    // For each sample: the nodes that have cached it. Some of them may have evicted it.
    let mut keepers: HashMap<u32, Vec<usize>> = HashMap::new();
    let batch = scenario.node_batch() as usize;
    for step in 0..(accesses.steps() * accesses.epochs()) as usize {
        let of_step = step * batch..(step + 1) * batch;
        // A peer can only serve samples that it had before this step.
        let peers: Vec<Vec<Option<u8>>> = all
            .iter()
            .map(|node| {
                let sample = |access| node.trace.samples[node.trace.ids[access] as usize];
                of_step
                    .clone()
                    .map(|access| peer_cache(&all, keepers.get_mut(&sample(access)), sample(access)))
                    .collect()
            })
            .collect();
        for (number, (node, peers)) in all.iter_mut().zip(peers).enumerate() {
            for (access, peer) in of_step.clone().zip(peers) {
                let id = node.trace.ids[access] as usize;
                let bytes = node.trace.bytes[id];
                if node.trace.is_again(access) {
                    node.traffic.used_again(step as u64, bytes);
                    continue;
                }
                let local = node.cache.access(&node.trace, access).map(ByteSource::Local);
                let source = local.or(peer.map(ByteSource::Peer)).unwrap_or(ByteSource::Slow);
                node.traffic.read(step as u64, source, bytes);
                if local.is_none() && node.cache.find(id).is_some() {
                    let keepers = keepers.entry(node.trace.samples[id]).or_default();
                    if !keepers.contains(&number) {
                        keepers.push(number);
                    }
                }
            }
        }
    }
    TrafficTable::new(cells, all.into_iter().map(|node| node.traffic).collect())
}

struct PeeredNode {
    cache: PlannedCache,
    trace: AccessTrace,
    traffic: NodeTraffic,
}

/// Returns the cache that has `sample` on the first of the nodes `keepers`. Removes nodes that have evicted the sample
/// from the list.
fn peer_cache(all: &[PeeredNode], keepers: Option<&mut Vec<usize>>, sample: u32) -> Option<u8> {
    let keepers = keepers?;
    let find = |node: &PeeredNode| node.cache.find(node.trace.samples.binary_search(&sample).ok()?);
    keepers.retain(|&number| find(&all[number]).is_some());
    keepers.first().and_then(|&number| find(&all[number]))
}
