//! The members of samples in shards other than their images: which exist, where they are stored, and what one read
//! covers.

use crate::common::scene::{Scene, summary};
use crate::common::tar_of;
use foreload::testing::dataset::{Changed, DatasetIndex, Extent, IndexOptions, MemberBytes};
use std::fs;

fn open(scene: &Scene, fields: &[&str]) -> foreload::Result<DatasetIndex> {
    let members = Some(fields.iter().map(ToString::to_string).collect());
    DatasetIndex::open(&scene.root, &IndexOptions { members, ..scene.options.clone() })
}

/// The bytes of an extent, read by the system.
fn read(index: &DatasetIndex, extent: Extent) -> Vec<u8> {
    let file = fs::read(index.path(extent.file)).expect("the shard");
    file[extent.offset as usize..][..extent.length as usize].to_vec()
}

/// The bytes of a member, or the word that says why there are none; and the number of reads in addition to the sample's
/// own.
fn member(index: &DatasetIndex, sample: u64, field: usize) -> (Result<Vec<u8>, &'static str>, usize) {
    match index.member(sample, field) {
        MemberBytes::WholeExtent => (Ok(read(index, index.extent(sample))), 0),
        MemberBytes::InExtent(range) => (Ok(read(index, index.extent(sample))[range].to_vec()), 0),
        MemberBytes::Separate(extent) => (Ok(read(index, extent)), 1),
        MemberBytes::Absent => (Err("absent"), 0),
        MemberBytes::Ambiguous => (Err("twice"), 0),
    }
}

fn bytes(text: &str, length: usize) -> Vec<u8> {
    text.bytes().cycle().take(length).collect()
}

#[test]
fn members_side_by_side_are_one_read() {
    let scene = Scene::new();
    let of = |stem: &str| {
        [("cls", 1), ("jpg", 40_000), ("json", 60), ("seg.png", 900), ("txt", 12)]
            .map(|(key, length)| (format!("{stem}.{key}"), bytes(&format!("{stem}{key}"), length)))
    };
    let all: Vec<_> = ["a", "b"].into_iter().flat_map(of).collect();
    let all: Vec<_> = all.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
    let labelled: Vec<_> = all
        .iter()
        .map(|(name, data)| (*name, if name.ends_with("cls") { b"7".to_vec() } else { data.clone() }))
        .map(|(name, data)| (name, if name.ends_with("json") { b"{}".to_vec() } else { data }))
        .collect();
    scene.write("s.tar", &tar_of(labelled.clone()));
    let fields = ["txt", "image", "seg.png", "json", "cls"];
    let index = open(&scene, &fields).unwrap();
    assert_eq!(index.len(), 2);
    for (sample, stem) in [(0, "a"), (1, "b")] {
        for (field, key) in fields.iter().enumerate() {
            let name = format!("{stem}.{}", if *key == "image" { "jpg" } else { key });
            let data = &labelled.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!(member(&index, sample, field), (Ok(data.clone()), 0), "{name}");
        }
        assert_eq!(index.sample_of(index.extent(sample)), Some(sample));
    }
    // The size of the largest sample, and the number of bytes, include all that is read.
    let whole: Vec<u32> = (0..2).map(|sample| index.extent(sample).length).collect();
    assert_eq!(
        (index.largest(), index.total_bytes()),
        (whole[0].max(whole[1]), u64::from(whole[0] + whole[1]))
    );
    // The dataset and the order do not depend on which members are read, but cached copies do.
    let images = scene.open().unwrap();
    assert_eq!(images.fingerprint(), index.fingerprint());
    assert_eq!((images.extent(0).length, images.member(0, 0)), (40_000, MemberBytes::WholeExtent));
    assert_ne!(images.identity(), index.identity());
    assert_eq!(images.identity(), open(&scene, &["image"]).unwrap().identity());
}

#[test]
fn members_that_lie_apart_are_reads_of_their_own() {
    let scene = Scene::new();
    let images = ["a", "b", "c"].map(|stem| (format!("{stem}.jpg"), bytes(stem, 50_000)));
    let texts = ["c", "a", "b"].map(|stem| (format!("{stem}.txt"), bytes(stem, 5)));
    let filler = [("x.bin".to_owned(), vec![0; 200_000])];
    scene.write("s.tar", &tar_of(texts.into_iter().chain(filler).chain(images)));
    let index = open(&scene, &["image", "txt"]).unwrap();
    for (sample, stem) in [(0, "a"), (1, "b"), (2, "c")] {
        assert_eq!(member(&index, sample, 0), (Ok(bytes(stem, 50_000)), 0));
        assert_eq!(member(&index, sample, 1), (Ok(bytes(stem, 5)), 1));
        assert_eq!(index.sample_of(index.extent(sample)), Some(sample));
    }
}

