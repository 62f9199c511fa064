//! The simulator against published and computable figures: Dryden et al., "Clairvoyant Prefetching for Distributed
//! Machine Learning I/O" (SC'21), with its four scenarios, and hit rates of caches known from theory.

use foreload::testing::simulate::{Policy, PolicyOutcome, Scenario, Simulation};

/// The outcomes of the policies in a built-in scenario.
fn outcomes(name: &str, policies: &[Policy]) -> (Simulation, Vec<PolicyOutcome>) {
    let simulation = Simulation::new(Scenario::load(name).unwrap()).unwrap();
    let outcomes = simulation.run(policies).unwrap();
    for outcome in &outcomes {
        println!("{name} {} {:.2} s", outcome.policy.name(), outcome.seconds);
    }
    (simulation, outcomes)
}

/// Whether `value` is within `share` of `expected`.
fn near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

struct Published {
    scenario: &'static str,
    /// The figure, recomputed from the definition of the model.
    recomputed: f64,
    lower_bound: f64,
    naive: f64,
    staging_pool: f64,
    /// The tolerance of our figures for the policies `naive` and `staging pool`.
    tolerance: f64,
    /// The most time that policy `frequency` may take, in multiples of the lower bound.
    frequency: f64,
}

const PUBLISHED: [Published; 4] = [
    Published {
        scenario: "nopfs-1",
        recomputed: 7.27,
        lower_bound: 7.30,
        naive: 27.78,
        staging_pool: 10.24,
        tolerance: 0.1,
        frequency: 1.05,
    },
    Published {
        scenario: "nopfs-2",
        recomputed: 3827.6,
        lower_bound: 3825.66,
        naive: 15130.54,
        staging_pool: 4982.27,
        tolerance: 0.04,
        frequency: 1.02,
    },
    Published {
        scenario: "nopfs-3",
        recomputed: 7654.2,
        lower_bound: 7655.25,
        naive: 30272.96,
        staging_pool: 9945.29,
        tolerance: 0.04,
        frequency: 1.02,
    },
    Published {
        scenario: "nopfs-4",
        recomputed: 15204.7,
        lower_bound: 15204.78,
        naive: 60526.36,
        staging_pool: 19888.26,
        tolerance: 0.04,
        frequency: 1.11,
    },
];

#[test]
fn the_published_scenarios_come_out() {
    for published in PUBLISHED {
        use Policy::{Foreload, Frequency, LowerBound, Naive, StagingPool};
        let policies = [LowerBound, Naive, StagingPool, Frequency, Foreload];
        let (simulation, outcomes) = outcomes(published.scenario, &policies);
        let [bound, naive, pool, frequency, foreload] = &outcomes[..] else { panic!("five outcomes") };
        let name = published.scenario;
        assert!(near(bound.seconds, published.recomputed, 0.005), "{name}: {}", bound.seconds);
        assert!(near(bound.seconds, published.lower_bound, 0.01), "{name}: {}", bound.seconds);
        assert!(near(naive.seconds, published.naive, published.tolerance), "{name}: {}", naive.seconds);
        assert!(near(pool.seconds, published.staging_pool, published.tolerance), "{name}: {}", pool.seconds);
        let most = published.frequency * bound.seconds;
        assert!(frequency.seconds <= most, "{name}: {} > {most}", frequency.seconds);
        assert!(frequency.seconds >= bound.seconds, "{name}: {}", frequency.seconds);
        assert!(foreload.seconds <= frequency.seconds, "{name}: {}", foreload.seconds);
        assert!(foreload.seconds >= bound.seconds, "{name}: {}", foreload.seconds);
        assert_eq!(bound.stall_seconds, 0.0);
        for outcome in &outcomes {
            let seconds: f64 = outcome.epochs.iter().map(|epoch| epoch.seconds).sum();
            assert!(near(seconds, outcome.seconds, 1e-9), "{name}: {seconds} of {}", outcome.seconds);
            let stall = outcome.seconds - bound.seconds;
            assert!((outcome.stall_seconds - stall).abs() < 1e-6, "{name}: {}", outcome.stall_seconds);
        }
        let (dataset, epochs) = (simulation.sizes().total(), f64::from(simulation.scenario().epochs));
        assert!(near(naive.slow_bytes as f64, dataset * epochs, 1e-3), "{name}: {}", naive.slow_bytes);
    }
}
