//! Labels are found wherever they are stored. If there are none, they are never taken for 0.

use crate::common::scene::{Scene, bytes_of, python, samples_are_found_by_extent, summary};
use crate::common::succeeds;
use crate::common::tar as shard;
use crate::together::{folder, shards};
use foreload::testing::config::{LoaderOptions, Weights};
use foreload::testing::dataset::{ClassRef, Contents, DatasetIndex, IndexOptions, Layout, Select};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The members of 30 samples, with labels that are derived from the stem.
fn members_of_samples() -> Vec<(String, Vec<u8>)> {
    let of = |i: usize| {
        let stem = format!("{:04}", i * 7 % 30);
        let image = (format!("{stem}.jpg"), format!("image {stem}").into_bytes());
        let json = (format!("{stem}.json"), br#"{"width": 3}"#.to_vec());
        [image, json, (format!("{stem}.cls"), format!("{}\n", i * 7 % 30).into_bytes())]
    };
    (0..30).flat_map(of).collect()
}

/// Checks that every image has the label of its stem, in the order of the images in the shard.
fn check_labels(scene: &Scene) {
    let index =
        DatasetIndex::open(&scene.root, &IndexOptions { rebuild: true, ..scene.options.clone() }).unwrap();
    assert!(index.is_labeled() && index.len() == 30 && index.num_classes() == 30);
    for sample in 0..30 {
        assert_eq!(bytes_of(&index, sample), format!("image {:04}", index.label(sample)).into_bytes());
    }
    samples_are_found_by_extent(&index);
}

#[test]
fn labels_are_found_wherever_gnu_tar_puts_them() {
    let scene = Scene::new();
    let beside = scene.root.parent().unwrap();
    for (name, data) in members_of_samples() {
        let folder = beside.join(Path::new(&name).extension().unwrap());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), data).unwrap();
    }
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").current_dir(beside).args(arguments).output();
        let output = output.expect("GNU tar, which these tests need: install the package tar");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    // Arranged by type, and by name within each type; then images to which the labels are added later.
    for [one, two, three] in [["cls", "../json", "../jpg"], ["json", "../jpg", "../cls"]] {
        tar(&["--sort=name", "-cf", "data/s.tar", "-C", one, ".", "-C", two, ".", "-C", three, "."]);
        check_labels(&scene);
    }
    tar(&["--sort=name", "-cf", "data/s.tar", "-C", "jpg", "."]);
    tar(&["--sort=name", "-rf", "data/s.tar", "-C", "cls", "."]);
    check_labels(&scene);
    // The stems differ in separate directories, so no label belongs to an image, and the error shows that.
    tar(&["--sort=name", "-cf", "data/s.tar", "cls", "jpg"]);
    let index =
        DatasetIndex::open(&scene.root, &IndexOptions { rebuild: true, ..scene.options.clone() }).unwrap();
    assert!(!index.is_labeled());
    let skipped = &summary(&index).notes.skipped["samples without an image"];
    assert_eq!((skipped.count, skipped.example.as_str()), (30, "cls/0000"));
}

#[test]
fn labels_are_found_wherever_pythons_tarfile_puts_them() {
    const SCRIPT: &str = "
import os, random, sys, tarfile
source, target, order = sys.argv[1:]
names = sorted(os.listdir(source))
if order == 'extension':
    names.sort(key=lambda name: os.path.splitext(name)[1])
else:
    random.Random(int(order)).shuffle(names)
with tarfile.open(target, 'w') as tar:
    for name in names:
        tar.add(os.path.join(source, name), arcname=name)
";
    let scene = Scene::new();
    let source = scene.root.with_file_name("source");
    fs::create_dir(&source).unwrap();
    for (name, data) in members_of_samples() {
        fs::write(source.join(name), data).unwrap();
    }
    for order in ["extension", "0", "1", "2"] {
        let Some(mut python) = python() else { return };
        succeeds(python.args(["-c", SCRIPT]).arg(&source).arg(scene.root.join("s.tar")).arg(order));
        check_labels(&scene);
    }
}

#[test]
fn shards_of_captions_have_no_labels() {
    let scene = Scene::new();
    let caption = br#"{"caption": "a cat", "width": 3}"#;
    scene.write(
        "s.tar",
        &shard(&[("1.jpg", b"1"), ("1.txt", b"a cat"), ("2.jpg", b"2"), ("2.json", caption)]),
    );
    scene.write("t.tar", &shard(&[("1.png", b"3"), ("1.caption", b"a dog")]));
    let index = scene.open().unwrap();
    assert!(!index.is_labeled() && index.num_classes() == 0);
    let error = index.check_labeled("weights").unwrap_err().to_string();
    assert!(error.contains("weights") && error.contains(".cls") && error.contains("\"caption\""), "{error}");
    assert_eq!(summary(&index).keys, ["caption", "jpg", "json", "png", "txt"]);
}

