//! Tar shards with unusual labels, images or members mean the same after they are packed.

use super::Scene;
use crate::common::{self, batches, epoch_bytes, jpeg, small_images, tar};
use foreload::Result;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions};
use foreload::testing::dataset::{Contents, DatasetIndex};
use foreload::testing::pipeline::Pipeline;
use std::sync::Arc;

/// Writes a tar shard of these members.
pub(super) fn shard(scene: &Scene, name: &str, members: &[(&str, &[u8])]) {
    scene.write(name, &tar(members));
}

fn open(scene: &Scene, root: &str, options: &LoaderOptions) -> Result<Pipeline> {
    common::open(&scene.path(root), scene.path("index"), Contents::Images, options)
}

fn error(scene: &Scene, root: &str, options: &LoaderOptions) -> String {
    open(scene, root, options).map(|_| ()).unwrap_err().to_string()
}

fn of_fields(names: &[&str]) -> LoaderOptions {
    let fields = names.iter().map(|name| FieldOptions::named(*name)).collect();
    LoaderOptions { fields: Some(fields), batch_size: 4, ..small_images() }
}

/// The texts of a field in the order of an epoch.
fn texts(pipeline: &Pipeline, name: &str) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for batch in batches(pipeline, 0) {
        let Some(FieldValue::Texts(texts)) = pipeline.config().field(&batch, name) else { panic!("texts") };
        found.extend(texts);
    }
    found
}

#[test]
fn labels_that_cannot_be_used_stay_so() {
    let scene = Scene::new();
    let [one, other] = [1, 2].map(jpeg);
    for (name, faulty) in [("wrong", Some(&b"cat"[..])), ("missing", None)] {
        let mut members = vec![("1.jpg", &one[..]), ("1.cls", b"3"), ("2.jpg", &other)];
        members.extend(faulty.map(|label| ("2.cls", label)));
        shard(&scene, &format!("{name}/s.tar"), &members);
        let into = format!("{name}-packed");
        scene.json("pack", name, &into, &[]);
        let [before, after] = [name, &into].map(|root| error(&scene, root, &of_fields(&["jpg", "label"])));
        let reason = before.split_once(": ").unwrap().1.rsplit_once(": ").unwrap_or(("", &before)).1;
        assert!(after.contains("s.tar in the source") && after.contains(reason), "{before}\n{after}");
        let images = of_fields(&["jpg"]);
        let [one, other] = [name, &into].map(|root| open(&scene, root, &images).unwrap());
        assert_eq!(one.index().fingerprint(), other.index().fingerprint());
        assert!(!other.index().is_labeled());
        assert!(epoch_bytes(&one, 0) == epoch_bytes(&other, 0));
    }
}

#[test]
fn samples_without_an_image_are_read_where_all_are_so() {
    let scene = Scene::new();
    let words: Vec<(String, String)> =
        (0..9).map(|number| (format!("{number}.txt"), "word ".repeat(number))).collect();
    let members: Vec<(&str, &[u8])> =
        words.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    shard(&scene, "texts/s.tar", &members);
    scene.json("pack", "texts", "packed", &["--shard-size", "50"]);
    let [one, other] = ["texts", "packed"].map(|root| open(&scene, root, &of_fields(&["txt"])).unwrap());
    assert_eq!(one.index().fingerprint(), other.index().fingerprint());
    assert_eq!(texts(&one, "txt"), texts(&other, "txt"));
    let said = error(&scene, "packed", &small_images());
    assert!(said.contains("select other members with fields=: \"txt\""), "{said}");
}

#[test]
fn a_loader_that_would_read_what_was_left_out_is_refused() {
    let scene = Scene::new();
    let image = jpeg(1);
    let members: [(&str, &[u8]); 4] =
        [("1.jpg", &image), ("1.txt", b"one"), ("2.txt", b"two"), ("3.jpg", &image)];
    shard(&scene, "data/s.tar", &members);
    shard(&scene, "data/t.tar", &[("4.txt", b"four"), ("5.txt", b"five")]);
    let report = scene.json("pack", "data", "packed", &[]);
    assert_eq!((&report["samples"], &report["members_left_out"]), (&2.into(), &3.into()));
    assert_eq!(open(&scene, "data", &of_fields(&["txt"])).unwrap().index().len(), 5);
    let said = error(&scene, "packed", &of_fields(&["txt"]));
    assert!(said.contains("samples without an image were left out"), "{said}");
    assert_eq!(open(&scene, "packed", &small_images()).unwrap().index().len(), 2);
}

#[test]
fn packed_and_other_datasets_are_read_as_one() {
    let scene = Scene::new();
    for number in 0..20 {
        let root = ["one", "two"][number % 2];
        scene.write(format!("{root}/class{}/{number}.jpg", number / 10), &jpeg(number as u64));
    }
    scene.json("pack", "one", "packed", &["--shard-size", "5000"]);
    let options = LoaderOptions { index_dir: Some(scene.path("index")), ..small_images() };
    let [first, second] = ["one", "packed"].map(|root| {
        let checked = options.validate().unwrap();
        let roots = [scene.path(root), scene.path("two")];
        let opened =
            DatasetIndex::open_all(&roots, &checked.index_options(Contents::Images), &Arc::default());
        let index = Arc::new(opened.unwrap());
        Pipeline::new(index.clone(), checked.check(&index).unwrap())
    });
    assert_eq!(first.index().fingerprint(), second.index().fingerprint());
    assert!(epoch_bytes(&first, 0) == epoch_bytes(&second, 0));
}
