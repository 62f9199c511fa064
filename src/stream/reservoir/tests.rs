//! Tests of the reservoir: the content follows the rule in any order of arrival, keys and draws have the right
//! distribution, and an undone step leaves no trace.

mod divided;
mod statistics;

use super::*;
use base::rng::RandomStream;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use statistics::{assert_follows, assert_uniform};
use std::collections::HashSet;

const SEED: u64 = 11;

fn random(number: u64) -> RandomStream {
    RandomKey::new(b"tests of the reservoir", SEED, 0, Use::Size).stream(number)
}

/// A pseudorandom id, because the id of a real sample is a hash.
fn id(number: u64) -> u64 {
    random(number ^ 1 << 40).next_u64() >> 1
}

fn sample(number: u64) -> Offered {
    Offered { id: id(number), class: None, bytes: 1, weight: 1.0, ordinal: number }
}

fn shuffled<T>(mut items: Vec<T>, random: &mut RandomStream) -> Vec<T> {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
    items
}

fn filled(seed: u64, by: KeepBy, capacity: Capacity, offers: &[Offered]) -> Reservoir {
    let mut reservoir = Reservoir::new(seed, by, capacity).unwrap();
    for offered in offers {
        reservoir.offer(offered, &mut StepChange::default()).unwrap();
    }
    reservoir
}

fn content(reservoir: &Reservoir) -> (Vec<ReservoirPart>, Vec<KeptSample>) {
    let (parts, entries): (Vec<_>, Vec<KeptSample>) =
        (reservoir.parts().collect(), reservoir.entries().copied().collect());
    assert_eq!(reservoir.len(), entries.len());
    assert_eq!(reservoir.bytes(), entries.iter().map(|kept| u64::from(kept.bytes)).sum::<u64>());
    assert!(entries.iter().all(|kept| reservoir.contains(kept.id)));
    (parts, entries)
}

/// The content computed directly from the rule that the `reservoir` module documents, without incremental updates.
fn by_the_law(
    seed: u64,
    by: KeepBy,
    capacity: Capacity,
    offers: &[Offered],
) -> (Vec<ReservoirPart>, Vec<KeptSample>) {
    let order = KeepOrder::new(seed, by).unwrap();
    let fits_at_all = |of: &&Offered| match capacity {
        Capacity::Samples(_) => true,
        Capacity::Bytes(all) => u64::from(of.bytes) <= all,
    };
    let mut by_part = BTreeMap::<u32, Vec<KeptSample>>::new();
    for offered in offers.iter().filter(fits_at_all) {
        let class = offered.class.unwrap_or(NO_CLASS);
        let part = if by == KeepBy::Class { class } else { 0 };
        let order = order.of(offered).unwrap();
        let kept = KeptSample { id: offered.id, order, class, bytes: offered.bytes, uses: 0 };
        by_part.entry(part).or_default().push(kept);
    }
    let classes = by_part.len() as u64;
    let (mut parts, mut entries) = (Vec::new(), Vec::new());
    for (part, mut all) in by_part {
        all.sort_by_key(|kept| (kept.order, kept.id));
        let mut bytes = 0;
        let fits = |(rank, kept): (usize, &KeptSample)| {
            bytes += u64::from(kept.bytes);
            match capacity {
                Capacity::Samples(most) => (rank as u64) < most / classes,
                Capacity::Bytes(most) => bytes <= most / classes,
            }
        };
        let kept = all.iter().enumerate().map(fits).take_while(|&fits| fits).count();
        parts.push((part, all.get(kept).map(|first| (first.order, first.id))));
        entries.extend(&all[..kept]);
    }
    (parts, entries)
}

fn any_by() -> impl Strategy<Value = KeepBy> {
    prop_oneof![
        Just(KeepBy::Uniform),
        Just(KeepBy::Class),
        (1.0..500.0).prop_map(|half_life| KeepBy::Recency { half_life }),
        Just(KeepBy::Score),
    ]
}

fn any_capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![(0..60u64).prop_map(Capacity::Samples), (0..3000u64).prop_map(Capacity::Bytes)]
}

fn any_offers() -> impl Strategy<Value = Vec<Offered>> {
    let one = (prop::option::of(0..4u32), 0..150u32, 0.01..100.0);
    prop::collection::vec(one, 0..120).prop_map(|all| {
        let of = |(number, (class, bytes, weight))| Offered { class, bytes, weight, ..sample(number) };
        (0..).zip(all).map(of).collect()
    })
}

