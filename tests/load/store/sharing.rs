//! Several processes, datasets and quotas in one directory.

use super::world::{World, linked, random, segments, shuffled, told};
use crate::common::child;
use foreload::testing::tier::store::{Store, StoreOptions, checksum};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

/// Starts processes that fill one cache with samples of one dataset, each with its own share of them.
fn fill_by(world: &World, processes: u64, quota: u64, overlap: u64) {
    let (alive, mine) = std::io::pipe().unwrap();
    let children: Vec<Child> = (0..processes)
        .map(|rank| {
            let variables = [
                ("STORE_BASE", world.base.to_str().unwrap().to_owned()),
                ("STORE_SHARE", format!("{rank} {processes} {quota} {overlap}")),
            ];
            let mut child = child(fill_a_share);
            child.envs(variables).stdin(Stdio::piped()).stdout(mine.try_clone().unwrap()).spawn().unwrap()
        })
        .collect();
    drop(mine);
    // All stores are open before the first one fills.
    let mut children = children;
    let mut watch = std::io::BufReader::new(alive);
    let mut opened = 0;
    while opened < processes {
        let mut line = Vec::new();
        assert!(std::io::BufRead::read_until(&mut watch, b'\n', &mut line).unwrap() > 0, "a child ended");
        opened += u64::from(line.ends_with(b"opened\n"));
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go").unwrap();
    }
    // At every moment, the published segments are within the quota.
    let mut looks = 0;
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        if let Some(bytes) = linked(&world.cache()) {
            assert!(bytes <= quota, "{bytes} bytes published of {quota}");
            looks += 1;
        }
    }
    assert!(looks > 0);
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "run by tests of this file, in processes of its own"]
fn fill_a_share() {
    let world = World::at(Path::new(&told("STORE_BASE")));
    let told: Vec<u64> = told("STORE_SHARE").split(' ').map(|word| word.parse().unwrap()).collect();
    let [rank, processes, quota, overlap] = told[..] else { panic!("{told:?}") };
    let store = world.open(quota);
    println!("opened");
    std::io::read_to_string(std::io::stdin()).unwrap();
    let share = |sample: u64| sample % processes == rank || sample % 100 < overlap;
    let order = shuffled(world.index.len(), &mut random(rank));
    world.store_all(&store, order.into_iter().filter(|&sample| share(sample)));
    world.check(&store, "own share");
}

/// The number of copies of each sample on the drive.
fn copies(world: &World) -> HashMap<u64, u64> {
    let mut copies = HashMap::new();
    for path in world.segments() {
        let bytes = std::fs::read(&path).unwrap();
        let (table, trailer) = bytes[..bytes.len()].split_at(bytes.len() - 64);
        let count = u32::from_le_bytes(trailer[12..16].try_into().unwrap()) as usize;
        for row in table[table.len() - 64 * count..].chunks(64) {
            *copies.entry(u64::from_le_bytes(row[..8].try_into().unwrap())).or_default() += 1;
        }
    }
    copies
}

#[test]
fn two_and_four_processes_fill_together() {
    for processes in [2, 4] {
        let world = World::new(processes, 600, 9000);
        fill_by(&world, processes, 64 << 20, 0);
        let store = world.open(64 << 20);
        assert_eq!(world.check(&store, "filled together"), 600);
        assert!(copies(&world).values().all(|&copies| copies == 1), "each has its own share");
    }
}

#[test]
fn four_processes_fill_the_quota_to_its_end() {
    let largest = 20_000;
    let world = World::new(44, 400, largest);
    let quota = world.total() / 4;
    fill_by(&world, 4, quota, 0);
    let store = world.open(quota);
    let held = world.check(&store, "a quarter");
    let payload: u64 = (0..400).filter_map(|s| store.locate(s)).map(|l| u64::from(l.extent.length)).sum();
    let used: u64 = linked(&world.cache()).unwrap();
    // A sample that finds no space, because other processes have reserved it at that moment, is not offered again. So
    // each process may leave space for one sample. Tables and the last page of each file take a few per cent, more with
    // many files than with few; the number of files varies.
    let said = format!("{held} samples of {payload} bytes in {used} of {quota}");
    assert!(used <= quota && used + 4 * largest >= quota && payload * 100 >= used * 92, "{said}");
}

#[test]
fn what_others_have_published_is_not_written_again() {
    let world = World::new(5, 400, 9000);
    // All four processes offer each fifth sample.
    fill_by(&world, 4, 64 << 20, 20);
    let twice: u64 = copies(&world).values().map(|copies| copies - 1).sum();
    // Only samples that are offered at the same moment are written twice, never all 80 by all processes.
    assert!(twice < 240, "{twice} copies too many");
    let store = world.open(64 << 20);
    assert_eq!(world.check(&store, "overlapping shares"), 400);
    assert_eq!(store.stats().held_samples, 400);
}

