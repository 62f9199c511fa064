//! The pipeline as its users see it: every byte of every batch is right, whatever the threads, the I/O path, the faults
//! and the consumer do.

use crate::common::fault::FaultOptions;
use crate::common::{
    Dataset, await_no_threads, batches, child, epoch_bytes, failure, finished, ids, passes, threads, wait_for,
};
use foreload::Error;
use foreload::Shuffling;
use foreload::testing::augment::{DType, ImageTransforms};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::decode::Damaged;
use foreload::testing::io::{Direct, IoChoice};
use foreload::testing::pipeline::Poll;
use foreload::testing::schedule::LastBatch;
use std::collections::HashSet;
use std::time::Duration;

pub(crate) fn options() -> LoaderOptions {
    LoaderOptions {
        batch_size: 8,
        image_size: (32, 32),
        threads: Some(2),
        seed: 5,
        ..LoaderOptions::default()
    }
}

#[test]
fn same_bytes_for_any_threads_io_depth_and_batches_ahead() {
    let dataset = Dataset::folder(61);
    let reference = epoch_bytes(&dataset.pipeline(&LoaderOptions { threads: Some(1), ..options() }), 3);
    // With this limit, slots get 6 MiB, and the rest is enough for 3 batches of 8 samples.
    let tight = Some((6 << 20) + 300_000);
    for (threads, io, direct, depth, memory, ahead) in [
        (2, IoChoice::Auto, Direct::Auto, 32, None, 8),
        (5, IoChoice::Auto, Direct::On, 3, tight, 2),
        (3, IoChoice::Pread, Direct::Off, 1, None, 8),
        (4, IoChoice::Pread, Direct::Off, 64, tight, 2),
    ] {
        let (threads, queue_depth) = (Some(threads), Some(depth));
        let asked = LoaderOptions { threads, io, direct, queue_depth, memory, ..options() };
        let pipeline = dataset.pipeline(&asked);
        assert_eq!(pipeline.config().pools.prefetch, ahead);
        assert!(epoch_bytes(&pipeline, 3) == reference, "{asked:?}");
        assert!(epoch_bytes(&pipeline, 3) == reference, "the same pipeline again");
        assert!(epoch_bytes(&pipeline, 4) != reference, "another epoch is another epoch");
    }
}

#[test]
fn statistics_of_another_scale_are_questioned() {
    let dataset = Dataset::folder(8);
    let of_bytes =
        LoaderOptions { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], ..options() };
    let questions = |asked: &LoaderOptions| dataset.pipeline(asked).index().notices().take();
    let said = questions(&of_bytes);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("mean is [123.675, ") && said[0].ends_with("use [0.485, 0.456, 0.406]"));
    assert!(said[1].starts_with("std is [58.395, ") && said[1].ends_with("use [0.229, 0.224, 0.225]"));
    for fine in [
        options(),
        LoaderOptions { mean: [0.0; 3], std: [1.0; 3], ..options() },
        LoaderOptions { mean: [1.0; 3], std: [1.0 / 255.0; 3], ..options() },
        // Mean and standard deviation have no effect on uint8.
        LoaderOptions { dtype: DType::U8, ..of_bytes.clone() },
        LoaderOptions { decoded: false, ..of_bytes },
    ] {
        assert!(questions(&fine).is_empty(), "{fine:?}");
    }
}

/// Each list of views may have its own normalisation, so all lists are checked, not only the first one.
#[test]
fn statistics_of_every_list_of_views_are_questioned() {
    let dataset = Dataset::folder(8);
    let views = |mean: f64| {
        format!(
            r#"{{"Views": {{"n": 2, "transforms": [{{"CenterCrop": {{"size": 32}}}},
                {{"ToDtype": {{"dtype": "float32"}}}},
                {{"Normalize": {{"mean": [{mean}, 0, 0], "std": [1, 1, 1]}}}}]}}}}"#
        )
    };
    let questions = |first: f64, second: f64| {
        let transforms =
            ImageTransforms::from_json(&format!("[{}, {}]", views(first), views(second))).unwrap();
        let asked = LoaderOptions { transforms: Some(transforms), ..options() };
        dataset.pipeline(&asked).index().notices().take()
    };
    assert_eq!(questions(0.5, 0.5), [""; 0]);
    for (first, second) in [(0.5, 127.5), (127.5, 0.5), (127.5, 127.5)] {
        let said = questions(first, second);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("mean is [127.5, 0.0, 0.0]"), "{said:?}");
    }
}

