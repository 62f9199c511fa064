//! Assigns the samples of a global batch to the ranks of the nodes that keep them.
//!
//! For the gradient it does not matter which rank takes a sample of a global batch. So a node's ranks take the samples
//! that the node keeps, up to their batch sizes, and only the remaining samples move to other nodes. If a node keeps
//! `held` samples and its ranks take `share`, max(`held` − `share`, 0) of them move. No assignment moves fewer. Pure:
//! every rank computes the same assignment from the owner nodes of a global batch's samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The nodes of all ranks.
#[derive(Debug, Clone)]
pub struct Locality {
    ranks: Vec<Vec<usize>>,
    /// Number of consecutive samples of a global batch that always go to the same rank.
    unit: usize,
}

/// The samples of a global batch that each rank takes. A sample's *place* is its index in the global batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalBatches {
    /// The places of rank 0 in ascending order, then the places of rank 1, and so on.
    places: Vec<u32>,
    /// The index in `places` of each rank's first place, then the length of `places`.
    begins: Vec<usize>,
}

impl LocalBatches {
    /// Returns the places of the samples that `rank` takes, in ascending order.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    pub fn of_rank(&self, rank: usize) -> &[u32] {
        &self.places[self.begins[rank]..self.begins[rank + 1]]
    }
}

impl Locality {
    /// Makes the locality of ranks on the nodes `node_of`, numbered from 0. Each group of `unit` samples of a global
    /// batch goes to one rank, because images that are mixed with one another must be in one batch. Groups begin at
    /// multiples of `unit`.
    ///
    /// # Panics
    /// Panics if `unit` is 0.
    pub fn new(node_of: &[u32], unit: usize) -> Self {
        assert!(unit > 0, "unit must be at least 1");
        let mut ranks = vec![Vec::new(); node_of.iter().max().map_or(0, |&last| last as usize + 1)];
        (0..).zip(node_of).for_each(|(rank, &node)| ranks[node as usize].push(rank));
        Self { ranks, unit }
    }

    /// Assigns the samples of a global batch to ranks. `owners` has the node that keeps each sample. `None`, or a node
    /// without ranks, means that no node keeps the sample. `sizes` is the number of samples of each rank. Each size is
    /// a multiple of the unit, except for one rank, which takes the end of a short last batch.
    ///
    /// In a first pass, in order, each unit goes to the node that keeps most of its samples, among nodes with capacity
    /// left. In a tie, the node of the earliest sample in the unit gets it. In a second pass, in order, the remaining
    /// units go to the first node with capacity left. The ranks of a node take consecutive ranges of its units.
    ///
    /// With `weights`, a number for each sample such as its size in bytes, the second pass takes the heaviest unit
    /// first. Each unit goes to the node with the least weight relative to its share. A node's units go to its ranks in
    /// the same way. The weights do not increase the number of samples that move.
    ///
    /// # Panics
    /// Panics if `sizes` do not add up to the number of samples, or are not multiples of the unit.
    pub fn assign(&self, owners: &[Option<usize>], sizes: &[u32], weights: Option<&[u64]>) -> LocalBatches {
        let batch = BatchUnits::new(self.unit, owners, weights);
        assert_eq!(
            sizes.iter().map(|&size| size as usize).sum::<usize>(),
            owners.len(),
            "places of all ranks"
        );
        // Only the rank with the incomplete unit may have a size that is no multiple of the unit.
        let odd = sizes.iter().position(|&size| !(size as usize).is_multiple_of(self.unit));
        let whole: Vec<usize> = sizes.iter().map(|&size| size as usize / self.unit).collect();
        assert_eq!(whole.iter().sum::<usize>(), batch.whole, "ranks that take whole units");
        let shares: Vec<usize> =
            self.ranks.iter().map(|ranks| ranks.iter().map(|&rank| whole[rank]).sum()).collect();
        let nodes = batch.nodes(&shares);
        let ranks = match &batch.weights {
            None => self.in_order(&nodes, &whole),
            Some(weights) => self.by_weight(&nodes, &whole, weights),
        };
        let mut begins = vec![0];
        begins.extend(sizes.iter().scan(0, |end, &size| {
            *end += size as usize;
            Some(*end)
        }));
        // Iterate over units in order, so that each rank's places ascend.
        let (mut places, mut next) = (vec![0; owners.len()], begins.clone());
        for (unit, rank) in ranks.into_iter().chain(odd).enumerate() {
            for place in batch.places(unit) {
                places[next[rank]] = place as u32;
                next[rank] += 1;
            }
        }
        LocalBatches { places, begins }
    }

    /// Returns the rank of each unit. `nodes` has the node of each unit. The ranks of a node take consecutive ranges of
    /// its units.
    fn in_order(&self, nodes: &[usize], whole: &[usize]) -> Vec<usize> {
        let mut capacity = whole.to_vec();
        let mut ranks: Vec<_> = self.ranks.iter().map(|ranks| ranks.iter().copied().peekable()).collect();
        let rank = |&node: &usize| {
            let ranks = &mut ranks[node];
            while ranks.next_if(|&rank| capacity[rank] == 0).is_some() {}
            let rank = *ranks.peek().expect("room for every unit");
            capacity[rank] -= 1;
            rank
        };
        nodes.iter().map(rank).collect()
    }

