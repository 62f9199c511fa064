//! Tests which samples the tier in memory keeps, returns and frees.

use super::*;
use crate::io::{Completion, ReadRequest};
use base::crc::checksum;
use base::rng::{RandomKey, Use};
use data::dataset::{Contents, IndexOptions};
use tempfile::TempDir;

fn dataset(files: usize, bytes: usize) -> (TempDir, Arc<DatasetIndex>) {
    uneven(&vec![bytes; files])
}

/// Makes files of these lengths. Every byte is the file's number.
fn uneven(lengths: &[usize]) -> (TempDir, Arc<DatasetIndex>) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("data");
    std::fs::create_dir(&root).expect("a directory in it");
    for (number, &bytes) in lengths.iter().enumerate() {
        std::fs::write(root.join(format!("{number:05}.bin")), vec![number as u8; bytes]).expect("a file");
    }
    let options = IndexOptions {
        directory: Some(directory.path().join("index")),
        contents: Contents::Files,
        progress: false,
        ..IndexOptions::default()
    };
    let index = DatasetIndex::open(&root, &options).expect("an index");
    (directory, Arc::new(index))
}

const VERSION: FileVersion = FileVersion(5);
const MIB: u64 = 1 << 20;

fn bytes(sample: u64, length: usize) -> Vec<u8> {
    vec![sample as u8; length]
}

#[test]
fn little_is_lost_at_the_ends_of_blocks_of_arrays() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("data");
    std::fs::create_dir(&root).expect("a directory in it");
    let row = 3 << 20;
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': (9, {row}), }}");
    let header = format!("{header:<117}\n");
    let mut content = [&b"\x93NUMPY\x01\x00\x76\x00"[..], header.as_bytes()].concat();
    content.resize(content.len() + 9 * row, 0);
    std::fs::write(root.join("x.npy"), content).expect("a file");
    let names = vec!["x.npy".to_owned()];
    let options = IndexOptions {
        directory: Some(directory.path().join("index")),
        members: Some(names.clone()),
        of_files: names,
        progress: false,
        ..IndexOptions::default()
    };
    let index = Arc::new(DatasetIndex::open(&root, &options).expect("an index"));
    let ram = Ram::new(&index, TierName::RAM, 24 * MIB, 1).expect("it fits");
    for sample in 0..9 {
        let offer = ram.offer(0, sample, VERSION, &bytes(sample, row));
        assert_eq!(offer, if sample < 8 { Offer::Taken } else { Offer::Full }, "sample {sample}");
    }
}

#[test]
fn it_keeps_what_comes_first_and_no_more_than_it_may() {
    let length = 100_000;
    let (_directory, index) = dataset(100, length);
    let ram = Ram::new(&index, TierName::RAM, 6 * MIB, 1).expect("it fits");
    let taken: Vec<u64> = (0..100)
        .filter(|&sample| ram.offer(0, sample, VERSION, &bytes(sample, length)) == Offer::Taken)
        .collect();
    // A block of 2 MiB has room for twenty samples, and there are three blocks.
    assert_eq!(taken, (0..60).collect::<Vec<_>>());
    assert!(!ram.is_open());
    let stats = ram.stats();
    assert_eq!((stats.held_samples, stats.held_bytes, stats.dropped_full), (60, 6 * MIB, 40));
    assert_eq!(ram.offer(0, 3, VERSION, &bytes(3, length)), Offer::Present);
    for sample in 0..100 {
        let copy = ram.locate(sample);
        assert_eq!(copy.is_some(), sample < 60, "sample {sample}");
        let Some(copy) = copy else { continue };
        let read = ram.read_blocking(&copy).expect("it is there");
        assert_eq!(
            (read.as_slice(), copy.crc),
            (&*bytes(sample, length), Some(checksum(&read))),
            "sample {sample}"
        );
        assert_eq!((copy.version, copy.checked), (Some(VERSION), true));
    }
}

