//! With a cache that holds everything, later epochs and runs request no bytes from the server.

use super::Served;
use crate::common::{Dataset, epoch_bytes, finished, small_images, wait_for, with_cache};
use foreload::CacheChoice;
use foreload::testing::config::LoaderOptions;
use foreload::testing::tier::FillChoice;

const SAMPLES: usize = 80;

#[test]
fn later_epochs_and_runs_make_no_requests() {
    for dataset in [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25), Dataset::folder(SAMPLES).packed()]
    {
        let expected: Vec<_> = {
            let plain = dataset.pipeline(&small_images());
            (0..3).map(|number| epoch_bytes(&plain, number)).collect()
        };
        let options = dataset.cached(4.0, small_images());
        let sharded = dataset.index().is_sharded();
        let served = Served::new(dataset);
        for run in 0..3 {
            // The requests of the start are counted separately.
            let pipeline = served.pipeline(&options);
            let started = served.gets();
            for number in 0..3 {
                let before = served.requests();
                assert!(
                    epoch_bytes(&pipeline, number) == expected[number as usize],
                    "run {run}, epoch {number}"
                );
                let made = served.requests() - before;
                pipeline.cache().expect("a cache").flush();
                match (run, number) {
                    (0, 0) => assert!(made >= SAMPLES as u64, "{made}"),
                    // A run checks once the versions of files, and those of shards when the cache is opened.
                    (_, 0) if sharded => assert_eq!(served.gets(), started, "run {run}"),
                    (_, 0) => assert_eq!((made, served.gets()), (SAMPLES as u64, started), "run {run}"),
                    _ => assert_eq!(made, 0, "run {run}, epoch {number}"),
                }
            }
        }
    }
}

#[test]
fn memory_is_a_cache_too() {
    let dataset = Dataset::folder(SAMPLES);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 1);
    let options = LoaderOptions { cache: CacheChoice::in_ram(64 << 20), ..small_images() };
    let served = Served::new(dataset);
    let pipeline = served.pipeline(&options);
    epoch_bytes(&pipeline, 0);
    pipeline.cache().expect("a cache").flush();
    let before = served.requests();
    assert!(epoch_bytes(&pipeline, 1) == expected);
    assert_eq!(served.requests(), before);
}

#[test]
fn requests_of_staging_are_counted_with_those_of_samples() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let options =
        with_cache(dataset.cached(4.0, small_images()), |cache| cache.directory.fill = FillChoice::Ahead);
    let served = Served::new(dataset);
    let pipeline = served.pipeline(&options);
    let before = served.gets();
    let epoch = finished(&pipeline, 0);
    // A request that is in flight when the epoch ends is counted when its response arrives.
    let requests = || {
        let staged = pipeline.cache().expect("a cache").stats().source.staged_requests;
        (epoch.stats().reads.requests, staged, served.gets() - before)
    };
    let are_counted = |&(read, staged, made): &_| read + staged == made && staged > 0;
    wait_for("requests of samples and of staging are all that were made", requests, are_counted);
}
