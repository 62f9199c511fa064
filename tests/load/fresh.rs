//! The cache never hides a changed dataset: a copy is used only while its file is unchanged.

use crate::common::{Dataset, batches, ids, with_cache};
use foreload::CacheChoice;
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::store::{Offer, Store, StoreOptions};
use foreload::testing::tier::{CacheStats, Verify};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

const SAMPLES: usize = 90;

/// Options that load the files' bytes, with a cache for all of them.
fn options(dataset: &Dataset) -> LoaderOptions {
    LoaderOptions {
        batch_size: 8,
        seed: 5,
        threads: Some(1),
        decoded: false,
        train: Some(false),
        device: "cpu".into(),
        cache: CacheChoice::in_directory(dataset.beside("cache"), 64 << 20),
        ..LoaderOptions::default()
    }
}

/// The files that an epoch delivers, by sample, and the tiers' statistics. Returns after all stored samples are
/// published.
fn epoch(pipeline: &Pipeline, number: u64) -> (HashMap<u64, Vec<u8>>, CacheStats) {
    let before = pipeline.cache().map(|cache| cache.stats()).unwrap_or_default();
    let mut delivered = HashMap::new();
    for batch in batches(pipeline, number) {
        for (id, file) in ids(&batch).into_iter().zip(batch.encoded()) {
            delivered.insert(id as u64, file.bytes().to_vec());
        }
    }
    let Some(cache) = pipeline.cache() else { return (delivered, CacheStats::default()) };
    cache.flush();
    (delivered, cache.stats().since(&before))
}

/// The files that a new run delivers in its first epoch.
fn run(dataset: &Dataset, options: &LoaderOptions) -> (HashMap<u64, Vec<u8>>, CacheStats) {
    epoch(&dataset.pipeline(options), 0)
}

/// The bytes of the dataset's files by sample.
fn on_disk(dataset: &Dataset) -> HashMap<u64, Vec<u8>> {
    (0..SAMPLES).map(|sample| (sample as u64, fs::read(dataset.path(sample)).unwrap())).collect()
}

/// Overwrites the file at `path` with the same number of other bytes, and sets its modification time back.
fn overwrite(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].reverse();
    bytes[half] ^= 1;
    fs::write(path, &bytes).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn files_that_were_overwritten_between_runs_are_read_and_kept_anew() {
    let dataset = Dataset::folder(SAMPLES);
    let options = options(&dataset);
    let (delivered, tiers) = run(&dataset, &options);
    assert!(delivered == on_disk(&dataset));
    assert_eq!(
        (tiers.source.source_reads, tiers.source.looks),
        (SAMPLES as u64, SAMPLES as u64),
        "{tiers:?}"
    );
    let (delivered, tiers) = run(&dataset, &options);
    assert!(delivered == on_disk(&dataset));
    assert_eq!(
        (tiers.all().hits, tiers.source.looks, tiers.all().stale),
        (SAMPLES as u64, SAMPLES as u64, 0),
        "{tiers:?}"
    );
    for sample in (0..SAMPLES).step_by(3) {
        overwrite(&dataset.path(sample));
    }
    let changed = SAMPLES.div_ceil(3) as u64;
    let pipeline = dataset.pipeline(&options);
    let (delivered, tiers) = epoch(&pipeline, 0);
    assert!(delivered == on_disk(&dataset), "old bytes");
    assert_eq!((tiers.all().stale, tiers.source.source_reads), (changed, changed), "{tiers:?}");
    assert_eq!(tiers.all().hits, SAMPLES as u64 - changed, "what is as it was comes from the cache");
    let said = pipeline.index().notices().take();
    assert!(said.iter().any(|said| said.contains("have changed since") && said.contains(".jpg")), "{said:?}");
    let (delivered, tiers) = run(&dataset, &options);
    assert!(delivered == on_disk(&dataset));
    assert_eq!((tiers.all().hits, tiers.all().stale), (SAMPLES as u64, 0), "{tiers:?}");
}

#[test]
fn a_cache_of_which_most_is_of_former_files_makes_room() {
    let dataset = Dataset::folder(SAMPLES);
    let total = dataset.index().total_bytes();
    // The cache has room for the samples and their tables once, not twice.
    let options = with_cache(options(&dataset), |cache| cache.directory.size = Some(total * 3 / 2));
    run(&dataset, &options);
    for round in 0..3 {
        (0..SAMPLES).for_each(|sample| overwrite(&dataset.path(sample)));
        let (delivered, tiers) = run(&dataset, &options);
        assert!(delivered == on_disk(&dataset), "round {round}");
        assert!(tiers.all().held_bytes <= tiers.all().quota, "{tiers:?}");
        // Samples for which the old copies left no space are stored in the next epochs.
        run(&dataset, &options);
        let (delivered, tiers) = run(&dataset, &options);
        assert!(delivered == on_disk(&dataset), "round {round}");
        assert!(tiers.all().hits * 10 >= SAMPLES as u64 * 9, "round {round}: {tiers:?}");
    }
}

