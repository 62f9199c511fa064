//! The order that keeps neighbours near: a permutation of all samples in which each stretch (block of neighbouring
//! samples) is read once if memory holds the recently used stretches.

use foreload::testing::dataset::{Fingerprint, NeighbourBlocks};
use foreload::testing::schedule::{LastBatch, Order, RankRanges, Schedule, Selection};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const DATASET: Fingerprint = Fingerprint([5; 32]);
/// The memory that the order assumes.
const MEMORY: u64 = 256 << 20;

fn order(
    neighbour_blocks: &Arc<NeighbourBlocks>,
    seed: u64,
    epoch: u64,
    parts: u32,
    global_batch: u64,
) -> Order {
    let selection = Arc::new(Selection::all(neighbour_blocks.members()));
    let divided = RankRanges { parts, global_batch };
    Order::by_neighbour_blocks(selection, neighbour_blocks.clone(), &DATASET, seed, epoch, divided)
}

fn neighbour_blocks(sizes: &[(u64, u64)]) -> Arc<NeighbourBlocks> {
    Arc::new(NeighbourBlocks::simulated(sizes))
}

/// The number of reads of stretches by a reader that takes these samples in order and keeps the recently used
/// stretches.
fn reads(neighbour_blocks: &NeighbourBlocks, samples: impl Iterator<Item = u64>) -> usize {
    let (mut kept, mut bytes, mut reads) = (HashMap::new(), 0, 0);
    for (now, sample) in samples.enumerate() {
        let neighbour_block = neighbour_blocks.with_member(sample);
        if kept.insert(neighbour_block, now).is_none() {
            reads += 1;
            bytes += neighbour_blocks.bytes_of(neighbour_block);
        }
        while bytes > MEMORY && kept.len() > 1 {
            let oldest = *kept.iter().min_by_key(|(_, used)| **used).expect("some").0;
            kept.remove(&oldest);
            bytes -= neighbour_blocks.bytes_of(oldest);
        }
    }
    reads
}

/// The samples of a rank in the order in which it reads them.
fn of_rank(order: &Order, batch_size: u32, rank: u32, world_size: u32) -> Vec<u64> {
    let schedule = Schedule::new(order.clone(), batch_size, rank, world_size, LastBatch::Drop).unwrap();
    let steps = 0..schedule.steps();
    steps.flat_map(|step| schedule.places(step).map(|place| place.draw.sample).collect::<Vec<_>>()).collect()
}

proptest! {
    #[test]
    fn every_sample_has_its_place(
        sizes in prop::collection::vec((1u64..60, 1u64..(60 << 20)), 1..80),
        seed in any::<u64>(),
        epoch in 0u64..100,
        parts in 1u32..7,
        each in 1u64..9,
    ) {
        let neighbour_blocks = neighbour_blocks(&sizes);
        let order = order(&neighbour_blocks, seed, epoch, parts, each * u64::from(parts));
        let mut seen: Vec<u64> = (0..order.len()).map(|place| order.sample(place)).collect();
        for (place, &sample) in (0..).zip(&seen) {
            prop_assert_eq!(order.positions(sample).collect::<Vec<_>>(), [place]);
        }
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..neighbour_blocks.members()));
    }

    /// A cache that evicts the least recently used stretch holds each stretch while it is in use.
    #[test]
    fn every_stretch_is_read_once(
        sizes in prop::collection::vec((1u64..40, 1u64..(14 << 20)), 1..200),
        seed in any::<u64>(),
    ) {
        let neighbour_blocks = neighbour_blocks(&sizes);
        let order = order(&neighbour_blocks, seed, 0, 1, 1);
        prop_assert_eq!(reads(&neighbour_blocks, of_rank(&order, 1, 0, 1).into_iter()), neighbour_blocks.len());
    }
}

#[test]
fn large_stretches_are_read_once_too() {
    for bytes in [30 << 20, 80 << 20, 200 << 20] {
        let neighbour_blocks = neighbour_blocks(&[(100, bytes); 40]);
        let order = order(&neighbour_blocks, 1, 0, 1, 10);
        assert_eq!(reads(&neighbour_blocks, of_rank(&order, 10, 0, 1).into_iter()), 40, "{bytes} bytes");
    }
}

