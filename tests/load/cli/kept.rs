//! `foreload index` and `foreload cache` show, check and remove the index and the cached copies of a dataset.

use super::{Workshop, code, foreload, json, stderr};
use serde_json::Value;
use std::fs;

#[test]
fn index_shows_what_is_there_and_notices_changes() {
    let workshop = Workshop::new();
    for (name, layout) in [("folder", "folder"), ("tar", "tar")] {
        workshop.images(name, layout, 12, 5);
        let (data, kept) = (workshop.path(name), workshop.path("index"));
        let index = |more: &[&str]| {
            let fixed = ["index", data.to_str().unwrap(), "--index-dir", kept.to_str().unwrap()];
            foreload(&[&fixed[..], more].concat())
        };
        let built = json(&index(&["--json"]));
        assert_eq!(
            (&built["samples"], &built["classes"], &built["layout"]),
            (&12.into(), &3.into(), &layout.into())
        );
        assert_eq!(built["origin"], "built");
        let loaded = json(&index(&["--json", "--verify"]));
        assert_eq!((&loaded["origin"], &loaded["verified"]), (&"loaded".into(), &true.into()));
        assert_eq!(loaded["fingerprint"], built["fingerprint"]);
        assert_eq!(json(&index(&["--json", "--rebuild"]))["origin"], "built");
        let shown = index(&[]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("12 samples of 3 classes") && shown.contains("loaded"), "{shown}");

        // Changes a class by one more file, or a shard by one byte after its end.
        let (changed, file) = match layout {
            "folder" => ("class1", data.join("class1/new.jpg")),
            _ => ("shard-001.tar", data.join("shard-001.tar")),
        };
        fs::write(&file, [fs::read(&file).unwrap_or_default(), vec![1]].concat()).unwrap();
        let noticed = index(&["--verify"]);
        assert_eq!(code(&noticed), 1);
        let said = stderr(&noticed);
        assert!(said.contains("changed") && said.contains(changed) && said.contains("--rebuild"), "{said}");
    }
}

#[test]
fn index_shows_several_datasets_and_files_that_are_no_images() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["one/a/1.npz", "one/b/2.npz", "two/b/3.txt"] {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"any").unwrap();
    }
    let paths = ["one", "two", "index"].map(|name| directory.path().join(name));
    let [one, two, kept] = paths.each_ref().map(|path| path.to_str().unwrap());
    let index = |more: &[&str]| foreload(&[&["index", "--files", "--index-dir", kept], more].concat());
    assert_eq!(json(&index(&[one, "--json"]))["samples"], 2);
    let both = json(&index(&[one, two, "--json", "--verify"]));
    assert_eq!((&both["samples"], &both["classes"]), (&3.into(), &2.into()));
    assert_eq!(both["datasets"][0]["origin"], "loaded");
    assert_eq!(both["datasets"][1]["samples"], 1);
    let shown = String::from_utf8(index(&[one, two]).stdout).unwrap();
    assert!(shown.contains("together: 3 samples of 2 classes"), "{shown}");
    assert!(stderr(&index(&[one, one])).contains("given twice"));
    assert!(stderr(&foreload(&["index", one, "--index-dir", kept])).contains("no .jpg"));
}

#[test]
fn every_damaged_image_is_listed() {
    let workshop = Workshop::new();
    for layout in ["folder", "tar"] {
        workshop.images(layout, layout, 20, 10);
        let (data, kept) = (workshop.path(layout), workshop.path("index"));
        let index = |more: &[&str]| {
            let fixed = ["index", data.to_str().unwrap(), "--index-dir", kept.to_str().unwrap()];
            foreload(&[&fixed[..], more].concat())
        };
        let sound = json(&index(&["--verify", "--decode", "--json"]));
        assert_eq!((&sound["damaged"], &sound["notices"]), (&Value::Array(vec![]), &Value::Array(vec![])));
        // The signature of the last image in a file, and all sizes, stay the same.
        let (path, mut bytes) = workshop.files(layout).into_iter().next_back().unwrap();
        let image = bytes.windows(3).rposition(|w| w == [0xFF, 0xD8, 0xFF]).unwrap();
        bytes[image + 4..image + 400].fill(0);
        fs::write(data.join(&path), bytes).unwrap();
        json(&index(&["--rebuild", "--json"]));
        let found = index(&["--verify", "--decode"]);
        let (shown, said) = (String::from_utf8_lossy(&found.stdout), stderr(&found));
        assert_eq!(code(&found), 1);
        assert!(
            shown.contains("20 images decoded, 1 damaged") && said.contains("1 of 20 images"),
            "{shown}{said}"
        );
        let line = shown.lines().find(|line| line.starts_with("damaged: ")).unwrap();
        assert!(line.contains(path.to_str().unwrap()) && line.contains("corrupt image"), "{line}");
        let found = index(&["--verify", "--decode", "--json"]);
        let listed: Value = serde_json::from_slice(&found.stdout).unwrap();
        assert_eq!((code(&found), listed["damaged"][0]["sample_id"].as_u64()), (1, Some(19)), "{listed}");
        assert_eq!(code(&index(&["--decode", "--files"])), 2);
    }
}