#[test]
fn what_changes_within_a_run_is_seen_by_the_next() {
    let dataset = Dataset::folder(SAMPLES);
    let options = options(&dataset);
    let pipeline = dataset.pipeline(&options);
    let before = on_disk(&dataset);
    assert!(epoch(&pipeline, 0).0 == before);
    (0..SAMPLES).for_each(|sample| overwrite(&dataset.path(sample)));
    let (delivered, tiers) = epoch(&pipeline, 1);
    assert!(delivered == before, "checked when it was read, whole as it was then");
    assert_eq!(
        (tiers.all().hits, tiers.source.looks),
        (SAMPLES as u64, 0),
        "looked at once a run: {tiers:?}"
    );
    drop(pipeline);
    assert!(run(&dataset, &options).0 == on_disk(&dataset));
}

#[test]
fn what_changes_while_it_is_read_is_not_kept() {
    let dataset = Dataset::folder(SAMPLES);
    let index = dataset.index();
    let store = Store::open(&StoreOptions::new(dataset.beside("cache"), 64 << 20), &index).unwrap();
    let files = on_disk(&dataset);
    let offer = |sample: u64| {
        let version = index.stat(index.extent(sample).file).unwrap().version();
        store.offer(0, sample, version, &files[&sample])
    };
    assert!((0..10).all(|sample| offer(sample) == Offer::Taken));
    (3..6).for_each(|sample| overwrite(&dataset.path(sample)));
    store.flush();
    let held: Vec<u64> = (0..10).filter(|&sample| store.locate(sample).is_some()).collect();
    assert_eq!(held, [0, 1, 2, 6, 7, 8, 9]);
    assert_eq!(store.stats().dropped_changed, 3);
    assert!(index.notices().take()[0].contains("change during training"));
}

/// Makes a cache whose copies of the first ten samples differ from their files, although the stamps are the same.
fn with_wrong_copies(dataset: &Dataset) {
    let index = dataset.index();
    let store = Store::open(&StoreOptions::new(dataset.beside("cache"), 64 << 20), &index).unwrap();
    for sample in 0..SAMPLES as u64 {
        let mut bytes = fs::read(dataset.path(sample as usize)).unwrap();
        if sample < 10 {
            bytes.reverse();
            // Keep the first bytes of an image.
            bytes[..3].copy_from_slice(&[0xff, 0xd8, 0xff]);
        }
        let version = index.stat(index.extent(sample).file).unwrap().version();
        store.offer(0, sample, version, &bytes);
    }
    store.flush();
}

#[test]
fn a_checksum_shows_what_no_stamp_shows() {
    let dataset = Dataset::folder(SAMPLES);
    with_wrong_copies(&dataset);
    let options = options(&dataset);
    let wrong = |delivered: &HashMap<u64, Vec<u8>>| {
        let files = on_disk(&dataset);
        files.iter().filter(|(sample, bytes)| delivered[sample] != **bytes).count()
    };
    assert_eq!(wrong(&run(&dataset, &options).0), 10, "a stamp cannot see it");
    let by_checksum = LoaderOptions { verify: Verify::Checksum, ..options.clone() };
    let pipeline = dataset.pipeline(&by_checksum);
    let (delivered, tiers) = epoch(&pipeline, 0);
    assert_eq!(wrong(&delivered), 0);
    assert_eq!((tiers.all().mismatched, tiers.source.source_reads), (10, SAMPLES as u64), "{tiers:?}");
    let said = pipeline.index().notices().take();
    assert!(said.iter().any(|said| said.contains("differs from the dataset")), "{said:?}");
    let (delivered, tiers) = epoch(&pipeline, 1);
    assert_eq!((wrong(&delivered), tiers.all().hits), (0, SAMPLES as u64), "compared once a run: {tiers:?}");
    drop(pipeline);
    assert_eq!(wrong(&run(&dataset, &options).0), 0, "copies that differed are stored again");
}

#[test]
fn no_stamp_of_an_immutable_dataset_is_compared() {
    let dataset = Dataset::folder(SAMPLES);
    let options = LoaderOptions { immutable: true, ..options(&dataset) };
    run(&dataset, &options);
    let before = on_disk(&dataset);
    overwrite(&dataset.path(7));
    let (delivered, tiers) = run(&dataset, &options);
    assert!(delivered == before, "what the user said is taken for true");
    assert_eq!((tiers.source.looks, tiers.all().hits), (0, SAMPLES as u64), "{tiers:?}");
    let (delivered, tiers) = run(&dataset, &LoaderOptions { immutable: false, ..options.clone() });
    assert!(delivered == on_disk(&dataset));
    assert_eq!(tiers.all().stale, 1, "copies made without a look later can be looked at");
    let both = LoaderOptions { verify: Verify::Checksum, ..options };
    assert!(both.validate().unwrap_err().to_string().starts_with("config: immutable: "));
}

