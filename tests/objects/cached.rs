//! With a cache that holds everything, later epochs and runs request no bytes from the store; changes are noticed.

use crate::common::{Dataset, jpeg};
use crate::store::{Store, refused};
use std::fs;

const SAMPLES: usize = 80;

#[test]
fn later_epochs_and_runs_ask_for_nothing() {
    for dataset in [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25)] {
        let Some(store) = Store::new(dataset) else { return };
        let expected = store.expected();
        let cache = store.dataset.beside("cache");
        let cached = ["--cache", cache.to_str().unwrap(), "--cache-size", "100MB"];
        assert_eq!(store.epochs("s3://box/sets/data", &cached), expected);
        assert!(store.proxy.take().len() >= SAMPLES);
        assert_eq!(store.epochs("s3://box/sets/data", &cached), expected);
        let asked = store.proxy.take();
        let gets =
            asked.iter().filter(|asked| asked.method == "GET" && asked.head.contains("range:")).count();
        assert!(gets <= 2 * SAMPLES, "{gets}");
        assert_eq!(store.epochs("s3://box/sets/data", &cached), expected);
        let asked = store.proxy.take();
        let bytes = asked.iter().filter(|asked| asked.method == "GET" && !asked.is_listing());
        assert_eq!(bytes.count(), 0, "{asked:?}");
    }
}

#[test]
fn a_changed_object_is_noticed() {
    let Some(store) = Store::new(Dataset::shards(SAMPLES, 25)) else { return };
    let url = "s3://box/sets/data";
    store.epochs(url, &[]);
    // An object that is written again with the same bytes counts as unchanged.
    let shard = store.file("data/shard-001.tar");
    let bytes = fs::read(&shard).unwrap();
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, &bytes).unwrap();
    store.epochs(url, &["--changed", "refuse"]);
    fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let error = refused(&mut store.bench(url, &["--changed", "refuse"]));
    assert!(error.contains("shard-001.tar"), "{error}");
    fs::remove_file(&shard).unwrap();
    let error = refused(&mut store.bench(url, &["--changed", "refuse"]));
    assert!(error.contains("shard-001.tar"), "{error}");
}

#[test]
fn a_file_of_other_bytes_is_read_again() {
    let Some(store) = Store::new(Dataset::folder(SAMPLES)) else { return };
    let cache = store.dataset.beside("cache");
    let cached = ["--cache", cache.to_str().unwrap(), "--cache-size", "100MB"];
    let before = store.epochs("s3://box/sets/data", &cached);
    let path = store.dataset.path(7);
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut other = (7_000..).map(jpeg).find(|other| other.len() <= length).expect("there are smaller ones");
    other.resize(length, 0);
    let name = path.strip_prefix(store.dataset.beside("data")).unwrap().to_owned();
    for path in [path, store.file("data").join(name)] {
        let _ = fs::remove_file(&path);
        fs::write(&path, &other).unwrap();
    }
    let after = store.epochs("s3://box/sets/data", &cached);
    assert_eq!(after, store.expected());
    assert_ne!(after, before);
}