#[test]
fn ranks_read_stretches_of_their_own() {
    let neighbour_blocks = neighbour_blocks(&[(40, 4 << 20); 2000]);
    for ranks in [2, 4, 8] {
        let order = order(&neighbour_blocks, 7, 2, ranks, 64 * u64::from(ranks));
        let each: Vec<_> = (0..ranks).map(|rank| of_rank(&order, 64, rank, ranks)).collect();
        let all: HashSet<u64> = each.iter().flatten().copied().collect();
        assert_eq!(all.len(), each.iter().map(Vec::len).sum::<usize>());
        let reads: usize = each.iter().map(|samples| reads(&neighbour_blocks, samples.iter().copied())).sum();
        // Two ranks read the stretches of eight read units of 12 MiB at each border between their parts.
        assert!(reads <= 2000 + (ranks as usize - 1) * 8 * 3, "{ranks} ranks: {reads} reads");
        // A rank that has the parts of two ranks reads at most as much again: memory does not hold the stretches of
        // both parts.
        let halved = (0..ranks / 2).map(|rank| of_rank(&order, 128, rank, ranks / 2));
        let halved: usize = halved.map(|samples| self::reads(&neighbour_blocks, samples.into_iter())).sum();
        assert!(halved < 2 * reads, "{ranks} ranks: {halved} reads on half of them, {reads} before");
        // The same order on half of the ranks, each of which has two parts.
        let halves: HashSet<Vec<u64>> = (0..order.len() / (64 * u64::from(ranks)))
            .map(|step| batch_of(&order, 64, ranks, step))
            .collect();
        let fewer =
            (0..order.len() / (64 * u64::from(ranks))).map(|step| batch_of(&order, 128, ranks / 2, step));
        assert!(fewer.into_iter().all(|batch| halves.contains(&batch)));
    }
}

/// The samples of a global batch, in order.
fn batch_of(order: &Order, batch_size: u32, ranks: u32, step: u64) -> Vec<u64> {
    let of = |rank| {
        let schedule = Schedule::new(order.clone(), batch_size, rank, ranks, LastBatch::Drop).unwrap();
        schedule.places(step).map(|place| place.draw.sample).collect::<Vec<_>>()
    };
    (0..ranks).flat_map(of).collect()
}

#[test]
fn batches_are_mixed_of_many_stretches() {
    let neighbour_blocks = neighbour_blocks(&[(40, 4 << 20); 1000]);
    for epoch in 0..3 {
        let order = order(&neighbour_blocks, 3, epoch, 1, 64);
        let samples = of_rank(&order, 64, 0, 1);
        // The first and the last batches have fewer different stretches.
        for batch in samples.chunks(64).skip(20).take(560) {
            let different: HashSet<_> =
                batch.iter().map(|&sample| neighbour_blocks.with_member(sample)).collect();
            assert!(different.len() >= 16, "{} stretches in a batch of epoch {epoch}", different.len());
        }
    }
}

/// The chi-squared test of the positions of some samples over many seeds; 99.99 % of uniform distributions are below
/// its limit.
#[test]
fn every_sample_may_come_at_any_time() {
    const SEEDS: u64 = 2000;
    const BINS: usize = 20;
    let neighbour_blocks = neighbour_blocks(&[(20, 4 << 20); 100]);
    let watched = [0, 1, 777, 1000, 1999];
    let mut counts = [[0u64; BINS]; 5];
    for seed in 0..SEEDS {
        let order = order(&neighbour_blocks, seed, 0, 1, 10);
        for (counts, sample) in counts.iter_mut().zip(watched) {
            let place = order.positions(sample).next().expect("once");
            counts[(place * BINS as u64 / neighbour_blocks.members()) as usize] += 1;
        }
    }
    let expected = SEEDS as f64 / BINS as f64;
    for (sample, counts) in watched.iter().zip(&counts) {
        let chi: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
        assert!(chi < 50.8, "sample {sample}: chi-squared {chi:.1} of 19 degrees, {counts:?}");
    }
}

/// Neighbours of a stretch are near one another in the order, but one does not follow another more often than by
/// chance.
#[test]
fn neighbours_do_not_follow_one_another() {
    let neighbour_blocks = neighbour_blocks(&[(40, 4 << 20); 400]);
    let (mut following, mut all) = (0, 0);
    for seed in 0..40 {
        let samples = of_rank(&order(&neighbour_blocks, seed, 0, 1, 1), 1, 0, 1);
        following += samples.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        all += samples.len();
    }
    // A sample is followed by the next sample of its stretch with a probability of about one in the number of samples
    // of a phase's read units.
    let share = following as f64 / all as f64;
    assert!(share < 1.0 / 300.0, "{share}");
}
