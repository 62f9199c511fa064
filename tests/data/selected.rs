//! Parts of a dataset: by sample, by class, and by lists like those of published datasets.

use crate::common::scene::Scene;
use crate::together::{folder, open_all, shards};
use foreload::Error;
use foreload::testing::dataset::{ClassRef, DatasetIndex, Select};
use proptest::prelude::*;
use std::os::unix::ffi::OsStrExt;

fn indices(indices: &[u64]) -> Select {
    Select { indices: Some(indices.to_vec()), ..Select::default() }
}

fn classes(classes: &[&str]) -> Select {
    let class = |name: &&str| match name.parse() {
        Ok(number) => ClassRef::Number(number),
        Err(_) => ClassRef::Name((*name).to_owned()),
    };
    Select { classes: Some(classes.iter().map(class).collect()), ..Select::default() }
}

/// A selection by a list with this text. The list is stored next to the dataset.
fn list(scene: &Scene, text: &str) -> Select {
    let path = scene.root.with_file_name("list.txt");
    std::fs::write(&path, text).unwrap();
    Select { files: Some(path), ..Select::default() }
}

/// The paths of the selected samples, below the root.
fn paths(scene: &Scene, index: &DatasetIndex, select: &Select) -> Vec<String> {
    let path = |sample: u32| index.path(index.extent(u64::from(sample)).file);
    let below = |sample| path(sample).strip_prefix(&scene.root).unwrap().to_str().unwrap().to_owned();
    select.resolve(index).unwrap().expect("a selection").into_iter().map(below).collect()
}

#[track_caller]
fn refused(select: &Select, index: &DatasetIndex, setting: &str, words: &[&str]) {
    let error = select.resolve(index).expect_err("a refusal");
    assert!(matches!(error, Error::Config { setting: at, .. } if at == setting), "{error}");
    let error = error.to_string();
    words.iter().for_each(|word| assert!(error.contains(word), "{word:?} is not in: {error}"));
}

fn animals() -> Scene {
    folder(&["cat/1.jpg", "cat/2.jpeg", "cat/sub/1.png", "dog/1.jpg", "dog/x 3.jpg", "emu/1.jpg", "emu/7"])
}

#[test]
fn nothing_given_is_everything_and_indices_keep_their_order() {
    let index = animals().open().unwrap();
    assert_eq!(index.len(), 6, "emu/7 is no image");
    assert_eq!(Select::default().resolve(&index).unwrap(), None);
    assert_eq!(indices(&[5, 0, 3]).resolve(&index).unwrap(), Some(vec![5, 0, 3]));
    refused(&indices(&[0, 6]), &index, "indices", &["6 at position 1", "0 to 5"]);
    refused(&indices(&[u64::MAX]), &index, "indices", &["18446744073709551615"]);
    refused(&indices(&[4, 1, 4]), &index, "indices", &["sample 4 at positions 0 and 2", "weights"]);
    refused(&indices(&[]), &index, "indices", &["no sample"]);
}

#[test]
fn classes_are_names_or_numbers() {
    let scene = animals();
    let index = scene.open().unwrap();
    assert_eq!(
        paths(&scene, &index, &classes(&["emu", "0"])),
        ["cat/1.jpg", "cat/2.jpeg", "cat/sub/1.png", "emu/1.jpg"]
    );
    assert_eq!(classes(&["dog", "1"]).resolve(&index).unwrap(), Some(vec![3, 4]));
    refused(&classes(&["Dogs"]), &index, "classes", &["\"Dogs\"", "not one of the 3 classes", "[\"dog\"]"]);
    refused(&classes(&["x"]), &index, "classes", &["[\"cat\", \"dog\", \"emu\"]"]);
    refused(&classes(&["3"]), &index, "classes", &["has 3", "0 to 2"]);
    refused(&classes(&[]), &index, "classes", &["no sample"]);
    let scene = shards(&[Some(2), Some(0), Some(1), Some(2), Some(2)]);
    let index = scene.open().unwrap();
    assert_eq!(classes(&["2", "1"]).resolve(&index).unwrap(), Some(vec![0, 2, 3, 4]));
    refused(&classes(&["dog"]), &index, "classes", &["only numbers: 0 to 2"]);
}