#[test]
fn threads_that_offer_side_by_side_fill_it_together_and_no_further() {
    let length = 100_000;
    let (_directory, index) = dataset(1600, length);
    let ram = Ram::new(&index, TierName::RAM, 130 * MIB, 1).expect("it fits");
    let taken: u64 = std::thread::scope(|scope| {
        let offers = |thread: u64| {
            let samples = (0..1600).filter(move |sample| (sample + thread) % 3 < 2);
            samples
                .filter(|&sample| ram.offer(0, sample, VERSION, &bytes(sample, length)) == Offer::Taken)
                .count()
        };
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || offers(thread) as u64)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    // 65 blocks, with room for twenty samples each.
    let stats = ram.stats();
    assert_eq!((taken, stats.held_samples, stats.held_bytes), (1300, 1300, 130 * MIB));
    assert!(!ram.is_open());
    for sample in 0..1600 {
        let Some(copy) = ram.locate(sample) else { continue };
        assert_eq!(ram.read_blocking(&copy).expect("it is there"), bytes(sample, length), "sample {sample}");
    }
}

#[test]
fn who_must_not_wait_for_memory_knows_when_it_would() {
    let length = 100_000;
    let (_directory, index) = dataset(1000, length);
    let ram = Ram::new(&index, TierName::RAM, 66 * MIB, 1).expect("it fits");
    // An arena has 32 blocks of 20 samples, and the last arena has a single block.
    let waits: Vec<u64> = (0..1000)
        .filter(|&sample| {
            let at_once = ram.offers_at_once(0, length as u32);
            ram.offer(0, sample, VERSION, &bytes(sample, length));
            !at_once
        })
        .collect();
    assert_eq!(waits, [0, 640]);
    assert_eq!(ram.stats().held_samples, 660);
}

#[test]
fn a_group_that_leaves_gives_its_memory_back() {
    let length = 100_000;
    let (_directory, index) = dataset(40, length);
    let ram = Ram::new(&index, TierName::RAM, 4 * MIB, 1).expect("it fits");
    for sample in 0..40 {
        assert_eq!(ram.offer(sample / 20, sample, VERSION, &bytes(sample, length)), Offer::Taken, "{sample}");
    }
    assert_eq!(ram.groups(), BTreeMap::from([(0, 2 * MIB), (1, 2 * MIB)]));
    let gone = ram.locate(7).expect("it is kept");
    ram.evict_group(0);
    assert!(ram.locate(7).is_none() && ram.locate(27).is_some() && ram.is_open());
    let error = ram.read_blocking(&gone).expect_err("its block was given back");
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    ram.damaged(7, gone, CopyFault::Gone);
    assert_eq!(ram.offer(2, 7, VERSION, &bytes(7, length)), Offer::Taken);
    let moved = ram.locate(7).expect("it is kept again");
    assert_ne!(moved.extent.file, gone.extent.file, "a block's number never stands for another");
    assert_eq!(ram.stats().evicted_bytes, 2 * MIB);
}

#[test]
fn what_has_changed_is_forgotten_and_a_block_of_nothing_else_is_given_back() {
    let length = 100_000;
    let (_directory, index) = dataset(20, length);
    let ram = Ram::new(&index, TierName::RAM, 8 * MIB, 1).expect("it fits");
    for sample in 0..20 {
        assert_eq!(ram.offer(0, sample, VERSION, &bytes(sample, length)), Offer::Taken);
    }
    for sample in 0..10 {
        let copy = ram.locate(sample).expect("it is kept");
        ram.drop_stale(sample, &copy);
        ram.drop_stale(sample, &copy);
        assert!(ram.locate(sample).is_none(), "sample {sample}");
    }
    assert_eq!((ram.stats().held_samples, ram.stats().stale), (10, 10));
    let copy = ram.locate(10).expect("it is kept");
    ram.drop_stale(10, &copy);
    assert_eq!((ram.stats().held_samples, ram.stats().held_bytes), (0, 0), "most of the block was of no use");
}

#[test]
fn it_must_fit_in_the_memory_that_is_free() {
    let (_directory, index) = dataset(1, 3 << 20);
    let refusal =
        |capacity| Ram::new(&index, TierName::RAM, capacity, 1).err().map(|error| error.to_string());
    let small = refusal(3 * MIB).expect("a block has 4 MiB");
    assert!(
        small.starts_with("config: cache_ram: is 3145728 bytes") && small.contains("at least 4194304"),
        "{small}"
    );
    let large = refusal(1 << 60).expect("no machine has it");
    assert!(large.contains("the memory of this machine or container"), "{large}");
    assert_eq!(refusal(4 * MIB), None);
}

#[test]
fn a_sample_moves_also_into_an_older_block() {
    let length = 100_000;
    let (_directory, index) = dataset(20, length);
    let ram = Ram::new(&index, TierName::RAM, 8 * MIB, 1).expect("it fits");
    // The block of group 7 is older than the block of group 3, from which the sample comes.
    for (group, sample) in [(7, 0), (3, 1), (7, 1)] {
        assert_eq!(ram.offer(group, sample, VERSION, &bytes(sample, length)), Offer::Taken);
    }
    ram.evict_group(3);
    let copy = ram.locate(1).expect("it has moved");
    assert_eq!(ram.read_blocking(&copy).expect("it is there"), bytes(1, length));
    assert_eq!(ram.stats().held_samples, 2);
}

#[test]
fn one_large_sample_does_not_decide_the_length_of_blocks() {
    let (directory, _) = dataset(3, 100_000);
    std::fs::write(directory.path().join("data/99999.bin"), vec![0; 40 << 20]).expect("a large file");
    let options = IndexOptions {
        directory: Some(directory.path().join("index of all")),
        contents: Contents::Files,
        progress: false,
        ..IndexOptions::default()
    };
    let index = Arc::new(DatasetIndex::open(&directory.path().join("data"), &options).expect("an index"));
    let ram = Ram::new(&index, TierName::RAM, 64 * MIB, 1).expect("it fits");
    assert_eq!(ram.offer(0, 3, VERSION, &vec![0; 40 << 20]), Offer::Full);
    assert_eq!(ram.offer(0, 1, VERSION, &bytes(1, 100_000)), Offer::Taken);
    assert!(ram.stats().held_bytes <= 32 * MIB && ram.is_open(), "{:?}", ram.stats());
}

#[test]
fn readers_see_right_bytes_or_none_while_groups_come_and_go() {
    let (seed, length) = (11, 50_000);
    let (_directory, index) = dataset(200, length);
    let ram = Ram::new(&index, TierName::RAM, 8 * MIB, 1).expect("it fits");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut read, mut gone) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = RandomKey::new(b"ram", seed, 0, Use::Order).stream(0);
            for step in 0..3_000 {
                let (sample, group) = (random.below(200), step / 60);
                let _ = ram.offer(group, sample, VERSION, &bytes(sample, length));
                if step % 60 == 59 {
                    ram.evict_group(group.saturating_sub(1));
                }
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let slots = SlotPool::new(1 << 20).expect("memory");
        let mut reader = match ram.reader(&slots) {
            TierReader::Listening(open) => open(crate::io::Waker(Arc::new(|| {}))).expect("memory is there"),
            TierReader::Waiting(_) => unreachable!("memory is not waited for"),
        };
        let mut random = RandomKey::new(b"ram", seed, 1, Use::Order).stream(0);
        let mut answers = Vec::new();
        while !done.load(std::sync::atomic::Ordering::SeqCst) || read == 0 {
            let sample = random.below(200);
            let Some(copy) = ram.locate(sample) else { continue };
            let slot = slots.try_take(length).expect("one at a time");
            reader.submit(ReadRequest::new(sample, copy.extent, slot));
            assert!(!reader.listen(), "the answer is there");
            reader.take(&mut answers).expect("memory does not fail");
            for Completion { token, result, .. } in answers.drain(..) {
                match result {
                    Ok(bytes) => {
                        assert!(bytes.iter().all(|&byte| byte == token as u8), "seed {seed}: sample {token}");
                        read += 1;
                    }
                    Err(_) => gone += 1,
                }
            }
        }
    });
    println!("{read} read, {gone} gone");
}

#[test]
fn the_ends_of_blocks_are_filled_with_smaller_samples() {
    let mut random = RandomKey::new(b"lengths", 1, 0, Use::Augment).stream(0);
    let lengths: Vec<usize> = (0..1000).map(|_| 5_000 + random.below(200_000) as usize).collect();
    let (_directory, index) = uneven(&lengths);
    let ram = Ram::new(&index, TierName::RAM, 64 * MIB, 1).expect("it fits");
    for (sample, &length) in (0..).zip(&lengths) {
        if ram.offer(0, sample, VERSION, &bytes(sample, length)) == Offer::Full {
            break;
        }
    }
    let kept = ram.stats().admitted_bytes as f64 / (64 * MIB) as f64;
    assert!(kept > 0.985, "{kept} of the memory has samples");
}
