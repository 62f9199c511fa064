//! `foreload index --verify --decode` of packed datasets checks every byte of every member, decoded or not, and names
//! damaged files by their original names.

use super::Scene;
use crate::common::{jpeg, tar_of_samples};
use foreload::testing::dataset::packed::shard_contents;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

fn verify(scene: &Scene, root: &Path) -> (Output, Value) {
    let mut command = scene.command("index", root, Path::new("--verify"), &["--decode", "--json"]);
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output, report)
}

#[test]
fn damage_is_found_in_every_member_and_named() {
    let scene = Scene::new();
    let samples = (0..6).map(|number| {
        let caption = format!("the caption of picture {number}").into_bytes();
        (format!("pictures/{number}"), [("jpg", jpeg(number)), ("txt", caption)])
    });
    scene.write("data/0.tar", &tar_of_samples(samples));
    scene.json("pack", "data", "packed", &[]);
    let (root, shard) = (scene.path("packed"), scene.path("packed/000000.packed"));
    let (output, found) = verify(&scene, &root);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((&found["decoded"], &found["compared"]), (&6.into(), &6.into()));

    let mut bytes = fs::read(&shard).unwrap();
    let image = shard_contents(&bytes[..]).unwrap().rows.samples[2];
    let caption = b"the caption of picture 4";
    bytes[..]
        .windows(caption.len())
        .position(|window| window == caption)
        .map(|at| bytes[at + 5] ^= 1)
        .unwrap();
    // Damage is found at any place, even in the data about the original coding, which does not affect the pixels.
    for part in 0..16 {
        let mut damaged = bytes.clone();
        damaged[image.offset as usize + part * (image.length as usize - 1) / 15] ^= 0x20;
        fs::write(&shard, &damaged).unwrap();
        let (output, found) = verify(&scene, &root);
        assert_eq!(output.status.code(), Some(1));
        let path = |one: &Value| one["path"].as_str().unwrap().to_owned();
        let paths: BTreeSet<String> = found["damaged"].as_array().unwrap().iter().map(path).collect();
        let expected =
            ["pictures/2.jpg", "pictures/4.txt"].map(|name| shard.join(name).display().to_string());
        assert_eq!(paths, BTreeSet::from(expected), "part {part}");
    }
}
