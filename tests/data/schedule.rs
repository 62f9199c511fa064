//! Properties of the epoch's order and of its batches, on which resuming, sharding and reproducing an epoch rely.

use foreload::Error;
use foreload::testing::dataset::Fingerprint;
use foreload::testing::schedule::{BatchEntry, LastBatch, Order, Schedule, TABLE_LIMIT};
use proptest::prelude::*;

const DATASET: Fingerprint = Fingerprint([7; 32]);

fn order(seed: u64, epoch: u64, len: u64) -> Order {
    Order::shuffled(&DATASET, seed, epoch, len)
}

fn batches(order: &Order, batch: u32, world: u32, last: LastBatch) -> Vec<Vec<BatchEntry>> {
    let ranks: Vec<Schedule> = (0..world)
        .map(|rank| Schedule::new(order.clone(), batch, rank, world, last).expect("a valid schedule"))
        .collect();
    assert!(ranks.iter().all(|rank| rank.steps() == ranks[0].steps()), "every rank makes the same steps");
    (0..ranks[0].steps())
        .map(|step| {
            let of_rank = |rank: &Schedule| {
                let places: Vec<BatchEntry> = rank.places(step).collect();
                assert_eq!(places.len(), rank.batch_len(step) as usize);
                places
            };
            ranks.iter().flat_map(of_rank).collect()
        })
        .collect()
}

/// The position of a sample that is drawn once in the order.
fn position_of(order: &Order, sample: u64) -> u64 {
    let positions: Vec<u64> = order.positions(sample).collect();
    assert_eq!(positions.len(), 1, "sample {sample} stands at {positions:?}");
    positions[0]
}

