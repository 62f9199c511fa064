//! Changes of a dataset between two starts: a run continues after changes that affect no sample; all other changes are
//! noticed and named.

use crate::common::scene::{Scene, all_of, bytes_of, summary, tfrecord};
use crate::common::{child, passes, tar, tick};
use foreload::Error;
use foreload::testing::dataset::{Changed, Contents, DatasetIndex, FileId, IndexOptions, IndexOrigin, Stamp};
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn loose() -> Scene {
    let scene = Scene::new();
    for path in ["a/1.jpg", "a/2.jpg", "a/sub/3.png", "a/sub/deep/4.jpg", "b/1.jpg", "b/note.txt", "c/1.jpg"]
    {
        scene.write(path, path.as_bytes());
    }
    scene
}

fn shards() -> Scene {
    let scene = Scene::new();
    for (shard, label) in [("0.tar", b"3"), ("1.tar", b"1"), ("2.tar", b"2")] {
        let image = [shard.as_bytes(), b" image"].concat();
        let members: [(&str, &[u8]); 4] =
            [("x.jpg", &image), ("x.cls", label), ("y.png", b"other"), ("y.cls", b"0")];
        scene.write(shard, &tar(&members));
    }
    scene
}

fn single() -> Scene {
    let mut scene = shards();
    scene.root.push("1.tar");
    scene
}

fn records() -> Scene {
    let mut scene = Scene::new();
    scene.options.contents = Contents::Files;
    scene.write("a.tfrecord", &tfrecord(&[b"one", b"two"]));
    scene.write("b.tfrecord", &tfrecord(&[b"three"]));
    scene
}

fn files() -> Scene {
    let mut scene = Scene::new();
    scene.options.contents = Contents::Files;
    for path in ["x.npy", "a/1.npy", "a/b/2.npy"] {
        scene.write(path, path.as_bytes());
    }
    scene
}

/// Replaces a file as `cp -a` does: another inode with the same bytes and times.
fn copy_in_place(path: &Path) {
    let (aside, metadata) = (path.with_extension("aside"), fs::metadata(path).unwrap());
    fs::rename(path, &aside).unwrap();
    if metadata.is_dir() {
        fs::create_dir(path).unwrap();
        for entry in fs::read_dir(&aside).unwrap() {
            let name = entry.unwrap().file_name();
            fs::rename(aside.join(&name), path.join(&name)).unwrap();
        }
        fs::remove_dir(&aside).unwrap();
    } else {
        fs::copy(&aside, path).unwrap();
        fs::remove_file(&aside).unwrap();
    }
    set_back(path, &metadata);
    assert_ne!(fs::metadata(path).unwrap().ino(), metadata.ino());
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
}

/// Sets the time of a file back, as `touch -d` does.
fn set_back(path: &Path, to: &fs::Metadata) {
    let times = FileTimes::new().set_modified(to.modified().unwrap());
    File::open(path).unwrap().set_times(times).unwrap();
}