#[test]
fn every_sample_comes_exactly_once() {
    let dataset = Dataset::folder(50);
    for (last_batch, delivered, steps) in
        [(LastBatch::Drop, 48, 6), (LastBatch::Partial, 50, 7), (LastBatch::Pad, 50, 7)]
    {
        let pipeline = dataset.pipeline(&LoaderOptions { last_batch: Some(last_batch), ..options() });
        let (mut seen, mut padding, mut count) = (HashSet::new(), 0, 0);
        for batch in batches(&pipeline, 0) {
            assert_eq!(batch.step(), count);
            count += 1;
            for (id, &valid) in ids(&batch).into_iter().zip(batch.mask().bytes()) {
                if valid == 1 {
                    assert!(seen.insert(id), "sample {id} came twice");
                } else {
                    padding += 1;
                }
            }
        }
        assert_eq!((seen.len(), count), (delivered, steps), "{last_batch:?}");
        assert_eq!(padding, if last_batch == LastBatch::Pad { 6 } else { 0 });
    }
}

#[test]
fn ranks_share_the_global_batches() {
    let dataset = Dataset::folder(64);
    let whole = dataset.pipeline(&LoaderOptions { batch_size: 16, ..options() });
    let part = dataset.pipeline(&LoaderOptions { batch_size: 4, ..options() });
    let mut steps = Vec::new();
    for batch in batches(&whole, 1) {
        steps.push(ids(&batch));
    }
    for rank in 0..4 {
        let mut epoch = part.epoch(1, rank, 4, 0).unwrap();
        assert_eq!(epoch.steps(), steps.len() as u64);
        for step in &steps {
            let batch = epoch.next_batch().unwrap().unwrap();
            assert_eq!(ids(&batch), step[4 * rank as usize..][..4], "rank {rank}");
        }
    }
}

#[test]
fn an_epoch_can_start_anywhere() {
    let dataset = Dataset::folder(40);
    let pipeline = dataset.pipeline(&options());
    let mut all = Vec::new();
    for batch in batches(&pipeline, 2) {
        all.push(batch.images().bytes().to_vec());
    }
    let mut rest = pipeline.epoch(2, 0, 1, 3).unwrap();
    for expected in &all[3..] {
        assert!(rest.next_batch().unwrap().unwrap().images().bytes() == &expected[..]);
    }
    assert!(rest.next_batch().unwrap().is_none());
    assert!(rest.next_batch().unwrap().is_none(), "the end stays the end");
}

#[test]
fn kept_batches_are_never_overwritten() {
    let dataset = Dataset::folder(64);
    let pipeline = dataset.pipeline(&options());
    let mut kept = Vec::new();
    for number in 0..3 {
        for batch in batches(&pipeline, number) {
            let copy = batch.images().bytes().to_vec();
            if batch.step() % 3 == 0 {
                kept.push((batch.images(), copy));
            }
        }
    }
    drop(pipeline);
    assert_eq!(kept.len(), 9);
    assert!(kept.iter().all(|(tensor, copy)| tensor.bytes() == &copy[..]));
}

#[test]
fn keeping_every_buffer_names_the_setting() {
    let dataset = Dataset::folder(64);
    let memory = Some(2 * 2 * (1 << 20) + 4 * 130_000);
    let pipeline = dataset.pipeline(&LoaderOptions { memory, ..options() });
    let most = pipeline.config().pools.batches;
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        match epoch.next_batch() {
            Ok(batch) => kept.push(batch.expect("an error before the end")),
            Err(error) => break error,
        }
    };
    assert_eq!(kept.len(), most);
    assert!(matches!(error, Error::Config { setting: "memory", .. }), "{error}");
}

#[test]
fn memory_that_cannot_work_is_refused_with_the_number() {
    let dataset = Dataset::folder(9);
    let error = LoaderOptions { memory: Some(1000), ..options() }.check(&dataset.index()).unwrap_err();
    assert!(error.to_string().starts_with("config: memory: is 1000 bytes, must be at least "), "{error}");
}

