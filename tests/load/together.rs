//! The whole pipeline over a directory and shards at once, with and without a cache.

use crate::common::scene::bytes_of;
use crate::common::{Dataset, batches, epoch_bytes, failure, ids, longs, pipeline, small_images};
use foreload::CacheChoice;
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::tier::FillChoice;
use std::sync::Arc;

const LOOSE: usize = 61;
const PACKED: usize = 50;

fn open(parts: &[&Dataset]) -> Arc<DatasetIndex> {
    let roots: Vec<_> = parts.iter().map(|part| part.beside("data")).collect();
    let options = IndexOptions { directory: Some(parts[0].beside("index")), ..IndexOptions::default() };
    Arc::new(DatasetIndex::open_all(&roots, &options, &Arc::default()).unwrap())
}

#[test]
fn every_sample_comes_once_with_its_bytes_and_label() {
    let (loose, packed) = (Dataset::folder(LOOSE), Dataset::shards(PACKED, 20));
    for index in [open(&[&loose, &packed]), open(&[&packed, &loose])] {
        let pipeline = pipeline(index.clone(), &LoaderOptions { decoded: false, ..small_images() });
        let mut seen = Vec::new();
        for batch in batches(&pipeline, 0) {
            let (ids, labels) = (ids(&batch), longs(batch.labels().bytes()));
            for ((file, id), label) in batch.encoded().iter().zip(ids).zip(labels) {
                assert!(file.bytes() == bytes_of(&index, id as u64), "sample {id}");
                assert_eq!(label, i64::from(index.label(id as u64)), "sample {id}");
                seen.push(id as usize);
            }
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..LOOSE + PACKED), "{seen:?}");
    }
}

#[test]
fn a_cache_keeps_samples_of_all() {
    let (loose, packed) = (Dataset::folder(LOOSE), Dataset::shards(PACKED, 20));
    let index = open(&[&loose, &packed]);
    let plain = pipeline(index.clone(), &small_images());
    for fill in [FillChoice::Use, FillChoice::Ahead] {
        let mut cache = CacheChoice::in_directory(loose.beside(&format!("cache {fill:?}")), 64 << 20);
        cache.directory.fill = fill;
        let cached = LoaderOptions { cache, ..small_images() };
        let pipeline = pipeline(index.clone(), &cached);
        for number in 0..3 {
            let before = pipeline.cache().map(|cache| cache.stats()).unwrap_or_default();
            assert!(epoch_bytes(&pipeline, number) == epoch_bytes(&plain, number), "epoch {number}");
            let cache = pipeline.cache().expect("a cache");
            cache.flush();
            let tiers = cache.stats().since(&before);
            assert_eq!(tiers.all().held_samples, (LOOSE + PACKED) as u64, "{fill:?}, epoch {number}");
            if number > 0 {
                assert_eq!(
                    (tiers.source.source_reads, tiers.all().hits),
                    (0, (LOOSE + PACKED) as u64),
                    "{tiers:?}"
                );
            }
        }
    }
    let inside = LoaderOptions {
        cache: CacheChoice::in_directory(packed.beside("data/cache"), 64 << 20),
        ..small_images()
    };
    let Err(error) = pipeline(index.clone(), &inside).epoch(0, 0, 1, 0) else {
        panic!("a cache in a dataset")
    };
    assert!(error.to_string().contains("inside the dataset"), "{error}");
}

#[test]
fn what_changed_in_any_of_them_is_named() {
    let (loose, packed) = (Dataset::folder(LOOSE), Dataset::shards(PACKED, 20));
    let index = open(&[&loose, &packed]);
    let shard = packed.path(0);
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
    let pipeline = pipeline(index.clone(), &small_images());
    let error = failure(&mut pipeline.epoch(0, 0, 1, 0).unwrap()).to_string();
    assert!(error.contains("dataset changed") && error.contains(shard.to_str().unwrap()), "{error}");
}
