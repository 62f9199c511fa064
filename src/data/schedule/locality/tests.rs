//! Properties of an assignment by locality, over random global batches.

use super::*;
use base::rng::{RandomKey, RandomStream, Use};

/// A random global batch, its ranks and their nodes. A failing test prints all of it.
#[derive(Debug)]
struct DrawnBatch {
    node_of: Vec<u32>,
    unit: usize,
    owners: Vec<Option<usize>>,
    sizes: Vec<u32>,
    weights: Vec<u64>,
}

impl DrawnBatch {
    fn new(seed: u64) -> Self {
        let mut stream = RandomKey::new(b"locality", seed, 0, Use::Owner).stream(0);
        let mut draw = |bound: u64| stream.below(bound) as usize;
        let (nodes, unit) = (1 + draw(9), [1, 1, 4][draw(3)]);
        let ranks_of: Vec<usize> = (0..nodes).map(|_| 1 + draw(4)).collect();
        let node_of: Vec<u32> = (0..nodes).flat_map(|node| vec![node as u32; ranks_of[node]]).collect();
        let (world, batch_size) = (node_of.len(), unit * (1 + draw(12)));
        let len = match draw(3) {
            0 => 1 + draw((world * batch_size) as u64),
            _ => world * batch_size,
        };
        let units = len.div_ceil(unit);
        let (each, extra) = (units / world, units % world);
        let end = |rank: usize| ((rank * each + rank.min(extra)) * unit).min(len);
        let sizes = (0..world).map(|rank| (end(rank + 1) - end(rank)) as u32).collect();
        // Some nodes keep more than others, and no node keeps some of the samples.
        let kept: Vec<u64> = (0..=nodes).map(|_| 1 + draw(5) as u64).collect();
        let owners = (0..len).map(|_| owner(&mut stream, &kept)).collect();
        let weights = (0..len).map(|_| 1 + stream.below(1000)).collect();
        Self { node_of, unit, owners, sizes, weights }
    }

    fn assign(&self, weighted: bool) -> LocalBatches {
        let weights = weighted.then_some(&self.weights[..]);
        Locality::new(&self.node_of, self.unit).assign(&self.owners, &self.sizes, weights)
    }

    /// Returns the number of samples that go to another node than the one that keeps them.
    fn moved(&self, batches: &LocalBatches) -> usize {
        let taken = |rank: usize| batches.of_rank(rank).iter().map(move |&place| (rank, place as usize));
        let away = |&(rank, place): &(usize, usize)| {
            self.owners[place].is_some_and(|owner| owner != self.node_of[rank] as usize)
        };
        (0..self.sizes.len()).flat_map(taken).filter(away).count()
    }
}

/// Draws a node in proportion to the number of samples it keeps. The last entry stands for no node.
fn owner(stream: &mut RandomStream, kept: &[u64]) -> Option<usize> {
    let mut at = stream.below(kept.iter().sum());
    let node = kept.iter().position(|&kept| {
        let here = at < kept;
        at = at.saturating_sub(kept);
        here
    });
    node.filter(|&node| node + 1 < kept.len())
}

#[test]
fn every_place_comes_to_one_rank_and_every_rank_gets_its_number() {
    for batch in (0..2000).map(DrawnBatch::new) {
        for weighted in [false, true] {
            let batches = batch.assign(weighted);
            let mut seen = vec![false; batch.owners.len()];
            for (rank, &size) in batch.sizes.iter().enumerate() {
                let places = batches.of_rank(rank);
                assert_eq!(places.len(), size as usize, "{batch:?}");
                assert!(places.is_sorted(), "{batch:?}");
                for &place in places {
                    assert!(!std::mem::replace(&mut seen[place as usize], true), "{batch:?}");
                }
                // A mixing group is in one batch, at a multiple of its length.
                for group in places.chunks(batch.unit) {
                    let first = group[0] as usize;
                    assert!(first.is_multiple_of(batch.unit), "{batch:?}");
                    assert!(group.iter().zip(first..).all(|(&place, at)| place as usize == at), "{batch:?}");
                }
            }
            assert!(seen.into_iter().all(|seen| seen), "{batch:?}");
            assert_eq!(batches, batch.assign(weighted), "{batch:?}");
        }
    }
}

#[test]
fn no_more_moves_than_must() {
    for batch in (0..3000).map(DrawnBatch::new).filter(|batch| batch.unit == 1) {
        let of_node = |node: usize| batch.owners.iter().filter(|owner| **owner == Some(node)).count();
        let share = |node: usize| -> usize {
            let ranks = batch.node_of.iter().zip(&batch.sizes).filter(|(at, _)| **at as usize == node);
            ranks.map(|(_, &size)| size as usize).sum()
        };
        let nodes = *batch.node_of.iter().max().unwrap() as usize + 1;
        let least: usize = (0..nodes).map(|node| of_node(node).saturating_sub(share(node))).sum();
        for weighted in [false, true] {
            assert_eq!(batch.moved(&batch.assign(weighted)), least, "weighted: {weighted}, {batch:?}");
        }
    }
}

#[test]
fn a_ring_comes_to_the_node_of_most_of_its_samples() {
    let owners = [0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 2, 2, 2, 2].map(|owner| (owner < 2).then_some(owner));
    let batches = Locality::new(&[0, 1], 4).assign(&owners, &[8, 8], None);
    // The first group is a tie, so it goes to the earlier node. Then node 0 has capacity for one more group, and takes
    // the third.
    assert_eq!(batches.of_rank(0), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(batches.of_rank(1), [4, 5, 6, 7, 12, 13, 14, 15]);
}

#[test]
fn ranks_of_a_node_take_consecutive_parts() {
    let owners = [1, 1, 0, 1, 0, 0, 1, 0].map(Some);
    let batches = Locality::new(&[0, 0, 1, 1], 1).assign(&owners, &[2, 2, 2, 2], None);
    assert_eq!([0, 1, 2, 3].map(|rank| batches.of_rank(rank).to_vec()), [[2, 4], [5, 7], [0, 1], [3, 6]]);
    // Places that a node cannot take go to the first node with capacity, in order.
    let owners = [1, 1, 1, 1, 1, 1, 0, 1].map(Some);
    let batches = Locality::new(&[0, 0, 1, 1], 1).assign(&owners, &[2, 2, 2, 2], None);
    assert_eq!([0, 1, 2, 3].map(|rank| batches.of_rank(rank).to_vec()), [[4, 5], [6, 7], [0, 1], [2, 3]]);
}

#[test]
fn weights_even_out() {
    let spread = |batch: &DrawnBatch, weighted| {
        let batches = batch.assign(weighted);
        let load =
            |rank| batches.of_rank(rank).iter().map(|&place| batch.weights[place as usize]).sum::<u64>();
        let loads: Vec<u64> = (0..batch.sizes.len()).map(load).collect();
        (loads.iter().max().unwrap() - loads.iter().min().unwrap()) as f64
    };
    let full =
        |batch: &DrawnBatch| batch.sizes[0] > 1 && batch.sizes.iter().all(|&size| size == batch.sizes[0]);
    let batches: Vec<DrawnBatch> = (0..1000).map(DrawnBatch::new).filter(full).collect();
    let sum = |weighted| batches.iter().map(|batch| spread(batch, weighted)).sum::<f64>();
    assert!(sum(true) < 0.7 * sum(false), "{} of {}", sum(true), sum(false));
}
