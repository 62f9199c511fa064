//! Assigns the samples of a global batch to the ranks of the nodes that keep them.
//!
//! For the gradient it does not matter which rank takes a sample of a global batch. So a node's ranks take the samples
//! that the node keeps, up to their batch sizes, and only the rest moves. If a node keeps `held` samples and its ranks
//! take `share`, max(`held` − `share`, 0) of them move. No assignment moves fewer. Pure: every rank computes the same
//! from the owner nodes of a global batch's samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The nodes of all ranks.
#[derive(Debug, Clone)]
pub struct Locality {
    /// The ranks of each node, in order.
    ranks: Vec<Vec<usize>>,
    /// Number of consecutive places of a global batch that always go to the same rank.
    unit: usize,
}

/// The places of a global batch that each rank takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalBatches {
    /// Places of all ranks, one rank after another.
    places: Vec<u32>,
    /// Where the places of each rank begin, followed by the end of the last.
    begins: Vec<usize>,
}

impl LocalBatches {
    /// Returns the places of `rank` in the global batch, in ascending order: the rank's batch.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    pub fn of_rank(&self, rank: usize) -> &[u32] {
        &self.places[self.begins[rank]..self.begins[rank + 1]]
    }
}

impl Locality {
    /// Makes the locality of ranks on the nodes `node_of`, numbered from 0. Each group of `unit` places of a global
    /// batch, from a multiple of `unit` on, goes to one rank, as images that are mixed with one another must.
    ///
    /// # Panics
    /// Panics if `unit` is 0.
    pub fn new(node_of: &[u32], unit: usize) -> Self {
        assert!(unit > 0, "unit must be at least 1");
        let mut ranks = vec![Vec::new(); node_of.iter().max().map_or(0, |&last| last as usize + 1)];
        (0..).zip(node_of).for_each(|(rank, &node)| ranks[node as usize].push(rank));
        Self { ranks, unit }
    }

    /// Assigns the places of a global batch to ranks. `homes` has the node that keeps each place's sample, if any; a
    /// node without ranks counts as none. `sizes` is the number of places of each rank. They are whole units, except
    /// for the one rank that takes the end of a short last batch.
    ///
    /// In a first pass, in order, each unit goes to the node that keeps most of its places, among nodes with capacity
    /// left. A tie goes to the node that comes first in the unit. In a second pass, in order, the remaining units go to
    /// the first node with capacity left. The ranks of a node take consecutive ranges of its units.
    ///
    /// With `weights`, a number for each place such as its size in bytes, the second pass takes the heaviest unit
    /// first. Each goes to the node with the least weight relative to its share. A node's units go to its ranks in the
    /// same way. This moves no more places.
    ///
    /// # Panics
    /// Panics if `sizes` do not add up to the number of places, or are not whole units.
    pub fn assign(&self, homes: &[Option<usize>], sizes: &[u32], weights: Option<&[u64]>) -> LocalBatches {
        let batch = BatchUnits::new(self.unit, homes, weights);
        assert_eq!(
            sizes.iter().map(|&size| size as usize).sum::<usize>(),
            homes.len(),
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
        let (mut places, mut next) = (vec![0; homes.len()], begins.clone());
        for (unit, rank) in ranks.into_iter().chain(odd).enumerate() {
            for place in batch.places(unit) {
                places[next[rank]] = place as u32;
                next[rank] += 1;
            }
        }
        LocalBatches { places, begins }
    }

    /// Returns the rank of each unit, given its node. The ranks of a node take consecutive ranges of its units.
    fn in_order(&self, nodes: &[usize], whole: &[usize]) -> Vec<usize> {
        let mut room = whole.to_vec();
        let mut ranks: Vec<_> = self.ranks.iter().map(|ranks| ranks.iter().copied().peekable()).collect();
        let rank = |&node: &usize| {
            let ranks = &mut ranks[node];
            while ranks.next_if(|&rank| room[rank] == 0).is_some() {}
            let rank = *ranks.peek().expect("room for every unit");
            room[rank] -= 1;
            rank
        };
        nodes.iter().map(rank).collect()
    }

    /// Returns the rank of each unit, given its node. The heaviest unit comes first, and goes to the rank of its node
    /// with the least weight.
    fn by_weight(&self, nodes: &[usize], whole: &[usize], weights: &[u64]) -> Vec<usize> {
        let (mut room, mut loads) = (whole.to_vec(), vec![0u64; whole.len()]);
        let mut ranks = vec![0; nodes.len()];
        let mut units: Vec<usize> = (0..nodes.len()).collect();
        heaviest_first(&mut units, weights);
        for unit in units {
            let open = self.ranks[nodes[unit]].iter().copied().filter(|&rank| room[rank] > 0);
            let lightest = open.min_by_key(|&rank| loads[rank]).expect("room for every unit");
            loads[lightest] += weights[unit];
            room[lightest] -= 1;
            ranks[unit] = lightest;
        }
        ranks
    }
}

/// A global batch in units.
struct BatchUnits<'a> {
    unit: usize,
    homes: &'a [Option<usize>],
    /// Weights of the complete units.
    weights: Option<Vec<u64>>,
    /// Number of complete units. One more may be incomplete.
    whole: usize,
}

