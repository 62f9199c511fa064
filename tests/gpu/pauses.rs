//! A backend that fails to decode is skipped for backoff periods that grow, and is used again when it works.

use crate::common::Dataset;
use crate::pipeline::{epoch, options, pipeline};
use crate::stand_in;
use foreload::testing::config::{AllowedBackends, CpuDecode, LoaderOptions, OnError};
use foreload::testing::pipeline::release_gpus;

/// A whole training continues without the engine, warns once, and uses the engine again when it works.
#[test]
fn a_training_goes_on_while_its_engine_does_not() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { batch_size: 16, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
    let by_backend = |number| {
        let stats = epoch(&pipeline, number).1;
        (stats.gpu.decoded_hardware, stats.decoded_cpu())
    };
    assert_eq!(by_backend(0), (16, 0));
    nvjpeg.knobs("broken-nvjpegDecodeBatchedEx");
    let before = nvjpeg.calls("nvjpegDecodeBatchedEx");
    assert!((1..20).all(|number| by_backend(number) == (0, 16)));
    assert_eq!(
        nvjpeg.calls("nvjpegDecodeBatchedEx") - before,
        6 * 31,
        "the 1st, 2nd, 3rd, 5th, 8th and 13th"
    );
    let said = pipeline.index().notices().take();
    let paused: Vec<_> = said.iter().filter(|said| said.contains("it is paused and tried again")).collect();
    assert_eq!(paused.len(), 1, "{said:?}");
    assert!(paused[0].contains("nvjpegDecodeBatchedEx") && paused[0].contains("nvidia-smi"), "{said:?}");
    nvjpeg.knobs("");
    assert!((20..24).any(|number| by_backend(number) == (16, 0)), "the pause of 8 ends with the 21st");
}

/// If batches are large, the CUDA kernels take over the engine's images, not a single CPU thread.
#[test]
fn the_kernels_have_the_images_of_an_engine_that_is_left_alone() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    let asked = LoaderOptions { batch_size: 64, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
    epoch(&pipeline, 0);
    nvjpeg.knobs("broken-nvjpegDecodeBatchedEx");
    let by_kernels = |number| {
        let stats = epoch(&pipeline, number).1;
        assert_eq!(stats.gpu.decoded_cuda_batched + stats.decoded_cpu(), 64, "epoch {number}");
        stats.gpu.decoded_cuda_batched == 64
    };
    // The number of images that are left for the kernels is counted over many batches.
    let mut in_a_row = 0;
    let taken_over = (1..300).any(|number| {
        in_a_row = if by_kernels(number) { in_a_row + 1 } else { 0 };
        number > 22 && in_a_row >= 4
    });
    assert!(taken_over, "the kernels never had all images of four batches in a row");
}

/// A backend that cannot be made is tried again less and less often, because each attempt takes long.
#[test]
fn a_backend_that_lacks_memory_is_made_less_and_less_often() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { batch_size: 16, ..options() };
    // The first loader probes the GPU and keeps no decoder; the next one finds no memory for any decoder.
    let first = pipeline(&dataset, &asked, AllowedBackends::Cpu);
    epoch(&first, 0);
    nvjpeg.knobs("no-memory-nvjpegCreateExV2");
    let other = pipeline(&dataset, &asked, AllowedBackends::Hardware);
    epoch(&other, 0);
    let before = nvjpeg.calls("nvjpegCreateExV2");
    (1..60).for_each(|number| assert_eq!(epoch(&other, number).1.decoded_cpu(), 16));
    let tries = nvjpeg.calls("nvjpegCreateExV2") - before;
    assert!((3..=9).contains(&tries), "{tries}");
}

/// Images that no other decoder may decode are tried again without a pause: each image in a pause would be an error.
#[test]
fn where_the_cpu_may_not_help_there_is_no_pause() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let asked =
        LoaderOptions { batch_size: 16, cpu_decode: CpuDecode::Never, on_error: OnError::Zero, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::Hardware);
    let decoded = |number| epoch(&pipeline, number).1.gpu.decoded_hardware;
    assert_eq!(decoded(0), 16);
    nvjpeg.knobs("broken-nvjpegDecodeBatchedEx");
    assert!((1..10).all(|number| decoded(number) == 0));
    nvjpeg.knobs("");
    assert_eq!(decoded(10), 16);
}

/// A shortage of memory while the first loader probes the GPU must not cost later loaders their engine.
#[test]
fn a_failed_trial_of_a_backend_is_reported_and_repeated_by_the_next_loader() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { batch_size: 16, ..options() };
    let by_engine = |knobs: &str| {
        nvjpeg.knobs(knobs);
        let next = pipeline(&dataset, &asked, AllowedBackends::All);
        let decoded = epoch(&next, 0).1.gpu.decoded_hardware;
        (decoded, next.index().notices().take())
    };
    for knobs in ["no-memory-nvjpegDecodeBatchedEx", "broken-nvjpegDecodeBatchedEx"] {
        release_gpus();
        let (decoded, said) = by_engine(knobs);
        assert_eq!((decoded, said.len()), (0, 1), "{said:?}");
        assert!(
            said[0].contains("hardware) failed when it was tried")
                && said[0].contains("nvjpegDecodeBatchedEx"),
            "{said:?}"
        );
        assert_eq!(by_engine(""), (16, Vec::new()));
        let made = nvjpeg.calls("nvjpegCreateExV2");
        assert_eq!(by_engine(""), (16, Vec::new()));
        assert_eq!(nvjpeg.calls("nvjpegCreateExV2"), made, "what is known is not tried again");
    }
}
