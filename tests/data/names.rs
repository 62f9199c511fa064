//! Hidden and temporary names are skipped in every layout, splits are distinguished from classes, and messages name
//! refused and skipped files.

use crate::common::scene::{Scene, summary};
use crate::common::tar_of;
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions, IndexOrigin};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Directories with hidden names, and with names that systems use.
const DIRECTORIES: &[&str] =
    &[".ipynb_checkpoints", ".cache", ".git", "@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", "__MACOSX"];
/// Prefixes and suffixes of the names of unfinished shards.
const UNFINISHED: &[(&str, &str)] = &[
    (".", ""),
    ("", "~"),
    ("", ".bak"),
    ("", ".tmp"),
    ("", ".part"),
    ("", ".gstmp"),
    (".", ".AbC123"),
    ("#", "#"),
];
const UNFINISHED_TEXT: &str = "backups of shards and unfinished ones, by their names";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).join("files")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)
        } else {
            drop(fs::copy(entry.path(), target))
        }
    }
}

/// A directory and all directories below it.
fn directories(root: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    std::iter::once(root.to_path_buf()).chain(below.flat_map(|path| directories(&path))).collect()
}

/// A folder of classes with images, or with files of another extension. @@t 114 Its shards are those that index.json
/// lists.
fn folder(ending: &str) -> Scene {
    let scene = Scene::new();
    for path in ["cat/0", "cat/sub/1", "dog/0"] {
        scene.write(format!("{path}{ending}"), path.as_bytes());
    }
    scene
}

fn facts(index: &DatasetIndex) -> (String, u64, Vec<String>, Vec<u32>) {
    let labels = (0..index.len()).map(|sample| index.label(sample)).collect();
    (index.fingerprint().to_string(), index.len(), index.classes().to_vec(), labels)
}

#[test]
fn hidden_and_system_names_and_unfinished_shards_are_in_no_dataset() {
    let of = |name: &str| {
        let scene = Scene::new();
        copy(&fixture(name), &scene.root);
        scene
    };
    let mut files = folder(".npz");
    files.options.contents = Contents::Files;
    let mut records = of("tfrecord/plain");
    records.options.contents = Contents::Files;
    let layouts = [
        ("classes", folder(".jpg")),
        ("classes of files", files),
        ("tars", of("webdataset/shards")),
        ("packed tars", of("webdataset/gzip")),
        ("tf.Example", of("tfrecord/plain")),
        ("records", records),
        ("Parquet", of("parquet/delta")),
        ("Arrow", of("arrow/file")),
        ("MDS", of("mds/all")),
    ];
    for (name, scene) in layouts {
        let clean = facts(&scene.open().unwrap());
        let shards: Vec<PathBuf> = fs::read_dir(&scene.root)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        for directory in directories(&scene.root) {
            for (number, hidden) in DIRECTORIES.iter().enumerate() {
                fs::create_dir_all(directory.join(hidden).join("below")).unwrap();
                fs::write(directory.join(hidden).join(format!("below/{number}.jpg")), b"x").unwrap();
            }
            for own in [".DS_Store", "._0.jpg", ".0.jpg", "Thumbs.db", "desktop.ini"] {
                fs::write(directory.join(own), b"x").unwrap();
            }
        }
        for shard in &shards {
            for (before, after) in UNFINISHED {
                let own = shard.file_name().unwrap().to_str().unwrap();
                fs::copy(shard, shard.with_file_name(format!("{before}{own}{after}"))).unwrap();
            }
        }
        let index = scene.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(facts(&index), clean, "{name}");
        let rebuilt =
            DatasetIndex::open(&scene.root, &IndexOptions { rebuild: true, ..scene.options.clone() })
                .unwrap();
        assert_eq!(facts(&rebuilt), clean, "{name}");
        index.verify().unwrap();
        if name == "MDS" {
            continue; // Its shards are those that index.json lists.
        }
        let skipped = summary(&rebuilt).notes.skipped;
        assert!(
            skipped["hidden files"].count >= 2 && skipped["files and directories of the system"].count >= 5
        );
        let unfinished = skipped.get(UNFINISHED_TEXT).map_or(0, |skipped| skipped.count);
        assert_eq!(unfinished, (shards.len() * UNFINISHED.len()) as u64, "{name}");
    }
}

