//! MixUp and CutMix: neither ranks, threads, resuming nor failures of other samples change a byte.

use crate::common::Dataset;
use foreload::testing::batch::{Batch, Tensor};
use foreload::testing::config::{FieldValue, LoaderOptions, OnError};
use foreload::testing::pipeline::{Epoch, Pipeline};
use foreload::testing::schedule::LastBatch;
use foreload::{DType, Mixing};

const CHOICE: &str = r#"[{"RandomChoice": {"transforms": [{"MixUp": {"alpha": 0.4, "num_classes": 3}},
    {"CutMix": {"num_classes": 3}}]}}]"#;

fn options(world: u32) -> LoaderOptions {
    LoaderOptions {
        batch_size: 16 / world,
        image_size: (24, 20),
        threads: Some(3),
        seed: 5,
        mix: Some(Mixing::from_json(CHOICE).unwrap()),
        ..LoaderOptions::default()
    }
}

/// The data of each sample in a batch: image, label, id, mask.
fn samples(pipeline: &Pipeline, batch: &Batch) -> Vec<[Vec<u8>; 4]> {
    let Some(FieldValue::Tensor(labels)) = pipeline.config().field(batch, "label") else { panic!() };
    let part = |tensor: &Tensor, at: usize| {
        let each = tensor.bytes().len() / batch.len();
        tensor.bytes()[at * each..][..each].to_vec()
    };
    let tensors = [batch.images(), labels, batch.sample_ids(), batch.mask()];
    (0..batch.len()).map(|at| std::array::from_fn(|number| part(&tensors[number], at))).collect()
}

/// The place that is mixed into `place`: the place before it in its group of four; for the first place, the last one.
fn partner(place: usize, places: usize) -> usize {
    if place.is_multiple_of(4) { places.min(place + 4) - 1 } else { place - 1 }
}

fn rest(pipeline: &Pipeline, mut epoch: Epoch) -> Vec<Vec<[Vec<u8>; 4]>> {
    std::iter::from_fn(|| epoch.next_batch().unwrap().map(|batch| samples(pipeline, &batch))).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|raw| f32::from_ne_bytes(*raw)).collect()
}

fn class(label: &[u8]) -> usize {
    i64::from_ne_bytes(label.try_into().unwrap()) as usize
}

#[test]
fn neither_ranks_nor_threads_change_what_is_mixed() {
    let dataset = Dataset::folder(61);
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Partial] {
        let asked = |world, threads| LoaderOptions {
            last_batch: Some(last),
            threads: Some(threads),
            ..options(world)
        };
        let one = dataset.pipeline(&asked(1, 1));
        let whole = rest(&one, one.epoch(2, 0, 1, 0).unwrap());
        for (world, threads) in [(1, 3), (2, 2), (4, 1)] {
            let pipeline = dataset.pipeline(&asked(world, threads));
            let mut ranks: Vec<_> =
                (0..world).map(|rank| rest(&pipeline, pipeline.epoch(2, rank, world, 0).unwrap())).collect();
            for (step, global) in whole.iter().enumerate() {
                let parts: Vec<_> =
                    ranks.iter_mut().flat_map(|rank| std::mem::take(&mut rank[step])).collect();
                assert!(parts == *global, "{last:?}, {world} ranks, {threads} threads: step {step} differs");
            }
        }
    }
}

#[test]
fn a_mixed_epoch_goes_on_where_it_was_left_and_nowhere_else() {
    let dataset = Dataset::folder(45);
    let (saving, resuming) = (dataset.pipeline(&options(1)), dataset.pipeline(&options(1)));
    let whole = rest(&resuming, resuming.epoch(0, 0, 1, 0).unwrap());
    let mut epoch = saving.epoch(0, 0, 1, 0).unwrap();
    for step in 0..=whole.len() {
        let state = epoch.progress().state(None).unwrap();
        assert!(
            rest(&resuming, resuming.resume(&state, 0, 1).unwrap()) == whole[step..],
            "after {step} steps"
        );
        let _ = epoch.next_batch().unwrap();
    }
    let other = r#"[{"MixUp": {"alpha": 0.4, "num_classes": 3}}]"#;
    for mix in [None, Some(Mixing::from_json(other).unwrap())] {
        let other = dataset.pipeline(&LoaderOptions { mix, ..options(1) });
        let said = other.check(&saving.state(0, 0, 1).unwrap()).unwrap_err().to_string();
        assert!(said.contains("mix was [{\"RandomChoice\":"), "{said}");
    }
}

