//! Properties of subsets, weights and mixtures: what an epoch draws, how often, and that the order can be inverted.

use foreload::testing::dataset::Fingerprint;
use foreload::testing::schedule::{Draw, LastBatch, Order, Schedule, Selection, TABLE_LIMIT};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const DATASET: Fingerprint = Fingerprint([9; 32]);

fn order(selection: &Arc<Selection>, seed: u64, epoch: u64) -> Order {
    Order::drawn(selection.clone(), &DATASET, seed, epoch)
}

/// The strata of a dataset of `samples` samples, each with its size and weight.
fn strata(samples: u32, sizes: &[(u32, f64)]) -> Selection {
    let mut left = (0..samples).rev();
    let strata = sizes.iter().map(|(size, weight)| (*weight, left.by_ref().take(*size as usize).collect()));
    Selection::of_strata(samples.into(), strata.collect())
}

/// The positions of each sample's draws in an epoch.
fn positions(order: &Order) -> BTreeMap<u64, Vec<u64>> {
    let mut positions: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for position in 0..order.len() {
        positions.entry(order.sample(position)).or_default().push(position);
    }
    positions
}

fn sizes() -> impl Strategy<Value = Vec<(u32, f64)>> {
    prop::collection::vec((1u32..40, prop_oneof![0.01f64..10.0, Just(1.0)]), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_draw_has_its_inverse(sizes in sizes(), draws in 1u64..2000, seed: u64, epoch: u64) {
        let samples = sizes.iter().map(|(size, _)| size).sum::<u32>() + 7;
        let selection = Arc::new(strata(samples, &sizes).with_draws(draws));
        let order = order(&selection, seed, epoch);
        prop_assert_eq!(order.len(), draws);
        let found = positions(&order);
        for sample in 0..u64::from(samples) {
            let mut inverse: Vec<u64> = order.positions(sample).collect();
            inverse.sort_unstable();
            prop_assert_eq!(&inverse, &found.get(&sample).cloned().unwrap_or_default(), "sample {}", sample);
            prop_assert_eq!(selection.contains(sample), sample >= 7);
            // Each draw of a sample has its own occurrence.
            let mut times: Vec<u32> = inverse.iter().map(|position| order.draw(*position).occurrence).collect();
            times.sort_unstable();
            prop_assert!(times.iter().copied().eq(0..inverse.len() as u32), "{:?}", times);
        }
    }

    #[test]
    fn strata_are_drawn_by_their_shares_and_their_samples_alike(
        sizes in sizes(), draws in 1u64..4000, seed: u64,
    ) {
        let samples = sizes.iter().map(|(size, _)| size).sum::<u32>();
        let selection = Arc::new(strata(samples, &sizes).with_draws(draws));
        let found = positions(&order(&selection, seed, 2));
        let count = |sample: u32| found.get(&u64::from(sample)).map_or(0, Vec::len);
        let total: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        let mut end = samples;
        for (size, weight) in sizes {
            let counts: Vec<usize> = (end - size..end).map(count).collect();
            end -= size;
            let (drawn, expected) = (counts.iter().sum::<usize>() as f64, draws as f64 * weight / total);
            prop_assert!((drawn - expected).abs() < 2.0, "{} draws, {} expected", drawn, expected);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", counts);
        }
    }

    #[test]
    fn a_subset_is_drawn_once_whatever_its_size(
        samples in 1u32..500, keep in 1usize..500, seed: u64, sequential: bool,
    ) {
        let kept = |sample: &u32| (sample * 7919 + 13) % 11 < 5 || *sample == 0;
        let members: Vec<u32> = (0..samples).filter(kept).take(keep).collect();
        let selection = Arc::new(Selection::listed(samples.into(), members.clone()));
        let order = if sequential { Order::listed(selection.clone()) } else { order(&selection, seed, 0) };
        let mut drawn: Vec<u64> = (0..order.len()).map(|position| order.sample(position)).collect();
        if sequential {
            prop_assert!(drawn.iter().copied().eq(members.iter().copied().map(u64::from)));
        }
        drawn.sort_unstable();
        prop_assert!(drawn.iter().copied().eq(members.into_iter().map(u64::from)));
    }
}

#[test]
fn a_large_weighted_epoch_inverts_and_ranks_share_it() {
    let draws = 4 * TABLE_LIMIT + 13;
    let selection = Arc::new(strata(1000, &[(500, 1.0), (20, 3.0), (400, 0.5)]).with_draws(draws));
    let order = order(&selection, 5, 6);
    for sample in (0..1000).step_by(37) {
        let positions: Vec<u64> = order.positions(sample).collect();
        assert_eq!(positions.is_empty(), sample < 80);
        for position in positions {
            assert_eq!(order.sample(position), sample);
        }
    }
    let schedule = |rank| Schedule::new(order.clone(), 64, rank, 2, LastBatch::Drop).unwrap();
    assert_eq!((schedule(0).steps(), schedule(1).steps()), (draws / 128, draws / 128));
}

#[test]
fn samples_drawn_once_more_are_chosen_evenly() {
    // With strata as small as these, half of the samples are left out of each epoch.
    let (epochs, sizes) = (20_000, [2u32, 3, 5, 7, 10, 16]);
    let samples: u32 = sizes.iter().sum();
    let weights: Vec<(u32, f64)> = sizes.iter().map(|&size| (size, f64::from(size))).collect();
    let selection = Arc::new(strata(samples, &weights).with_draws(u64::from(samples) / 2));
    let (mut counts, mut total) = (vec![0u32; samples as usize], 0);
    let mut together = 0u32;
    for epoch in 0..epochs {
        let drawn = positions(&order(&selection, 1, epoch));
        total += drawn.len();
        drawn.keys().for_each(|sample| counts[*sample as usize] += 1);
        together += u32::from(drawn.contains_key(&3) && drawn.contains_key(&4));
    }
    assert_eq!(total as u64, epochs * u64::from(samples / 2));
    for (sample, count) in counts.iter().enumerate() {
        let share = f64::from(*count) / epochs as f64;
        // The share is a half, reduced to 21 draws of 43; five standard deviations of a coin are .018.
        assert!((share - 21.0 / 43.0).abs() < 0.018, "sample {sample} in {share} of the epochs");
    }
    // Neighbours are independent: two of sixteen samples are drawn together in about a quarter of the epochs.
    let share = f64::from(together) / epochs as f64;
    assert!((0.18..0.29).contains(&share), "{share}");
}

#[test]
fn the_draws_of_a_seed_never_change() {
    // Checkpoints of older versions rely on this order.
    let selection = Arc::new(strata(12, &[(3, 1.0), (9, 2.0)]).with_draws(16));
    let order = order(&selection, 42, 1);
    let drawn: Vec<(u64, u32)> = (0..16)
        .map(|position| order.draw(position))
        .map(|Draw { sample, occurrence }| (sample, occurrence))
        .collect();
    let golden = [
        (4, 0),
        (5, 1),
        (10, 0),
        (5, 0),
        (0, 0),
        (10, 1),
        (2, 0),
        (1, 0),
        (9, 0),
        (11, 0),
        (8, 0),
        (6, 0),
        (3, 0),
        (11, 1),
        (7, 0),
        (9, 1),
    ];
    assert_eq!(drawn, golden);
}

#[test]
fn a_selection_has_a_digest_unless_it_is_everything() {
    assert_eq!(Selection::all(10).digest(), None);
    let digests = [
        Selection::all(10).with_draws(9),
        Selection::listed(10, (0..10).collect()),
        Selection::listed(10, (0..9).collect()),
        strata(10, &[(5, 1.0), (5, 2.0)]),
        strata(10, &[(5, 1.0), (5, 3.0)]),
        strata(10, &[(4, 1.0), (6, 2.0)]),
    ];
    let mut digests: Vec<_> = digests.iter().map(|selection| *selection.digest().unwrap()).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
}
