//! Processes are killed at random instants: samples that they published are right, and unpublished ones leave no trace.

use super::world::{World, leftovers, linked, on_tmpfs, random, shuffled, small, taken, told};
use crate::common::{Killable, await_steps, child, report_step};
use foreload::testing::tier::store::Offer;
use std::path::Path;

const SAMPLES: u64 = 300;
const LARGEST: u64 = 6000;
/// The number of rounds, each of two kills.
const ROUNDS: u64 = 104;

/// A child that fills the cache until it is killed. It reports every step through the pipe.
fn filler(world: &World, cache: &Path, quota: u64, seed: u64, steps: &std::io::PipeWriter) -> Killable {
    let variables = [
        ("STORE_BASE", world.base.to_str().unwrap().to_owned()),
        ("STORE_CACHE", cache.to_str().unwrap().to_owned()),
        ("STORE_KILL", format!("{quota} {seed}")),
    ];
    Killable::start(child(fill_until_killed).envs(variables).stdout(steps.try_clone().unwrap()))
}

#[test]
#[ignore = "run and killed by the test below, in processes of its own"]
fn fill_until_killed() {
    let world = World::at(Path::new(&told("STORE_BASE")));
    let told_numbers = told("STORE_KILL");
    let (quota, seed) = told_numbers.split_once(' ').unwrap();
    let mut random = random(seed.parse().unwrap());
    report_step();
    let options = small(told("STORE_CACHE"), quota.parse().unwrap());
    let options = foreload::testing::tier::store::StoreOptions {
        segment_bytes: Some(30_000),
        write_buffers: 30_000,
        ..options
    };
    let store = world.open_with(&options);
    loop {
        report_step();
        for sample in shuffled(SAMPLES, &mut random) {
            if store.offer(sample % 2, sample, world.version(), world.bytes(sample)) != Offer::Present {
                report_step();
            }
            match random.below(60) {
                0 => store.publish_at_end(),
                1 => store.flush(),
                _ => {}
            }
        }
    }
}

/// Kills two children in turn. Then the cache must be within its quota, correct, without leftovers, and not empty.
fn kill_many(cache: &Path, exact: bool) {
    let seed = 1;
    println!("seed {seed}");
    let world = World::new(seed, SAMPLES, LARGEST);
    let quota = world.total() / 2 / 4096 * 4096;
    let mut random = random(seed);
    // The lock file, the tag and the dataset's description take a page each.
    let limit = quota + 3 * 4096;
    let (mut survived, mut full) = (0, 0);
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, round {round}");
        let look = || {
            if exact {
                let bytes = taken(cache);
                assert!(bytes <= limit, "{what}: {bytes} bytes taken, nameless files included, of {quota}");
            }
            if let Some(bytes) = linked(cache) {
                assert!(bytes <= quota, "{what}: {bytes} bytes published of {quota}");
            }
        };
        let (mut steps, writer) = std::io::pipe().unwrap();
        let children = [0, 1].map(|child| filler(&world, cache, quota, 2 * round + child, &writer));
        drop(writer);
        for child in children {
            // A child is killed sometimes during its start, mostly while it fills the cache, and also when the cache is
            // full.
            let longest = [4, 60, 400, 2000][random.below(4) as usize];
            let are_there = await_steps(&mut steps, 1 + random.below(longest), look);
            assert!(are_there, "{what}: the children have ended");
            child.kill();
            look();
        }
        if !cache.join("lock").exists() {
            continue;
        }
        assert!(leftovers(cache).is_empty(), "{what}: {:?}", leftovers(cache));
        let published = linked(cache).expect("nobody changes it");
        let store = world.open_with(&small(cache, quota));
        let stats = store.stats();
        assert_eq!(stats.damaged_segments + stats.evicted_segments, 0, "{what}: {:?}", store.last_error());
        assert_eq!(stats.used_bytes, published, "{what}: nothing is reserved any more");
        let held = world.check(&store, &what);
        assert_eq!(held, stats.held_samples, "{what}");
        survived += held;
        full += u64::from(published * 100 >= quota * 97);
        // Makes space for the next round.
        store.evict_group(round % 2);
        store.flush();
        look();
    }
    println!("{survived} samples survived {ROUNDS} rounds, {full} of which filled the quota");
    assert!(survived > 20 * ROUNDS && full > 0, "{survived} samples survived, {full} rounds were full");
}

#[test]
fn two_hundred_killed_fillers_leave_a_clean_warm_cache_within_its_quota() {
    // On a tmpfs, the file system reports the used space exactly.
    if !on_tmpfs(64 << 20, |path| kill_many(path, true)) {
        let directory = tempfile::tempdir().unwrap();
        kill_many(&directory.path().join("cache"), false);
    }
}
