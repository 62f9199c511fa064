//! Samples whose bytes are in many places: over every reader, the pieces arrive in one slot, of one version.

use super::recorded::{Recorded, asked, expected, read_records, records};
use super::variants;
use super::world::{World, pool, random, stamp};
use crate::common::fault::{FaultOptions, FaultReader};
use foreload::Result;
use foreload::testing::dataset::arrays::{Piece, SampleRecord};
use foreload::testing::dataset::{Extent, FileId, Stamp};
use foreload::testing::io::pread::{PreadOptions, PreadReader};
use foreload::testing::io::uring::{UringOptions, UringReader};
use foreload::testing::io::{
    Completion, Files, Filled, GatherReader, ReadRequest, ReadStats, Reader, Waker, read_blocking,
    record_room,
};
use foreload::testing::slot::{PAGE, SlotPool};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

#[test]
fn pieces_arrive_in_one_slot() {
    let seed = 80;
    let mut random = random(seed);
    let world = Arc::new(World::new(seed));
    let slots = pool();
    let recorded = Recorded::new(world.clone(), records(&world, &mut random, 15));
    let asked = asked(&recorded, &mut random);
    let expected = |number: usize| expected(&world, &recorded.records[number]);
    for number in 0..recorded.records.len() {
        assert!(read_blocking(&*recorded, recorded.extent(number)).unwrap() == expected(number));
    }
    for (variant, gap) in variants().iter().zip([0, 16 << 10, 100_000].into_iter().cycle()) {
        let shown = format!("seed {seed}, gap {gap}, {}", variant.name);
        let inner = (variant.make)(&world, &slots, 6);
        let mut reader = GatherReader::new(recorded.clone(), inner, gap);
        let errors = read_records(&mut reader, &slots, &recorded, gap, &asked, &expected, &shown);
        assert!(errors.is_empty(), "{shown}: {errors:?}");
        assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "{shown}");
        assert!(reader.stats().skipped > 0 && !reader.describe().is_empty(), "{shown}");
    }
}

/// A reader that notes which extents it is asked for. It calls `arrived` when reads have completed.
struct Watched {
    inner: Box<dyn Reader>,
    asked: Arc<Mutex<Vec<Extent>>>,
    arrived: Box<dyn FnMut() + Send>,
}

