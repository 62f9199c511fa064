//! Which decoder gets which images, and the cost of that, on stand-ins with simulated costs.

use crate::common::{Dataset, finished, png};
use crate::pipeline::{epoch, options, pipeline};
use crate::stand_in::{self, Cuda, Nvjpeg};
use foreload::testing::config::{AllowedBackends, CpuDecode, LANES, LoaderOptions, OnError};
use foreload::testing::pipeline::EpochStats;
use libjpeg_reference::Encoding;

/// The costs of nvJPEG's backends on an imaginary machine: the host's Huffman codes, and the device.
const COSTS: &str = "virtual,huffman:2500,engine:100,kernels:100";

/// The number of images by decoder: the engine, large batches, single images, the CPU.
fn by_backend(stats: &EpochStats) -> [u64; 4] {
    let gpu = &stats.gpu;
    [gpu.decoded_hardware, gpu.decoded_cuda_batched, gpu.decoded_cuda, stats.decoded_cpu()]
}

#[test]
fn no_image_is_half_decoded_on_a_lane() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(128);
    for (batch_size, knobs, cpu_decode, expected) in [
        (32, "", CpuDecode::Fallback, [128, 0, 0, 0]),
        (32, "no-hardware", CpuDecode::Fallback, [0, 0, 0, 128]),
        (64, "no-hardware", CpuDecode::Fallback, [0, 128, 0, 0]),
        (64, "no-hardware", CpuDecode::Never, [0, 128, 0, 0]),
        // Other decoders are not allowed here, so nvJPEG decodes with the host's help.
        (32, "no-hardware", CpuDecode::Never, [0, 0, 128, 0]),
    ] {
        // Forget the abilities that another test has probed: they are those of another GPU.
        foreload::testing::pipeline::release_gpus();
        nvjpeg.reset();
        nvjpeg.knobs(knobs);
        let asked = LoaderOptions { batch_size, cpu_decode, ..options() };
        let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
        nvjpeg.costs(COSTS);
        let start = pipeline.epoch(9, 0, 1, 0).unwrap();
        drop(start);
        let before = nvjpeg.spent("huffman");
        let (_, stats) = epoch(&pipeline, 0);
        let what = format!("batches of {batch_size}, {knobs}, {cpu_decode:?}");
        assert_eq!(by_backend(&stats), expected, "{what}");
        let by_host = nvjpeg.spent("huffman") - before;
        assert_eq!(by_host > 0, expected[2] > 0, "{what}: {by_host} µs");
        let said = pipeline.index().notices().take().join("\n");
        assert_eq!(said.contains("raise batch_size"), expected[3] > 0, "{what}: {said}");
    }
    foreload::testing::pipeline::release_gpus();
}

/// A dataset in which every eighth image is gray, progressive, CMYK or a PNG.
fn mixed(samples: usize) -> Dataset {
    let dataset = Dataset::folder(samples);
    for sample in (0..samples).step_by(8) {
        let kind = sample / 8 % 4;
        let encoding = Encoding {
            width: 70,
            height: 60,
            channels: [1, 3, 4, 3][kind],
            factors: (1, 1),
            quality: 85,
            restart_interval: 0,
            optimised: false,
            progressive: kind == 1,
        };
        let pixels = vec![100; 70 * 60 * encoding.channels];
        let file = if kind == 3 { png(7) } else { libjpeg_reference::encode(&pixels, &encoding) };
        std::fs::write(dataset.path(sample), file).unwrap();
    }
    dataset.indexed_anew()
}

/// Runs an epoch. Returns its cost on lanes and device in microseconds, the number of images by decoder, and the number
/// of waits in which the host may have spun.
fn account(cuda: &Cuda, nvjpeg: &Nvjpeg, dataset: &Dataset, batch_size: u32) -> (u64, [u64; 4], u64) {
    let asked = LoaderOptions { batch_size, ..options() };
    let pipeline = pipeline(dataset, &asked, AllowedBackends::All);
    // In these epochs buffers grow to their sizes, and rates are measured.
    (0..3).for_each(|number| drop(epoch(&pipeline, number)));
    let spent = || ["huffman", "engine", "kernels"].map(|name| nvjpeg.spent(name)).iter().sum::<u64>();
    let (before, spins) = (spent(), cuda.count("spinning waits"));
    let running = finished(&pipeline, 3);
    (spent() - before, by_backend(&running.stats()), cuda.count("spinning waits") - spins)
}

#[test]
fn a_mixed_batch_costs_no_more_than_a_plain_one() {
    let (cuda, nvjpeg) = stand_in::both();
    let (plain, mixed) = (Dataset::folder(256), mixed(256));
    for (knobs, batch_size) in [("", 32), ("", 128), ("no-hardware", 128)] {
        foreload::testing::pipeline::release_gpus();
        nvjpeg.reset();
        nvjpeg.knobs(knobs);
        nvjpeg.costs(COSTS);
        let (of_plain, _, spins) = account(&cuda, &nvjpeg, &plain, batch_size);
        assert_eq!(spins, 0, "{knobs}, batches of {batch_size}: plain");
        let (of_mixed, by_backend, spins) = account(&cuda, &nvjpeg, &mixed, batch_size);
        assert_eq!(spins, 0, "{knobs}, batches of {batch_size}: mixed");
        assert_eq!(by_backend.iter().sum::<u64>(), 256);
        let what =
            format!("{knobs}, batches of {batch_size}: {of_mixed} µs, plain {of_plain}, {by_backend:?}");
        assert!(of_mixed * 10 <= of_plain * 11, "{what}");
        println!("{what}");
    }
    foreload::testing::pipeline::release_gpus();
}

