//! Datasets of files that are not images: any files below a directory, and the records of TFRecord shards.

use crate::common::scene::{Scene, bytes_of, masked, python, samples_are_found_by_extent, summary, tfrecord};
use crate::common::succeeds;
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOrigin, Layout};
use foreload::testing::io::{Direct, IoChoice, ReadRequest, open as open_reader, read_blocking};
use foreload::testing::slot::SlotPool;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;

fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.options.contents = Contents::Files;
    scene
}

/// The paths of samples below the root, and their labels.
fn samples(scene: &Scene, index: &DatasetIndex) -> Vec<(String, u32)> {
    let path = |sample| index.path(index.extent(sample).file);
    let below = |sample| path(sample).strip_prefix(&scene.root).unwrap().to_str().unwrap().to_owned();
    (0..index.len()).map(|sample| (below(sample), index.label(sample))).collect()
}

fn expect(found: &[(String, u32)], expected: &[(&str, u32)]) {
    let found: Vec<_> = found.iter().map(|(path, label)| (path.as_str(), *label)).collect();
    assert_eq!(found, expected);
}

#[test]
fn files_of_any_kind_by_directory() {
    let scene = scene();
    for path in ["b/2.npz", "b/1", "a/deep/er/x.bin", "a/y.jpg", "b/.hidden", ".git/config", "a/.d/e"] {
        scene.write(path, path.as_bytes());
    }
    scene.write("b/empty", b"");
    fs::create_dir(scene.root.join("c")).unwrap();
    symlink("nowhere", scene.root.join("a/link")).unwrap();
    let index = scene.open().unwrap();
    let found = samples(&scene, &index);
    expect(&found, &[("a/y.jpg", 0), ("a/deep/er/x.bin", 0), ("b/1", 1), ("b/2.npz", 1), ("b/empty", 1)]);
    assert_eq!(index.classes(), ["a", "b", "c"]);
    (0..4).for_each(|sample| assert_eq!(bytes_of(&index, sample), found[sample as usize].0.as_bytes()));
    let notes = summary(&index).notes;
    assert_eq!((notes.skipped["hidden files"].count, notes.unlabeled), (3, false));
    assert_eq!(notes.skipped["broken links and special files"].count, 1);
    assert_eq!(notes.empty_classes, ["c"]);
    samples_are_found_by_extent(&index);
}

#[test]
fn files_in_the_root_are_of_one_class() {
    let scene = scene();
    for path in ["x.npz", "a/1.npz", "a-b/1.npz", "a/b/1.npz", "notes.txt", ".hidden"] {
        scene.write(path, path.as_bytes());
    }
    let index = scene.open().unwrap();
    let found = samples(&scene, &index);
    expect(&found, &[("notes.txt", 0), ("x.npz", 0), ("a/1.npz", 0), ("a-b/1.npz", 0), ("a/b/1.npz", 0)]);
    assert!(index.classes().is_empty() && summary(&index).notes.unlabeled);
    assert_eq!(summary(&index).notes.skipped["hidden files"].count, 1);
    (0..5).for_each(|sample| assert_eq!(bytes_of(&index, sample), found[sample as usize].0.as_bytes()));
    samples_are_found_by_extent(&index);
}

#[test]
fn images_and_files_have_indices_of_their_own() {
    let mut scene = Scene::new();
    scene.write("a/1.jpg", b"1");
    scene.write("a/1.json", b"{}");
    let images = scene.open().unwrap();
    scene.options.contents = Contents::Files;
    let files = scene.open().unwrap();
    assert_eq!((images.len(), files.len()), (1, 2));
    let paths = [&images, &files].map(|index| summary(index).index_path);
    assert_ne!(paths[0], paths[1]);
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
    // An index in the place of another one is built again, not trusted.
    fs::copy(&paths[0], &paths[1]).unwrap();
    assert_eq!(scene.open().unwrap().len(), 2);
    fs::remove_file(scene.root.join("a/1.json")).unwrap();
    scene.options.rebuild = true;
    let same = scene.open().unwrap();
    scene.options.contents = Contents::Images;
    assert_ne!(same.fingerprint(), scene.open().unwrap().fingerprint());
}

#[test]
fn records_are_samples() {
    let scene = scene();
    let large = vec![7; 100_000];
    let many: Vec<Vec<u8>> = (0..500u32).map(|i| i.to_le_bytes().repeat(i as usize % 5)).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    scene.write("x.tfrecord-00001-of-00003", &tfrecord(&[b"one", b"", &large, b"four"]));
    scene.write("x.tfrecord-00000-of-00003", &tfrecord(&many));
    scene.write("x.tfrecord-00002-of-00003", b"");
    scene.write("x.tfrecord.idx", b"0 12");
    scene.write("dataset_info.json", b"{}");
    let index = scene.open().unwrap();
    let expected: Vec<&[u8]> = many.into_iter().chain([&b"one"[..], b"", &large, b"four"]).collect();
    assert_eq!(index.len(), expected.len() as u64);
    for (sample, expected) in (0..).zip(&expected) {
        assert_eq!(bytes_of(&index, sample), *expected, "sample {sample}");
    }
    let told = summary(&index);
    assert_eq!((told.layout, told.groups, told.notes.unlabeled), (Layout::TfRecord, 3, true));
    assert_eq!(told.notes.skipped["files beside TFRecord shards"].count, 2);
    assert!(index.is_sharded());
    samples_are_found_by_extent(&index);
    let shard = index.extent(500).file;
    assert_eq!(index.shard_stamp(shard).unwrap().size, fs::metadata(index.path(shard)).unwrap().len());
    let one = DatasetIndex::open(&index.path(shard), &scene.options).unwrap();
    assert_eq!((one.len(), bytes_of(&one, 3)), (4, b"four".to_vec()));
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
}

