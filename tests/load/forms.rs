//! Copies that are converted to another storage format during training: batches keep the same bytes, tiers keep within
//! their quota, and consumers of encoded files get files.

use crate::common::{Dataset, epoch_bytes, finished, small_images, wait_for, with_cache};
use foreload::testing::config::{LoaderOptions, has_unwatched_quota};
use foreload::testing::dataset::Changed;
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::{CacheStats, FormChoice, Verify};
use foreload::{CacheChoice, RamChoice, TierName};
use std::time::Duration;

const SAMPLES: usize = 400;
/// A cache size, in multiples of the dataset, that has room for all samples in any storage format.
const ALL: f64 = 12.0;

/// The options of a tier in memory, or in a directory next to the data, with a size of `part` times the dataset.
fn in_tier(dataset: &Dataset, tier: TierName, part: f64, form: FormChoice) -> LoaderOptions {
    let options = dataset.cached(part, small_images());
    if tier == TierName::NVME {
        return with_cache(options, |cache| cache.directory.form = form);
    }
    let size = options.cache.directory.size.map(|size| size.max(16 << 20));
    LoaderOptions { cache: CacheChoice { ram: RamChoice { size, form }, ..Default::default() }, ..options }
}

fn stats(pipeline: &Pipeline) -> CacheStats {
    pipeline.cache().expect("a cache").stats()
}

/// Waits until `is_so` holds for the cache's counters.
fn wait_until(pipeline: &Pipeline, what: &str, is_so: impl Fn(&CacheStats) -> bool) {
    wait_for(what, || stats(pipeline), is_so);
}

/// Waits until no copy is left to convert.
fn wait_until_all_have_it(pipeline: &Pipeline) {
    wait_until(pipeline, "all copies have their form", |stats| {
        let all = stats.all();
        all.converted_samples + all.unconvertible_samples >= SAMPLES as u64
    });
}

#[test]
fn batches_are_the_same_in_every_form_and_tier() {
    let dataset = Dataset::folder(SAMPLES);
    let plain = dataset.pipeline(&small_images());
    let hashes: Vec<_> = (0..4).map(|number| epoch_bytes(&plain, number)).collect();
    for tier in [TierName::NVME, TierName::RAM] {
        for form in [FormChoice::Indexed, FormChoice::Packed, FormChoice::Auto] {
            let mut options = in_tier(&dataset, tier, ALL, form);
            let path = &mut options.cache.directory.path;
            *path = path.take().map(|_| dataset.beside(&format!("cache {form:?}")));
            let pipeline = dataset.pipeline(&options);
            for number in 0..3 {
                assert!(
                    epoch_bytes(&pipeline, number) == hashes[number as usize],
                    "{form:?}, epoch {number}"
                );
            }
            pipeline.cache().expect("a cache").flush();
            let whole = stats(&pipeline).tier(tier).held_samples;
            assert_eq!(whole, SAMPLES as u64, "{form:?} in {tier}");
            if form == FormChoice::Auto && has_unwatched_quota() {
                // Copies in this tier are converted only on request.
                continue;
            }
            wait_until_all_have_it(&pipeline);
            let before = stats(&pipeline);
            assert!(epoch_bytes(&pipeline, 3) == hashes[3], "{form:?} in {tier}");
            let since = stats(&pipeline).since(&before);
            assert_eq!((since.source.source_reads, since.all().fallbacks), (0, 0), "{form:?}: {since:?}");
        }
    }
}

#[test]
fn the_next_run_and_other_processes_find_the_form() {
    let dataset = Dataset::folder(SAMPLES);
    let options = in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed);
    let pipeline = dataset.pipeline(&options);
    let (first, other) = (pipeline, dataset.pipeline(&options));
    let hash = epoch_bytes(&first, 0);
    assert!(epoch_bytes(&other, 0) == hash);
    first.cache().expect("a cache").flush();
    wait_until(&first, "either has converted them", |stats| {
        let theirs = other.cache().expect("a cache").stats().all();
        let both = |of: fn(&foreload::testing::tier::TierStats) -> u64| of(&stats.all()) + of(&theirs);
        both(|tier| tier.converted_samples) + both(|tier| tier.unconvertible_samples) >= SAMPLES as u64
    });
    // Old segments stay until all readers know the new ones.
    wait_until(&first, "former segments are gone", |stats| stats.all().held_bytes < stats.all().quota / 6);
    drop((first, other));
    for form in [FormChoice::Packed, FormChoice::AsIs] {
        let pipeline = dataset.pipeline(&with_cache(options.clone(), |cache| cache.directory.form = form));
        assert!(epoch_bytes(&pipeline, 0) == hash, "{form:?}");
        let found = stats(&pipeline);
        assert_eq!((found.source.source_reads, found.all().converted_samples), (0, 0), "{form:?}: {found:?}");
        let kept = found.all();
        assert!(kept.bytes != dataset.index().total_bytes(), "{form:?}: copies are packed: {kept:?}");
    }
}

