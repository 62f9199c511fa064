//! Drives that fail, fill up or write only a part: the caller never waits, no byte is ever wrong, and filling resumes
//! later.

use super::world::{PLENTY, World, leftovers, linked, on_tmpfs, random, shuffled, small, taken};
use crate::common::wait_until;
use foreload::testing::tier::store::{Offer, StoreOptions, WriteFaults};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

#[test]
fn short_writes_are_written_to_the_end() {
    let world = World::new(1, 200, 9000);
    let faults = WriteFaults { seed: 1, errors: 0, full: 0, short: 70 };
    let store = world.open_with(&StoreOptions { faults: Some(faults), ..world.options(PLENTY) });
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "short writes"), 200);
    assert_eq!(store.stats().write_errors, 0);
}

#[test]
fn a_failed_write_costs_its_segment_and_nothing_else() {
    for seed in 0..12 {
        let world = World::new(seed, 150, 9000);
        let faults = WriteFaults { seed, errors: 4, full: 4, short: 20 };
        let store = world.open_with(&StoreOptions { faults: Some(faults), ..world.options(PLENTY) });
        let mut random = random(seed);
        let (mut off, mut rounds) = (0, 0);
        while store.stats().held_samples < 150 {
            for sample in shuffled(150, &mut random) {
                match store.offer(0, sample, world.version(), world.bytes(sample)) {
                    Offer::Off => off += 1,
                    Offer::Full => panic!("seed {seed}: nothing is full"),
                    Offer::Busy => std::thread::yield_now(),
                    Offer::Taken | Offer::Present => {}
                }
            }
            // This resumes filling after an error has stopped it.
            store.flush();
            world.check(&store, &format!("seed {seed}, round {rounds}"));
            let published: u64 = linked(&world.cache()).expect("nobody changes it");
            store.refresh();
            assert_eq!(store.stats().used_bytes, published, "seed {seed}: what failed is given back");
            rounds += 1;
            assert!(rounds < 200, "seed {seed}: {:?}", store.stats());
        }
        let stats = store.stats();
        if stats.write_errors > 0 {
            let error = store.last_error().unwrap();
            let known = error.contains("Input/output error") || error.contains("No space left on device");
            assert!(known && error.contains(world.cache().to_str().unwrap()), "seed {seed}: {error}");
            assert!(stats.dropped_off >= off, "seed {seed}: {stats:?}");
        }
        drop(store);
        let store = world.open(PLENTY);
        assert_eq!(world.check(&store, &format!("seed {seed}, opened again")), 150);
        assert!(leftovers(&world.cache()).is_empty());
    }
}

#[test]
fn a_drive_that_only_fails_is_left_alone() {
    let world = World::new(20, 100, 5000);
    let faults = WriteFaults { seed: 20, errors: 100, full: 0, short: 0 };
    let store = world.open_with(&StoreOptions { faults: Some(faults), ..world.options(PLENTY) });
    world.store_all(&store, 0..100);
    assert_eq!(world.check(&store, "nothing can be written"), 0);
    let stats = store.stats();
    assert!(stats.write_errors >= 1 && stats.dropped_off > 0 && stats.used_bytes == 0, "{stats:?}");
    assert!(store.last_error().unwrap().ends_with("(os error 5); nothing is cached for a while"));
}

#[test]
fn a_drive_that_does_not_answer_costs_samples_and_no_time() {
    let world = World::new(21, 200, 9000);
    let store = world.open(PLENTY);
    // The writer cannot reserve space while another process has the directory's lock.
    let lock = File::options().read(true).write(true).open(world.cache().join("lock")).unwrap();
    lock_byte_0(&lock);
    let offers: Vec<Offer> =
        (0..200).map(|sample| store.offer(0, sample, world.version(), world.bytes(sample))).collect();
    let [taken, busy] =
        [Offer::Taken, Offer::Busy].map(|kind| offers.iter().filter(|offer| **offer == kind).count() as u64);
    assert!(taken > 0 && busy > 0 && taken + busy == 200, "{taken} taken, {busy} not");
    assert_eq!(store.stats().dropped_busy, busy);
    assert!((0..200).all(|sample| store.locate(sample).is_none()));
    drop(lock);
    store.flush();
    assert_eq!(world.check(&store, "it answers again"), taken);
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "all"), 200);
}

/// Takes a lock that the kernel releases when `file` is closed.
fn lock_byte_0(file: &File) {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_len) = (libc::F_WRLCK as _, 1);
    // SAFETY: the descriptor is open, and `lock` is a valid flock to read.
    let is_taken = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0;
    // The store itself takes the lock for short moments.
    wait_until("the lock is free", is_taken);
}

#[test]
fn a_disk_that_is_fuller_than_the_quota_knows() {
    on_tmpfs(1 << 20, |path| {
        let world = World::new(30, 300, 15_000);
        assert!(world.total() > 2 << 20, "more than fits");
        let ballast = path.join("ballast");
        fs::write(&ballast, vec![1; 400_000]).unwrap();
        let cache = path.join("cache");
        let store = world.open_with(&small(&cache, PLENTY));
        world.store_all(&store, 0..300);
        let stats = store.stats();
        assert!(stats.write_errors > 0 && stats.dropped_off > 0 && stats.dropped_full == 0, "{stats:?}");
        assert!(store.last_error().unwrap().contains("No space left on device"), "{:?}", store.last_error());
        let before = world.check(&store, "full disk");
        assert!(before > 20, "{before} samples on 600 KB");
        // Space is freed, and the next epoch uses it.
        fs::remove_file(&ballast).unwrap();
        world.store_all(&store, 0..300);
        let after = world.check(&store, "room again");
        assert!(after > before, "{before}, then {after}");
        drop(store);
        assert!(leftovers(&cache).is_empty());
        let store = world.open_with(&small(&cache, PLENTY));
        assert_eq!(world.check(&store, "opened again"), after);
        assert!(taken(path) <= stats.quota_bytes.min(1 << 20));
    });
}

#[test]
fn a_directory_that_is_taken_away_stops_filling_only() {
    let world = World::new(40, 200, 5000);
    let store = world.open(PLENTY);
    world.store_all(&store, 0..100);
    fs::remove_dir_all(world.cache()).unwrap();
    world.store_all(&store, 100..200);
    assert!(store.stats().write_errors > 0 && (100..200).all(|sample| store.locate(sample).is_none()));
    assert!(!world.cache().exists());
    drop(store);
    let store = world.open(PLENTY);
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "made again"), 200);
}
