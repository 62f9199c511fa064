//! Tests of the owner nodes of samples: balance, movement, and a fixed result that must not change.

use super::*;

const SAMPLES: u64 = 12_000;
const MEAN: u64 = 100_000;
const DATASET: Fingerprint = Fingerprint([7; 32]);

fn size(sample: u64) -> u64 {
    let mut stream = RandomKey::new(b"sizes", 0, 0, Use::Size).stream(sample);
    MEAN / 2 + stream.below(MEAN)
}

fn total() -> u64 {
    (0..SAMPLES).map(size).sum()
}

fn nodes(all: u64, parts: &[u64]) -> Vec<NodeShare> {
    let sum: u64 = parts.iter().sum();
    let share = |(number, part)| NodeShare { name: format!("n{number:03}"), capacity: all / sum * part };
    parts.iter().enumerate().map(share).collect()
}

fn owners(nodes: &[NodeShare]) -> Vec<Option<usize>> {
    let placement = Placement::new(nodes, &DATASET, SAMPLES, size).unwrap();
    (0..SAMPLES).map(|sample| placement.owner(sample)).collect()
}

fn held(owners: &[Option<usize>], nodes: usize) -> Vec<u64> {
    let mut held = vec![0; nodes];
    for (sample, owner) in (0..).zip(owners) {
        owner.iter().for_each(|&owner| held[owner] += size(sample));
    }
    held
}

/// Even and uneven nodes, with the seed that chose them.
fn clusters() -> impl Iterator<Item = (u64, Vec<u64>)> {
    let even = [1, 4, 8, 32].into_iter().map(|nodes| (0, vec![1; nodes]));
    let uneven = (1..7).map(|seed| {
        let mut stream = RandomKey::new(b"clusters", seed, 0, Use::Owner).stream(0);
        let count = 2 + stream.below(30);
        (seed, (0..count).map(|_| 1 + stream.below(8)).collect())
    });
    even.chain(uneven)
}

#[test]
fn nodes_that_hold_the_dataset_leave_no_sample_without_a_home() {
    for ((seed, parts), percent) in
        clusters().flat_map(|cluster| [100, 101, 200].map(|p| (cluster.clone(), p)))
    {
        let nodes = nodes(total() / 100 * percent + 8 * 32, &parts);
        let case = format!("seed {seed}, {} nodes, {percent} %", nodes.len());
        let owners = owners(&nodes);
        assert!(owners.iter().all(Option::is_some), "{case}");
        for (node, held) in nodes.iter().zip(held(&owners, nodes.len())) {
            // In this test, a slot is one sample.
            assert!(held < node.capacity + 2 * MEAN, "{case}: {held} at {node:?}");
        }
    }
}

#[test]
fn nodes_that_are_too_small_are_filled_and_never_overfilled() {
    for ((seed, parts), percent) in clusters().flat_map(|cluster| [5, 50, 95].map(|p| (cluster.clone(), p))) {
        let nodes = nodes(total() / 100 * percent, &parts);
        for (node, held) in nodes.iter().zip(held(&owners(&nodes), nodes.len())) {
            let case = format!("seed {seed}, {} nodes, {percent} %: {held} at {node:?}", nodes.len());
            // The last few slots go to the virtual bidder.
            assert!(held <= node.capacity && held + 20 * MEAN >= node.capacity, "{case}");
        }
    }
}

#[test]
fn a_node_has_its_share_where_there_is_room() {
    for (seed, parts) in clusters() {
        let nodes = nodes(3 * total(), &parts);
        let sum: u64 = parts.iter().sum();
        for (part, held) in parts.iter().zip(held(&owners(&nodes), nodes.len())) {
            let samples = (SAMPLES * part) as f64 / sum as f64;
            let share = held as f64 / MEAN as f64;
            // Allow five standard deviations of a count of samples of these sizes.
            assert!((share - samples).abs() <= 5.2 * samples.sqrt(), "seed {seed}: {share}, not {samples}");
        }
    }
}

#[test]
fn with_room_a_node_that_comes_or_goes_takes_its_own_samples_along_and_no_others() {
    for (seed, parts) in clusters().filter(|(_, parts)| parts.len() > 2) {
        let all = nodes(2 * total(), &parts);
        let before = owners(&all);
        let gone = seed as usize % all.len();
        let rest: Vec<NodeShare> = all.iter().filter(|node| node.name != all[gone].name).cloned().collect();
        for (sample, (before, after)) in before.iter().zip(owners(&rest)).enumerate() {
            let after = after.map(|node| node + usize::from(node >= gone));
            assert!(*before == after || *before == Some(gone), "seed {seed}, sample {sample}");
        }
        let mut grown = all.clone();
        grown[gone].capacity += grown[gone].capacity / 2;
        for (sample, (before, after)) in before.iter().zip(owners(&grown)).enumerate() {
            assert!(*before == after || after == Some(gone), "seed {seed}, sample {sample}");
        }
    }
}