fn check_permutation(order: &Order) {
    let mut seen = vec![false; order.len() as usize];
    for position in 0..order.len() {
        let sample = order.sample(position);
        assert!(!std::mem::replace(&mut seen[sample as usize], true), "sample {sample} twice");
        assert_eq!(position_of(order, sample), position);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_epoch_is_a_permutation(seed: u64, epoch: u64, len in 0u64..3000) {
        check_permutation(&order(seed, epoch, len));
    }

    #[test]
    fn a_huge_epoch_inverts(seed: u64, epoch: u64, len in TABLE_LIMIT + 1..u64::MAX, at: u64) {
        let order = order(seed, epoch, len);
        let position = at % len;
        let sample = order.sample(position);
        prop_assert!(sample < len);
        prop_assert_eq!(position_of(&order, sample), position);
    }

    #[test]
    fn ranks_share_the_epoch_without_overlap(
        seed: u64, len in 1u64..400, batch in 1u32..20, world in 1u32..9,
        last in prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Pad), Just(LastBatch::Partial)],
    ) {
        let order = order(seed, 3, len);
        let global = u64::from(batch * world);
        if last == LastBatch::Drop && len < global {
            let refused = matches!(
                Schedule::new(order, batch, 0, world, last),
                Err(Error::Config { setting: "batch_size", .. })
            );
            prop_assert!(refused);
            return Ok(());
        }
        let batches = batches(&order, batch, world, last);
        let flat: Vec<BatchEntry> = batches.iter().flatten().copied().collect();
        let expected = if last == LastBatch::Drop { len / global * global } else { len };
        let valid: Vec<&BatchEntry> = flat.iter().filter(|place| place.valid).collect();
        // Every position comes in order and exactly once, whatever the number of ranks.
        prop_assert_eq!(valid.len() as u64, expected);
        for (i, place) in valid.iter().enumerate() {
            prop_assert_eq!(place.position, i as u64);
            prop_assert_eq!(place.draw.sample, order.sample(place.position));
        }
        match last {
            LastBatch::Drop => prop_assert!(flat.iter().all(|place| place.valid)),
            LastBatch::Pad => {
                prop_assert!(batches.iter().all(|batch| batch.len() as u64 == global));
                for (i, place) in flat[valid.len()..].iter().enumerate() {
                    prop_assert!(!place.valid);
                    prop_assert_eq!(place.position, i as u64 % len, "padding wraps to the beginning");
                    prop_assert_eq!(place.draw.sample, order.sample(place.position));
                }
            }
            LastBatch::Partial => {
                let lens: Vec<u32> = (0..world)
                    .map(|rank| {
                        let schedule = Schedule::new(order.clone(), batch, rank, world, last).unwrap();
                        schedule.batch_len(schedule.steps() - 1)
                    })
                    .collect();
                prop_assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{:?}", lens);
                prop_assert!(lens.is_sorted_by(|a, b| a >= b), "lower ranks first: {:?}", lens);
                prop_assert!(lens[world as usize - 1] > 0, "no rank has an empty batch: {:?}", lens);
                let left = len - (len - 1) / global * global;
                prop_assert_eq!((flat.len() - valid.len()) as u64, u64::from(world).saturating_sub(left));
                for (i, place) in flat[valid.len()..].iter().enumerate() {
                    prop_assert_eq!((place.valid, place.position), (false, i as u64 % len));
                }
            }
        }
    }

    #[test]
    fn repeats_come_in_a_row_and_invert(seed: u64, len in 1u64..3000, repeats in 1u32..9) {
        let (once, order) = (order(seed, 1, len), order(seed, 1, len).repeated(repeats));
        prop_assert_eq!(order.len(), len);
        for position in 0..len {
            let draw = order.draw(position);
            prop_assert_eq!(draw.sample, once.sample(position / u64::from(repeats)));
            prop_assert_eq!(u64::from(draw.occurrence), position % u64::from(repeats));
            prop_assert!(order.positions(draw.sample).any(|found| found == position));
        }
        let found: u64 = (0..len).map(|sample| order.positions(sample).count() as u64).sum();
        prop_assert_eq!(found, len, "and no others");
    }

    #[test]
    fn repeats_are_spread_and_neither_added_nor_lost(
        seed: u64, len in 1u64..600, sixteenths in 1u32..5, repeats in 1u32..9,
        last in prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Pad), Just(LastBatch::Partial)],
    ) {
        let (order, global) = (order(seed, 0, len).repeated(repeats), sixteenths * 16);
        prop_assume!(last != LastBatch::Drop || len >= u64::from(global));
        let one = batches(&order, global, 1, last);
        for (g, batch) in one.iter().enumerate() {
            let first = g as u64 * u64::from(global);
            let in_order = first..len.min(first + u64::from(global));
            let mut expected: Vec<_> =
                in_order.map(|position| order.draw(position)).map(|d| (d.sample, d.occurrence)).collect();
            let valid = batch.iter().filter(|place| place.valid);
            let mut drawn: Vec<_> = valid.map(|place| (place.draw.sample, place.draw.occurrence)).collect();
            drawn.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(drawn, expected, "global batch {}", g);
        }
        for world in [2, 4, 8] {
            let mut ranks = batches(&order, global / world, world, last);
            if last == LastBatch::Partial {
                // Ranks without a sample get one sample of padding.
                ranks.iter_mut().for_each(|batch| batch.retain(|place| place.valid));
            }
            prop_assert_eq!(&one, &ranks, "{} ranks", world);
        }
        // The repeats in a whole batch are as far apart as possible: on all ranks, if there are as many ranks as
        // repeats.
        if global % repeats == 0 && len >= u64::from(global) {
            let mut first: Vec<u64> = one[0].iter().map(|place| place.draw.sample).collect();
            let distance = (global / repeats) as usize;
            prop_assert!(first.iter().zip(&first[distance..]).all(|(one, next)| one == next));
            first.truncate(distance);
            first.sort_unstable();
            first.dedup();
            prop_assert_eq!(first.len(), distance, "and others between them");
        }
    }

    #[test]
    fn the_world_size_changes_no_global_batch(seed: u64, len in 64u64..5000, sixteenths in 1u32..8) {
        let order = order(seed, 0, len);
        for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial] {
            let global = sixteenths * 4;
            let one = batches(&order, global, 1, last);
            for world in [2, 4] {
                let mut ranks = batches(&order, global / world, world, last);
                if last == LastBatch::Partial {
                    ranks.iter_mut().for_each(|batch| batch.retain(|place| place.valid));
                }
                prop_assert_eq!(&one, &ranks);
            }
        }
    }
}

#[test]
fn a_large_epoch_is_a_permutation() {
    for len in [TABLE_LIMIT, TABLE_LIMIT + 1, 257 * 257, 100_003, 1_000_000] {
        check_permutation(&order(1, 2, len));
    }
}

