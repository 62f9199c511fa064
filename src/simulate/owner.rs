//! Caches that all nodes can read. Each sample has an owner node, which every node computes in the same way as at run
//! time: by [`Placement`] and [`Locality`].
//!
//! The node that uses a sample first reads it from the slow tier and sends it to the owner. From the next epoch on, all
//! nodes read the sample from the owner.

use super::cache::CacheSpace;
use super::nodes;
use super::shared::PolicyInput;
use super::traffic::{ByteSource, CellReads, NodeTraffic, TrafficTable};
use base::error::Result;
use data::schedule::Assignment;
use data::schedule::locality::Locality;
use store::tier::placement::{NodeShare, Placement};

/// Marks a sample that has not been used yet.
const UNUSED: u8 = u8::MAX;
/// Marks a sample that is not cached: it has no owner, or its owner has no space for it.
const REFUSED: u8 = u8::MAX - 1;

/// Simulates all steps of all epochs once, for all `assignments` together. Returns the byte counts for each assignment.
///
/// # Errors
/// The errors of [`Placement::new`].
pub(crate) fn node_traffic(input: PolicyInput, assignments: &[Assignment]) -> Result<Vec<TrafficTable>> {
    let PolicyInput { scenario, sizes, accesses, cells, .. } = input;
    let capacities = |node| scenario.capacities(node);
    let share = |node| NodeShare {
        name: format!("node-{node:06}"),
        capacity: capacities(node).iter().map(|&capacity| capacity as u64).sum(),
    };
    let shares: Vec<NodeShare> = (0..scenario.nodes).map(share).collect();
    let bytes = |sample| sizes.get(sample) as u64;
    let owners = OwnerTable {
        placement: Placement::new(&shares, &input.fingerprint, sizes.samples(), bytes)?,
        held: vec![UNUSED; sizes.samples() as usize],
        space: (0..scenario.nodes).map(|node| CacheSpace::of(scenario, node)).collect(),
    };
    let mut walk = StepWalk {
        input,
        owners,
        locality: Locality::new(&(0..scenario.nodes).collect::<Vec<_>>(), 1),
        node_batches: vec![scenario.node_batch(); scenario.nodes as usize],
    };
    let traffic = || -> Vec<NodeTraffic> { (0..scenario.nodes).map(|_| NodeTraffic::new(cells)).collect() };
    let mut node_traffic: Vec<Vec<NodeTraffic>> = assignments.iter().map(|_| traffic()).collect();
    for epoch in 0..accesses.epochs() {
        let of_epoch = cells.of_epoch(epoch as usize);
        let walked = nodes::each(of_epoch.len() as u32, |number| {
            walk.cell(epoch, of_epoch.start + number as usize, assignments)
        });
        // Other nodes can read a kept sample from the next epoch on, as in `shared.rs`.
        for (cell, walked) in of_epoch.zip(walked) {
            for (traffic, reads) in node_traffic.iter_mut().zip(&walked.reads) {
                traffic.iter_mut().zip(reads).for_each(|(node, reads)| node.add(cell, reads));
            }
            walked
                .first_used
                .into_iter()
                .for_each(|sample| walk.owners.keep(sample, sizes.get(sample.into())));
        }
    }
    Ok(node_traffic.into_iter().map(|nodes| TrafficTable::new(cells, nodes)).collect())
}

struct OwnerTable {
    placement: Placement,
    /// For each sample: the number of the cache that holds it on its owner node, [`UNUSED`] or [`REFUSED`].
    held: Vec<u8>,
    space: Vec<CacheSpace>,
}

impl OwnerTable {
    fn keep(&mut self, sample: u32, bytes: f64) {
        let held = &mut self.held[sample as usize];
        if *held == UNUSED {
            let owner_node = self.placement.owner(sample.into());
            *held = owner_node.and_then(|owner_node| self.space[owner_node].put(bytes)).unwrap_or(REFUSED);
        }
    }
}

struct StepWalk<'a> {
    input: PolicyInput<'a>,
    owners: OwnerTable,
    locality: Locality,
    node_batches: Vec<u32>,
}

struct CellEvents {
    reads: Vec<Vec<CellReads>>,
    first_used: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct UsedPlace {
    place: usize,
    sample: u32,
    owner_node: Option<usize>,
    held: u8,
    bytes: f32,
}

impl StepWalk<'_> {
    fn cell(&self, epoch: u64, cell: usize, assignments: &[Assignment]) -> CellEvents {
        let PolicyInput { sizes, accesses, cells, .. } = self.input;
        let none = vec![CellReads::default(); self.node_batches.len()];
        let mut walked = CellEvents { reads: vec![none; assignments.len()], first_used: Vec::new() };
        for step in cells.steps_of(cell) {
            let used = |(place, sample): (usize, u32)| UsedPlace {
                place,
                sample,
                owner_node: self.owners.placement.owner(sample.into()),
                held: self.owners.held[sample as usize],
                bytes: sizes.get(sample.into()) as f32,
            };
            let places: Vec<UsedPlace> = accesses.of_step(epoch, step).map(used).collect();
            walked
                .first_used
                .extend(places.iter().filter(|used| used.held == UNUSED).map(|used| used.sample));
            for (assignment, reads) in assignments.iter().zip(&mut walked.reads) {
                step_reads(&places, &self.takers(*assignment, &places), reads);
            }
        }
        walked
    }

    fn takers(&self, assignment: Assignment, places: &[UsedPlace]) -> Vec<u32> {
        let each = self.node_batches[0];
        if assignment == Assignment::Order {
            return (0..places.len() as u32).map(|place| place / each).collect();
        }
        let mut owners = vec![None; places.len()];
        places.iter().for_each(|used| owners[used.place] = used.owner_node);
        let batches = self.locality.assign(&owners, &self.node_batches, None);
        let mut takers = vec![0; places.len()];
        for node in 0..self.node_batches.len() {
            batches.of_rank(node).iter().for_each(|&place| takers[place as usize] = node as u32);
        }
        takers
    }
}

fn step_reads(places: &[UsedPlace], takers: &[u32], reads: &mut [CellReads]) {
    // Nodes that have used the current sample in this step. Repeats of a sample are consecutive in `places`.
    let mut nodes: Vec<usize> = Vec::new();
    let mut before = None;
    for used in places {
        let node = takers[used.place] as usize;
        if before.replace(used.sample) != Some(used.sample) {
            nodes.clear();
        }
        if nodes.contains(&node) {
            reads[node].used_again(used.bytes);
            continue;
        }
        let source = match (used.held, used.owner_node) {
            (cache, Some(owner_node)) if cache < REFUSED && owner_node == node => ByteSource::Local(cache),
            (cache, Some(owner_node)) if cache < REFUSED => {
                reads[owner_node].sent += used.bytes;
                ByteSource::Peer(cache)
            }
            // The first reader of the sample sends it to its owner node.
            (UNUSED, Some(owner_node)) if owner_node != node && nodes.is_empty() => {
                reads[node].sent += used.bytes;
                reads[owner_node].pushed += used.bytes;
                ByteSource::Slow
            }
            _ => ByteSource::Slow,
        };
        reads[node].read(source, used.bytes);
        nodes.push(node);
    }
}
