//! Ranks that take the samples which their nodes store: the global batches do not change, and no more samples move than
//! necessary.

use foreload::Error;
use foreload::testing::dataset::Fingerprint;
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::schedule::{BatchEntry, LastBatch, Order, SampleOwners, Schedule};
use foreload::testing::state::{OrderIdentity, State};
use proptest::prelude::*;
use std::sync::Arc;

const DATASET: Fingerprint = Fingerprint([9; 32]);

/// A job on some nodes. A failure prints all fields, so that the job can be repeated.
#[derive(Debug, Clone)]
struct Job {
    seed: u64,
    samples: u64,
    nodes: u32,
    ranks_per_node: u32,
    /// Whether neighbouring ranks are on one node; otherwise each is on the next node.
    in_blocks: bool,
    batch_size: u32,
    unit: u32,
    repeats: u32,
    last: LastBatch,
    /// How much each node stores, in any unit. The last entry is the part that no node stores.
    kept: Vec<u64>,
    even_bytes: bool,
}

prop_compose! {
    fn jobs()(
        nodes in prop_oneof![Just(1u32), Just(2), Just(4), Just(8)],
        last in prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Pad), Just(LastBatch::Partial)],
        unit in prop_oneof![Just(1u32), Just(4)],
        even in any::<bool>(),
    )(
        kept in prop::collection::vec(if even { 1..2u64 } else { 0..6 }, nodes as usize),
        nobody in 0..3u64,
        seed in any::<u64>(),
        samples in 1u64..1500,
        ranks_per_node in 1u32..4,
        in_blocks in any::<bool>(),
        units in 1u32..5,
        repeats in prop_oneof![Just(1u32), 2u32..5],
        even_bytes in any::<bool>(),
        nodes in Just(nodes),
        last in Just(last),
        unit in Just(unit),
    ) -> Job {
        let kept = kept.into_iter().chain([nobody]).collect();
        let batch_size = units * unit;
        Job {
            seed, samples, nodes, ranks_per_node, in_blocks, batch_size, unit, repeats, last, kept, even_bytes,
        }
    }
}

impl Job {
    fn world(&self) -> u32 {
        self.nodes * self.ranks_per_node
    }

    fn node_of(&self, rank: u32) -> u32 {
        if self.in_blocks { rank / self.ranks_per_node } else { rank % self.nodes }
    }

    /// The node that stores a sample: random, in proportion to how much the nodes store.
    fn home(&self, sample: u64) -> Option<usize> {
        let mut stream = RandomKey::new(b"homes of a test", self.seed, 0, Use::Owner).stream(sample);
        let mut at = stream.below(self.kept.iter().sum::<u64>().max(1));
        let node = self.kept.iter().position(|&kept| {
            let here = at < kept;
            at = at.saturating_sub(kept);
            here
        });
        node.filter(|&node| node < self.nodes as usize)
    }

    /// Each rank makes its own table of owners, as in separate processes.
    fn homes(&self) -> Arc<SampleOwners> {
        let job = self.clone();
        let node_of_rank = (0..self.world()).map(|rank| self.node_of(rank)).collect();
        let homes = SampleOwners::new(node_of_rank, move |sample| job.home(sample));
        Arc::new(if self.even_bytes { homes.with_even_bytes(bytes_of) } else { homes })
    }

    fn in_slices(&self, rank: u32) -> Option<Schedule> {
        let order = Order::shuffled(&DATASET, self.seed, 2, self.samples).repeated(self.repeats);
        let schedule = Schedule::new(order, self.batch_size, rank, self.world(), self.last).ok()?;
        Some(schedule.with_unit(self.unit))
    }

    fn by_locality(&self, rank: u32) -> Option<Schedule> {
        Some(self.in_slices(rank)?.by_locality(self.homes()).expect("as many ranks"))
    }

