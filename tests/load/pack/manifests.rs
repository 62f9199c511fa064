//! Manifests that are packed: files from anywhere, some listed several times, with their columns and names.

use super::tables::{open, same_dataset};
use super::{Scene, tree};
use crate::common::{epoch_bytes, jpeg, longs, png, small_images};
use foreload::Labels;
use foreload::testing::config::{FieldOptions, FieldValue, LoaderOptions};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use range_server::{Options, RangeServer};
use std::collections::BTreeSet;
use std::fs;

/// A manifest with relative names, names with `..`, absolute names and URLs; one file is listed twice.
fn mixed(scene: &Scene, server: &RangeServer) {
    (0..6).for_each(|number| scene.write(format!("here/a b/{number}.jpg"), &jpeg(number)));
    scene.write("above/up.v1.JPEG", &jpeg(10));
    scene.write("elsewhere/far.png", &png(7));
    scene.write("served/x.jpg", &jpeg(20));
    scene.write("served/no-ending", &png(9));
    let far = scene.path("elsewhere/far.png");
    let (far, url) = (far.to_str().unwrap(), server.url());
    let names = [
        "a b/0.jpg",
        "../above/up.v1.JPEG",
        far,
        &format!("{url}/served/x.jpg"),
        "a b/0.jpg",
        &format!("{url}/served/no-ending"),
        "./a b/3.jpg",
        "a b/../a b/3.jpg",
        "a b/5.jpg",
    ];
    let line = |(number, name): (usize, &&str)| {
        let caption = if number == 3 { String::new() } else { format!("\"picture, {number}\"") };
        format!("\"{name}\",{},{caption},{}.5\n", ["dog", "cat", "ape"][number % 3], number)
    };
    let lines: String = names.iter().enumerate().map(line).collect();
    scene.write("here/list.csv", format!("path,label,caption,weight\n{lines}").as_bytes());
}

#[test]
fn files_of_any_place_are_samples_in_the_order_of_the_rows() {
    let scene = Scene::new();
    let server = RangeServer::start(&scene.path(""), Options::default()).unwrap();
    mixed(&scene, &server);
    let root = scene.path("here/list.csv");
    same_dataset(&scene, &root, "packed");
    let [one, other] = [&root, &scene.path("packed")].map(|root| open(&scene, root, small_images()).unwrap());
    assert_eq!((one.index().classes(), one.index().num_classes()), (other.index().classes(), 3));
    assert_eq!(other.index().classes(), ["ape", "cat", "dog"]);
    (0..9).for_each(|sample| assert_eq!(one.index().label(sample), other.index().label(sample)));
    for epoch in 0..2 {
        assert!(epoch_bytes(&one, epoch) == epoch_bytes(&other, epoch));
    }
    // The packed dataset needs neither the files nor the server.
    drop(server);
    fs::remove_dir_all(scene.path("here")).unwrap();
    fs::remove_dir_all(scene.path("above")).unwrap();
    let alone = open(&scene, &scene.path("packed"), small_images()).unwrap();
    epoch_bytes(&alone, 5);
    alone.index().verify().unwrap();
    // Names that may lead anywhere are not used for writing files.
    let said = scene.error("unpack", "packed", "back", &[]);
    assert!(said.contains("which unpacking cannot write") && said.contains("--to tar"), "{said}");
    assert!(!scene.path("back").exists());
    // The packed dataset can still be written as tar shards.
    scene.json("pack", "packed", "tars", &["--to", "tar"]);
}

#[test]
fn a_manifest_becomes_tar_shards_with_safe_names() {
    let scene = Scene::new();
    let server = RangeServer::start(&scene.path(""), Options::default()).unwrap();
    mixed(&scene, &server);
    let report = scene.json("pack", "here/list.csv", "tars", &["--to", "tar"]);
    assert_eq!((&report["samples"], &report["without_image"]), (&9.into(), &0.into()), "{report}");
    let mut archive = tar::Archive::new(fs::File::open(scene.path("tars/000000.tar")).unwrap());
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().to_str().unwrap().to_owned());
    }
    let host = server.url().replace("http://", "");
    let far = scene.path("elsewhere/far").to_str().unwrap().trim_start_matches('/').to_owned();
    // Names that readers would skip are changed.
    let far = far.replace("/.", "/_.");
    let keys = [
        "a b/0",
        "above/up_v1",
        &far,
        &format!("{host}/served/x"),
        "a b/0_2",
        &format!("{host}/served/no-ending"),
        "a b/3",
        "a b/a b/3",
        "a b/5",
    ];
    let endings = ["jpg", "jpg", "png", "jpg", "jpg", "png", "jpg", "jpg", "jpg"];
    let mut expected = BTreeSet::new();
    for (number, (key, ending)) in keys.iter().zip(endings).enumerate() {
        let members = [ending, "cls", "json", "label.txt"];
        expected.extend(members.map(|member| format!("{key}.{member}")));
        expected.extend((number != 3).then(|| format!("{key}.caption.txt")));
    }
    assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(names.len(), expected.len());
    let [one, other] =
        ["here/list.csv", "tars"].map(|root| open(&scene, &scene.path(root), small_images()).unwrap());
    (0..9).for_each(|sample| assert_eq!(one.index().label(sample), other.index().label(sample)));
    // Tar shards made from the packed dataset equal tar shards made from its source.
    scene.json("pack", "here/list.csv", "packed", &["--shard-size", "3000"]);
    scene.json("pack", "packed", "tars of packed", &["--to", "tar"]);
    let [mut one, mut other] = ["tars", "tars of packed"].map(|name| tree(&scene.path(name)));
    for tree in [&mut one, &mut other] {
        tree.remove(&b"foreload-tars.json"[..]).expect("what says that it is finished");
    }
    assert!(one == other);
}

