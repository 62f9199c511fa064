//! Hit rates of caches against figures from theory and other simulators, and how often a node uses a sample.

use foreload::testing::dataset::Fingerprint;
use foreload::testing::simulate::access::{AccessSchedule, Sizes};
use foreload::testing::simulate::{Policy, PolicyOutcome, Scenario, Simulation, counts};

/// A training on `nodes` nodes, each with a cache of the fraction `cached` of `samples` samples of one size.
fn scenario(nodes: u32, samples: u64, cached: f64, epochs: u32, network: &str) -> Scenario {
    let text = format!(
        r#"
        name = "caches"
        nodes = {nodes}
        batch_size = 25
        epochs = {epochs}
        compute = "100MB/s"
        preprocess = "200MB/s"
        {network}
        [dataset]
        samples = {samples}
        mean = "1kB"
        [slow]
        client = "1GB/s"
        rates = [{{ clients = 1, rate = "50MB/s" }}]
        [staging]
        capacity = "1MB"
        threads = 2
        [[cache]]
        name = "NVMe"
        capacity = {capacity}
        threads = 2
        read = [{{ threads = 2, rate = "2GB/s" }}]
        write = [{{ threads = 2, rate = "1GB/s" }}]
        "#,
        capacity = 1000.0 * cached * samples as f64,
    );
    Scenario::parse("caches", &text).unwrap()
}

/// The hits of an epoch, on average over the epochs of `steady`.
fn hits(outcome: &PolicyOutcome, steady: std::ops::Range<usize>) -> f64 {
    let count = steady.len() as f64;
    outcome.epochs[steady].iter().map(|epoch| epoch.hits).sum::<f64>() / count
}

#[test]
fn one_consumer_finds_what_was_kept_and_lru_loses_it() {
    // When the fraction c is cached, LRU's hits are c + (1-c)·ln(1-c).
    for (cached, lru) in [(0.25, 0.034), (0.5, 0.154), (0.75, 0.403), (0.9, 0.670)] {
        let simulation = Simulation::new(scenario(1, 20_000, cached, 8, "")).unwrap();
        let outcomes =
            simulation.run(&[Policy::Lru, Policy::NeverEvict, Policy::Belady, Policy::Foreload]).unwrap();
        let expected = [lru, cached, cached, cached];
        for (outcome, expected) in outcomes.iter().zip(expected) {
            let hits = hits(outcome, 2..7);
            println!("{cached}: {} {hits:.4}", outcome.policy.name());
            assert!((hits - expected).abs() < 0.01, "{cached}: {} {hits}", outcome.policy.name());
        }
    }
}

#[test]
fn private_caches_hit_by_the_known_future() {
    for (nodes, repeats, cached, lru, never_evict, belady) in [
        (4, 1, 1.0 / 16.0, 0.008, 0.062, 0.247),
        (4, 1, 1.0 / 4.0, 0.137, 0.248, 0.563),
        (4, 1, 1.0 / 2.0, 0.424, 0.499, 0.785),
        (16, 1, 1.0 / 16.0, 0.030, 0.062, 0.304),
        (16, 1, 1.0 / 8.0, 0.096, 0.124, 0.435),
        (16, 1, 1.0 / 4.0, 0.221, 0.251, 0.584),
        // A node that repeats samples R times uses as few of them in an epoch as one of R nodes.
        (1, 4, 1.0 / 4.0, 0.137, 0.248, 0.563),
        (2, 4, 1.0 / 4.0, 0.137, 0.248, 0.563),
    ] {
        // After seven epochs the largest cache is full. Belady's hits vary over long periods and need many epochs for a
        // mean.
        let asked = scenario(nodes, 20_000, cached, 60, "");
        let batch_size = asked.batch_size.next_multiple_of(repeats);
        let simulation = Simulation::new(Scenario { repeats, batch_size, ..asked }).unwrap();
        let outcomes =
            simulation.run(&[Policy::Lru, Policy::NeverEvict, Policy::Belady, Policy::Foreload]).unwrap();
        let case = format!("{nodes} nodes, {repeats} repeats, {cached}");
        for (outcome, expected) in outcomes.iter().zip([lru, never_evict, belady]) {
            let hits = hits(outcome, 7..60);
            println!("{case}: {} {hits:.4} for {expected}", outcome.policy.name());
            assert!((hits - expected).abs() < 0.01, "{case}: {} {hits}", outcome.policy.name());
        }
        // Whole groups are evicted together, which is slightly worse than the optimum.
        let planned = hits(&outcomes[3], 7..60);
        println!("{case}: planned {planned:.4}");
        assert!(planned > 0.85 * belady && planned < belady + 0.01, "{case}: {planned}");
    }
}