#[test]
fn without_room_about_twice_the_share_moves_at_most() {
    for nodes_left in [4, 8, 32] {
        for percent in [50, 90, 100, 102, 110] {
            let all = nodes(total() / 100 * percent, &vec![1; nodes_left + 1]);
            let moved =
                owners(&all).iter().zip(owners(&all[..nodes_left])).filter(|(a, b)| **a != *b).count();
            let share = SAMPLES as f64 * percent.min(100) as f64 / 100.0 / all.len() as f64;
            let moved = moved as f64 / share;
            println!("{nodes_left} nodes are left, {percent} %: {moved:.2} shares move");
            assert!(moved < 2.5, "{nodes_left} nodes are left, {percent} %: {moved} shares move");
        }
    }
}

#[test]
fn large_datasets_are_dealt_out_evenly_though_their_sizes_are_not() {
    // A million samples, in order of size, and then with every eighth ten times the size.
    for size in [|sample: u64| 1 + sample, |sample: u64| if sample.is_multiple_of(8) { 10 } else { 1 }] {
        let samples = 1_000_000;
        let total: u64 = (0..samples).map(size).sum();
        let all = nodes(total + 16, &[1; 16]);
        let placement = Placement::new(&all, &DATASET, samples, size).unwrap();
        let mut held = [0; 16];
        for sample in 0..samples {
            held[placement.owner(sample).unwrap()] += size(sample);
        }
        for held in held {
            let share = held as f64 * 16.0 / total as f64;
            assert!((0.999..1.001).contains(&share), "{share} of its share");
        }
    }
}

#[test]
fn homes_depend_on_names_and_not_on_the_order_of_the_list() {
    let all = nodes(total() / 2, &[3, 1, 2, 2]);
    let mut turned = all.clone();
    turned.rotate_left(1);
    let named = |nodes: &[NodeShare]| -> Vec<Option<String>> {
        owners(nodes).into_iter().map(|owner| owner.map(|owner| nodes[owner].name.clone())).collect()
    };
    assert_eq!(named(&all), named(&turned));
    turned[0].name = "another".into();
    assert_ne!(named(&all), named(&turned));
    let other = Placement::new(&all, &Fingerprint([8; 32]), SAMPLES, size).unwrap();
    assert_ne!(owners(&all), (0..SAMPLES).map(|sample| other.owner(sample)).collect::<Vec<_>>());
}

#[test]
fn homes_stay_what_they_were_promised() {
    let nodes = nodes(800_000, &[1, 2, 1, 4]);
    let placement = Placement::new(&nodes, &Fingerprint([1; 32]), 1000, |_| 1000).unwrap();
    let first: String = (0..32).map(|sample| digit(placement.owner(sample))).collect();
    let large = Placement::new(&nodes, &Fingerprint([1; 32]), 300_000, |_| 2).unwrap();
    let last: String = (299_968..300_000).map(|sample| digit(large.owner(sample))).collect();
    assert_eq!([&first[..], &last], ["33--2312233310013-3133-113-13033", "33130130323130333313313100133231"]);
}

fn digit(owner: Option<usize>) -> char {
    owner.map_or('-', |owner| char::from_digit(owner as u32, 10).unwrap())
}

#[test]
fn without_nodes_or_samples_there_are_no_homes() {
    for nodes in [nodes(0, &[1, 1]), Vec::new()] {
        assert!(owners(&nodes).iter().all(Option::is_none));
        let unused = Placement::new(&nodes, &DATASET, 3, |_| 0).unwrap();
        assert_eq!([0, 1, 2].map(|sample| unused.owner(sample)), [None; 3]);
    }
    Placement::new(&nodes(9, &[1, 1]), &DATASET, 0, |_| 1).unwrap();
    let unused = Placement::new(&nodes(9, &[1, 1]), &DATASET, 3, |_| 0).unwrap();
    assert!([0, 1, 2].map(|sample| unused.owner(sample)).iter().all(Option::is_some));
}

#[test]
fn names_must_differ() {
    for (names, words) in [(["a", "a"], "\"a\""), (["a", ""], "without a name")] {
        let share = |name: &str| NodeShare { name: name.into(), capacity: 1 };
        let refused = Placement::new(&names.map(share), &DATASET, 1, |_| 1).unwrap_err().to_string();
        assert!(refused.contains("peers") && refused.contains(words), "{refused}");
    }
}

#[test]
fn times_are_exponentially_distributed() {
    for word in [0, 1, 77, 1 << 16, 1 << 31, 3 << 30, u32::MAX - 1, u32::MAX] {
        let exact = -(-f64::from(word) / 2f64.powi(32)).ln_1p();
        let computed = exponential(word) as f64 / 2f64.powi(32);
        assert!((computed - exact).abs() < 1e-8, "{word}: {computed}, not {exact}");
    }
}
