//! Datasets on disk give what torchvision, GNU tar and Python's tarfile give, and changes of datasets are noticed.

use crate::common::scene::{Scene, bytes_of, python, samples_are_found_by_extent, summary};
use crate::common::succeeds;
use foreload::Error;
use foreload::testing::dataset::{DatasetIndex, FileId, IndexOptions, IndexOrigin, Layout};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn relative_paths(index: &DatasetIndex, root: &Path) -> Vec<(PathBuf, u32)> {
    let path = |sample| index.path(index.extent(sample).file);
    (0..index.len())
        .map(|sample| {
            (path(sample).strip_prefix(root).expect("below the root").to_path_buf(), index.label(sample))
        })
        .collect()
}

/// The order of `sorted(os.walk(directory, followlinks=True))` and sorted names, after torchvision's description.
fn as_torchvision(root: &Path) -> Vec<(PathBuf, u32)> {
    fn walk(path: &Path, found: &mut Vec<(Vec<u8>, Vec<Vec<u8>>)>) {
        let mut files = Vec::new();
        for entry in fs::read_dir(path).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found)
            } else {
                files.push(path.file_name().unwrap().as_bytes().to_vec())
            }
        }
        files.sort();
        found.push((path.as_os_str().as_bytes().to_vec(), files));
    }
    let mut classes: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    classes.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    let mut samples = Vec::new();
    for (label, class) in classes.iter().enumerate() {
        let mut found = Vec::new();
        walk(class, &mut found);
        found.sort();
        for (directory, files) in found {
            for file in files {
                let lower = String::from_utf8_lossy(&file).to_lowercase();
                if [".jpg", ".jpeg", ".png"].iter().any(|ending| lower.ends_with(ending)) {
                    let path = Path::new(OsStr::from_bytes(&directory)).join(OsStr::from_bytes(&file));
                    samples.push((path.strip_prefix(root).unwrap().to_path_buf(), label as u32));
                }
            }
        }
    }
    samples
}

/// Makes a folder of names for which every wrong sort order gives another result.
fn odd_folder() -> Scene {
    let scene = Scene::new();
    for path in [
        "a/10.jpg",
        "a/9.jpg",
        "a/B.JPG",
        "a/b.jpeg",
        "a/sub/1.png",
        "a/sub-x/1.png",
        "a/sub/deep/2.jpg",
        "a-b/1.jpg",
        "a-b/-.jpg",
        "Z/ü.jpg",
        "Z/z.jpg",
        "Z/😀.jpg",
        "Z/ｚ.jpg",
        "é/1.jpg",
        "a.b/x.seg.jpg",
    ] {
        scene.write(path, path.as_bytes());
    }
    for path in ["a/notes.txt", "a/x.tiff", "a/y.BMP", "a/jpg", "readme.md"] {
        scene.write(path, b"?");
    }
    fs::create_dir_all(scene.root.join("empty/below")).unwrap();
    let elsewhere = scene.root.parent().unwrap().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("linked.jpg"), b"linked").unwrap();
    symlink(&elsewhere, scene.root.join("a/link")).unwrap();
    symlink(elsewhere.join("linked.jpg"), scene.root.join("a/0.jpg")).unwrap();
    scene
}

#[test]
fn folders_are_ordered_as_torchvision_orders_them() {
    let scene = odd_folder();
    let index = scene.open().unwrap();
    assert_eq!(summary(&index).layout, Layout::Folder);
    assert_eq!(relative_paths(&index, &scene.root), as_torchvision(&scene.root));
    assert_eq!(index.classes(), ["Z", "a", "a-b", "a.b", "empty", "é"]);
    for sample in 0..index.len() {
        assert_eq!(bytes_of(&index, sample), fs::read(index.path(FileId(sample as u32))).unwrap());
    }
    let summary = summary(&index);
    assert_eq!(summary.notes.empty_classes, ["empty"]);
    let skipped = |reason: &str| summary.notes.skipped.iter().find(|(r, _)| r.starts_with(reason)).unwrap().1;
    assert_eq!(
        (skipped("files that are no images").count, skipped(".tiff").count, skipped(".bmp").count),
        (2, 1, 1)
    );
    assert_eq!(skipped("files in the root").example, "readme.md");
    assert_eq!(index.total_bytes(), (0..index.len()).map(|s| u64::from(index.extent(s).length)).sum::<u64>());
    index.verify().unwrap();
    samples_are_found_by_extent(&index);
}

#[test]
fn folders_are_ordered_as_python_orders_them() {
    const SCRIPT: &str = "
import os, sys
root = sys.argv[1]
classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
for label, name in enumerate(classes):
    for directory, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
        for file in sorted(files):
            if file.lower().endswith(('.jpg', '.jpeg', '.png')):
                path = os.path.relpath(os.path.join(directory, file), root)
                sys.stdout.buffer.write(b'%d %s\\0' % (label, os.fsencode(path)))
";
    let Some(mut python) = python() else { return };
    let scene = odd_folder();
    let output = succeeds(python.args(["-c", SCRIPT]).arg(&scene.root).env("PYTHONUTF8", "1"));
    let index = scene.open().unwrap();
    let mut ours = Vec::new();
    for (path, label) in relative_paths(&index, &scene.root) {
        write!(ours, "{label} ").unwrap();
        ours.extend(path.as_os_str().as_bytes());
        ours.push(0);
    }
    assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&output.stdout));
}