#[test]
fn peers_that_hold_the_dataset_read_it_once() {
    let network = "network = \"1GB/s\"";
    let simulation = Simulation::new(scenario(4, 20_000, 0.26, 6, network)).unwrap();
    let [frequency, foreload] = &simulation.run(&[Policy::Frequency, Policy::Foreload]).unwrap()[..] else {
        panic!()
    };
    assert_eq!(foreload.slow_bytes, simulation.sizes().total() as u64);
    assert!(foreload.epochs[1..].iter().all(|epoch| epoch.hits == 1.0 && epoch.slow_bytes == 0));
    assert!(frequency.slow_bytes > foreload.slow_bytes);
    // The caches hold half of the dataset: the other half must be read in each later epoch.
    let simulation = Simulation::new(scenario(4, 20_000, 0.125, 6, network)).unwrap();
    let outcome = simulation.run(&[Policy::Foreload]).unwrap().remove(0);
    for epoch in &outcome.epochs[1..] {
        assert!((epoch.hits - 0.5).abs() < 1e-9, "{}", epoch.hits);
    }
}

#[test]
fn repeats_are_fetched_once_a_step_and_used_each_time() {
    for (nodes, repeats) in [(1, 3), (2, 4), (4, 2), (3, 3)] {
        let asked = Scenario { repeats, batch_size: 24, ..scenario(nodes, 2_304, 0.3, 4, "") };
        let simulation = Simulation::new(asked).unwrap();
        let [bound, naive] = &simulation.run(&[Policy::LowerBound, Policy::Naive]).unwrap()[..] else {
            panic!()
        };
        // R nodes fetch a sample that is repeated R times, if there are as many nodes.
        let fetched = 2_304 / repeats * nodes.min(repeats);
        assert_eq!(naive.slow_bytes, u64::from(4 * fetched) * 1_000, "{nodes} nodes, {repeats} repeats");
        let once = Simulation::new(Scenario { repeats: 1, ..simulation.scenario().clone() }).unwrap();
        let same = &once.run(&[Policy::LowerBound]).unwrap()[0];
        assert!((bound.seconds / same.seconds - 1.0).abs() < 1e-9, "consumers work as long");
        for (epoch, node) in (0..4).flat_map(|epoch| (0..nodes).map(move |node| (epoch, node))) {
            let mut seen = std::collections::HashSet::new();
            for used in simulation.accesses().of_node(epoch, node) {
                assert_eq!(used.again, !seen.insert((used.step, used.sample)), "{used:?} on node {node}");
            }
        }
    }
    // Each of two nodes reads a sample when it first uses it, and never again.
    let asked = Scenario { repeats: 2, batch_size: 24, ..scenario(2, 2_304, 0.6, 12, "network = \"1GB/s\"") };
    let simulation = Simulation::new(asked).unwrap();
    let outcome = simulation.run(&[Policy::Foreload]).unwrap().remove(0);
    assert!(outcome.chosen.as_ref().is_some_and(|chosen| chosen.starts_with("peers")), "{outcome:?}");
    let all = 2.0 * simulation.sizes().total();
    assert!(outcome.slow_bytes as f64 <= all && outcome.slow_bytes as f64 > 0.99 * all, "{outcome:?}");
}

