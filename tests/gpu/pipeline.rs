//! The whole pipeline with a GPU, on the stand-ins. They check order, lifetimes, arithmetic and failures, but not
//! speed.

use crate::common::{Dataset, await_no_threads, batches, child, passes, png, thorough, threads, webp};
use crate::stand_in;
use foreload::Error;
use foreload::testing::augment::{DType, Fidelity, MemoryFormat};
use foreload::testing::batch::{Batch, Place, Tensor};
use foreload::testing::config::{
    AllowedBackends, CpuDecode, GpuDecoder, LoaderConfig, LoaderOptions, OnError,
};
use foreload::testing::decode::Backend;
use foreload::testing::pipeline::{EpochStats, Pipeline, Poll, release_gpus};
use foreload::testing::schedule::LastBatch;
use std::time::Duration;

pub fn options() -> LoaderOptions {
    LoaderOptions {
        batch_size: 8,
        image_size: (32, 32),
        threads: Some(2),
        seed: 5,
        device: "cuda:0".into(),
        ..LoaderOptions::default()
    }
}

/// A pipeline on the GPU whose checked settings are changed.
pub fn changed(
    dataset: &Dataset,
    options: &LoaderOptions,
    change: impl FnOnce(&mut LoaderConfig),
) -> Pipeline {
    let index = dataset.index();
    let mut config = options.check(&index).unwrap();
    change(&mut config);
    Pipeline::new(index, config)
}

/// A pipeline on the GPU whose images are decoded by `backends` only.
pub fn pipeline(dataset: &Dataset, options: &LoaderOptions, backends: AllowedBackends) -> Pipeline {
    changed(dataset, options, |config| config.backends = backends)
}

/// A pipeline like [`pipeline`] with slots for about ten of 24 files, and with `arena` bytes of device memory, which
/// are enough for the planes of a few of 24 images.
pub fn small(
    dataset: &Dataset,
    options: &LoaderOptions,
    backends: AllowedBackends,
    arena: usize,
) -> Pipeline {
    changed(dataset, options, |config| {
        config.backends = backends;
        config.pools.slot_bytes = 2 << 20;
        config.device_pools.as_mut().unwrap().arena = arena;
    })
}

/// The same settings without a GPU.
pub fn on_cpu(options: &LoaderOptions) -> LoaderOptions {
    LoaderOptions { device: "cpu".into(), ..options.clone() }
}

fn read(tensor: &Tensor) -> Vec<u8> {
    tensor.read().unwrap().into_owned()
}

/// All data of a batch that a consumer can see: the images, then the other fields.
pub type Contents = (Vec<u8>, Vec<Vec<u8>>);

fn contents(batch: &Batch) -> Contents {
    let rest = [batch.labels(), batch.sample_ids(), batch.mask()];
    (read(&batch.images()), rest.iter().map(read).collect())
}

/// The contents of an epoch, and its statistics.
pub fn epoch(pipeline: &Pipeline, number: u64) -> (Vec<Contents>, EpochStats) {
    let mut running = pipeline.epoch(number, 0, 1, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        batches.push(contents(&batch));
    }
    (batches, running.stats())
}

pub fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b))).sum::<f64>() / a.len() as f64
}

#[test]
fn planes_of_the_cpu_become_the_same_bits() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(29);
    for (decode, dtype, memory_format, train) in [
        (Fidelity::Fast, DType::F32, MemoryFormat::Nchw, true),
        (Fidelity::Fast, DType::F16, MemoryFormat::Nhwc, true),
        (Fidelity::Exact, DType::F32, MemoryFormat::Nchw, false),
        (Fidelity::Exact, DType::U8, MemoryFormat::Nhwc, true),
    ] {
        let last_batch = Some(LastBatch::Pad);
        let asked =
            LoaderOptions { decode, dtype, memory_format, train: Some(train), last_batch, ..options() };
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 3);
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 3);
        assert!(gpu == cpu, "{decode:?} {dtype:?} {memory_format:?}, train {train}");
        assert_eq!(
            (stats.decoded[Backend::Region], stats.gpu.decoded_cuda, stats.gpu.decoded_hardware),
            (32, 0, 0)
        );
    }
}