impl Reader for Watched {
    fn room(&self) -> usize {
        self.inner.room()
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn submit(&mut self, request: ReadRequest) {
        self.asked.lock().unwrap().push(request.extent);
        self.inner.submit(request);
    }
    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        self.inner.wait(out)?;
        if out.len() > before {
            (self.arrived)();
        }
        Ok(())
    }
    fn waker(&self) -> Waker {
        self.inner.waker()
    }
    fn stats(&self) -> ReadStats {
        self.inner.stats()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

fn pread(files: Arc<dyn Files>, depth: usize) -> Box<dyn Reader> {
    Box::new(PreadReader::new(files, depth, PreadOptions::default()).unwrap())
}

/// Readers by threads, and by io_uring where the system permits it.
pub fn plain(files: &Arc<dyn Files>, slots: &SlotPool, depth: usize) -> Vec<Box<dyn Reader>> {
    let uring = UringReader::new(files.clone(), slots, depth, UringOptions::default());
    let uring = uring.ok().map(|reader| Box::new(reader) as Box<dyn Reader>);
    std::iter::once(pread(files.clone(), depth)).chain(uring).collect()
}

#[test]
fn only_wanted_pieces_and_short_gaps_are_read() {
    let seed = 81;
    let mut random = random(seed);
    let world = Arc::new(World::new(seed));
    let recorded = Recorded::new(world.clone(), records(&world, &mut random, 8));
    let gap = 4000;
    let slots = pool();
    let files: Arc<dyn Files> = world.clone();
    for inner in plain(&files, &slots, 4) {
        let noted = Arc::default();
        let watched = Watched { inner, asked: Arc::clone(&noted), arrived: Box::new(|| {}) };
        let mut reader = GatherReader::new(recorded.clone(), Box::new(watched), gap);
        let (mut wanted, mut between) = (0, 0);
        for asked in asked(&recorded, &mut random) {
            let shown = format!("seed {seed}: {asked:?}");
            noted.lock().unwrap().clear();
            let before = reader.stats();
            let expected = |number: usize| expected(&world, &recorded.records[number]);
            let one = [asked.clone()];
            let errors = read_records(&mut reader, &slots, &recorded, gap, &one, &expected, &shown);
            assert!(errors.is_empty(), "{shown}: {errors:?}");
            let mut read = noted.lock().unwrap().clone();
            let bytes: u64 = read.iter().map(|extent| u64::from(extent.length)).sum();
            let after = reader.stats();
            assert_eq!(after.bytes - before.bytes, bytes, "{shown}");
            assert_eq!(after.reads - before.reads, read.len() as u64, "{shown}");
            // The needed bytes, found byte by byte.
            let (number, ranges) = asked;
            let is_in =
                |at: u32| ranges.as_ref().is_none_or(|all| all.iter().any(|range| range.contains(&at)));
            let mut needed: Vec<(FileId, u64)> = Vec::new();
            for Piece { extent, at } in &recorded.records[number].pieces {
                let is_loose = world.stamp(extent.file).is_none();
                let any = is_loose && (0..extent.length).any(|n| is_in(at + n));
                let own = (0..extent.length).filter(|n| any || is_in(at + n));
                needed.extend(own.map(|n| (extent.file, extent.offset + u64::from(n))));
            }
            needed.sort_unstable();
            needed.dedup();
            wanted += needed.len() as u64;
            read.sort_by_key(|extent| (extent.file, extent.offset));
            let mut needed = needed.into_iter().peekable();
            for Extent { file, offset, length } in read {
                let mut unneeded = 0;
                for at in offset..offset + u64::from(length) {
                    unneeded = if needed.next_if_eq(&(file, at)).is_some() { 0 } else { unneeded + 1 };
                    assert!(unneeded <= gap && (unneeded == 0 || at > offset), "{shown}");
                    between += u64::from(unneeded > 0);
                }
                assert_eq!(unneeded, 0, "{shown}");
            }
            assert_eq!(needed.next(), None, "{shown}");
        }
        assert!(wanted > 100_000 && between > 1000, "{wanted} bytes, {between} between them");
    }
}

#[test]
fn a_record_with_a_failed_read_fails_alone_and_gives_its_whole_slot_back() {
    let world = Arc::new(World::new(82));
    let slots = pool();
    let files: Arc<dyn Files> = world.clone();
    let (mut failed, mut total) = (0, 0);
    for seed in 0..8 {
        let mut random = random(seed);
        let recorded = Recorded::new(world.clone(), records(&world, &mut random, 30));
        let asked = asked(&recorded, &mut random);
        let expected = |number: usize| expected(&world, &recorded.records[number]);
        for inner in plain(&files, &slots, 5) {
            let inner = FaultReader::new(inner, FaultOptions::everything(seed));
            let mut reader = GatherReader::new(recorded.clone(), Box::new(inner), 0);
            let shown = format!("seed {seed}");
            let errors = read_records(&mut reader, &slots, &recorded, 0, &asked, &expected, &shown);
            assert!(errors.iter().all(|error| error.to_string().contains("injected")), "{errors:?}");
            (failed, total) = (failed + errors.len(), total + asked.len());
            assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "{shown}");
        }
    }
    assert!(failed * 10 > total && failed * 3 < total * 2, "{failed} of {total}");
}

#[test]
fn dropped_in_the_middle_all_slots_return() {
    let (world, slots) = (Arc::new(World::new(83)), pool());
    let files: Arc<dyn Files> = world.clone();
    for seed in 0..30 {
        let mut random = random(seed);
        let recorded = Recorded::new(world.clone(), records(&world, &mut random, 10));
        for inner in plain(&files, &slots, 4) {
            let inner = FaultReader::new(inner, FaultOptions::everything(seed));
            let mut reader = GatherReader::new(recorded.clone(), Box::new(inner), 1000);
            let mut out = Vec::new();
            for step in 0..random.below(40) {
                // Requests beyond the room wait.
                if reader.in_flight() < 8 {
                    let number = random.below(10) as usize;
                    let room = record_room(&*recorded, &recorded.records[number], None, 1000);
                    let slot = slots.try_take(room).expect("room for eight records");
                    reader.submit(ReadRequest::new(step, recorded.extent(number), slot));
                } else {
                    reader.wait(&mut out).unwrap();
                    out.truncate(3);
                }
            }
            drop(reader);
            drop(out);
            assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "seed {seed}");
        }
    }
}

