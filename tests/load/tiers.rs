//! The pipeline with two tiers: every byte is the same as without a cache, whatever is cached, staged, damaged or
//! evicted, and each byte is read from the source as rarely as possible.

use crate::common::fault::FaultOptions;
use crate::common::{Dataset, epoch_bytes, jpeg, small_images, wait_for, with_cache};
use crate::store::world::segments;
use foreload::CacheChoice;
use foreload::testing::config::LoaderOptions;
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::{CacheStats, FillChoice};
use std::path::PathBuf;

const SAMPLES: usize = 120;

/// Options with a cache next to the data, with a size of `part` times the dataset.
fn cached(dataset: &Dataset, part: f64, fill: FillChoice) -> LoaderOptions {
    with_cache(dataset.cached(part, small_images()), |cache| {
        cache.directory.fill = fill;
        cache.directory.size = cache.directory.size.max(Some(smallest(dataset)));
    })
}

/// A share that is enough for all samples with tables and pages.
const ALL: f64 = 3.0;

/// The smallest valid quota, taken from the error message for a smaller one.
fn smallest(dataset: &Dataset) -> u64 {
    let cache = CacheChoice::in_directory(dataset.beside("smallest"), 1);
    let asked = LoaderOptions { cache, ..small_images() };
    let Err(refusal) = dataset.pipeline(&asked).epoch(0, 0, 1, 0) else { panic!("a byte is no cache") };
    let refusal = refusal.to_string();
    assert!(refusal.starts_with("config: cache_size: is 1"), "{refusal}");
    let number = refusal.split("at least ").nth(1).expect("the number");
    number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

/// The hash and the tier counters of an epoch. Returns after all stored samples are published.
pub fn epoch(pipeline: &Pipeline, number: u64) -> ([u8; 32], CacheStats) {
    let before = pipeline.cache().map(|cache| cache.stats()).unwrap_or_default();
    let hash = epoch_bytes(pipeline, number);
    let cache = pipeline.cache().expect("a cache");
    cache.flush();
    (hash, cache.stats().since(&before))
}

#[test]
fn what_is_cached_comes_from_there_and_is_the_same() {
    for dataset in [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25)] {
        let plain = dataset.pipeline(&small_images());
        let pipeline = dataset.pipeline(&cached(&dataset, ALL, FillChoice::Use));
        for number in 0..3 {
            let (hash, tiers) = epoch(&pipeline, number);
            assert!(hash == epoch_bytes(&plain, number), "epoch {number}");
            let expected = if number == 0 { (SAMPLES as u64, 0) } else { (0, SAMPLES as u64) };
            assert_eq!((tiers.source.source_reads, tiers.all().hits), expected, "epoch {number}: {tiers:?}");
            assert_eq!(tiers.all().held_samples, SAMPLES as u64);
        }
    }
}

#[test]
fn a_cache_too_small_for_all_is_filled_and_kept() {
    let dataset = Dataset::folder(600);
    let bytes = dataset.index().total_bytes();
    let plain = dataset.pipeline(&small_images());
    let pipeline = dataset.pipeline(&cached(&dataset, 0.5, FillChoice::Use));
    for number in 0..3 {
        let (hash, tiers) = epoch(&pipeline, number);
        assert!(hash == epoch_bytes(&plain, number), "epoch {number}");
        assert_eq!(tiers.source.source_reads + tiers.all().hits, 600);
        assert_eq!(tiers.all().evicted_bytes, 0);
        assert!(tiers.all().held_bytes <= tiers.all().quota, "{tiers:?}");
        if number > 0 {
            assert!(tiers.all().bytes > tiers.all().quota / 2, "{tiers:?} of {bytes}");
            assert_eq!(tiers.source.source_bytes + tiers.all().bytes, bytes);
        }
    }
}

#[test]
fn the_next_run_starts_with_what_is_there() {
    let dataset = Dataset::folder(SAMPLES);
    let with_cache = cached(&dataset, ALL, FillChoice::Use);
    epoch(&dataset.pipeline(&with_cache), 0);
    // Another seed gives another order of the same samples.
    let other = LoaderOptions { seed: 6, ..with_cache };
    let (hash, tiers) = epoch(&dataset.pipeline(&other), 0);
    assert_eq!((tiers.source.source_reads, tiers.all().hits), (0, SAMPLES as u64));
    assert!(hash == epoch_bytes(&dataset.pipeline(&LoaderOptions { seed: 6, ..small_images() }), 0));
}