/// The draws for images do not depend on mixing, so the unmixed images are known.
#[test]
fn labels_are_shares_of_both_and_who_is_left_over_stays_alone() {
    let dataset = Dataset::folder(29);
    let asked = LoaderOptions { last_batch: Some(LastBatch::Partial), ..options(1) };
    let (mixed, plain) =
        (dataset.pipeline(&asked), dataset.pipeline(&LoaderOptions { mix: None, ..asked.clone() }));
    let (mixes, plains) =
        (rest(&mixed, mixed.epoch(1, 0, 1, 0).unwrap()), rest(&plain, plain.epoch(1, 0, 1, 0).unwrap()));
    let mut changed = 0;
    for (mix, plain) in mixes.iter().zip(&plains) {
        for at in 0..mix.len() {
            let ([image, label, id, _], partner) = (&mix[at], partner(at, mix.len()));
            assert_eq!(*id, plain[at][2]);
            let label = floats(label);
            assert!((label.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            let own = class(&plain[at][1]);
            if partner == at {
                assert_eq!((label[own], image), (1.0, &plain[at][0]), "a last sample alone has no partner");
                continue;
            }
            let other = class(&plain[partner][1]);
            assert!(own == other || (label[own] + label[other] - 1.0).abs() < 1e-6);
            changed += usize::from(*image != plain[at][0]);
        }
    }
    assert!(changed >= 20, "{changed} of 28 images were mixed");
}

/// The zeros of a failed sample are not mixed into other images; its neighbours are mixed with each other. A substitute
/// is mixed as the sample that it is.
#[test]
fn a_failure_is_left_out() {
    let mut dataset = Dataset::folder(48);
    for sample in [3, 17, 30] {
        dataset.spoil(sample);
    }
    dataset = dataset.indexed_anew();
    let asked = |on_error, mix: bool| {
        let usual = options(1);
        LoaderOptions { on_error, mix: usual.mix.clone().filter(|_| mix), ..usual }
    };
    for on_error in [OnError::Zero, OnError::Skip] {
        let (mixed, plain) =
            (dataset.pipeline(&asked(on_error, true)), dataset.pipeline(&asked(on_error, false)));
        let (mixes, plains) =
            (rest(&mixed, mixed.epoch(0, 0, 1, 0).unwrap()), rest(&plain, plain.epoch(0, 0, 1, 0).unwrap()));
        let (mut failed, mut together) = (0, 0);
        for (mix, plain) in mixes.concat().chunks(4).zip(plains.concat().chunks(4)) {
            let counting: Vec<_> = (0..mix.len()).filter(|&at| mix[at][3] != [0]).collect();
            failed += mix.len() - counting.len();
            for at in 0..mix.len() {
                assert_eq!(mix[at][2], plain[at][2], "ids, of substitutes too");
                let Some(nth) = counting.iter().position(|&counts| counts == at) else {
                    assert_eq!(mix[at][0], plain[at][0], "{on_error:?}: zeros were mixed");
                    continue;
                };
                let before = counting[(nth + counting.len() - 1) % counting.len()];
                let [own, other] = [at, before].map(|at| class(&plain[at][1]));
                let label = floats(&mix[at][1]);
                assert!(own == other || (label[own] + label[other] - 1.0).abs() < 1e-6, "{on_error:?}");
                together += usize::from(mix[at][0] != plain[at][0]);
            }
        }
        assert_eq!(failed, if on_error == OnError::Zero { 3 } else { 0 });
        assert!(together >= 25);
    }
}

#[test]
fn what_cannot_be_mixed_is_refused_with_what_to_do() {
    let dataset = Dataset::folder(12);
    let index = dataset.index();
    let list = |list: &str| Some(Mixing::from_json(list).unwrap());
    let refused = |options: LoaderOptions| options.check(&index).unwrap_err().to_string();
    let small = r#"[{"MixUp": {"num_classes": 2}}]"#;
    for (options, said) in [
        (
            LoaderOptions { batch_size: 6, ..options(1) },
            "batch_size: is 6, must be a multiple of 4 with mix=",
        ),
        (LoaderOptions { dtype: DType::U8, ..options(1) }, "mix: needs normalised images"),
        (LoaderOptions { decoded: false, ..options(1) }, "mix: needs decoded images"),
        (LoaderOptions { mix: list(small), ..options(1) }, "num_classes: is 2, but sample 8 of"),
    ] {
        let error = refused(options);
        assert!(error.contains(said), "{error}");
    }
}
