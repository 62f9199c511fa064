//! Samples whose bytes follow from their numbers, and the files of a store's directory.

use crate::common::random_bytes;
use foreload::Notices;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::stream::segments::{RecordPlace, SegmentOptions, SegmentStore};
use foreload::testing::stream::{Record, sample_id};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the stream that all samples are of.
const STREAM: &str = "camera";

/// The random numbers of a test.
pub fn random(seed: u64) -> RandomStream {
    RandomKey::new(b"segment tests", seed, 0, Use::Order).stream(0)
}

/// The beginning of each sample's marker.
const MARKER: &[u8] = b"<the marker of sample ";

/// A byte string that only sample `number` contains.
fn marker(number: u64) -> Vec<u8> {
    [MARKER, format!("{number:016x}>").as_bytes()].concat()
}

/// Sample `number`, of up to some ten thousand bytes. Every third sample has a class.
pub fn record(number: u64) -> Record {
    let mut random = random(number ^ 1 << 60);
    let length = [100, 3000, 30_000][number as usize % 3];
    let length = random.below(length) as usize;
    let mut bytes = marker(number);
    bytes.extend(random_bytes(&mut random, length));
    let class = (number % 10).to_string();
    let members: [(&str, &[u8]); 2] = [("bin", &bytes), ("cls", class.as_bytes())];
    Record::new(STREAM, &number.to_string(), &members[..1 + usize::from(number.is_multiple_of(3))]).unwrap()
}

/// The id of sample `number`.
pub fn id(number: u64) -> u64 {
    sample_id(STREAM, &number.to_string())
}

/// Options for small segments, so that there are many.
pub fn small(directory: impl Into<PathBuf>, quota: u64) -> SegmentOptions {
    SegmentOptions { segment_bytes: Some(96 << 10), ..SegmentOptions::new(directory, quota, "capacity") }
}

pub fn open(options: &SegmentOptions) -> SegmentStore {
    SegmentStore::open(options, &Notices::default()).expect("a store")
}

/// Checks that the sample at a place has the bytes of sample `number`.
pub fn assert_is(store: &SegmentStore, place: &RecordPlace, number: u64, what: &str) {
    let bytes = store.read(place).unwrap_or_else(|error| panic!("{what}: sample {number}: {error}"));
    assert!(bytes == record(number).bytes(), "{what}: wrong bytes of sample {number}");
}

/// Every file in a directory, with its bytes.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .filter_map(|entry| {
            let path = entry.expect("an entry").path();
            // A file may have been deleted meanwhile.
            fs::read(&path).ok().map(|bytes| (path, bytes))
        })
        .collect()
}

/// The bytes of all files, in pages.
pub fn bytes_in_pages(directory: &Path) -> u64 {
    files(directory).values().map(|bytes| bytes.len().next_multiple_of(4096) as u64).sum()
}

/// The numbers of the samples whose bytes are in any file of a directory.
pub fn numbers_in(directory: &Path) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for bytes in files(directory).values() {
        let mut rest = bytes.as_slice();
        while let Some(at) = rest.iter().position(|&byte| byte == MARKER[0]) {
            rest = &rest[at..];
            if let Some(digits) = rest.strip_prefix(MARKER).and_then(|behind| behind.first_chunk::<16>()) {
                let digits = std::str::from_utf8(digits).ok();
                found.extend(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
            }
            rest = &rest[1..];
        }
    }
    found
}

/// The names of files that are neither whole segments, nor snapshots, nor the lock.
pub fn leftovers(directory: &Path) -> Vec<PathBuf> {
    let known = |path: &PathBuf| {
        path.ends_with("lock") || path.extension().is_some_and(|found| found == "seg" || found == "snap")
    };
    files(directory).into_keys().filter(|path| !known(path)).collect()
}
