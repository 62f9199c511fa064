//! Datasets of every layout written as tar shards, read by other tar programs and by Foreload.

use super::tables::{examples, fixture, mds};
use super::{Scene, odd_folder, tree};
use crate::common::scene::{bytes_of, tfrecord};
use crate::common::tables::{Feature, example};
use crate::common::{Killable, jpeg, printed_seed};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::rng::{RandomKey, Use};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// The members of all shards in a directory, in order.
pub(super) fn members(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
    names.sort();
    let mut found = Vec::new();
    for path in names {
        let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().mtime().unwrap()), (0, 0));
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            found.push((entry.path().unwrap().to_str().unwrap().to_owned(), bytes));
        }
    }
    found
}

fn index(scene: &Scene, root: &Path, without_labels: bool) -> DatasetIndex {
    let directory = Some(scene.path("index"));
    let options =
        IndexOptions { directory, without_labels, contents: Contents::Images, ..Default::default() };
    DatasetIndex::open(root, &options).unwrap()
}

/// Checks that two datasets have the same images and labels in the same order.
fn same_samples(scene: &Scene, one: &Path, other: &Path) {
    let [one, other] = [one, other].map(|root| index(scene, root, false));
    assert_eq!(one.len(), other.len());
    for sample in 0..one.len() {
        assert_eq!(one.label(sample), other.label(sample));
        assert!(bytes_of(&one, sample) == bytes_of(&other, sample), "sample {sample}");
    }
}

#[test]
fn of_several_images_each_keeps_the_name_of_its_column() {
    let scene = Scene::new();
    let record = |number: u64| {
        let features = [("annotation", jpeg(number)), ("photo", jpeg(100 + number))];
        example(&features.map(|(name, bytes)| (name, Feature::bytes(bytes))))
    };
    let records: Vec<Vec<u8>> = (0..3).map(record).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    scene.write("data/x.tfrecord", &tfrecord(&records));
    scene.json("pack", "data", "tars", &["--to", "tar"]);
    let found: BTreeMap<String, Vec<u8>> = members(&scene.path("tars")).into_iter().collect();
    assert!(found["000000002.photo.jpg"] == jpeg(102) && found["000000002.annotation.jpg"] == jpeg(2));
    assert_eq!(found.len(), 6, "{:?}", found.keys());
}

