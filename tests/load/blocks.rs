//! Samples in compressed blocks: every batch equals that of the uncompressed dataset, no block is decompressed more
//! often than necessary, and damage is an error of the samples in the damaged block.

mod packed;

use crate::common::scene::{Scene, tfrecord};
use crate::common::tables::{Feature, MdsColumn, example, mds_index, mds_shard};
use crate::common::{
    self, batches, finished, ids, jpeg, labelled, small_images, tar_of_samples, wait_for, with_cache, zstd,
};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::io::IoChoice;
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::FillChoice;
use foreload::{CacheChoice, Shuffling};
use range_server::{Options, RangeServer};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

const SHARDS: usize = 5;
const EACH: usize = 7;
const SAMPLES: usize = SHARDS * EACH;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Two gzip members. The second one begins in the middle of a sample.
fn gzip_in_two(bytes: &[u8]) -> Vec<u8> {
    let (one, other) = bytes.split_at(bytes.len() / 3);
    [gzip(one), gzip(other)].concat()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd_in_two(bytes: &[u8]) -> Vec<u8> {
    let (one, other) = bytes.split_at(bytes.len() / 3);
    [zstd(one), zstd(other)].concat()
}

/// The formats of pzstd and of zstd's seekable format: notes before each frame, or a table after all frames.
fn zstd_with_notes(bytes: &[u8]) -> Vec<u8> {
    let notes = |text: &[u8]| [b"\x50\x2a\x4d\x18", &(text.len() as u32).to_le_bytes()[..], text].concat();
    let (one, other) = bytes.split_at(bytes.len() / 3);
    let frames = [zstd(one), zstd(other)];
    let each = |frame: &Vec<u8>| [notes(&(frame.len() as u32).to_le_bytes()), frame.clone()].concat();
    [each(&frames[0]), each(&frames[1]), notes(&[7; 17])].concat()
}

/// With the zeros that fill the last block of a tape.
fn gzip_with_zeros(bytes: &[u8]) -> Vec<u8> {
    [gzip(bytes), vec![0; 512]].concat()
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

fn tar(samples: std::ops::Range<usize>) -> Vec<u8> {
    tar_of_samples(samples.map(labelled))
}

fn examples(samples: std::ops::Range<usize>) -> Vec<u8> {
    let record = |i: usize| {
        let label = Feature::Integers(vec![i as i64 % 3]);
        example(&[("image", Feature::bytes(jpeg(i as u64))), ("label", label)])
    };
    let records: Vec<Vec<u8>> = samples.map(record).collect();
    tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

const COLUMNS: &[MdsColumn] = &[("caption", "str", None), ("image", "jpeg", None), ("label", "int", Some(8))];

fn mds(samples: std::ops::Range<usize>) -> Vec<u8> {
    let sample = |i: usize| {
        let label = (i as u64 % 3).to_le_bytes().to_vec();
        vec![format!("picture {i}").into_bytes(), jpeg(i as u64), label]
    };
    mds_shard(COLUMNS, &samples.map(sample).collect::<Vec<_>>())
}

/// A layout of a dataset, and its compression.
struct Kind {
    name: &'static str,
    shard: fn(std::ops::Range<usize>) -> Vec<u8>,
    pack: fn(&[u8]) -> Vec<u8>,
    /// The endings of the names of plain shards, and of compressed ones.
    endings: [&'static str; 2],
    /// The name of the compression in `index.json`.
    mds: Option<&'static str>,
}

const fn kind(
    name: &'static str,
    shard: fn(std::ops::Range<usize>) -> Vec<u8>,
    pack: fn(&[u8]) -> Vec<u8>,
    endings: [&'static str; 2],
    mds: Option<&'static str>,
) -> Kind {
    Kind { name, shard, pack, endings, mds }
}

const KINDS: &[Kind] = &[
    kind("tar.gz", tar, gzip, [".tar", ".tar.gz"], None),
    kind("tgz in two members", tar, gzip_in_two, [".tar", ".tgz"], None),
    kind("tar.zst in two frames", tar, zstd_in_two, [".tar", ".tar.zst"], None),
    kind("a tar.gz that is called .tar", tar, gzip, [".tar", ".tar"], None),
    kind("tfrecord gzip", examples, gzip, [".tfrecord", ".tfrecord.gz"], None),
    kind("tfrecord zlib", examples, zlib, [".tfrecord", ".tfrecord"], None),
    kind("mds zstd", mds, zstd, [".mds", ".mds.zstd"], Some("zstd:7")),
    kind("mds gz", mds, gzip, [".mds", ".mds.gz"], Some("gz")),
    kind("mds snappy", mds, snappy, [".mds", ".mds.snappy"], Some("snappy")),
    kind("tar.zst with notes", tar, zstd_with_notes, [".tar", ".tar.zst"], None),
    kind("tfrecord zstd with notes", examples, zstd_with_notes, [".tfrecord", ".tfrecord.zst"], None),
    kind("tgz with zeros", tar, gzip_with_zeros, [".tar", ".tgz"], None),
    kind("mds zstd with notes", mds, zstd_with_notes, [".mds", ".mds.zstd"], Some("zstd:7")),
];

impl Kind {
    /// Writes the dataset, compressed or not.
    fn write(&self, scene: &Scene, packed: bool) {
        let mut listed = Vec::new();
        for number in 0..SHARDS {
            let raw = (self.shard)(number * EACH..(number + 1) * EACH);
            let name = format!("s-{number:03}{}", self.endings[usize::from(packed)]);
            let bytes = if packed { (self.pack)(&raw) } else { raw.clone() };
            scene.write(&name, &bytes);
            listed.push((format!("s-{number:03}.mds"), raw.len(), name, bytes.len()));
        }
        let Some(compression) = self.mds else { return };
        let raw: Vec<_> = listed.iter().map(|(name, length, ..)| (name.as_str(), EACH, *length)).collect();
        let mut list = mds_index(COLUMNS, &raw);
        for (shard, (.., name, length)) in list["shards"].as_array_mut().unwrap().iter_mut().zip(&listed) {
            if packed {
                shard["compression"] = compression.into();
                shard["zip_data"] = serde_json::json!({"basename": name, "bytes": length, "hashes": {}});
            }
        }
        scene.write("index.json", list.to_string().as_bytes());
    }

    fn scene(&self, packed: bool) -> Scene {
        let scene = Scene::new();
        self.write(&scene, packed);
        scene
    }
}

fn pipeline(scene: &Scene, options: &LoaderOptions) -> Pipeline {
    common::pipeline(scene.open().unwrap_or_else(|error| panic!("{error}")), options)
}

/// The contents of each sample's place in the batches of an epoch.
fn by_sample(pipeline: &Pipeline, number: u64) -> BTreeMap<i64, (Vec<u8>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for batch in batches(pipeline, number) {
        let ids = ids(&batch);
        let (images, labels) = (batch.images().bytes().to_vec(), batch.labels().bytes().to_vec());
        let (image, label) = (images.len() / ids.len(), labels.len() / ids.len());
        for (at, &id) in ids.iter().enumerate() {
            let values = (images[at * image..][..image].to_vec(), labels[at * label..][..label].to_vec());
            assert!(found.insert(id, values).is_none(), "sample {id} came twice");
        }
    }
    found
}

/// The number of blocks that were decompressed so far.
fn unpacked(pipeline: &Pipeline) -> u64 {
    pipeline.index().unpacked().stats().blocks
}

#[test]
fn batches_are_those_of_the_same_dataset_without_compression() {
    for kind in KINDS {
        let options = LoaderOptions { batch_size: 5, ..small_images() };
        let (plain, packed) = (kind.scene(false), kind.scene(true));
        let (expected, pipeline) = (pipeline(&plain, &options), pipeline(&packed, &options));
        assert!(pipeline.index().has_blocks() && !expected.index().has_blocks(), "{}", kind.name);
        for number in 0..2 {
            let found = by_sample(&pipeline, number);
            assert_eq!(found.len(), SAMPLES, "{}", kind.name);
            assert!(found == by_sample(&expected, number), "{}: epoch {number}", kind.name);
            // All blocks fit in memory, so that each is decompressed once.
            assert_eq!(unpacked(&pipeline), SHARDS as u64, "{}", kind.name);
        }
        assert_eq!(pipeline.index().notices().take(), Vec::<String>::new(), "{}", kind.name);
        // A loaded index gives the same.
        let again = self::pipeline(&packed, &options);
        assert!(by_sample(&again, 0) == by_sample(&expected, 0), "{}", kind.name);
        again.index().verify().unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    }
}

#[test]
fn both_ways_to_read_give_the_same_and_a_single_read_too() {
    for kind in &KINDS[..5] {
        let (plain, packed) = (kind.scene(false), kind.scene(true));
        let options = |io| LoaderOptions { io, ..small_images() };
        let expected = by_sample(&pipeline(&plain, &options(IoChoice::Auto)), 0);
        for io in [IoChoice::Pread, IoChoice::Auto] {
            assert!(by_sample(&pipeline(&packed, &options(io)), 0) == expected, "{} by {io:?}", kind.name);
        }
        let index = packed.open().unwrap();
        for sample in 0..SAMPLES as u64 {
            let bytes = foreload::testing::io::read_blocking(&index, index.extent(sample)).unwrap();
            assert!(bytes == jpeg(sample), "{}: sample {sample}", kind.name);
            assert_eq!(index.sample_of(index.extent(sample)), Some(sample), "{}", kind.name);
        }
        assert_eq!(index.unpacked().stats().blocks, SHARDS as u64, "{}", kind.name);
    }
}

#[test]
fn whoever_unpacks_a_block_has_all_of_its_samples_kept() {
    for fill in [FillChoice::Use, FillChoice::Ahead] {
        for kind in [&KINDS[0], &KINDS[4], &KINDS[6]] {
            let (plain, packed) = (kind.scene(false), kind.scene(true));
            let expected = pipeline(&plain, &small_images());
            let options = LoaderOptions { batch_size: 4, ..small_images() };
            let options = with_cache(options, |cache| {
                (cache.ram.size, cache.directory.fill) = (Some(64 << 20), fill);
            });
            let pipeline = pipeline(&packed, &options);
            for number in 0..3 {
                assert!(by_sample(&pipeline, number) == by_sample(&expected, number), "{}", kind.name);
                let cache = pipeline.cache().expect("a cache");
                cache.flush();
                let stats = cache.stats();
                assert_eq!(stats.all().held_samples, SAMPLES as u64, "{}", kind.name);
                assert_eq!(unpacked(&pipeline), SHARDS as u64, "{}", kind.name);
                let later = stats.source.source_reads;
                if number > 0 {
                    let hits = stats.all().hits;
                    assert!(hits + later >= 2 * SAMPLES as u64, "{}: {hits} and {later}", kind.name);
                }
            }
            let all = pipeline.cache().expect("a cache").stats();
            assert!(all.source.source_reads <= SAMPLES as u64, "{}: later epochs read nothing", kind.name);
        }
    }
}

/// An epoch with one sample left decompresses one block.
#[test]
fn a_block_that_is_unpacked_for_one_sample_gives_the_others_too() {
    for kind in [&KINDS[0], &KINDS[6]] {
        let packed = kind.scene(true);
        let options = LoaderOptions { batch_size: 1, ..small_images() };
        let options = with_cache(options, |cache| {
            (cache.ram.size, cache.directory.fill) = (Some(64 << 20), FillChoice::Use);
        });
        let pipeline = pipeline(&packed, &options);
        let mut epoch = pipeline.epoch(0, 0, 1, SAMPLES as u64 - 1).unwrap();
        assert!(epoch.next_batch().unwrap().is_some() && epoch.next_batch().unwrap().is_none());
        assert_eq!(unpacked(&pipeline), 1, "{}", kind.name);
        let cache = pipeline.cache().expect("a cache");
        // Reading does not wait until the other samples of the block are stored.
        let held = || {
            cache.flush();
            cache.stats().all().held_samples
        };
        wait_for(&format!("all of {} are kept", kind.name), held, |&held| held == EACH as u64);
    }
}

#[test]
fn a_cache_in_a_directory_serves_the_next_run_without_unpacking() {
    let kind = &KINDS[6];
    let (plain, packed) = (kind.scene(false), kind.scene(true));
    let expected = by_sample(&pipeline(&plain, &small_images()), 0);
    let directory = tempfile::tempdir().unwrap();
    let options = LoaderOptions {
        cache: CacheChoice::in_directory(directory.path().join("cache"), 64 << 20),
        ..small_images()
    };
    let first = pipeline(&packed, &options);
    assert!(by_sample(&first, 0) == expected);
    first.cache().expect("a cache").flush();
    drop(first);
    let second = pipeline(&packed, &options);
    assert!(by_sample(&second, 0) == expected);
    assert_eq!(unpacked(&second), 0);
}

#[test]
fn a_part_of_the_samples_is_all_that_a_cache_keeps() {
    let packed = KINDS[0].scene(true);
    let options = LoaderOptions {
        cache: CacheChoice::in_ram(64 << 20),
        indices: Some((3..12).collect()),
        ..small_images()
    };
    let pipeline = pipeline(&packed, &options);
    assert_eq!(by_sample(&pipeline, 0).len(), 9);
    let cache = pipeline.cache().expect("a cache");
    cache.flush();
    assert_eq!(cache.stats().all().held_samples, 9);
}

#[test]
fn servers_are_asked_for_whole_blocks() {
    for kind in [&KINDS[0], &KINDS[5], &KINDS[7]] {
        let (plain, packed) = (kind.scene(false), kind.scene(true));
        let expected = by_sample(&pipeline(&plain, &small_images()), 0);
        let server = RangeServer::start(&packed.root, Options::default()).unwrap();
        let open = || {
            let options = IndexOptions { ..packed.options.clone() };
            let url = format!("{}/", server.url());
            Arc::new(DatasetIndex::open(url.as_ref(), &options).unwrap_or_else(|error| panic!("{error}")))
        };
        let index = open();
        let read = |index: Arc<DatasetIndex>| by_sample(&common::pipeline(index, &small_images()), 0);
        let before = server.stats().requests;
        assert!(read(index.clone()) == expected, "{}", kind.name);
        let made = server.stats().requests - before;
        assert!((SHARDS as u64..=2 * SHARDS as u64).contains(&made), "{}: {made} requests", kind.name);
        server.set_faults(vec!["status:0.2:503".parse().unwrap()]);
        assert!(read(open()) == expected, "{}: some requests are refused", kind.name);
    }
}

#[test]
fn a_shard_that_is_damaged_within_a_run_is_an_error_of_its_samples() {
    for kind in [&KINDS[0], &KINDS[6]] {
        let packed = kind.scene(true);
        let options = LoaderOptions {
            on_error: OnError::Zero,
            max_errors: Some(1000),
            train: Some(false),
            shuffle: Some(Shuffling::Off),
            ..small_images()
        };
        let opened = pipeline(&packed, &options);
        let name = format!("s-002{}", kind.endings[1]);
        let mut bytes = std::fs::read(packed.root.join(&name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        packed.write(&name, &bytes);
        let epoch = finished(&opened, 0);
        assert_eq!(epoch.failed(), EACH as u64, "{}", kind.name);
        let told = opened.index().notices().take();
        assert!(told.iter().any(|message| message.contains(&name)), "{}: {told:?}", kind.name);
        // Opening the damaged dataset now reports the damage, too.
        bytes.truncate(middle);
        packed.write(&name, &bytes);
        let error = packed.error();
        assert!(error.contains(&name), "{}: {error}", kind.name);
    }
}

#[test]
fn records_of_any_kind_may_be_compressed() {
    let scene = Scene::new();
    let records: Vec<Vec<u8>> = (0..9u8).map(|number| vec![number; 100 + usize::from(number)]).collect();
    let bytes = tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    scene.write("a.tfrecord", &gzip(&bytes));
    let options = IndexOptions { contents: Contents::Files, ..scene.options.clone() };
    let index = DatasetIndex::open(&scene.root, &options).unwrap();
    for (sample, record) in (0..).zip(&records) {
        let found = foreload::testing::io::read_blocking(&index, index.extent(sample)).unwrap();
        assert_eq!(&found, record);
    }
}

#[test]
fn what_becomes_too_large_is_refused_with_the_remedy() {
    let scene = Scene::new();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 20];
    (0..257).for_each(|_| encoder.write_all(&zeros).unwrap());
    scene.write("a.tar.gz", &encoder.finish().unwrap());
    let error = scene.error();
    assert!(
        error.contains("a.tar.gz") && error.contains("256 MiB") && error.contains("decompress it"),
        "{error}"
    );
    let kind = &KINDS[6];
    let scene = kind.scene(true);
    let index = scene.root.join("index.json");
    let mut list: serde_json::Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
    list["shards"][1]["raw_data"]["bytes"] = (1_u64 << 40).into();
    std::fs::write(&index, list.to_string()).unwrap();
    let error = scene.error();
    assert!(error.contains("s-001.mds.zstd") && error.contains("256 MiB"), "{error}");
    list["shards"][1]["compression"] = "br:11".into();
    std::fs::write(&index, list.to_string()).unwrap();
    let error = scene.error();
    assert!(error.contains("s-001.mds.zstd") && error.contains("br:11"), "{error}");
}

/// If data has a checksum, damage at any place is an error, or changes no byte that is read.
#[test]
fn damage_at_any_place_is_noticed_or_harmless() {
    for kind in KINDS.iter().filter(|kind| kind.name != "mds snappy" && !kind.name.contains("zst")) {
        let raw = (kind.shard)(0..2);
        let sound = (kind.pack)(&raw);
        let mut noticed = 0;
        for round in 0..120 {
            let at = round * sound.len() / 120;
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (round % 8);
            let scene = Scene::new();
            let name = format!("s-000{}", kind.endings[1]);
            scene.write(&name, &bytes);
            if let Some(compression) = kind.mds {
                let mut list = mds_index(COLUMNS, &[("s-000.mds", 2, raw.len())]);
                list["shards"][0]["compression"] = compression.into();
                list["shards"][0]["zip_data"] =
                    serde_json::json!({"basename": name, "bytes": bytes.len(), "hashes": {}});
                scene.write("index.json", list.to_string().as_bytes());
            }
            let Ok(index) = scene.open() else {
                noticed += 1;
                continue;
            };
            for sample in 0..index.len() {
                let found = foreload::testing::io::read_blocking(&index, index.extent(sample)).unwrap();
                assert!(found == jpeg(sample), "{}: byte {at} changes sample {sample}", kind.name);
            }
        }
        assert!(noticed > 60, "{}: {noticed} of 120 noticed", kind.name);
    }
}
