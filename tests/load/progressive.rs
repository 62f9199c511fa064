//! Images whose size depends on the epoch: each epoch equals that of a loader with its size.

use crate::common::{Dataset, epoch_bytes};
use foreload::Mixing;
use foreload::testing::config::LoaderOptions;
use foreload::testing::pipeline::{Epoch, Pipeline};

const SIZES: [(u64, (u32, u32)); 3] = [(0, (20, 24)), (2, (32, 28)), (5, (16, 16))];

fn options() -> LoaderOptions {
    LoaderOptions {
        batch_size: 8,
        image_size: SIZES[0].1,
        threads: Some(2),
        seed: 5,
        ..LoaderOptions::default()
    }
}

fn growing() -> LoaderOptions {
    LoaderOptions { image_size_from: Some(SIZES[1..].iter().copied().collect()), ..options() }
}

fn size_in(epoch: u64) -> (u32, u32) {
    SIZES.iter().rev().find(|(first, _)| *first <= epoch).unwrap().1
}

fn rest(mut epoch: Epoch) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| epoch.next_batch().unwrap().map(|batch| batch.images().bytes().to_vec())).collect()
}

#[test]
fn every_epoch_is_that_of_its_size() {
    let dataset = Dataset::folder(45);
    let mix = Some(Mixing::from_json(r#"[{"CutMix": {"num_classes": 3}}]"#).unwrap());
    for train in [true, false] {
        let growing = dataset.pipeline(&LoaderOptions { train: Some(train), mix: mix.clone(), ..growing() });
        // Forwards as in a training, and backwards as if a user looks at an earlier epoch.
        for epoch in [0, 1, 2, 3, 5, 9, 2, 0] {
            let image_size = size_in(epoch);
            let fixed = LoaderOptions { train: Some(train), mix: mix.clone(), image_size, ..options() };
            assert!(
                epoch_bytes(&growing, epoch) == epoch_bytes(&dataset.pipeline(&fixed), epoch),
                "epoch {epoch}"
            );
        }
    }
}

#[test]
fn a_training_goes_on_with_the_size_of_its_epoch() {
    let dataset = Dataset::folder(45);
    let saving = dataset.pipeline(&growing());
    for number in [1, 2, 4, 5] {
        let whole = rest(saving.epoch(number, 0, 1, 0).unwrap());
        let mut epoch = saving.epoch(number, 0, 1, 0).unwrap();
        for _ in 0..2 {
            epoch.next_batch().unwrap();
        }
        let state = epoch.progress().state(None).unwrap();
        let resuming = dataset.pipeline(&growing());
        assert!(rest(resuming.resume(&state, 0, 1).unwrap()) == whole[2..], "epoch {number}");
    }
}

/// Delivered batches do not change when the next epoch has other buffers.
#[test]
fn batches_outlive_their_size() {
    let dataset = Dataset::folder(45);
    let pipeline: Pipeline = dataset.pipeline(&growing());
    let mut epoch = pipeline.epoch(1, 0, 1, 0).unwrap();
    let kept = epoch.next_batch().unwrap().unwrap();
    let before = kept.images().bytes().to_vec();
    let mut next = pipeline.epoch(2, 0, 1, 0).unwrap();
    let larger = next.next_batch().unwrap().unwrap();
    assert_eq!((kept.images().shape(), larger.images().shape()), (&[8, 3, 20, 24][..], &[8, 3, 32, 28][..]));
    assert!(kept.images().bytes() == before);
    drop(epoch);
    assert_eq!(1 + rest(next).len() as u64, pipeline.steps(0, 0, 1).unwrap());
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let dataset = Dataset::folder(12);
    let refused = |options: LoaderOptions| options.check(&dataset.index()).unwrap_err().to_string();
    let sizes = |sizes: [(u64, (u32, u32)); 1]| Some(sizes.into_iter().collect());
    let said = refused(LoaderOptions { image_size_from: sizes([(0, (8, 8))]), ..options() });
    assert!(said.contains("image_size_from: is {0: 8}, must be a dict that maps epochs, from 1"), "{said}");
    let said = refused(LoaderOptions { image_size_from: sizes([(3, (8, 20_000))]), ..options() });
    assert!(said.contains("image_size_from: is {3: (8, 20000)}"), "{said}");
    // The pools of every size must fit, so that a training does not fail in a later epoch.
    let large =
        LoaderOptions { image_size_from: sizes([(3, (2000, 2000))]), memory: Some(64 << 20), ..options() };
    assert!(refused(large).contains("memory: "));
}
