//! Tests with random damage: their duration, and the seed that repeats them.

use super::seeds::thorough;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The duration of a fuzz test: `FORELOAD_FUZZ_SECONDS`, or by default half a second, or two in `make thorough`.
pub fn fuzz_time() -> Duration {
    let usual = if thorough() { 2.0 } else { 0.5 };
    let given = std::env::var("FORELOAD_FUZZ_SECONDS").ok();
    Duration::from_secs_f64(
        given.map_or(usual, |text| text.parse().expect("FORELOAD_FUZZ_SECONDS is a number")),
    )
}

/// The seed of a fuzz test: `FORELOAD_FUZZ_SEED`, or by default the time.
pub fn fuzz_seed() -> u64 {
    let clock = || UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    let given = std::env::var("FORELOAD_FUZZ_SEED").ok();
    given.map_or_else(clock, |text| text.parse().expect("FORELOAD_FUZZ_SEED is a number"))
}

/// Calls `one` with a random stream of its own until the time is up. Before a panic it prints the seed that repeats it.
pub fn fuzz(name: &str, mut one: impl FnMut(&mut RandomStream)) {
    let seed = fuzz_seed();
    let key = RandomKey::new(name.as_bytes(), seed, 0, Use::Substitute);
    let end = Instant::now() + fuzz_time();
    let mut rounds = 0;
    while rounds < 20 || Instant::now() < end {
        let mut stream = key.stream(rounds);
        let caught = catch_unwind(AssertUnwindSafe(|| one(&mut stream)));
        assert!(caught.is_ok(), "{name}: round {rounds} of FORELOAD_FUZZ_SEED={seed}");
        rounds += 1;
    }
    println!("{name}: {rounds} rounds, FORELOAD_FUZZ_SEED={seed}");
}