    /// Returns the rank of each unit. `nodes` has the node of each unit. The heaviest unit comes first, and goes to the
    /// rank of its node with the least weight so far.
    fn by_weight(&self, nodes: &[usize], whole: &[usize], weights: &[u64]) -> Vec<usize> {
        let (mut capacity, mut loads) = (whole.to_vec(), vec![0u64; whole.len()]);
        let mut ranks = vec![0; nodes.len()];
        let mut units: Vec<usize> = (0..nodes.len()).collect();
        heaviest_first(&mut units, weights);
        for unit in units {
            let open = self.ranks[nodes[unit]].iter().copied().filter(|&rank| capacity[rank] > 0);
            let lightest = open.min_by_key(|&rank| loads[rank]).expect("room for every unit");
            loads[lightest] += weights[unit];
            capacity[lightest] -= 1;
            ranks[unit] = lightest;
        }
        ranks
    }
}

struct BatchUnits<'a> {
    unit: usize,
    owners: &'a [Option<usize>],
    weights: Option<Vec<u64>>,
    /// Number of complete units. One incomplete unit may follow.
    whole: usize,
}

impl<'a> BatchUnits<'a> {
    fn new(unit: usize, owners: &'a [Option<usize>], weights: Option<&[u64]>) -> Self {
        let of_units = |weights: &[u64]| weights.chunks_exact(unit).map(|unit| unit.iter().sum()).collect();
        Self { unit, owners, weights: weights.map(of_units), whole: owners.len() / unit }
    }

    fn places(&self, unit: usize) -> Range<usize> {
        let begin = unit * self.unit;
        begin..(begin + self.unit).min(self.owners.len())
    }

    /// Returns the node that keeps most of a unit's samples, among the nodes with capacity left. In a tie, returns the
    /// node of the earliest sample in the unit.
    fn owner(&self, unit: usize, capacity: &[usize]) -> Option<usize> {
        let owners = &self.owners[self.places(unit)];
        let count = |owner| owners.iter().filter(|other| **other == Some(owner)).count();
        let open = owners
            .iter()
            .flatten()
            .copied()
            .filter(|&owner| capacity.get(owner).is_some_and(|&capacity| capacity > 0));
        // `max_by_key` returns the last of equal elements, hence `rev`.
        open.rev().max_by_key(|&owner| count(owner))
    }

    /// Returns the node of each complete unit. Each node gets as many units as `shares` says.
    fn nodes(&self, shares: &[usize]) -> Vec<usize> {
        let mut capacity = shares.to_vec();
        let (mut nodes, mut unassigned) = (vec![0; self.whole], Vec::new());
        for (unit, node) in nodes.iter_mut().enumerate() {
            match self.owner(unit, &capacity) {
                Some(owner) => {
                    capacity[owner] -= 1;
                    *node = owner;
                }
                None => unassigned.push(unit),
            }
        }
        if let Some(weights) = &self.weights {
            even_out(unassigned, weights, shares, capacity, &mut nodes);
            return nodes;
        }
        let mut node = 0;
        for unit in unassigned {
            while capacity[node] == 0 {
                node += 1;
            }
            capacity[node] -= 1;
            nodes[unit] = node;
        }
        nodes
    }
}

fn heaviest_first(units: &mut [usize], weights: &[u64]) {
    units.sort_unstable_by_key(|&unit| (Reverse(weights[unit]), unit));
}

/// Gives the units in `unassigned` to nodes with capacity left, so that the weights per share are about even.
fn even_out(
    mut unassigned: Vec<usize>,
    weights: &[u64],
    shares: &[usize],
    mut capacity: Vec<usize>,
    nodes: &mut [usize],
) {
    let mut loads = vec![0u64; shares.len()];
    nodes.iter().zip(weights).for_each(|(&node, weight)| loads[node] += weight);
    // So far, `nodes` is 0 for the units in `unassigned`, so the loop above counted them for node 0. Correct this.
    unassigned.iter().for_each(|&unit| loads[nodes[unit]] -= weights[unit]);
    heaviest_first(&mut unassigned, weights);
    // Compare loads per unit of the share, in steps of 2⁻³².
    let key = |node: usize, load: u64| Reverse(((u128::from(load) << 32) / shares[node] as u128, node));
    let open = (0..shares.len()).filter(|&node| capacity[node] > 0);
    let mut lightest: BinaryHeap<_> = open.map(|node| key(node, loads[node])).collect();
    for unit in unassigned {
        let Reverse((_, node)) = lightest.pop().expect("room for every unit");
        nodes[unit] = node;
        capacity[node] -= 1;
        loads[node] += weights[unit];
        if capacity[node] > 0 {
            lightest.push(key(node, loads[node]));
        }
    }
}

#[cfg(test)]
mod tests;