#[test]
fn classes_of_several_datasets_are_taken_from_all() {
    let scenes = [folder(&["b/1.jpg", "c/1.jpg"]), folder(&["a/1.jpg", "b/2.jpg", "b/3.jpg"])];
    let index = open_all(&[&scenes[0], &scenes[1]]).unwrap();
    assert_eq!(classes(&["b"]).resolve(&index).unwrap(), Some(vec![0, 3, 4]));
    assert_eq!(classes(&["a", "c"]).resolve(&index).unwrap(), Some(vec![1, 2]));
    let mixed = shards(&[Some(1), Some(0)]);
    let index = open_all(&[&scenes[0], &mixed]).unwrap();
    assert_eq!(classes(&["c"]).resolve(&index).unwrap(), Some(vec![1, 2]));
}

#[test]
fn lists_name_files_in_many_ways() {
    let scene = animals();
    let index = scene.open().unwrap();
    let select = |text: &str| paths(&scene, &index, &list(&scene, text));
    assert_eq!(select("dog/1.jpg\ncat/1.jpg\n"), ["dog/1.jpg", "cat/1.jpg"]);
    let text = "# validation\n\n./emu/1\r\ncat/sub/1 0\n  cat/2.jpeg\t0  \ndog/x 3\n";
    assert_eq!(select(text), ["emu/1.jpg", "cat/sub/1.png", "cat/2.jpeg", "dog/x 3.jpg"]);
    let whole = format!("{}/dog/1.jpg 1", scene.root.display());
    assert_eq!(select(&whole), ["dog/1.jpg"]);
    // The whole line is looked up before the line without the number at its end.
    let scene = folder(&["a/x 0.jpg", "a/x.jpg", "b/x 0.jpg", "b/y.jpg", "b/y.png"]);
    let index = scene.open().unwrap();
    let select = |text: &str| paths(&scene, &index, &list(&scene, text));
    assert_eq!(select("a/x 0\na/x\nb/x 0"), ["a/x 0.jpg", "a/x.jpg", "b/x 0.jpg"]);
    refused(&list(&scene, "b/y 1"), &index, "files", &["y.jpg", "y.png", "extension"]);
}

#[test]
fn lists_that_are_wrong_are_refused_by_line() {
    let scene = animals();
    let index = scene.open().unwrap();
    let refused = |text: &str, words: &[&str]| refused(&list(&scene, text), &index, "files", words);
    refused(
        "cat/1\n# x\ncat/9.jpg\nemu/7\n",
        &["list.txt, line 3", "\"cat/9.jpg\"", "one of 2", "\"cat/1.jpg\""],
    );
    refused("cat/1.jpg 0\ndog/1.jpg 2\n", &["line 2", "class 2", "class 1"]);
    refused("cat/1.jpg\ndog/1\ncat/1\n", &["line 3", "line 1", "weights"]);
    refused("cat/1.jpg\n\ncat/1.jpg\n", &["line 3", "line 1", "weights"]);
    refused("cat/1.jpg 0\ncat/1.jpg 0\n", &["line 2", "line 1"]);
    refused("cat/1.jpg 0\ncat/1.jpg 1\n", &["line 2", "line 1"]);
    refused("# nothing\n", &["no sample"]);
    let missing = Select { files: Some("missing.txt".into()), ..Select::default() };
    let error = missing.resolve(&index).unwrap_err().to_string();
    assert!(error.starts_with("config: files: missing.txt cannot be read: No such file"), "{error}");
}

