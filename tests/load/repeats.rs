//! Repeated samples in the pipeline: a batch reads each sample once, and a cache knows when each is used again.

use crate::common::fault::FaultOptions;
use crate::common::{Dataset, epoch_bytes, ids, small_images, with_cache};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::{CacheStats, FillChoice};
use foreload::{Shuffling, TierName};
use std::collections::HashSet;

const SAMPLES: usize = 120;

fn options() -> LoaderOptions {
    LoaderOptions { batch_size: 15, repeats: 3, ..small_images() }
}

/// The samples of each batch of a rank's epoch, and the cache's statistics. Returns after all stored samples are
/// published.
fn epoch(pipeline: &Pipeline, number: u64, (rank, world): (u32, u32)) -> (Vec<Vec<i64>>, CacheStats) {
    let before = pipeline.cache().map(|cache| cache.stats()).unwrap_or_default();
    let mut epoch = pipeline.epoch(number, rank, world, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        batches.push(ids(&batch));
    }
    let Some(cache) = pipeline.cache() else { return (batches, CacheStats::default()) };
    cache.flush();
    (batches, cache.stats().since(&before))
}

/// The number of samples that the batches read, each once per batch.
fn different(batches: &[Vec<i64>]) -> u64 {
    batches.iter().map(|batch| batch.iter().collect::<HashSet<_>>().len() as u64).sum()
}

#[test]
fn a_batch_reads_a_sample_once() {
    let dataset = Dataset::folder(SAMPLES);
    // With 16 places, a batch ends with a sample whose other repeats are in the next batch.
    for (batch_size, world) in [(15, 1), (16, 1), (5, 3), (10, 2)] {
        let asked = LoaderOptions { batch_size, ..options() };
        for rank in 0..world {
            let pipeline = dataset.pipeline(&asked);
            let mut epoch = pipeline.epoch(0, rank, world, 0).unwrap();
            let (mut reads, mut bytes) = (0, 0);
            while let Some(batch) = epoch.next_batch().unwrap() {
                let ids: HashSet<i64> = ids(&batch).into_iter().collect();
                reads += ids.len() as u64;
                let length = |id: i64| u64::from(dataset.index().extent(id as u64).length);
                bytes += ids.into_iter().map(length).sum::<u64>();
            }
            let stats = epoch.stats();
            assert_eq!(
                stats.latency(TierName::SOURCE).count(),
                reads,
                "batches of {batch_size}, {world} ranks"
            );
            assert_eq!(stats.reads.bytes, bytes, "batches of {batch_size}, {world} ranks");
            assert!(world >= 3 || reads < stats.decoded_cpu(), "each place is decoded");
        }
    }
}

#[test]
fn under_faults_every_place_is_right_or_masked() {
    let dataset = Dataset::folder(90);
    let zero = LoaderOptions { on_error: OnError::Zero, max_errors: Some(1000), ..options() };
    let clean = dataset.pipeline(&zero);
    let mut expected = Vec::new();
    let mut epoch = clean.epoch(0, 0, 1, 0).unwrap();
    while let Some(batch) = epoch.next_batch().unwrap() {
        let size = batch.images().bytes().len() / batch.len();
        expected.extend(batch.images().bytes().chunks(size).map(<[u8]>::to_vec));
    }
    for seed in 0..6 {
        let faults = FaultOptions { errors: 30, cancelled: 10, ..FaultOptions::everything(seed) };
        let pipeline = dataset.faulty(&zero, faults);
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        let mut places = expected.iter();
        let (mut masked, mut healed) = (0, 0);
        while let Some(batch) = epoch.next_batch().unwrap() {
            let images = batch.images();
            let size = images.bytes().len() / batch.len();
            let mask = batch.mask();
            let ids: Vec<Vec<u8>> = batch.sample_ids().bytes().chunks(8).map(<[u8]>::to_vec).collect();
            let failed: HashSet<_> = (0..batch.len()).filter(|&place| mask.bytes()[place] == 0).collect();
            for (place, image) in images.bytes().chunks(size).enumerate() {
                let expected = places.next().expect("as many places");
                if failed.contains(&place) {
                    assert!(image.iter().all(|&byte| byte == 0), "seed {seed}, place {place}");
                } else {
                    assert!(image == &expected[..], "seed {seed}, place {place}");
                    healed += usize::from(failed.iter().any(|&other| ids[other] == ids[place]));
                }
            }
            masked += failed.len() as u64;
        }
        assert!(places.next().is_none(), "seed {seed}");
        assert_eq!(masked, epoch.failed(), "seed {seed}");
        // A read that fails for one place is tried again for the others.
        assert!(masked > 0 && healed > 0, "seed {seed}: {masked} masked, {healed} healed");
    }
}