#[test]
fn samples_keep_the_names_that_the_manifest_gives_them() {
    let scene = Scene::new();
    (0..4).for_each(|number| scene.write(format!("files/{number}.jpg"), &jpeg(number)));
    let lines: String = [2, 0, 3, 1].map(|number| format!("../files/{number}.jpg,{number}\n")).concat();
    scene.write("lists/list.csv", format!("path,weight\n{lines}").as_bytes());
    scene.json("pack", "lists/list.csv", "packed", &["--shard-size", "1"]);
    fs::remove_dir_all(scene.path("lists")).unwrap();
    // Lists of files and tables of labels find the samples by these names, and messages use them.
    scene.write("list.txt", b"../files/3.jpg\n../files/0.jpg\n");
    let scores: String = (0..4).map(|number| format!("../files/{number}.jpg,{}\n", 7 * number)).collect();
    scene.write("scores.csv", format!("file_name,score\n{scores}").as_bytes());
    let options = LoaderOptions {
        files: Some(scene.path("list.txt")),
        labels: Some(Labels::File(scene.path("scores.csv"))),
        fields: Some(["image", "weight", "score"].map(FieldOptions::named).to_vec()),
        batch_size: 2,
        ..small_images()
    };
    let pipeline = open(&scene, &scene.path("packed"), options).unwrap();
    let batch = pipeline.epoch(0, 0, 1, 0).unwrap().next_batch().unwrap().unwrap();
    let field = |name: &str| match pipeline.config().field(&batch, name).unwrap().first_view() {
        FieldValue::Tensor(tensor) => tensor.bytes().to_vec(),
        _ => panic!("a field of another kind"),
    };
    let numbers = |name: &str| BTreeSet::from_iter(longs(&field(name)));
    assert_eq!((numbers("weight"), numbers("score")), (BTreeSet::from([0, 3]), BTreeSet::from([0, 21])));
    scene.write("list.txt", b"files/3.jpg\n");
    let options = LoaderOptions { files: Some(scene.path("list.txt")), ..small_images() };
    let said = open(&scene, &scene.path("packed"), options).err().unwrap().to_string();
    assert!(said.contains("../files/2.jpg"), "{said}");
}

#[test]
fn a_file_that_was_written_since_is_noticed() {
    let scene = Scene::new();
    (0..6).for_each(|number| scene.write(format!("files/{number}.jpg"), &jpeg(number)));
    let lines: String = (0..6).map(|number| format!("{{\"path\": \"files/{number}.jpg\"}}\n")).collect();
    scene.write("list.jsonl", lines.as_bytes());
    let more = ["--shard-size", "3000"];
    let first = scene.json("pack", "list.jsonl", "packed", &more);
    let again = scene.json("pack", "list.jsonl", "packed", &more);
    assert_eq!(again["samples_before"], first["samples"]);
    let mut image = jpeg(4);
    let middle = image.len() / 2;
    image[middle] ^= 1;
    scene.write("files/4.jpg", &image);
    let said = scene.error("pack", "list.jsonl", "packed", &more);
    assert!(said.contains("written or replaced since they were packed"), "{said}");
    fs::remove_file(scene.path("files/4.jpg")).unwrap();
    let said = scene.error("pack", "list.jsonl", "packed", &more);
    assert!(said.contains("4.jpg"), "{said}");
    let said = scene.error("pack", "list.jsonl", "others", &more);
    assert!(said.contains("4.jpg"), "{said}");
}

#[test]
fn files_of_any_kind_are_packed_by_a_manifest() {
    let scene = Scene::new();
    let files = [&b"first"[..], b"", b"\x00\x01\x02 third"];
    for (number, bytes) in files.iter().enumerate() {
        scene.write(format!("files/{number}.bin"), bytes);
    }
    scene.write("list.tsv", b"path\tlabel\nfiles/2.bin\t1\nfiles/0.bin\t0\nfiles/1.bin\t1\n");
    scene.json("pack", "list.tsv", "packed", &["--files"]);
    let directory = Some(scene.path("index"));
    let options = IndexOptions { directory, contents: Contents::Files, ..Default::default() };
    let index = DatasetIndex::open(&scene.path("packed"), &options).unwrap();
    for (sample, bytes) in [files[2], files[0], files[1]].iter().enumerate() {
        let found = foreload::testing::io::read_blocking(&index, index.extent(sample as u64)).unwrap();
        assert_eq!(&found, bytes);
    }
    let said = scene.error("unpack", "packed", "back", &[]);
    assert!(said.contains("FileLoader"), "{said}");
    let said = scene.error("pack", "list.tsv", "tars", &["--files", "--to", "tar"]);
    assert!(said.contains("not of files of any kind"), "{said}");
}