fn run<S: Strategy>(strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    println!("seed {SEED}");
    let config = Config {
        cases: 2000,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config).run(&strategy, test).unwrap();
}

#[test]
fn the_content_is_that_of_the_law_in_any_order_and_in_parts() {
    run(
        (any_by(), any_capacity(), any_offers(), any::<u64>(), 1..5usize),
        |(by, capacity, offers, order, parts)| {
            let expected = by_the_law(order, by, capacity, &offers);
            let whole = filled(order, by, capacity, &offers);
            prop_assert_eq!(content(&whole), expected.clone());
            let other = shuffled(offers, &mut random(order));
            prop_assert_eq!(content(&filled(order, by, capacity, &other)), expected.clone());
            let mut kept_before = 0;
            let mut merged = Reservoir::new(order, by, capacity).unwrap();
            for part in 0..parts {
                let mine: Vec<Offered> = other.iter().skip(part).step_by(parts).copied().collect();
                let part = filled(order, by, capacity, &mine);
                kept_before += part.len();
                kept_before -= merged.merge(part).unwrap().len();
            }
            prop_assert_eq!(content(&merged), expected.clone());
            prop_assert_eq!(kept_before, merged.len(), "what is given up is told of");
            let (again, evicted) =
                Reservoir::restore((order, by, capacity), expected.0.clone(), expected.1.clone()).unwrap();
            prop_assert_eq!(content(&again), expected);
            prop_assert_eq!(evicted, []);
            Ok(())
        },
    );
}

#[test]
fn what_is_evicted_was_kept_and_what_is_kept_was_told_of() {
    run((any_by(), any_capacity(), any_offers()), |(by, capacity, offers)| {
        let mut reservoir = Reservoir::new(SEED, by, capacity).unwrap();
        let mut kept = HashSet::new();
        for offered in &offers {
            let outcome = reservoir.offer(offered, &mut StepChange::default()).unwrap();
            prop_assert!(outcome.evicted.iter().all(|evicted| kept.remove(&evicted.id)));
            if outcome.kept {
                prop_assert!(kept.insert(offered.id));
            }
            prop_assert_eq!(kept.len(), reservoir.len());
            let again = reservoir.offer(offered, &mut StepChange::default()).unwrap();
            prop_assert_eq!(again, OfferOutcome::default());
        }
        Ok(())
    });
}

#[derive(Debug, Clone)]
enum ReservoirEvent {
    /// A step draws this many samples, then offers this many.
    Step(usize, usize),
    Deliver,
    Undo,
    Withdraw(prop::sample::Index),
}

#[test]
fn undone_steps_leave_nothing_but_what_was_withdrawn() {
    let happening = prop_oneof![
        6 => (0..6usize, 0..12usize).prop_map(|(draws, offers)| ReservoirEvent::Step(draws, offers)),
        2 => Just(ReservoirEvent::Deliver),
        2 => Just(ReservoirEvent::Undo),
        2 => any::<prop::sample::Index>().prop_map(ReservoirEvent::Withdraw),
    ];
    let happenings = prop::collection::vec(happening, 1..40);
    run((any_by(), any_capacity(), any_offers(), happenings), |(by, capacity, offers, happenings)| {
        let mut reservoir = Reservoir::new(SEED, by, capacity).unwrap();
        // The reservoir as of the last delivered step, for comparison after pending steps are undone.
        let mut delivered = reservoir.clone();
        let mut pending: Vec<(StepChange, Vec<u64>, Vec<Offered>)> = Vec::new();
        let (mut next, mut number, mut outdated) = (0, 0, false);
        for happening in happenings {
            match happening {
                ReservoirEvent::Step(draws, count) => {
                    let mut change = StepChange::default();
                    let drawn = reservoir.draw(number, draws);
                    reservoir.used(&drawn, &mut change);
                    let mine: Vec<Offered> = offers.iter().skip(next).take(count).copied().collect();
                    for offered in &mine {
                        reservoir.offer(offered, &mut change).unwrap();
                    }
                    (next, number) = (next + mine.len(), number + 1);
                    pending.push((change, drawn, mine));
                }
                ReservoirEvent::Deliver if !pending.is_empty() && !outdated => {
                    let (_, drawn, mine) = pending.remove(0);
                    let mut change = StepChange::default();
                    delivered.used(&drawn, &mut change);
                    for offered in &mine {
                        delivered.offer(offered, &mut change).unwrap();
                    }
                }
                ReservoirEvent::Deliver => {}
                ReservoirEvent::Undo => {
                    for (change, _, mine) in pending.drain(..).rev() {
                        next -= mine.len();
                        reservoir.undo(change);
                    }
                    outdated = false;
                    prop_assert_eq!(content(&reservoir), content(&delivered));
                }
                ReservoirEvent::Withdraw(which) if next > 0 => {
                    // Pending steps were computed with the withdrawn sample. The contents can be compared only after
                    // they are undone.
                    let id = offers[which.index(next)].id;
                    reservoir.withdraw(id, pending.iter_mut().map(|(change, ..)| change));
                    delivered.withdraw(id, []);
                    prop_assert!(!reservoir.contains(id));
                    outdated = !pending.is_empty();
                }
                ReservoirEvent::Withdraw(_) => {}
            }
        }
        Ok(())
    });
}