/// Even if the kernels are faster: while the engine decodes, they would delay it.
#[test]
fn the_engine_has_all_that_it_can_decode_in_calls_of_the_best_size() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(512);
    for (batch_size, calls) in [(64, 8), (128, 4 * 2), (256, 2 * 4)] {
        let asked = LoaderOptions { batch_size, ..options() };
        let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
        nvjpeg.costs("engine:500,kernels:50");
        // The first batches probe what the engine can do.
        drop(epoch(&pipeline, 0));
        let before = nvjpeg.calls("nvjpegDecodeBatchedEx");
        for number in 1..4 {
            assert_eq!(by_backend(&epoch(&pipeline, number).1), [512, 0, 0, 0], "epoch {number}");
        }
        assert_eq!(nvjpeg.calls("nvjpegDecodeBatchedEx") - before, 3 * calls, "batches of {batch_size}");
    }
    foreload::testing::pipeline::release_gpus();
}

#[test]
fn an_image_that_was_refused_twice_is_not_tried_there_again() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    dataset.damage(9);
    let asked = LoaderOptions { train: Some(false), max_errors: Some(0), batch_size: 16, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
    let mut calls = Vec::new();
    for number in 0..4 {
        let before = nvjpeg.calls("nvjpegDecodeBatchedEx");
        let (_, stats) = epoch(&pipeline, number);
        assert_eq!((stats.concealed, by_backend(&stats)), (1, [15, 0, 0, 1]));
        calls.push(nvjpeg.calls("nvjpegDecodeBatchedEx") - before);
    }
    assert!(calls[1] > 1 && calls[1] <= 1 + 2 * 4, "{calls:?}: halves, and theirs");
    assert_eq!(calls[2..], [1, 1], "{calls:?}: all others in one call");
    let notices = pipeline.index().notices();
    let said: String = std::iter::from_fn(|| notices.next()).map(|notice| notice.message).collect();
    assert!(said.contains("the GPU's decoder (hardware) refused sample"), "{said}");
}

/// After a shortage (for instance of memory) is over, images go to their decoder again at once.
#[test]
fn a_decoder_that_lacked_memory_works_as_soon_as_there_is_some() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    for (call, nth) in [
        // Three handles are made when the GPU is probed; then two for each lane.
        ("nvjpegCreateExV2", 4),
        ("nvjpegDecodeBatchedEx", 1),
    ] {
        foreload::testing::pipeline::release_gpus();
        nvjpeg.reset();
        let asked = LoaderOptions { batch_size: 16, ..options() };
        let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
        if nth == 1 {
            epoch(&pipeline, 0);
        }
        // All images of a batch fail twice, down to single images, often enough that every sample is given up. A
        // decoder that cannot be made at the start is tried again with each batch.
        let failing = if nth == 1 { 2 * 31 } else { 2 * LANES as u64 + 2 };
        (nth..nth + failing).for_each(|nth| nvjpeg.fail(call, nth, 5));
        for number in 1..3 {
            assert_eq!(by_backend(&epoch(&pipeline, number).1), [0, 0, 0, 16], "{call}, epoch {number}");
        }
        let said = pipeline.index().notices().take().join("\n");
        assert!(
            said.contains(&format!("{call}: no memory")) && said.contains("lower device_memory"),
            "{said}"
        );
        for number in 3..5 {
            assert_eq!(by_backend(&epoch(&pipeline, number).1), [16, 0, 0, 0], "{call}, epoch {number}");
        }
    }
    foreload::testing::pipeline::release_gpus();
}

/// A user who asks for one decoder measures only that decoder.
#[test]
fn a_fixed_decoder_gets_no_help() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(128);
    for backends in [AllowedBackends::All, AllowedBackends::Hardware] {
        let asked = LoaderOptions { cpu_decode: CpuDecode::Auto, ..options() };
        let pipeline = pipeline(&dataset, &asked, backends);
        nvjpeg.costs("engine:2000");
        let helped: u64 = (0..3).map(|number| by_backend(&epoch(&pipeline, number).1)[3]).sum();
        println!("{backends:?}: the CPU decoded {helped} of 384");
        assert!(backends == AllowedBackends::All || helped == 0, "{backends:?}: {helped}");
    }
    foreload::testing::pipeline::release_gpus();
}

/// If the CPU may not decode, a refused image keeps the errors of its decoders, and the CPU never gets it.
#[test]
fn errors_of_decoders_are_reported_in_every_epoch() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(2);
    dataset.damage(0);
    // The same few samples are in many batches: workers see some before a lane's decoder has refused them, and lanes
    // see them after.
    let asked = LoaderOptions {
        cpu_decode: CpuDecode::Never,
        on_error: OnError::Zero,
        max_errors: Some(1000),
        batch_size: 4,
        epoch_size: Some(128),
        ..options()
    };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
    for number in 0..4 {
        let running = finished(&pipeline, number);
        assert_eq!(running.stats().decoded_cpu(), 0, "epoch {number}");
        assert!(running.failed() > 30, "epoch {number}: {}", running.failed());
        for failure in running.failures().lock().unwrap().iter() {
            let said = &failure.message;
            assert!(said.contains("the JPEG is damaged (status 3)"), "epoch {number}: {said}");
        }
    }
    assert!(nvjpeg.calls("nvjpegDecodeBatchedEx") > 0);
    foreload::testing::pipeline::release_gpus();
}
