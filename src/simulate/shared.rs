//! Caches that all nodes can read. They are filled by frequency as in NoPFS, or with one copy of each sample on the
//! node that used the sample first.

use super::access::{AccessSchedule, AccessTrace, CachedCopy, NodeUse, PublishedCopies, Sizes};
use super::cache::CacheSpace;
use super::nodes;
use super::scenario::Scenario;
use super::traffic::{ByteSource, NodeTraffic, TrafficCells, TrafficTable};
use data::dataset::Fingerprint;
use std::sync::atomic::{AtomicU32, Ordering};
use store::tier::plan::{Admission, RetentionRule, TierPlan};

/// Input of a policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInput<'a> {
    /// Nodes, caches and rates.
    pub scenario: &'a Scenario,
    /// Sizes of the samples.
    pub sizes: &'a Sizes,
    /// Which node uses which sample when.
    pub accesses: &'a AccessSchedule,
    /// How epochs are divided into cells, the time unit of the simulation.
    pub cells: TrafficCells,
    /// Fingerprint of the dataset.
    pub fingerprint: Fingerprint,
}

/// Placement by frequency, as in NoPFS.
///
/// Each node keeps the samples that it will use most often, and puts the most frequent ones into the first cache. The
/// threads of each cache fetch these samples from the slow tier during training, in the order of first use. If a node
/// does not have a sample yet, the node reads the sample from another node that has it, or else from the slow tier.
///
/// The progress of prefetching is computed as if the consumer never waited.
#[derive(Debug)]
pub struct FrequencyPlacement<'a> {
    input: PolicyInput<'a>,
    held: Option<PublishedCopies>,
    cell_seconds: f64,
}

impl<'a> FrequencyPlacement<'a> {
    /// Makes an empty placement; [`FrequencyPlacement::publish`] adds the copies of a node.
    pub fn new(input: PolicyInput<'a>) -> Self {
        let held = input.scenario.network.map(|_| PublishedCopies::none(input.sizes.samples()));
        let cell_bytes =
            (input.cells.steps * u64::from(input.scenario.node_batch())) as f64 * input.sizes.mean();
        Self { input, held, cell_seconds: cell_bytes / input.scenario.compute.0 }
    }

    /// Publishes the samples that `node` will hold, and the first step in which other nodes can read each of them.
    pub fn publish(&self, node: u32, trace: &AccessTrace) {
        let Some(held) = &self.held else { return };
        for (&sample, copy) in trace.samples.iter().zip(FrequentCopies::new(self, node, trace).copies) {
            if let Some(copy) = copy {
                held.publish(sample, copy);
            }
        }
    }

    /// Returns the byte counts of all nodes. [`FrequencyPlacement::publish`] must have been called for every node.
    pub fn traffic(&self) -> TrafficTable {
        let read = |node| {
            let trace = self.input.accesses.trace(node, self.input.sizes);
            let kept = FrequentCopies::new(self, node, &trace);
            let mut traffic = NodeTraffic::new(self.input.cells);
            for &(cell, bytes) in &kept.prefetched {
                traffic.prefetched(cell, bytes);
            }
            for (access, &id) in trace.ids.iter().enumerate() {
                let (id, step) = (id as usize, trace.step(access));
                if trace.is_again(access) {
                    traffic.used_again(step, trace.bytes[id]);
                    continue;
                }
                let local = kept.copies[id].filter(|copy| copy.step <= step);
                let local = local.map(|copy| ByteSource::Local(copy.cache));
                let peer =
                    || Some(ByteSource::Peer(self.held.as_ref()?.copy(trace.samples[id], step)?.cache));
                traffic.read(step, local.or_else(peer).unwrap_or(ByteSource::Slow), trace.bytes[id]);
            }
            traffic
        };
        TrafficTable::new(self.input.cells, nodes::each(self.input.scenario.nodes, read))
    }
}

struct FrequentCopies {
    copies: Vec<Option<CachedCopy>>,
    prefetched: Vec<(usize, f32)>,
}

impl FrequentCopies {
    fn new(frequency: &FrequencyPlacement, node: u32, trace: &AccessTrace) -> Self {
        let scenario = frequency.input.scenario;
        let mut ids: Vec<u32> = (0..trace.samples.len() as u32).collect();
        ids.sort_unstable_by_key(|&id| {
            let id = id as usize;
            (std::cmp::Reverse(trace.uses[id]), trace.first[id])
        });
        let mut space = CacheSpace::of(scenario, node);
        let mut contents: Vec<Vec<u32>> = vec![Vec::new(); scenario.cache.len()];
        for id in ids {
            if let Some(cache) = space.put(f64::from(trace.bytes[id as usize])) {
                contents[usize::from(cache)].push(id);
            }
        }
        let mut kept = Self { copies: vec![None; trace.samples.len()], prefetched: Vec::new() };
        let share = scenario.slow.share(scenario.nodes);
        for (number, (cache, mut ids)) in (0u8..).zip(scenario.cache.iter().zip(contents)) {
            ids.sort_unstable_by_key(|&id| trace.first[id as usize]);
            let rate = f64::from(cache.threads) * share.min(cache.write_share());
            kept.prefetch(frequency, trace, &ids, number, rate);
        }
        kept
    }