#[test]
fn a_withdrawn_sample_is_told_of_and_what_was_refused_stays_away() {
    let offers: Vec<Offered> = (0..50).map(sample).collect();
    let mut reservoir = filled(SEED, KeepBy::Uniform, Capacity::Samples(20), &offers);
    let before: Vec<KeptSample> = reservoir.entries().copied().collect();
    assert_eq!(reservoir.withdraw(before[3].id, []), Some(before[3]));
    assert_eq!(reservoir.withdraw(before[3].id, []), None);
    // There is space, but samples that were refused before are refused again.
    let mut change = StepChange::default();
    for offered in offers.iter().filter(|offered| offered.id != before[3].id) {
        assert!(!reservoir.offer(offered, &mut change).unwrap().kept);
    }
    assert_eq!(reservoir.len(), 19);
    // Withdrawing a sample that a pending step evicted returns the sample, and undoing the step does not bring it back.
    let mut pending = [StepChange::default()];
    let mut number = 50;
    let evicted = loop {
        let outcome = reservoir.offer(&sample(number), &mut pending[0]).unwrap();
        if let Some(&evicted) = outcome.evicted.first() {
            break evicted;
        }
        number += 1;
    };
    assert_eq!(reservoir.withdraw(evicted.id, &mut pending), Some(evicted));
    let [change] = pending;
    reservoir.undo(change);
    assert!(!reservoir.contains(evicted.id));
}

#[test]
fn tables_that_no_reservoir_could_have_are_refused() {
    let reservoir =
        filled(SEED, KeepBy::Class, Capacity::Samples(5), &(0..40).map(sample).collect::<Vec<_>>());
    let (parts, entries) = content(&reservoir);
    let restore = |by, capacity, parts: Vec<ReservoirPart>, entries: &[KeptSample]| {
        Reservoir::restore((SEED, by, capacity), parts, entries.iter().copied())
    };
    let five = Capacity::Samples(5);
    let twice: Vec<KeptSample> = entries.iter().chain(&entries[..1]).copied().collect();
    assert!(restore(KeepBy::Class, five, parts.clone(), &twice).unwrap_err().contains("cannot contain"));
    assert!(restore(KeepBy::Class, five, vec![], &entries).unwrap_err().contains("cannot contain"));
    assert!(restore(KeepBy::Uniform, five, parts.clone(), &entries).unwrap_err().contains("impossible part"));
    let (smaller, evicted) = restore(KeepBy::Class, Capacity::Samples(2), parts, &entries).unwrap();
    assert_eq!(smaller.entries().chain(evicted.iter().rev()).copied().collect::<Vec<_>>(), entries);
    let mut other = Reservoir::new(SEED + 1, KeepBy::Class, five).unwrap();
    assert!(other.merge(reservoir).unwrap_err().to_string().contains("different seeds"));
}

fn kept_counts(times: u64, count: usize, keep: impl Fn(u64) -> (Reservoir, HashMap<u64, usize>)) -> Vec<u64> {
    let mut counts = vec![0; count];
    for time in 0..times {
        let (reservoir, places) = keep(time);
        reservoir.entries().for_each(|kept| counts[places[&kept.id]] += 1);
    }
    counts
}

fn places(offers: &[Offered]) -> HashMap<u64, usize> {
    offers.iter().map(|offered| offered.id).zip(0..).collect()
}

