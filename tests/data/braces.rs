//! Roots with braces list shards: the dataset equals that of a directory with only these shards.

use crate::common::scene::{Scene, bytes_of, samples_are_found_by_extent, summary, tfrecord};
use crate::common::tar_of;
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions, Layout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A tar shard of an image with a label.
fn shard(number: usize) -> Vec<u8> {
    tar_of([
        (format!("{number}.jpg"), format!("image {number}")),
        (format!("{number}.cls"), number.to_string()),
    ])
}

/// Five shards.
fn scene() -> Scene {
    let scene = Scene::new();
    for number in 0..5 {
        scene.write(format!("train-{number:03}.tar"), &shard(number));
    }
    scene
}

fn open(scene: &Scene, pattern: &str) -> foreload::Result<DatasetIndex> {
    DatasetIndex::open(&scene.root.join(pattern), &scene.options)
}

fn error(scene: &Scene, pattern: &str) -> String {
    open(scene, pattern).err().expect("an error").to_string()
}

fn images(index: &DatasetIndex) -> Vec<Vec<u8>> {
    (0..index.len()).map(|sample| bytes_of(index, sample)).collect()
}

#[test]
fn listed_shards_are_the_dataset_of_their_directory() {
    let scene = scene();
    let whole = scene.open().unwrap();
    for pattern in ["train-{000..004}.tar", "train-{004..000}.tar", "train-00{3,1,{0,2},4}.tar"] {
        let index = open(&scene, pattern).unwrap();
        assert_eq!(index.fingerprint(), whole.fingerprint(), "{pattern}");
        assert_eq!(images(&index), images(&whole));
        assert_eq!(summary(&index).layout, Layout::Tar);
        samples_are_found_by_extent(&index);
        // The dataset is found again, with its own index.
        let again = open(&scene, pattern).unwrap();
        assert_eq!(summary(&again).origin, foreload::testing::dataset::IndexOrigin::Loaded);
    }
    let some = open(&scene, "train-{000..004..2}.tar").unwrap();
    assert_eq!(images(&some), ["image 0", "image 2", "image 4"].map(|text| text.as_bytes().to_vec()));
    assert_ne!(some.fingerprint(), whole.fingerprint());
}

#[test]
fn shards_of_several_directories_and_of_records() {
    let scene = Scene::new();
    for (place, number) in [("a/x", 0), ("b/x", 1), ("b/y", 2)] {
        scene.write(format!("{place}.tar"), &shard(number));
        scene.write(format!("{place}.tfrecord"), &tfrecord(&[b"one", b"two"]));
    }
    assert_eq!(images(&open(&scene, "{b/{x,y},a/x}.tar").unwrap()), [b"image 0", b"image 1", b"image 2"]);
    let options = IndexOptions { contents: Contents::Files, ..scene.options.clone() };
    let records = DatasetIndex::open(&scene.root.join("{a,b}/x.tfrecord"), &options).unwrap();
    assert_eq!(images(&records), [b"one", b"two", b"one", b"two"]);
}

#[test]
fn a_name_that_exists_is_taken_as_it_is() {
    let scene = Scene::new();
    scene.write("{a,b}/0.tar", &shard(0));
    scene.write("{a,b}/1.tar", &shard(1));
    assert_eq!(images(&open(&scene, "{a,b}").unwrap()), [b"image 0", b"image 1"]);
    assert_eq!(images(&open(&scene, "{a,b}/{0..1}.tar").unwrap()), [b"image 0", b"image 1"]);
    scene.write("{0..1}.tar", &shard(7));
    assert_eq!(images(&open(&scene, "{0..1}.tar").unwrap()), [b"image 7"]);
    scene.write("x::y.tar", &shard(8));
    assert_eq!(images(&open(&scene, "x::y.tar").unwrap()), [b"image 8"]);
}

#[test]
fn what_cannot_be_a_list_of_shards_is_refused() {
    let scene = scene();
    scene.write("a.jpg", b"?");
    scene.write("a.tar.xz", b"?");
    scene.write("a.tfrecord", b"?");
    for (pattern, said) in [
        ("train-{000..005}.tar", "train-005.tar: does not exist, but "),
        ("{a,b}.jpg", "a.jpg: is not a shard such as .tar or .parquet"),
        ("{a,b}.tar.xz", "a.tar.xz: is a compressed tar"),
        ("{train-000.tar,a.tfrecord}", "is one of tar shards, but a.tfrecord is one of TFRecord shards"),
        ("train-{000,000}.tar", "expands to train-000.tar twice"),
        ("{a,..}/x.tar", "expands to \"../x.tar\""),
        ("{1..2000000}.tar", "more than 1000000 names"),
        ("train-000.tar::train-001.tar", "joins several paths or URLs with `::`"),
    ] {
        let error = error(&scene, pattern);
        assert!(error.contains(said), "{pattern}: {error}");
    }
    let piped = DatasetIndex::open(Path::new("pipe:cat x.tar"), &scene.options).err().unwrap().to_string();
    assert!(piped.contains("is a shell command (pipe:), which Foreload does not run"), "{piped}");
    let none = DatasetIndex::open(Path::new("/nowhere/{a,b}.tar"), &scene.options).err().unwrap().to_string();
    assert!(none.contains("/nowhere"), "{none}");
}

#[test]
fn what_lies_in_two_lists_is_not_read_twice() {
    let scene = scene();
    let together = |patterns: &[&str]| {
        let roots: Vec<_> = patterns.iter().map(|pattern| scene.root.join(pattern)).collect();
        DatasetIndex::open_all(&roots, &scene.options, &Arc::new(AtomicBool::new(false)))
    };
    assert_eq!(together(&["train-{000..002}.tar", "train-{003..004}.tar"]).unwrap().len(), 5);
    for patterns in [
        &["train-{000..002}.tar", "train-{002..004}.tar"][..],
        &["train-001.tar", "train-{000..002}.tar"],
        &["train-{000..002}.tar", "train-001.tar"],
        &["", "train-{000..002}.tar"],
        &["train-{000..002}.tar", ""],
    ] {
        assert!(together(patterns).is_err(), "{patterns:?}");
    }
}

#[test]
fn changes_of_listed_shards_are_noticed() {
    let scene = scene();
    let pattern = "train-{001..002}.tar";
    let before = open(&scene, pattern).unwrap().fingerprint();
    scene.write("train-000.tar", &shard(17));
    assert_eq!(open(&scene, pattern).unwrap().fingerprint(), before, "another shard");
    scene.write("train-001.tar", &shard(18));
    assert_eq!(images(&open(&scene, pattern).unwrap()), [b"image 18".to_vec(), b"image 2".to_vec()]);
    std::fs::remove_file(scene.root.join("train-002.tar")).unwrap();
    assert!(error(&scene, pattern).contains("train-002.tar: does not exist"));
}
