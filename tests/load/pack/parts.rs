//! Of packed images, only the parts that a crop needs are read, and the batches are the same.

use super::Scene;
use crate::cached_parts::WAYS;
use crate::common::{self, epoch_bytes, photograph, small_images, tar_of_samples};
use foreload::testing::batch::Batch;
use foreload::testing::config::{FieldOptions, LoaderOptions};
use foreload::testing::dataset::Contents;
use foreload::testing::io::{Direct, ReadStats};
use foreload::testing::pipeline::Pipeline;
use foreload::{CacheChoice, Error, Fidelity, FieldKind};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::ops::Range;

const SAMPLES: u64 = 24;

/// A dataset of photographs, packed into one shard.
fn packed() -> Scene {
    let scene = Scene::new();
    for number in 0..SAMPLES {
        scene.write(format!("data/{}/{number:02}.jpg", number % 2), &photograph(number, 92));
    }
    scene.json("pack", "data", "packed", &[]);
    scene
}

/// A packed tar shard whose samples have these members.
fn packed_tar(members: impl Fn(u64) -> Vec<(&'static str, Vec<u8>)>) -> Scene {
    let scene = Scene::new();
    let samples = (0..SAMPLES).map(|number| (format!("{number:02}"), members(number)));
    scene.write("data/s.tar", &tar_of_samples(samples));
    scene.json("pack", "data", "packed", &[]);
    scene
}

fn open(scene: &Scene, root: &str, options: &LoaderOptions) -> Pipeline {
    common::open(&scene.path(root), scene.path("index"), Contents::Images, options).unwrap()
}

/// The read statistics of an epoch. `see` gets each batch.
fn epoch(pipeline: &Pipeline, number: u64, mut see: impl FnMut(&Batch)) -> Result<ReadStats, Error> {
    let mut epoch = pipeline.epoch(number, 0, 1, 0)?;
    while let Some(batch) = epoch.next_batch()? {
        see(&batch);
    }
    Ok(epoch.stats().reads)
}

fn bytes_of(pipeline: &Pipeline) -> u64 {
    pipeline.index().total_bytes()
}

#[test]
fn batches_are_the_same_of_fewer_bytes() {
    let scene = packed();
    for decode in [Fidelity::Fast, Fidelity::Exact] {
        for (train, repeats) in [(true, 1), (true, 3), (false, 1)] {
            let options =
                LoaderOptions { decode, train: Some(train), repeats, batch_size: 12, ..small_images() };
            let jpegs = open(&scene, "data", &options);
            let expected = [0, 1].map(|number| epoch_bytes(&jpegs, number));
            for (io, direct, depth, threads) in WAYS {
                let more = LoaderOptions { io, direct, queue_depth: Some(depth), ..options.clone() };
                let pipeline = open(&scene, "packed", &LoaderOptions { threads: Some(threads), ..more });
                for (number, expected) in (0..).zip(&expected) {
                    let shown = format!("{decode:?}, train {train}, {repeats} times, {io:?}, {direct:?}");
                    assert!(epoch_bytes(&pipeline, number) == *expected, "{shown}");
                    let reads = epoch(&pipeline, number, |_| {}).unwrap();
                    assert!(reads.skipped > 0, "{shown}: {reads:?}");
                    if repeats > 1 {
                        continue;
                    }
                    let all = bytes_of(&pipeline);
                    assert!(reads.skipped > all / 20, "{shown}: {reads:?} of {all}");
                    // O_DIRECT reads whole pages: up to one more at either end of both parts.
                    let pages = if direct == Direct::On { 4 * 4096 * SAMPLES } else { 0 };
                    let sum = reads.bytes + reads.skipped;
                    assert!((all..=all + pages).contains(&sum), "{shown}: {reads:?} of {all}");
                }
            }
        }
    }
}

#[test]
fn who_needs_all_bytes_gets_all() {
    let scene = packed_tar(|number| vec![("jpg", photograph(number, 92))]);
    let image = FieldOptions::named("image");
    let bytes = FieldOptions { kind: Some(FieldKind::Bytes), ..FieldOptions::named("jpg") };
    let plain = LoaderOptions { fields: Some(vec![image.clone()]), ..small_images() };
    let beside = LoaderOptions { fields: Some(vec![image, bytes]), ..small_images() };
    let cache = CacheChoice::in_directory(scene.path("cache"), 1 << 30);
    let cached = LoaderOptions { cache, ..plain.clone() };
    let encoded = LoaderOptions { decoded: false, ..small_images() };
    let looked = |options| {
        let pipeline = open(&scene, "packed", &options);
        let reads = epoch(&pipeline, 0, |_| {}).unwrap();
        (reads, bytes_of(&pipeline))
    };
    let (reads, all) = looked(plain);
    assert!(reads.skipped > all / 10, "{reads:?} of {all}");
    for (what, options) in [("encoded", encoded), ("cached", cached), ("bytes", beside)] {
        let (reads, all) = looked(options);
        assert_eq!((reads.skipped, reads.bytes), (0, all), "{what}");
    }
}

#[test]
fn an_image_that_is_read_apart_is_whole() {
    // The data between the images is too long to be read with them.
    let between = || vec![7; 70_000];
    let scene = packed_tar(|number| {
        vec![
            ("left.jpg", photograph(number, 92)),
            ("note.bin", between()),
            ("right.jpg", photograph(number, 60)),
        ]
    });
    let fields = ["left.jpg", "right.jpg"].map(FieldOptions::named).to_vec();
    let options = LoaderOptions { fields: Some(fields), ..small_images() };
    let digest = |root| {
        let mut digest = Sha256::new();
        let see = |batch: &Batch| (0..2).for_each(|image| digest.update(batch.images_of(image).bytes()));
        epoch(&open(&scene, root, &options), 0, see).unwrap();
        digest.finalize()
    };
    assert!(digest("packed") == digest("data"));
}

#[test]
fn what_is_packed_again_in_its_place_is_known_anew() {
    let scene = packed();
    let (shard, manifest) = (scene.path("packed/000000.packed"), scene.path("packed/foreload-packed.json"));
    let sound = [&shard, &manifest].map(|path| fs::read(path).unwrap());
    rewrite(&scene, |shard| {
        let end = footer(shard).end;
        // An image that is 0 pixels wide is invalid.
        shard[end - OUTLINES..end]
            .chunks_exact_mut(32)
            .for_each(|header_summary| header_summary[..2].fill(0));
    });
    let skipped = || epoch(&open(&scene, "packed", &small_images()), 0, |_| {}).unwrap().skipped;
    assert_eq!(skipped(), 0, "nothing is known of the images");
    [&shard, &manifest].iter().zip(sound).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert!(skipped() > 0);
}

/// The only shard's footer.
fn footer(shard: &[u8]) -> Range<usize> {
    let trailer = shard.len() - 64;
    let start = u64::from_le_bytes(shard[trailer..trailer + 8].try_into().unwrap());
    start as usize..trailer
}

/// Changes the only shard, and updates all digests of its footer.
fn rewrite(scene: &Scene, change: impl FnOnce(&mut Vec<u8>)) {
    let (shard, manifest) = (scene.path("packed/000000.packed"), scene.path("packed/foreload-packed.json"));
    let mut bytes = fs::read(&shard).unwrap();
    change(&mut bytes);
    let footer = footer(&bytes);
    let trailer = footer.end;
    let digest = Sha256::digest(&bytes[footer]);
    bytes[trailer + 16..trailer + 48].copy_from_slice(&digest);
    let mut said: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    (said["shards"][0]["digest"], said["shards"][0]["bytes"]) = (hex.into(), bytes.len().into());
    fs::write(&manifest, said.to_string()).unwrap();
    fs::write(&shard, bytes).unwrap();
}

/// The bytes of the header summaries (outlines) of all samples.
const OUTLINES: usize = 32 * SAMPLES as usize;

#[test]
fn an_outline_that_lies_changes_no_batch() {
    // Row ends that are too early, another size, and another number of tables, which makes the head longer.
    for (place, value, suffices) in [(8..32, 1u8, false), (0..1, 77, true), (4..5, 0x17, true)] {
        let scene = packed();
        rewrite(&scene, |shard| {
            let end = footer(shard).end;
            let header_summary = end - OUTLINES + 32 * 5;
            shard[header_summary..header_summary + 32][place.clone()].fill(value);
        });
        let options = LoaderOptions { batch_size: 1, ..small_images() };
        lies_cost_a_cache_no_copy(&scene, &options);
        let pipeline = open(&scene, "packed", &options);
        match epoch(&pipeline, 0, |_| {}) {
            Ok(_) => {
                assert!(suffices, "{place:?}");
                assert!(epoch_bytes(&pipeline, 0) == epoch_bytes(&open(&scene, "data", &options), 0));
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("sample 5 ") && error.contains("packed image"), "{place:?}: {error}");
            }
        }
    }
}

