//! If unpacking is killed or fails, no partial result can be mistaken for the dataset.

use super::{Scene, tree};
use crate::common::{Killable, jpeg};
use crate::store::world::on_tmpfs;
use std::fs;

#[test]
fn what_is_not_unpacked_whole_is_no_dataset() {
    let scene = Scene::new();
    (0..400).for_each(|number| scene.write(format!("data/class/{number:03}.jpg"), &jpeg(number % 20)));
    scene.json("pack", "data", "packed", &[]);
    let expected = tree(&scene.path("data"));
    let back = scene.path("back");
    let mut command = scene.command("unpack", &scene.path("packed"), &back, &["--threads", "1"]);
    let third = back.join("class/002.jpg");
    Killable::start(&mut command).kill_when("a third file is there", || third.exists());
    let mut found = tree(&back);
    found.retain(|name, _| !name.starts_with(b"foreload-unpacking"));
    assert!(found.len() < expected.len(), "it was finished before it was killed");
    assert!(
        found.iter().all(|(name, bytes)| expected.get(name) == Some(bytes)),
        "all that have names are whole"
    );
    let said = scene.error("index", "back", "data", &[]);
    assert!(said.contains("is not completely unpacked") && said.contains("remove the directory"), "{said}");
    let said = scene.error("unpack", "packed", "back", &[]);
    assert!(said.contains("an earlier run did not finish in it"), "{said}");

    fs::remove_dir_all(&back).unwrap();
    scene.json("unpack", "packed", "back", &[]);
    assert!(tree(&back) == expected);
    scene.json("index", "back", "data", &[]);
}

#[test]
fn what_fails_to_be_unpacked_is_no_dataset() {
    let scene = Scene::new();
    (0..9).for_each(|number| scene.write(format!("data/class/{number}.jpg"), &jpeg(number)));
    scene.json("pack", "data", "packed", &[]);
    let shard = scene.path("packed/000000.packed");
    let mut bytes = fs::read(&shard).unwrap();
    // A place in the images, after the first image.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    assert!(scene.error("unpack", "packed", "back", &[]).contains("is damaged"));
    assert!(scene.path("back/class/0.jpg").exists(), "what was written until then stays");
    let said = scene.error("index", "back", "data", &[]);
    assert!(said.contains("is not completely unpacked"), "{said}");
}

#[test]
fn no_room_leaves_no_half_file() {
    on_tmpfs(64 << 10, |path| {
        let scene = Scene::new();
        (0..99).for_each(|number| scene.write(format!("data/class/{number:02}.jpg"), &jpeg(number)));
        scene.json("pack", "data", "packed", &[]);
        let (expected, back) = (tree(&scene.path("data")), path.join("back"));
        let said = scene.error("unpack", "packed", back.to_str().unwrap(), &["--threads", "1"]);
        assert!(said.contains("No space left"), "{said}");
        let mut found = tree(&back);
        assert!(found.remove(&b"foreload-unpacking"[..]).is_some(), "it says that it is not whole");
        assert!(found.len() > 1 && found.iter().all(|(name, bytes)| expected.get(name) == Some(bytes)));
    });
}