#[test]
fn every_backend_comes_near_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(256);
    for (backends, batch_size) in [
        (AllowedBackends::Hardware, 8),
        (AllowedBackends::Cuda, 128),
        (AllowedBackends::CudaBatched, 128),
        (AllowedBackends::All, 8),
        (AllowedBackends::All, 128),
    ] {
        let asked = LoaderOptions { dtype: DType::U8, batch_size, ..options() };
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 0);
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, backends), 0);
        for ((gpu_images, gpu_rest), (cpu_images, cpu_rest)) in gpu.iter().zip(&cpu) {
            assert_eq!(gpu_rest, cpu_rest, "{backends:?}");
            let difference = mean_difference(gpu_images, cpu_images);
            assert!(difference <= 1.5, "{backends:?}: {difference} grey levels");
        }
        let gpu = stats.gpu;
        let by_backend = [gpu.decoded_hardware, gpu.decoded_cuda_batched, gpu.decoded_cuda];
        match (backends, batch_size) {
            (AllowedBackends::Cuda, _) => assert_eq!(by_backend, [0, 0, 256], "one by one"),
            (AllowedBackends::CudaBatched, _) => assert_eq!(by_backend, [0, 256, 0], "large batches"),
            _ => assert_eq!(by_backend, [256, 0, 0], "the engine's"),
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_goes_in_pieces() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(48);
    let asked = LoaderOptions { batch_size: 24, ..options() };
    let (expected, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 1);
    let small = small(&dataset, &asked, AllowedBackends::Cpu, 32 << 10);
    for _ in 0..3 {
        assert!(epoch(&small, 1).0 == expected);
    }
}

#[test]
fn a_consumer_that_looks_often_does_not_keep_a_batch_from_going_in_pieces() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(48);
    let asked = LoaderOptions { batch_size: 48, ..options() };
    let pipeline = changed(&dataset, &asked, |config| {
        config.backends = AllowedBackends::Cpu;
        // There are fewer slots than a batch needs.
        config.pools.slot_bytes = 512 << 10;
    });
    let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
    let mut looks = std::iter::repeat_with(|| epoch.poll(Duration::from_millis(5)).unwrap()).take(4000);
    assert!(looks.any(|poll| matches!(poll, Poll::Batch(_))), "it never came");
}

#[test]
fn an_image_without_room_on_the_device_is_neither_replaced_nor_left_out() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(8);
    for (on_error, backends) in [
        (OnError::Skip, AllowedBackends::All),
        (OnError::Zero, AllowedBackends::Cpu),
        (OnError::Raise, AllowedBackends::All),
    ] {
        let pipeline = changed(&dataset, &LoaderOptions { on_error, ..options() }, |config| {
            config.backends = backends;
            config.device_pools.as_mut().unwrap().arena = 64;
        });
        let error = drive(&pipeline, || {}).unwrap_err().to_string();
        assert!(error.contains("device_memory: leaves 64 bytes") && error.contains("raise it to"), "{error}");
        assert!(error.starts_with("sample "), "{error}");
    }
}

#[test]
fn failures_end_as_on_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(40);
    for sample in [3, 17, 30] {
        dataset.spoil(sample);
    }
    for on_error in [OnError::Skip, OnError::Zero] {
        let asked = LoaderOptions { on_error, ..options() };
        let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 2);
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 2);
        assert!(gpu == cpu, "{on_error:?}");
    }
    for backends in [AllowedBackends::All, AllowedBackends::Cpu] {
        let raising = pipeline(&dataset, &options(), backends);
        for number in 0..2 {
            let mut failing = raising.epoch(number, 0, 1, 0).unwrap();
            let error = std::iter::repeat_with(|| failing.next_batch()).find_map(Result::err).unwrap();
            assert!(matches!(error, Error::Sample { .. }), "{error}");
            assert!(error.to_string().contains("not a JPEG"), "{error}");
        }
    }
}

