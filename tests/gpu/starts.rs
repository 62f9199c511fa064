//! The cost of starting and ending a loader, computed from the costs of the calls on a real machine: a process pays for
//! the GPU only once.

use crate::common::{Dataset, await_no_threads, passes, wait_for};
use crate::counting;
use crate::pipeline::{drive, options, pipeline};
use crate::stand_in::{self, Cuda, Nvjpeg};
use foreload::testing::config::{AllowedBackends, LANES, LoaderOptions};
use foreload::testing::decode::nvjpeg::NvJpegBackend;
use foreload::testing::pipeline::release_gpus;

/// The duration of slow nvJPEG calls in microseconds: estimates, on the high side.
const COSTS: [(&str, u64); 6] = [
    ("nvjpegCreateExV2", 200_000),
    ("nvjpegDestroy", 50_000),
    ("nvjpegJpegStateCreate", 5_000),
    ("nvjpegJpegStateDestroy", 2_000),
    ("nvjpegDecoderCreate", 2_000),
    ("nvjpegDecoderStateCreate", 2_000),
];

/// The most that a loader's start or end may cost, in microseconds, without the creation of new decoders.
const START: u64 = 20_000;
const END: u64 = 200_000;

/// The simulated cost so far, in microseconds.
fn spent(cuda: &Cuda, nvjpeg: &Nvjpeg) -> u64 {
    let of_nvjpeg: u64 = COSTS.iter().map(|(name, cost)| nvjpeg.calls(name) * cost).sum();
    cuda.count("cost") + of_nvjpeg
}

/// Waits until this process has at most `most` threads; fails if that does not happen.
fn await_threads(most: usize) {
    wait_for("threads have ended", || counting::threads("").len(), |&threads| threads <= most);
}

#[test]
fn a_process_pays_for_its_gpu_once() {
    passes(&mut crate::common::child(starts_loaders));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn starts_loaders() {
    let (cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    // This loader stays open, as the loader of a training does while its evaluation has another.
    let first = pipeline(&dataset, &options(), AllowedBackends::All);
    drive(&first, || {}).unwrap();
    assert!(spent(&cuda, &nvjpeg) > 400_000, "the first one pays");
    // The decoder of the probe, and for each lane one decoder for each of the two backends for batches of so few
    // images.
    let made = (NvJpegBackend::ALL.len() + 2 * LANES) as u64;
    assert_eq!(nvjpeg.calls("nvjpegCreateExV2"), made);
    let mut threads = usize::MAX;
    for number in 0..12 {
        let before = spent(&cuda, &nvjpeg);
        let next = pipeline(&dataset, &options(), AllowedBackends::All);
        drive(&next, || {}).unwrap();
        let start = spent(&cuda, &nvjpeg) - before;
        assert!(start <= START, "loader {number}: {start} µs");
        let before = spent(&cuda, &nvjpeg);
        drop(next);
        let end = spent(&cuda, &nvjpeg) - before;
        assert!(end <= END, "the end of loader {number}: {end} µs");
        // The libraries' threads of each cached decoder stay; the threads of the loader end.
        await_threads(threads);
        threads = counting::threads("").len();
    }
    assert_eq!(nvjpeg.calls("nvjpegCreateExV2"), made);
    drop(first);
    await_no_threads();
    assert!(nvjpeg.calls("nvjpegCreateExV2") > nvjpeg.calls("nvjpegDestroy"), "decoders are kept");
    release_gpus();
    assert_eq!((nvjpeg.objects(), cuda.leaks()), (0, Vec::new()), "and given back");
}

#[test]
fn backends_that_nobody_needs_are_not_made() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    drive(&pipeline(&dataset, &options(), AllowedBackends::Cpu), || {}).unwrap();
    // The probe's decoders were destroyed, and none was made since.
    let tried = nvjpeg.calls("nvjpegCreateExV2");
    assert_eq!(nvjpeg.calls("nvjpegDestroy"), tried);
    drive(&pipeline(&dataset, &options(), AllowedBackends::Hardware), || {}).unwrap();
    assert_eq!(nvjpeg.calls("nvjpegCreateExV2") - tried, LANES as u64, "handles");
}

/// The loader that still runs keeps its decoders, and still reports what they can do.
#[test]
fn a_loader_that_lives_on_knows_its_decoders() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let pipeline = pipeline(&dataset, &options(), AllowedBackends::All);
    assert!(pipeline.decoders().is_empty());
    drive(&pipeline, || {}).unwrap();
    let before = pipeline.decoders().to_vec();
    let names =
        ["cuda_packed", "cuda_indexed"].into_iter().chain(NvJpegBackend::ALL.map(NvJpegBackend::name));
    assert!(before.iter().map(|(name, _)| *name).eq(names), "{before:?}");
    assert!(before[2..].iter().all(|(_, can)| can.contains("4:2:0: ")), "{before:?}");
    release_gpus();
    drive(&pipeline, || {}).unwrap();
    assert_eq!(pipeline.decoders(), before);
}

/// The functions that create nvJPEG objects for a decoder, whatever images it decodes later.
const MADE: [&str; 6] = [
    "nvjpegCreateExV2",
    "nvjpegJpegStateCreate",
    "nvjpegDecoderCreate",
    "nvjpegDecoderStateCreate",
    "nvjpegJpegStreamCreate",
    "nvjpegDecodeBatchedPreAllocate",
];

/// No decoder is made after the first batch: not for lanes that start to work later, not for an image that goes to the
/// last backend, and not for two loaders that run at the same time.
#[test]
fn no_decoder_is_made_after_the_first_batch() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(320);
    let mut large = Vec::new();
    let pixels = vec![77; 3 * 1100 * 1000];
    jpeg_encoder::Encoder::new(&mut large, 90)
        .encode(&pixels, 1100, 1000, jpeg_encoder::ColorType::Rgb)
        .unwrap();
    std::fs::write(dataset.path(300), large).unwrap();
    let dataset = dataset.indexed_anew();
    let asked = |batch_size| LoaderOptions { batch_size, train: Some(false), ..options() };
    let made = || MADE.map(|name| nvjpeg.calls(name));
    // The second loader's batches are too small for the batched kernels, so images that its engine refuses go to the
    // last backend.
    let [first, second] =
        [64, 32].map(|batch_size| pipeline(&dataset, &asked(batch_size), AllowedBackends::All));
    // During a single batch only one lane works.
    assert!(first.epoch(0, 0, 1, 4).unwrap().next_batch().unwrap().is_some());
    let before = made();
    assert!(before.iter().all(|calls| *calls > 0), "{before:?}");
    // Since its probe, the engine has begun to refuse more images, so that the last backend gets the large image.
    nvjpeg.knobs("refuse-444,refuse-420");
    let mut by_last = 0;
    for number in 1..4 {
        let mut epochs = [&first, &second].map(|pipeline| pipeline.epoch(number, 0, 1, 0).unwrap());
        for _ in 0..5 {
            let [first, second] = &mut epochs;
            assert!(first.next_batch().unwrap().is_some());
            (0..2).for_each(|_| assert!(second.next_batch().unwrap().is_some()));
        }
        by_last += epochs[1].stats().gpu.decoded_cuda;
    }
    assert!(by_last > 0);
    assert_eq!(made(), before, "{MADE:?}");
}