    /// The schedules of all ranks, in slices or by locality; `None` if there is no batch.
    fn ranks(&self, by_locality: bool) -> Option<Vec<Schedule>> {
        let of_rank = |rank| if by_locality { self.by_locality(rank) } else { self.in_slices(rank) };
        (0..self.world()).map(of_rank).collect()
    }

    /// Whether no place of a global batch is padding.
    fn is_complete(&self, step: u64) -> bool {
        let global = u64::from(self.batch_size) * u64::from(self.world());
        (step + 1) * global <= self.samples
    }

    /// The number of places of a step that go to other nodes than those that store their samples, and the smallest
    /// possible number.
    fn moved(&self, ranks: &[Schedule], step: u64) -> (usize, usize) {
        let mut held = vec![0; self.nodes as usize];
        let mut moved = 0;
        for (number, rank) in (0..).zip(ranks) {
            for home in rank.places(step).filter_map(|place| self.home(place.draw.sample)) {
                held[home] += 1;
                moved += usize::from(home != self.node_of(number) as usize);
            }
        }
        let share = (self.batch_size * self.ranks_per_node) as usize;
        (moved, held.into_iter().map(|held: usize| held.saturating_sub(share)).sum())
    }
}

fn bytes_of(sample: u64) -> u64 {
    1 + sample * 7919 % 1000
}

/// The places of a global batch, without their ranks. Padding repeats positions, so all fields of a place are compared.
fn global_batch(ranks: &[Schedule], step: u64) -> Vec<BatchEntry> {
    let mut places: Vec<BatchEntry> = ranks.iter().flat_map(|rank| rank.places(step)).collect();
    places.sort_by_key(|place| (place.position, place.draw.sample, place.draw.occurrence, place.valid));
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn global_batches_are_the_same_and_so_are_the_numbers_of_samples(job in jobs()) {
        let (Some(slices), Some(local)) = (job.ranks(false), job.ranks(true)) else { return Ok(()) };
        // Backwards from the last step: a rank's share does not depend on earlier steps.
        for step in (0..slices[0].steps()).rev() {
            prop_assert_eq!(global_batch(&slices, step), global_batch(&local, step), "step {}", step);
            for (slice, rank) in slices.iter().zip(&local) {
                let places: Vec<BatchEntry> = rank.places(step).collect();
                prop_assert_eq!(rank.batch_len(step), slice.batch_len(step));
                prop_assert_eq!(places.len(), rank.batch_len(step) as usize);
                if !job.is_complete(step) {
                    prop_assert!(slice.places(step).eq(places), "an incomplete batch keeps its division");
                    continue;
                }
                prop_assert_eq!(places.len(), job.batch_size as usize);
                prop_assert!(places.is_sorted_by(|one, next| one.position < next.position));
                for ring in places.chunks(job.unit as usize) {
                    let first = ring[0].position;
                    prop_assert!(first.is_multiple_of(job.unit.into()), "a ring begins at {}", first);
                    prop_assert!(ring.iter().zip(first..).all(|(place, at)| place.position == at));
                }
            }
        }
    }

    #[test]
    fn no_more_samples_move_than_must(job in jobs()) {
        let job = Job { unit: 1, ..job };
        let Some(local) = job.ranks(true) else { return Ok(()) };
        let complete = (0..local[0].steps()).filter(|&step| job.is_complete(step));
        let (moved, least) = complete
            .map(|step| job.moved(&local, step))
            .fold((0, 0), |(moved, least), (more, must)| (moved + more, least + must));
        prop_assert!(moved as f64 <= 1.05 * least as f64, "{} moved, {} must", moved, least);
    }

    #[test]
    fn an_epoch_goes_on_with_other_ranks_and_nodes(job in jobs(), at in 0.0..1.0f64, merged: bool) {
        let Some(before) = job.ranks(true) else { return Ok(()) };
        let identity = OrderIdentity {
            fingerprint: DATASET.to_string(),
            seed: job.seed,
            epoch_size: job.samples,
            shuffle: true,
            blocks: None,
            last_batch: job.last,
            selection: None,
            repeats: job.repeats,
            mix: None,
            buckets: None,
            bins: None,
        };
        let step = (at * before[0].steps() as f64) as u64;
        let states: Vec<State> =
            before.iter().map(|rank| State::new(&identity, 2, rank, step, 0)).collect();
        prop_assert!(states.iter().all(|state| *state == states[0]), "one state for all ranks");
        // Half as many ranks, or all samples of a node on one rank.
        let ranks_per_node = if merged || job.ranks_per_node % 2 == 1 { 1 } else { job.ranks_per_node / 2 };
        let batch_size = job.batch_size * job.ranks_per_node / ranks_per_node;
        let after = Job { ranks_per_node, batch_size, in_blocks: !job.in_blocks, ..job.clone() };
        let (Some(slices), Some(after)) = (job.ranks(false), after.ranks(true)) else { unreachable!() };
        prop_assert_eq!(states[0].first_step(&after[0]).unwrap(), step);
        for step in step..after[0].steps() {
            let counted = |ranks: &[Schedule]| {
                let mut places = global_batch(ranks, step);
                if job.last == LastBatch::Partial {
                    // The number of ranks whose batch is only padding depends on the number of ranks.
                    places.retain(|place| place.valid);
                }
                places
            };
            prop_assert_eq!(counted(&slices), counted(&after), "step {}", step);
        }
    }
}

