//! Caches that nodes read from each other: the bytes from the slow tier, the bytes over the network, and the time.

use foreload::testing::simulate::{Bytes, Policy, PolicyOutcome, Scenario, Simulation};

const SAMPLES: u64 = 20_000;

/// A training on `nodes` nodes with a cache in memory and one on NVMe, which hold `cached` of the dataset on each node.
fn scenario(nodes: u32, cached: f64, epochs: u32, more: &str) -> Scenario {
    let cache = |name: &str, capacity: f64| {
        format!(
            "[[cache]]\nname = {name:?}\ncapacity = {capacity}\nthreads = 2\n\
             read = [{{ threads = 2, rate = \"2GB/s\" }}]\nwrite = [{{ threads = 2, rate = \"1GB/s\" }}]\n"
        )
    };
    let capacity = 1000.0 * SAMPLES as f64 * cached;
    let text = format!(
        r#"
        name = "nodes"
        nodes = {nodes}
        batch_size = 50
        epochs = {epochs}
        compute = "100MB/s"
        preprocess = "200MB/s"
        network = "1GB/s"
        [dataset]
        samples = {SAMPLES}
        mean = "1kB"
        [slow]
        client = "1GB/s"
        rates = [{{ clients = 1, rate = "50MB/s" }}]
        [staging]
        capacity = "1MB"
        threads = 2
        {}
        {}
        {more}
        "#,
        cache("RAM", (capacity / 4.0 / 1000.0).floor() * 1000.0),
        cache("NVMe", (capacity * 0.75 / 1000.0).floor() * 1000.0)
    );
    Scenario::parse("nodes", &text).unwrap()
}

fn run<const N: usize>(scenario: Scenario, policies: [Policy; N]) -> [PolicyOutcome; N] {
    Simulation::new(scenario).unwrap().run(&policies).unwrap().try_into().unwrap()
}

#[test]
fn with_homes_each_byte_leaves_the_slow_tier_once() {
    let dataset = 1000 * SAMPLES;
    for nodes in [2, 4, 8] {
        let policies = [Policy::Owner, Policy::OwnerLocality, Policy::FirstUser, Policy::NextUse];
        let [owner, local, first_user, private] =
            run(scenario(nodes, 1.0 / f64::from(nodes), 6, ""), policies);
        for outcome in [&owner, &local] {
            assert_eq!(outcome.epochs[0].slow_bytes, dataset, "{nodes} nodes");
            for epoch in &outcome.epochs[1..] {
                // The sizes of caches are rounded down to whole samples.
                assert!(
                    epoch.slow_bytes <= 1000 * 2 * u64::from(nodes),
                    "{nodes} nodes: {}",
                    epoch.slow_bytes
                );
                let cached = epoch.tiers.iter().map(|tier| tier.local_bytes + tier.peer_bytes).sum::<u64>();
                assert_eq!(cached + epoch.slow_bytes, dataset, "{nodes} nodes");
                assert_eq!(epoch.tiers[0].name, "RAM");
                let ram = (epoch.tiers[0].local_bytes + epoch.tiers[0].peer_bytes) as f64 / dataset as f64;
                assert!((ram - 0.25).abs() < 0.01, "{nodes} nodes: {ram} from RAM");
            }
        }
        assert!(first_user.slow_bytes.abs_diff(owner.slow_bytes) < dataset / 100, "{nodes} nodes");
        assert!(private.slow_bytes > owner.slow_bytes + dataset / 5, "{nodes} nodes");
        // With N nodes, a node stores 1/N of its samples itself, and by locality nearly all.
        let share = 1.0 / f64::from(nodes);
        assert!(
            (owner.epochs[2].network.mean as f64 * f64::from(nodes) / dataset as f64 - 1.0 + share).abs()
                < 0.01
        );
        let moved = local.epochs[2].network.mean as f64 * f64::from(nodes) / dataset as f64;
        let expected = ((1.0 - share) / (std::f64::consts::TAU * 50.0)).sqrt();
        assert!((moved / expected - 1.0).abs() < 0.15, "{nodes} nodes: {moved} of all move, not {expected}");
        assert!(
            local.epochs[0].network.mean < owner.epochs[0].network.mean / 3,
            "what is at home is not given away"
        );
        // Only the necessary samples are moved, and no node moves much more than the others.
        assert!(owner.network.max < owner.network.mean * 11 / 10, "{nodes} nodes: {:?}", owner.network);
    }
}

#[test]
fn what_all_nodes_cannot_hold_is_read_each_epoch() {
    let [owner, local, peers, private] = run(
        scenario(4, 0.125, 8, ""),
        [Policy::Owner, Policy::OwnerLocality, Policy::NextUsePeers, Policy::NextUse],
    );
    for epoch in owner.epochs[1..].iter().chain(&local.epochs[1..]) {
        assert!((epoch.hits - 0.5).abs() < 0.001, "{}", epoch.hits);
    }
    // Copies of the same sample on several nodes leave less room for others.
    let late = |outcome: &PolicyOutcome| outcome.epochs[5].slow_bytes;
    println!("next-use {}, with peers {}, owner {}", late(&private), late(&peers), late(&owner));
    assert!(late(&peers) < late(&private), "{} and {}", late(&peers), late(&private));
    assert!(late(&owner) < late(&private), "{} and {}", late(&owner), late(&private));
}

