//! Images that a decoder says it decoded and did not: memory that is used again must never pass for them.

use crate::common::Dataset;
use crate::pipeline::{epoch, mean_difference, on_cpu, options, pipeline};
use crate::stand_in;
use foreload::augment::DType;
use foreload::config::{CpuDecode, LoaderOptions, OnError, Rungs};

#[test]
fn an_image_that_the_engine_skipped_is_the_next_decoders() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let dataset = Dataset::folder(64);
    let asked = LoaderOptions { dtype: DType::U8, ..options() };
    let on_cpu = dataset.pipeline(&on_cpu(&asked));
    for rungs in [Rungs::All, Rungs::Hardware] {
        nvjpeg.reset();
        let pipeline = pipeline(&dataset, &asked, rungs);
        let (_, stats) = epoch(&pipeline, 0);
        assert_eq!(stats.gpu.decoded_again, 0, "{rungs:?}");
        // The engine was found to be sound when it was tried; since then it has become what it is.
        nvjpeg.knobs("skip");
        for number in 1..4 {
            let (gpu, stats) = epoch(&pipeline, number);
            let (cpu, _) = epoch(&on_cpu, number);
            let again = stats.gpu.decoded_again;
            assert!(again >= 8, "{rungs:?}: {again} in 8 batches");
            let by_cpu = if rungs == Rungs::Hardware { again } else { 0 };
            assert_eq!(stats.decoded_cpu(), by_cpu, "{rungs:?}: {stats:?}");
            assert_eq!(stats.gpu.decoded_hardware + stats.gpu.decoded_cuda, 64 - by_cpu, "{stats:?}");
            for ((gpu, _), (cpu, _)) in gpu.iter().zip(&cpu) {
                for (place, (gpu, cpu)) in gpu.chunks(3 * 32 * 32).zip(cpu.chunks(3 * 32 * 32)).enumerate() {
                    let difference = mean_difference(gpu, cpu);
                    assert!(difference <= 2.0, "{rungs:?}, image {place}: {difference} grey levels");
                }
            }
        }
        let said = pipeline.index().notices().take().join("\n");
        assert!(said.contains("reports success for images that it has not decoded"), "{said}");
    }
}

/// Where nothing else may decode, the same decoder has another try, and then it is an error, never an older image.
#[test]
fn what_nobody_else_may_decode_is_an_error() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { cpu_decode: CpuDecode::Never, on_error: OnError::Zero, ..options() };
    let pipeline = pipeline(&dataset, &asked, Rungs::Hardware);
    epoch(&pipeline, 0);
    nvjpeg.knobs("skip");
    let mut running = pipeline.epoch(1, 0, 1, 0).unwrap();
    while running.next_batch().unwrap().is_some() {}
    let again = running.stats().gpu.decoded_again;
    assert_eq!((running.failed(), again), (2, 4), "one of each batch, twice");
}
