//! What a batch costs the host once all buffers have their size: no memory is allocated or page-locked, no call of the
//! driver is made for a single image, and the lanes themselves, beside the libraries they call, take next to no time.

use crate::common::{Dataset, child};
use crate::counting;
use crate::pipeline::{epoch, on_cpu, options, pipeline};
use crate::stand_in::{self, Cuda, Nvjpeg};
use foreload::testing::config::{AllowedBackends, LANES, LoaderOptions, OnError};
use foreload::testing::gpu::StreamRef;
use foreload::testing::pipeline::Pipeline;

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

/// The microseconds that an image may take the lanes: 2 % of the time of three threads, where a GPU decodes 12 000
/// images a second.
const MOST: f64 = 0.02 * 3.0 * 1e6 / 12e3;

/// The number of epochs of a window, and of windows in which buffers may still grow.
const EPOCHS: u64 = 4;
const WINDOWS: u64 = 60;

/// The cost of a batch in a window.
#[derive(Debug)]
struct Cost {
    /// Calls of the driver that Foreload makes.
    calls: f64,
    /// Allocations of the lanes.
    heap: f64,
    /// Microseconds of processor time of the lanes themselves.
    cpu: f64,
}

/// How often each of those was called.
pub fn never(cuda: &Cuda, nvjpeg: &Nvjpeg) -> Vec<u64> {
    let calls = |name: &&str| if name.starts_with("cu") { cuda.calls(name) } else { nvjpeg.calls(name) };
    NEVER.iter().map(calls).collect()
}

/// The lanes' calls of the driver, allocations and nanoseconds so far, where a call of nvJPEG takes `measuring` to
/// measure.
fn counted(cuda: &Cuda, nvjpeg: &Nvjpeg, measuring: f64) -> [f64; 3] {
    let lanes = counting::threads("foreload-lane-");
    let own = |&lane: &u32| counting::cpu(lane).saturating_sub(cuda.cpu(lane) + nvjpeg.cpu(lane));
    let calls: u64 = PER_IMAGE.iter().map(|name| nvjpeg.calls(name)).sum();
    [
        OURS.iter().map(|name| cuda.calls(name)).sum::<u64>() as f64,
        lanes.iter().map(|&lane| counting::allocations(lane)).sum::<u64>() as f64,
        lanes.iter().map(own).sum::<u64>() as f64 - measuring * calls as f64,
    ]
}

/// The nanoseconds of a call of nvJPEG which does nothing, and which the stand-in does not count as its own.
fn measuring(cuda: &Cuda, nvjpeg: &Nvjpeg) -> f64 {
    // SAFETY: no arguments, always succeeds.
    let thread = (unsafe { libc::gettid() }) as u32;
    let own = || counting::cpu(thread) - cuda.cpu(thread) - nvjpeg.cpu(thread);
    let least = (0..5).map(|_| {
        let before = own();
        (0..1000).for_each(|_| nvjpeg.do_nothing());
        (own() - before) as f64 / 1000.0
    });
    least.fold(f64::MAX, f64::min)
}

/// The least cost of a batch of this many images, in windows in which nothing is made.
fn cost(cuda: &Cuda, nvjpeg: &Nvjpeg, dataset: &Dataset, batch_size: u32) -> Cost {
    let asked = LoaderOptions { batch_size, image_size: (16, 16), ..options() };
    let pipeline = pipeline(dataset, &asked, AllowedBackends::Hardware);
    let measuring = measuring(cuda, nvjpeg);
    let (mut made, mut least) = (Vec::new(), Cost { calls: f64::MAX, heap: f64::MAX, cpu: f64::MAX });
    let mut steady = 0;
    for window in 0..WINDOWS {
        let (never_before, before) = (never(cuda, nvjpeg), counted(cuda, nvjpeg, measuring));
        let mut batches = 0.0;
        for number in 0..EPOCHS {
            let mut epoch = pipeline.epoch(window * EPOCHS + number, 0, 1, 0).unwrap();
            while let Some(batch) = epoch.next_batch().unwrap() {
                drop(batch.images().lend(StreamRef::LEGACY).unwrap());
                batches += 1.0;
            }
        }
        let after = counted(cuda, nvjpeg, measuring);
        made = never(cuda, nvjpeg).iter().zip(never_before).map(|(after, before)| after - before).collect();
        if window > 0 && made.iter().all(|made| *made == 0) {
            let [calls, heap, cpu] = [0, 1, 2].map(|i| (after[i] - before[i]) / batches);
            // Other programs on the machine only add to the cost.
            least = Cost {
                calls: least.calls.min(calls),
                heap: least.heap.min(heap),
                cpu: least.cpu.min(cpu * 1e-3),
            };
            steady += 1;
            if steady == 8 {
                return least;
            }
        }
    }
    panic!("in the last window were made: {:?}", NEVER.iter().zip(made).collect::<Vec<_>>());
}

#[test]
fn a_batch_costs_the_host_next_to_nothing() {
    let output = child(runs_steadily).env("FORELOAD_STANDIN_DELAY_US", "0").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn runs_steadily() {
    let cuda = stand_in::cuda();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    let dataset = Dataset::folder(384);
    // The engine has both in one call.
    let [small, large] = [16, 64].map(|batch_size| cost(&cuda, &nvjpeg, &dataset, batch_size));
    println!("16 images: {small:?}\n64 images: {large:?}");
    assert!(large.calls <= small.calls + 4.0 && large.calls <= 70.0, "calls for single images");
    assert!(large.heap <= small.heap + 16.0 && large.heap <= 40.0, "allocations for single images");
    let image = (large.cpu - small.cpu) / (64.0 - 16.0);
    assert!(image <= MOST, "an image takes {image} µs of the lanes, more than {MOST}");
}

/// Where slots are short the lanes decode on the CPU, into memory of their own. It is made once for each lane, not for
/// each image; some of the images are substitutes of bad ones, and one is larger than all before.
#[test]
fn tight_slots_page_lock_no_memory_for_single_images() {
    let cuda = stand_in::cuda();
    let _nvjpeg = stand_in::nvjpeg(&cuda);
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
        let index = dataset.index();
        let mut config = asked.check(&index).unwrap();
        config.backends = AllowedBackends::Cpu;
        config.pools.slot_bytes = slot_bytes.unwrap_or(config.pools.slot_bytes);
        let pipeline = Pipeline::new(index, config);
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