/// Compares batches from copies of a packed dataset in which one header summary is wrong with batches of its source.
fn lies_cost_a_cache_no_copy(scene: &Scene, options: &LoaderOptions) {
    let cache = CacheChoice::in_directory(scene.path("cache"), 1 << 30);
    let pipeline = open(scene, "packed", &LoaderOptions { cache, ..options.clone() });
    let expected = epoch_bytes(&open(scene, "data", options), 0);
    for number in 0..2 {
        assert!(epoch_bytes(&pipeline, 0) == expected, "time {number}");
        pipeline.cache().expect("a cache").flush();
    }
    let stats = pipeline.cache().expect("a cache").stats();
    let (read, copies) = (stats.source.source_reads, stats.all());
    assert_eq!((read, copies.hits, copies.fallbacks), (SAMPLES, SAMPLES, 0), "{stats:?}");
    assert!(copies.bytes < bytes_of(&pipeline) / 20 * 19, "{stats:?}");
}

#[test]
fn damage_is_seen_where_it_is_read() {
    let scene = packed();
    let options = LoaderOptions { train: Some(false), ..small_images() };
    let pipeline = open(&scene, "packed", &options);
    let expected = epoch_bytes(&pipeline, 0);
    let extent = pipeline.index().extent(3);
    let shard = scene.path("packed/000000.packed");
    let sound = fs::read(&shard).unwrap();
    let damaged = |at: u32| {
        let mut bytes = sound.clone();
        bytes[(extent.offset + u64::from(at)) as usize] ^= 4;
        fs::write(&shard, bytes).unwrap();
        open(&scene, "packed", &options)
    };
    let middle = damaged(extent.length / 2);
    let error = epoch(&middle, 0, |_| {}).unwrap_err().to_string();
    assert!(error.contains("sample 3 ") && error.contains("of MCUs is damaged"), "{error}");
    assert!(epoch_bytes(&damaged(extent.length - 9), 0) == expected, "the last bytes are no rows");
}