#[test]
fn a_quota_lowered_and_raised_between_runs() {
    let world = World::new(6, 300, 9000);
    let whole = 2 * world.total();
    let store = world.open(whole);
    world.offer_all(&store, 0..300);
    drop(store);
    let mut before = 300;
    for part in [2, 4, 16] {
        let quota = world.total() / part;
        let store = world.open(quota);
        let held = world.check(&store, "lowered");
        assert!(held < before && held > 0, "{held} of {before}");
        assert!(store.stats().used_bytes <= quota && linked(&world.cache()).unwrap() <= quota);
        assert!(store.stats().evicted_segments > 0);
        before = held;
    }
    // The newest segments remain.
    let store = world.open(world.total() / 16);
    assert!(store.locate(299).is_some() && store.locate(0).is_none());
    drop(store);
    let store = world.open(whole);
    assert_eq!(world.check(&store, "raised"), before);
    world.store_all(&store, 0..300);
    assert_eq!(world.check(&store, "filled again"), 300);
}

#[test]
fn the_quota_is_lowered_below_what_another_process_uses() {
    let world = World::new(7, 300, 9000);
    let quota = world.total() / 3;
    let rich = world.open(2 * world.total());
    world.store_all(&rich, 0..300);
    let poor = world.open(quota);
    assert!(poor.stats().used_bytes <= quota && poor.stats().held_samples > 0);
    // The other process continues to read the files that it has open, and then notices the evictions.
    rich.refresh();
    assert_eq!(world.check(&rich, "evicted beneath it"), poor.stats().held_samples);
    assert_eq!(rich.stats().vanished_segments, poor.stats().evicted_segments);
}

/// Opens a store of another dataset in the same directory.
fn beside(world: &World, other: &World, quota: u64) -> Arc<Store> {
    other.open_with(&StoreOptions { directory: world.cache(), ..other.options(quota) })
}

#[test]
fn datasets_in_use_stay_and_others_make_room() {
    let mut worlds = [8, 9, 10].map(|seed| World::new(seed, 100, 9000));
    worlds.sort_by_key(|world| Reverse(world.total()));
    let [one, two, three] = worlds;
    let quota = one.total() + one.total() / 2;
    let first = one.open(quota);
    one.store_all(&first, 0..100);
    let held = one.check(&first, "alone");
    assert_eq!(held, 100);
    // The second store gets the remaining space, because the first one is in use.
    let second = beside(&one, &two, quota);
    two.store_all(&second, 0..100);
    let left = two.check(&second, "next to the first");
    assert!(left > 20 && left < 100, "{left}");
    assert!(second.stats().evicted_segments == 0 && second.stats().dropped_full > 0);
    first.refresh();
    assert_eq!(one.check(&first, "still in use"), 100);
    drop((first, second));
    // Now neither is in use. The third store needs more than is free, and takes space from the dataset that was unused
    // for the longest time.
    let third = beside(&one, &three, quota);
    three.store_all(&third, 0..100);
    assert_eq!(three.check(&third, "the third"), 100);
    assert!(third.stats().evicted_segments > 0);
    let quota_kept = segments(&one.cache()).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    assert!(quota_kept <= quota);
    let second = beside(&one, &two, quota);
    assert_eq!(two.check(&second, "used later than the first"), left);
    let first = one.open(quota);
    assert!(one.check(&first, "used longest ago") < 100);
}

#[test]
fn a_dataset_that_was_changed_meets_no_old_bytes() {
    let world = World::new(11, 60, 9000);
    let store = world.open(64 << 20);
    world.offer_all(&store, 0..60);
    drop(store);
    // Names and sizes are the same, but the bytes differ and the time is later.
    let shard = world.base.join("data/all.tar");
    let mut bytes = std::fs::read(&shard).unwrap();
    let extent = world.index.extent(7);
    bytes[extent.offset as usize] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    std::fs::remove_dir_all(world.base.join("index")).unwrap();
    let changed = World::at(&world.base);
    assert_eq!(changed.index.fingerprint(), world.index.fingerprint());
    let store = changed.open(64 << 20);
    assert_eq!(changed.check(&store, "changed"), 0);
    changed.store_all(&store, 0..60);
    assert_eq!(changed.check(&store, "filled again"), 60);
    let location = store.locate(7).unwrap();
    assert_ne!(location.crc, Some(checksum(world.bytes(7))));
}
