//! A server gives the same dataset and batches as the directory that it serves.

use super::{Served, pipeline, two_epochs};
use crate::common::{Dataset, finished, small_images};
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use range_server::{EtagKind, IndexStyle, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const SAMPLES: usize = 90;

#[test]
fn served_directories_are_the_same_datasets() {
    let styles = [IndexStyle::Python, IndexStyle::Nginx, IndexStyle::Apache];
    let datasets =
        [Dataset::folder(SAMPLES), Dataset::shards(SAMPLES, 25), Dataset::folder(SAMPLES).packed()];
    for (dataset, index) in datasets.into_iter().zip(styles) {
        let expected = two_epochs(&dataset.pipeline(&small_images()));
        let fingerprint = dataset.index().fingerprint();
        let served = Served::with(dataset, Options { index, ..Options::default() });
        assert_eq!(served.index().fingerprint(), fingerprint);
        let pipeline = served.pipeline(&small_images());
        assert!(two_epochs(&pipeline) == expected, "{index:?}");
        let epoch = finished(&pipeline, 2);
        let reads = epoch.stats().reads;
        assert!(reads.requests >= SAMPLES as u64 && reads.requests == reads.reads, "{reads:?}");
        assert_eq!((reads.retries, reads.opens), (0, 0), "{reads:?}");
    }
}

#[test]
fn a_packed_dataset_needs_no_page_and_no_slash() {
    let dataset = Dataset::shards(SAMPLES, 30).packed();
    let expected = two_epochs(&dataset.pipeline(&small_images()));
    let served = Served::with(dataset, Options { index: IndexStyle::Off, ..Options::default() });
    for name in ["data", "data/"] {
        let index = served.open(&served.url(name)).unwrap();
        assert!(two_epochs(&pipeline(index, &small_images())) == expected, "{name}");
    }
    // The next start finds the index unchanged.
    let before = served.requests();
    served.index();
    assert!(served.requests() - before < 20, "{}", served.requests() - before);
}

#[test]
fn a_list_of_shards_is_the_directory_of_them() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let expected = two_epochs(&dataset.pipeline(&small_images()));
    let fingerprint = dataset.index().fingerprint();
    let served = Served::new(dataset);
    let host = served.server.url();
    let text = format!(
        "# shards\n{host}/data/shard-001.tar\nshard-000.tar\n\n../data/shard-003.tar\n./shard-002.tar\n"
    );
    served.write("data/list.txt", &text);
    let index = served.open(&served.url("data/list.txt")).unwrap();
    assert_eq!(index.fingerprint(), fingerprint);
    assert!(two_epochs(&pipeline(index, &small_images())) == expected);
}

#[test]
fn a_single_shard_is_the_file() {
    let dataset = Dataset::shards(25, 25);
    let options = IndexOptions { directory: Some(dataset.beside("one")), ..IndexOptions::default() };
    let local = DatasetIndex::open(&dataset.path(0), &options).unwrap();
    let served = Served::with(dataset, Options { etag: EtagKind::Off, ..Options::default() });
    let remote = served.open(&served.url("data/shard-000.tar")).unwrap();
    assert_eq!(remote.fingerprint(), local.fingerprint());
    let expected = two_epochs(&pipeline(Arc::new(local), &small_images()));
    assert!(two_epochs(&pipeline(remote, &small_images())) == expected);
}

#[test]
fn places_on_servers_and_on_file_systems_are_read_as_one() {
    let (near, far) = (Dataset::folder(40), Served::new(Dataset::folder(50)));
    let open = |roots: [PathBuf; 2], directory: &str| {
        let directory = Some(near.beside(directory));
        let options = IndexOptions { directory, ..IndexOptions::default() };
        Arc::new(DatasetIndex::open_all(&roots, &options, &Arc::new(AtomicBool::new(false))).unwrap())
    };
    let local = open([far.dataset.beside("data"), near.beside("data")], "both");
    let mixed = open([far.url("data").into(), near.beside("data")], "mixed");
    assert_eq!(local.fingerprint(), mixed.fingerprint());
    let mixed = pipeline(mixed, &small_images());
    assert!(two_epochs(&mixed) == two_epochs(&pipeline(local, &small_images())));
    let epoch = finished(&mixed, 2);
    let reads = epoch.stats().reads;
    assert_eq!((reads.requests, reads.opens), (50, 40), "{reads:?}");
}

#[test]
fn a_loader_resumes_in_the_middle_of_an_epoch() {
    let served = Served::new(Dataset::shards(SAMPLES, 25));
    let (whole, rest) = (served.pipeline(&small_images()), served.pipeline(&small_images()));
    let ids = |pipeline: &foreload::testing::pipeline::Pipeline, from| {
        let mut epoch = pipeline.epoch(1, 0, 1, from).unwrap();
        let mut ids = Vec::new();
        while let Some(batch) = epoch.next_batch().unwrap() {
            ids.push((batch.sample_ids().bytes().to_vec(), batch.images().bytes().to_vec()));
        }
        ids
    };
    assert!(ids(&whole, 0)[3..] == ids(&rest, 3));
}
