//! Properties of orders in bins: no bin costs more than the budget, each draw comes once, ranks take the same bins in
//! the same steps, and bins are full. The oracle is a packer that searches lists.

use foreload::testing::dataset::Fingerprint;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::schedule::{BatchEntry, CostTable, LastBatch, Order, Schedule};
use std::collections::VecDeque;
use std::sync::Arc;

const DATASET: Fingerprint = Fingerprint([7; 32]);

const WINDOW: usize = 1024;

fn stream(number: u64) -> RandomStream {
    let seed = std::env::var("FORELOAD_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FORELOAD_SEED={seed}");
    RandomKey::new(b"orders in bins", seed, 0, Use::Augment).stream(number)
}

fn order(costs: &[u32], budget: u32, epoch: u64) -> Order {
    let table = Arc::new(CostTable::new(costs.to_vec(), budget));
    Order::shuffled(&DATASET, 3, epoch, costs.len() as u64).in_bins(table)
}

/// Packs the draws of an epoch as the documentation of the order says, by searching lists.
fn naive(costs: &[u32], budget: u32, epoch: u64) -> Vec<Vec<u64>> {
    let order = Order::shuffled(&DATASET, 3, epoch, costs.len() as u64);
    let cost = |sample: &u64| costs[*sample as usize];
    let mut coming: VecDeque<u64> =
        (0..order.len()).map(|place| order.sample(place)).filter(|sample| cost(sample) <= budget).collect();
    let total: u64 = coming.iter().map(|sample| u64::from(cost(sample))).sum();
    let mean = total / (coming.len() as u64).max(1);
    let reserve = (2 * mean).min(u64::from(budget / 2)) as u32;
    let most = CostTable::new(costs.to_vec(), budget).most() as usize;
    let (mut bins, mut window) = (Vec::new(), VecDeque::new());
    loop {
        let (mut bin, mut room) = (Vec::new(), budget);
        while bin.len() < most {
            while let Some(sample) = coming.front().filter(|_| window.len() < WINDOW) {
                window.push_back(*sample);
                coming.pop_front();
            }
            let longest = window.front().filter(|sample| room > reserve && cost(sample) <= room);
            let mut found = longest.map(|_| 0);
            if found.is_none() {
                let fits = |place: &usize| cost(&window[*place]) <= room;
                found = (0..window.len()).rev().filter(fits).max_by_key(|place| cost(&window[*place]));
            }
            let Some(sample) = found.and_then(|place| window.remove(place)) else { break };
            room -= cost(&sample);
            bin.push(sample);
        }
        if bin.is_empty() {
            return bins;
        }
        bins.push(bin);
    }
}

/// Returns the bins of an epoch in the order of their steps, and of ranks within a step.
fn bins(order: &Order, step_bins: u32, world: u32, last: LastBatch) -> Vec<Vec<BatchEntry>> {
    let of_rank = |rank| Schedule::of_bins(order.clone(), step_bins, rank, world, last).unwrap();
    let ranks: Vec<Schedule> = (0..world).map(of_rank).collect();
    assert!(ranks.iter().all(|rank| rank.steps() == ranks[0].steps()));
    let bin = |rank: &Schedule, step| {
        let places: Vec<BatchEntry> = rank.places(step).collect();
        assert_eq!(places.len(), rank.batch_len(step) as usize);
        places
    };
    (0..ranks[0].steps()).flat_map(|step| ranks.iter().map(move |rank| bin(rank, step))).collect()
}

