//! Parquet and Arrow files through the public loader: which files are a dataset, which split is read, and what is
//! refused.

use crate::common::fuzz;
use crate::common::scene::{Scene, bytes_of, samples_are_found_by_extent, summary};
use crate::fuzz::mutate;
use foreload::testing::dataset::{
    Contents, DatasetIndex, FieldKind, IndexOptions, IndexOrigin, Layout, MemberBytes,
};
use foreload::testing::rng::RandomStream;
use serde_json::json;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

/// A file that `datasets` or pyarrow wrote.
fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parquet() -> Vec<u8> {
    fixture("snapshot/single/files/data/train-00000-of-00001.parquet")
}

fn arrow() -> Vec<u8> {
    fixture("arrow/splits/files/train/data-00000-of-00001.arrow")
}

/// The dataset with these fields in a split.
fn with(scene: &Scene, split: Option<&str>, fields: Option<&[&str]>) -> foreload::Result<DatasetIndex> {
    let members = fields.map(|fields| fields.iter().map(ToString::to_string).collect());
    let split = split.map(str::to_owned);
    DatasetIndex::open(&scene.root, &IndexOptions { members, split, ..scene.options.clone() })
}

fn refusal(scene: &Scene, split: Option<&str>) -> String {
    match with(scene, split, None) {
        Ok(index) => panic!("{} samples were read of {split:?}", index.len()),
        Err(error) => error.to_string(),
    }
}

fn is_jpeg_or_png(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xd8\xff") || bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"RIFF")
}

#[test]
fn files_are_shards_in_the_order_of_their_names() {
    for (ending, layout, bytes) in
        [("parquet", Layout::Parquet, parquet()), ("arrow", Layout::Arrow, arrow())]
    {
        let scene = Scene::new();
        for name in ["b", "a", "c"] {
            scene.write(format!("{name}.{ending}"), &bytes);
        }
        // Unfinished files, and extra files of the libraries, are not shards.
        scene.write(format!("_part.{ending}"), b"half");
        scene.write(format!(".d.{ending}"), b"half");
        let index = scene.open().unwrap();
        let told = summary(&index);
        assert_eq!((told.layout, told.groups, index.len(), index.is_labeled()), (layout, 3, 6, true));
        assert_eq!(index.classes().len(), 4);
        for sample in 0..6 {
            assert!(is_jpeg_or_png(&bytes_of(&index, sample)), "{sample}");
            assert_eq!(bytes_of(&index, sample), bytes_of(&index, sample % 2));
        }
        samples_are_found_by_extent(&index);
        let kind = |name: &str| told.fields.iter().find(|field| field.name == name).map(|field| field.kind);
        assert_eq!((kind("image"), kind("label")), (Some(FieldKind::Image), Some(FieldKind::Integer)));
        assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
        index.verify().unwrap();
        // A single file is a dataset, too.
        let single = DatasetIndex::open(&scene.root.join(format!("b.{ending}")), &scene.options).unwrap();
        assert_eq!((single.len(), bytes_of(&single, 1)), (2, bytes_of(&index, 1)));
    }
}

#[test]
fn splits_are_known_by_names() {
    let bytes = parquet();
    let ways: [&[&str]; 4] = [
        &["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"],
        &["train/part.parquet", "test/part.parquet"],
        &["my_train.parquet", "my-test-1.parquet"],
        &["train-00000-of-00001.parquet", "test.parquet"],
    ];
    for names in ways {
        let scene = Scene::new();
        names.iter().for_each(|name| drop(scene.write(*name, &bytes)));
        scene.write("README.md", b"# A dataset\n");
        scene.write("0.jpg", b"an image of the README");
        assert!(refusal(&scene, None).contains("has the splits test, train: choose one"), "{names:?}");
        assert!(refusal(&scene, Some("validation")).contains("has the splits test, train"), "{names:?}");
        let (train, test) = (with(&scene, Some("train"), None), with(&scene, Some("test"), None));
        let (train, test) = (train.unwrap(), test.unwrap());
        assert_eq!((train.len(), test.len()), (2, 2));
        assert_eq!(
            summary(&train).notes.skipped["images in the root itself, apart from the samples"].count,
            1
        );
        assert_ne!(train.fingerprint(), test.fingerprint());
        // Each split has its own index.
        let origin = |split| summary(&with(&scene, Some(split), None).unwrap()).origin;
        assert_eq!((origin("train"), origin("test")), (IndexOrigin::Loaded, IndexOrigin::Loaded));
    }
}

