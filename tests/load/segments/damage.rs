//! Damage at any place gives an error or a warning, and damaged bytes are never returned as a sample or a snapshot.

use super::world::{files, id, open, random, record, small};
use crate::common::random_bytes;
use foreload::Notices;
use foreload::testing::stream::segments::SegmentStore;
use std::collections::{HashMap, HashSet};
use std::fs;

const SAMPLES: u64 = 60;

#[test]
fn damaged_files_never_give_wrong_bytes() {
    let seed = 3;
    println!("seed {seed}");
    let mut random = random(seed);
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path(), 16 << 20);
    let mut store = open(&options);
    for number in 0..SAMPLES {
        store.append(&record(number)).unwrap();
    }
    store.publish().unwrap();
    let snapshot = random_bytes(&mut random, 20_000);
    store.write_snapshot(5, &snapshot).unwrap();
    drop(store);
    let whole = files(directory.path());
    let numbers: HashMap<u64, u64> = (0..SAMPLES).map(|number| (id(number), number)).collect();
    let paths: Vec<_> = whole.keys().filter(|path| !path.ends_with("lock")).collect();
    let (mut removed, mut refused, mut right, mut snapshots) = (0, 0, 0, 0);
    for round in 0..400 {
        let what = format!("seed {seed}, round {round}");
        for (path, bytes) in &whole {
            fs::write(path, bytes).unwrap();
        }
        // One file has some bytes changed, is truncated, or is extended. In every other round, the store has it open
        // already.
        let path = paths[random.below(paths.len() as u64) as usize];
        let mut bytes = whole[path].clone();
        let near_the_end = |random: &mut foreload::testing::rng::RandomStream| {
            let from = if random.below(2) == 0 { bytes.len() - bytes.len().min(700) } else { 0 };
            from + random.below((bytes.len() - from) as u64) as usize
        };
        let at = near_the_end(&mut random);
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.extend([0; 40]),
            _ => bytes[at..].iter_mut().take(1 + at % 3).for_each(|byte| *byte ^= 1 << (at % 8)),
        }
        let notices = Notices::default();
        let before = (round % 2 == 0).then(|| SegmentStore::open(&options, &notices).unwrap());
        fs::write(path, &bytes).unwrap();
        let store = before.unwrap_or_else(|| SegmentStore::open(&options, &notices).unwrap());
        let mut seen = 0;
        for stored in store.places() {
            seen += 1;
            match store.read(&stored.place) {
                Ok(bytes) => {
                    right += 1;
                    assert!(bytes == record(numbers[&stored.id]).bytes(), "{what}: wrong bytes");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains(path.to_str().unwrap()), "{what}: {error}");
                }
            }
        }
        let told = notices.take();
        assert_eq!(seen < SAMPLES, !told.is_empty(), "{what}: {told:?}");
        removed += told.len();
        match store.read_snapshot(5) {
            Ok(bytes) => assert!(bytes == snapshot, "{what}: wrong snapshot"),
            Err(error) => {
                snapshots += 1;
                assert!(error.to_string().contains("00000005.snap"), "{what}: {error}");
            }
        }
    }
    println!(
        "{removed} segments removed, {refused} samples refused, {right} right, {snapshots} snapshots refused"
    );
    assert!(removed > 20 && refused > 20 && right > 1000 && snapshots > 20);
}

#[test]
fn a_damaged_sample_is_left_out_when_its_segment_is_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let options = small(directory.path(), 16 << 20);
    let notices = Notices::default();
    let mut store = SegmentStore::open(&options, &notices).unwrap();
    let places: Vec<_> = (0..5).map(|number| store.append(&record(number)).unwrap()).collect();
    store.publish().unwrap();
    let path = directory.path().join("00000001.seg");
    let mut bytes = fs::read(&path).unwrap();
    bytes[places[2].offset as usize + 30] ^= 4;
    fs::write(&path, bytes).unwrap();
    let mut moved = Vec::new();
    assert_eq!(store.withdraw(&HashSet::from([id(0)]), &mut moved).unwrap(), 1);
    let of = |number| moved.iter().find(|moved| moved.id == id(number)).unwrap();
    assert_eq!((of(2).from, of(2).to), (places[2], None));
    for number in [1, 3, 4] {
        assert!(store.read(&of(number).to.unwrap()).unwrap() == record(number).bytes());
    }
    let told = notices.take();
    assert!(told.len() == 1 && told[0].contains("00000001.seg"), "{told:?}");
}