#[test]
fn contents_decide_where_shards_and_directories_lie_side_by_side() {
    let image = |number: u8| shard(&[("1.txt", b"text"), ("1.jpg", &[number]), ("1.cls", b"3")]);
    // Directories without images are not classes, however deep they are or if links form cycles.
    let scene = Scene::new();
    scene.write("s-0.tar", &image(0));
    scene.write("s-1.tar", &image(1));
    scene.write("logs/deep/er/run.txt", b"text");
    scene.write("cover.jpg", b"in the root, in no class");
    fs::create_dir(scene.root.join(".cache")).unwrap();
    std::os::unix::fs::symlink("..", scene.root.join("logs/up")).unwrap();
    std::os::unix::fs::symlink("nowhere", scene.root.join("logs/broken.jpg")).unwrap();
    let index = scene.open().unwrap();
    let summary_of = summary(&index);
    assert_eq!((summary_of.layout, index.len(), index.label(0)), (Layout::Tar, 2, 3));
    assert_eq!(summary_of.notes.skipped["directories without images beside shards"].count, 1);
    // Shards without images, and compressed ones, are ignored if there are class directories.
    let scene = Scene::new();
    scene.write("cat/1.jpg", b"1");
    scene.write("backup.tar", &shard(&[("1.txt", b"text"), ("notes.pdf", b"text")]));
    scene.write("backup.tar.gz", b"\x1f\x8b");
    let index = scene.open().unwrap();
    assert_eq!(
        (summary(&index).layout, index.len(), index.classes()),
        (Layout::Folder, 1, &["cat".into()][..])
    );
    let skipped = summary(&index).notes.skipped;
    assert_eq!(skipped["shards without images beside class directories"].example, "backup.tar");
    assert_eq!(skipped["compressed tars beside class directories"].example, "backup.tar.gz");
    // If both hold images, it is ambiguous which are meant.
    let scene = Scene::new();
    scene.write("s.tar", &image(0));
    scene.write("cat/deep/1.JPEG", b"1");
    let error = scene.error();
    assert!(error.contains("cat/deep/1.JPEG") && error.contains("1.jpg in s.tar"), "{error}");
    assert!(error.contains("move"), "{error}");
    // Neither the shards nor the directories hold an image.
    let scene = Scene::new();
    scene.write("s.tar", &shard(&[("1.txt", b"text")]));
    scene.write("cat/1.txt", b"text");
    let error = scene.error();
    assert!(
        error.contains("no .jpg") && error.contains("cat") && error.contains("without an image"),
        "{error}"
    );
    // A shard that cannot be read is not treated as a shard without images.
    let scene = Scene::new();
    scene.write("s.tar", &[b'x'; 2000]);
    scene.write("cat/1.jpg", b"1");
    assert!(scene.error().contains("s.tar: at byte 0: not a tar archive"), "{}", scene.error());
}

/// Every setting that needs classes is refused with its name, and with advice.
#[test]
fn without_labels_there_are_no_classes() {
    let refused = |index: &DatasetIndex, options: LoaderOptions, setting: &str| {
        let error = options.check(index).expect_err("a refusal").to_string();
        assert!(error.starts_with(&format!("config: {setting}: ")) && error.contains("class"), "{error}");
    };
    let files = folder(&["x.npz", "y.npz"]);
    let files =
        DatasetIndex::open(&files.root, &IndexOptions { contents: Contents::Files, ..files.options.clone() });
    for index in [shards(&[None, None, None]).open().unwrap(), files.unwrap()] {
        assert!(!index.is_labeled() && index.num_classes() == 0 && index.classes().is_empty());
        for weights in
            [Weights::Balanced, Weights::Classes(vec![]), Weights::Classes(vec![(ClassRef::Number(0), 2.0)])]
        {
            refused(&index, LoaderOptions { weights: Some(weights), ..LoaderOptions::default() }, "weights");
        }
        for class in [ClassRef::Number(0), ClassRef::Name("cat".into())] {
            let classes = Some(vec![class]);
            refused(&index, LoaderOptions { classes, ..LoaderOptions::default() }, "classes");
        }
        let weights = Some(Weights::Samples(vec![1.0; index.len() as usize]));
        LoaderOptions { weights, ..LoaderOptions::default() }.check(&index).unwrap();
    }
    // A list may name classes only if the dataset has some.
    let scene = shards(&[None]);
    let list = scene.root.with_file_name("list.txt");
    fs::write(&list, "s-00.tar 0\n").unwrap();
    let select = Select { files: Some(list), ..Select::default() };
    let error = select.resolve(&scene.open().unwrap()).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("no labels"), "{error}");
}