#[test]
fn encoded_files_are_each_consumers_own() {
    let dataset = Dataset::folder(SAMPLES);
    let pipeline =
        dataset.pipeline(&LoaderOptions { decoded: false, shuffle: Some(Shuffling::On), ..options() });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let batch = epoch.next_batch().unwrap().unwrap();
    let files = batch.encoded();
    let addresses: HashSet<_> = files.iter().map(|file| file.bytes().as_ptr()).collect();
    assert_eq!(addresses.len(), 15);
    assert!(files[0].bytes() == files[5].bytes() && files[0].bytes() == files[10].bytes());
}

#[test]
fn a_cache_for_all_reads_each_sample_once_in_all_epochs() {
    for dataset in [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25)] {
        let plain = dataset.pipeline(&options());
        let pipeline = dataset.pipeline(&dataset.cached(3.0, options()));
        let (mut seen, mut dropped) = (HashSet::new(), 0);
        for number in 0..10 {
            let (batches, tiers) = epoch(&pipeline, number, (0, 1));
            let new: HashSet<i64> = batches.iter().flatten().copied().filter(|id| seen.insert(*id)).collect();
            // Samples that a busy disk could not store in time are read again.
            let again = tiers.source.source_reads - new.len() as u64;
            assert!(again <= dropped, "epoch {number}: {tiers:?}");
            dropped += tiers.all().dropped_busy;
            assert_eq!(
                tiers.source.source_reads + tiers.all().hits,
                different(&batches),
                "epoch {number}: {tiers:?}"
            );
            assert_eq!(tiers.all().evicted_bytes, 0, "epoch {number}: {tiers:?}");
            assert_eq!(batches, epoch(&plain, number, (0, 1)).0);
        }
        assert!(seen.len() > 110, "all come in time: {}", seen.len());
        assert!(epoch_bytes(&pipeline, 10) == epoch_bytes(&plain, 10));
    }
}

#[test]
fn shards_staged_ahead_leave_the_source_once() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let ahead = with_cache(options(), |cache| cache.directory.fill = FillChoice::Ahead);
    let pipeline = dataset.pipeline(&dataset.cached(3.0, ahead));
    // Within some epochs, staging has read the whole dataset. On a busy machine its thread may wait for several epochs.
    let mut last = CacheStats::default();
    for number in 0..1000 {
        last = epoch(&pipeline, number, (0, 1)).1;
        if last.source.source_reads == 0 && last.all().held_samples == SAMPLES as u64 {
            break;
        }
    }
    assert_eq!((last.source.source_reads, last.all().held_samples), (0, SAMPLES as u64), "{last:?}");
    // A sample that is used just before it is staged is read twice, but no sample is staged twice.
    let all = pipeline.cache().unwrap().stats();
    let headers = 2048 * SAMPLES as u64;
    assert!(all.source.staged_bytes <= dataset.index().total_bytes() + headers, "{all:?}");
    assert!(all.source.source_reads <= SAMPLES as u64, "{all:?}");
}

#[test]
fn a_smaller_cache_keeps_what_comes_again_soonest() {
    let dataset = Dataset::folder(600);
    let asked = LoaderOptions { batch_size: 20, repeats: 4, ..options() };
    // On one node, and as one of two nodes, which each use half of a sample's repeats.
    for (world, local) in [(1, None), (2, Some(1))] {
        let plain = dataset.pipeline(&asked);
        let mut own = dataset.cached(0.4, LoaderOptions { local_world_size: local, ..asked.clone() });
        own.cache.directory.path = Some(dataset.beside(&format!("cache-{world}")));
        let pipeline = dataset.pipeline(&own);
        let (mut hits, mut used, mut held) = (0, 0, 0.0);
        for number in 0..24 {
            let (batches, tiers) = epoch(&pipeline, number, (0, world));
            assert_eq!(batches, epoch(&plain, number, (0, world)).0);
            assert_eq!(tiers.source.source_reads + tiers.all().hits, different(&batches), "{tiers:?}");
            assert!(tiers.all().held_bytes <= tiers.all().quota, "{tiers:?}");
            // The first epochs fill the cache.
            if number >= 8 {
                hits += tiers.all().hits;
                used += tiers.source.source_reads + tiers.all().hits;
                held = tiers.all().quota as f64 / dataset.index().total_bytes() as f64;
            }
        }
        let share = hits as f64 / used as f64;
        println!("{world} nodes: {share:.3} of {used} from a cache of {held:.3}");
        // A cache that keeps the first samples would have a hit rate equal to its share of the dataset; measured: 0.51
        // to 0.54.
        assert!(share > held + 0.05, "{world} nodes: {share:.3} from a cache of {held:.3}");
    }
}
