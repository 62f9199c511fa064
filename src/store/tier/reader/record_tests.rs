//! Tests that records of arrays are read by every interface and through the tiers: always whole, of one version, and of
//! the chosen arrays.

use super::super::cache::{CacheOptions, TierOptions};
use super::super::convert::FormChoice;
use super::super::fill::FillChoice;
use super::super::peers::{RankPlace, SharedJob};
use super::super::store::Verify;
use super::*;
use crate::io::{Direct, IoChoice, open, read_blocking, read_room, record_gap};
use base::tier_name::TierName;
use base::trace::Trace;
use data::dataset::{DatasetIndex, IndexOptions};
use data::schedule::{LastBatch, Order, Schedule, Selection};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const ROWS: usize = 9;
/// The files, and the number of bytes of a row of each.
const FILES: [(&str, usize); 2] = [("x.npy", 20_000), ("y.npy", 700)];
const BOTH: &[&str] = &["y.npy", "x.npy"];

/// Two arrays of bytes with a row for each sample.
struct Arrays {
    directory: TempDir,
    /// The versions of the files.
    versions: [usize; 2],
}

impl Arrays {
    fn new() -> Self {
        let arrays = Self { directory: tempfile::tempdir().unwrap(), versions: [0; 2] };
        fs::create_dir(arrays.root()).unwrap();
        (0..2).for_each(|file| arrays.write(file));
        arrays
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    fn row(&self, file: usize, row: usize) -> Vec<u8> {
        let seed = 31 * self.versions[file] + 7 * row + file;
        (0..FILES[file].1).map(|at| (seed + at * at / 3) as u8).collect()
    }

    /// Writes a file with the values of its version, and with a time of its own.
    fn write(&self, file: usize) {
        let (name, bytes) = FILES[file];
        let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({ROWS}, {bytes}), }}");
        header += &" ".repeat(117 - header.len());
        header += "\n";
        let mut content = [&b"\x93NUMPY\x01\x00"[..], &118_u16.to_le_bytes(), header.as_bytes()].concat();
        (0..ROWS).for_each(|row| content.extend(self.row(file, row)));
        let path = self.root().join(name);
        fs::write(&path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + self.versions[file] as u64);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    fn open(&self, fields: &[&str]) -> Arc<DatasetIndex> {
        let names: Vec<String> = fields.iter().map(|&name| name.to_owned()).collect();
        let options = IndexOptions {
            directory: Some(self.directory.path().join("index")),
            members: Some(names.clone()),
            of_files: names,
            progress: false,
            ..IndexOptions::default()
        };
        Arc::new(DatasetIndex::open(&self.root(), &options).unwrap())
    }

    /// The record of a sample: its rows in the order of the files' names.
    fn record(&self, sample: u64) -> Vec<u8> {
        (0..2).flat_map(|file| self.row(file, sample as usize)).collect()
    }
}

/// Reads the samples that are asked for, in order, with several reads in flight. Returns what was read.
fn read(
    reader: &mut dyn Reader,
    slots: &SlotPool,
    index: &DatasetIndex,
    samples: &[u64],
    ranges: Option<&Arc<RecordRanges>>,
) -> Vec<Completion> {
    let (gap, mut next, mut all) = (record_gap(index), 0, Vec::new());
    while all.len() < samples.len() {
        while next < samples.len() && reader.room() > 0 {
            let extent = index.extent(samples[next]);
            let room = read_room(index, extent, ranges.map(|ranges| &**ranges), gap);
            let mut slot = slots.try_take(room).unwrap();
            slot.bytes_mut().fill(0xA5);
            let request = ReadRequest::new(next as u64, extent, slot);
            reader.submit(ReadRequest { ranges: ranges.cloned(), ..request });
            next += 1;
        }
        reader.wait(&mut all).unwrap();
    }
    all.sort_by_key(|completion| completion.token);
    all
}

fn all_samples(index: &DatasetIndex) -> Vec<u64> {
    (0..index.len()).rev().collect()
}

/// Reads all samples whole, and checks their bytes. Returns how many came from the source.
fn read_all(reader: &mut dyn Reader, slots: &SlotPool, index: &DatasetIndex, arrays: &Arrays) -> usize {
    let samples = all_samples(index);
    let completions = read(reader, slots, index, &samples, None);
    let from_source = completions.iter().filter(|completion| completion.tier == TierName::SOURCE).count();
    for (completion, sample) in completions.into_iter().zip(samples) {
        let bytes = completion.result.unwrap();
        assert!(bytes.whole(20_700).unwrap()[..] == arrays.record(sample), "sample {sample}");
    }
    from_source
}

