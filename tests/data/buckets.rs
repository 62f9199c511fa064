//! Properties of orders by buckets: each global batch is of one bucket, each draw comes once, and steps are the same on
//! all ranks. The oracle is lists.

use foreload::testing::dataset::Fingerprint;
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::schedule::{BatchEntry, BucketTable, LastBatch, Order, Schedule, Selection};
use std::collections::HashMap;
use std::sync::Arc;

const DATASET: Fingerprint = Fingerprint([9; 32]);

struct Case {
    table: Arc<BucketTable>,
    buckets: Vec<u8>,
    selection: Arc<Selection>,
    last: LastBatch,
    is_shuffled: bool,
}

impl Case {
    fn order(&self, epoch: u64, global: u64) -> Order {
        let (selection, table) = (self.selection.clone(), self.table.clone());
        Order::by_buckets(selection, table, (&DATASET, 3, epoch), global, self.is_shuffled, self.last)
    }

    /// Returns the batches of all ranks by step, one rank after another.
    fn steps(&self, batch: u32, world: u32) -> Option<Vec<Vec<BatchEntry>>> {
        let order = self.order(1, u64::from(batch) * u64::from(world));
        let of_rank = |rank| Schedule::new(order.clone(), batch, rank, world, self.last).ok();
        let ranks: Vec<Schedule> = (0..world).map(of_rank).collect::<Option<_>>()?;
        let step = |step| {
            let of_rank = |rank: &Schedule| {
                assert_eq!(rank.bucket(step), ranks[0].bucket(step));
                let places: Vec<BatchEntry> = rank.places(step).collect();
                let bucket = rank.bucket(step).unwrap();
                for place in &places {
                    assert_eq!(self.buckets[place.draw.sample as usize], bucket, "step {step}");
                }
                assert_eq!(places.len(), rank.batch_len(step) as usize);
                places
            };
            ranks.iter().flat_map(of_rank).collect()
        };
        assert!(ranks.iter().all(|rank| rank.steps() == ranks[0].steps()));
        Some((0..ranks[0].steps()).map(step).collect())
    }
}

#[test]
fn global_batches_are_of_one_bucket_and_take_each_draw_once() {
    let seed = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FORELOAD_SEED={seed}");
    for number in 0..1500 {
        let random = &mut RandomKey::new(b"orders by buckets", seed, 0, Use::Augment).stream(number);
        let mut below = |n: u64| random.below(n);
        let (samples, kinds) = (1 + below(if number % 50 == 0 { 20_000 } else { 600 }), 1 + below(12));
        let buckets: Vec<u8> = (0..samples).map(|_| below(kinds).min(below(kinds)) as u8).collect();
        let last = [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial][below(3) as usize];
        let table = Arc::new(BucketTable::new(buckets.clone(), kinds as usize, b"sizes"));
        let selection = Arc::new(Selection::all(samples));
        let case = Case { table, buckets, selection, last, is_shuffled: below(4) > 0 };
        let (batch, world) = (1 + below(8) as u32, [1, 2, 3, 4, 8][below(5) as usize]);
        let global = u64::from(batch * world);
        let mut counts = vec![0; kinds as usize];
        case.buckets.iter().for_each(|bucket| counts[usize::from(*bucket)] += 1u64);
        let full: u64 = counts.iter().map(|count| count / global).sum();
        let rests: Vec<u64> = counts.iter().map(|count| count % global).filter(|rest| *rest > 0).collect();
        let Some(steps) = case.steps(batch, world) else {
            assert!(last == LastBatch::Drop && full == 0, "case {number}");
            continue;
        };
        let has_rests = last != LastBatch::Drop;
        assert_eq!(
            steps.len() as u64,
            full + if has_rests { rests.len() as u64 } else { 0 },
            "case {number}"
        );
        let mut drawn = HashMap::new();
        for place in steps.iter().flatten().filter(|place| place.valid) {
            *drawn.entry(place.draw.sample).or_insert(0) += 1;
        }
        assert!(drawn.values().all(|times| *times == 1), "case {number}");
        let left_out = if has_rests { 0 } else { rests.iter().sum() };
        assert_eq!(drawn.len() as u64, samples - left_out, "case {number}");
        let order = case.order(1, global);
        assert_eq!(order.left_out(), left_out);
        for place in steps.iter().flatten().filter(|place| place.valid) {
            let positions: Vec<u64> = order.positions(place.draw.sample).collect();
            assert_eq!(positions, [place.position], "case {number}");
        }
        for (step, places) in steps.iter().enumerate() {
            let valid = places.iter().filter(|place| place.valid).count() as u64;
            match last {
                _ if (step as u64) < full => assert_eq!(valid, global),
                LastBatch::Pad => assert!(places.len() as u64 == global && rests.contains(&valid)),
                _ => assert!(rests.contains(&valid) && places.len() as u64 == valid.max(u64::from(world))),
            }
        }
        // The same global batches on any number of ranks.
        let wide = case.steps(global as u32, 1).unwrap();
        let valid = |steps: &[Vec<BatchEntry>]| -> Vec<Vec<u64>> {
            let samples = |places: &Vec<BatchEntry>| {
                places.iter().filter(|place| place.valid).map(|place| place.draw.sample).collect()
            };
            steps.iter().map(samples).collect()
        };
        assert_eq!(valid(&wide), valid(&steps), "case {number}");
        if case.is_shuffled && full > 20 {
            let next = Schedule::new(case.order(2, global), global as u32, 0, 1, last).unwrap();
            let next: Vec<Vec<BatchEntry>> =
                (0..next.steps()).map(|step| next.places(step).collect()).collect();
            assert_ne!(valid(&next), valid(&steps), "another epoch is another order");
        }
    }
}

#[test]
fn a_large_order_inverts() {
    let len = 300_000usize;
    let buckets: Vec<u8> = (0..len).map(|sample| ((sample * sample) % 13) as u8).collect();
    let table = Arc::new(BucketTable::new(buckets, 13, b""));
    let selection = Arc::new(Selection::all(len as u64));
    let order = Order::by_buckets(selection, table, (&DATASET, 1, 1), 256, true, LastBatch::Pad);
    for sample in (0..len as u64).step_by(7) {
        let position = order.positions(sample).next().unwrap();
        assert_eq!(order.sample(position), sample);
    }
}
