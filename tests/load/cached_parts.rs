//! Of packed copies in a directory, only the parts that a crop needs are read. The batches are the same, damage in such
//! a part costs one read of the source, and tiers that store a sample get all of it.

use crate::common::{Dataset, epoch_bytes, finished, small_images, wait_for, with_cache};
use crate::store::world::segments;
use crate::tiers::epoch;
use foreload::testing::config::LoaderOptions;
use foreload::testing::io::{Direct, IoChoice};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::tier::{CacheStats, FormChoice};
use foreload::{Fidelity, RamChoice, TierName};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

const SAMPLES: usize = 24;
/// A cache size, in multiples of the dataset, that has room for all samples in both storage formats.
const ALL: f64 = 12.0;

/// Ways to read: the reader, O_DIRECT, the queue depth, and the number of worker threads.
pub const WAYS: [(IoChoice, Direct, u32, u32); 4] = [
    (IoChoice::Auto, Direct::Off, 32, 2),
    (IoChoice::Auto, Direct::On, 3, 1),
    (IoChoice::Pread, Direct::Off, 1, 3),
    (IoChoice::Pread, Direct::On, 8, 2),
];

/// Options for images with a cache directory next to the data, in which copies are packed.
fn packed(dataset: &Dataset, options: LoaderOptions) -> LoaderOptions {
    with_cache(dataset.cached(ALL, options), |cache| cache.directory.form = FormChoice::Packed)
}

fn stats(pipeline: &Pipeline) -> CacheStats {
    pipeline.cache().expect("a cache").stats()
}

/// Waits until this many copies are packed.
fn wait_until_packed(pipeline: &Pipeline, samples: usize) {
    pipeline.cache().expect("a cache").flush();
    let are_packed = |stats: &CacheStats| stats.all().converted_samples == samples as u64;
    wait_for("all copies are packed", || stats(pipeline), are_packed);
}

/// Fills the directory with this many samples and waits until all copies are packed. Returns their bytes.
fn fill(dataset: &Dataset, samples: usize) -> u64 {
    let pipeline = dataset.pipeline(&packed(dataset, small_images()));
    epoch_bytes(&pipeline, 0);
    wait_until_packed(&pipeline, samples);
    drop(pipeline);
    whole_bytes(dataset, samples)
}

/// The bytes of all copies, as a consumer of encoded files reads them.
fn whole_bytes(dataset: &Dataset, samples: usize) -> u64 {
    let files = LoaderOptions { decoded: false, ..packed(dataset, small_images()) };
    let pipeline = dataset.pipeline(&files);
    finished(&pipeline, 0);
    let found = stats(&pipeline);
    assert_eq!((found.source.source_reads, found.all().hits), (0, samples as u64), "{found:?}");
    found.all().bytes
}

#[test]
fn batches_are_the_same_of_fewer_bytes() {
    let dataset = Dataset::photographs(SAMPLES);
    let whole = fill(&dataset, SAMPLES);
    are_the_same(&dataset, whole);
}

#[test]
fn batches_of_a_packed_dataset_are_the_same_of_fewer_bytes() {
    let dataset = Dataset::photographs(SAMPLES).packed();
    epoch(&dataset.pipeline(&packed(&dataset, small_images())), 0);
    let whole = whole_bytes(&dataset, SAMPLES);
    assert_eq!(whole, dataset.index().total_bytes(), "nothing was made of them");
    are_the_same(&dataset, whole);
}

/// Compares batches made from copies of `whole` bytes with those of the dataset.
fn are_the_same(dataset: &Dataset, whole: u64) {
    for decode in [Fidelity::Fast, Fidelity::Exact] {
        for (train, repeats) in [(true, 1), (true, 3), (false, 1)] {
            let options =
                LoaderOptions { decode, train: Some(train), repeats, batch_size: 12, ..small_images() };
            let plain = dataset.pipeline(&options);
            let expected = [0, 1].map(|number| epoch_bytes(&plain, number));
            for (io, direct, depth, threads) in WAYS {
                let (queue_depth, threads) = (Some(depth), Some(threads));
                let options = LoaderOptions { io, direct, queue_depth, threads, ..options.clone() };
                let pipeline = dataset.pipeline(&packed(dataset, options));
                for (number, expected) in (0..).zip(&expected) {
                    let shown = format!("{decode:?}, train {train}, {repeats} times, {io:?}, {direct:?}");
                    let (hash, found) = epoch(&pipeline, number);
                    assert!(hash == *expected, "{shown}");
                    let copies = found.all();
                    assert_eq!((found.source.source_reads, copies.fallbacks), (0, 0), "{shown}");
                    let is_less = repeats > 1 || copies.bytes < whole / 20 * 19;
                    assert!(is_less, "{shown}: {} of {whole} bytes", copies.bytes);
                }
            }
        }
    }
}

#[test]
fn another_process_knows_the_outlines_too() {
    let dataset = Dataset::photographs(SAMPLES);
    let options = packed(&dataset, small_images());
    let as_they_come = with_cache(options.clone(), |cache| cache.directory.form = FormChoice::AsIs);
    // This pipeline was opened before any copy was packed.
    let other = dataset.pipeline(&as_they_come);
    let expected = epoch_bytes(&other, 0);
    other.cache().expect("a cache").flush();
    let first = dataset.pipeline(&options);
    assert!(epoch_bytes(&first, 0) == expected);
    wait_until_packed(&first, SAMPLES);
    let whole = whole_bytes(&dataset, SAMPLES);
    let read_all = || {
        let (hash, found) = epoch(&other, 0);
        assert!(hash == expected);
        assert_eq!((found.source.source_reads, found.all().fallbacks), (0, 0), "{found:?}");
        (found.all().bytes, stats(&other).all().held_bytes)
    };
    // Until it refreshes its view of the cache, it reads the old segments.
    wait_for("less is read and kept", read_all, |&(read, held)| {
        read < whole / 10 * 9 && held < whole + whole / 10
    });
}