#[test]
fn links_that_loop_or_lead_nowhere_are_left_out() {
    let scene = Scene::new();
    scene.write("a/1.jpg", b"1");
    symlink(scene.root.join("a"), scene.root.join("a/again")).unwrap();
    symlink(&scene.root, scene.root.join("a/root")).unwrap();
    symlink("nowhere", scene.root.join("a/2.jpg")).unwrap();
    symlink("3.jpg", scene.root.join("a/3.jpg")).unwrap();
    let index = scene.open().unwrap();
    // Through the link to the root, `a` is found again as one of its own ancestors.
    assert_eq!(index.len(), 1, "{:?}", relative_paths(&index, &scene.root));
    let skipped = summary(&index).notes.skipped;
    assert_eq!(skipped["links to a directory above"].count, 2);
    assert_eq!(skipped["broken links and special files"].count, 2);
}

#[test]
fn names_need_not_be_utf8() {
    let scene = Scene::new();
    let name = std::ffi::OsString::from_vec(b"\xff\xfe".to_vec());
    scene.write(Path::new(&name).join(OsStr::from_bytes(b"\x80.jpg")), b"image");
    let index = scene.open().unwrap();
    assert_eq!(bytes_of(&index, 0), b"image");
    assert_eq!(index.classes().len(), 1);
}

#[test]
fn large_directories_are_complete() {
    let scene = Scene::new();
    for i in 0..5000 {
        scene.write(format!("a/{i}.jpg"), &vec![0; i % 7]);
    }
    scene.write("b/1.jpg", b"b");
    let index = scene.open().unwrap();
    assert_eq!(relative_paths(&index, &scene.root), as_torchvision(&scene.root));
    for sample in 0..5000 {
        let name = index.path(FileId(sample));
        let i: u32 = name.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(index.extent(u64::from(sample)).length, i % 7);
    }
}

#[test]
fn a_second_start_loads() {
    let scene = odd_folder();
    let first = scene.open().unwrap();
    assert!(matches!(summary(&first).origin, IndexOrigin::Built(_)));
    let second = scene.open().unwrap();
    assert_eq!(summary(&second).origin, IndexOrigin::Loaded);
    assert_eq!(relative_paths(&first, &scene.root), relative_paths(&second, &scene.root));
    assert_eq!(first.fingerprint(), second.fingerprint());
    let again = IndexOptions { rebuild: true, ..scene.options.clone() };
    let third = DatasetIndex::open(&scene.root, &again).unwrap();
    assert!(matches!(summary(&third).origin, IndexOrigin::Built(_)));
    // The directory holds only the index and its lock: no partial file is left.
    assert_eq!(fs::read_dir(scene.options.directory.as_ref().unwrap()).unwrap().count(), 2);
}

#[test]
fn a_damaged_index_is_built_again() {
    let scene = odd_folder();
    let path = summary(&scene.open().unwrap()).index_path;
    let good = fs::read(&path).unwrap();
    for damaged in [&good[..0], &good[..700], &good[..good.len() - 1], &[b"X", &good[1..]].concat()] {
        fs::write(&path, damaged).unwrap();
        let index = scene.open().unwrap();
        let IndexOrigin::Built(because) = summary(&index).origin else { panic!("loaded a damaged index") };
        assert!(because.contains("index"), "{because}");
    }
}

#[test]
fn the_fingerprint_follows_the_data() {
    let build = |change: &dyn Fn(&Scene)| {
        let scene = odd_folder();
        change(&scene);
        scene.open().unwrap().fingerprint()
    };
    let base = build(&|_| {});
    assert_eq!(
        base,
        build(&|scene| drop(scene.write("a/notes.txt", b"another note"))),
        "a copy elsewhere, later"
    );
    let changes: [&dyn Fn(&Scene); 4] = [
        &|scene| drop(scene.write("a/9.jpg", b"of another length")),
        &|scene| fs::rename(scene.root.join("a/9.jpg"), scene.root.join("a/8.jpg")).unwrap(),
        &|scene| fs::rename(scene.root.join("a/9.jpg"), scene.root.join("Z/9.jpg")).unwrap(),
        &|scene| fs::create_dir(scene.root.join("another class")).unwrap(),
    ];
    for (i, change) in changes.iter().enumerate() {
        assert_ne!(base, build(change), "change {i}");
    }
}

#[test]
fn what_is_no_dataset_is_refused_with_a_reason() {
    let scene = Scene::new();
    assert!(scene.error().contains("no class directories"), "{}", scene.error());
    scene.write("a/1.gif", b"1");
    assert!(scene.error().contains("1.gif"), "{}", scene.error());
    let missing = DatasetIndex::open(&scene.root.join("missing"), &scene.options).err().unwrap();
    assert!(
        matches!(missing, Error::Dataset { .. }) && missing.to_string().contains("missing: does not exist")
    );
    let file = scene.write("list.txt", b"1");
    let error = DatasetIndex::open(&file, &scene.options).err().unwrap().to_string();
    assert!(error.contains("neither a directory nor a shard"), "{error}");
}

#[test]
fn nothing_is_written_into_the_dataset() {
    let scene = odd_folder();
    for directory in [scene.root.join("index"), scene.root.clone(), scene.root.join("a/b/../c")] {
        let options = IndexOptions { directory: Some(directory.clone()), ..IndexOptions::default() };
        let error = DatasetIndex::open(&scene.root, &options).err().unwrap();
        assert!(matches!(error, Error::Config { setting: "index_dir", .. }), "{error}");
    }
    assert!(!scene.root.join("index").exists());
}

#[test]
fn processes_that_start_together_build_one_index() {
    let scene = odd_folder();
    let built = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..6).map(|_| scope.spawn(|| summary(&scene.open().unwrap()).origin)).collect();
        threads
            .into_iter()
            .filter(|_| true)
            .map(|t| t.join().unwrap())
            .filter(|o| *o != IndexOrigin::Loaded)
            .count()
    });
    assert_eq!(built, 1);
}