#[test]
fn a_slot_that_is_too_small_for_a_record_is_refused() {
    let world = Arc::new(World::new(84));
    let shard = FileId(world.shards()[0]);
    let at = |offset| Extent { file: shard, offset, length: PAGE as u32 };
    let recorded = Recorded::new(world.clone(), vec![SampleRecord::of([at(0), at(1 << 20)]).unwrap()]);
    let slots = pool();
    let mut reader = GatherReader::new(recorded.clone(), pread(world, 2), 0);
    let slot = slots.try_take(2 * PAGE).unwrap();
    reader.submit(ReadRequest::new(7, recorded.extent(0), slot));
    let mut out = Vec::new();
    reader.wait(&mut out).unwrap();
    let Completion { token, result, slot, .. } = out.remove(0);
    let error = result.err().expect("refused").to_string();
    assert!(error.contains("a slot of 12288 bytes for a record that needs 16384"), "{error}");
    assert_eq!((token, slot.map(|slot| slot.capacity()), reader.in_flight()), (7, Some(3 * PAGE), 0));
}

/// A shard whose bytes are all the number of its version.
struct Rewritten {
    directory: tempfile::TempDir,
    version: AtomicU8,
    stamp: Mutex<Stamp>,
    /// The number of calls of [`Files::path`] that still write a new version.
    writes: AtomicU8,
}

const SHARD: usize = 300_000;

impl Rewritten {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(directory.path().join("shard"), vec![0; SHARD]).unwrap();
        let stamp = Mutex::new(stamp(&directory.path().join("shard")));
        Self { directory, version: AtomicU8::new(0), stamp, writes: AtomicU8::new(0) }
    }

    fn write(&self) {
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        let path = self.directory.path().join("shard");
        std::fs::write(&path, vec![version; SHARD]).unwrap();
        // No wait is needed for another stamp.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + u64::from(version));
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }

    /// A record of three pieces, which are apart from each other.
    fn record() -> SampleRecord {
        let piece = |offset| Extent { file: FileId(0), offset, length: 5000 };
        SampleRecord::of([200_000, 0, 100_000].map(piece)).unwrap()
    }
}

impl Files for Rewritten {
    fn path(&self, _: FileId) -> PathBuf {
        let left = self.writes.load(Ordering::SeqCst);
        if left > 0 {
            self.writes.store(left - 1, Ordering::SeqCst);
            self.write();
        }
        self.directory.path().join("shard")
    }
    fn stamp(&self, _: FileId) -> Option<Stamp> {
        Some(*self.stamp.lock().unwrap())
    }
    fn accept(&self, _: FileId, _: String) -> Result<()> {
        *self.stamp.lock().unwrap() = stamp(&self.directory.path().join("shard"));
        Ok(())
    }
}

