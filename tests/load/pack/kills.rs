//! `foreload pack` is killed at random moments and started again: the shards are the same, bit for bit.

use super::{Scene, tree};
use crate::common::{Killable, jpeg, printed_seed};
use foreload::testing::rng::{RandomKey, Use};
use std::fs;
use std::time::Instant;

/// The number of kills: `FORELOAD_PACK_KILLS`, or a few by default.
fn kills() -> u64 {
    std::env::var("FORELOAD_PACK_KILLS").map_or(6, |kills| kills.parse().expect("a number"))
}

#[test]
fn a_run_that_was_killed_is_gone_on_with() {
    let scene = Scene::new();
    let images: Vec<Vec<u8>> = (0..20).map(jpeg).collect();
    for number in 0..800 {
        scene.write(format!("data/class{}/{number:05}.jpg", number % 4), &images[number % 20]);
    }
    let more = ["--shard-size", "40000", "--threads", "2"];
    let began = Instant::now();
    scene.json("pack", "data", "whole", &more);
    let whole = began.elapsed();
    let expected = tree(&scene.path("whole"));

    let seed = printed_seed();
    let mut random = RandomKey::new(b"pack kills", seed, 0, Use::Order).stream(0);
    let (mut left, mut round, mut gone_on) = (kills(), 0, 0);
    while left > 0 {
        let into = format!("killed-{round}");
        round += 1;
        // The packing of each dataset is killed a few times and then finished.
        for _ in 0..(1 + random.below(4)).min(left) {
            let mut command = scene.command("pack", &scene.path("data"), &scene.path(&into), &more);
            Killable::start(&mut command).kill_within(whole, &mut random);
            left -= 1;
        }
        let before = fs::read_dir(scene.path(&into)).map_or(0, |entries| {
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".packed")).count()
        });
        let report = scene.json("pack", "data", &into, &more);
        gone_on += u64::from(report["samples_before"].as_u64().unwrap() > 0);
        assert_eq!(report["samples_before"].as_u64().unwrap() > 0, before > 0, "what was finished is kept");
        assert!(tree(&scene.path(&into)) == expected, "dataset {round} of FORELOAD_SEED={seed}");
        fs::remove_dir_all(scene.path(&into)).unwrap();
    }
    println!("{round} datasets, {gone_on} of them with shards of runs that were killed");
}

#[test]
fn what_was_begun_is_gone_on_with_only_where_nothing_has_changed() {
    let scene = Scene::new();
    for number in 0..9 {
        scene.write(format!("data/class/{number}.jpg"), &jpeg(number));
    }
    let more = ["--shard-size", "4000"];
    scene.json("pack", "data", "packed", &more);
    // The state that a run leaves if it is killed while it writes a shard, before the manifest.
    let begin = |missing: Option<usize>| {
        let manifest = fs::read(scene.path("packed/foreload-packed.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let fingerprint = &manifest["fingerprint"];
        let mut record = format!(r#"{{"version":2,"fingerprint":{fingerprint},"shard_size":4000}}"#);
        record += "\n{\"shard\":0,\"stam";
        for (number, shard) in manifest["shards"].as_array().unwrap().iter().enumerate() {
            if missing != Some(number) {
                record += &format!("\n{{\"shard\":{number},\"stamps\":{}}}", shard["stamps"]);
            }
        }
        record
    };
    let record = begin(Some(2));
    let expected = tree(&scene.path("packed"));
    fs::remove_file(scene.path("packed/foreload-packed.json")).unwrap();
    fs::remove_file(scene.path("packed/000001.packed")).unwrap();
    let older = record.replace("\"version\":2", "\"version\":1");
    fs::write(scene.path("packed/foreload-packing.json"), older).unwrap();
    let said = scene.error("pack", "data", "packed", &more);
    assert!(said.contains("begun by another version of Foreload"), "{said}");
    fs::write(scene.path("packed/foreload-packing.json"), record).unwrap();
    fs::write(scene.path("packed/000001.packed.partial"), b"half").unwrap();
    let said = scene.error("pack", "data", "packed", &["--shard-size", "3000"]);
    assert!(said.contains("was begun with --shard-size 4000, not 3000"), "{said}");
    let said = scene.error("unpack", "packed", "back", &[]);
    assert!(said.contains("is not finished"), "{said}");
    // While another process packs into the directory, a second one is refused.
    let lock = fs::File::open(scene.path("packed/foreload-packing.json")).unwrap();
    lock.lock().unwrap();
    let said = scene.error("pack", "data", "packed", &more);
    assert!(said.contains("another `foreload pack` is using it"), "{said}");
    drop(lock);
    let report = scene.json("pack", "data", "packed", &more);
    assert!(report["samples_before"].as_u64().unwrap() > 0);
    assert_eq!(report["shards_again"], 1, "nobody knows what shard 2 was made of");
    assert!(tree(&scene.path("packed")) == expected);
    // The state that a run leaves if it is killed at its last step.
    fs::write(scene.path("packed/foreload-packing.json"), begin(None)).unwrap();
    assert_eq!(scene.json("pack", "data", "packed", &more)["samples_before"], 9);
    assert!(tree(&scene.path("packed")) == expected);
}