#[test]
fn uneven_nodes_keep_what_they_have_room_for() {
    // One node has no cache, and one has ten times as much as the others.
    let groups =
        "[[group]]\nnodes = 1\ncapacity = [0, 0]\n[[group]]\nnodes = 1\ncapacity = [\"1MB\", \"9MB\"]\n";
    let uneven = scenario(6, 0.05, 4, groups);
    assert_eq!(uneven.all_caches(), 10e6 + 4.0 * 1e6);
    let [owner, local] = run(uneven, [Policy::Owner, Policy::OwnerLocality]);
    for outcome in [owner, local] {
        let slow = outcome.epochs[2].slow_bytes as f64;
        // The last 200 samples do not fill a global batch of 300.
        let expected = (20e6 - 14e6) * 19_800.0 / 20_000.0;
        assert!((slow / expected - 1.0).abs() < 0.02, "{slow}, not {expected}");
        assert_eq!(outcome.slow.mean, outcome.slow_bytes / 6);
        assert!(outcome.slow.max >= outcome.slow.mean && outcome.network.max > outcome.network.mean);
    }
}

#[test]
fn private_caches_that_hold_the_dataset_take_as_many_epochs_as_nodes_to_fill() {
    // 64 nodes that can store everything read (63/64)^e of the dataset in epoch e, because each uses a sample once in
    // 64 epochs.
    let asked = Scenario { batch_size: 5, ..scenario(64, 1.6, 50, "") };
    let [private, owner] = run(asked, [Policy::NextUse, Policy::Owner]);
    let dataset = 1000.0 * (SAMPLES - SAMPLES % 320) as f64;
    let mean = |outcome: &PolicyOutcome| outcome.slow_bytes as f64 / 50.0 / dataset;
    let expected = 64.0 * (1.0 - (63.0_f64 / 64.0).powi(50)) / 50.0;
    assert!(
        (mean(&private) - expected).abs() < 0.005,
        "{} of the dataset an epoch, not {expected}",
        mean(&private)
    );
    assert!((mean(&owner) - 1.0 / 50.0).abs() < 0.001, "{}", mean(&owner));
}

#[test]
fn what_the_slow_tier_gives_to_all_together_is_not_more_with_more_readers() {
    let dataset = 1000.0 * SAMPLES as f64;
    for nodes in [1, 2, 8] {
        let mut scenario = scenario(nodes, 0.5 / f64::from(nodes), 3, "");
        scenario.slow.total = Some(Bytes(5e6));
        let policies = [Policy::Owner, Policy::StagingPool, Policy::Naive, Policy::LowerBound];
        let [owner, staged, naive, bound] = run(scenario, policies);
        for (outcome, shares) in [(&owner, [1.0, 0.5, 0.5]), (&staged, [1.0; 3]), (&naive, [1.0; 3])] {
            for (epoch, share) in outcome.epochs.iter().zip(shares) {
                let least = share * dataset / 5e6;
                let found = epoch.seconds / least;
                assert!((0.97..1.2).contains(&found), "{nodes} nodes: {:?}, {found}", outcome.policy);
            }
        }
        assert!(bound.seconds < 0.5 * owner.seconds);
    }
}

#[test]
fn a_network_that_is_too_slow_holds_everybody_up() {
    let slow = |rate: f64| {
        let mut scenario = scenario(4, 0.3, 3, "");
        scenario.network.as_mut().unwrap().0 = rate;
        run(scenario, [Policy::Owner, Policy::OwnerLocality])
    };
    let [owner, local] = slow(10e6);
    // A node gets three quarters of its 5 MB at 10 MB/s, and a step waits for the node that gets most.
    let seconds = owner.epochs[2].seconds;
    assert!((1.0..1.15).contains(&(seconds / 0.375)), "{seconds}");
    assert!(local.epochs[2].seconds < 0.3 * seconds, "{}", local.epochs[2].seconds);
    let [fast, _] = slow(10e9);
    assert!(fast.epochs[2].seconds < 0.2 * seconds, "{}", fast.epochs[2].seconds);
}

#[test]
fn what_cannot_be_simulated_is_refused_with_a_reason() {
    let private = Scenario { network: None, ..scenario(4, 0.3, 3, "") };
    let simulation = Simulation::new(private).unwrap();
    for policy in [Policy::Owner, Policy::OwnerLocality, Policy::FirstUser, Policy::NextUsePeers] {
        let error = simulation.run(&[policy]).unwrap_err().to_string();
        assert!(error.contains(policy.name()) && error.contains("network"), "{error}");
    }
    let mut long = scenario(4, 0.3, 3, "");
    long.dataset.samples = 100_000_000;
    let error = Simulation::new(long).unwrap().can(Policy::NextUsePeers).unwrap_err().to_string();
    assert!(error.contains("next-use-peers") && error.contains("fewer"), "{error}");
    let text = include_str!("../../benches/simulate/owners.toml");
    Scenario::parse("owners", text).unwrap();
    for (old, new, named) in
        [("nodes = 256", "nodes = 2000", "group"), ("[\"8GB\", \"40GB\"]", "[\"8GB\"]", "group.capacity")]
    {
        assert!(text.contains(old), "{old}");
        let error = Scenario::parse("owners", &text.replacen(old, new, 1)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