#[test]
fn the_order_depends_on_dataset_seed_and_epoch() {
    for len in [1000, 100_000] {
        let head = |order: &Order| (0..50).map(|p| order.sample(p)).collect::<Vec<_>>();
        let all = [
            head(&order(0, 0, len)),
            head(&order(0, 1, len)),
            head(&order(1, 0, len)),
            head(&Order::shuffled(&Fingerprint([8; 32]), 0, 0, len)),
        ];
        for i in 0..all.len() {
            assert!(all[i + 1..].iter().all(|other| *other != all[i]));
        }
        assert_eq!(all[0], head(&order(0, 0, len)));
    }
}

/// Foreload promises this order: an epoch that begins with one release continues with the next. If one of these values
/// changes, `rng::VERSION` must change, too.
#[test]
fn golden_values() {
    let head = |order: &Order| (0..8).map(|p| order.sample(p)).collect::<Vec<_>>();
    assert_eq!(head(&order(0, 0, 10)), GOLDEN_10);
    assert_eq!(head(&order(42, 3, 65_536)), GOLDEN_65_536);
    assert_eq!(head(&order(42, 3, 65_537)), GOLDEN_65_537);
    assert_eq!(head(&order(42, 3, 1_281_167)), GOLDEN_1_281_167);
    assert_eq!(head(&order(u64::MAX, u64::MAX, 1_000_000_000_000)), GOLDEN_TERA);
}
const GOLDEN_10: [u64; 8] = [7, 0, 3, 6, 4, 1, 8, 5];
const GOLDEN_65_536: [u64; 8] = [51095, 41778, 45995, 56560, 13348, 62981, 6895, 26753];
const GOLDEN_65_537: [u64; 8] = [56862, 24196, 17634, 7835, 40618, 28188, 59133, 41874];
const GOLDEN_1_281_167: [u64; 8] = [1175245, 605984, 356663, 148585, 162412, 1239743, 1106742, 95200];
const GOLDEN_TERA: [u64; 8] = [
    145535798701,
    41047243483,
    112190610327,
    988276144163,
    487081087824,
    257852485504,
    589834913515,
    400440864552,
];

#[test]
fn an_epoch_of_a_billion_starts_anywhere() {
    let order = order(5, 9, 1_000_000_007);
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial] {
        let schedule = Schedule::new(order.clone(), 256, 3, 8, last).unwrap();
        for step in [0, 1, schedule.steps() / 2, schedule.steps() - 1] {
            for place in schedule.places(step) {
                assert_eq!(position_of(&order, place.draw.sample), place.position);
            }
        }
    }
}

#[test]
fn the_sequential_order_is_the_identity() {
    let order = Order::sequential(1 << 40);
    assert_eq!((order.sample(12345), position_of(&order, 54321), order.len()), (12345, 54321, 1 << 40));
    assert!(Order::sequential(0).is_empty());
}

#[test]
fn impossible_schedules_are_refused_by_name() {
    for (batch, rank, world, setting) in [(0, 0, 1, "batch_size"), (1, 0, 0, "world_size"), (1, 2, 2, "rank")]
    {
        match Schedule::new(Order::sequential(10), batch, rank, world, LastBatch::Pad) {
            Err(Error::Config { setting: named, .. }) => assert_eq!(named, setting),
            other => panic!("{other:?}"),
        }
    }
    let error = Schedule::new(Order::sequential(10), 4, 0, 4, LastBatch::Drop).unwrap_err().to_string();
    assert!(error.contains("16") && error.contains("10 samples"), "{error}");
}

#[test]
fn fewer_samples_than_ranks_still_step_together() {
    // If samples are mixed, ranks divide them in units.
    for (len, unit, world, expected) in [
        (3, 1, 5, vec![vec![0], vec![1], vec![2], vec![-1], vec![-2]]),
        (1, 1, 3, vec![vec![0], vec![-1], vec![-1]]),
        (6, 4, 3, vec![vec![0, 1, 2, 3], vec![4, 5], vec![-1]]),
    ] {
        let places = |rank| -> Vec<i64> {
            let schedule = Schedule::new(Order::sequential(len), 4, rank, world, LastBatch::Partial).unwrap();
            let schedule = schedule.with_unit(unit);
            let padded = expected.iter().filter(|batch| batch[0] < 0).count() as u32;
            assert_eq!((schedule.steps(), schedule.padded_ranks()), (1, padded));
            // Padding is written as -1 for the epoch's first sample, -2 for its second.
            let number = |place: BatchEntry| {
                let position = place.position as i64;
                if place.valid { position } else { -1 - position }
            };
            schedule.places(0).map(number).collect()
        };
        assert_eq!((0..world).map(places).collect::<Vec<_>>(), expected, "{len} samples");
    }
}

