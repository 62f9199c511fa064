//! The pipeline with a list of tiers, memory before a directory: their capacities add up, bytes are the same as without
//! tiers, and a fault in one tier costs at most a read of the next one.

use crate::common::{batches, ids, pipeline, random_bytes, with_cache};
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::tier::{CacheStats, FillChoice};
use foreload::{CacheChoice, TierName};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const SAMPLES: usize = 2000;
const LENGTH: usize = 10_000;
const RAM: TierName = TierName::RAM;
const NVME: TierName = TierName::NVME;

/// Files of the same length, whose bytes identify them.
struct Files {
    directory: TempDir,
    samples: usize,
    length: usize,
}

fn bytes(sample: usize, length: usize) -> Vec<u8> {
    let mut random = RandomKey::new(b"samples of tiers", 0, 0, Use::Augment).stream(sample as u64);
    random_bytes(&mut random, length)
}

impl Files {
    fn new() -> Self {
        Self::of(SAMPLES, LENGTH)
    }

    fn of(samples: usize, length: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let files = Self { directory, samples, length };
        (0..samples).for_each(|sample| std::fs::write(files.path(sample), bytes(sample, length)).unwrap());
        files
    }

    fn total(&self) -> u64 {
        (self.samples * self.length) as u64
    }

    fn path(&self, sample: usize) -> PathBuf {
        self.directory.path().join(format!("data/{sample:04}.bin"))
    }

    fn index(&self) -> Arc<DatasetIndex> {
        let options = IndexOptions {
            directory: Some(self.directory.path().join("index")),
            contents: Contents::Files,
            progress: false,
            ..IndexOptions::default()
        };
        Arc::new(DatasetIndex::open(&self.directory.path().join("data"), &options).unwrap())
    }

    /// Options with these shares of the dataset in memory and in a directory.
    fn options(&self, ram: f64, nvme: f64) -> LoaderOptions {
        let part = |share: f64| (share > 0.0).then_some((share * self.total() as f64) as u64);
        let mut cache = CacheChoice::default();
        cache.ram.size = part(ram);
        cache.directory.size = part(nvme);
        cache.directory.path = part(nvme).map(|_| self.directory.path().join("cache"));
        LoaderOptions { batch_size: 8, decoded: false, cache, ..LoaderOptions::default() }
    }

    fn pipeline(&self, options: &LoaderOptions) -> Pipeline {
        pipeline(self.index(), options)
    }
}

/// Runs an epoch of one rank, checks every byte, and returns the tiers' statistics.
fn epoch(pipeline: &Pipeline, number: u64, (rank, world): (u32, u32)) -> CacheStats {
    let before = pipeline.cache().map(|cache| cache.stats()).unwrap_or_default();
    let mut epoch = pipeline.epoch(number, rank, world, 0).unwrap();
    while let Some(batch) = epoch.next_batch().unwrap() {
        for (file, sample) in batch.encoded().iter().zip(ids(&batch)) {
            assert!(
                file.bytes() == bytes(sample as usize, file.bytes().len()),
                "sample {sample} in epoch {number}"
            );
        }
    }
    drop(epoch);
    let cache = pipeline.cache().expect("a cache");
    cache.flush();
    cache.stats().since(&before)
}

#[test]
fn the_rooms_of_all_tiers_add_up() {
    for (ram, nvme) in [(0.3, 0.0), (0.0, 0.4), (0.3, 0.4), (0.5, 0.7)] {
        let files = Files::new();
        let pipeline = files.pipeline(&files.options(ram, nvme));
        for number in 0..3 {
            let stats = epoch(&pipeline, number, (0, 1));
            let source = stats.source.source_bytes as f64 / files.total() as f64;
            let wanted = if number == 0 { 1.0 } else { (1.0 - ram - nvme).max(0.0) };
            // Huge pages are a tenth of this dataset, and memory is rounded down to whole huge pages.
            let lost = if ram > 0.0 { 0.12 } else { 0.02 };
            assert!(
                source >= wanted - 0.001 && source <= wanted + lost,
                "{ram} + {nvme}: {source}, {stats:?}"
            );
            let (of_ram, of_nvme) = (stats.tier(RAM), stats.tier(NVME));
            assert_eq!(of_ram.hits + of_nvme.hits + stats.source.source_reads, SAMPLES as u64, "{stats:?}");
            assert!(of_ram.held_bytes <= of_ram.quota && of_nvme.held_bytes <= of_nvme.quota, "{stats:?}");
            assert_eq!(stats.all().fallbacks, 0, "{stats:?}");
            if number > 0 && ram + nvme < 1.0 {
                let kept = of_ram.held_samples + of_nvme.held_samples;
                assert_eq!(kept, of_ram.hits + of_nvme.hits, "each sample is kept once: {stats:?}");
            }
        }
    }
}

