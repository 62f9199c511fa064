//! Which rank takes which sample of a global batch when samples come to the node that keeps them.
//!
//! For the gradient it does not matter which rank takes a sample of a global batch. So a node's ranks take the samples
//! that the node keeps, as many as they take at all, and only the rest moves: of `held` samples of a node whose ranks
//! take `share`, `held` − `share` where that is more than 0. No assignment moves fewer. It is pure: whoever knows the
//! homes of a global batch's samples gets the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The nodes of all ranks, by which samples are assigned.
#[derive(Debug, Clone)]
pub struct Locality {
    /// The ranks of each node, in order.
    ranks: Vec<Vec<usize>>,
    /// How many neighbouring places of a global batch are never parted.
    unit: usize,
}

/// The places of a global batch that each rank takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalBatches {
    /// The places of all ranks, one rank after the other.
    places: Vec<u32>,
    /// Where the places of each rank begin, and at last where they end.
    begins: Vec<usize>,
}

impl LocalBatches {
    /// The places of `rank` in the global batch, in ascending order: the rank's batch.
    ///
    /// # Panics
    /// Panics when there is no such rank.
    pub fn of_rank(&self, rank: usize) -> &[u32] {
        &self.places[self.begins[rank]..self.begins[rank + 1]]
    }
}

impl Locality {
    /// The locality of ranks of which `node_of` says on which node each is, as a number from 0. Places of a global
    /// batch from a multiple of `unit` to the next stay together, as images must that are mixed with one another.
    ///
    /// # Panics
    /// Panics when `unit` is 0.
    pub fn new(node_of: &[u32], unit: usize) -> Self {
        assert!(unit > 0, "units of nothing");
        let mut ranks = vec![Vec::new(); node_of.iter().max().map_or(0, |&last| last as usize + 1)];
        (0..).zip(node_of).for_each(|(rank, &node)| ranks[node as usize].push(rank));
        Self { ranks, unit }
    }

    /// Assigns the places of a global batch to ranks. `homes` says for each place which node keeps its sample, if one
    /// does; it must be a node with ranks, or the place counts as one without a home. `sizes` is how many places each
    /// rank takes: whole units, but for the one rank that takes what is left at the end of a short last batch.
    ///
    /// First, in order, each place comes to its home while that has room: a unit to the node that is the home of most
    /// of its places, the earlier home where two have as many. Then what is left comes, in order, to the first node
    /// with room. The ranks of a node take consecutive parts of what it gets.
    ///
    /// With `weights`, a number for each place such as its bytes, what is left comes to the node with the least weight
    /// for its share, the heaviest first, and so do a node's units to its ranks. As few places move.
    ///
    /// # Panics
    /// Panics when `sizes` do not add up to the number of places, or do not fit units.
    pub fn assign(&self, homes: &[Option<usize>], sizes: &[u32], weights: Option<&[u64]>) -> LocalBatches {
        let batch = BatchUnits::new(self.unit, homes, weights);
        assert_eq!(
            sizes.iter().map(|&size| size as usize).sum::<usize>(),
            homes.len(),
            "places of all ranks"
        );
        // Only the rank of the incomplete unit may have a part of one.
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
        // Units go through in order, so that each rank's places ascend.
        let (mut places, mut next) = (vec![0; homes.len()], begins.clone());
        for (unit, rank) in ranks.into_iter().chain(odd).enumerate() {
            for place in batch.places(unit) {
                places[next[rank]] = place as u32;
                next[rank] += 1;
            }
        }
        LocalBatches { places, begins }
    }

    /// The rank of each unit, of which `nodes` has the node: the ranks of a node take consecutive parts of its units.
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

    /// The rank of each unit, of which `nodes` has the node: the heaviest comes first, and to the rank of its node with
    /// the least weight.
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
    /// The weights of the complete units.
    weights: Option<Vec<u64>>,
    /// The number of complete units; one more may be incomplete.
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

    /// The home of most of a unit's places among those with `room`, and of as many the earliest.
    fn home(&self, unit: usize, room: &[usize]) -> Option<usize> {
        let homes = &self.homes[self.places(unit)];
        let count = |home| homes.iter().filter(|other| **other == Some(home)).count();
        let open =
            homes.iter().flatten().copied().filter(|&home| room.get(home).is_some_and(|&room| room > 0));
        // Of equals the last one is taken.
        open.rev().max_by_key(|&home| count(home))
    }

    /// The node of each complete unit, where each takes its share of them.
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

/// Gives the units that are `left` to nodes with `room`, so that their weights are as even as this gets them.
fn even_out(
    mut left: Vec<usize>,
    weights: &[u64],
    shares: &[usize],
    mut room: Vec<usize>,
    nodes: &mut [usize],
) {
    let mut loads = vec![0u64; shares.len()];
    nodes.iter().zip(weights).for_each(|(&node, weight)| loads[node] += weight);
    // Those that are left stand there as the first node's.
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