/// Chi-square of counts against equal expectation, as standard deviations from its mean (df large: nearly normal).
fn deviation(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    let df = (counts.len() - 1) as f64;
    (chi - df) / (2.0 * df).sqrt()
}

/// The first length is just above the table's limit, where the halves of the Feistel network are smallest and its
/// structure would show most.
const LENS: [u64; 3] = [65_537, 66_049 + 1, 100_003];

#[test]
fn a_sample_may_land_anywhere() {
    for len in LENS {
        for sample in [0, 1, len / 2, len - 1] {
            let mut forward = [0u64; 100];
            let mut backward = [0u64; 100];
            for epoch in 0..10_000 {
                let order = order(11, epoch, len);
                forward[(order.sample(sample) * 100 / len) as usize] += 1;
                backward[(position_of(&order, sample) * 100 / len) as usize] += 1;
            }
            for counts in [forward, backward] {
                assert!(deviation(&counts).abs() < 4.5, "sample {sample} of {len}: {}", deviation(&counts));
            }
        }
    }
}

#[test]
fn neighbours_at_any_lag_are_unrelated() {
    for len in LENS {
        let a = len.isqrt() + u64::from(len.isqrt().pow(2) < len);
        let b = len.div_ceil(a);
        for lag in [1, 2, 3, a - 1, a, a + 1, b, 2 * a, 2 * b, a * (b / 2), len / 2] {
            let mut differences = [0u64; 256];
            for seed in 0..4 {
                let order = order(seed, lag, len);
                let samples: Vec<u64> = (0..len).map(|p| order.sample(p)).collect();
                for p in 0..len as usize {
                    let next = samples[(p + lag as usize) % len as usize];
                    differences[((next + len - samples[p]) % len * 256 / len) as usize] += 1;
                }
            }
            assert!(deviation(&differences).abs() < 4.5, "lag {lag} of {len}: {}", deviation(&differences));
        }
    }
}

/// Samples of a class lie together in the index; batches must mix them as well as a textbook shuffle does.
#[test]
fn batches_are_as_balanced_as_a_shuffle_makes_them() {
    const CLASSES: u64 = 64;
    const BATCH: u64 = 256;
    for len in LENS {
        let spread = |samples: &dyn Fn(u64) -> u64| {
            let mut total = 0.0;
            let batches = len / BATCH;
            for batch in 0..batches {
                let mut counts = [0u64; CLASSES as usize];
                (batch * BATCH..(batch + 1) * BATCH)
                    .for_each(|p| counts[(samples(p) * CLASSES / len) as usize] += 1);
                let expected = (BATCH / CLASSES) as f64;
                total += counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum::<f64>();
            }
            total / batches as f64
        };
        let (mut ours, mut textbook) = (0.0, 0.0);
        const EPOCHS: u64 = 8;
        for epoch in 0..EPOCHS {
            let order = order(3, epoch, len);
            ours += spread(&|p| order.sample(p)) / EPOCHS as f64;
            let mut stream = foreload::testing::rng::RandomKey::new(
                b"textbook",
                3,
                epoch,
                foreload::testing::rng::Use::Order,
            )
            .stream(0);
            let mut table: Vec<u64> = (0..len).collect();
            for i in (1..table.len()).rev() {
                table.swap(i, stream.below(i as u64 + 1) as usize);
            }
            textbook += spread(&|p| table[p as usize]) / EPOCHS as f64;
        }
        // The chi-square of a batch has mean CLASSES - 1 and variance 2 (CLASSES - 1); this is the mean over the
        // batches.
        let sigma = (2.0 * (CLASSES - 1) as f64 / (len / BATCH * EPOCHS) as f64).sqrt();
        let expected = (CLASSES - 1) as f64 * (len - BATCH) as f64 / (len - 1) as f64;
        assert!((ours - expected).abs() < 4.0 * sigma, "{len}: {ours}, expected {expected} ± {sigma}");
        assert!((ours - textbook).abs() < 6.0 * sigma, "{len}: {ours}, textbook {textbook} ± {sigma}");
    }
}