#[test]
fn damaged_shards_are_named_with_the_place() {
    let good = tfrecord(&[b"one", b"three"]);
    let error = |bytes: &[u8]| {
        let scene = scene();
        let path = scene.write("x.tfrecord", bytes);
        let error = scene.error();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        error
    };
    for (at, place) in [(0, "at byte 0"), (9, "at byte 0"), (19, "at byte 19"), (30, "at byte 19")] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(error(&bytes).contains(place), "{at}: {}", error(&bytes));
    }
    for length in (1..good.len()).filter(|&length| length != 19) {
        let error = error(&good[..length]);
        assert!(error.contains("truncated"), "{length}: {error}");
        assert!(error.contains(if length < 19 { "at byte 0" } else { "at byte 19" }), "{length}: {error}");
    }
    assert!(error(b"\x1f\x8b\x08 gzip").contains("compressed with gzip"));
    let long = u64::MAX.to_le_bytes();
    assert!(error(&[&long[..], &masked(&long)].concat()).contains("truncated"));
}

#[test]
fn files_of_4_gib_are_refused() {
    const LARGE: u64 = 1 << 32;
    let loose = scene();
    File::create(loose.write("a/large.bin", b"")).unwrap().set_len(LARGE).unwrap();
    assert!(loose.error().contains("large.bin") && loose.error().contains("4 GiB"), "{}", loose.error());
    let packed = scene();
    let length = LARGE.to_le_bytes();
    let path = packed.write("x.tfrecord", &[&length[..], &masked(&length)].concat());
    File::options().write(true).open(path).unwrap().set_len(LARGE + 16).unwrap();
    assert!(packed.error().contains("4 GiB or more"), "{}", packed.error());
}

#[test]
fn what_is_neither_files_nor_shards_is_refused() {
    let scene = scene();
    scene.write(".hidden", b"1");
    assert!(scene.error().contains("holds no file; found: 1 hidden files"), "{}", scene.error());
    scene.write("x.tfrecord", b"");
    assert!(scene.error().contains("hold no record"), "{}", scene.error());
    let record = tfrecord(&[b"one"]);
    scene.write("x.tfrecord", &record);
    scene.write("x.bin", b"1");
    assert!(scene.error().contains("x.bin") && scene.error().contains("x.tfrecord"), "{}", scene.error());
    fs::remove_file(scene.root.join("x.bin")).unwrap();
    scene.write("more/y.tfrecord", &record);
    assert!(scene.error().contains("several datasets can be given as a list"), "{}", scene.error());
    let file = scene.write("more/file.npz", b"1");
    let error = DatasetIndex::open(&file, &scene.options).err().unwrap().to_string();
    assert!(error.contains("neither a directory nor a .tfrecord"), "{error}");
}

#[test]
fn several_directories_of_files_and_records_are_one() {
    let (files, records) = (scene(), scene());
    files.write("a/1.npz", b"1");
    files.write("b/2.npz", b"22");
    records.write("x.tfrecord", &tfrecord(&[b"333", b"4444"]));
    let roots = [&files.root, &records.root];
    let index = DatasetIndex::open_all(&roots, &files.options, &Arc::default()).unwrap();
    let lengths: Vec<_> = (0..index.len()).map(|sample| index.extent(sample).length).collect();
    assert_eq!(lengths, [1, 2, 3, 4]);
    // Labels are ignored if only some of the datasets have them.
    assert!((0..4).all(|sample| index.label(sample) == 0) && index.classes().is_empty());
    assert!(!index.is_labeled() && index.num_classes() == 0);
    samples_are_found_by_extent(&index);
}

/// Every reader returns empty files and records as empty samples.
#[test]
fn readers_give_every_sample() {
    let (files, records) = (scene(), scene());
    files.write("empty", b"");
    files.write("large", &vec![3; 70_000]);
    records.write("x.tfrecord", &tfrecord(&[b"", b"four", &[5; 9000]]));
    let roots = [&files.root, &records.root];
    let index = Arc::new(DatasetIndex::open_all(&roots, &files.options, &Arc::default()).unwrap());
    for io in [IoChoice::Auto, IoChoice::Pread] {
        let slots = SlotPool::new(8 << 20).unwrap();
        let mut reader = open_reader(&index, &slots, io, Direct::Off, 8).unwrap();
        for sample in 0..index.len() {
            let extent = index.extent(sample);
            let slot = slots.try_take(extent.length as usize).expect("a slot");
            reader.submit(ReadRequest::new(sample, extent, slot));
        }
        let mut out = Vec::new();
        while out.len() < index.len() as usize {
            reader.wait(&mut out).unwrap();
        }
        for completion in out {
            let expected = bytes_of(&index, completion.token);
            assert!(completion.result.unwrap()[..] == *expected, "sample {}", completion.token);
            assert_eq!(read_blocking(&*index, index.extent(completion.token)).unwrap(), expected);
        }
    }
}

/// If TensorFlow is installed, the records that it writes are found.
#[test]
fn tensorflow_agrees() {
    const SCRIPT: &str = "
import sys, tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for i in range(100):
        writer.write(bytes([i]) * (i * 37 % 300))
";
    let Some(mut python) = python() else { return };
    let has_tensorflow = Command::new("python3").args(["-c", "import tensorflow"]).output();
    if !has_tensorflow.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no TensorFlow to compare with");
        return;
    }
    let scene = scene();
    let path = scene.root.join("x.tfrecord");
    succeeds(python.args(["-c", SCRIPT]).arg(&path));
    let index = scene.open().unwrap();
    assert_eq!(index.len(), 100);
    for i in 0..100u8 {
        assert_eq!(bytes_of(&index, u64::from(i)), vec![i; usize::from(i) * 37 % 300]);
    }
}