#[test]
fn what_the_gpu_refuses_for_its_damage_the_cpu_conceals() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    for sample in [2, 9] {
        dataset.damage(sample);
    }
    let asked = LoaderOptions { train: Some(false), max_errors: Some(0), ..options() };
    let (_, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 0);
    assert_eq!(
        (stats.concealed, stats.decoded[Backend::Region]),
        (2, 2),
        "the stand-in refuses what is damaged"
    );
    let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 0);
    assert_eq!(stats.concealed, 2);
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 0);
    assert!(gpu == cpu);
}

#[test]
fn the_cpu_decodes_only_what_it_is_asked_to() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    std::fs::write(dataset.path(5), png(5)).unwrap();
    std::fs::write(dataset.path(9), webp(9)).unwrap();
    let dataset = dataset.indexed_anew();
    let fallback = pipeline(&dataset, &options(), AllowedBackends::All);
    let (_, stats) = epoch(&fallback, 0);
    let by_cpu = [Backend::Png, Backend::WebP].map(|backend| stats.decoded[backend]);
    assert_eq!((by_cpu, stats.gpu.decoded_hardware + stats.gpu.decoded_cuda), ([1, 1], 14));
    let (gpu, _) = epoch(&pipeline(&dataset, &options(), AllowedBackends::Cpu), 0);
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&options())), 0);
    assert!(gpu == cpu);
    let never = LoaderOptions { cpu_decode: CpuDecode::Never, on_error: OnError::Zero, ..options() };
    let (batches, stats) = epoch(&pipeline(&dataset, &never, AllowedBackends::All), 0);
    assert_eq!(stats.decoded.total(), 0);
    let valid: usize = batches.iter().map(|(_, rest)| rest[2].iter().filter(|&&bit| bit == 1).count()).sum();
    assert_eq!(valid, 14);
}

#[test]
fn packed_images_are_not_nvjpegs() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    (0..16).step_by(2).for_each(|sample| _ = dataset.pack(sample));
    let dataset = dataset.indexed_anew();
    let nvjpeg = LoaderOptions { decoder: GpuDecoder::NvJpeg, ..options() };
    let (_, stats) = epoch(&pipeline(&dataset, &nvjpeg, AllowedBackends::All), 0);
    assert_eq!((stats.decoded[Backend::Packed], stats.gpu.decoded_hardware + stats.gpu.decoded_cuda), (8, 8));
    assert_eq!(stats.rebuilt, 0);
    let (gpu, _) = epoch(&pipeline(&dataset, &options(), AllowedBackends::Cpu), 0);
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&options())), 0);
    assert!(gpu == cpu);
    let never = LoaderOptions { cpu_decode: CpuDecode::Never, ..nvjpeg };
    let (_, stats) = epoch(&pipeline(&dataset, &never, AllowedBackends::All), 0);
    assert_eq!((stats.decoded.total(), stats.gpu.decoded_hardware + stats.gpu.decoded_cuda), (0, 16));
}

#[test]
fn kept_batches_are_never_overwritten() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    let pipeline = pipeline(&dataset, &options(), AllowedBackends::All);
    let mut kept = Vec::new();
    for number in 0..3 {
        for batch in batches(&pipeline, number) {
            assert_eq!(batch.images().place(), Place::Cuda(0));
            if batch.step() % 3 == 0 {
                kept.push((batch.images(), read(&batch.images())));
            }
        }
    }
    drop(pipeline);
    assert_eq!(kept.len(), 9);
    assert!(kept.iter().all(|(tensor, copy)| read(tensor) == *copy));
}