fn usual(seed: u64) -> Job {
    Job {
        seed,
        samples: 4096,
        nodes: 4,
        ranks_per_node: 2,
        in_blocks: true,
        batch_size: 32,
        unit: 1,
        repeats: 1,
        last: LastBatch::Drop,
        kept: vec![1, 1, 1, 1, 0],
        even_bytes: false,
    }
}

/// The samples of a mixing group (ring) have different owners, so some samples must move with the others, but fewer
/// than without locality.
#[test]
fn rings_move_less_than_slices_do() {
    for seed in 0..20 {
        let job = Job { unit: 4, ..usual(seed) };
        let moved = |ranks: &[Schedule]| (0..ranks[0].steps()).map(|step| job.moved(ranks, step).0).sum();
        let (local, slices): (usize, usize) =
            (moved(&job.ranks(true).unwrap()), moved(&job.ranks(false).unwrap()));
        assert!(local * 10 < slices * 8, "seed {seed}: {local} of {slices}");
    }
}

#[test]
fn ranks_get_as_many_bytes_where_that_is_asked_for() {
    for seed in 0..20 {
        let spread = |even_bytes| {
            let ranks = Job { even_bytes, ..usual(seed) }.ranks(true).unwrap();
            let of_step = |step: u64| {
                let load = |rank: &Schedule| -> u64 {
                    rank.places(step).map(|place| bytes_of(place.draw.sample)).sum()
                };
                let loads: Vec<u64> = ranks.iter().map(load).collect();
                loads.iter().max().unwrap() - loads.iter().min().unwrap()
            };
            (0..ranks[0].steps()).map(of_step).sum::<u64>()
        };
        let (even, any) = (spread(true), spread(false));
        assert!(even * 10 < any * 7, "seed {seed}: {even} of {any} bytes");
    }
}

#[test]
fn homes_of_another_job_are_refused() {
    let schedule = |world| Schedule::new(Order::sequential(100), 4, 0, world, LastBatch::Pad).unwrap();
    let homes = || Arc::new(SampleOwners::new(vec![0, 0, 1, 1], |_| None));
    assert_eq!(schedule(4).by_locality(homes()).unwrap().places(0).count(), 4);
    for world in [1, 2, 8] {
        match schedule(world).by_locality(homes()) {
            Err(Error::Config { setting: "world_size", message }) => {
                assert!(message.contains("4 ranks") && message.contains(&format!("is {world}")), "{message}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[should_panic = "rank 1 of 2 is on node 2"]
fn a_node_without_ranks_cannot_be_that_of_one() {
    SampleOwners::new(vec![0, 2], |_| None);
}