#[test]
fn class_directories_keep_names_order_and_classes() {
    let scene = Scene::new();
    odd_folder(&scene);
    let report = scene.json("pack", "data", "tars", &["--to", "tar", "--shard-size", "4000"]);
    assert!(report["shards"].as_u64().unwrap() > 2 && report["without_image"] == 0);
    same_samples(&scene, &scene.path("data"), &scene.path("tars"));
    assert_eq!(fs::read_to_string(scene.path("tars/classes.txt")).unwrap(), "cat\ndog\nnone\n");
    let names: Vec<String> = members(&scene.path("tars")).into_iter().map(|(name, _)| name).collect();
    for name in
        ["cat/0.jpeg", "cat/0_2.jpg", "cat/0.cls", "dog/a_b_c.jpeg", "dog/\u{fc}_.jpg", "cat/deep/er/__.jpg"]
    {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    // Tar shards of the packed dataset equal tar shards of its source, and packing tars loses nothing.
    scene.json("pack", "data", "packed", &["--shard-size", "3000"]);
    // The size of a shard is estimated from the dataset's bytes, so there is one shard here.
    scene.json("pack", "packed", "tars of packed", &["--to", "tar"]);
    scene.json("pack", "data", "one tar", &["--to", "tar"]);
    // The name of the source differs, and nothing else.
    let [mut one, mut other] = ["tars of packed", "one tar"].map(|name| tree(&scene.path(name)));
    assert!(one.remove(&b"foreload-tars.json"[..]).is_some());
    assert!(other.remove(&b"foreload-tars.json"[..]).is_some());
    assert!(one == other);
    scene.json("pack", "tars", "packed tars", &[]);
    // No file is overwritten.
    scene.write("other/x.tar", b"");
    let said = scene.error("pack", "data", "other", &["--to", "tar", "--shard-size", "4000"]);
    assert!(said.contains("contains something else"), "{said}");
    let said = scene.error("pack", "data", "packed", &["--to", "tar"]);
    assert!(said.contains("contains a packed dataset"), "{said}");
    let said = scene.error("pack", "data", "files", &["--to", "tar", "--files"]);
    assert!(said.contains("not of files of any kind"), "{said}");
}

#[test]
fn names_are_safe_and_keys_of_a_shard_differ() {
    let scene = Scene::new();
    for (shard, names) in
        [("a", ["../../x.jpg", "/etc/y.jpg", "0.jpg"]), ("b", ["0.jpg", "0_2.jpg", "./0/1.JPG"])]
    {
        let mut archive = Vec::new();
        for (number, name) in names.iter().enumerate() {
            // The crate that writes tars refuses such names.
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            let image = jpeg(number as u64);
            header.set_size(image.len() as u64);
            header.set_entry_type(tar::EntryType::Regular);
            header.set_mode(0o644);
            header.set_cksum();
            archive.extend(header.as_bytes());
            archive.extend(&image);
            archive.resize(archive.len().next_multiple_of(512), 0);
        }
        archive.extend([0; 1024]);
        scene.write(format!("data/{shard}.tar"), &archive);
    }
    scene.json("pack", "data", "tars", &["--to", "tar"]);
    let names: Vec<String> = members(&scene.path("tars")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x.jpg", "etc/y.jpg", "0.jpg", "0_2.jpg", "0_2_2.jpg", "0/1.jpg"]);
    let [one, other] = ["data", "tars"].map(|root| index(&scene, &scene.path(root), true));
    (0..6).for_each(|sample| assert!(bytes_of(&one, sample) == bytes_of(&other, sample)));
}

#[test]
fn columns_of_tables_become_members() {
    let scene = Scene::new();
    mds(&scene, "mds");
    let report = scene.json("pack", "mds", "tars", &["--to", "tar", "--shard-size", "4000"]);
    assert_eq!((report["samples"].as_u64(), report["without_image"].as_u64()), (Some(10), Some(0)));
    same_samples(&scene, &scene.path("mds"), &scene.path("tars"));
    let found: BTreeMap<String, Vec<u8>> = members(&scene.path("tars")).into_iter().collect();
    let text = |name: &str| String::from_utf8(found[name].clone()).unwrap();
    assert_eq!(text("000000004.caption.txt"), "picture 4");
    assert_eq!((text("000000004.cls"), text("000000004.json")), ("1".into(), "{\"label\": 1}".into()));
    assert_eq!(text("000000004.meta.json"), "{\"id\": 4}");
    assert_eq!(found["000000004.jpg"], jpeg(4));
    assert_eq!(found["000000004.mask.png"], crate::common::png(4));
    assert!(found.keys().all(|name| name.len() < 30) && !scene.path("tars/classes.txt").exists());

    examples(&scene, "examples", 30);
    let report = scene.json("pack", "examples", "with gaps", &["--to", "tar"]);
    // Samples 5, 12, 19 and 26 have no image.
    assert_eq!(report["without_image"], 4, "{report}");
    assert!(report["columns_left_out"]["boxes"].as_str().unwrap().contains("lists of"), "{report}");
    assert!(report["notices"][0]["message"].as_str().unwrap().contains("4 samples have no image"));
    let found: BTreeMap<String, Vec<u8>> = members(&scene.path("with gaps")).into_iter().collect();
    let text = |name: &str| String::from_utf8(found[name].clone()).unwrap();
    let numbers =
        "{\"Weight\": 0.125, \"box\": [1.0, 1.0], \"counts\": [1, -1, 3], \"height\": 1001, \"label\": 1}";
    assert_eq!(text("000000001.json"), numbers);
    assert_eq!(text("000000001.caption_en.txt"), "picture 1");
    assert_eq!(text("000000012.json"), "{\"height\": -7, \"label\": 2}");
    assert!(!found.contains_key("000000005.jpg") && !found.contains_key("000000000.caption_en.txt"));
    assert_eq!(found["000000000.depth.bin"], b"\x00\x01\xfe no image");

    let datasets = fixture("parquet/datasets");
    let into = scene.path("classes");
    assert!(
        scene.command("pack", datasets.as_ref(), &into, &["--to", "tar"]).output().unwrap().status.success()
    );
    same_samples(&scene, datasets.as_ref(), &into);
    let names = index(&scene, datasets.as_ref(), false).classes().join("\n") + "\n";
    assert_eq!(fs::read_to_string(into.join("classes.txt")).unwrap(), names);
    let imagenet = fixture("imagenet/train");
    let tars = fs::read_dir(&imagenet).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let into = scene.path("inner");
    assert!(scene.command("pack", &tars, &into, &["--to", "tar"]).output().unwrap().status.success());
    same_samples(&scene, &tars, &into);
}

#[test]
fn a_run_that_was_killed_is_gone_on_with_and_makes_the_same_bytes() {
    let scene = Scene::new();
    let images: Vec<Vec<u8>> = (0..20).map(jpeg).collect();
    (0..600).for_each(|number| {
        scene.write(format!("data/c{}/{number:04}.jpg", number % 3), &images[number % 20])
    });
    let more = ["--to", "tar", "--shard-size", "20000", "--threads", "2"];
    let began = Instant::now();
    scene.json("pack", "data", "whole", &more);
    let whole = began.elapsed();
    let expected = tree(&scene.path("whole"));
    let seed = printed_seed();
    let mut random = RandomKey::new(b"tars", seed, 0, Use::Size).stream(0);
    for round in 0..6 {
        let into = format!("{round}");
        for _ in 0..=random.below(2) {
            let mut command = scene.command("pack", &scene.path("data"), &scene.path(&into), &more);
            Killable::start(&mut command).kill_within(whole, &mut random);
        }
        if scene.path(&into).exists() {
            // A run that was killed before its record was complete has not reserved the directory, so any other run may
            // start there.
            let record = fs::read(scene.path(&into).join("foreload-packing.json")).unwrap_or_default();
            if record.ends_with(b"}") {
                let said = scene.error("pack", "data", &into, &["--shard-size", "20000"]);
                assert!(said.contains("--to tar") || said.contains("contains something else"), "{said}");
            }
            scene.json("pack", "data", &into, &more);
            let found = tree(&scene.path(&into));
            let other = |name: &&Vec<u8>| found.get(*name) != expected.get(*name);
            let others: Vec<_> = expected
                .keys()
                .chain(found.keys())
                .filter(other)
                .map(|name| name.escape_ascii().to_string())
                .collect();
            assert!(others.is_empty(), "round {round} of FORELOAD_SEED={seed}: {others:?}");
        }
    }
}

#[test]
fn what_is_finished_says_what_it_is_and_stays_as_it_is() {
    let scene = Scene::new();
    (0..9).for_each(|number| scene.write(format!("data/c{}/{number}.jpg", number % 3), &jpeg(number)));
    let more = ["--to", "tar", "--shard-size", "4000"];
    let first = scene.json("pack", "data", "tars", &more);
    let before = tree(&scene.path("tars"));
    // A reader of the tars gets no warning about other files in the directory except `classes.txt`.
    let options = IndexOptions { directory: Some(scene.path("index")), ..Default::default() };
    let notices = DatasetIndex::open(&scene.path("tars"), &options).unwrap().notices().take();
    assert!(notices.iter().all(|text| !text.contains("foreload-tars")), "{notices:?}");
    let again = scene.json("pack", "data", "tars", &more);
    for key in ["samples", "shards", "bytes", "without_image", "source_fingerprint"] {
        assert_eq!(again[key], first[key], "{key}");
    }
    assert_eq!((&again["samples_before"], &first["samples_before"]), (&first["samples"], &0.into()));
    // Another shard size, another dataset, and Foreload's own shards are different targets, and are refused.
    let said = scene.error("pack", "data", "tars", &["--to", "tar", "--shard-size", "5000"]);
    assert!(said.contains("--shard-size 4000, not 5000"), "{said}");
    scene.write("others/c/1.jpg", &jpeg(1));
    let said = scene.error("pack", "others", "tars", &more);
    assert!(said.contains("another dataset"), "{said}");
    let said = scene.error("pack", "data", "tars", &["--shard-size", "4000"]);
    assert!(said.contains("contains something else"), "{said}");
    assert!(tree(&scene.path("tars")) == before);
    // Incomplete shards are refused, too.
    let shard = scene.path("tars/000001.tar");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 512]).unwrap();
    let said = scene.error("pack", "data", "tars", &more);
    assert!(said.contains("no longer intact") && said.contains("000001.tar"), "{said}");
    fs::remove_file(&shard).unwrap();
    assert!(scene.error("pack", "data", "tars", &more).contains("000001.tar"));
    fs::write(&shard, &bytes).unwrap();
    fs::write(scene.path("tars/classes.txt"), "c0\n").unwrap();
    assert!(scene.error("pack", "data", "tars", &more).contains("classes.txt"));
    fs::write(scene.path("tars/classes.txt"), "c0\nc1\nc2\n").unwrap();
    scene.json("pack", "data", "tars", &more);
    // A file of the same size that was written later is noticed.
    let mut image = jpeg(4);
    let middle = image.len() / 2;
    image[middle] ^= 1;
    scene.write("data/c1/4.jpg", &image);
    let said = scene.error("pack", "data", "tars", &more);
    assert!(said.contains("written or replaced since they were packed") && said.contains(".tar ("), "{said}");
    assert!(tree(&scene.path("tars")) == before);
    fs::write(scene.path("tars/foreload-tars.json"), "{").unwrap();
    assert!(scene.error("pack", "data", "tars", &more).contains("is damaged"));
}

#[test]
fn a_shard_of_files_that_were_written_since_is_written_again() {
    let scene = Scene::new();
    (0..300).for_each(|number| scene.write(format!("data/c/{number:03}.jpg"), &jpeg(number % 20)));
    let more = ["--to", "tar", "--shard-size", "3000", "--threads", "1"];
    let mut command = scene.command("pack", &scene.path("data"), &scene.path("tars"), &more);
    let fourth = scene.path("tars/000003.tar");
    Killable::start(&mut command).kill_when("a fourth shard is there", || fourth.exists());
    let mut image = jpeg(1);
    let middle = image.len() / 2;
    image[middle] ^= 1;
    scene.write("data/c/001.jpg", &image);
    let said = scene.json("pack", "data", "tars", &more);
    assert!(said["shards_again"].as_u64().unwrap() >= 1, "{said}");
    assert!(said["samples_before"].as_u64().unwrap() >= 1, "{said}");
    assert!(members(&scene.path("tars")).contains(&("c/001.jpg".to_owned(), image)));
}
