//! Which rank takes which sample of a global batch when samples come to the node that keeps them.
//!
//! For the gradient it does not matter which rank takes a sample of a global batch. So a node's ranks take the samples
//! that the node keeps, as many as they take at all, and only the rest moves: of `held` samples of a node whose ranks
//! take `share`, `held` − `share` where that is more than 0. No assignment moves fewer. It is pure: whoever knows the
//! homes of a global batch's samples gets the same.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The nodes of all ranks, by which samples are assigned.
#[derive(Debug, Clone)]
pub(crate) struct Locality {
    /// The ranks of each node, in order.
    ranks: Vec<Vec<usize>>,
    /// How many neighbouring places of a global batch are never parted.
    unit: usize,
}

/// The places of a global batch that each rank takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalBatches {
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
    pub(crate) fn of_rank(&self, rank: usize) -> &[u32] {
        &self.places[self.begins[rank]..self.begins[rank + 1]]
    }
}

impl Locality {
    /// The locality of ranks of which `node_of` says on which node each is, as a number from 0. Places of a global
    /// batch from a multiple of `unit` to the next stay together, as images must that are mixed with one another.
    ///
    /// # Panics
    /// Panics when `unit` is 0.
    pub(crate) fn new(node_of: &[usize], unit: usize) -> Self {
        assert!(unit > 0, "units of nothing");
        let mut ranks = vec![Vec::new(); node_of.iter().max().map_or(0, |last| last + 1)];
        (0..).zip(node_of).for_each(|(rank, &node)| ranks[node].push(rank));
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
    pub(crate) fn assign(
        &self,
        homes: &[Option<usize>],
        sizes: &[u32],
        weights: Option<&[u64]>,
    ) -> LocalBatches {
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
        let nodes = self.nodes(&batch, &shares);
        let mut units: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
        for (ranks, of_node) in self.ranks.iter().zip(nodes) {
            batch.among_ranks(ranks, &whole, of_node, &mut units);
        }
        let mut batches = LocalBatches { places: Vec::with_capacity(homes.len()), begins: vec![0] };
        for (rank, mut units) in units.into_iter().enumerate() {
            units.sort_unstable();
            units.extend((odd == Some(rank)).then_some(batch.whole));
            batches.places.extend(units.into_iter().flat_map(|unit| batch.places(unit)));
            batches.begins.push(batches.places.len());
        }
        batches
    }

    /// The units that each node gets, in no particular order.
    fn nodes(&self, batch: &BatchUnits, shares: &[usize]) -> Vec<Vec<usize>> {
        let mut room = shares.to_vec();
        let mut nodes: Vec<Vec<usize>> = shares.iter().map(|&share| Vec::with_capacity(share)).collect();
        let mut left = Vec::new();
        for unit in 0..batch.whole {
            match batch.homes(unit).into_iter().find(|&home| room.get(home).is_some_and(|&room| room > 0)) {
                Some(home) => {
                    room[home] -= 1;
                    nodes[home].push(unit);
                }
                None => left.push(unit),
            }
        }
        if batch.weights.is_some() {
            batch.even_out(left, shares, &mut nodes);
            return nodes;
        }
        let mut node = 0;
        for unit in left {
            while room[node] == 0 {
                node += 1;
            }
            room[node] -= 1;
            nodes[node].push(unit);
        }
        nodes
    }
}

/// A global batch in units.
struct BatchUnits<'a> {
    unit: usize,
    homes: &'a [Option<usize>],
    weights: Option<&'a [u64]>,
    /// The number of complete units; one more may be incomplete.
    whole: usize,
}

impl<'a> BatchUnits<'a> {
    fn new(unit: usize, homes: &'a [Option<usize>], weights: Option<&'a [u64]>) -> Self {
        Self { unit, homes, weights, whole: homes.len() / unit }
    }

    fn places(&self, unit: usize) -> impl Iterator<Item = u32> {
        let begin = unit * self.unit;
        begin as u32..(begin + self.unit).min(self.homes.len()) as u32
    }

    /// The homes of a unit's places, those of most places first, and of as many the earliest.
    fn homes(&self, unit: usize) -> Vec<usize> {
        let homes = &self.homes[unit * self.unit..(unit + 1) * self.unit];
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for &home in homes.iter().flatten() {
            match counts.iter_mut().find(|(known, _)| *known == home) {
                Some((_, count)) => *count += 1,
                None => counts.push((home, 1)),
            }
        }
        // A stable sort keeps the earlier of two before the other.
        counts.sort_by_key(|&(_, count)| Reverse(count));
        counts.into_iter().map(|(home, _)| home).collect()
    }

    fn weight(&self, unit: usize) -> u64 {
        let weight = |weights: &[u64]| self.places(unit).map(|place| weights[place as usize]).sum();
        self.weights.map_or(0, weight)
    }

    fn heaviest_first(&self, units: &mut [usize]) {
        units.sort_by_key(|&unit| (Reverse(self.weight(unit)), unit));
    }

    /// Adds what is `left` to the nodes, so that their weights are as even as this gets them.
    fn even_out(&self, mut left: Vec<usize>, shares: &[usize], nodes: &mut [Vec<usize>]) {
        self.heaviest_first(&mut left);
        let mut loads: Vec<u64> =
            nodes.iter().map(|units| units.iter().map(|&unit| self.weight(unit)).sum()).collect();
        // Loads are compared in 2⁻³² of a unit of the share.
        let key = |node: usize, load: u64| Reverse(((u128::from(load) << 32) / shares[node] as u128, node));
        let open = (0..nodes.len()).filter(|&node| nodes[node].len() < shares[node]);
        let mut lightest: BinaryHeap<_> = open.map(|node| key(node, loads[node])).collect();
        for unit in left {
            let Reverse((_, node)) = lightest.pop().expect("room for every unit");
            nodes[node].push(unit);
            loads[node] += self.weight(unit);
            if nodes[node].len() < shares[node] {
                lightest.push(key(node, loads[node]));
            }
        }
    }

    /// Divides the units of a node among its `ranks`, of which each takes so many `whole` units.
    fn among_ranks(
        &self,
        ranks: &[usize],
        whole: &[usize],
        mut of_node: Vec<usize>,
        units: &mut [Vec<usize>],
    ) {
        if self.weights.is_none() {
            of_node.sort_unstable();
            let mut of_node = of_node.into_iter();
            ranks.iter().for_each(|&rank| units[rank] = of_node.by_ref().take(whole[rank]).collect());
            return;
        }
        self.heaviest_first(&mut of_node);
        let mut loads = vec![0u64; ranks.len()];
        for unit in of_node {
            let open = (0..ranks.len()).filter(|&number| units[ranks[number]].len() < whole[ranks[number]]);
            let lightest = open.min_by_key(|&number| loads[number]).expect("room for every unit");
            loads[lightest] += self.weight(unit);
            units[ranks[lightest]].push(unit);
        }
    }
}

#[cfg(test)]
mod tests;