#[test]
fn a_directory_that_has_room_for_all_has_all_and_memory_copies_of_it() {
    let files = Files::new();
    let options = files.options(0.5, 2.0);
    let first = epoch(&files.pipeline(&options), 0, (0, 1));
    assert_eq!(first.tier(NVME).held_samples, SAMPLES as u64, "{first:?}");
    assert!(first.tier(RAM).held_samples > SAMPLES as u64 / 3, "{first:?}");
    // In the next run, memory begins empty and is filled from the directory.
    let pipeline = files.pipeline(&options);
    let next = epoch(&pipeline, 1, (0, 1));
    assert_eq!((next.source.source_reads, next.tier(NVME).hits), (0, SAMPLES as u64), "{next:?}");
    let warm = epoch(&pipeline, 2, (0, 1));
    assert_eq!(warm.tier(RAM).hits, warm.tier(RAM).held_samples, "{warm:?}");
    assert!(warm.tier(RAM).hits > SAMPLES as u64 / 3, "{warm:?}");
}

#[test]
fn memory_is_filled_ahead_too() {
    let files = Files::new();
    let options = with_cache(files.options(2.0, 0.0), |cache| cache.directory.fill = FillChoice::Ahead);
    let pipeline = files.pipeline(&options);
    let mut last = CacheStats::default();
    for number in 0..4 {
        last = epoch(&pipeline, number, (0, 1));
    }
    assert_eq!((last.source.source_reads, last.tier(RAM).hits), (0, SAMPLES as u64), "{last:?}");
}

#[test]
fn a_file_that_changes_is_seen_by_the_next_run_in_every_tier() {
    let files = Files::new();
    let options = files.options(0.3, 0.9);
    epoch(&files.pipeline(&options), 0, (0, 1));
    let pipeline = files.pipeline(&options);
    epoch(&pipeline, 0, (0, 1));
    drop(pipeline);
    // A run trusts its own copies; a later run checks the file again.
    let mut changed = bytes(17, LENGTH);
    changed.reverse();
    std::fs::write(files.path(17), &changed).unwrap();
    let pipeline = files.pipeline(&options);
    let mut seen = 0;
    for batch in batches(&pipeline, 1) {
        for (file, sample) in batch.encoded().iter().zip(ids(&batch)) {
            let expected = if sample == 17 { changed.clone() } else { bytes(sample as usize, LENGTH) };
            assert!(file.bytes() == expected, "sample {sample}");
            seen += 1;
        }
    }
    assert_eq!(seen, SAMPLES);
}

#[test]
fn one_rank_of_several_keeps_in_memory_what_it_uses_soonest() {
    // The samples are small, so that memory has many blocks and a group fills one block.
    let files = Files::of(8000, 2000);
    // Two ranks share the directory; each has half of the memory.
    let options = LoaderOptions { local_world_size: Some(2), ..files.options(0.8, 0.3) };
    let pipeline = files.pipeline(&options);
    let mut hits = 0;
    for number in 0..8 {
        let stats = epoch(&pipeline, number, (1, 2));
        assert_eq!(stats.all().hits + stats.source.source_reads, files.samples as u64 / 2, "{stats:?}");
        let of_ram = stats.tier(RAM);
        assert!(of_ram.held_bytes <= of_ram.quota && of_ram.quota == files.total() * 4 / 10, "{stats:?}");
        if number >= 4 {
            hits += stats.all().hits;
        }
    }
    let all = pipeline.cache().unwrap().stats();
    assert!(all.tier(RAM).evicted_bytes > 0 && all.tier(RAM).hits > 0, "{all:?}");
    // Half of all samples, over four epochs. A cache that keeps the first samples would have a hit rate equal to its
    // share, at most 0.55.
    let share = hits as f64 / (2 * files.samples) as f64;
    println!("{share:.3} of the samples came from a tier");
    // Measured: 0.75. It is 0.70 if the ends of blocks stay empty because their groups have no more samples.
    assert!(share > 0.72, "{share:.3}: {all:?}");
}

#[test]
fn a_tier_that_cannot_be_used_leaves_the_others() {
    let files = Files::new();
    let mut options = files.options(0.5, 0.5);
    let file = files.directory.path().join("a file");
    std::fs::write(&file, "no directory").unwrap();
    options.cache.directory.path = Some(file.join("cache"));
    let pipeline = files.pipeline(&options);
    epoch(&pipeline, 0, (0, 1));
    let stats = epoch(&pipeline, 1, (0, 1));
    assert!(stats.tier(RAM).hits > SAMPLES as u64 / 3 && stats.tiers.len() == 1, "{stats:?}");
}

#[test]
fn memory_that_is_not_there_is_refused_by_name() {
    let files = Files::new();
    let refusal = |options: LoaderOptions| {
        let Err(error) = files.pipeline(&options).epoch(0, 0, 1, 0) else { panic!("it has no such memory") };
        error.to_string()
    };
    let huge = refusal(files.options(1e9, 0.0));
    assert!(
        huge.starts_with("config: cache_ram: is ")
            && huge.contains("the memory of this machine or container"),
        "{huge}"
    );
    let small = refusal(with_cache(files.options(0.0, 0.0), |cache| cache.ram.size = Some(4096)));
    assert!(small.contains("must be at least 2097152"), "{small}");
    let divided = LoaderOptions { local_world_size: Some(64), ..files.options(0.5, 0.0) };
    assert!(refusal(divided).contains("for this process"), "each rank has a 64th");
}