#[test]
fn bins_keep_to_the_budget_and_take_each_draw_once_on_any_number_of_ranks() {
    for number in 0..400 {
        let random = &mut stream(number);
        let count = 1 + random.below(if number % 20 == 0 { 6000 } else { 300 });
        let budget = 1 + random.below(500) as u32;
        let largest = 1 + random.below(u64::from(budget) * 5 / 4);
        let mut cost = || 1 + (random.below(largest) * random.below(largest) / largest) as u32;
        let costs: Vec<u32> = (0..count).map(|_| cost()).collect();
        let last = [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial][random.below(3) as usize];
        let expected = naive(&costs, budget, number);
        let order = order(&costs, budget, number);
        let step_bins = [1, 2, 6, 8, 64][random.below(5) as usize];
        if expected.is_empty() || (last == LastBatch::Drop && expected.len() < step_bins as usize) {
            continue;
        }
        let fitting: Vec<u64> = (0..count).filter(|draw| costs[*draw as usize] <= budget).collect();
        let whole = bins(&order, step_bins, 1, last);
        for world in (1..=64).filter(|world| step_bins % world == 0) {
            let bins = bins(&order, step_bins, world, last);
            assert_eq!(
                bins[..whole.len().min(bins.len())],
                whole[..whole.len().min(bins.len())],
                "{world} ranks"
            );
            let padding = bins.len() - bins.len().min(expected.len());
            assert!(padding < if last == LastBatch::Partial { world } else { step_bins } as usize);
            let mut seen = Vec::new();
            for (bin, place) in bins.iter().zip(0..) {
                assert!(bin.iter().map(|entry| costs[entry.draw.sample as usize]).sum::<u32>() <= budget);
                assert!(bin.iter().all(|entry| entry.valid == (place < expected.len())));
                let samples: Vec<u64> = bin.iter().map(|entry| entry.draw.sample).collect();
                assert_eq!(samples, expected[place % expected.len()], "bin {place} of case {number}");
                seen.extend(samples.into_iter().filter(|_| place < expected.len()));
            }
            seen.sort_unstable();
            if last == LastBatch::Drop {
                assert_eq!(bins.len(), expected.len() / step_bins as usize * step_bins as usize);
                assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
            } else {
                assert_eq!(seen, fitting);
            }
        }
        for sample in 0..count {
            let positions: Vec<u64> = order.positions(sample).collect();
            assert_eq!(positions.len(), usize::from(costs[sample as usize] <= budget));
            assert!(positions.iter().all(|position| order.sample(*position) == sample));
        }
    }
}

#[test]
fn bins_are_full() {
    let random = &mut stream(1 << 32);
    let mut uniform = || (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
    let mut lognormal = |median: f64, sigma: f64, range: [f64; 2]| {
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        (median * (sigma * normal).exp()).clamp(range[0], range[1]) as u32
    };
    for budget in [4096u32, 8192, 16_384] {
        let longest = f64::from(budget);
        for (what, median, sigma, range) in [
            ("images", 450.0, 0.5, [200.0, 1000.0]),
            ("documents", 600.0, 1.2, [1.0, longest]),
            ("long documents", 1500.0, 1.5, [20.0, longest]),
        ] {
            let costs: Vec<u32> = (0..60_000).map(|_| lognormal(median, sigma, range)).collect();
            let schedule = Schedule::of_bins(order(&costs, budget, 0), 8, 0, 8, LastBatch::Pad).unwrap();
            let packing = schedule.packing().unwrap();
            println!("{what} in {budget}: {packing:?}");
            assert!(packing.fullness >= 0.97, "{what} in {budget}: {packing:?}");
            assert_eq!((packing.samples, packing.left_out, packing.over_budget), (60_000, 0, 0));
        }
    }
}

#[test]
fn substitutes_fit_and_epochs_differ() {
    let costs: Vec<u32> = (0..500).map(|draw| 1 + draw % 90).collect();
    let order = order(&costs, 100, 0);
    assert_ne!(naive(&costs, 100, 0), naive(&costs, 100, 1));
    let random = &mut stream(1 << 33);
    for position in 0..order.len() {
        let (own, instead) = (order.sample(position), order.substitute(position, random));
        assert!(costs[instead as usize] <= costs[own as usize]);
    }
    for (step_bins, world, setting) in [(6, 4, "bins"), (1 << 20, 1, "bins"), (4, 0, "rank")] {
        let error = Schedule::of_bins(order.clone(), step_bins, 0, world, LastBatch::Drop).unwrap_err();
        assert!(error.to_string().starts_with(&format!("config: {setting}:")), "{error}");
    }
}