#[test]
fn a_shard_that_is_rewritten_between_two_pieces_is_read_again() {
    // Each of the four attempts reads three pieces, and after each of them, the shard is written. After nine writes,
    // the last attempt is the first to notice the last one.
    for (writes, arrives) in [(0, true), (1, true), (2, true), (5, true), (8, true), (9, false), (20, false)]
    {
        let slots = pool();
        let files = Arc::new(Rewritten::new());
        let recorded = Recorded::new(files.clone(), vec![Rewritten::record()]);
        let inner_files: Arc<dyn Files> = files.clone();
        for inner in plain(&inner_files, &slots, 1) {
            let (files, mut left) = (files.clone(), writes);
            let arrived = Box::new(move || {
                if left > 0 {
                    left -= 1;
                    files.write();
                }
            });
            let shown = format!("{writes} writes, {}", inner.describe());
            let asked = Arc::default();
            let watched = Watched { inner, asked: Arc::clone(&asked), arrived };
            let mut reader = GatherReader::new(recorded.clone(), Box::new(watched), 0);
            let room = record_room(&*recorded, &recorded.records[0], None, 0);
            reader.submit(ReadRequest::new(1, recorded.extent(0), slots.try_take(room).unwrap()));
            let mut out = Vec::new();
            reader.wait(&mut out).unwrap();
            let Completion { result, slot, .. } = out.remove(0);
            match result {
                Ok(filled) => {
                    assert!(arrives, "{shown}");
                    let first = filled.piece(0..1).unwrap()[0];
                    for at in [0, 5000, 10_000] {
                        assert!(filled.piece(at..at + 5000).unwrap().iter().all(|&n| n == first), "{shown}");
                    }
                }
                Err(error) => {
                    assert!(!arrives, "{shown}: {error}");
                    let said = error.to_string();
                    assert!(said.contains("was written to during every attempt to read it"), "{said}");
                    assert_eq!(slot.map(|slot| slot.capacity()), Some(9 * PAGE), "{shown}");
                }
            }
            assert!(asked.lock().unwrap().len().is_multiple_of(3), "{shown}");
            drop(reader);
            assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "{shown}");
        }
    }
}

/// Each attempt writes the shard before each of its three pieces, and when it makes the error that says so.
#[test]
fn blocking_reads_of_a_record_have_one_version() {
    for (writes, arrives) in [(0, true), (1, true), (4, true), (11, true), (12, false)] {
        let files = Arc::new(Rewritten::new());
        let recorded = Recorded::new(files.clone(), vec![Rewritten::record()]);
        files.writes.store(writes, Ordering::SeqCst);
        match read_blocking(&*recorded, recorded.extent(0)) {
            Ok(bytes) => {
                assert!(arrives, "{writes} writes");
                assert!(bytes.len() == 15_000 && bytes.iter().all(|&n| n == bytes[0]), "{writes} writes");
            }
            Err(error) => {
                assert!(!arrives, "{writes} writes: {error}");
                assert!(error.to_string().contains("was written to during every attempt"), "{error}");
            }
        }
    }
}

/// A reader that completes one request in each wait.
#[derive(Default)]
struct OneByOne {
    requests: VecDeque<ReadRequest>,
}

impl Reader for OneByOne {
    fn room(&self) -> usize {
        8 - self.requests.len()
    }
    fn in_flight(&self) -> usize {
        self.requests.len()
    }
    fn submit(&mut self, request: ReadRequest) {
        self.requests.push_back(request);
    }
    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        out.extend(self.requests.pop_front().map(|ReadRequest { token, extent, slot, .. }| {
            Completion::arrived(token, Filled::new(slot, 0..extent.length as usize))
        }));
        Ok(())
    }
    fn waker(&self) -> Waker {
        Waker(Arc::new(|| {}))
    }
    fn stats(&self) -> ReadStats {
        ReadStats::default()
    }
    fn describe(&self) -> String {
        "one by one".into()
    }
}

#[test]
fn a_waker_is_not_lost_if_a_piece_arrives_at_the_same_time() {
    let world = Arc::new(World::new(85));
    let shard = FileId(world.shards()[0]);
    let at = |offset| Extent { file: shard, offset, length: 100 };
    let pieces = [at(0), at(1 << 20), at(2 << 20)];
    let recorded = Recorded::new(world.clone(), vec![SampleRecord::of(pieces).unwrap()]);
    let slots = pool();
    let mut reader = GatherReader::new(recorded.clone(), Box::<OneByOne>::default(), 0);
    let room = record_room(&*recorded, &recorded.records[0], None, 0);
    let waker = reader.waker();
    let mut out = Vec::new();
    for token in 0..2 {
        reader.submit(ReadRequest::new(token, recorded.extent(0), slots.try_take(room).unwrap()));
        (waker.0)();
        reader.wait(&mut out).unwrap();
        assert_eq!((out.len(), reader.in_flight()), (0, 1));
        reader.wait(&mut out).unwrap();
        assert_eq!((out.remove(0).token, reader.in_flight()), (token, 0));
    }
}