#[test]
fn each_sample_and_each_place_of_arrival_is_kept_as_often() {
    const TIMES: u64 = 3000;
    let offers: Vec<Offered> = (0..200).map(sample).collect();
    let (whole, capacity) = (places(&offers), Capacity::Samples(50));
    println!("seeds 0 to {TIMES}");
    let keep = |seed| (filled(seed, KeepBy::Uniform, capacity, &offers), whole.clone());
    assert_uniform("samples by seeds", &kept_counts(TIMES, 200, keep), 50, TIMES);
    // One seed and different samples each time: are the first or the last arrivals preferred?
    let keep = |time| {
        let offers: Vec<Offered> = (0..200).map(|number| sample(1000 * (time + 1) + number)).collect();
        (filled(SEED, KeepBy::Uniform, capacity, &offers), places(&offers))
    };
    assert_uniform("places of arrival", &kept_counts(TIMES, 200, keep), 50, TIMES);
    let keep = |seed| {
        let offers = shuffled(offers.clone(), &mut random(seed));
        (filled(seed, KeepBy::Uniform, capacity, &offers), places(&offers))
    };
    assert_uniform("places of shuffled arrival", &kept_counts(TIMES, 200, keep), 50, TIMES);
    for parts in [1, 2, 4] {
        let keep = |seed| {
            let mut merged = Reservoir::new(seed, KeepBy::Uniform, capacity).unwrap();
            for part in 0..parts {
                let mine: Vec<Offered> = offers.iter().skip(part).step_by(parts).copied().collect();
                merged.merge(filled(seed, KeepBy::Uniform, capacity, &mine)).unwrap();
            }
            (merged, whole.clone())
        };
        let seeds = |seed| keep(seed + TIMES * parts as u64);
        assert_uniform(&format!("samples of {parts} parts"), &kept_counts(TIMES, 200, seeds), 50, TIMES);
    }
}

#[test]
fn each_class_has_its_share_and_within_it_all_are_alike() {
    const TIMES: u64 = 3000;
    // Classes with 100, 50 and 10 samples, and 40 samples without a class. Each class gets a quarter of 96.
    let class = |number| match number % 20 {
        0..10 => Some(7),
        10..15 => Some(0),
        15 => Some(9),
        _ => None,
    };
    let offers: Vec<Offered> =
        (0..200).map(|number| Offered { class: class(number), ..sample(number) }).collect();
    let sizes = [(Some(7), 100, 24), (Some(0), 50, 24), (Some(9), 10, 10), (None, 40, 24)];
    let mut counts: Vec<Vec<u64>> = sizes.iter().map(|&(_, size, _)| vec![0; size]).collect();
    println!("seeds 0 to {TIMES}");
    for seed in 0..TIMES {
        let reservoir =
            filled(seed, KeepBy::Class, Capacity::Samples(96), &shuffled(offers.clone(), &mut random(seed)));
        for ((class, _, share), counts) in sizes.iter().zip(&mut counts) {
            let of_class: Vec<u64> =
                offers.iter().filter(|of| of.class == *class).map(|offered| offered.id).collect();
            let kept: HashSet<u64> = reservoir
                .entries()
                .filter(|kept| kept.class == class.unwrap_or(NO_CLASS))
                .map(|kept| kept.id)
                .collect();
            assert_eq!(kept.len(), *share, "class {class:?}");
            counts.iter_mut().zip(of_class).for_each(|(count, id)| *count += u64::from(kept.contains(&id)));
        }
    }
    for ((class, size, share), counts) in sizes.into_iter().zip(&counts) {
        if share < size {
            assert_uniform(&format!("class {class:?}"), counts, share, TIMES);
        }
    }
}