#[test]
fn a_damaged_image_that_training_uses_is_listed_apart() {
    let workshop = Workshop::new();
    workshop.images("data", "folder", 5, 5);
    let (data, kept) = (workshop.path("data"), workshop.path("index"));
    let (path, mut bytes) = workshop.files("data").into_iter().next_back().unwrap();
    let middle = bytes.len() / 2;
    // The largest code, repeated: no Huffman table of this encoder has it.
    bytes[middle..middle + 40].copy_from_slice(&[0xFF, 0x00].repeat(20));
    fs::write(data.join(&path), bytes).unwrap();
    let index = |more: &[&str]| {
        let fixed = ["index", data.to_str().unwrap(), "--index-dir", kept.to_str().unwrap()];
        foreload(&[&fixed[..], &["--verify", "--decode"], more].concat())
    };
    let found = json(&index(&["--json"]));
    assert_eq!(found["damaged"], Value::Array(vec![]));
    assert_eq!(found["concealed"][0]["sample_id"], 4, "{found}");
    let shown = String::from_utf8(index(&[]).stdout).unwrap();
    assert!(shown.contains("damaged, but used: "), "{shown}");
    assert!(
        shown.contains("5 images decoded, 0 damaged, 1 more damaged but decoded, as PIL does"),
        "{shown}"
    );
}

#[test]
fn a_cache_is_shown_and_emptied() {
    let workshop = Workshop::new();
    workshop.images("data", "folder", 20, 20);
    let paths = ["data", "index", "cache"].map(|name| workshop.path(name));
    let [data, index, cache] = paths.each_ref().map(|path| path.to_str().unwrap());
    let bench =
        ["bench", data, "--index-dir", index, "--cache", cache, "--cache-size", "50MB", "--epochs", "1"];
    // Copies that are converted to another storage format are in two segments until the first one is removed.
    let more = ["--cache-form", "as-is", "--batch-size", "10", "--image-size", "32", "--json"];
    json(&foreload(&[&bench[..], &more].concat()));
    let held = json(&foreload(&["cache", "show", cache, "--json"]));
    let one = &held["datasets"][0];
    assert_eq!((&one["samples"], &one["in_use"]), (&20.into(), &false.into()), "{held}");
    let shown = String::from_utf8(foreload(&["cache", "show", cache]).stdout).unwrap();
    let fingerprint = one["fingerprint"].as_str().unwrap();
    for word in [&fingerprint[..16], data, "20 samples", "last used", "1 datasets"] {
        assert!(shown.contains(word), "{word} is missing: {shown}");
    }
    assert_eq!(code(&foreload(&["cache", "clear", cache, "0123456789"])), 2);
    let cleared = json(&foreload(&["cache", "clear", cache, data, "--json"]));
    assert_eq!(cleared["bytes"], held["bytes"]);
    assert!(String::from_utf8(foreload(&["cache", "clear", cache]).stdout).unwrap().contains("0 B freed"));
    assert_eq!(code(&foreload(&["cache", "show", data])), 2, "is none");
}

#[test]
fn index_names_every_shard_that_cannot_be_read_and_decodes_without_being_told_to_verify() {
    let workshop = Workshop::new();
    workshop.images("tar", "tar", 20, 5);
    let (data, kept) = (workshop.path("tar"), workshop.path("index"));
    let index = |more: &[&str]| {
        let fixed = ["index", data.to_str().unwrap(), "--index-dir", kept.to_str().unwrap()];
        foreload(&[&fixed[..], more].concat())
    };
    assert_eq!(json(&index(&["--decode", "--json"]))["verified"], true);
    let bad = ["shard-001.tar", "shard-003.tar"];
    for name in bad {
        let path = data.join(name);
        fs::write(&path, &fs::read(&path).unwrap()[..900]).unwrap();
    }
    // The indexed contents differ in both; a new index lacks both.
    let noticed = index(&["--verify"]);
    assert!(code(&noticed) == 1 && bad.iter().all(|name| stderr(&noticed).contains(name)), "{noticed:?}");
    for more in [&[][..], &["--verify"]] {
        let built = index(more);
        let (said, error) = (String::from_utf8_lossy(&built.stdout).into_owned(), stderr(&built));
        let named = |name: &str| said.contains(&format!("  bad shard    {name}: "));
        assert!(code(&built) == 1 && bad.into_iter().all(named), "{said}");
        assert!(said.contains("10 samples") && error.contains("2 shards cannot be read: repair"), "{error}");
    }
    let skipped = index(&["--bad-shards", "skip", "--json"]);
    assert!(stderr(&skipped).contains("2 of its 4 shards cannot be read and are left out"), "{skipped:?}");
    assert_eq!(json(&skipped)["bad_shards"].as_array().unwrap().len(), 2);
}