#[test]
fn a_shard_that_is_added_below_is_noticed() {
    let scene = Scene::new();
    scene.write("data/train-a.parquet", &parquet());
    assert_eq!(scene.open().unwrap().len(), 2);
    scene.write("data/train-b.parquet", &parquet());
    let index = scene.open().unwrap();
    assert_eq!(index.len(), 4);
    assert!(matches!(summary(&index).origin, IndexOrigin::Built(_)));
    assert_eq!(summary(&scene.open().unwrap()).origin, IndexOrigin::Loaded);
}

#[test]
fn a_split_with_missing_files_is_refused_and_a_part_is_named() {
    let scene = Scene::new();
    let bytes = parquet();
    for name in ["train-00000-of-00003", "train-00002-of-00003", "test-00000-of-00001"] {
        scene.write(format!("data/{name}.parquet"), &bytes);
    }
    let told = refusal(&scene, Some("train"));
    let missing =
        "its split train is incomplete: 1 of 3 files are missing (data/train-00001-of-00003.parquet)";
    assert!(told.contains(missing) && told.contains("by braces"), "{told}");
    // Other splits are not affected, and a user who names a part gets it.
    assert_eq!(with(&scene, Some("test"), None).unwrap().len(), 2);
    let part = scene.root.join("data/train-{00000,00002}-of-00003.parquet");
    let part = DatasetIndex::open(&part, &scene.options).unwrap();
    assert_eq!((part.len(), part.notices().take()), (4, Vec::<String>::new()));
    let patterns = |path: &str| {
        format!("---\nconfigs: [{{data_files: [{{split: train, path: {path}}}]}}]\n---\n").into_bytes()
    };
    scene.write("README.md", &patterns("data/train-*"));
    assert!(refusal(&scene, None).contains("1 of 3 files are missing"));
    scene.write("README.md", &patterns("[data/train-00000-of-00003.parquet]"));
    assert_eq!(with(&scene, None, None).unwrap().len(), 2);
    fs::remove_file(scene.root.join("README.md")).unwrap();
    scene.write("data/train-00001-of-00003.parquet", &bytes);
    assert_eq!(with(&scene, Some("train"), None).unwrap().len(), 6);
    scene.write("data/train-00000-of-00002.parquet", &bytes);
    assert!(refusal(&scene, Some("train")).contains("remove the files of one version"));
}

#[test]
fn shards_that_are_no_split_may_be_a_part_with_a_warning() {
    let scene = Scene::new();
    for name in ["all-00000-of-00003.parquet", "all-00002-of-00003.parquet"] {
        scene.write(name, &parquet());
    }
    for _ in 0..2 {
        let index = scene.open().unwrap();
        let [told] = &index.notices().take()[..] else { panic!("one warning") };
        assert!(told.contains("1 of 3 files are missing (all-00001-of-00003.parquet)"), "{told}");
        assert_eq!(index.len(), 4);
    }
    scene.write("all-00001-of-00003.parquet", &parquet());
    let index = scene.open().unwrap();
    assert!(index.notices().take().iter().all(|told| !told.contains("missing")));
}

#[test]
fn what_only_has_the_name_of_something_is_told_as_what_it_is() {
    // In class directories, files with the names of lists are ignored, whatever their content and size.
    let scene = Scene::new();
    scene.write("cat/1.jpg", b"\xff\xd8\xff");
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(20 << 20));
    for name in ["index.json", "state.json", "README.md"] {
        scene.write(name, large.as_bytes());
    }
    assert_eq!(scene.open().unwrap().len(), 1);
    for name in ["index.json", "state.json", "README.md"] {
        fs::remove_file(scene.root.join(name)).unwrap();
        fs::create_dir(scene.root.join(name)).unwrap();
    }
    assert_eq!(scene.open().unwrap().len(), 1);
    // A list that is too large still counts as a list.
    let scene = Scene::new();
    scene.write("a.arrow", &arrow());
    let files = "{\"filename\": \"a.arrow\"}, ".repeat(1 << 20);
    scene.write("state.json", format!("{{\"_data_files\": [{files}]}}").as_bytes());
    assert!(scene.error().contains("may have at most 16777216"), "{}", scene.error());
    // A README whose files do not exist.
    let scene = Scene::new();
    scene.write("README.md", b"---\nconfigs: [{data_files: 'data/*.json'}]\n---\n");
    scene.write("data/x.json", b"{}");
    let told = scene.error();
    assert!(told.contains("README.md") && told.contains("no such Parquet or Arrow files"), "{told}");
    // The pointer files of Git LFS, if the files themselves were not fetched.
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n";
    for name in ["data/train-00000-of-00001.parquet", "a.tar", "x.arrow", "x.tfrecord"] {
        let scene = Scene::new();
        scene.write(name, pointer);
        let told = scene.error();
        assert!(told.contains(name) && told.contains("git lfs pull"), "{told}");
    }
    // Opening a pipe would wait for a writer.
    for name in ["x.parquet", "x.tar", "x.tfrecord", "index.json"] {
        let scene = Scene::new();
        let made = std::process::Command::new("mkfifo").arg(scene.root.join(name)).status();
        assert!(made.is_ok_and(|status| status.success()));
        let told = scene.error();
        assert!(
            told.contains("is not a regular file") || told.contains("holds no dataset"),
            "{name}: {told}"
        );
        assert!(DatasetIndex::open(&scene.root.join(name), &scene.options).is_err());
    }
}