#[test]
fn a_dataset_that_changed_meets_no_old_bytes() {
    let dataset = Dataset::folder(SAMPLES);
    let with_cache = cached(&dataset, ALL, FillChoice::Use);
    epoch(&dataset.pipeline(&with_cache), 0);
    // The new file of the same name has the same number of other bytes.
    let path = dataset.path(7);
    let length = std::fs::metadata(&path).unwrap().len() as usize;
    let mut other = (7_000..).map(jpeg).find(|other| other.len() <= length).expect("there are smaller ones");
    other.resize(length, 0);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &other).unwrap();
    let dataset = dataset.indexed_anew();
    let (hash, tiers) = epoch(&dataset.pipeline(&with_cache), 0);
    assert!(hash == epoch_bytes(&dataset.pipeline(&small_images()), 0));
    assert_eq!((tiers.all().hits, tiers.all().stale), (SAMPLES as u64 - 1, 1), "{tiers:?}");
}

#[test]
fn damaged_and_missing_segments_cost_reads_but_no_byte() {
    type Harm = fn(&PathBuf);
    let flip: Harm = |path| {
        let mut bytes = std::fs::read(path).unwrap();
        let place = bytes.len() / 3;
        bytes[place] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    let cut: Harm = |path| {
        let half = std::fs::metadata(path).unwrap().len() / 2;
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(half).unwrap();
    };
    let remove: Harm = |path| std::fs::remove_file(path).unwrap();
    for (name, harm) in [("a flipped bit", flip), ("half a file", cut), ("no file", remove)] {
        let dataset = Dataset::folder(SAMPLES);
        let plain = dataset.pipeline(&small_images());
        let with_cache = cached(&dataset, ALL, FillChoice::Use);
        let running = dataset.pipeline(&with_cache);
        epoch(&running, 0);
        let files = segments(&dataset.beside("cache"));
        assert!(!files.is_empty());
        files.iter().for_each(harm);
        let (hash, tiers) = epoch(&running, 1);
        assert!(hash == epoch_bytes(&plain, 1), "{name}, while running");
        assert!(tiers.source.source_reads > 0, "{name}: {tiers:?}");
        // The next run also finds the damage.
        drop(running);
        segments(&dataset.beside("cache")).iter().for_each(harm);
        let (hash, tiers) = epoch(&dataset.pipeline(&with_cache), 2);
        assert!(hash == epoch_bytes(&plain, 2), "{name}, at the start");
        assert!(tiers.source.source_reads > 0, "{name}: {tiers:?}");
        // Samples that were read from a segment before its damage was found are still missing.
        let healed = dataset.pipeline(&with_cache);
        for number in 3..5 {
            let (hash, tiers) = epoch(&healed, number);
            assert!(hash == epoch_bytes(&plain, number), "{name}, filled again");
            assert!(number == 3 || tiers.source.source_reads == 0, "{name}: {tiers:?}");
        }
    }
}

#[test]
fn faults_of_the_source_below_a_cache_change_no_byte() {
    let dataset = Dataset::folder(SAMPLES);
    let plain = dataset.pipeline(&small_images());
    for seed in 0..4 {
        let options = with_cache(cached(&dataset, ALL, FillChoice::Use), |cache| {
            cache.directory.path = Some(dataset.beside(&format!("cache-{seed}")));
        });
        let pipeline = dataset.faulty(&options, FaultOptions::reordering(seed));
        for number in 0..2 {
            let (hash, tiers) = epoch(&pipeline, number);
            assert!(hash == epoch_bytes(&plain, number), "epoch {number}, faults of seed {seed}");
            assert_eq!(tiers.all().hits, number * SAMPLES as u64);
        }
    }
}

#[test]
fn shards_are_staged_ahead_and_no_byte_leaves_the_source_twice() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let bytes = dataset.index().total_bytes();
    let plain = dataset.pipeline(&small_images());
    let pipeline = dataset.pipeline(&cached(&dataset, ALL, FillChoice::Ahead));
    let (hash, first) = epoch(&pipeline, 0);
    assert!(hash == epoch_bytes(&plain, 0));
    // However far staging came, each sample was read at least once. Headers between samples are staged, too.
    assert!(first.source.source_bytes + first.all().bytes == bytes, "{first:?} of {bytes}");
    let (hash, second) = epoch(&pipeline, 1);
    assert!(hash == epoch_bytes(&plain, 1));
    assert_eq!((second.source.source_reads, second.source.staged_samples), (0, 0), "{second:?}");
    assert_eq!(second.all().held_samples, SAMPLES as u64);
}

