//! Encoded bytes of packed images: consumers get the original files.

use crate::common::{Dataset, failure, ids};
use foreload::Error;
use foreload::testing::batch::{Batch, Tensor};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::io::{Direct, IoChoice};
use foreload::testing::schedule::LastBatch;

fn options() -> LoaderOptions {
    LoaderOptions {
        batch_size: 8,
        seed: 5,
        decoded: false,
        last_batch: Some(LastBatch::Partial),
        ..LoaderOptions::default()
    }
}

/// A packed dataset in which every fourth image is stored unchanged, and its original files.
fn packed(samples: usize) -> (Dataset, Vec<Vec<u8>>) {
    let dataset = Dataset::folder(samples);
    for sample in (3..samples).step_by(4) {
        let bytes = [b"\x89PNG\r\n\x1a\n".as_slice(), &[sample as u8; 3000]].concat();
        std::fs::write(dataset.path(sample), bytes).unwrap();
    }
    let files = (0..samples).map(|sample| std::fs::read(dataset.path(sample)).unwrap()).collect();
    (dataset.packed(), files)
}

/// The files of a batch, with their sample ids.
fn numbered(batch: &Batch) -> Vec<(usize, Tensor)> {
    ids(batch).into_iter().map(|id| id as usize).zip(batch.encoded()).collect()
}

#[test]
fn the_files_are_the_originals_however_they_are_read_and_kept() {
    let (dataset, files) = packed(61);
    for (io, direct, depth, threads) in [
        (IoChoice::Auto, Direct::Auto, 32, None),
        (IoChoice::Auto, Direct::On, 3, Some(4)),
        (IoChoice::Pread, Direct::Off, 1, Some(2)),
    ] {
        let asked = LoaderOptions { io, direct, queue_depth: Some(depth), threads, keep: 8, ..options() };
        let pipeline = dataset.pipeline(&asked);
        for number in 0..2 {
            let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
            let mut kept = Vec::new();
            while let Some(batch) = epoch.next_batch().unwrap() {
                kept.extend(numbered(&batch));
            }
            assert_eq!(epoch.stats().rebuilt, 46);
            assert_eq!(kept.len(), 61);
            for (sample, file) in kept {
                assert_eq!(file.shape(), [files[sample].len() as i64]);
                assert!(file.bytes() == files[sample], "sample {sample}, epoch {number}");
            }
        }
    }
}

#[test]
fn a_damaged_packed_image_is_raised_replaced_or_empty() {
    let (dataset, files) = packed(40);
    let (extent, shard) = (dataset.index().extent(9), dataset.beside("data/000000.packed"));
    let sound = std::fs::read(&shard).unwrap();
    // Damage of the signature counts, too: without it, the file does not pass for an unpacked file.
    for at in [3, extent.length as usize / 2] {
        let mut bytes = sound.clone();
        bytes[extent.offset as usize + at] ^= 0x10;
        std::fs::write(&shard, bytes).unwrap();
        check_damaged(&dataset, &files);
    }
}

fn check_damaged(dataset: &Dataset, files: &[Vec<u8>]) {
    let error = failure(&mut dataset.pipeline(&options()).epoch(0, 0, 1, 0).unwrap());
    assert!(matches!(error, Error::Sample { id: 9, .. }), "{error}");

    for on_error in [OnError::Zero, OnError::Skip] {
        let pipeline = dataset.pipeline(&LoaderOptions { on_error, ..options() });
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        let mut seen = [0; 40];
        while let Some(batch) = epoch.next_batch().unwrap() {
            for (sample, file) in numbered(&batch) {
                let failed = sample == 9;
                assert!(!failed || on_error == OnError::Zero);
                let expected: &[u8] = if failed { &[] } else { &files[sample] };
                assert!(file.bytes() == expected, "{on_error:?}: sample {sample}");
                seen[sample] += 1;
            }
        }
        assert_eq!(epoch.failed(), 1);
        assert_eq!(seen.iter().sum::<i32>(), 40);
    }
}