#[test]
fn copies_with_an_index_are_packed_by_a_run_that_wants_that() {
    let dataset = Dataset::folder(SAMPLES);
    let plain = dataset.pipeline(&small_images());
    for form in [FormChoice::Indexed, FormChoice::Packed] {
        let pipeline = dataset.pipeline(&in_tier(&dataset, TierName::NVME, ALL, form));
        assert!(epoch_bytes(&pipeline, 0) == epoch_bytes(&plain, 0), "{form:?}");
        pipeline.cache().expect("a cache").flush();
        wait_until_all_have_it(&pipeline);
        assert!(stats(&pipeline).all().converted_samples > 0, "{form:?}");
        assert!(epoch_bytes(&pipeline, 1) == epoch_bytes(&plain, 1), "{form:?}");
    }
}

#[test]
fn a_small_quota_holds_at_every_instant() {
    let dataset = Dataset::folder(15 * SAMPLES);
    let plain = dataset.pipeline(&small_images());
    let packed = in_tier(&dataset, TierName::NVME, 1.0, FormChoice::Packed);
    let options = with_cache(packed, |cache| cache.directory.size = Some(9 << 20));
    assert!(dataset.index().total_bytes() > 9 << 20, "the cache has room for a part");
    let pipeline = dataset.pipeline(&options);
    for number in 0..4 {
        assert!(epoch_bytes(&pipeline, number) == epoch_bytes(&plain, number), "epoch {number}");
        let all = stats(&pipeline).all();
        assert!(all.held_bytes <= all.quota, "{all:?}");
    }
    wait_until(&pipeline, "some are packed", |stats| stats.all().converted_samples > 0);
    assert!(epoch_bytes(&pipeline, 4) == epoch_bytes(&plain, 4));
}

#[test]
fn a_tiny_cache_keeps_copies_as_they_are_and_says_so() {
    let dataset = Dataset::folder(SAMPLES);
    let options = in_tier(&dataset, TierName::NVME, 1.0, FormChoice::Packed);
    let pipeline = dataset.pipeline(&with_cache(options, |cache| cache.directory.size = Some(1 << 20)));
    epoch_bytes(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    let all = stats(&pipeline).all();
    assert!(all.held_bytes > all.quota / 2 && all.converted_samples == 0, "{all:?}");
    let told = pipeline.index().notices().take();
    assert!(told.iter().any(|text| text.contains("too small to convert")), "{told:?}");
}

#[test]
fn files_come_from_packed_copies_as_they_were() {
    let dataset = Dataset::folder(SAMPLES);
    let files =
        LoaderOptions { decoded: false, ..in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed) };
    let plain = LoaderOptions { cache: CacheChoice::default(), ..files.clone() };
    let (pipeline, plain) = (dataset.pipeline(&files), dataset.pipeline(&plain));
    epoch_bytes(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    wait_until_all_have_it(&pipeline);
    let (mut epoch, mut expected) = (pipeline.epoch(1, 0, 1, 0).unwrap(), plain.epoch(1, 0, 1, 0).unwrap());
    while let Some(batch) = epoch.next_batch().unwrap() {
        let other = expected.next_batch().unwrap().expect("as many batches");
        for (file, original) in batch.encoded().iter().zip(other.encoded()) {
            assert!(file.bytes() == original.bytes());
        }
    }
    assert!(epoch.stats().rebuilt > 0, "they were packed");
}

#[test]
fn what_is_converted_between_epochs_is_in_the_numbers_of_the_next() {
    let dataset = Dataset::folder(SAMPLES);
    let pipeline = dataset.pipeline(&in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed));
    epoch_bytes(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    wait_until_all_have_it(&pipeline);
    let epoch = finished(&pipeline, 1);
    let (of_epoch, all) = (epoch.stats().cache.all(), stats(&pipeline).all());
    assert!(
        of_epoch.converted_samples > 0 && of_epoch.converted_samples == all.converted_samples,
        "{of_epoch:?}"
    );
    assert_eq!(of_epoch.unconvertible_samples, all.unconvertible_samples);
}

#[test]
fn a_changed_file_is_not_served_from_its_packed_copy() {
    let dataset = Dataset::folder(SAMPLES);
    let options = LoaderOptions {
        changed: Changed::Warn,
        ..in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed)
    };
    let pipeline = dataset.pipeline(&options);
    epoch_bytes(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    wait_until_all_have_it(&pipeline);
    drop(pipeline);
    // Another image of the same length, so that the index does not change.
    let mut other = std::fs::read(dataset.path(5)).unwrap();
    let comment = other.len() - 3;
    other[comment] ^= 1;
    std::fs::write(dataset.path(5), &other).unwrap();
    let pipeline = dataset.pipeline(&options);
    let plain = dataset.pipeline(&small_images());
    assert!(epoch_bytes(&pipeline, 1) == epoch_bytes(&plain, 1));
    assert_eq!(stats(&pipeline).all().stale, 1);
}

#[test]
fn a_form_that_cannot_be_is_told() {
    let dataset = Dataset::folder(40);
    let packed = in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed);
    let pipeline = dataset.pipeline(&LoaderOptions { verify: Verify::Checksum, ..packed });
    epoch_bytes(&pipeline, 0);
    let told = pipeline.index().notices().take();
    assert!(told.iter().any(|text| text.contains("are not converted to packed")), "{told:?}");
}

