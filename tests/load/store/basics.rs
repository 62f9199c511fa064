//! Samples are offered, published, located, read and evicted: by one process, by two stores, by real readers.

use super::world::{PLENTY, World, random, shuffled, small};
use foreload::testing::io::{DataSource, Direct, IoChoice, ReadRequest, open_source};
use foreload::testing::slot::SlotPool;
use foreload::testing::tier::store::{CopyFault, Location, Offer, Store, StoreOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn what_is_offered_is_found_again_also_after_a_restart() {
    let world = World::new(1, 300, 9000);
    let store = world.open(PLENTY);
    assert_eq!(world.check(&store, "new"), 0);
    world.store_all(&store, shuffled(300, &mut random(1)));
    assert_eq!(world.check(&store, "filled"), 300);
    let stats = store.stats();
    assert_eq!((stats.admitted_samples, stats.held_samples), (300, 300));
    assert_eq!(stats.admitted_bytes, world.total());
    assert!(stats.held_bytes > world.total() && stats.used_bytes >= stats.held_bytes, "{stats:?}");
    assert!(world.segments().len() > 10, "{} segments", world.segments().len());
    drop(store);
    let store = world.open(PLENTY);
    assert_eq!(world.check(&store, "opened again"), 300);
    assert_eq!(store.stats().held_bytes, stats.held_bytes);
    assert_eq!(store.last_error(), None);
}

#[test]
fn a_store_that_is_dropped_publishes_what_it_took() {
    let world = World::new(2, 20, 5000);
    let store = world.open(PLENTY);
    world.offer_all(&store, 0..20);
    drop(store);
    assert_eq!(world.check(&world.open(PLENTY), "after a drop"), 20);
}

#[test]
fn a_sample_is_taken_once() {
    let world = World::new(3, 4, 5000);
    let store = world.open(PLENTY);
    assert_eq!(store.offer(0, 2, world.version(), world.bytes(2)), Offer::Taken);
    assert_eq!(store.offer(0, 2, world.version(), world.bytes(2)), Offer::Present, "on its way");
    assert!(store.locate(2).is_none());
    store.flush();
    assert_eq!(store.offer(0, 2, world.version(), world.bytes(2)), Offer::Present);
    assert!(store.locate(2).is_some());
}

#[test]
fn a_sample_moves_to_another_group_and_survives_its_first() {
    let world = World::new(3, 4, 5000);
    let store = world.open(PLENTY);
    for group in [0, 7] {
        assert_eq!(store.offer(group, 2, world.version(), world.bytes(2)), Offer::Taken, "group {group}");
        store.flush();
    }
    assert_eq!(store.offer(7, 2, world.version(), world.bytes(2)), Offer::Present);
    store.evict_group(0);
    store.flush();
    assert!(store.locate(2).is_some());
    store.evict_group(7);
    store.flush();
    assert!(store.locate(2).is_none());
}

#[test]
fn the_quota_is_filled_and_no_more_is_taken() {
    let world = World::new(4, 400, 9000);
    let quota = world.total() / 4;
    let store = world.open(quota);
    let mut random = random(4);
    // In a random order of 400 samples, many small samples come after samples that did not fit.
    world.store_all(&store, shuffled(400, &mut random));
    let stats = store.stats();
    assert!(stats.used_bytes <= quota && stats.quota_bytes <= quota, "{stats:?} of {quota}");
    assert!(stats.admitted_bytes * 100 >= quota * 95, "{} of {quota} bytes", stats.admitted_bytes);
    assert!(stats.dropped_full > 0 && stats.dropped_off == 0, "{stats:?}");
    assert_eq!(world.check(&store, "full"), stats.held_samples);
    // All samples that are not stored are refused; finally they are refused before they are copied.
    world.offer_all(&store, 0..400);
    let refused = (0..400).map(|sample| store.offer(0, sample, world.version(), world.bytes(sample)));
    assert!(refused.filter(|offer| *offer == Offer::Full).count() > 200);
    // Publishing makes no space; the next epoch tries again.
    store.publish();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!store.is_open());
    store.flush();
    assert!(store.is_open());
}

#[test]
fn readers_read_segments_as_shards() {
    let world = World::new(5, 60, 30_000);
    let store = world.open(PLENTY);
    world.store_all(&store, 0..60);
    let slots = SlotPool::new(8 << 20).expect("slots");
    for io in [IoChoice::Pread, IoChoice::Auto] {
        let first = store.locate(0).expect("it is there").extent;
        let source = DataSource { files: store.files(), root: world.cache(), first, bytes: world.total() };
        let mut reader = open_source(&source, &slots, io, Direct::Auto, 8).expect("a reader");
        let mut done = Vec::new();
        for token in 0..60 {
            let extent = store.locate(token).expect("it is there").extent;
            let slot = slots.try_take(extent.length as usize).expect("a slot");
            reader.submit(ReadRequest::new(token, extent, slot));
            while reader.room() == 0 {
                reader.wait(&mut done).expect("reads");
            }
        }
        while reader.in_flight() > 0 {
            reader.wait(&mut done).expect("reads");
        }
        assert_eq!(done.len(), 60);
        for completion in done {
            let bytes = completion.result.expect("a sample");
            assert!(bytes[..] == *world.bytes(completion.token), "sample {}", completion.token);
        }
    }
}