#[test]
fn uses_of_a_sample_are_binomial() {
    let within =
        |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 2e-3, "{value}, not {expected}");
    within(counts::expected_above(1000, 4, 10_000, 275), 323.0);
    within(counts::expected_above(90, 16, 1_281_167, 10), 31_635.0);
    within(counts::frequency_hits(10, 4, 0.25), 0.431);
    assert_eq!(counts::frequency_hits(10, 1, 0.25), 0.25);
    for (epochs, nodes, repeats, samples, above) in
        [(1000, 4, 1, 10_000u64, 275), (90, 16, 1, 1_281_167, 10), (1000, 1, 4, 10_000, 275)]
    {
        let asked = scenario(nodes, samples, 0.1, epochs, "");
        let batch_size = asked.batch_size.next_multiple_of(repeats);
        let scenario = Scenario { repeats, batch_size, ..asked };
        let accesses = AccessSchedule::new(&scenario, Fingerprint([3; 32]), samples).unwrap();
        let counted = counts::counted_above(&accesses, &Sizes::equal(samples, 1.0), above) as f64;
        let expected = counts::expected_above(epochs, scenario.epochs_between_uses(), samples, above);
        println!(
            "{nodes} nodes, {epochs} epochs: {counted} used more than {above} times, {expected:.1} expected"
        );
        // The tolerance is four standard deviations of a count.
        assert!((counted - expected).abs() < 4.0 * expected.sqrt(), "{counted}, not {expected}");
    }
}

#[test]
fn the_nodes_of_an_epoch_use_each_sample_once() {
    let scenario = scenario(3, 1_000, 0.1, 4, "");
    let accesses = AccessSchedule::new(&scenario, Fingerprint([3; 32]), 1_000).unwrap();
    for epoch in 0..4 {
        let mut used: Vec<u64> =
            (0..3).flat_map(|node| accesses.of_node(epoch, node)).map(|used| used.sample).collect();
        used.sort_unstable();
        used.dedup();
        // The last 25 samples do not fill a global batch of 75.
        assert_eq!(used.len(), 975, "epoch {epoch}");
    }
}

#[test]
fn a_bad_scenario_is_refused_by_its_key() {
    let good = include_str!("../../src/simulate/scenarios/nopfs-2.toml");
    for (old, new, named) in [
        ("nodes = 4", "nodes = 0", "nodes"),
        ("nodes = 4", "nodse = 4", "nodse"),
        ("epochs = 10\n", "", "epochs"),
        ("compute = \"100MB/s\"", "compute = \"fast\"", "compute"),
        ("compute = \"100MB/s\"", "compute = -1", "compute"),
        ("client = \"2GB/s\"", "client = 0", "slow.client"),
        ("samples = 150000\n", "", "dataset.samples"),
        ("mean = \"1MB\"", "index = \"somewhere\"", "dataset.index"),
        ("{ clients = 2, rate = \"86MB/s\" },", "{ clients = 1, rate = \"86MB/s\" },", "slow.rates"),
        ("{ clients = 2, rate = \"86MB/s\" },", "{ clients = 2, rate = 0 },", "slow.rates"),
        ("read = [{ threads = 2, rate = \"86MB/s\" }]", "read = []", "cache SSD: read"),
        ("batch_size = 25 ", "batch_size = 100000 ", "batch_size"),
    ] {
        assert!(good.contains(old), "{old}");
        let text = good.replacen(old, new, 1);
        let error =
            Scenario::parse("mine", &text).and_then(Simulation::new).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(named), "{new}: {error}");
    }
    let error = Scenario::load("nopfs-5").unwrap_err().to_string();
    assert!(error.contains("nopfs-4") && error.contains("TOML"), "{error}");
}