#[test]
fn a_readme_names_the_files_of_splits() {
    let scene = Scene::new();
    let card =
        |data_files: &str| format!("---\nconfigs:\n- config_name: default\n  data_files:{data_files}\n---\n");
    scene.write("a/x.parquet", &parquet());
    scene.write("a/y.parquet", &parquet());
    scene.write("b/z.parquet", &parquet());
    let write = |text: &str| drop(scene.write("README.md", text.as_bytes()));
    write(&card(
        "\n  - split: first\n    path: a/*.parquet\n  - split: second\n    path: [b/z.parquet, a/x.parquet]",
    ));
    assert!(refusal(&scene, None).contains("has the splits first, second"));
    assert_eq!(with(&scene, Some("first"), None).unwrap().len(), 4);
    assert_eq!(with(&scene, Some("second"), None).unwrap().len(), 4);
    write(&card(" a/*"));
    let index = with(&scene, None, None).unwrap();
    assert_eq!((index.len(), with(&scene, Some("train"), None).unwrap().len()), (4, 4));
    for (data_files, why) in [
        (" ../other/*", "is outside its directory"),
        (" /etc/*.parquet", "is outside its directory"),
        (" hf://datasets/a/b/*", "is outside its directory"),
        (" [c/*, a/*]", "there are no such Parquet or Arrow files"),
        (" [[a]]", "cannot be parsed"),
    ] {
        write(&card(data_files));
        let told = refusal(&scene, None);
        assert!(told.contains("README.md") && told.contains(why), "{told}");
    }
    write("---\nconfigs: [{config_name: a, data_dir: a}, {config_name: b, data_dir: b}]\n---\n");
    assert!(refusal(&scene, None).contains("has the configurations a, b, but none is the default"));
    write(
        "---\nconfigs: [{config_name: a, data_dir: a}, {config_name: b, data_dir: b, default: true}]\n---\n",
    );
    assert_eq!(with(&scene, None, None).unwrap().len(), 2);
}

#[test]
fn what_is_not_one_dataset_is_refused() {
    let scene = |names: &[&str]| {
        let scene = Scene::new();
        let bytes = |name: &&str| if name.ends_with("arrow") { arrow() } else { parquet() };
        names.iter().for_each(|name| drop(scene.write(*name, &bytes(name))));
        scene
    };
    let told = |names: &[&str], split| refusal(&scene(names), split);
    assert!(told(&["a.parquet", "train.parquet"], None).contains("a.parquet: has no split in its name"));
    assert!(told(&["a.parquet", "b.arrow"], None).contains("one of Arrow files"));
    assert!(told(&["data/a.parquet", "data/b.arrow"], None).contains("one of Arrow files"));
    assert!(told(&["data/a.parquet", "more/b.parquet"], None).contains("in several directories"));
    assert!(told(&["a.parquet"], Some("train")).contains("has no splits"));
    assert!(told(&["train.parquet"], Some("Train")).contains("has the split train alone"));
    let hub = ["snapshots/1/data/train-0.parquet", "blobs/x", "README.md"];
    assert!(told(&hub, None).contains("open one of the directories in snapshots"));
    let leads_out = scene(&["train.parquet"]);
    for split in ["..", ".", "/", "a/b", "../x", "\0"] {
        assert!(refusal(&leads_out, Some(split)).contains("config: split"), "{split:?}");
    }
}

#[test]
fn links_into_the_store_of_a_hub_are_followed() {
    let scene = Scene::new();
    let blobs = scene.root.parent().expect("a directory").join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join("0123"), parquet()).unwrap();
    fs::create_dir_all(scene.root.join("data")).unwrap();
    std::os::unix::fs::symlink("../../blobs/0123", scene.root.join("data/train-00000-of-00001.parquet"))
        .unwrap();
    // A link to a parent directory is a cycle, and must not be followed forever.
    std::os::unix::fs::symlink("..", scene.root.join("data/up")).unwrap();
    assert_eq!(scene.open().unwrap().len(), 2);
}

