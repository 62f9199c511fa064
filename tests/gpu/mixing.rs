//! MixUp and CutMix on a GPU: one more launch per view, with the CPU's bits.

use crate::common::Dataset;
use crate::pipeline::{on_cpu, pipeline, small};
use crate::stand_in;
use crate::views::asked;
use foreload::Mixing;
use foreload::testing::augment::MemoryFormat;
use foreload::testing::batch::{Batch, Place};
use foreload::testing::config::{AllowedBackends, FieldValue, LoaderOptions, OnError};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::schedule::LastBatch;

/// Views of two sizes and types, or of one size.
const SIZES: &str = r#"[
    {"Views": {"n": 2, "transforms": [{"RandomResizedCrop": {"size": [33, 21]}}, {"ToDtype": {"dtype": "float16"}},
        {"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]}},
    {"Views": {"n": 1, "transforms": [{"RandomResizedCrop": {"size": 15}}, {"ToDtype": {"dtype": "bfloat16"}}]}}]"#;
const SAME: &str = r#"[{"RandomResizedCrop": {"size": [33, 21]}}, {"ToDtype": {"dtype": "float32"}},
    {"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]"#;

const UP: &str = r#"[{"MixUp": {"alpha": 0.4, "num_classes": 3}}]"#;
const CHOICE: &str = r#"[{"RandomChoice": {"transforms": [{"MixUp": {}}, {"CutMix": {}}]}}]"#;

fn mixed(transforms: &str, mix: &str) -> LoaderOptions {
    LoaderOptions { mix: Some(Mixing::from_json(mix).unwrap()), ..asked(transforms) }
}

/// All data of a batch: the tensor of each view, labels as they are handed over, ids, mask.
fn tensors(pipeline: &Pipeline, batch: &Batch) -> Vec<Vec<u8>> {
    let Some(FieldValue::Tensor(labels)) = pipeline.config().field(batch, "label") else { panic!() };
    let views = (0..batch.num_images()).map(|number| batch.images_of(number));
    let all = views.chain([labels, batch.sample_ids(), batch.mask()]);
    all.map(|tensor| tensor.read().unwrap().into_owned()).collect()
}

fn epoch(pipeline: &Pipeline, place: Place) -> Vec<Vec<Vec<u8>>> {
    let mut running = pipeline.epoch(1, 0, 1, 0).unwrap();
    let next = || {
        let batch = running.next_batch().unwrap()?;
        assert_eq!(batch.images().place(), place);
        Some(tensors(pipeline, &batch))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn mixed_images_are_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(29);
    dataset.spoil(7);
    for (transforms, mix) in [(SIZES, UP), (SAME, CHOICE)] {
        for (memory_format, on_error, last, repeats) in [
            (MemoryFormat::Nchw, OnError::Zero, LastBatch::Partial, 1),
            (MemoryFormat::Nhwc, OnError::Skip, LastBatch::Pad, 1),
            // Places that repeat a sample share its bytes until they are decoded.
            (MemoryFormat::Nchw, OnError::Skip, LastBatch::Partial, 2),
        ] {
            let last_batch = Some(last);
            let asked =
                LoaderOptions { memory_format, on_error, last_batch, repeats, ..mixed(transforms, mix) };
            let gpu = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), Place::Cuda(0));
            let cpu = epoch(&dataset.pipeline(&on_cpu(&asked)), Place::Host);
            assert!(gpu == cpu, "{mix} {memory_format:?} {on_error:?} {repeats}");
            let plain = LoaderOptions { mix: None, ..asked };
            let plain = epoch(&dataset.pipeline(&on_cpu(&plain)), Place::Host);
            assert!(plain[0][0] != cpu[0][0], "no mixing, no test");
        }
    }
}

/// Images of one mixing group may be in several sub-batches, so only the last sub-batch mixes.
#[test]
fn a_batch_that_does_not_fit_is_mixed_at_last() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(48);
    let asked = LoaderOptions { batch_size: 24, ..mixed(SAME, CHOICE) };
    let expected = epoch(&dataset.pipeline(&on_cpu(&asked)), Place::Host);
    let small = small(&dataset, &asked, AllowedBackends::Cpu, 64 << 10);
    let before = cuda.calls("cuLaunchKernel");
    for _ in 0..3 {
        assert!(epoch(&small, Place::Cuda(0)) == expected);
    }
    let launches = cuda.calls("cuLaunchKernel") - before;
    assert!(launches > 3 * 2 * 2, "{launches} launches are no pieces");
}

#[test]
fn a_view_takes_one_more_launch() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(24);
    let launches = |asked: &LoaderOptions| {
        let before = cuda.calls("cuLaunchKernel");
        epoch(&pipeline(&dataset, asked, AllowedBackends::Cpu), Place::Cuda(0));
        cuda.calls("cuLaunchKernel") - before
    };
    assert_eq!(launches(&mixed(SIZES, UP)) - launches(&asked(SIZES)), 3 * 3, "of three batches");
}