/// Checks how often each ordered pair has the two smallest keys. The frequency must be that of two draws without
/// replacement, each in proportion to the remaining weights.
fn assert_pairs_follow_weights(what: &str, by: KeepBy, weights: &[f64]) {
    const TIMES: u64 = 100_000;
    let count = weights.len();
    let mut pairs = vec![0; count * count];
    println!("seeds {SEED} to {}", SEED + TIMES);
    for seed in SEED..SEED + TIMES {
        let offers: Vec<Offered> =
            (0..).zip(weights).map(|(number, &weight)| Offered { weight, ..sample(number) }).collect();
        let reservoir = filled(seed, by, Capacity::Samples(2), &offers);
        let places = places(&offers);
        let two: Vec<usize> = reservoir.entries().map(|kept| places[&kept.id]).collect();
        pairs[two[0] * count + two[1]] += 1;
    }
    let sum: f64 = weights.iter().sum();
    let (mut counts, mut expected) = (Vec::new(), Vec::new());
    for first in 0..count {
        for second in (0..count).filter(|&second| second != first) {
            let likely = weights[first] / sum * weights[second] / (sum - weights[first]);
            counts.push(pairs[first * count + second]);
            expected.push(TIMES as f64 * likely);
        }
    }
    assert_follows(what, &counts, &expected);
}

#[test]
fn weights_are_followed_exactly() {
    let half_life = 1.5;
    let recency: Vec<f64> = (0..6).map(|ordinal| (f64::from(ordinal) / half_life).exp2()).collect();
    assert_pairs_follow_weights("recency", KeepBy::Recency { half_life }, &recency);
    assert_pairs_follow_weights("score", KeepBy::Score, &[1.0, 0.25, 4.0, 1.0, 2.5, 0.5, 1e-1]);
}

#[test]
fn draws_are_distinct_and_each_sample_and_each_place_is_as_likely() {
    const TIMES: u64 = 6000;
    let by = KeepBy::Class;
    let offers: Vec<Offered> =
        (0..400).map(|number| Offered { class: Some(number as u32 % 3), ..sample(number) }).collect();
    let reservoir = filled(SEED, by, Capacity::Samples(300), &offers);
    let same = filled(SEED, by, Capacity::Samples(300), &shuffled(offers, &mut random(1)));
    let places: HashMap<u64, usize> = reservoir.entries().map(|kept| kept.id).zip(0..).collect();
    let (mut drawn, mut first, mut last) = (vec![0; 300], vec![0; 300], vec![0; 300]);
    println!("seed {SEED}");
    for step in 0..TIMES {
        let ids = reservoir.draw(step, 32);
        assert_eq!(ids, same.draw(step, 32), "draws depend on the content alone");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 32);
        ids.iter().for_each(|id| drawn[places[id]] += 1);
        first[places[&ids[0]]] += 1;
        last[places[&ids[31]]] += 1;
    }
    assert_uniform("drawn", &drawn, 32, TIMES);
    assert_uniform("drawn first", &first, 1, TIMES);
    assert_uniform("drawn last", &last, 1, TIMES);
    assert_eq!(reservoir.draw(7, 1000).iter().collect::<HashSet<_>>().len(), 300);
    assert_eq!(reservoir.draw(7, 10), reservoir.draw(7, 1000)[..10]);
    assert!(Reservoir::new(SEED, by, Capacity::Samples(9)).unwrap().draw(0, 4).is_empty());
}

#[test]
fn entries_stay_sorted_through_many_chunks() {
    let mut model = BTreeMap::new();
    let mut sorted = SortedEntries::default();
    let mut random = random(0);
    for turn in 0..60_000u64 {
        let grows = random.below(10) < if turn < 25_000 { 8 } else { 2 };
        if grows {
            let kept = KeptSample { id: turn, order: random.below(1 << 40), class: 0, bytes: 0, uses: 0 };
            let entry = ReservoirEntry { part: random.below(3) as u32, kept };
            sorted.insert(entry);
            model.insert(entry.position(), entry);
        } else if let Some((&position, _)) =
            model.range((random.below(3) as u32, random.below(1 << 40), 0)..).next()
        {
            assert_eq!(sorted.remove(position), model.remove(&position));
            assert_eq!(sorted.remove(position), None);
        }
        if turn % 1000 == 0 {
            assert!(sorted.iter().eq(model.values()));
            assert_eq!(sorted.len(), model.len());
            for part in 0..4 {
                let last = model.range((part, 0, 0)..(part + 1, 0, 0)).next_back();
                assert_eq!(sorted.last_of(part), last.map(|(_, entry)| entry));
            }
            let ranks: Vec<usize> =
                (0..model.len().min(20)).map(|_| random.below(model.len() as u64) as usize).collect();
            let all: Vec<u64> = model.values().map(|entry| entry.kept.id).collect();
            assert_eq!(sorted.at_ranks(&ranks), ranks.iter().map(|&rank| all[rank]).collect::<Vec<_>>());
        }
    }
}