#[test]
fn records_are_read_by_every_interface() {
    let arrays = Arrays::new();
    let index = arrays.open(BOTH);
    let slots = SlotPool::new(4 << 20).unwrap();
    assert_eq!((index.len(), index.largest()), (ROWS as u64, 20_700));
    let (a, b) = (100..5000, 20_000..20_200);
    let ranges = Arc::new(RecordRanges::of(vec![a.clone(), b.clone()]));
    let mut opened = 0;
    for (io, direct) in [
        (IoChoice::Pread, Direct::Off),
        (IoChoice::Pread, Direct::On),
        (IoChoice::Uring, Direct::Off),
        (IoChoice::Uring, Direct::On),
        (IoChoice::Auto, Direct::Auto),
    ] {
        let mut reader = match open(&index, &slots, io, direct, 3) {
            Ok(reader) => reader,
            Err(why) => {
                println!("skipped: {why}");
                continue;
            }
        };
        opened += 1;
        assert_eq!(read_all(&mut *reader, &slots, &index, &arrays), ROWS);
        let samples = all_samples(&index);
        for (completion, sample) in
            read(&mut *reader, &slots, &index, &samples, Some(&ranges)).iter().zip(samples)
        {
            let (filled, record) = (completion.result.as_ref().unwrap(), arrays.record(sample));
            assert!(filled.whole(20_700).is_none() && filled.arrived() < 6000, "{}", filled.arrived());
            for range in [&a, &b] {
                let expected = &record[range.start as usize..range.end as usize];
                assert!(filled.piece(range.clone()).unwrap() == expected, "{range:?} of sample {sample}");
            }
        }
        drop(reader);
        assert_eq!(slots.usage().in_use, 0);
    }
    assert!(opened >= 3);
    for sample in 0..index.len() {
        assert!(read_blocking(&*index, index.extent(sample)).unwrap() == arrays.record(sample));
    }
}

struct Cached {
    cache: Arc<Cache>,
    index: Arc<DatasetIndex>,
    slots: SlotPool,
    reader: Box<dyn Reader>,
}

impl Cached {
    /// Opens a cache in memory or in a directory.
    fn new(index: Arc<DatasetIndex>, directory: Option<&Path>, fill: FillChoice) -> Self {
        let form = FormChoice::AsIs;
        let tier = match directory {
            Some(path) => {
                TierOptions::Directory { name: TierName::NVME, path: path.to_owned(), size: 64 << 20, form }
            }
            None => TierOptions::Ram { name: TierName::RAM, size: 16 << 20, form },
        };
        let options = CacheOptions {
            tiers: vec![tier],
            fill,
            stage_bandwidth: None,
            verify: Verify::Stamp,
            local_world_size: None,
            io: IoChoice::Auto,
            direct: Direct::Off,
            queue_depth: 4,
            peers: None,
            no_forms: None,
        };
        let selection = Selection::all(index.len());
        let place = RankPlace { rank: 0, world_size: 1 };
        let job = SharedJob { place, selection: &selection, settings: Vec::new() };
        let cache = Cache::open(&index, options, Trace::off(), &job).unwrap().expect("a cache");
        let schedule = Schedule::new(Order::sequential(index.len()), 1, 0, 1, LastBatch::Drop).unwrap();
        cache.begin(0, &schedule, 0, &|_| Order::sequential(index.len()));
        let slots = SlotPool::new(4 << 20).unwrap();
        let of = index.clone();
        let source = move |slots: &SlotPool, depth, _| open(&of, slots, IoChoice::Auto, Direct::Off, depth);
        let reader = cache.reader(Arc::new(source), &slots).unwrap();
        Self { cache, index, slots, reader }
    }

    fn read_all(&mut self, arrays: &Arrays) -> usize {
        let from_source = read_all(&mut *self.reader, &self.slots, &self.index, arrays);
        self.cache.end();
        self.cache.flush();
        from_source
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.cache.close();
    }
}