#[test]
fn a_run_that_only_stages_reads_each_shard_once() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let bytes = dataset.index().total_bytes();
    let pipeline = dataset.pipeline(&cached(&dataset, ALL, FillChoice::Ahead));
    // The consumer stops after one batch: the pools fill up, and staging reads the rest.
    let mut waiting = pipeline.epoch(0, 0, 1, 0).unwrap();
    waiting.next_batch().unwrap();
    let cache = pipeline.cache().unwrap().clone();
    let flushed = || {
        cache.flush();
        cache.stats()
    };
    let tiers = wait_for("all are kept", flushed, |tiers| tiers.all().held_samples == SAMPLES as u64);
    drop(waiting);
    // A kilobyte or two of headers and class files is between samples.
    let headers = 2048 * SAMPLES as u64;
    assert!(tiers.source.source_bytes + tiers.source.staged_bytes >= bytes, "{tiers:?}");
    assert!(tiers.source.staged_bytes <= bytes + headers, "{tiers:?} of {bytes}");
}

#[test]
fn single_files_can_be_staged_ahead_too() {
    let dataset = Dataset::folder(SAMPLES);
    let plain = dataset.pipeline(&small_images());
    let pipeline = dataset.pipeline(&cached(&dataset, ALL, FillChoice::Ahead));
    for number in 0..3 {
        let (hash, _) = epoch(&pipeline, number);
        assert!(hash == epoch_bytes(&plain, number), "epoch {number}");
    }
}

#[test]
fn one_of_several_nodes_keeps_what_it_uses_soonest() {
    let dataset = Dataset::folder(600);
    let plain = dataset.pipeline(&small_images());
    let asked = LoaderOptions { local_world_size: Some(1), ..cached(&dataset, 0.4, FillChoice::Use) };
    let pipeline = dataset.pipeline(&asked);
    let hash = |pipeline: &Pipeline, number| {
        let mut epoch = pipeline.epoch(number, 1, 3, 0).unwrap();
        let mut ids = Vec::new();
        let mut images = Vec::new();
        while let Some(batch) = epoch.next_batch().unwrap() {
            ids.extend_from_slice(batch.sample_ids().bytes());
            images.extend_from_slice(batch.images().bytes());
        }
        if let Some(cache) = pipeline.cache() {
            cache.flush();
        }
        (ids, images)
    };
    for number in 0..8 {
        assert!(hash(&pipeline, number) == hash(&plain, number), "epoch {number}");
    }
    let tiers = pipeline.cache().unwrap().stats();
    assert!(tiers.all().evicted_bytes > 0, "{tiers:?}");
    assert!(tiers.all().held_bytes <= tiers.all().quota, "{tiers:?}");
    // The next run resumes with the stored groups: old groups are evicted, new ones are stored.
    drop(pipeline);
    let pipeline = dataset.pipeline(&asked);
    for number in 8..14 {
        assert!(hash(&pipeline, number) == hash(&plain, number), "epoch {number}");
    }
    let next = pipeline.cache().unwrap().stats();
    assert!(next.all().evicted_bytes > 0 && next.all().held_bytes <= next.all().quota, "{next:?}");
    let share =
        |tiers: &CacheStats| tiers.all().hits as f64 / (tiers.all().hits + tiers.source.source_reads) as f64;
    assert!(share(&next) > share(&tiers), "warm, it hits more often: {next:?} after {tiers:?}");
    // A cache that keeps the first samples has a hit rate equal to its share, but no hits in the first epoch: 0.35
    // here.
    assert!(share(&tiers) > 0.38, "{:.3}: {tiers:?}", share(&tiers));
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let dataset = Dataset::folder(20);
    let index = dataset.index();
    let refusal = |asked: LoaderOptions| asked.check(&index).unwrap_err().to_string();
    let whole = CacheChoice::in_directory(dataset.beside("cache"), 1 << 30);
    let asked = LoaderOptions { cache: whole, ..small_images() };
    let nowhere = with_cache(asked.clone(), |cache| cache.directory.path = None);
    assert!(refusal(nowhere).starts_with("config: cache_dir: "));
    let unsized_ = with_cache(asked.clone(), |cache| cache.directory.size = None);
    assert!(refusal(unsized_).starts_with("config: cache_size: "));
    let idle = with_cache(asked, |cache| cache.directory.stage_bandwidth = Some(0));
    assert!(refusal(idle).starts_with("config: stage_bandwidth: "));
    let inside = CacheChoice::in_directory(dataset.path(0).parent().unwrap().join("cache"), 1 << 30);
    let inside = LoaderOptions { cache: inside, ..small_images() };
    let Err(error) = dataset.pipeline(&inside).epoch(0, 0, 1, 0) else { panic!("sources are read-only") };
    assert!(error.to_string().starts_with("config: cache_dir: "), "{error}");
}
