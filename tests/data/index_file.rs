//! The index file may be damaged before a run, and changed in any way during a run; and it works without a home
//! directory.

use crate::common::scene::{Scene, all_of, summary};
use crate::common::{child, passes, tar_of_samples};
use foreload::testing::dataset::{DatasetIndex, IndexOptions, IndexOrigin};
use std::fs::{self, DirBuilder, File, FileTimes};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The variable that passes the path of the dataset to a test in its own process.
const DATASET: &str = "FORELOAD_TEST_DATASET";

fn dataset() -> PathBuf {
    std::env::var_os(DATASET).expect("a test above says it").into()
}

fn classes_of_images(classes: usize, images: usize) -> Scene {
    let scene = Scene::new();
    for class in 0..classes {
        for image in 0..images {
            scene.write(format!("class {class}/{image:05}.jpg"), &vec![b'x'; image % 5]);
        }
    }
    scene
}

#[test]
fn anything_may_happen_to_the_file_while_it_is_used() {
    let scene = classes_of_images(3, 2000);
    let directory = scene.options.directory.as_ref().unwrap();
    passes(child(use_a_file_that_changes).env(DATASET, &scene.root).env("FORELOAD_INDEX_DIR", directory));
}

#[test]
#[ignore = "run by the test above, in a process of its own: a signal would end it"]
fn use_a_file_that_changes() {
    let root = dataset();
    let open = || DatasetIndex::open(&root, &IndexOptions::default()).unwrap();
    let expected = all_of(&open());
    let changes: [&dyn Fn(&Path); 4] = [
        &|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap(),
        &|path| File::options().write(true).open(path).unwrap().set_len(5000).unwrap(),
        &|path| {
            let length = fs::metadata(path).unwrap().len();
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&vec![0xa5; length as usize], 0).unwrap();
        },
        &|path| fs::remove_file(path).unwrap(),
    ];
    for change in changes {
        let index = open();
        change(&summary(&index).index_path);
        assert!(all_of(&index) == expected);
    }
}

#[test]
fn damage_anywhere_is_noticed_when_it_is_loaded() {
    let scene = classes_of_images(2, 3);
    let first = scene.open().unwrap();
    let (expected, path) = (all_of(&first), summary(&first).index_path);
    let good = fs::read(&path).unwrap();
    // No digest covers the padding between sections.
    let mut rebuilt = 0;
    // The step is small enough to damage every section.
    let places = (0..good.len()).step_by(7);
    for at in places.clone() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        let index = scene.open().unwrap();
        assert!(all_of(&index) == expected, "byte {at}");
        rebuilt += usize::from(summary(&index).origin != IndexOrigin::Loaded);
    }
    assert!(rebuilt + 10 > places.len(), "{rebuilt} of {}", places.len());
}

/// The members, which are the last section of the file, are read only if a shard has moved.
#[test]
fn damage_that_shows_when_a_shard_has_moved_makes_a_new_index() {
    let scene = Scene::new();
    let members = || [("jpg", b"image".to_vec()), ("txt", b"text".to_vec())];
    let samples = (0..40).map(|number| (format!("{number:03}"), members()));
    let shard = scene.write("0.tar", &tar_of_samples(samples));
    let path = summary(&scene.open().unwrap()).index_path;
    let end = fs::metadata(&path).unwrap().len();
    File::options().write(true).open(&path).unwrap().write_all_at(b"damage", end - 6).unwrap();
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded, "nobody has read the members");
    File::options().write(true).open(&shard).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let origin = summary(&scene.open().unwrap()).origin;
    assert!(matches!(&origin, IndexOrigin::Built(because) if because.contains("damaged")), "{origin:?}");
}