#[test]
fn a_dropped_epoch_ends_everything() {
    passes(&mut child(drops_epochs));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn drops_epochs() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    for taken in 0..5 {
        let pipeline = pipeline(&dataset, &options(), AllowedBackends::All);
        let mut epoch = pipeline.epoch(0, 0, 1, 0).unwrap();
        for _ in 0..taken {
            epoch.next_batch().unwrap();
        }
        // Another pipeline takes over in the middle of the epoch.
        let mut next = pipeline.epoch(1, 0, 1, 0).unwrap();
        assert!(next.next_batch().unwrap().is_some());
        assert!(threads().iter().any(|name| name.starts_with("foreload-lane-")), "{:?}", threads());
        drop((epoch, next));
        drop(pipeline);
        await_no_threads();
    }
}

#[test]
fn too_little_device_memory_is_reported_at_once() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(8);
    let asked = LoaderOptions { device_memory: Some(1 << 20), ..options() };
    let error = asked.check(&dataset.index()).unwrap_err().to_string();
    assert!(error.contains("device_memory: is 1048576 bytes, must be at least"), "{error}");
}

/// Calls at the start of a stage. A backend that fails while it is probed counts as a backend that this GPU lacks.
#[test]
fn each_call_that_fails_at_the_start_is_an_error_and_leaves_nothing_behind() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(40);
    for call in [
        "cuDevicePrimaryCtxRetain",
        "cuStreamCreateWithPriority",
        "cuEventCreate",
        "cuMemHostRegister_v2",
        "cuMemPoolCreate",
        "cuMemAllocFromPoolAsync",
        "cuModuleLoadData",
        "cuModuleGetFunction",
    ] {
        release_gpus();
        cuda.reset();
        assert_eq!(drive(&pipeline(&dataset, &options(), AllowedBackends::All), || {}).unwrap(), 5);
        let (mut told, calls) = (0, cuda.calls(call));
        let all = [1, 2, calls, calls - 1, calls / 2].map(|nth| nth.max(1));
        for &nth in if thorough() { &all[..] } else { &all[..2] } {
            release_gpus();
            cuda.fail(call, nth, 0);
            told += usize::from(fails(&dataset, AllowedBackends::All, call, || {}));
            cuda.reset();
        }
        assert!(told > 0, "{call} failed without an error");
    }
    assert_eq!(drive(&pipeline(&dataset, &options(), AllowedBackends::All), || {}).unwrap(), 5);
}

#[test]
fn each_call_that_fails_on_the_way_is_an_error_and_leaves_nothing_behind() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(240);
    for call in [
        "cuMemcpyHtoDAsync_v2",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuEventSynchronize",
        "cuEventElapsedTime",
    ] {
        for nth in [1, 2, 3, 7] {
            let failed = fails(&dataset, AllowedBackends::Cpu, call, || cuda.fail(call, nth, 0));
            assert!(failed, "{call} failed without an error");
            cuda.reset();
        }
    }
    assert_eq!(drive(&pipeline(&dataset, &options(), AllowedBackends::Cpu), || {}).unwrap(), 30);
}

/// Whether an epoch ends with an error; if it does, the error must name `call`.
fn fails(dataset: &Dataset, backends: AllowedBackends, call: &str, after_first: impl FnOnce()) -> bool {
    let index = dataset.index();
    let outcome = options().check(&index).and_then(|mut config| {
        config.backends = backends;
        drive(&Pipeline::new(index, config), after_first)
    });
    outcome.is_err_and(|error| {
        let text = error.to_string();
        assert!(text.contains(call.trim_end_matches("_v2")), "{call}: {text}");
        true
    })
}

/// Takes all batches of an epoch; returns their number.
pub fn drive(pipeline: &Pipeline, after_first: impl FnOnce()) -> Result<u64, Error> {
    let mut epoch = pipeline.epoch(0, 0, 1, 0)?;
    let mut after_first = Some(after_first);
    while let Some(batch) = epoch.next_batch()? {
        batch.synchronize()?;
        if let Some(act) = after_first.take() {
            act();
        }
    }
    Ok(epoch.next_step())
}