#[test]
fn an_absent_or_double_member_is_reported_for_its_sample() {
    let scene = Scene::new();
    let three = [("c.jpg", "3"), ("c.txt", "three"), ("c.txt", "four")];
    let members = [("a.jpg", "1"), ("a.txt", "one"), ("b.jpg", "2")].into_iter().chain(three);
    scene.write("s.tar", &tar_of(members));
    let index = open(&scene, &["image", "txt"]).unwrap();
    assert_eq!(member(&index, 0, 1).0, Ok(b"one".to_vec()));
    assert_eq!(member(&index, 1, 1).0, Err("absent"));
    assert_eq!(member(&index, 2, 1).0, Err("twice"));
    let error = open(&scene, &["image", "seg.png"]).err().unwrap().to_string();
    assert!(error.contains("fields") && error.contains("seg.png") && error.contains("\"txt\""), "{error}");
}

#[test]
fn shards_differ_in_what_their_samples_have() {
    let scene = Scene::new();
    scene.write("0.tar", &tar_of([("1.jpg", vec![1]), ("1.txt", vec![b'x']), ("1.zz", vec![9; 3])]));
    scene.write("1.tar", &tar_of([("1.jpg", vec![2]), ("1.caption", vec![b'y'])]));
    scene.write("2.tar", &tar_of([("1.png", vec![3]), ("1.caption", vec![b'z']), ("1.txt", vec![b'w'])]));
    let index = open(&scene, &["caption", "txt", "image", "zz"]).unwrap();
    assert_eq!(summary(&index).keys, ["caption", "jpg", "png", "txt", "zz"]);
    let of = |sample| [0, 1, 2, 3].map(|field| member(&index, sample, field).0.ok());
    assert_eq!(of(0), [None, Some(vec![b'x']), Some(vec![1]), Some(vec![9; 3])]);
    assert_eq!(of(1), [Some(vec![b'y']), None, Some(vec![2]), None]);
    assert_eq!(of(2), [Some(vec![b'z']), Some(vec![b'w']), Some(vec![3]), None]);
}

#[test]
fn without_images_every_stem_is_a_sample() {
    let scene = Scene::new();
    scene.write("0.tar", &tar_of([("1.npy", vec![1; 30]), ("1.cls", b"4".to_vec()), ("2.npy", vec![2; 40])]));
    let error = open(&scene, &["npy", "cls"]).err().unwrap().to_string();
    assert!(error.contains("label all samples or none"), "{error}");
    scene.write(
        "0.tar",
        &tar_of([("1.npy", vec![1; 30]), ("1.cls", b"4".to_vec()), ("2.cls", b"5".to_vec())]),
    );
    let index = open(&scene, &["npy", "cls"]).unwrap();
    assert_eq!((index.len(), index.label(0), index.label(1)), (2, 4, 5));
    assert_eq!(member(&index, 0, 0).0, Ok(vec![1; 30]));
    assert_eq!((member(&index, 1, 0).0, member(&index, 1, 1).0), (Err("absent"), Ok(b"5".to_vec())));
    // An error says that there are no images, and what there is instead.
    let error = scene.error();
    assert!(error.contains("no .jpg") && error.contains("npy") && error.contains("fields="), "{error}");
}

#[test]
fn a_member_that_moved_is_found_at_the_start() {
    let scene = Scene::new();
    let write = |text: &[u8]| {
        // The longer caption stays within its block, so that the offsets of all images stay the same.
        scene.write("s.tar", &tar_of([("1.jpg", vec![1; 10]), ("1.txt", text.to_vec())]));
    };
    write(b"a cat");
    let first = open(&scene, &["image", "txt"]).unwrap();
    write(b"a tabby");
    let error =
        DatasetIndex::open(&scene.root, &IndexOptions { changed: Changed::Refuse, ..scene.options.clone() });
    assert!(error.err().unwrap().to_string().contains("other members"));
    let second = open(&scene, &["image", "txt"]).unwrap();
    assert_eq!(member(&second, 0, 1).0, Ok(b"a tabby".to_vec()));
    // The order does not depend on captions.
    assert_eq!(first.fingerprint(), second.fingerprint());
}