    fn prefetch(
        &mut self,
        frequency: &FrequencyPlacement,
        trace: &AccessTrace,
        ids: &[u32],
        cache: u8,
        rate: f64,
    ) {
        let (cells, mut seconds) = (frequency.input.cells, 0.0);
        for &id in ids {
            let bytes = trace.bytes[id as usize];
            seconds += f64::from(bytes) / rate;
            let cell = (seconds / frequency.cell_seconds) as usize;
            if cell >= cells.count() {
                return;
            }
            // The copy arrives during this cell and can be read from the next cell on.
            self.copies[id as usize] = Some(CachedCopy { step: cells.first_step(cell + 1), cache });
            self.prefetched.push((cell, bytes));
        }
    }
}

/// Returns the byte counts if all nodes together keep one copy of each sample. The first node that uses a sample keeps
/// it, if the plan of its caches admits it, and serves it to the other nodes. While the caches have free space, no
/// sample is read twice from the slow tier.
pub fn first_user(input: PolicyInput) -> TrafficTable {
    let PolicyInput { scenario, sizes, accesses, cells, .. } = input;
    let owners = Owners::none(sizes.samples());
    let mut nodes: Vec<FirstUserNode> =
        (0..scenario.nodes).map(|node| FirstUserNode::new(scenario, node, cells)).collect();
    for epoch in 0..accesses.epochs() {
        // Owners are published at the end of the epoch, so nodes can be processed in any order. Within an epoch, other
        // nodes use the same sample only as a repeat, at about the same time.
        nodes::parallel_for_each(&mut nodes, |number, node| {
            for NodeUse { step, sample, keeps, again } in accesses.of_node(epoch, number) {
                let step = epoch * accesses.steps() + step;
                let (bytes, owner) = (sizes.get(sample), owners.of(sample));
                if keeps && owner.is_none() {
                    node.keep(sample, bytes, step);
                }
                match owner {
                    _ if again => node.traffic.used_again(step, bytes as f32),
                    Some((owner, cache)) if owner == number => {
                        node.traffic.read(step, ByteSource::Local(cache), bytes as f32);
                    }
                    Some((_, cache)) => node.traffic.read(step, ByteSource::Peer(cache), bytes as f32),
                    None => node.traffic.read(step, ByteSource::Slow, bytes as f32),
                }
            }
        });
        for (number, node) in (0..).zip(&mut nodes) {
            node.kept.drain(..).for_each(|(sample, cache)| owners.set(sample, number, cache));
        }
    }
    TrafficTable::new(cells, nodes.into_iter().map(|node| node.traffic).collect())
}

struct FirstUserNode {
    traffic: NodeTraffic,
    plans: Vec<TierPlan>,
    kept: Vec<(u64, u8)>,
}

impl FirstUserNode {
    fn new(scenario: &Scenario, node: u32, cells: TrafficCells) -> Self {
        let plan = |capacity| TierPlan::new(RetentionRule::Keep, capacity as u64);
        let plans = scenario.capacities(node).into_iter().map(plan).collect();
        Self { traffic: NodeTraffic::new(cells), plans, kept: Vec::new() }
    }

    fn keep(&mut self, sample: u64, bytes: f64, step: u64) {
        let admits = |plan: &mut TierPlan| plan.admit(bytes as u64, None, step) != Admission::Bypass;
        let cache = self.plans.iter_mut().position(admits);
        self.kept.extend(cache.map(|cache| (sample, cache as u8)));
    }
}

/// The node and the cache that keep each sample. Several threads fill this table concurrently.
struct Owners(Vec<AtomicU32>);

impl Owners {
    fn none(samples: u64) -> Self {
        Self((0..samples).map(|_| AtomicU32::new(u32::MAX)).collect())
    }

    fn of(&self, sample: u64) -> Option<(u32, u8)> {
        let word = self.0[sample as usize].load(Ordering::Relaxed);
        (word != u32::MAX).then_some((word >> 3, (word & 7) as u8))
    }

    fn set(&self, sample: u64, node: u32, cache: u8) {
        self.0[sample as usize].store(node << 3 | u32::from(cache), Ordering::Relaxed);
    }
}