fn saved(scene: &Scene, directory: &str, more: &serde_json::Value) {
    let mut state = json!({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0"});
    for (key, value) in more.as_object().expect("an object") {
        state[key] = value.clone();
    }
    scene.write(format!("{directory}data-00000-of-00001.arrow"), &arrow());
    scene.write(format!("{directory}cache-0123.arrow"), b"what a map gave");
    scene.write(format!("{directory}state.json"), state.to_string().as_bytes());
}

#[test]
fn what_was_saved_to_disk_is_what_its_state_lists() {
    let scene = Scene::new();
    saved(&scene, "", &json!({}));
    assert_eq!(scene.open().unwrap().len(), 2);
    for key in ["_indices_files", "_indices_data_files"] {
        saved(&scene, "", &json!({ key: [{"filename": "indices.arrow"}] }));
        let told = refusal(&scene, None);
        assert!(told.contains("state.json") && told.contains("ds.flatten_indices()"), "{told}");
        saved(&scene, "", &json!({ key: [] }));
        assert_eq!(scene.open().unwrap().len(), 2);
    }
    for name in ["../x.arrow", "/etc/passwd", "a/b.arrow", "..", ""] {
        saved(&scene, "", &json!({"_data_files": [{"filename": name}]}));
        assert!(refusal(&scene, None).contains("is damaged"), "{name}");
    }
}

#[test]
fn directories_of_saved_datasets_are_splits() {
    let scene = Scene::new();
    saved(&scene, "train/", &json!({}));
    saved(&scene, "other/", &json!({}));
    scene.write("dataset_dict.json", br#"{"splits": ["train", "other"]}"#);
    assert!(refusal(&scene, None).contains("holds datasets of Arrow files in other, train"));
    assert!(refusal(&scene, Some("test")).contains("holds datasets of Arrow files in other, train"));
    let split = with(&scene, Some("train"), None).unwrap();
    let named = DatasetIndex::open(&scene.root.join("train"), &scene.options).unwrap();
    assert_eq!((split.len(), split.fingerprint()), (2, named.fingerprint()));
    assert_eq!(summary(&named).origin, IndexOrigin::Loaded);
}

#[test]
fn a_split_is_asked_for_only_where_there_are_some() {
    let scene = Scene::new();
    scene.write("cat/1.jpg", b"\xff\xd8\xff");
    assert!(refusal(&scene, Some("train")).contains("has no splits"));
    let files =
        IndexOptions { contents: Contents::Files, split: Some("train".to_owned()), ..scene.options.clone() };
    assert!(DatasetIndex::open(&scene.root, &files).is_err());
}

#[test]
fn a_buffer_that_is_not_aligned_is_refused_as_by_arrow() {
    let scene = Scene::new();
    let mut file = fixture("arrow/file/files/part-0.arrow");
    scene.write("x.arrow", &file);
    assert!(with(&scene, None, None).is_ok());
    // The offset of the images in the first batch, and their total length.
    let buffer = [16i64.to_le_bytes(), 0x116i64.to_le_bytes()].concat();
    let at = file.windows(16).position(|bytes| bytes == buffer).expect("the buffer is in the batch's header");
    file[at] = 23;
    scene.write("x.arrow", &file);
    assert!(refusal(&scene, None).contains("not a batch: the shard is damaged"));
}

/// Mutations of each file, read by a loader: samples within the file, or an error that names it.
#[test]
fn damaged_files_are_errors_or_values_within_bounds() {
    for (name, file) in [("x.parquet", parquet()), ("x.arrow", arrow())] {
        let read = Cell::new(0);
        let one = |random: &mut RandomStream| {
            let scene = Scene::new();
            let mut damaged = file.clone();
            mutate(&mut damaged, random);
            scene.write(name, &damaged);
            match with(&scene, None, Some(&["image", "label", "caption"])) {
                Ok(index) => {
                    for sample in 0..index.len() {
                        for field in 0..3 {
                            if let MemberBytes::Separate(extent) = index.member(sample, field) {
                                let end = extent.offset + u64::from(extent.length);
                                assert!(end <= damaged.len() as u64, "{extent:?}");
                            }
                        }
                        let extent = index.extent(sample);
                        assert!(
                            extent.offset + u64::from(extent.length) <= damaged.len() as u64,
                            "{extent:?}"
                        );
                    }
                    read.set(read.get() + 1);
                }
                Err(error) => {
                    let told = error.to_string();
                    let is_named = told.contains(name) || told.contains(&*scene.root.to_string_lossy());
                    assert!(is_named || told.starts_with("config: "), "{told}");
                }
            }
        };
        // On a busy machine only a few damaged files are read in the given time, and all of them may be refused.
        for _ in 0..5 {
            fuzz(name, one);
            if read.get() > 0 {
                break;
            }
        }
        assert!(read.get() > 0, "no damaged {name} was read at all");
    }
}
