//! Drives that fail or are fuller than the quota allows: the store reports an error, and keeps everything that was
//! appended.

use super::world::{assert_is, bytes_in_pages, id, leftovers, open, random, record, small};
use crate::store::world::on_tmpfs;
use foreload::testing::stream::segments::{AppendError, RecordPlace, SegmentOptions};
use foreload::testing::tier::store::WriteFaults;
use std::collections::{BTreeMap, HashSet};
use std::fs;

#[test]
fn what_fails_may_be_tried_again_and_nothing_is_lost() {
    for seed in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let faults = Some(WriteFaults { seed, errors: 20, full: 15, short: 25 });
        let options = SegmentOptions { faults, nameless: seed % 3 > 0, ..small(directory.path(), 8 << 20) };
        let mut store = open(&options);
        let (mut random, mut failed) = (random(seed), 0);
        let mut held = BTreeMap::<u64, RecordPlace>::new();
        let what = format!("seed {seed}");
        for number in 0..400 {
            match store.append(&record(number)) {
                Ok(place) => drop(held.insert(number, place)),
                Err(AppendError::Failed(error)) => {
                    failed += 1;
                    let text = error.to_string();
                    assert!(text.contains(directory.path().to_str().unwrap()), "{what}: {text}");
                }
                Err(AppendError::Full(full)) => panic!("{what}: {full:?}"),
            }
            if random.below(30) == 0 {
                let chosen: Vec<u64> = held.keys().copied().filter(|_| random.below(10) == 0).collect();
                let ids: HashSet<u64> = chosen.iter().map(|&number| id(number)).collect();
                let mut moved = Vec::new();
                while store.withdraw(&ids, &mut moved).is_err() {
                    failed += 1;
                }
                held.retain(|number, _| !chosen.contains(number));
                for moved in moved.iter().filter(|moved| !ids.contains(&moved.id)) {
                    let place =
                        held.values_mut().find(|place| **place == moved.from).expect("a place that is held");
                    *place = moved.to.expect("nothing is damaged");
                }
            }
            if random.below(40) == 0 {
                failed += u64::from(store.write_snapshot(number, &[7; 5000]).is_err());
            }
        }
        for (&number, place) in &held {
            assert_is(&store, place, number, &what);
        }
        while store.publish().is_err() {
            failed += 1;
        }
        assert!(failed > 10 && held.len() > 100, "{what}: {failed} failures, {} held", held.len());
        assert_eq!(store.used(), bytes_in_pages(directory.path()), "{what}: what failed is given back");
        assert!(leftovers(directory.path()).is_empty(), "{what}: {:?}", leftovers(directory.path()));
        drop(store);
        let store = open(&SegmentOptions { faults: None, ..options });
        let found: BTreeMap<u64, RecordPlace> =
            store.places().map(|stored| (stored.id, stored.place)).collect();
        assert_eq!(found.len(), held.len(), "{what}");
        for (&number, place) in &held {
            assert_eq!(found[&id(number)], *place, "{what}");
            assert_is(&store, place, number, &what);
        }
    }
}

#[test]
fn a_disk_that_is_fuller_than_the_quota_knows() {
    on_tmpfs(2 << 20, |path| {
        let ballast = path.join("ballast");
        fs::write(&ballast, vec![1; 1 << 20]).unwrap();
        let mut store = open(&small(path.join("own"), 64 << 20));
        let mut places = Vec::new();
        let mut fill = |store: &mut foreload::testing::stream::segments::SegmentStore| loop {
            match store.append(&record(places.len() as u64)) {
                Ok(place) => places.push(place),
                Err(AppendError::Failed(error)) => {
                    assert!(error.to_string().contains("No space left on device"), "{error}");
                    return places.clone();
                }
                Err(AppendError::Full(full)) => panic!("{full:?}"),
            }
        };
        let first = fill(&mut store);
        fs::remove_file(&ballast).unwrap();
        let then = fill(&mut store);
        assert!(first.len() > 50 && then.len() > first.len() + 50, "{}, then {}", first.len(), then.len());
        for (place, number) in then.iter().zip(0..) {
            assert_is(&store, place, number, "a full disk");
        }
    });
}