/// The newest copy of a sample: its segment, and its byte range there.
fn copy_of(dataset: &Dataset, sample: u64) -> (PathBuf, Range<usize>) {
    let find = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (rows, table) = (half(bytes.len() - 52), number(bytes.len() - 16) as usize);
        let mut rows = (0..rows).map(|row| table + 64 * row);
        let row = rows.find(|&row| number(row) == sample)?;
        Some((path.clone(), half(row + 16)..half(row + 16) + half(row + 20)))
    };
    // The newest segment is the last one.
    segments(&dataset.beside("cache")).iter().rev().find_map(find).expect("a copy")
}

/// Changes a byte of a sample's copy, at this percentage of its length.
fn damage(dataset: &Dataset, sample: u64, hundredths: usize) {
    let (path, copy) = copy_of(dataset, sample);
    let mut bytes = fs::read(&path).unwrap();
    bytes[copy.start + copy.len() * hundredths / 100] ^= 4;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn damage_costs_a_read_where_it_is_read_and_no_byte() {
    // The fourth photograph is tall, so that the centre crop ends far before its last row.
    const TALL: u64 = 3;
    let options = LoaderOptions { train: Some(false), ..small_images() };
    for (hundredths, is_read) in [(90, false), (50, true), (0, true)] {
        for is_running in [false, true] {
            let shown = format!("{hundredths} hundredths, running {is_running}");
            let dataset = Dataset::photographs(SAMPLES);
            make_tall(&dataset, TALL as usize);
            let dataset = dataset.indexed_anew();
            let expected = epoch_bytes(&dataset.pipeline(&options), 1);
            fill(&dataset, SAMPLES);
            let running = is_running.then(|| dataset.pipeline(&packed(&dataset, options.clone())));
            if let Some(running) = &running {
                assert!(epoch(running, 1).0 == expected, "{shown}");
            }
            damage(&dataset, TALL, hundredths);
            let pipeline = running.unwrap_or_else(|| dataset.pipeline(&packed(&dataset, options.clone())));
            let (hash, found) = epoch(&pipeline, 1);
            assert!(hash == expected, "{shown}");
            let copies = found.all();
            assert_eq!(copies.damaged, u64::from(is_read), "{shown}: {found:?}");
            assert_eq!(copies.fallbacks > 0, is_read, "{shown}: {found:?}");
            assert_eq!(found.source.source_reads > 0, is_read, "{shown}: {found:?}");
            for number in 1..3 {
                // Other samples of the same segment are stored again, too.
                epoch(&pipeline, number);
            }
            let (hash, found) = epoch(&pipeline, 1);
            assert!(hash == expected, "{shown}");
            assert_eq!((found.source.source_reads, found.all().fallbacks), (0, 0), "{shown}: {found:?}");
        }
    }
}

/// Replaces the image of a sample by an image of twice the height.
fn make_tall(dataset: &Dataset, sample: usize) {
    let mut file = Vec::new();
    let pixels: Vec<u8> = (0..3 * 256 * 600).map(|at: u32| (at.wrapping_mul(at) / 7 % 60) as u8).collect();
    jpeg_encoder::Encoder::new(&mut file, 92)
        .encode(&pixels, 256, 600, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    fs::write(dataset.path(sample), file).unwrap();
}

#[test]
fn what_memory_takes_is_read_whole() {
    let dataset = Dataset::photographs(SAMPLES);
    let whole = fill(&dataset, SAMPLES);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
    let options = with_cache(packed(&dataset, small_images()), |cache| {
        cache.ram = RamChoice { size: Some(64 << 20), form: FormChoice::AsIs };
    });
    let pipeline = dataset.pipeline(&options);
    let (hash, found) = epoch(&pipeline, 0);
    let (memory, directory) = (found.tier(TierName::RAM), found.tier(TierName::NVME));
    assert!(hash == expected);
    assert_eq!((directory.hits, directory.bytes), (SAMPLES as u64, whole), "{found:?}");
    assert_eq!(memory.admitted_samples, SAMPLES as u64, "{found:?}");
    fs::remove_dir_all(dataset.beside("cache")).unwrap();
    let (hash, found) = epoch(&pipeline, 0);
    assert!(hash == expected);
    assert_eq!(found.tier(TierName::RAM).hits, SAMPLES as u64, "{found:?}");
    assert_eq!(found.source.source_reads, 0, "{found:?}");
}

#[test]
fn what_memory_has_no_room_for_is_read_in_parts() {
    const MANY: usize = 5 * SAMPLES;
    let dataset = Dataset::photographs(MANY);
    let expected = epoch_bytes(&dataset.pipeline(&small_images()), 0);
    let whole = fill(&dataset, MANY);
    let options = with_cache(packed(&dataset, small_images()), |cache| {
        cache.ram = RamChoice { size: Some(4 << 20), form: FormChoice::AsIs };
    });
    let pipeline = dataset.pipeline(&options);
    assert!(epoch(&pipeline, 0).0 == expected);
    let (hash, found) = epoch(&pipeline, 0);
    let (memory, directory) = (found.tier(TierName::RAM), found.tier(TierName::NVME));
    assert!(hash == expected);
    assert!(memory.hits > 0 && directory.hits > 0, "{found:?}");
    assert_eq!((memory.hits + directory.hits, found.source.source_reads), (MANY as u64, 0), "{found:?}");
    assert!(memory.bytes + directory.bytes < whole / 10 * 9, "{found:?} of {whole} bytes");
}