impl<'a> BatchUnits<'a> {
    fn new(unit: usize, homes: &'a [Option<usize>], weights: Option<&[u64]>) -> Self {
        let of_units = |weights: &[u64]| weights.chunks_exact(unit).map(|unit| unit.iter().sum()).collect();
        Self { unit, homes, weights: weights.map(of_units), whole: homes.len() / unit }
    }

    fn places(&self, unit: usize) -> Range<usize> {
        let begin = unit * self.unit;
        begin..(begin + self.unit).min(self.homes.len())
    }

    /// Returns the node with capacity that keeps most of a unit's places. A tie goes to the node that comes first.
    fn home(&self, unit: usize, room: &[usize]) -> Option<usize> {
        let homes = &self.homes[self.places(unit)];
        let count = |home| homes.iter().filter(|other| **other == Some(home)).count();
        let open =
            homes.iter().flatten().copied().filter(|&home| room.get(home).is_some_and(|&room| room > 0));
        // `max_by_key` returns the last of equal elements, hence `rev`.
        open.rev().max_by_key(|&home| count(home))
    }

    /// Returns the node of each complete unit. Each node takes its share of them.
    fn nodes(&self, shares: &[usize]) -> Vec<usize> {
        let mut room = shares.to_vec();
        let (mut nodes, mut left) = (vec![0; self.whole], Vec::new());
        for (unit, node) in nodes.iter_mut().enumerate() {
            match self.home(unit, &room) {
                Some(home) => {
                    room[home] -= 1;
                    *node = home;
                }
                None => left.push(unit),
            }
        }
        if let Some(weights) = &self.weights {
            even_out(left, weights, shares, room, &mut nodes);
            return nodes;
        }
        let mut node = 0;
        for unit in left {
            while room[node] == 0 {
                node += 1;
            }
            room[node] -= 1;
            nodes[unit] = node;
        }
        nodes
    }
}

fn heaviest_first(units: &mut [usize], weights: &[u64]) {
    units.sort_unstable_by_key(|&unit| (Reverse(weights[unit]), unit));
}

/// Gives the units in `left` to nodes with capacity left, so that the weights per share are about even.
fn even_out(
    mut left: Vec<usize>,
    weights: &[u64],
    shares: &[usize],
    mut room: Vec<usize>,
    nodes: &mut [usize],
) {
    let mut loads = vec![0u64; shares.len()];
    nodes.iter().zip(weights).for_each(|(&node, weight)| loads[node] += weight);
    // Units in `left` have no node yet. Their entry is 0, so the loop above has counted them for node 0.
    left.iter().for_each(|&unit| loads[nodes[unit]] -= weights[unit]);
    heaviest_first(&mut left, weights);
    // Loads are compared in 2⁻³² of a unit of the share.
    let key = |node: usize, load: u64| Reverse(((u128::from(load) << 32) / shares[node] as u128, node));
    let open = (0..shares.len()).filter(|&node| room[node] > 0);
    let mut lightest: BinaryHeap<_> = open.map(|node| key(node, loads[node])).collect();
    for unit in left {
        let Reverse((_, node)) = lightest.pop().expect("room for every unit");
        nodes[unit] = node;
        room[node] -= 1;
        loads[node] += weights[unit];
        if room[node] > 0 {
            lightest.push(key(node, loads[node]));
        }
    }
}

#[cfg(test)]
mod tests;
