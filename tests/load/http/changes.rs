//! An object that is replaced is noticed: when the dataset is opened, and while it is read.

use super::{Served, failure};
use crate::common::{Dataset, epoch_bytes, jpeg, small_images};
use foreload::testing::dataset::{Changed, DatasetIndex, IndexOptions};
use range_server::{EtagKind, Options};

const SAMPLES: usize = 60;

/// Opens the data with changes as errors.
fn strictly(served: &Served) -> foreload::Result<DatasetIndex> {
    let directory = Some(served.dataset.beside("http-index"));
    let options = IndexOptions { directory, changed: Changed::Refuse, ..IndexOptions::default() };
    DatasetIndex::open(served.url("data").as_ref(), &options)
}

#[test]
fn a_changed_shard_is_noticed_at_the_start() {
    for etag in [EtagKind::Strong, EtagKind::Weak, EtagKind::Off] {
        let served = Served::with(Dataset::shards(SAMPLES, 25), Options { etag, ..Options::default() });
        served.index();
        strictly(&served).unwrap();
        let shard = served.dataset.path(30);
        let bytes = std::fs::read(&shard).unwrap();
        // The same bytes with another time are the same dataset.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(100);
        std::fs::File::options().write(true).open(&shard).unwrap().set_modified(later).unwrap();
        strictly(&served).unwrap();
        std::fs::write(&shard, &bytes[..bytes.len() / 2]).unwrap();
        let error = strictly(&served).err().unwrap().to_string();
        assert!(error.contains("shard-001.tar"), "{etag:?}: {error}");
        std::fs::remove_file(&shard).unwrap();
        let error = strictly(&served).err().unwrap().to_string();
        assert!(error.contains("shard-001.tar"), "{etag:?}: {error}");
    }
}

#[test]
fn a_changed_class_is_noticed_at_the_start() {
    let served = Served::new(Dataset::folder(SAMPLES));
    served.index();
    strictly(&served).unwrap();
    std::fs::write(served.dataset.beside("data/class1/new.jpg"), jpeg(1)).unwrap();
    let error = strictly(&served).err().unwrap().to_string();
    assert!(error.contains("has a new file new.jpg"), "{error}");
}

#[test]
fn a_shard_that_changes_within_a_run_is_refused_or_accepted() {
    let dataset = Dataset::shards(SAMPLES, 25);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 1);
    let served = Served::new(dataset);
    let pipeline = served.pipeline(&small_images());
    epoch_bytes(&pipeline, 0);
    // A copy of the same bytes is the same shard.
    let shard = served.dataset.path(30);
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::remove_file(&shard).unwrap();
    std::fs::write(&shard, &bytes).unwrap();
    assert!(epoch_bytes(&pipeline, 1) == expected);
    served.fail(&["/data/shard-001.tar changed:always"]);
    let error = failure(&pipeline);
    assert!(error.contains("dataset changed") && error.contains("shard-001.tar"), "{error}");
}

#[test]
fn a_file_of_another_length_is_refused() {
    let served = Served::new(Dataset::folder(SAMPLES));
    let pipeline = served.pipeline(&small_images());
    std::fs::write(served.dataset.path(7), jpeg(1000)).unwrap();
    let error = failure(&pipeline);
    assert!(error.contains("dataset changed") && error.contains("bytes, was"), "{error}");
}

#[test]
fn a_copy_of_another_version_is_none() {
    let dataset = Dataset::folder(SAMPLES);
    let options = dataset.cached(4.0, small_images());
    let served = Served::new(dataset);
    let first = served.pipeline(&options);
    epoch_bytes(&first, 0);
    first.cache().expect("a cache").flush();
    drop(first);
    let path = served.dataset.path(7);
    let length = std::fs::metadata(&path).unwrap().len() as usize;
    let mut other = (7_000..).map(jpeg).find(|other| other.len() <= length).expect("there are smaller ones");
    other.resize(length, 0);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &other).unwrap();
    let expected = epoch_bytes(&served.dataset.pipeline(&small_images()), 0);
    assert!(epoch_bytes(&served.pipeline(&options), 0) == expected);
}

#[test]
fn a_server_without_versions_is_told_of_once() {
    let options = Options { etag: EtagKind::Off, last_modified: false, ..Options::default() };
    let served = Served::with(Dataset::shards(SAMPLES, 25), options);
    let index = served.index();
    let warnings = index.notices().take();
    let told = warnings.iter().filter(|warning| warning.contains("neither ETag nor Last-Modified")).count();
    assert_eq!(told, 1, "{warnings:?}");
}
