//! Files that are written while a dataset is packed, or afterwards.

use super::{Scene, tree};
use crate::common::{Killable, jpeg, tar};
use crate::store::world::{make_read_only, on_tmpfs};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Changes a bit of a file in place, so that neither its name, its size nor its directory changes.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn class(scene: &Scene, files: u64) {
    (0..files).for_each(|number| scene.write(format!("data/class/{number:03}.jpg"), &jpeg(number % 20)));
}

#[test]
fn a_run_that_goes_on_packs_anew_what_was_written_meanwhile() {
    let scene = Scene::new();
    class(&scene, 400);
    let more = ["--shard-size", "3000", "--threads", "1"];
    let kill = |into: &str| {
        let into = scene.path(into);
        let mut command = scene.command("pack", &scene.path("data"), &into, &more);
        let fourth = into.join("000003.packed");
        Killable::start(&mut command).kill_when("a fourth shard is there", || fourth.exists());
        assert!(!into.join("foreload-packed.json").exists(), "it was finished before it was killed");
    };
    kill("flipped");
    flip(&scene.path("data/class/001.jpg"));
    let said = scene.json("pack", "data", "flipped", &more);
    assert!(said["shards_again"].as_u64().unwrap() >= 1, "{said}");
    assert!(said["samples_before"].as_u64().unwrap() >= 1, "shards of other files are kept: {said}");
    scene.json("unpack", "flipped", "back", &[]);
    assert!(tree(&scene.path("back")) == tree(&scene.path("data")));

    kill("grown");
    let grown = scene.path("data/class/000.jpg");
    fs::write(&grown, [&fs::read(&grown).unwrap()[..], b"more"].concat()).unwrap();
    let said = scene.error("pack", "data", "grown", &more);
    assert!(said.contains("000.jpg") && said.contains("when indexed"), "{said}");
}

#[test]
fn what_is_finished_is_compared_with_its_source() {
    let scene = Scene::new();
    class(&scene, 9);
    let image = jpeg(1);
    scene.write("tar/shard.tar", &tar(&[("aa.jpg", &image), ("bb.jpg", &image)]));
    for (from, file) in [("data", "data/class/003.jpg"), ("tar", "tar/shard.tar")] {
        let into = format!("{from}-packed");
        let first = scene.json("pack", from, &into, &["--shard-size", "4000"]);
        let again = scene.json("pack", from, &into, &["--shard-size", "4000"]);
        assert_eq!((&again["samples_before"], &again["notices"]), (&first["samples"], &Value::Array(vec![])));
        let before = tree(&scene.path(&into));
        flip(&scene.path(file));
        let said = scene.error("pack", from, &into, &["--shard-size", "4000"]);
        assert!(
            said.contains("written or replaced since they were packed") && said.contains(".packed ("),
            "{said}"
        );
        assert!(tree(&scene.path(&into)) == before, "it is left as it is");
    }
}

/// The messages of the warnings in a summary.
fn notices(summary: &Value) -> Vec<String> {
    let notices = summary["notices"].as_array().unwrap();
    notices.iter().map(|notice| notice["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_finished_is_not_called_a_success_whatever_is_there() {
    let scene = Scene::new();
    class(&scene, 9);
    let more = ["--shard-size", "9000"];
    scene.json("pack", "data", "packed", &more);
    let said = notices(&scene.json("pack", "data", "packed", &["--shard-size", "8000"]));
    assert!(said.len() == 1 && said[0].contains("was packed with --shard-size 9000, not 8000"), "{said:?}");

    let shard = scene.path("packed/000000.packed");
    let sound = fs::read(&shard).unwrap();
    for version in [0, 1, 3] {
        let mut bytes = sound.clone();
        bytes[8] = version;
        fs::write(&shard, bytes).unwrap();
        let said = scene.error("pack", "data", "packed", &more);
        assert!(said.contains("no longer intact") && said.contains("000000.packed"), "{version}: {said}");
    }
    fs::remove_file(&shard).unwrap();
    let said = scene.error("pack", "data", "packed", &more);
    assert!(said.contains("000000.packed") && said.contains("remove it and pack again"), "{said}");
    fs::write(&shard, sound).unwrap();
    assert!(notices(&scene.json("pack", "data", "packed", &more)).is_empty());

    // A manifest of an older version has no stamps. It still counts as a dataset.
    let manifest = scene.path("packed/foreload-packed.json");
    let mut old: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    for shard in old["shards"].as_array_mut().unwrap() {
        shard.as_object_mut().unwrap().remove("stamps").expect("stamps");
    }
    fs::write(&manifest, old.to_string()).unwrap();
    let said = notices(&scene.json("pack", "data", "packed", &more));
    assert!(said.len() == 1 && said[0].contains("packed by an older version"), "{said:?}");
    scene.json("unpack", "packed", "back", &[]);
    assert!(tree(&scene.path("back")) == tree(&scene.path("data")));
}

#[test]
fn what_is_finished_and_can_only_be_read_is_finished() {
    on_tmpfs(8 << 20, |path| {
        let scene = Scene::new();
        class(&scene, 9);
        let into = path.join("packed");
        scene.json("pack", "data", into.to_str().unwrap(), &[]);
        make_read_only(path);
        assert_eq!(scene.json("pack", "data", into.to_str().unwrap(), &[])["samples_before"], 9);
    });
}
