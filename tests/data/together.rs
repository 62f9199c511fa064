//! Several datasets as one: every sample is the same as in its own dataset, and labels are unified or refused.

use crate::common::scene::{Scene, bytes_of, samples_are_found_by_extent};
use crate::common::tar_of_samples;
use foreload::testing::dataset::{DatasetIndex, FileId, IndexOptions};
use foreload::{Error, Result};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory of images at these paths; each image holds its path.
pub fn folder(paths: &[&str]) -> Scene {
    let scene = Scene::new();
    paths.iter().for_each(|path| drop(scene.write(path, path.as_bytes())));
    scene
}

/// Shards of samples with these class numbers, two samples a shard; `None` has no label.
pub fn shards(labels: &[Option<u32>]) -> Scene {
    let scene = Scene::new();
    for (number, labels) in labels.chunks(2).enumerate() {
        let samples = labels.iter().enumerate().map(|(i, label)| {
            let image = ("jpg", format!("image {i} of shard {number}").into_bytes());
            let class = label.map(|label| ("cls", label.to_string().into_bytes()));
            (i.to_string(), [image].into_iter().chain(class))
        });
        scene.write(format!("s-{number:02}.tar"), &tar_of_samples(samples));
    }
    scene
}

pub fn open_all(scenes: &[&Scene]) -> Result<DatasetIndex> {
    let roots: Vec<PathBuf> = scenes.iter().map(|scene| scene.root.clone()).collect();
    DatasetIndex::open_all(&roots, &scenes[0].options, &Arc::default())
}

fn refusal(scenes: &[&Scene]) -> String {
    let Err(error) = open_all(scenes) else { panic!("opened") };
    let error = error.to_string();
    scenes.iter().for_each(|scene| assert!(error.contains(scene.root.to_str().unwrap()), "{error}"));
    error
}

fn labels(index: &DatasetIndex) -> Vec<u32> {
    (0..index.len()).map(|sample| index.label(sample)).collect()
}

#[test]
fn samples_and_files_are_those_of_the_parts_in_order() {
    let scenes = [
        folder(&["b/2.jpg", "b/1.jpg", "a/sub/1.png"]),
        folder(&["a/1.jpg", "b/long name.jpg"]),
        folder(&["a/x.jpg", "b/y.jpg"]),
    ];
    let whole = open_all(&[&scenes[0], &scenes[1], &scenes[2]]).unwrap();
    let mut sample = 0;
    let mut files = 0;
    for (scene, (root, range)) in scenes.iter().zip(whole.parts()) {
        let part = scene.open().unwrap();
        assert_eq!((root, range), (scene.root.as_path(), sample..sample + part.len()));
        for own in 0..part.len() {
            assert_eq!(bytes_of(&whole, sample), bytes_of(&part, own));
            assert_eq!(whole.label(sample), part.label(own));
            let file = whole.extent(sample).file;
            assert_eq!(file, FileId(files + part.extent(own).file.0));
            assert_eq!(whole.path(file), part.path(part.extent(own).file));
            assert_eq!(whole.samples_of(file), sample..sample + 1);
            sample += 1;
        }
        files += part.files().count() as u32;
    }
    assert_eq!((whole.len(), whole.files().count()), (sample, files as usize));
    samples_are_found_by_extent(&whole);
    whole.verify().unwrap();
    assert_eq!(whole.summaries().map(|summary| summary.samples).collect::<Vec<_>>(), [3, 2, 2]);
    assert_eq!(whole.total_bytes(), (0..whole.len()).map(|s| u64::from(whole.extent(s).length)).sum::<u64>());
    assert_eq!(whole.largest(), (0..whole.len()).map(|s| whole.extent(s).length).max().unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| whole.extent(sample))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| whole.path(FileId(files)))).is_err());
}

#[test]
fn shards_and_single_files_lie_side_by_side() {
    let (loose, packed) = (folder(&["a/1.jpg", "b/1.jpg", "c/1.jpg"]), shards(&[Some(2), Some(0), Some(1)]));
    for order in [[&loose, &packed], [&packed, &loose]] {
        let whole = open_all(&order).unwrap();
        samples_are_found_by_extent(&whole);
        assert_eq!(whole.files().count(), 5);
        assert!(!whole.is_sharded());
        let stamped = whole.files().filter(|&file| whole.shard_stamp(file).is_some()).count();
        assert_eq!(stamped, 2);
        // The class numbers of the shards count the names of the directories.
        assert_eq!(whole.classes(), ["a", "b", "c"]);
        let mut all = labels(&whole);
        all.sort_unstable();
        assert_eq!(all, [0, 0, 1, 1, 2, 2]);
        for sample in 0..whole.len() {
            let bytes = String::from_utf8(bytes_of(&whole, sample)).unwrap();
            assert!(bytes.starts_with("image") || bytes.ends_with("/1.jpg"), "{bytes}");
        }
    }
    assert!(open_all(&[&packed, &shards(&[Some(1)])]).unwrap().is_sharded());
}

