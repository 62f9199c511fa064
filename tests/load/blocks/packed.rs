//! Compressed shards that are packed: they give the same datasets, and unpacking gives plain shards.

use super::{EACH, KINDS, SAMPLES, SHARDS, by_sample, gzip, pipeline};
use crate::common::scene::{Scene, tfrecord};
use crate::common::{self, epoch_bytes, small_images, succeeds};
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::DatasetIndex;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

#[test]
fn compressed_shards_are_packed_as_the_datasets_that_they_are() {
    for kind in KINDS {
        let options = LoaderOptions { batch_size: 5, ..small_images() };
        let (work, packed) = (Scene::new(), kind.scene(true));
        let source = pipeline(&packed, &options);
        let run = |command: &str, from: &Path, into: &str, more: &[&str]| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
            program.arg(command).args([from, &work.root.join(into)]).args(more);
            program.env("FORELOAD_INDEX_DIR", packed.options.directory.as_ref().unwrap()).output().unwrap()
        };
        let open = |name: &str| {
            let index = DatasetIndex::open(&work.root.join(name), &packed.options);
            common::pipeline(index.unwrap_or_else(|error| panic!("{}: {error}", kind.name)), &options)
        };
        let succeeds = |output: std::process::Output| {
            assert!(output.status.success(), "{}: {}", kind.name, String::from_utf8_lossy(&output.stderr));
        };
        // Once with more packed shards than source shards, and once with fewer.
        for (into, more) in [
            ("small", &["--shard-size", "6000", "--threads", "3"][..]),
            ("large", &["--threads", "1"]),
            ("tars", &["--to", "tar", "--shard-size", "9000", "--threads", "3"]),
        ] {
            succeeds(run("pack", &packed.root, into, more));
            let made = open(into);
            assert!(!made.index().has_blocks(), "{}: {into}", kind.name);
            for number in 0..2 {
                assert!(by_sample(&made, number) == by_sample(&source, number), "{}: {into}", kind.name);
            }
            if into != "tars" {
                assert_eq!(made.index().fingerprint(), source.index().fingerprint(), "{}", kind.name);
                assert!(epoch_bytes(&made, 1) == epoch_bytes(&source, 1));
            }
        }
        let output = run("unpack", &work.root.join("small"), "back", &[]);
        if !kind.endings[0].ends_with("tar") {
            assert!(String::from_utf8_lossy(&output.stderr).contains("which unpacking cannot write"));
            continue;
        }
        succeeds(output);
        let back = open("back");
        assert!(by_sample(&back, 0) == by_sample(&source, 0), "{}", kind.name);
        for number in 0..SHARDS {
            let bytes = fs::read(work.root.join(format!("back/s-{number:03}.tar"))).unwrap();
            let expected = (kind.shard)(number * EACH..(number + 1) * EACH);
            assert!(members(&bytes) == members(&expected), "{}", kind.name);
        }
    }
}

/// The names and bytes of a tar's members, in order.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), bytes)
    });
    entries.collect()
}

#[test]
fn a_damaged_block_is_an_error_of_its_shard_when_it_is_packed() {
    let packed = KINDS[0].scene(true);
    let index = packed.open().unwrap();
    let run = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.arg("pack").args([&packed.root, &packed.root.with_file_name("into")]);
        program.env("FORELOAD_INDEX_DIR", packed.options.directory.as_ref().unwrap()).output().unwrap()
    };
    assert_eq!(index.len(), SAMPLES as u64);
    let path = packed.root.join("s-003.tar.gz");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let output = run();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("s-003.tar.gz"), "{told}");
}

#[test]
fn records_come_back_as_they_were_before_they_were_compressed() {
    let scene = Scene::new();
    let records: Vec<Vec<u8>> = (0..9u8).map(|number| vec![number; 11 * usize::from(number)]).collect();
    let bytes = tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    scene.write("a.tfrecord", &gzip(&bytes));
    scene.write("b.tfrecord.gz", &gzip(&bytes));
    let [packed, back] = ["packed", "back"].map(|name| scene.root.with_file_name(name));
    for (command, from, into) in [("pack", &scene.root, &packed), ("unpack", &packed, &back)] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.arg(command).args([from, into]).args(["--files"].iter().filter(|_| command == "pack"));
        program.env("FORELOAD_INDEX_DIR", scene.options.directory.as_ref().unwrap());
        let output = succeeds(&mut program);
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.contains("1 compressed shards were written"), command == "unpack", "{told}");
    }
    for name in ["a.tfrecord", "b.tfrecord"] {
        assert!(fs::read(back.join(name)).unwrap() == bytes, "{name}");
    }
}