#[test]
fn hidden_and_system_members_of_tars_are_no_samples() {
    let tar = |names: &[&str]| tar_of(names.iter().map(|name| (name, b"1")));
    let clean = ["./a/0.jpg", "./a/0.cls", "b/1.jpg", "b/1.cls"];
    let odd =
        ["__MACOSX/a/0.jpg", "a/.ipynb_checkpoints/0-checkpoint.jpg", "a/._0.jpg", "a/@eaDir/0.jpg/x.jpg"];
    let scene = Scene::new();
    scene.write("x.tar", &tar(&[&clean[..], &odd].concat()));
    let index = scene.open().unwrap();
    assert_eq!((index.len(), summary(&index).notes.skipped["hidden files"].count), (2, 2));
    let inner = tar(&["0.jpg", "._0.jpg"]);
    let shards = ["__MACOSX/._cat.tar", "._cat.tar", "cat.tar", "dog.tar"];
    let scene = Scene::new();
    scene.write("train.tar", &tar_of(shards.map(|name| (name, &inner))));
    let index = scene.open().unwrap();
    assert_eq!((index.len(), index.classes()), (2, &["cat".to_owned(), "dog".to_owned()][..]));
}

/// The expected result of opening a root: its classes and the number of its samples, or a part of the error.
type Told = Result<(&'static [&'static str], u64), &'static str>;

