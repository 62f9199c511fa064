//! If an order keeps neighbours near, one request to a server reads many of them, and the batches are the directory's.

use super::{Served, pipeline, two_epochs};
use crate::common::scene::{Scene, tfrecord};
use crate::common::tables::{Feature, example};
use crate::common::{
    Dataset, epoch_bytes, finished, ids, jpeg, small_images, tar_of_samples, wait_for, with_cache,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::NeighbourBlocks;
use foreload::testing::tier::FillChoice;
use foreload::{Shuffling, State};
use std::io::Write;

const SAMPLES: usize = 120;
const EACH: usize = 25;
/// The number of shards. Each is one stretch (block of neighbouring samples).
const SHARDS: u64 = SAMPLES.div_ceil(EACH) as u64;

fn by_blocks() -> LoaderOptions {
    LoaderOptions { shuffle: Some(Shuffling::Blocks), ..small_images() }
}

fn in_order() -> LoaderOptions {
    LoaderOptions { train: Some(false), batch_size: 100, ..small_images() }
}

#[test]
fn stretches_are_one_request_each() {
    // Without shuffling, a stretch takes at most an eighth of the reads in flight.
    for (options, most, alone) in [(by_blocks(), SHARDS, 0), (in_order(), SAMPLES as u64 / 3, 10)] {
        let dataset = Dataset::shards(SAMPLES, EACH);
        let expected = two_epochs(&dataset.pipeline(&options));
        let served = Served::new(dataset);
        let pipeline = served.pipeline(&options);
        let started = served.gets();
        assert!(two_epochs(&pipeline) == expected);
        // Memory holds all stretches for the second epoch.
        let made = served.gets() - started;
        assert!((SHARDS..=most).contains(&made), "{:?}: {made}", options.shuffle);
        let epoch = finished(&pipeline, 2);
        let stats = epoch.stats();
        // Samples without neighbours are requested as usual.
        assert!(stats.reads.requests <= alone && stats.unpacked.blocks == 0, "{stats:?}");
    }
}

#[test]
fn faults_change_no_batch() {
    let dataset = Dataset::shards(SAMPLES, EACH);
    let expected = two_epochs(&dataset.pipeline(&by_blocks()));
    let served = Served::new(dataset);
    let index = served.index();
    served.fail(&["status:0.2:503", "cut:0.2:1000"]);
    assert!(two_epochs(&pipeline(index, &by_blocks())) == expected);
}

#[test]
fn a_cache_takes_all_of_a_stretch() {
    let dataset = Dataset::shards(SAMPLES, EACH);
    let expected: Vec<_> = {
        let plain = dataset.pipeline(&by_blocks());
        (0..3).map(|number| epoch_bytes(&plain, number)).collect()
    };
    let options = dataset.cached(4.0, by_blocks());
    let served = Served::new(dataset);
    for run in 0..2 {
        let pipeline = served.pipeline(&options);
        let started = served.gets();
        for (number, expected) in (0..).zip(&expected) {
            assert!(epoch_bytes(&pipeline, number) == *expected, "run {run}, epoch {number}");
            pipeline.cache().expect("a cache").flush();
        }
        let made = served.gets() - started;
        assert!(if run == 0 { made <= SHARDS } else { made == 0 }, "run {run}: {made}");
    }
}

#[test]
fn shards_are_staged_while_batches_read_stretches_of_them() {
    let dataset = Dataset::shards(SAMPLES, EACH);
    let plain = dataset.pipeline(&by_blocks());
    let expected: Vec<_> = (0..3).map(|number| epoch_bytes(&plain, number)).collect();
    let options =
        with_cache(dataset.cached(4.0, by_blocks()), |cache| cache.directory.fill = FillChoice::Ahead);
    let served = Served::new(dataset);
    let pipeline = served.pipeline(&options);
    let started = served.gets();
    for (number, expected) in (0..).zip(&expected) {
        assert!(epoch_bytes(&pipeline, number) == *expected, "epoch {number}");
        pipeline.cache().expect("a cache").flush();
    }
    // The last epoch uses all shards again, even if another rank has read them before.
    let stats = || pipeline.cache().expect("a cache").stats();
    wait_for("all shards are staged", stats, |stats| stats.source.staged_units >= SHARDS);
    // Data that a stretch brought is not staged again, except for requests that were already in flight.
    assert!(served.gets() - started <= 3 * SHARDS, "{}", served.gets() - started);
}

/// Shards that were replaced are read in the earlier order only while they equal the indexed shards.
#[test]
fn what_changes_on_the_server_is_noticed() {
    let dataset = Dataset::shards(SAMPLES, EACH);
    let other = Dataset::shards(SAMPLES, EACH - 1);
    let served = Served::new(dataset);
    let pipeline = served.pipeline(&LoaderOptions { max_errors: Some(0), ..by_blocks() });
    let shard = served.dataset.beside("data").join("shard-001.tar");
    std::fs::copy(other.beside("data").join("shard-001.tar"), shard).unwrap();
    let error = super::failure(&pipeline);
    assert!(error.contains("shard-001.tar") && error.contains("changed"), "{error}");
}

#[test]
fn a_training_goes_on_by_the_blocks_that_it_began_with() {
    let dataset = Dataset::shards(SAMPLES, EACH);
    let options = LoaderOptions { batch_size: 8, ..by_blocks() };
    let on_two = dataset.pipeline(&options);
    let mut epoch = on_two.epoch(0, 0, 2, 0).unwrap();
    for _ in 0..3 {
        epoch.next_batch().unwrap().unwrap();
    }
    let state = State::from_json(&epoch.progress().state(None).unwrap().to_json()).unwrap();
    drop(epoch);
    let rest = |pipeline: &foreload::Pipeline, rank, world| {
        let mut epoch = pipeline.resume(&state, rank, world).unwrap();
        let mut seen = Vec::new();
        while let Some(batch) = epoch.next_batch().unwrap() {
            seen.extend(ids(&batch));
        }
        seen
    };
    // On one rank with batches that are twice as large, so that the global batch is the same.
    let doubled = LoaderOptions { batch_size: 16, ..options.clone() };
    let refused = dataset.pipeline(&doubled).resume(&state, 0, 1).map(drop).unwrap_err().to_string();
    assert!(refused.contains("shuffle_ranks") && refused.contains("set shuffle_ranks=2"), "{refused}");
    let doubled = LoaderOptions { shuffle_ranks: Some(2), ..doubled };
    let mut on_one = rest(&dataset.pipeline(&doubled), 0, 1);
    let mut both = [rest(&on_two, 0, 2), rest(&on_two, 1, 2)].concat();
    assert_eq!(on_one.len(), SAMPLES - 3 * 16);
    on_one.sort_unstable();
    both.sort_unstable();
    assert_eq!(on_one, both);
    // Blocks with other boundaries give another order.
    let other = LoaderOptions { shuffle: Some(Shuffling::On), ..options };
    let refused = dataset.pipeline(&other).resume(&state, 0, 2).map(drop).unwrap_err().to_string();
    assert!(refused.contains("blocks was"), "{refused}");
}

#[test]
fn what_does_not_go_with_blocks_is_refused_by_name() {
    let dataset = Dataset::shards(50, EACH);
    let index = dataset.index();
    let refused = |options: LoaderOptions| options.check(&index).map(drop).unwrap_err().to_string();
    for (setting, options) in [
        ("repeats", LoaderOptions { repeats: 2, ..by_blocks() }),
        ("epoch_size", LoaderOptions { epoch_size: Some(20), ..by_blocks() }),
        ("shuffle_ranks", LoaderOptions { shuffle_ranks: Some(2), ..small_images() }),
    ] {
        let error = refused(options);
        assert!(error.contains(setting) && error.contains("shuffle="), "{error}");
    }
    let options = LoaderOptions { shuffle_ranks: Some(3), batch_size: 8, ..by_blocks() };
    let error = dataset.pipeline(&options).epoch(0, 0, 2, 0).map(drop).unwrap_err().to_string();
    assert!(error.contains("shuffle_ranks") && error.contains("is 3"), "{error}");
    // Separate files have no neighbours.
    let loose = Dataset::folder(30);
    loose.pipeline(&by_blocks());
    let told = loose.pipeline(&by_blocks()).index().notices().take();
    assert!(told.iter().any(|message| message.contains("shuffle=\"blocks\"")), "{told:?}");
}

#[test]
fn shards_that_are_sorted_by_class_are_told_of() {
    for (class_of, is_sorted) in
        [(|i: u64| i / 20, true), (|i: u64| i % 3, false), (|_: u64| 1, false)] as [(fn(u64) -> u64, bool); 3]
    {
        let scene = Scene::new();
        let members = |i| [("cls", class_of(i).to_string().into_bytes()), ("jpg", jpeg(i))];
        scene.write("a.tar", &tar_of_samples((0..60).map(|i| (format!("{i:05}"), members(i)))));
        let index = scene.open().unwrap();
        by_blocks().check(&index).unwrap();
        let told = index.notices().take();
        assert_eq!(
            told.iter().any(|message| message.contains("mostly have the same class")),
            is_sorted,
            "{told:?}"
        );
    }
}

/// Samples without an image have no bytes and no place, so they do not divide a block.
#[test]
fn samples_without_bytes_part_no_block() {
    let scene = Scene::new();
    let record = |number: u64| {
        let image = if number % 3 == 1 { Feature::Bytes(vec![]) } else { Feature::bytes(jpeg(number)) };
        example(&[("image", image), ("label", Feature::Integers(vec![number as i64]))])
    };
    let records: Vec<Vec<u8>> = (0..30).map(record).collect();
    let bytes = tfrecord(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&bytes).unwrap();
    scene.write("a.tfrecord.gz", &encoder.finish().unwrap());
    scene.write("b.tfrecord", &bytes);
    let index = scene.open().unwrap();
    assert_eq!(index.len(), 60);
    let neighbour_blocks = NeighbourBlocks::new(&index, index.len(), |sample| sample, 4 << 20);
    let members: Vec<_> =
        (0..neighbour_blocks.len()).map(|number| neighbour_blocks.members_of(number)).collect();
    assert_eq!(members, [0..30, 30..60]);
}
