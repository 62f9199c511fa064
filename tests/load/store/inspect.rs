//! A cache directory is inspected and emptied while stores use it.

use super::world::{PLENTY, World, leftovers, random, shuffled, small};
use foreload::testing::tier::store::inspect::{clear, contents};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

fn filled(seed: u64) -> World {
    let world = World::new(seed, 200, 9000);
    let store = world.open(PLENTY);
    world.store_all(&store, shuffled(200, &mut random(seed)));
    world
}

#[test]
fn a_cache_shows_what_it_keeps_of_which_dataset() {
    let world = filled(1);
    let [one] = &contents(&world.cache()).unwrap().datasets[..] else { panic!("one dataset") };
    assert_eq!((one.samples, one.segments, one.in_use), (200, world.segments().len() as u64, false));
    let sizes: u64 = world.segments().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(one.bytes, sizes);
    assert_eq!(one.fingerprint, Some(world.index.fingerprint().to_string()));
    assert_eq!(one.roots, [world.base.join("data").canonicalize().unwrap().to_str().unwrap()]);
    assert!(one.last_used.is_some());
    let store = world.open(PLENTY);
    fs::write(world.cache().join("thesis.tex"), "").unwrap();
    let held = contents(&world.cache()).unwrap();
    assert!(held.datasets[0].in_use && held.usable);
    assert_eq!((held.others, held.bytes, held.filling_bytes), (vec!["thesis.tex".to_owned()], sizes, 0));
    drop(store);
    assert!(!contents(&world.cache()).unwrap().datasets[0].in_use);
}

#[test]
fn emptied_beside_a_store_that_uses_it() {
    let world = filled(2);
    let store = world.open(PLENTY);
    assert_eq!(world.check(&store, "before"), 200);
    let held = contents(&world.cache()).unwrap();
    let cleared = clear(&world.cache(), None).unwrap();
    assert_eq!((cleared.bytes, cleared.segments), (held.bytes, held.datasets[0].segments));
    assert!(cleared.datasets[0].in_use && !cleared.renewed);
    assert!(world.segments().is_empty());
    // The store notices the removal like any eviction, and stores samples that it is offered again.
    store.refresh();
    assert_eq!(world.check(&store, "emptied"), 0);
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "filled again"), 200);
    assert_eq!((store.last_error(), store.stats().damaged_segments), (None, 0));
    drop(store);
    assert_eq!(world.check(&world.open(PLENTY), "by the next run"), 200);
}

#[test]
fn unused_data_is_removed_without_a_trace() {
    let world = filled(3);
    let place = world.segments()[0].parent().unwrap().to_path_buf();
    fs::write(place.join("notes.txt"), "mine").unwrap();
    clear(&world.cache(), None).unwrap();
    assert_eq!(leftovers(&world.cache()), [place.join("notes.txt")], "what is not the cache's stays");
    fs::remove_file(place.join("notes.txt")).unwrap();
    clear(&world.cache(), None).unwrap();
    assert!(!place.exists());
    assert!(contents(&world.cache()).unwrap().datasets.is_empty());
    assert_eq!(world.check(&world.open(PLENTY), "made again"), 0);
}

#[test]
fn one_dataset_of_several() {
    let (one, other) = (filled(4), World::new(5, 100, 3000));
    let store = other.open_with(&small(one.cache(), PLENTY));
    other.store_all(&store, 0..100);
    drop(store);
    assert_eq!(contents(&one.cache()).unwrap().datasets.len(), 2);
    let refused = |which: &str| clear(&one.cache(), Some(which)).unwrap_err().to_string();
    assert!(refused("nothing").contains("characters of its fingerprint"));
    assert!(refused("").contains("give the path"));
    assert_eq!(contents(&one.cache()).unwrap().datasets.len(), 2, "nothing was removed");
    let fingerprint = other.index.fingerprint().to_string();
    let cleared = clear(&one.cache(), Some(&fingerprint[..12])).unwrap();
    assert_eq!(cleared.datasets[0].samples, 100);
    let [left] = &contents(&one.cache()).unwrap().datasets[..] else { panic!("one is left") };
    assert_eq!(left.samples, 200);
    let path = one.base.join("index/../data");
    assert_eq!(clear(&one.cache(), path.to_str()).unwrap().datasets[0].samples, 200);
    assert_eq!(refused("data"), "config: dataset: is \"data\", but the cache is empty");
}

#[test]
fn the_beginning_of_two_fingerprints_is_neither() {
    let world = filled(6);
    let [one] = &contents(&world.cache()).unwrap().datasets[..] else { panic!("one dataset") };
    let twin = world.cache().join(format!("{}{}", &one.key[..8], "0".repeat(24)));
    fs::create_dir(&twin).unwrap();
    let error = clear(&world.cache(), Some(&one.key[..8])).unwrap_err().to_string();
    assert!(error.contains("matches several datasets") && error.contains("give more"), "{error}");
    assert!(twin.exists() && world.segments().len() > 1);
}

#[test]
fn an_older_format_is_shown_and_emptied_and_a_newer_one_left() {
    let world = filled(7);
    let lock = File::options().read(true).write(true).open(world.cache().join("lock")).unwrap();
    let format = contents(&world.cache()).unwrap().format;
    let set = |format: u32| lock.write_all_at(&format.to_le_bytes(), 8).unwrap();
    set(format + 1);
    assert!(clear(&world.cache(), None).unwrap_err().to_string().contains("newer than this program's"));
    set(format - 1);
    let held = contents(&world.cache()).unwrap();
    assert!(!held.usable && held.datasets[0].samples == 200);
    let cleared = clear(&world.cache(), None).unwrap();
    assert!(cleared.renewed && cleared.bytes == held.bytes);
    let store = world.open(PLENTY);
    world.store_all(&store, 0..200);
    assert_eq!(world.check(&store, "used again"), 200);
}

#[test]
fn an_older_format_in_use_stays_one() {
    let world = filled(8);
    let store = world.open(PLENTY);
    let lock = File::options().read(true).write(true).open(world.cache().join("lock")).unwrap();
    let format = contents(&world.cache()).unwrap().format;
    lock.write_all_at(&(format - 1).to_le_bytes(), 8).unwrap();
    let cleared = clear(&world.cache(), None).unwrap();
    assert!(!cleared.renewed && cleared.bytes > 0);
    assert_eq!(contents(&world.cache()).unwrap().format, format - 1);
    drop(store);
    assert!(clear(&world.cache(), None).unwrap().renewed);
}

#[test]
fn what_is_no_cache_is_left_alone() {
    let world = World::new(9, 2, 100);
    for path in [world.base.join("data"), world.base.join("nowhere")] {
        let refused = [contents(&path).map(drop), clear(&path, None).map(drop)];
        for error in refused {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("is not a cache of Foreload"), "{error}");
        }
    }
    fs::write(world.base.join("data/lock"), "somebody else's, and long enough to be a header").unwrap();
    assert!(
        clear(&world.base.join("data"), None).unwrap_err().to_string().contains("is not a cache of Foreload")
    );
    assert!(world.base.join("data/all.tar").exists());
}
