//! A store is compared with a simple list of its expected contents, over random steps.

use super::world::{assert_is, id, numbers_in, open, random, record, small};
use foreload::testing::rng::RandomStream;
use foreload::testing::stream::segments::{
    AppendError, MovedRecord, RecordPlace, SegmentOptions, SegmentStore,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// A store and its expected contents.
pub struct Model {
    options: SegmentOptions,
    store: Option<SegmentStore>,
    random: RandomStream,
    /// The samples that are held, by their numbers.
    held: BTreeMap<u64, RecordPlace>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    next: u64,
    what: String,
    counts: BTreeMap<&'static str, u64>,
}

impl Model {
    pub fn new(seed: u64, directory: &Path, quota: u64, nameless: bool) -> Self {
        let options = SegmentOptions { nameless, snapshot_bytes: 100_000, ..small(directory, quota) };
        Self {
            store: Some(open(&options)),
            options,
            random: random(seed),
            held: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            next: 0,
            what: format!("seed {seed}, nameless {nameless}"),
            counts: BTreeMap::new(),
        }
    }

    fn store(&mut self) -> &mut SegmentStore {
        self.store.as_mut().expect("it is open between steps")
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any(&mut self) -> Option<u64> {
        let place = self.random.below(self.held.len().max(1) as u64) as usize;
        self.held.keys().nth(place).copied()
    }

    fn follow(&mut self, moved: &[MovedRecord]) {
        for moved in moved {
            let held = self.held.values_mut().find(|place| **place == moved.from);
            *held.expect("only what is held is moved") = moved.to.expect("nothing is damaged");
        }
    }

    /// Does one random step, and checks the visible result.
    pub fn step(&mut self) {
        let what = self.what.clone();
        match self.random.below(100) {
            0..60 => {
                let number = self.next;
                self.next += 1;
                match self.store().append(&record(number)) {
                    Ok(place) => {
                        assert_is(self.store(), &place, number, &what);
                        self.held.insert(number, place);
                        self.count("appended");
                    }
                    Err(AppendError::Full(_)) => {
                        self.count("full");
                        if self.random.below(2) == 0 {
                            self.withdraw();
                        }
                        self.make_room();
                    }
                    Err(AppendError::Failed(error)) => panic!("{what}: {error}"),
                }
            }
            60..75 => {
                if let Some(number) = self.any() {
                    let place = self.held.remove(&number).expect("held");
                    self.store().free(&place).unwrap();
                }
            }
            75..92 => {
                if let Some(number) = self.any() {
                    let place = self.held[&number];
                    assert_is(self.store(), &place, number, &what);
                }
            }
            92 | 93 => self.store().publish().unwrap(),
            94 => self.withdraw(),
            95 => self.compact(0.7),
            96 | 97 => {
                let (number, length) = (self.random.below(3), self.random.below(40_000));
                let bytes = vec![self.random.next_u32() as u8; length as usize];
                if self.store().write_snapshot(number, &bytes).is_ok() {
                    self.snapshots.insert(number, bytes);
                    self.count("snapshot");
                }
            }
            98 => {
                let number = self.random.below(3);
                self.store().remove_snapshot(number).unwrap();
                self.snapshots.remove(&number);
            }
            _ => self.open_again(),
        }
        assert!(self.store().used() <= self.store().quota(), "{what}");
    }

    fn make_room(&mut self) {
        self.compact(0.9);
        for _ in 0..20 {
            if let Some(number) = self.any() {
                let place = self.held.remove(&number).expect("held");
                self.store().free(&place).unwrap();
            }
        }
    }

    fn withdraw(&mut self) {
        let numbers: BTreeSet<u64> = (0..3).filter_map(|_| self.any()).collect();
        let ids: HashSet<u64> = numbers.iter().map(|&number| id(number)).collect();
        let mut moved = Vec::new();
        let withdrawn = self.store().withdraw(&ids, &mut moved).unwrap();
        assert_eq!(withdrawn, numbers.len() as u64, "{}", self.what);
        self.held.retain(|number, _| !numbers.contains(number));
        self.follow(&moved);
        assert!(numbers_in(&self.options.directory).is_disjoint(&numbers), "{}: {numbers:?}", self.what);
        self.count("withdrawn");
    }

    fn compact(&mut self, fraction: f64) {
        let mut moved = Vec::new();
        let before = self.store().used();
        let freed = self.store().compact(fraction, &mut moved).unwrap();
        assert_eq!(freed, before.saturating_sub(self.store().used()), "{}", self.what);
        self.follow(&moved);
        if freed > 0 {
            self.count("compacted");
        }
    }

    /// Closes the store and opens it again: it has all published samples, and only samples that were appended.
    fn open_again(&mut self) {
        let store = self.store.take().expect("it is open");
        self.held.retain(|_, place| store.extent(place).is_some());
        drop(store);
        let mut store = open(&self.options);
        let wanted: HashSet<u64> = self.held.keys().map(|&number| id(number)).collect();
        store.retain(|id| wanted.contains(&id)).unwrap();
        let found: BTreeMap<u64, RecordPlace> =
            store.places().map(|stored| (stored.id, stored.place)).collect();
        assert_eq!(found.len(), self.held.len(), "{}", self.what);
        for (&number, place) in &self.held {
            assert_eq!(found[&id(number)], *place, "{}", self.what);
            assert_is(&store, place, number, &self.what);
        }
        assert!(store.snapshots().iter().eq(self.snapshots.keys()), "{}", self.what);
        for (&number, bytes) in &self.snapshots {
            assert!(store.read_snapshot(number).unwrap() == *bytes, "{}", self.what);
        }
        self.store = Some(store);
        self.count("opened again");
    }

    pub fn assert_many_things_happened(&self) {
        println!("{:?}", self.counts);
        for what in ["appended", "full", "withdrawn", "compacted", "snapshot", "opened again"] {
            assert!(self.counts.get(what).is_some_and(|&count| count > 10), "{what}: {:?}", self.counts);
        }
    }
}