fn told(files: &[&str], split: Option<&str>) -> Result<(Vec<String>, u64), String> {
    let scene = Scene::new();
    for file in files {
        let bytes = if file.ends_with(".tar") { b"".to_vec() } else { file.as_bytes().to_vec() };
        scene.write(file, &bytes);
    }
    let options =
        IndexOptions { split: split.map(str::to_owned), without_labels: true, ..scene.options.clone() };
    match DatasetIndex::open(&scene.root, &options) {
        Ok(index) => Ok((index.classes().to_vec(), index.len())),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn directories_that_are_splits_are_told_from_classes() {
    const BOTH: &[&str] =
        &["train/cat/0.jpg", "train/dog/0.jpg", "val/cat/0.jpg", "val/dog/1.jpg", "val/dog/2.jpg"];
    const CLASS: &[&str] = &["bus/0.jpg", "train/0.jpg"];
    const MIXED: &[&str] = &["bus/0.jpg", "train/cat/0.jpg"];
    let cases: &[(&[&str], Option<&str>, Told)] = &[
        (BOTH, None, Err("split: is not set")),
        (BOTH, None, Err("has the directories train, val instead of one dataset: choose one")),
        (BOTH, Some("train"), Ok((&["cat", "dog"], 2))),
        (BOTH, Some("val"), Ok((&["cat", "dog"], 3))),
        (BOTH, Some("validation"), Ok((&["cat", "dog"], 3))),
        (BOTH, Some("test"), Err("is \"test\", but")),
        (&["Training/a/0.jpg", "Testing/a/0.jpg"], Some("test"), Ok((&["a"], 1))),
        (&["train2014/a/0.jpg", "train2017/b/0.jpg"], Some("train"), Err("name one of them")),
        (&["train2014/a/0.jpg", "train2017/b/0.jpg"], Some("train2017"), Ok((&["b"], 1))),
        (&["train/a/0.jpg", "test/0.jpg", "test/1.jpg"], Some("test"), Ok((&[], 2))),
        (&["train/0.jpg", "test/0.jpg"], None, Err("if they are classes, rename them")),
        (CLASS, None, Ok((&["bus", "train"], 2))),
        (CLASS, Some("train"), Ok((&[], 1))),
        (MIXED, None, Err("is ambiguous: the directory train may be splits")),
        (MIXED, Some("train"), Ok((&["cat"], 1))),
        (&["train/0.tar", "val/0.tar"], None, Err("has the directories train, val instead of")),
        (&["0.tar", "val/0.tar"], None, Err("is ambiguous")),
        (
            &["0.tar", "more/0.tar"],
            None,
            Err("holds shards both directly (0.tar) and in directories (more/0.tar)"),
        ),
        (
            &["cat/.ipynb_checkpoints/0.jpg", "train/.git/x.jpg", "cat/0.jpg"],
            None,
            Ok((&["cat", "train"], 1)),
        ),
        (
            &["images/0.jpg", "images/1.jpg", "masks/0.png", "masks/1_mask.png"],
            None,
            Err("have 2 of 2 file names in common"),
        ),
        (&["images/0.jpg", "images/1.jpg", "masks/2.png"], None, Ok((&["images", "masks"], 3))),
        (&["mask/0.jpg", "no_mask/0.jpg"], None, Ok((&["mask", "no_mask"], 2))),
        (
            &["chest/train/ill/0.jpg", "chest/test/ill/1.jpg"],
            None,
            Err("the directories chest/test, chest/train may be splits by name, or directories in the"),
        ),
        (
            &["a/train/good/0.jpg", "a/test/bad/1.jpg", "b/train/good/0.jpg"],
            None,
            Err("in the classes a, b. To read a split, open "),
        ),
        (&["a/train/0.jpg", "a/test/1.jpg"], None, Ok((&["a"], 2))),
        (&["a/train/good/0.jpg", "b/0.jpg"], None, Ok((&["a", "b"], 2))),
        (
            &["training_set/a/0.jpg", "test_set/a/1.jpg"],
            None,
            Err("has the directories test_set, training_set"),
        ),
        (&["training_set/a/0.jpg", "test_set/a/1.jpg"], Some("test"), Ok((&["a"], 1))),
        (&["seg_train/a/0.jpg", "seg_test/a/0.jpg", "seg_pred/0.jpg"], None, Err("is ambiguous")),
        (&["test_tubes/a/0.jpg", "train_cars/a/0.jpg"], None, Ok((&["test_tubes", "train_cars"], 2))),
        (
            &["A.TAR"],
            None,
            Err("1 shards with endings in upper case, which are not read: rename them, e.g. A.TAR"),
        ),
        (&["0.jpg", "b.jpe", "c.JFIF"], None, Ok((&[], 3))),
        (&["0.jpg", "empty/readme.txt"], None, Ok((&[], 1))),
        (&["0.jpg", "cat/0.jpg"], None, Ok((&["cat"], 1))),
        (&[], None, Err("holds no dataset: no class directories")),
        (&["readme.md"], None, Err("found: 1 files in the root, e.g. readme.md")),
    ];
    for (files, split, right) in cases {
        match (told(files, *split), right) {
            (Ok(found), Ok((classes, samples))) => {
                assert_eq!(
                    (found.0.iter().map(String::as_str).collect::<Vec<_>>(), found.1),
                    (classes.to_vec(), *samples),
                    "{files:?} {split:?}"
                );
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{files:?} {split:?}: {error}"),
            (found, _) => panic!("{files:?} {split:?}: {found:?}"),
        }
    }
}

#[test]
fn directories_of_files_are_splits_where_they_hold_directories() {
    let open = |files: &[&str]| {
        let mut scene = Scene::new();
        scene.options.contents = Contents::Files;
        files.iter().for_each(|file| drop(scene.write(file, b"x")));
        scene.open().map(|index| index.classes().to_vec()).map_err(|error| error.to_string())
    };
    assert_eq!(open(&["train/0.npz", "test/0.npz", "raw/0.npz"]).unwrap(), ["raw", "test", "train"]);
    for files in [&["train/cat/0.npz", "val/cat/0.npz"], &["train/cat/0.npz", "raw/0.npz"]] {
        let told = open(files).unwrap_err();
        assert!(
            told.contains("have names of splits and hold directories: open one of them, such as "),
            "{told}"
        );
        assert!(told.contains("/train, or several") && !told.contains("split="), "{told}");
    }
}

#[test]
fn what_is_left_out_later_of_shards_is_counted_without_reading_them_again() {
    let scene = Scene::new();
    copy(&fixture("webdataset/shards"), &scene.root);
    let shard = scene.root.join("b.tar");
    fs::copy(fs::read_dir(&scene.root).unwrap().next().unwrap().unwrap().path(), &shard).unwrap();
    let (before, facts_before) = (summary(&scene.open().unwrap()).notes, facts(&scene.open().unwrap()));
    for count in 1..3 {
        fs::copy(&shard, scene.root.join(format!("{count}.tar.part"))).unwrap();
        for _ in 0..2 {
            let index = scene.open().unwrap();
            let now = summary(&index);
            assert_eq!((now.origin, facts(&index)), (IndexOrigin::Loaded, facts_before.clone()));
            assert_eq!(now.notes.skipped[UNFINISHED_TEXT].count, count);
            assert_eq!(now.notes.unlabeled, before.unlabeled);
        }
    }
    // If another file replaces one of these, it is named. After all are removed, no file is named.
    fs::remove_file(scene.root.join("2.tar.part")).unwrap();
    fs::rename(scene.root.join("1.tar.part"), scene.root.join("0.tar.bak")).unwrap();
    assert_eq!(summary(&scene.open().unwrap()).notes.skipped[UNFINISHED_TEXT].example, "0.tar.bak");
    fs::remove_file(scene.root.join("0.tar.bak")).unwrap();
    let index = scene.open().unwrap();
    assert_eq!((summary(&index).notes, summary(&index).origin), (before, IndexOrigin::Loaded));
}

#[test]
fn what_is_left_out_later_is_counted_then() {
    let scene = folder(".jpg");
    let fingerprint = scene.open().unwrap().fingerprint();
    let count = |reason: &str| {
        let index = scene.open().unwrap();
        assert_eq!(index.fingerprint(), fingerprint);
        assert_eq!(summary(&index).origin, IndexOrigin::Loaded);
        let skipped = summary(&index).notes.skipped;
        skipped
            .iter()
            .filter(|(known, _)| known.starts_with(reason))
            .map(|(_, skipped)| skipped.count)
            .sum::<u64>()
    };
    for (path, reason) in [
        ("cat/x.gif", ".gif images"),
        ("dog/x.HEIC", ".heic images"),
        ("root.jpg", "images in the root"),
        ("root.gif", "images in the root"),
        ("b.parquet", "shards in the root"),
        ("cat/b.tar", "shards in directories"),
        (".hidden", "hidden files"),
        ("dog/.hidden", "hidden files"),
        ("B.TAR", "shards with endings in upper case"),
        ("metadata.csv", "tables beside the images"),
    ] {
        let before = count(reason);
        scene.write(path, b"x");
        assert_eq!(count(reason), before + 1, "{path}");
        fs::remove_file(scene.root.join(path)).unwrap();
        assert_eq!(count(reason), before, "{path}");
        scene.write(path, b"x");
        assert_eq!(count(reason), before + 1, "{path}");
    }
}

#[test]
fn links_to_splits_and_from_hidden_directories_are_followed_as_they_are_called() {
    let scene = folder(".jpg");
    let elsewhere = scene.root.with_file_name("elsewhere");
    copy(&scene.root, &elsewhere.join("val"));
    symlink(&elsewhere, scene.root.join(".hidden")).unwrap();
    let root = Scene::new();
    symlink(&scene.root, root.root.join("train")).unwrap();
    symlink(elsewhere.join("val"), root.root.join("valid")).unwrap();
    assert!(root.error().contains("train, valid"));
    let options = IndexOptions { split: Some("val".to_owned()), ..root.options.clone() };
    assert_eq!(DatasetIndex::open(&root.root, &options).unwrap().len(), 3);
}