#[test]
fn class_names_are_united_and_labels_follow() {
    let all = folder(&["a/1.jpg", "b/1.jpg", "c/1.jpg", "d/1.jpg"]);
    let some = folder(&["d/1.jpg", "b/1.jpg"]);
    let index = open_all(&[&some, &all]).unwrap();
    assert_eq!(index.classes(), ["a", "b", "c", "d"]);
    assert_eq!(labels(&index), [1, 3, 0, 1, 2, 3]);
    let other = folder(&["bb/1.jpg", "B/1.jpg"]);
    let index = open_all(&[&some, &other]).unwrap();
    assert_eq!(index.classes(), ["B", "b", "bb", "d"]);
    assert_eq!((labels(&index), index.num_classes()), (vec![1, 3, 0, 2], 4));
}

#[test]
fn numbers_stay_and_what_does_not_go_together_is_refused() {
    let numbers = shards(&[Some(0), Some(7)]);
    let index = open_all(&[&numbers, &shards(&[Some(3)])]).unwrap();
    assert_eq!((labels(&index), index.num_classes()), (vec![0, 7, 3], 8));
    assert!(index.classes().is_empty());
    // Class number 7 is not one of three names; and with two lists of names, class numbers are ambiguous.
    let three = folder(&["a/1.jpg", "b/1.jpg", "c/1.jpg"]);
    for scenes in [[&three, &numbers], [&numbers, &three]] {
        let error = refusal(&scenes);
        assert!(error.contains("class numbers without names") && error.contains("class names"), "{error}");
    }
    let few = shards(&[Some(0)]);
    open_all(&[&three, &few]).unwrap();
    assert!(open_all(&[&three, &few, &folder(&["a/1.jpg"])]).is_err());
    let unlabeled = shards(&[None, None]);
    for labeled in [&three, &few] {
        assert!(refusal(&[labeled, &unlabeled]).contains("no labels"));
    }
    let none = open_all(&[&unlabeled, &shards(&[None])]).unwrap();
    assert_eq!((labels(&none), none.is_labeled(), none.num_classes()), (vec![0, 0, 0], false, 0));
}

#[test]
fn one_root_is_as_before_and_the_order_of_several_matters() {
    let (one, two) = (folder(&["a/1.jpg", "b/1.jpg"]), folder(&["a/2.jpg"]));
    let key = |index: &DatasetIndex| (index.fingerprint(), index.identity());
    assert_eq!(key(&open_all(&[&one]).unwrap()), key(&one.open().unwrap()));
    let both = open_all(&[&one, &two]).unwrap();
    assert_eq!(key(&both), key(&open_all(&[&one, &two]).unwrap()));
    let others = [open_all(&[&two, &one]).unwrap(), one.open().unwrap(), two.open().unwrap()];
    assert!(others.iter().all(|other| other.fingerprint() != both.fingerprint()));
    // The version of the fingerprint must not change: caches and states of earlier versions depend on it.
    let known = "cb4b34053bf15f5aafec06fb9794fe5cd7adecbf8416bf81b1e39b9bdc07782d";
    assert_eq!(one.open().unwrap().fingerprint().to_string(), known);
}

#[test]
fn a_root_given_twice_or_none_is_refused() {
    let scene = folder(&["a/1.jpg"]);
    let link = scene.root.with_file_name("link");
    symlink(&scene.root, &link).unwrap();
    let open = |roots: &[PathBuf]| DatasetIndex::open_all(roots, &scene.options, &Arc::default());
    let error = open(&[scene.root.clone(), link.clone()]).err().unwrap().to_string();
    assert!(error.contains("given twice") && error.contains(link.to_str().unwrap()), "{error}");
    for roots in [[scene.root.clone(), scene.root.join("a")], [scene.root.join("a"), scene.root.clone()]] {
        let error = open(&roots).err().unwrap().to_string();
        assert!(error.contains("overlaps with"), "{error}");
    }
    assert!(matches!(open(&[]), Err(Error::Config { setting: "path", .. })));
    let missing = scene.root.join("missing");
    assert!(open(&[scene.root.clone(), missing]).err().unwrap().to_string().contains("missing"));
}

#[test]
fn opening_several_can_be_interrupted() {
    let scenes = [folder(&["a/1.jpg"]), folder(&["a/1.jpg"])];
    let roots = scenes.each_ref().map(|scene| scene.root.clone());
    scenes[0].open().unwrap();
    let cancel = Arc::new(AtomicBool::new(true));
    let options = IndexOptions { directory: scenes[0].options.directory.clone(), ..IndexOptions::default() };
    let error = DatasetIndex::open_all(&roots, &options, &cancel).err().unwrap().to_string();
    assert!(error.contains("interrupted") && error.contains(roots[1].to_str().unwrap()), "{error}");
    cancel.store(false, Ordering::Relaxed);
    DatasetIndex::open_all(&roots, &options, &cancel).unwrap();
}