#[test]
fn dropping_in_the_middle_ends_all_threads() {
    passes(&mut child(drops_in_the_middle));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn drops_in_the_middle() {
    let dataset = Dataset::folder(64);
    for batches in [0, 1, 3] {
        let pipeline = dataset.pipeline(&LoaderOptions { threads: Some(3), ..options() });
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        for _ in 0..batches {
            epoch.next_batch().unwrap();
        }
        // A thread that has just started may not have its name yet.
        let do_work = |name: &&String| name.starts_with("foreload-work-");
        wait_for("three threads work", threads, |names| names.iter().filter(do_work).count() >= 3);
        drop(epoch);
        drop(pipeline);
        await_no_threads();
    }
}

#[test]
fn a_new_epoch_ends_the_former_one() {
    let dataset = Dataset::folder(400);
    let pipeline = dataset.pipeline(&options());
    let mut former = pipeline.epoch(0, 0, 1, 0).unwrap();
    former.next_batch().unwrap();
    // Give the previous epoch time to fill all its buffers.
    std::thread::sleep(Duration::from_millis(300));
    let latter = epoch_bytes(&pipeline, 1);
    assert!(latter == epoch_bytes(&dataset.pipeline(&options()), 1));
    let end = loop {
        match former.poll(Duration::from_millis(10)) {
            Ok(Poll::End) => panic!("an epoch that was stopped must not look finished"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(end.to_string().contains("one epoch at a time"), "{end}");
}

#[test]
fn a_bad_sample_is_raised_with_its_name() {
    let dataset = Dataset::folder(24);
    dataset.spoil(7);
    let pipeline = dataset.pipeline(&options());
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let error = failure(&mut epoch);
    let Error::Sample { id: 7, path, source, .. } = &error else { panic!("{error}") };
    assert_eq!(**path, dataset.path(7));
    assert!(matches!(**source, Error::Decode(_)), "{error}");
    assert!(epoch.next_batch().unwrap().is_none(), "after an error the epoch is over");
}

#[test]
fn skipped_samples_get_the_same_substitutes_everywhere() {
    let dataset = Dataset::folder(64);
    for bad in [3, 17, 40] {
        dataset.spoil(bad);
    }
    let skip = LoaderOptions { on_error: OnError::Skip, ..options() };
    let reference = epoch_bytes(&dataset.pipeline(&LoaderOptions { threads: Some(1), ..skip.clone() }), 0);
    let pipeline = dataset.pipeline(&LoaderOptions { threads: Some(4), ..skip.clone() });
    assert!(epoch_bytes(&pipeline, 0) == reference);
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        assert_eq!(batch.len(), 8, "batches stay full");
        assert!(batch.mask().bytes().iter().all(|&valid| valid == 1));
        seen.extend(ids(&batch));
    }
    assert!(seen.iter().all(|id| ![3, 17, 40].contains(id)), "no bad sample is delivered");
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 61, "every good sample is");
    assert_eq!(epoch.failed(), 3);
    let failed: HashSet<_> = epoch.failures().lock().unwrap().iter().map(|failure| failure.sample).collect();
    assert_eq!(failed, HashSet::from([3, 17, 40]));

    let pipeline = dataset.pipeline(&LoaderOptions { max_errors: Some(2), ..skip });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let error = failure(&mut epoch);
    assert!(matches!(error, Error::TooManyErrors { count: 3, max_errors: 2, .. }), "{error}");
}

#[test]
fn damage_is_concealed_counted_and_named_or_refused() {
    let dataset = Dataset::folder(32);
    for sample in [4, 9, 30] {
        dataset.damage(sample);
    }
    let eval = LoaderOptions { train: Some(false), max_errors: Some(0), ..options() };
    let pipeline = dataset.pipeline(&eval);
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        assert!(batch.mask().bytes().iter().all(|&valid| valid == 1));
        seen.extend(ids(&batch));
    }
    assert_eq!(seen.len(), 32);
    assert_eq!((epoch.stats().concealed, epoch.failed()), (3, 0), "the budget is 0, and nothing failed");
    let named = epoch.concealed().samples();
    assert_eq!(named.iter().map(|of| of.sample).collect::<Vec<_>>(), [4, 9, 30]);
    for of in &named {
        assert_eq!(of.path, dataset.path(of.sample as usize));
        assert!(of.message.starts_with("concealed damage: ") && of.message.contains("near byte"), "{of:?}");
    }
    let said: Vec<_> = std::iter::from_fn(|| pipeline.index().notices().next()).collect();
    let of_damage = said.iter().filter(|said| said.message.contains("damaged=\"refuse\""));
    assert_eq!(of_damage.count(), 1, "{said:?}");

    let refusing =
        LoaderOptions { damaged: Damaged::Refuse, max_errors: Some(3), on_error: OnError::Zero, ..eval };
    let pipeline = dataset.pipeline(&refusing);
    let epoch = finished(&pipeline, 0);
    assert_eq!((epoch.stats().concealed, epoch.failed()), (0, 3));
    assert!(epoch.concealed().samples().is_empty());
}

#[test]
fn zeroed_samples_are_masked() {
    let dataset = Dataset::folder(32);
    dataset.spoil(11);
    let pipeline = dataset.pipeline(&LoaderOptions { on_error: OnError::Zero, ..options() });
    std::fs::remove_file(dataset.path(20)).unwrap();
    let mut zeroed = Vec::new();
    for batch in batches(&pipeline, 0) {
        let images = batch.images();
        let size = images.bytes().len() / batch.len();
        for (place, id) in ids(&batch).into_iter().enumerate() {
            let zero = images.bytes()[place * size..][..size].iter().all(|&byte| byte == 0);
            let valid = batch.mask().bytes()[place] == 1;
            assert_eq!(zero, !valid);
            if zero {
                zeroed.push(id);
            }
        }
    }
    assert!(zeroed.contains(&11) && zeroed.contains(&20), "{zeroed:?}");
}

#[test]
fn reads_in_any_order_change_no_byte() {
    let dataset = Dataset::folder(90);
    let reference = epoch_bytes(&dataset.pipeline(&options()), 0);
    for seed in 0..6 {
        let io = if seed % 2 == 0 { IoChoice::Auto } else { IoChoice::Pread };
        let pipeline = dataset.faulty(&LoaderOptions { io, ..options() }, FaultOptions::reordering(seed));
        assert!(epoch_bytes(&pipeline, 0) == reference, "faults of seed {seed}, {io:?}");
    }
}

#[test]
fn under_faults_every_sample_still_comes_once_and_right_or_masked() {
    let dataset = Dataset::folder(90);
    let zero = LoaderOptions {
        on_error: OnError::Zero,
        shuffle: Some(Shuffling::Off),
        last_batch: Some(LastBatch::Partial),
        ..options()
    };
    let pipeline = dataset.pipeline(&zero);
    let mut expected = Vec::new();
    for batch in batches(&pipeline, 0) {
        let size = batch.images().bytes().len() / batch.len();
        expected.extend(batch.images().bytes().chunks(size).map(<[u8]>::to_vec));
    }
    for seed in 0..6 {
        let pipeline = dataset.faulty(&zero, FaultOptions::everything(seed));
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        let (mut next, mut masked) = (0, 0);
        while let Some(batch) = epoch.next_batch().unwrap() {
            let images = batch.images();
            let size = images.bytes().len() / batch.len();
            for (place, id) in ids(&batch).into_iter().enumerate() {
                assert_eq!(id, next, "seed {seed}");
                let image = &images.bytes()[place * size..][..size];
                if batch.mask().bytes()[place] == 1 {
                    assert!(image == &expected[next as usize][..], "seed {seed}, sample {id}");
                } else {
                    masked += 1;
                    assert!(image.iter().all(|&byte| byte == 0), "seed {seed}, sample {id}");
                }
                next += 1;
            }
        }
        assert_eq!(next, 90, "seed {seed}");
        assert_eq!(masked, epoch.failed(), "seed {seed}");
    }
}

#[test]
fn when_no_substitute_is_good_the_epoch_says_so() {
    let dataset = Dataset::folder(16);
    for sample in 0..16 {
        dataset.spoil(sample);
    }
    let pipeline = dataset.pipeline(&LoaderOptions { on_error: OnError::Skip, ..options() });
    let error = pipeline.epoch(0, 0, 1, 0).unwrap().next_batch().err().expect("every sample is bad");
    assert!(error.to_string().contains("all 32 substitutes for a failed sample"), "{error}");
}

#[test]
fn a_file_too_large_for_the_arena_is_a_bad_sample() {
    let dataset = Dataset::folder(16);
    let path = dataset.path(5);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(300 << 20).unwrap();
    drop(file);
    let dataset = dataset.indexed_anew();
    let pipeline = dataset.pipeline(&LoaderOptions { on_error: OnError::Zero, ..options() });
    assert!(pipeline.config().pools.slot_bytes <= 256 << 20);
    let epoch = finished(&pipeline, 0);
    let failures = epoch.failures().lock().unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].path == path && failures[0].message.contains("config: memory"), "{:?}", failures[0]);
}

#[test]
fn settings_beyond_any_memory_are_refused() {
    let dataset = Dataset::folder(9);
    for memory in [None, Some(1 << 30)] {
        let asked = LoaderOptions { batch_size: u32::MAX, image_size: (16_384, 16_384), memory, ..options() };
        assert!(matches!(asked.check(&dataset.index()), Err(Error::Config { .. })), "{memory:?}");
    }
}