#[test]
fn a_cache_that_cannot_be_used_ends_nothing() {
    let dataset = Dataset::folder(SAMPLES);
    fs::write(dataset.beside("cache"), "in the way").unwrap();
    let pipeline = dataset.pipeline(&options(&dataset));
    assert!(epoch(&pipeline, 0).0 == on_disk(&dataset));
    assert!(epoch(&pipeline, 1).0 == on_disk(&dataset));
    let said = pipeline.index().notices().take();
    assert!(
        said.len() == 1 && said[0].contains("directory cannot be used: create cache directory"),
        "{said:?}"
    );
    fs::remove_file(dataset.beside("cache")).unwrap();
    fs::create_dir(dataset.beside("cache")).unwrap();
    fs::write(dataset.beside("cache/lock"), "another program's").unwrap();
    let pipeline = dataset.pipeline(&options(&dataset));
    assert!(epoch(&pipeline, 0).0 == on_disk(&dataset));
    assert!(pipeline.index().notices().take()[0].contains("is not a lock file of Foreload"));
}

#[test]
fn substitutes_come_through_the_tiers_and_are_counted() {
    let dataset = Dataset::folder(SAMPLES);
    (0..9).for_each(|sample| dataset.spoil(10 * sample));
    let options = LoaderOptions { on_error: OnError::Skip, ..options(&dataset) };
    let pipeline = dataset.pipeline(&options);
    let (_, first) = epoch(&pipeline, 0);
    // Each of the nine spoiled samples is read, and at least one substitute for it.
    assert!(first.source.source_reads + first.all().hits >= SAMPLES as u64 + 9, "{first:?}");
    let mut source = 0;
    for number in 1..4 {
        let (_, tiers) = epoch(&pipeline, number);
        assert!(tiers.all().hits >= SAMPLES as u64 + 9 - tiers.source.source_reads, "{tiers:?}");
        source += tiers.source.source_reads;
    }
    assert_eq!(source, 0, "all is in the cache");
}

/// Rewrites the shard of sample 0 with the same number of bytes; one of its images differs.
fn rewrite_first_shard(dataset: &Dataset) {
    let index = dataset.index();
    let extent = index.extent(0);
    let path = dataset.path(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[extent.offset as usize..][20..40].reverse();
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_shard_that_changes_before_the_cache_is_opened_has_no_copies() {
    let dataset = Dataset::shards(SAMPLES, 30);
    let options = options(&dataset);
    run(&dataset, &options);
    let pipeline = dataset.pipeline(&options);
    let before = pipeline.index().extent(0);
    rewrite_first_shard(&dataset);
    let (delivered, tiers) = epoch(&pipeline, 0);
    let bytes = fs::read(dataset.path(0)).unwrap();
    assert!(delivered[&0] == bytes[before.offset as usize..][..before.length as usize], "old bytes");
    assert_eq!(tiers.all().hits, SAMPLES as u64 - 30, "{tiers:?}");
}

#[test]
fn a_run_with_an_old_index_gets_no_old_copies() {
    let dataset = Dataset::shards(SAMPLES, 30);
    let options = options(&dataset);
    run(&dataset, &options);
    // The first sample now has another class.
    let path = dataset.path(0);
    let mut bytes = fs::read(&path).unwrap();
    let class = 512;
    bytes[class] = if bytes[class] == b'0' { b'1' } else { b'0' };
    fs::write(&path, bytes).unwrap();
    let index = foreload::testing::dataset::IndexOptions {
        directory: Some(dataset.beside("index")),
        changed: foreload::testing::dataset::Changed::Warn,
        ..foreload::testing::dataset::IndexOptions::default()
    };
    let index = foreload::testing::dataset::DatasetIndex::open(&dataset.beside("data"), &index).unwrap();
    let config = LoaderOptions { on_error: OnError::Zero, ..options }.check(&index).unwrap();
    let pipeline = Pipeline::new(index.into(), config);
    let (delivered, tiers) = epoch(&pipeline, 0);
    assert!(
        (0..30).all(|sample| delivered[&sample].is_empty()),
        "a shard that differs is refused: {tiers:?}"
    );
    assert_eq!(tiers.all().hits, SAMPLES as u64 - 30, "{tiers:?}");
}