#[test]
fn what_another_dataset_keeps_does_not_leave_for_another_form() {
    if has_unwatched_quota() {
        // Copies in this tier are converted only on request.
        return;
    }
    let (first, second) = (Dataset::folder(SAMPLES), Dataset::folder(SAMPLES));
    let shared = with_cache(in_tier(&first, TierName::NVME, 1.0, FormChoice::AsIs), |cache| {
        cache.directory.size = Some(first.index().total_bytes() * 5 / 2);
    });
    let kept = |dataset: &Dataset, form| {
        let pipeline = dataset.pipeline(&with_cache(shared.clone(), |cache| cache.directory.form = form));
        for number in 0..2 {
            epoch_bytes(&pipeline, number);
        }
        pipeline.cache().expect("a cache").flush();
        pipeline
    };
    drop(kept(&first, FormChoice::AsIs));
    let pipeline = kept(&second, FormChoice::Auto);
    let described = pipeline.cache().expect("a cache").describe();
    assert!(described.contains("nvme packed"), "all would fit alone: {described}");
    // The quota suffices for some copies in both formats. Whether there is space for another segment or not, the
    // segments of the first dataset stay.
    std::thread::sleep(Duration::from_millis(500));
    epoch_bytes(&pipeline, 2);
    drop(pipeline);
    let pipeline = kept(&first, FormChoice::AsIs);
    assert_eq!(stats(&pipeline).source.source_reads, 0, "nothing had left");
}

/// Reads an epoch of files and returns their number.
fn files_of(pipeline: &Pipeline, number: u64) -> usize {
    let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
    std::iter::from_fn(|| epoch.next_batch().unwrap()).map(|batch| batch.encoded().iter().len()).sum()
}

#[test]
fn the_memory_asked_for_suffices_for_files_from_a_cache() {
    let dataset = Dataset::folder(64);
    for sample in 0..64 {
        let mut bytes = std::fs::read(dataset.path(sample)).unwrap();
        bytes.resize(300_000, 0);
        std::fs::write(dataset.path(sample), bytes).unwrap();
    }
    let dataset = dataset.indexed_anew();
    let files = LoaderOptions {
        decoded: false,
        memory: Some(1000),
        batch_size: 32,
        ..in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed)
    };
    let error = files.check(&dataset.index()).unwrap_err().to_string();
    let least = error.split("at least ").nth(1).and_then(|rest| rest.split(':').next()).expect("a number");
    let pipeline = dataset.pipeline(&LoaderOptions { memory: Some(least.parse().unwrap()), ..files });
    for number in 0..2 {
        assert_eq!(files_of(&pipeline, number), 64, "epoch {number}");
    }
}

#[test]
fn files_that_have_no_forms_are_counted_and_stay() {
    let dataset = Dataset::folder(40);
    for sample in 0..40 {
        let bytes = [b"\x89PNG\r\n\x1a\n".as_slice(), &[sample as u8; 3000]].concat();
        std::fs::write(dataset.path(sample), bytes).unwrap();
    }
    let dataset = dataset.indexed_anew();
    let packed = in_tier(&dataset, TierName::NVME, ALL, FormChoice::Packed);
    let packed = with_cache(packed, |cache| cache.directory.size = Some(1 << 24));
    let pipeline = dataset.pipeline(&LoaderOptions { decoded: false, ..packed });
    files_of(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    wait_until(&pipeline, "all are counted", |stats| stats.all().unconvertible_samples == 40);
    assert_eq!((files_of(&pipeline, 1), stats(&pipeline).all().converted_samples), (40, 0));
}