#[test]
fn a_group_is_evicted_as_a_whole() {
    let world = World::new(6, 200, 4000);
    let store = world.open(PLENTY);
    for sample in 0..200 {
        while store.offer(sample % 3, sample, world.version(), world.bytes(sample)) == Offer::Busy {
            std::thread::yield_now();
        }
    }
    store.flush();
    store.evict_group(1);
    store.flush();
    let there: Vec<u64> = (0..200).filter(|&sample| store.locate(sample).is_some()).collect();
    assert_eq!(there, (0..200).filter(|sample| sample % 3 != 1).collect::<Vec<_>>());
    let stats = store.stats();
    assert!(stats.evicted_segments > 0 && stats.held_samples == there.len() as u64, "{stats:?}");
    let store = world.open(PLENTY);
    assert_eq!(world.check(&store, "the others are still on the drive"), there.len() as u64);
    // The segment that is still open is evicted, too, and its samples can be stored again.
    world.offer_all(&store, [1]);
    store.evict_group(0);
    store.flush();
    assert!(store.locate(1).is_none() && store.locate(0).is_none() && store.locate(2).is_some());
    assert_eq!(store.offer(1, 1, world.version(), world.bytes(1)), Offer::Taken);
}

#[test]
fn stores_learn_of_each_others_segments() {
    let world = World::new(7, 100, 4000);
    let (one, two) = (world.open(PLENTY), world.open(PLENTY));
    world.offer_all(&one, 0..50);
    world.offer_all(&two, 50..100);
    one.flush();
    two.flush();
    for store in [&one, &two] {
        store.refresh();
        assert_eq!(world.check(store, "after a refresh"), 100);
    }
    one.evict_group(0);
    one.flush();
    two.refresh();
    assert_eq!(two.stats().held_samples, 0);
    assert!(two.stats().vanished_segments > 0);
    assert!(one.stats().evicted_bytes > 0 && two.stats().used_bytes == 0, "{:?}", two.stats());
    // The same samples are stored again, in segments with other numbers.
    world.store_all(&two, 0..100);
    one.refresh();
    assert_eq!(world.check(&one, "filled again"), 100);
}

#[test]
fn what_another_store_was_first_to_publish_is_not_written_again() {
    let world = World::new(12, 6, 4000);
    let (one, two) = (world.open(PLENTY), world.open(PLENTY));
    world.offer_all(&one, 0..4);
    world.store_all(&two, 1..6);
    one.refresh();
    assert_eq!(world.check(&one, "of the other"), 5);
    one.flush();
    assert_eq!((one.stats().admitted_samples, one.stats().held_samples), (1, 6));
    assert_eq!(world.check(&one, "and of its own"), 6);
}

#[test]
fn what_is_reported_is_forgotten_with_its_segment() {
    let world = World::new(8, 200, 4000);
    let store = world.open(PLENTY);
    world.store_all(&store, 0..200);
    let segment = |location: Option<Location>| location.map(|location| location.extent.file);
    let location = store.locate(17).expect("it is there");
    let beside: Vec<u64> =
        (0..200).filter(|&other| segment(store.locate(other)) == segment(Some(location))).collect();
    assert!(beside.len() > 3);
    let before = world.segments().len();
    for why in [CopyFault::Unreadable, CopyFault::Checksum, CopyFault::Gone] {
        store.damaged(17, location, why);
    }
    assert!(beside.iter().all(|&sample| store.locate(sample).is_none()), "at once");
    store.flush();
    let stats = store.stats();
    assert_eq!((stats.damaged_segments, stats.vanished_segments), (1, 0));
    assert_eq!(stats.held_samples, 200 - beside.len() as u64);
    assert_eq!(world.segments().len(), before - 1);
    assert!(store.last_error().is_some_and(|error| error.contains("sample 17 cannot be read")));
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "filled again"), 200);
}

#[test]
fn a_unit_is_staged_by_one() {
    let world = World::new(9, 4, 100);
    let (one, two) = (world.open(PLENTY), world.open(PLENTY));
    let claim = one.lock_unit(0).expect("nobody has it");
    assert_eq!(claim.unit(), 0);
    assert!(one.lock_unit(0).is_none() && two.lock_unit(0).is_none());
    let other = two.lock_unit(1).expect("another unit");
    drop(claim);
    let again = two.lock_unit(0).expect("given back");
    drop((one, two));
    assert!(world.open(PLENTY).lock_unit(1).is_none(), "a claim outlives its store");
    drop((again, other));
    assert!(world.open(PLENTY).lock_unit(1).is_some());
}

#[test]
fn many_threads_locate_while_segments_come_and_go() {
    let world = World::new(10, 200, 2000);
    let store = world.open(PLENTY);
    let (world, store): (&World, &Arc<Store>) = (&world, &store);
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..20 {
                world.store_all(store, (0..200).map(|sample| (sample + round * 31) % 200));
                store.evict_group(0);
            }
            done.store(true, Relaxed);
        });
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut random = random(thread);
                while !done.load(Relaxed) {
                    let sample = random.below(200);
                    if let Some(location) = store.locate(sample) {
                        assert_eq!(location.extent.length, world.index.extent(sample).length);
                        assert_eq!(
                            location.crc.expect("a checksum"),
                            foreload::testing::tier::store::checksum(world.bytes(sample))
                        );
                    }
                }
            });
        }
    });
}

#[test]
fn a_sample_larger_than_a_segment_gets_one_of_its_own() {
    let world = World::new(11, 10, 300_000);
    let options = StoreOptions { write_buffers: 1000, ..small(world.cache(), PLENTY) };
    let store = world.open_with(&options);
    world.store_all(&store, 0..10);
    assert_eq!(world.check(&store, "large samples"), 10);
}
