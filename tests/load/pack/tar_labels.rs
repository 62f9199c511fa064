//! The labels of tar shards that are written as tar shards: the samples' own labels, or those of a setting.

use super::Scene;
use super::odd_shards::shard;
use super::tars::members;
use crate::common::jpeg;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use std::collections::BTreeMap;
use std::fs;

/// Writes a shard of three samples, each with an image and these other members.
fn write(scene: &Scene, root: &str, further: &[(&str, [&str; 3])]) {
    let images: Vec<Vec<u8>> = (0..3).map(jpeg).collect();
    let mut found: Vec<(String, &[u8])> = Vec::new();
    for (sample, image) in images.iter().enumerate() {
        found.push((format!("{sample}.jpg"), image));
        let further = further.iter().map(|(ending, values)| (format!("{sample}.{ending}"), values[sample]));
        found.extend(further.map(|(name, value)| (name, value.as_bytes())));
    }
    let found: Vec<(&str, &[u8])> = found.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    shard(scene, &format!("{root}/s.tar"), &found);
}

/// The labels that tar shards give without settings, and the names in `classes.txt`, separated by spaces.
fn labels(scene: &Scene, root: &str) -> (Vec<u32>, String) {
    let options = IndexOptions { directory: Some(scene.path("index")), ..IndexOptions::default() };
    let index = DatasetIndex::open(&scene.path(root), &options).unwrap();
    let classes = fs::read_to_string(scene.path(root).join("classes.txt")).unwrap_or_default();
    let classes: Vec<&str> = classes.lines().collect();
    assert!(index.is_labeled() && (index.classes().is_empty() || index.classes() == classes));
    ((0..index.len()).map(|sample| index.label(sample)).collect(), classes.join(" "))
}

/// Datasets whose samples have several labels.
fn sources(scene: &Scene) {
    let names = [r#"{"label": "b"}"#, r#"{"label": "a"}"#, r#"{"label": "b"}"#];
    write(scene, "names", &[("json", names)]);
    write(scene, "texts", &[("txt", ["b", "a", "b"]), ("cls", ["0", "1", "2"])]);
    let two = [0, 1, 2].map(|number| format!(r#"{{"label": {number}, "fine": {}}}"#, 5 - number));
    write(scene, "two", &[("json", two.each_ref().map(String::as_str))]);
    write(scene, "words", &[("cls", ["b", "a", "b"])]);
}

#[test]
fn classes_and_labels_of_tar_shards_agree() {
    let scene = Scene::new();
    sources(&scene);
    let cases: [(&str, &[&str], [u32; 3], &str); 10] = [
        ("names", &[], [1, 0, 1], "a b"),
        ("names", &["--label", "label"], [1, 0, 1], "a b"),
        ("names", &["--class-names", "c,b,a"], [1, 2, 1], "c b a"),
        ("texts", &[], [0, 1, 2], ""),
        ("texts", &["--label", "cls"], [0, 1, 2], ""),
        ("texts", &["--label", "txt"], [1, 0, 1], "a b"),
        ("texts", &["--label", "txt", "--class-names", "c,b,a"], [1, 2, 1], "c b a"),
        ("two", &[], [0, 1, 2], ""),
        ("two", &["--label", "fine"], [5, 4, 3], ""),
        ("words", &["--label", "cls"], [1, 0, 1], "a b"),
    ];
    for (number, (root, more, numbers, classes)) in cases.into_iter().enumerate() {
        let into = format!("tars {number}");
        scene.json("pack", root, &into, &[more, &["--to", "tar"]].concat());
        assert_eq!(labels(&scene, &into), (numbers.to_vec(), classes.to_owned()), "{root} {more:?}");
    }
    // A packed dataset has the labels that were chosen when it was packed.
    scene.json("pack", "texts", "packed", &["--label", "txt"]);
    scene.json("pack", "packed", "tars of packed", &["--to", "tar"]);
    assert_eq!(labels(&scene, "tars of packed"), (vec![1, 0, 1], "a b".to_owned()));
}

#[test]
fn all_other_members_stay_as_they_are() {
    let scene = Scene::new();
    sources(&scene);
    for (root, more) in [("texts", &["--label", "txt"][..]), ("names", &["--class-names", "a,b"][..])] {
        let into = format!("{root} as tar");
        scene.json("pack", root, &into, &[more, &["--to", "tar"]].concat());
        let found: BTreeMap<String, Vec<u8>> = members(&scene.path(&into)).into_iter().collect();
        assert_eq!(found.len(), 9, "{:?}", found.keys());
        assert_eq!([0, 1, 2].map(|sample| &found[&format!("{sample}.cls")][..]), [b"1", b"0", b"1"]);
        let (ending, text) = if root == "texts" { ("txt", "a") } else { ("json", r#"{"label": "a"}"#) };
        assert_eq!(found[&format!("1.{ending}")], text.as_bytes());
        assert!(found["1.jpg"] == jpeg(1));
    }
}

#[test]
fn labels_that_cannot_be_written_are_refused() {
    let scene = Scene::new();
    sources(&scene);
    write(&scene, "some", &[("cls", ["0", "1", "2"]), ("txt", ["b", "", "b"])]);
    let said = scene.error("pack", "some", "tars", &["--to", "tar", "--label", "txt"]);
    assert!(said.contains("\"1.txt\" should hold a class number"), "{said}");
    let said = scene.error("pack", "texts", "tars", &["--to", "tar", "--class-names", "a,b"]);
    assert!(said.contains("has class numbers without names"), "{said}");
    // All shards of one run have labels of the same kind.
    scene.json("pack", "names", "tars", &["--to", "tar"]);
    let said = scene.error("pack", "names", "tars", &["--to", "tar", "--label", "label"]);
    assert!(said.contains("was begun with another --label: give the same"), "{said}");
}
