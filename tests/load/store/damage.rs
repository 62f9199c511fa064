//! Segments that are damaged by hand never give a wrong byte, and files of others are not touched.

use super::world::{PLENTY, World, leftovers, random};
use crate::common::random_bytes;
use foreload::testing::rng::RandomStream;
use foreload::testing::tier::store::{CopyFault, checksum};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn filled(seed: u64) -> World {
    let world = World::new(seed, 120, 9000);
    let store = world.open(PLENTY);
    world.offer_all(&store, 0..120);
    drop(store);
    assert!(world.segments().len() > 4);
    world
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// The end of a segment: where its table begins, and how long it is.
fn table_at(path: &Path) -> (u64, u64) {
    let bytes = fs::read(path).unwrap();
    let trailer = &bytes[bytes.len() - 64..];
    let payload = u64::from_le_bytes(trailer[48..56].try_into().unwrap());
    (payload, bytes.len() as u64)
}

/// Damages one segment and opens the store again: the damage must be found at once, the segment removed, and all other
/// segments kept.
fn is_found_at_once(seed: u64, spoil: impl Fn(&Path, &mut RandomStream)) {
    let world = filled(seed);
    let victim = world.segments()[2].clone();
    spoil(&victim, &mut random(seed));
    let store = world.open(PLENTY);
    let stats = store.stats();
    assert_eq!(stats.damaged_segments, 1, "seed {seed}: {stats:?}");
    assert!(!victim.exists(), "seed {seed}: removed");
    assert!(store.last_error().unwrap().contains(victim.to_str().unwrap()), "{:?}", store.last_error());
    let there = world.check(&store, "spoilt");
    assert!((60..120).contains(&there), "seed {seed}: {there} of the others are there");
    world.store_all(&store, 0..120);
    assert_eq!(world.check(&store, "filled again"), 120);
}

#[test]
fn cut_short_anywhere() {
    for seed in 0..6 {
        is_found_at_once(seed, |path, random| {
            let file = File::options().write(true).open(path).unwrap();
            let size = file.metadata().unwrap().len();
            file.set_len(if random.below(4) == 0 { random.below(64) } else { random.below(size) }).unwrap();
        });
    }
}

#[test]
fn a_bit_of_its_end_flipped() {
    for seed in 0..10 {
        is_found_at_once(seed, |path, random| {
            let (payload, size) = table_at(path);
            flip(path, payload + random.below(size - payload));
        });
    }
}

#[test]
fn garbage_in_its_place() {
    is_found_at_once(21, |path, random| {
        fs::write(path, random_bytes(random, 50_000)).unwrap();
    });
    is_found_at_once(22, |path, _| fs::write(path, b"").unwrap());
    // The file is extended.
    is_found_at_once(23, |path, _| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, [bytes, vec![0; 100]].concat()).unwrap();
    });
}

#[test]
fn a_segment_of_another_number_or_dataset() {
    is_found_at_once(31, |path, _| {
        let other = path.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut others: Vec<PathBuf> = other.filter(|other| other.extension().is_some()).collect();
        others.sort();
        fs::copy(&others[0], path).unwrap();
    });
    is_found_at_once(32, |path, _| {
        let other = filled(33);
        let named_alike = other.segments().into_iter().find(|found| found.file_name() == path.file_name());
        fs::copy(named_alike.unwrap(), path).unwrap();
    });
}

#[test]
fn a_flipped_byte_of_a_sample_is_found_when_it_is_read() {
    let world = filled(41);
    let victim = world.segments()[1].clone();
    let (payload, _) = table_at(&victim);
    flip(&victim, random(41).below(payload));
    let store = world.open(PLENTY);
    assert_eq!((store.stats().held_samples, store.stats().damaged_segments), (120, 0));
    let wrong: Vec<u64> = (0..120)
        .filter(|&sample| {
            let location = store.locate(sample).unwrap();
            let mut bytes = vec![0; location.extent.length as usize];
            let file = File::open(store.files().path(location.extent.file)).unwrap();
            file.read_exact_at(&mut bytes, location.extent.offset).unwrap();
            let is_wrong = bytes != world.bytes(sample);
            assert_eq!(is_wrong, Some(checksum(&bytes)) != location.crc, "the checksum tells");
            is_wrong
        })
        .collect();
    assert_eq!(wrong.len(), 1);
    store.damaged(wrong[0], store.locate(wrong[0]).unwrap(), CopyFault::Checksum);
    store.flush();
    assert!(!victim.exists() && store.stats().damaged_segments == 1);
    world.check(&store, "without the damaged one");
}

#[test]
fn files_of_others_are_left_alone() {
    let world = filled(51);
    let dataset = world.segments()[0].parent().unwrap().to_owned();
    let foreign = [
        world.cache().join("notes.txt"),
        world.cache().join("thesis.seg"),
        dataset.join("photo.jpg"),
        dataset.join("7.seg"),
        dataset.join("00000001.seg.bak"),
        world.cache().join("0123456789abcdef/00000001.seg"),
    ];
    for path in &foreign {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "not a segment").unwrap();
    }
    fs::create_dir(dataset.join("99999999.seg")).unwrap();
    // All segments are evicted, because the quota is smaller than the stored bytes.
    let store = world.open(20_000);
    assert!(store.stats().evicted_segments > 3, "{:?}", store.stats());
    drop(store);
    let other = World::new(52, 50, 9000);
    let options =
        foreload::testing::tier::store::StoreOptions { directory: world.cache(), ..other.options(20_000) };
    let store = other.open_with(&options);
    other.store_all(&store, 0..50);
    other.check(&store, "in the same directory");
    for path in &foreign {
        assert_eq!(fs::read(path).unwrap(), b"not a segment", "{}", path.display());
    }
    assert!(dataset.join("99999999.seg").is_dir());
    assert_eq!(leftovers(&world.cache()).len(), 3, "those without the ending are seen");
}