#[test]
fn a_shard_in_a_list_is_all_its_samples() {
    let scene = shards(&[Some(0), Some(1), Some(1), Some(1), Some(0)]);
    let index = scene.open().unwrap();
    let select = |text: &str| list(&scene, text).resolve(&index).unwrap().unwrap();
    assert_eq!(select("s-02.tar\ns-00\n"), [4, 0, 1]);
    assert_eq!(select("s-01.tar 1"), [2, 3]);
    refused(&list(&scene, "s-00.tar 0"), &index, "files", &["class 0", "class 1"]);
    let one = DatasetIndex::open(&scene.root.join("s-01.tar"), &scene.options).unwrap();
    assert_eq!(list(&scene, "s-01.tar").resolve(&one).unwrap(), Some(vec![0, 1]));
}

#[test]
fn a_list_names_files_of_all_datasets() {
    let scenes = [folder(&["a/1.jpg", "a/2.jpg"]), folder(&["a/1.jpg", "a/3.jpg"])];
    let index = open_all(&[&scenes[0], &scenes[1]]).unwrap();
    assert_eq!(list(&scenes[0], "a/3\na/2").resolve(&index).unwrap(), Some(vec![3, 1]));
    refused(&list(&scenes[0], "a/1.jpg"), &index, "files", &["whole path"]);
    let whole = scenes[1].root.join("a/1.jpg");
    assert_eq!(list(&scenes[0], whole.to_str().unwrap()).resolve(&index).unwrap(), Some(vec![2]));
}

#[test]
fn selections_given_together_must_all_hold() {
    let scene = animals();
    let index = scene.open().unwrap();
    let listed = list(&scene, "dog/1\ncat/1\nemu/1\ncat/2\n");
    let both = Select { classes: classes(&["emu", "cat"]).classes, ..listed.clone() };
    assert_eq!(both.resolve(&index).unwrap(), Some(vec![0, 5, 1]));
    let all = Select { indices: Some(vec![4, 1, 3, 0]), ..both };
    assert_eq!(all.resolve(&index).unwrap(), Some(vec![1, 0]));
    let none = Select { indices: Some(vec![2]), ..listed };
    refused(&none, &index, "indices", &["no sample"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any list of files, written with or without extension and label, selects those samples in that order.
    #[test]
    fn any_list_is_found_as_it_is_written(
        sizes in prop::collection::vec(0..40usize, 1..6),
        packed in any::<bool>(),
        order in any::<prop::sample::Index>(),
        styles in prop::collection::vec(0..4u8, 50),
    ) {
        let labels: Vec<u32> =
            (0..).zip(&sizes).flat_map(|(class, &size)| std::iter::repeat_n(class, size)).collect();
        prop_assume!(!labels.is_empty());
        let names: Vec<String> = labels.iter().enumerate().map(|(i, class)| format!("c{class}/{i}.jpg")).collect();
        let loose = folder(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let numbers: Vec<_> = labels.iter().copied().map(Some).collect();
        let scene = if packed { shards(&numbers) } else { loose };
        let index = scene.open().unwrap();
        let mut files: Vec<_> = index.files().collect();
        let by = order.index(files.len());
        files.rotate_left(by);
        files.truncate(1 + by);
        let mut text = Vec::new();
        let mut expected = Vec::new();
        for (file, style) in files.into_iter().zip(styles.iter().cycle()) {
            let samples = index.samples_of(file);
            let path = index.path(file);
            let path = path.strip_prefix(&scene.root).unwrap();
            let path = if style & 1 == 1 { path.with_extension("") } else { path.to_owned() };
            text.extend(path.as_os_str().as_bytes());
            let same = samples.clone().all(|sample| index.label(sample) == index.label(samples.start));
            if style & 2 == 2 && same {
                text.extend(format!(" {}", index.label(samples.start)).as_bytes());
            }
            text.push(b'\n');
            expected.extend(samples.map(|sample| sample as u32));
        }
        let select = list(&scene, std::str::from_utf8(&text).unwrap());
        prop_assert_eq!(select.resolve(&index).unwrap().unwrap(), expected);
    }
}