fn touch_and_remove(path: &Path) {
    fs::write(path, b"").unwrap();
    fs::remove_file(path).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A change of the dataset below a root.
type Change<'a> = &'a dyn Fn(&Path);

fn goes_on(make: fn() -> Scene, changes: &[Change<'_>]) {
    for (number, change) in changes.iter().enumerate() {
        let mut scene = make();
        scene.options.changed = Changed::Refuse;
        let before = scene.open().unwrap();
        tick();
        change(&scene.root);
        let after = scene.open().unwrap_or_else(|error| panic!("change {number}: {error}"));
        assert_eq!(summary(&after).origin, IndexOrigin::Loaded, "change {number}");
        assert!(after.fingerprint() == before.fingerprint() && all_of(&after) == all_of(&before));
        assert_eq!(after.notices().take(), [] as [String; 0], "change {number}");
        for file in after.files().filter(|&file| after.shard_stamp(file).is_some()) {
            assert_eq!(after.shard_stamp(file), Stamp::at(&after.path(file)).ok(), "change {number}");
        }
        // The result of the check is stored: the next start finds nothing changed, and writes nothing.
        let kept = fs::metadata(summary(&after).index_path).unwrap().ino();
        assert!(all_of(&scene.open().unwrap()) == all_of(&before));
        assert_eq!(fs::metadata(summary(&after).index_path).unwrap().ino(), kept, "change {number}");
        after.verify().unwrap();
    }
}

#[test]
fn what_changes_no_sample_goes_on() {
    goes_on(
        loose,
        &[
            &|root| touch_and_remove(&root.join("a/.nfs1")),
            &|root| touch_and_remove(&root.join("a/sub/.nfs1")),
            &|root| touch_and_remove(&root.join(".nfs1")),
            &|root| chmod(&root.join("b"), 0o700),
            &|root| chmod(root, 0o711),
            &|root| copy_in_place(&root.join("a/sub")),
            &|root| copy_in_place(&root.join("c")),
            &|root| copy_in_place(root),
            &|root| fs::write(root.join("b/another note.txt"), b"no sample").unwrap(),
            &|root| copy_in_place(&root.join("a/1.jpg")),
            &|root| chmod(&root.join("a/1.jpg"), 0o600),
        ],
    );
    goes_on(
        files,
        &[&|root| touch_and_remove(&root.join("a/b/.nfs1")), &|root| touch_and_remove(&root.join(".nfs1"))],
    );
    let of_shards: [Change<'_>; 5] = [
        &|root| File::open(first_file(root)).unwrap().set_modified(std::time::SystemTime::now()).unwrap(),
        &|root| chmod(&first_file(root), 0o600),
        &|root| copy_in_place(&first_file(root)),
        &|root| touch_and_remove(&root.join(".nfs1")),
        &|root| copy_in_place(root),
    ];
    goes_on(shards, &of_shards);
    goes_on(records, &of_shards);
    goes_on(single, &of_shards[..3]);
}

/// The first file of the dataset, or the root itself if it is a shard.
fn first_file(root: &Path) -> PathBuf {
    if root.is_file() {
        return root.to_path_buf();
    }
    fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).min().unwrap()
}

/// Makes each change of a dataset and tries each way to continue. The messages must contain `named`.
fn is_noticed(make: fn() -> Scene, changes: &[(&str, Change<'_>)]) {
    for (named, change) in changes {
        let mut scene = make();
        let before = scene.open().unwrap();
        let old = all_of(&before);
        tick();
        change(&scene.root);

        scene.options.changed = Changed::Refuse;
        let error = scene.open().err().unwrap_or_else(|| panic!("{named}: not refused"));
        assert!(
            matches!(error, Error::DatasetChanged { .. }) && error.to_string().contains(named),
            "{error}"
        );
        let says_twice = named.contains("shard") && error.to_string().contains("no longer exists");
        assert!(!says_twice, "the names in the root say it already: {error}");
        assert!(matches!(before.verify(), Err(Error::DatasetChanged { .. })), "{named}");

        scene.options.changed = Changed::Warn;
        let index = scene.open().unwrap();
        assert!(summary(&index).origin == IndexOrigin::Loaded && all_of(&index) == old, "{named}");
        let said = scene.options.notices.take();
        assert!(said.len() == 1 && said[0].contains(named) && said[0].contains("old index"), "{said:?}");

        // Another process without an index gets the same result.
        let apart = tempfile::tempdir().unwrap();
        let anew = IndexOptions { directory: Some(apart.path().join("index")), ..scene.options.clone() };
        let expected = DatasetIndex::open(&scene.root, &anew);
        let options =
            IndexOptions { changed: Changed::Rebuild, notices: Default::default(), ..scene.options.clone() };
        let rebuilt = DatasetIndex::open(&scene.root, &options);
        match (rebuilt, expected) {
            (Ok(rebuilt), Ok(expected)) => {
                assert!(all_of(&rebuilt) == all_of(&expected) && all_of(&rebuilt) != old, "{named}");
                assert_eq!(rebuilt.fingerprint(), expected.fingerprint());
                assert_eq!(summary(&rebuilt).origin, IndexOrigin::Built("the dataset changed".to_owned()));
                let said = options.notices.take();
                assert!(
                    said.len() == 1 && said[0].contains(named) && said[0].contains("rebuilt"),
                    "{said:?}"
                );
                let again = DatasetIndex::open(&scene.root, &options).unwrap();
                assert!(summary(&again).origin == IndexOrigin::Loaded && all_of(&again) == all_of(&rebuilt));
            }
            (Err(rebuilt), Err(expected)) => assert_eq!(rebuilt.to_string(), expected.to_string()),
            (rebuilt, expected) => panic!("{named}: {:?}, {:?}", rebuilt.err(), expected.err()),
        }
    }
}

#[test]
fn changed_directories_are_noticed() {
    let write = |path: PathBuf, bytes: &[u8]| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    is_noticed(
        loose,
        &[
            ("new file 9.jpg", &|root| write(root.join("a/9.jpg"), b"new")),
            ("new file 0.jpg", &|root| write(root.join("a/sub/deep/0.jpg"), b"new")),
            ("no file 2.jpg any more", &|root| fs::remove_file(root.join("a/2.jpg")).unwrap()),
            ("new file 0.jpg", &|root| fs::rename(root.join("a/2.jpg"), root.join("a/0.jpg")).unwrap()),
            ("2.jpg", &|root| fs::rename(root.join("a/2.jpg"), root.join("b/2.jpg")).unwrap()),
            ("1.jpg, which has 3 bytes, but had 7", &|root| {
                write(root.join("b/.new"), b"new");
                fs::rename(root.join("b/.new"), root.join("b/1.jpg")).unwrap();
            }),
            ("new directory more", &|root| write(root.join("a/more/1.jpg"), b"new")),
            // The error names the file or the directory that it was in, depending on which thread is first.
            ("dee", &|root| {
                fs::rename(root.join("a/sub/deep"), root.join("a/sub/dee")).unwrap();
            }),
            ("new class d", &|root| write(root.join("d/1.jpg"), b"new")),
            ("no class b any more", &|root| fs::remove_dir_all(root.join("b")).unwrap()),
            ("no class b any more", &|root| fs::rename(root.join("b"), root.join("z")).unwrap()),
            ("no class b any more", &|root| {
                fs::remove_dir_all(root.join("b")).unwrap();
                write(root.join("b"), b"a file");
            }),
            ("no file 1.jpg any more", &|root| {
                let metadata = fs::metadata(root.join("b")).unwrap();
                fs::remove_dir_all(root.join("b")).unwrap();
                write(root.join("b/2.jpg"), b"b/1.jpg");
                set_back(&root.join("b"), &metadata);
            }),
        ],
    );
    is_noticed(
        files,
        &[
            ("new file new.npy", &|root| write(root.join("new.npy"), b"new")),
            ("no file 2.npy", &|root| fs::remove_file(root.join("a/b/2.npy")).unwrap()),
            ("new class a", &|root| fs::remove_file(root.join("x.npy")).unwrap()),
        ],
    );
}

#[test]
fn a_dataset_that_is_gone_is_named() {
    for make in [shards, loose] {
        let scene = make();
        let index = scene.open().unwrap();
        fs::remove_dir_all(&scene.root).unwrap();
        let error = index.verify().unwrap_err().to_string();
        assert!(error.contains("data: no longer exists"), "{error}");
    }
}

#[test]
fn changed_shards_are_noticed() {
    let rewrite = |path: PathBuf, members: &[(&str, &[u8])]| {
        let metadata = fs::metadata(&path).unwrap();
        fs::write(&path, tar(members)).unwrap();
        set_back(&path, &metadata);
    };
    is_noticed(
        shards,
        &[
            ("new shard 3.tar", &|root| copy(&root.join("0.tar"), &root.join("3.tar"))),
            ("no shard 1.tar", &|root| fs::remove_file(root.join("1.tar")).unwrap()),
            ("new shard 0b.tar", &|root| fs::rename(root.join("1.tar"), root.join("0b.tar")).unwrap()),
            // The size is the same, and the time is set back.
            ("has label 9 for its sample at byte 512, but had 1", &|root| {
                let members: [(&str, &[u8]); 4] =
                    [("x.jpg", b"1.tar image"), ("x.cls", b"9"), ("y.png", b"other"), ("y.cls", b"0")];
                rewrite(root.join("1.tar"), &members);
            }),
            ("has another sample at byte 512", &|root| {
                let members: [(&str, &[u8]); 4] =
                    [("x.jpg", b"2.tar"), ("x.cls", b"2"), ("y.png", b"other"), ("y.cls", b"0")];
                rewrite(root.join("2.tar"), &members);
            }),
            ("holds 1 samples, but held 2", &|root| {
                rewrite(root.join("0.tar"), &[("x.jpg", b"x"), ("x.cls", b"3")]);
            }),
            ("has no label for its sample", &|root| {
                let members: [(&str, &[u8]); 4] =
                    [("x.jpg", b"0.tar image"), ("x.cls", b"3"), ("y.png", b"other"), ("y.txt", b"0")];
                rewrite(root.join("0.tar"), &members);
            }),
            ("truncated", &|root| {
                File::options().write(true).open(root.join("0.tar")).unwrap().set_len(600).unwrap();
            }),
        ],
    );
    is_noticed(
        single,
        &[("has label 9 for its sample", &|root| {
            let members: [(&str, &[u8]); 4] =
                [("x.jpg", b"1.tar image"), ("x.cls", b"9"), ("y.png", b"other"), ("y.cls", b"0")];
            rewrite(root.to_path_buf(), &members);
        })],
    );
    is_noticed(
        records,
        &[("holds 2 samples", &|root| {
            fs::write(root.join("b.tfrecord"), tfrecord(&[b"three", b"four"])).unwrap();
        })],
    );
}

#[test]
fn the_rest_of_a_changed_dataset_is_read() {
    let mut scene = shards();
    let before = scene.open().unwrap();
    tick();
    fs::write(scene.root.join("1.tar"), tar(&[("x.jpg", b"short"), ("x.cls", b"1")])).unwrap();
    File::open(scene.root.join("2.tar")).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    scene.options.changed = Changed::Warn;
    let index = scene.open().unwrap();
    let stamp = |index: &DatasetIndex, shard| index.shard_stamp(FileId(shard)).unwrap();
    let now = |shard| Stamp::at(&index.path(FileId(shard))).unwrap();
    assert_eq!(stamp(&index, 0), stamp(&before, 0));
    assert_ne!(stamp(&index, 1), now(1), "readers refuse it");
    assert_eq!((stamp(&index, 2), bytes_of(&index, 4)), (now(2), b"2.tar image".to_vec()));
}

#[test]
fn a_file_overwritten_in_place_is_found_by_checking_all_files() {
    let scene = loose();
    let index = scene.open().unwrap();
    tick();
    fs::write(scene.root.join("c/1.jpg"), b"of another length").unwrap();
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded, "its directory is as it was");
    let error = index.verify().err().unwrap().to_string();
    assert!(error.contains("/c: holds 1.jpg, which has 17 bytes, but had 7"), "{error}");
}

#[test]
fn each_of_several_changed_datasets_is_named() {
    let (one, two) = (loose(), loose());
    let roots = [&one.root, &two.root];
    let open = || DatasetIndex::open_all(&roots, &one.options, &Default::default()).unwrap();
    open();
    tick();
    roots.iter().for_each(|root| fs::remove_file(root.join("a/1.jpg")).unwrap());
    assert_eq!(open().len(), 10);
    let said = one.options.notices.take();
    assert!(said.len() == 2 && said.iter().all(|said| said.contains("no file 1.jpg")), "{said:?}");
}

/// A command that runs a test in its own process on this dataset.
fn of<Test: Fn()>(test: Test, scene: &Scene) -> Command {
    let mut child = child(test);
    child.env("FORELOAD_TEST_DATASET", &scene.root).stdout(Stdio::piped());
    child.env("FORELOAD_INDEX_DIR", scene.options.directory.as_ref().unwrap());
    child
}

fn dataset() -> PathBuf {
    std::env::var_os("FORELOAD_TEST_DATASET").expect("a test says it").into()
}

#[test]
fn processes_that_find_a_change_together_rebuild_once() {
    let scene = loose();
    for image in 0..3000 {
        scene.write(format!("b/{image}.jpg"), b"x");
    }
    scene.open().unwrap();
    for round in 0..3 {
        tick();
        let added = scene.write(format!("c/new {round}.jpg"), b"new");
        let samples = 3006 + round;
        let children: Vec<_> = (0..4).map(|_| of(open_and_tell, &scene).spawn().unwrap()).collect();
        let said: Vec<String> = children
            .into_iter()
            .map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
            .collect();
        let count = |what: &str| said.iter().filter(|said| said.contains(what)).count();
        assert_eq!(count(&format!("built {samples} samples, 1 notices;")), 1, "{added:?}: {said:?}");
        assert_eq!(count(&format!("loaded {samples} samples, 0 notices;")), 3, "{said:?}");
    }
}

#[test]
#[ignore = "run by the test above, in processes of its own"]
fn open_and_tell() {
    let index = DatasetIndex::open(&dataset(), &IndexOptions::default()).unwrap();
    let kind = if summary(&index).origin == IndexOrigin::Loaded { "loaded" } else { "built" };
    println!("{kind} {} samples, {} notices;", index.len(), index.notices().take().len());
}

#[test]
fn a_relative_path_stays_relative_to_where_it_was_given() {
    passes(&mut of(open_here_and_read_there, &loose()));
}

#[test]
#[ignore = "run by the test above, in a process of its own: it has one working directory"]
fn open_here_and_read_there() {
    let root = dataset();
    std::env::set_current_dir(root.parent().unwrap()).unwrap();
    let index = DatasetIndex::open(Path::new(root.file_name().unwrap()), &IndexOptions::default()).unwrap();
    std::env::set_current_dir("/").unwrap();
    (0..index.len()).for_each(|sample| assert!(!bytes_of(&index, sample).is_empty()));
    index.verify().unwrap();
}

#[test]
fn a_link_to_the_root_is_not_followed() {
    let scene = loose();
    let expected: Vec<_> = all_of(&scene.open().unwrap());
    tick();
    symlink(".", scene.root.join("self")).unwrap();
    symlink("../..", scene.root.join("a/sub/up")).unwrap();
    let again = IndexOptions { rebuild: true, ..scene.options.clone() };
    let index = DatasetIndex::open(&scene.root, &again).unwrap();
    assert!(all_of(&index) == expected);
    assert_eq!(index.classes(), ["a", "b", "c"]);
    assert_eq!(summary(&index).notes.skipped["links to a directory above"].count, 2);
}
