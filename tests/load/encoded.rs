//! Batches of encoded files: the bytes of every file, in the order of the images, even if the consumer keeps them.

use crate::common::{Dataset, failure, ids};
use foreload::Error;
use foreload::testing::batch::Batch;
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::io::{Direct, IoChoice};
use foreload::testing::schedule::LastBatch;

fn options() -> LoaderOptions {
    LoaderOptions { batch_size: 8, seed: 5, decoded: false, ..LoaderOptions::default() }
}

/// Checks that every place of the batch holds the file of its sample.
fn check(dataset: &Dataset, batch: &Batch) {
    let files = batch.encoded();
    assert_eq!(files.len(), batch.len());
    for (file, id) in files.iter().zip(ids(batch)) {
        let expected = std::fs::read(dataset.path(id as usize)).unwrap();
        assert_eq!(file.shape(), [expected.len() as i64]);
        assert!(file.bytes() == expected, "sample {id}");
    }
}

#[test]
fn same_order_labels_and_mask_as_images_with_the_bytes_of_the_files() {
    let dataset = Dataset::folder(61);
    let pad = LoaderOptions { last_batch: Some(LastBatch::Pad), ..options() };
    for (io, direct, depth, threads) in [
        (IoChoice::Auto, Direct::Auto, 32, None),
        (IoChoice::Auto, Direct::On, 3, Some(4)),
        (IoChoice::Pread, Direct::Off, 1, Some(2)),
    ] {
        let asked = LoaderOptions { io, direct, queue_depth: Some(depth), threads, ..pad.clone() };
        let images =
            dataset.pipeline(&LoaderOptions { decoded: true, image_size: (32, 32), ..asked.clone() });
        let encoded = dataset.pipeline(&asked);
        for number in 0..2 {
            let (mut images, mut encoded) =
                (images.epoch(number, 0, 1, 0).unwrap(), encoded.epoch(number, 0, 1, 0).unwrap());
            let mut steps = 0;
            while let Some(batch) = encoded.next_batch().unwrap() {
                assert!(batch.is_encoded());
                assert_eq!(batch.images().shape(), [8, 0]);
                check(&dataset, &batch);
                let image = images.next_batch().unwrap().unwrap();
                assert!(!image.is_encoded());
                assert_eq!(batch.labels().bytes(), image.labels().bytes());
                assert_eq!(batch.sample_ids().bytes(), image.sample_ids().bytes());
                assert_eq!(batch.mask().bytes(), image.mask().bytes());
                steps += 1;
            }
            assert!(images.next_batch().unwrap().is_none());
            assert_eq!(steps, 8);
        }
    }
}

#[test]
fn kept_files_outlive_the_pipeline_unchanged() {
    let dataset = Dataset::folder(64);
    let pipeline = dataset.pipeline(&LoaderOptions { keep: 8, ..options() });
    let mut kept = Vec::new();
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    while let Some(batch) = epoch.next_batch().unwrap() {
        // One file is enough to keep the whole batch alive.
        let id = ids(&batch)[3];
        kept.push((batch.encoded().swap_remove(3), id));
    }
    drop(epoch);
    drop(pipeline);
    assert_eq!(kept.len(), 8);
    for (file, id) in kept {
        assert!(file.bytes() == std::fs::read(dataset.path(id as usize)).unwrap());
    }
}

#[test]
fn a_failed_file_is_raised_replaced_or_empty() {
    let dataset = Dataset::folder(40);
    dataset.spoil(7);
    let seven = std::fs::metadata(dataset.path(7)).unwrap().len();
    std::fs::write(dataset.path(21), vec![0xFF; 10]).unwrap();

    let error = failure(&mut dataset.pipeline(&options()).epoch(0, 0, 1, 0).unwrap());
    assert!(matches!(error, Error::Sample { id: 7 | 21, .. }), "{error}");

    let pipeline = dataset.pipeline(&LoaderOptions { on_error: OnError::Zero, ..options() });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut empty = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        let ids = ids(&batch);
        for ((file, id), &valid) in batch.encoded().iter().zip(ids).zip(batch.mask().bytes()) {
            assert_eq!(file.bytes().is_empty(), valid == 0);
            if valid == 0 {
                assert_eq!(file.shape(), [0]);
                empty.push(id);
            }
        }
    }
    empty.sort_unstable();
    assert_eq!(empty, [7, 21]);
    let mut messages: Vec<_> =
        epoch.failures().lock().unwrap().iter().map(|failure| failure.message.clone()).collect();
    messages.sort();
    assert!(messages.iter().any(|m| m.contains("image: starts with \"<!DOCTYPE")), "{messages:?}");
    assert!(messages.iter().any(|m| m.contains("is 10 bytes, was ")), "{messages:?}");
    assert_eq!(std::fs::metadata(dataset.path(7)).unwrap().len(), seven);

    let pipeline = dataset.pipeline(&LoaderOptions { on_error: OnError::Skip, ..options() });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    while let Some(batch) = epoch.next_batch().unwrap() {
        let ids = ids(&batch);
        assert!(!ids.contains(&7) && !ids.contains(&21));
        check(&dataset, &batch);
    }
    assert_eq!(epoch.failed(), 2);
}

#[test]
fn keeping_too_many_names_the_setting_and_releasing_helps() {
    let dataset = Dataset::folder(2000);
    let asked = LoaderOptions { batch_size: 50, queue_depth: Some(4), ..options() };
    let pipeline = dataset.pipeline(&LoaderOptions { memory: Some(5 << 20), ..asked.clone() });
    let mut kept = Vec::new();
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let error = loop {
        match epoch.next_batch() {
            Ok(batch) => kept.push(batch.expect("an error before the end")),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Config { setting: "memory", .. }), "{error}");
    assert!(error.to_string().contains("raise keep"), "{error}");
    assert!((2..30).contains(&kept.len()), "{}", kept.len());
    kept.iter().for_each(|batch| check(&dataset, batch));
    drop(kept);

    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut last = None;
    for _ in 0..40 {
        last = epoch.next_batch().unwrap();
    }
    assert!(last.is_some() && epoch.next_batch().unwrap().is_none());
    drop((last, epoch));

    let pipeline = dataset.pipeline(&LoaderOptions { keep: 40, ..asked });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let kept: Vec<_> = (0..40).map(|_| epoch.next_batch().unwrap().unwrap()).collect();
    kept.iter().for_each(|batch| check(&dataset, batch));
}

#[test]
fn memory_without_room_for_what_is_kept_is_refused() {
    let dataset = Dataset::folder(300);
    let asked = |keep, memory| LoaderOptions { keep, memory: Some(memory), batch_size: 100, ..options() };
    let index = dataset.index();
    assert!(asked(2, 20 << 20).check(&index).is_ok());
    let error = asked(20, 20 << 20).check(&index).unwrap_err();
    assert!(matches!(error, Error::Config { setting: "memory", .. }), "{error}");
    let error = LoaderOptions { keep: 0, ..options() }.check(&index).unwrap_err();
    assert!(matches!(error, Error::Config { setting: "keep", .. }), "{error}");
}
