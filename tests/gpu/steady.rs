//! What a batch costs the host once all buffers have their size: no memory is allocated or page-locked, and no call of
//! the driver is made for a single image.

use crate::common::{Dataset, child, passes};
use crate::counting;
use crate::pipeline::{changed, epoch, on_cpu, options, pipeline};
use crate::stand_in::{self, Cuda, Nvjpeg};
use foreload::testing::config::{AllowedBackends, LANES, LoaderOptions, OnError};
use foreload::testing::gpu::StreamRef;

/// Functions that make, allocate or page-lock something, or wait for everything.
const NEVER: [&str; 17] = [
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolCreate",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuMemGetInfo_v2",
    "cuCtxSynchronize",
    "nvjpegCreateExV2",
    "nvjpegJpegStateCreate",
    "nvjpegDecodeParamsCreate",
    "nvjpegJpegStreamCreate",
    "nvjpegDecodeBatchedPreAllocate",
];

/// Functions that Foreload calls for a batch. (The stand-in for nvJPEG calls some of them too, once a batch.)
const OURS: [&str; 12] = [
    "cuCtxSetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD32Async",
    "cuLaunchKernel",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
];

/// Functions of nvJPEG that are called for each image.
const PER_IMAGE: [&str; 4] = [
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegJpegStreamParse",
    "nvjpegDecodeBatchedSupportedEx",
];

/// The number of epochs of a window, and of windows in which buffers may still grow.
const EPOCHS: u64 = 4;
const WINDOWS: u64 = 60;

/// The cost of a batch in a window. Its time is for benchmarks on a GPU, since that of a stand-in says nothing.
#[derive(Debug)]
struct Cost {
    /// Calls of the driver that Foreload makes.
    driver: f64,
    /// Calls of nvJPEG for each image.
    image: f64,
    /// Allocations of the lanes.
    heap: f64,
}

/// How often each of those was called.
pub fn never(cuda: &Cuda, nvjpeg: &Nvjpeg) -> Vec<u64> {
    let calls = |name: &&str| if name.starts_with("cu") { cuda.calls(name) } else { nvjpeg.calls(name) };
    NEVER.iter().map(calls).collect()
}

/// Calls of the driver, calls of nvJPEG for single images, and the lanes' allocations so far.
fn counted(cuda: &Cuda, nvjpeg: &Nvjpeg) -> [f64; 3] {
    let lanes = counting::threads("foreload-lane-");
    let all = [
        OURS.iter().map(|name| cuda.calls(name)).sum::<u64>(),
        PER_IMAGE.iter().map(|name| nvjpeg.calls(name)).sum(),
        lanes.iter().map(|&lane| counting::allocations(lane)).sum(),
    ];
    all.map(|count| count as f64)
}

/// The least cost of a batch of this many images, in windows in which nothing is made.
fn cost(cuda: &Cuda, nvjpeg: &Nvjpeg, dataset: &Dataset, batch_size: u32) -> Cost {
    let asked = LoaderOptions { batch_size, image_size: (16, 16), ..options() };
    let pipeline = pipeline(dataset, &asked, AllowedBackends::Hardware);
    let (mut made, mut least) = (Vec::new(), [f64::MAX; 3]);
    let mut steady = 0;
    for window in 0..WINDOWS {
        let (never_before, before) = (never(cuda, nvjpeg), counted(cuda, nvjpeg));
        let mut batches = 0.0;
        for number in 0..EPOCHS {
            let mut epoch = pipeline.epoch(window * EPOCHS + number, 0, 1, 0).unwrap();
            while let Some(batch) = epoch.next_batch().unwrap() {
                drop(batch.images().lend(StreamRef::LEGACY).unwrap());
                batches += 1.0;
            }
        }
        let after = counted(cuda, nvjpeg);
        made = never(cuda, nvjpeg).iter().zip(never_before).map(|(after, before)| after - before).collect();
        if window > 0 && made.iter().all(|made| *made == 0) {
            // What depends on how threads meet, such as asking whether an event is over, only adds to the cost.
            least = [0, 1, 2].map(|of| f64::min(least[of], (after[of] - before[of]) / batches));
            steady += 1;
            if steady == 3 {
                let [driver, images, heap] = least;
                return Cost { driver, image: images / f64::from(batch_size), heap };
            }
        }
    }
    panic!("in the last window were made: {:?}", NEVER.iter().zip(made).collect::<Vec<_>>());
}

#[test]
fn a_batch_costs_the_host_next_to_nothing() {
    print!("{}", passes(child(runs_steadily).env("FORELOAD_STANDIN_DELAY_US", "0")));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn runs_steadily() {
    let (cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(384);
    // The engine has up to 64 images in a call.
    let [small, one, two] = [16, 64, 128].map(|batch_size| cost(&cuda, &nvjpeg, &dataset, batch_size));
    println!("16 images: {small:?}\n64 images: {one:?}\n128 images, two calls of the engine: {two:?}");
    for cost in [&small, &one, &two] {
        assert!(cost.image <= PER_IMAGE.len() as f64, "{cost:?}: more calls of nvJPEG for an image");
    }
    assert!(one.driver <= small.driver + 4.0 && one.driver <= 70.0, "calls of the driver for single images");
    assert!(one.heap <= small.heap + 16.0 && one.heap <= 40.0, "allocations for single images");
    assert!(
        two.driver <= one.driver + 8.0 && two.heap <= one.heap + 8.0,
        "what a further call of the engine costs"
    );
}

/// Where slots are short the lanes decode on the CPU, into memory of their own. It is made once for each lane, not for
/// each image; some of the images are substitutes of bad ones, and one is larger than all before.
#[test]
fn tight_slots_page_lock_no_memory_for_single_images() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(384);
    [3, 170, 300].into_iter().for_each(|sample| dataset.spoil(sample));
    let pixels = vec![90; 3000 * 1000 * 3];
    let mut large = Vec::new();
    let mut encoder = png::Encoder::new(&mut large, 3000, 1000);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    std::fs::write(dataset.path(200), large).unwrap();
    let dataset = dataset.indexed_anew();
    let asked = LoaderOptions { batch_size: 128, on_error: OnError::Skip, ..options() };
    let by_cpu = dataset.pipeline(&on_cpu(&asked));
    let made = |slot_bytes: Option<usize>| {
        let pipeline = changed(&dataset, &asked, |config| {
            config.backends = AllowedBackends::Cpu;
            config.pools.slot_bytes = slot_bytes.unwrap_or(config.pools.slot_bytes);
        });
        let before = cuda.calls("cuMemHostRegister_v2");
        let mut read = 0;
        for number in 0..4 {
            let (batches, _) = epoch(&pipeline, number);
            assert!(batches == epoch(&by_cpu, number).0, "epoch {number}");
            // Each tensor that the test reads has page-locked memory for that.
            read += batches.iter().map(|(_, rest)| 1 + rest.len() as u64).sum::<u64>();
        }
        cuda.calls("cuMemHostRegister_v2") - before - read
    };
    // This makes what is made once for the process, and a loader's own memory.
    made(None);
    let (roomy, tight) = (made(None), made(Some(2 << 20)));
    assert!(roomy <= 2 + LANES as u64, "{roomy} registrations where there is room");
    assert!(tight > roomy, "slots were not short");
    // Each lane makes one, and one more when the large image comes to it.
    assert!(tight <= roomy + 2 * LANES as u64, "{tight} registrations, {roomy} where there is room");
}