#[test]
fn unfinished_files_of_others_are_left_until_they_are_old() {
    let scene = classes_of_images(1, 3);
    let index = summary(&scene.open().unwrap()).index_path;
    let other = |kind: &str| index.with_extension(format!("node7-1-0123456789abcdef.{kind}"));
    let (fresh, old) = (other("new"), other("spill"));
    for path in [&fresh, &old] {
        fs::write(path, b"half").unwrap();
    }
    let long_ago = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
    let times = FileTimes::new().set_modified(long_ago);
    File::options().write(true).open(&old).unwrap().set_times(times).unwrap();
    let again = IndexOptions { rebuild: true, ..scene.options.clone() };
    DatasetIndex::open(&scene.root, &again).unwrap();
    assert!(fresh.exists() && !old.exists());
}

#[test]
fn a_home_that_cannot_be_written_to_is_no_failure() {
    let scene = classes_of_images(2, 3);
    let file = scene.write("../a file", b"and no directory");
    // Neither a file nor a missing variable is a home directory. The superuser can write to all other directories.
    for home in [Some(&file), None] {
        let temporary = tempfile::tempdir().unwrap();
        for origin in ["built", "loaded"] {
            let mut child = homeless(open_without_a_home, &scene, temporary.path());
            home.map(|home| child.env("HOME", home));
            passes(child.env("EXPECTED", origin));
        }
    }
}

/// A test in its own process that has no home directory, and whose temporary files are in `temporary`.
fn homeless<Test: Fn()>(test: Test, scene: &Scene, temporary: &Path) -> Command {
    let mut child = child(test);
    child.env_remove("FORELOAD_INDEX_DIR").env_remove("XDG_CACHE_HOME").env_remove("HOME");
    child.env(DATASET, &scene.root).env("TMPDIR", temporary);
    child
}

#[test]
#[ignore = "run by the test above, in a process of its own: its environment is changed"]
fn open_without_a_home() {
    let root = dataset();
    let temporary = std::env::temp_dir().canonicalize().unwrap();
    let index = DatasetIndex::open(&root, &IndexOptions::default()).unwrap();
    let found = summary(&index);
    assert!(found.index_path.starts_with(&temporary), "{:?}", found.index_path);
    let kept = found.index_path.parent().unwrap();
    assert_eq!(fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o700);
    let was_loaded = std::env::var("EXPECTED").unwrap() == "loaded";
    assert_eq!(found.origin == IndexOrigin::Loaded, was_loaded, "{:?}", found.origin);
    let notices = index.notices().take();
    assert!(notices.len() == 1 && notices[0].contains("set index_dir"), "{notices:?}");
    // A directory that the user names must be used.
    let named = std::env::var_os("HOME").unwrap_or_else(|| kept.join("../a file").into());
    fs::write(&named, b"").unwrap();
    let options = IndexOptions { directory: Some(PathBuf::from(named)), ..IndexOptions::default() };
    let error = DatasetIndex::open(&root, &options).err().unwrap().to_string();
    assert!(error.contains("index directory") && error.contains("a file"), "{error}");
    assert!(options.notices.take().is_empty());
}

#[test]
fn a_temporary_directory_of_others_is_left_alone() {
    let scene = classes_of_images(1, 3);
    for kind in ["open to all", "a link"] {
        let temporary = tempfile::tempdir().unwrap();
        passes(homeless(open_beside_others, &scene, temporary.path()).env("KIND", kind));
    }
}

#[test]
#[ignore = "run by the test above, in a process of its own: its environment is changed"]
fn open_beside_others() {
    let root = dataset();
    let open = || DatasetIndex::open(&root, &IndexOptions::default());
    let kept = summary(&open().unwrap()).index_path.parent().unwrap().to_path_buf();
    fs::remove_dir_all(&kept).unwrap();
    if std::env::var("KIND").unwrap() == "a link" {
        let own = kept.with_file_name("own");
        DirBuilder::new().mode(0o700).create(&own).unwrap();
        symlink(own, &kept).unwrap();
    } else {
        fs::create_dir(&kept).unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Another directory is used instead, and files of other users are not touched.
    let instead = summary(&open().unwrap()).index_path;
    assert!(!instead.starts_with(&kept), "{}", instead.display());
    assert!(fs::read_dir(&kept).unwrap().next().is_none());
    fs::remove_dir_all(instead.parent().unwrap()).unwrap();
}