/// Changes a byte in each segment of a cache, and restores the times of the segments.
fn damage(cache: &Path) -> usize {
    let mut damaged = 0;
    for own in fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let files = fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
        for segment in files.filter(|path| path.extension().is_some_and(|end| end == "seg")) {
            let file = File::options().read(true).write(true).open(segment).unwrap();
            let (mut byte, written) = ([0], file.metadata().unwrap().modified().unwrap());
            file.read_exact_at(&mut byte, 30_000).unwrap();
            file.write_all_at(&[byte[0] ^ 8], 30_000).unwrap();
            file.set_modified(written).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[test]
fn copies_of_records_are_whole_and_intact() {
    let arrays = Arrays::new();
    for directory in [None, Some(arrays.cache())] {
        let mut cached = Cached::new(arrays.open(BOTH), directory.as_deref(), FillChoice::Use);
        assert_eq!(cached.read_all(&arrays), ROWS);
        assert_eq!((0..ROWS as u64).filter(|&sample| cached.cache.needs_whole(sample)).count(), ROWS);
        assert_eq!(cached.read_all(&arrays), 0, "{directory:?}");
        let stats = cached.cache.stats();
        assert_eq!((stats.source.source_reads, stats.all().hits), (ROWS as u64, ROWS as u64));
        assert_eq!(stats.source.source_bytes, 20_700 * ROWS as u64);
        // Blocking reads use the same copies.
        let (bytes, tier) = cached.cache.read_blocking(3).unwrap();
        assert!(bytes == arrays.record(3) && tier != TierName::SOURCE);
    }
    assert!(damage(&arrays.cache()) > 0);
    let mut cached = Cached::new(arrays.open(BOTH), Some(&arrays.cache()), FillChoice::Use);
    assert!(cached.read_all(&arrays) > 0, "the damaged copies");
    assert!(cached.cache.stats().all().damaged > 0);
    // The whole segment is dropped, also with the copies that were read before the damage was found.
    cached.read_all(&arrays);
    assert_eq!(cached.read_all(&arrays), 0);
}

#[test]
fn ranges_of_a_sample_are_read_only_if_no_tier_wants_it() {
    let arrays = Arrays::new();
    let mut cached = Cached::new(arrays.open(BOTH), Some(&arrays.cache()), FillChoice::Use);
    let ranges = Arc::new(RecordRanges::of(vec![100..200, 20_000..20_500]));
    // The pipeline does not ask for ranges if a tier wants the sample. If it asks nevertheless, nothing is kept.
    let partly = read(&mut *cached.reader, &cached.slots, &cached.index, &[4], Some(&ranges)).remove(0);
    let bytes = partly.result.unwrap();
    assert!(
        bytes.whole(20_700).is_none()
            && bytes.piece(20_000..20_500).unwrap() == &arrays.record(4)[20_000..20_500]
    );
    drop(bytes);
    cached.cache.flush();
    assert_eq!((cached.cache.stats().all().held_samples, cached.cache.stats().source.source_bytes), (0, 600));
    assert_eq!(cached.read_all(&arrays), ROWS);
    let stats = cached.cache.stats();
    assert_eq!(
        (stats.all().held_samples, stats.source.source_bytes),
        (ROWS as u64, 600 + 20_700 * ROWS as u64)
    );
}

#[test]
fn copies_of_rewritten_arrays_and_of_other_arrays_are_not_used() {
    let mut arrays = Arrays::new();
    let read_twice = |arrays: &Arrays| {
        let mut cached = Cached::new(arrays.open(BOTH), Some(&arrays.cache()), FillChoice::Use);
        (cached.read_all(arrays), cached.read_all(arrays), cached.cache.stats().all().stale)
    };
    assert_eq!(read_twice(&arrays), (ROWS, 0, 0));
    assert_eq!(read_twice(&arrays), (0, 0, 0));
    // The samples of other arrays have copies of their own.
    let index = arrays.open(&["y.npy"]);
    let cached = Cached::new(index.clone(), Some(&arrays.cache()), FillChoice::Use);
    assert_eq!(cached.cache.stats().all().held_samples, 0);
    drop(cached);
    for file in [1, 0] {
        arrays.versions[file] += 1;
        arrays.write(file);
        assert_eq!(read_twice(&arrays), (ROWS, 0, ROWS as u64), "{file} was rewritten");
    }
}

#[test]
fn records_are_staged() {
    let arrays = Arrays::new();
    let cached = Cached::new(arrays.open(BOTH), Some(&arrays.cache()), FillChoice::Ahead);
    let staged = || cached.cache.stats().all().held_samples;
    for _ in 0..1000 {
        if staged() == ROWS as u64 {
            break;
        }
        cached.cache.flush();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(staged(), ROWS as u64, "{:?}", cached.cache.last_error());
    let mut cached = cached;
    assert_eq!(cached.read_all(&arrays), 0);
}
