//! Several views of each image on a GPU: the image is decoded once, and each view has its own launch and tensor.

use crate::common::{Dataset, batches, longs};
use crate::pipeline::{mean_difference, on_cpu, options, pipeline, small};
use crate::stand_in::{self, Cuda};
use foreload::testing::augment::{Fidelity, ImageTransforms, MemoryFormat};
use foreload::testing::batch::{Batch, Place};
use foreload::testing::config::{AllowedBackends, CpuDecode, LoaderOptions, OnError};
use foreload::testing::pipeline::{EpochStats, Pipeline};
use foreload::testing::schedule::Draw;

pub const TWO: &str = r#"{"Views": {"n": 2, "transforms": [
    {"RandomResizedCrop": {"size": 32}}, {"RandomHorizontalFlip": {}}, {"ToDtype": {"dtype": "uint8"}}]}}"#;

/// Global and local crops of different sizes and types. No image of either list has a multiple of 16 bytes.
pub const TEN: &str = r#"[
    {"Views": {"n": 2, "transforms": [
        {"RandomResizedCrop": {"size": [33, 21], "scale": [0.3, 1]}}, {"ToDtype": {"dtype": "float16"}},
        {"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]}},
    {"Views": {"n": 8, "transforms": [
        {"RandomResizedCrop": {"size": 15, "scale": [0.05, 0.3], "interpolation": "bicubic"}},
        {"RandomHorizontalFlip": {}}]}}]"#;

/// Transforms of segmentation recipes: a random size, a padded crop, and both flips.
const SEGMENTED: &str = r#"{"Views": {"n": 3, "transforms": [
    {"RandomResize": {"min_size": 20, "max_size": 120, "interpolation": "lanczos"}}, {"RandomVerticalFlip": {}},
    {"RandomCrop": {"size": [51, 64], "pad_if_needed": true, "fill": [9, 99, 199]}}, {"RandomHorizontalFlip": {}},
    {"ToDtype": {"dtype": "bfloat16"}}]}}"#;

/// Half of the images of one view are resized with their padding, so all views of these images are made from canvases.
const ZOOMED: &str = r#"[
    {"Views": {"n": 1, "transforms": [
        {"RandomZoomOut": {"fill": [124, 116, 104]}}, {"RandomResizedCrop": {"size": [31, 27]}},
        {"ToDtype": {"dtype": "float16"}}]}},
    {"Views": {"n": 2, "transforms": [
        {"RandomHorizontalFlip": {}}, {"RandomCrop": {"size": 70, "pad_if_needed": true, "padding_mode": "edge"}},
        {"RandomResizedCrop": {"size": 24, "interpolation": "bicubic"}}]}}]"#;

pub fn asked(transforms: &str) -> LoaderOptions {
    LoaderOptions { transforms: Some(ImageTransforms::from_json(transforms).unwrap()), ..options() }
}

/// A batch as its consumer sees it: the tensor of each view, then labels, ids, mask and occurrences.
pub type Tensors = Vec<Vec<u8>>;

fn tensors(batch: &Batch) -> Tensors {
    let views = (0..batch.num_images()).map(|number| batch.images_of(number));
    let all = views.chain([batch.labels(), batch.sample_ids(), batch.mask(), batch.occurrences()]);
    all.map(|tensor| tensor.read().unwrap().into_owned()).collect()
}

pub fn epoch(pipeline: &Pipeline, number: u64, place: Place) -> (Vec<Tensors>, EpochStats) {
    let mut running = pipeline.epoch(number, 0, 1, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        assert!((0..batch.num_images()).all(|number| batch.images_of(number).place() == place));
        batches.push(tensors(&batch));
    }
    (batches, running.stats())
}

#[test]
fn views_of_planes_of_the_cpu_have_the_same_bits() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(24);
    for (transforms, views, decode, memory_format) in [
        (TWO, 2, Fidelity::Fast, MemoryFormat::Nchw),
        (TWO, 2, Fidelity::Exact, MemoryFormat::Nhwc),
        (TEN, 10, Fidelity::Fast, MemoryFormat::Nhwc),
        (TEN, 10, Fidelity::Exact, MemoryFormat::Nchw),
        (SEGMENTED, 3, Fidelity::Fast, MemoryFormat::Nhwc),
        (SEGMENTED, 3, Fidelity::Exact, MemoryFormat::Nchw),
        (ZOOMED, 3, Fidelity::Fast, MemoryFormat::Nchw),
        (ZOOMED, 3, Fidelity::Exact, MemoryFormat::Nhwc),
    ] {
        let asked = LoaderOptions { decode, memory_format, ..asked(transforms) };
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 3, Place::Cuda(0));
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 3, Place::Host);
        assert!(gpu == cpu, "{views} views, {decode:?} {memory_format:?}");
        assert!(gpu.iter().all(|batch| batch.len() == views + 4));
        assert_eq!((gpu.len(), stats.decoded_cpu()), (3, 24), "each image is decoded once");
        let [one, other] = [&gpu[0][views - 2], &gpu[0][views - 1]];
        assert!(one.len() == other.len() && one != other, "views are draws of their own");
    }
}

/// If an epoch draws a sample again, it has other views each time, and the batch gives the occurrence.
#[test]
fn draws_of_one_sample_are_told_apart() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(24);
    let asked = LoaderOptions { epoch_size: Some(72), ..asked(TWO) };
    let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 3, Place::Cuda(0));
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 3, Place::Host);
    assert!(gpu == cpu);
    let occurrences = gpu.iter().flat_map(|batch| longs(&batch[5]));
    let counts = occurrences.fold([0; 3], |mut counts, occurrence| {
        counts[occurrence as usize] += 1;
        counts
    });
    assert_eq!(counts, [24; 3]);
}

/// nvJPEG decodes the smallest region that covers all views, wherever they are in the image.
#[test]
fn views_of_what_the_gpu_decodes_come_near_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    let three = r#"[{"Views": {"n": 1, "transforms": [{"Resize": {"size": 40}}, {"CenterCrop": {"size": 24}}]}},
        {"Views": {"n": 2, "transforms": [{"RandomResizedCrop": {"size": 16, "scale": [0.05, 0.3]}}]}}]"#;
    for (backends, batch_size) in
        [(AllowedBackends::Hardware, 8), (AllowedBackends::CudaBatched, 64), (AllowedBackends::Cuda, 8)]
    {
        let asked = LoaderOptions { batch_size, ..asked(three) };
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, backends), 1, Place::Cuda(0));
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 1, Place::Host);
        for (gpu, cpu) in gpu.iter().zip(&cpu) {
            assert_eq!(gpu[3..], cpu[3..], "{backends:?}");
            for (view, (gpu, cpu)) in gpu[..3].iter().zip(cpu).enumerate() {
                let difference = mean_difference(gpu, cpu);
                assert!(difference <= 1.5, "{backends:?}, view {view}: {difference} grey levels");
            }
        }
        assert_eq!(stats.decoded_cpu(), 0, "{backends:?}: {stats:?}");
    }
}

/// The decoder of an image depends on its padding: the CPU decodes images that are resized with padding, nvJPEG the
/// others.
#[test]
fn the_cpu_decodes_what_is_resized_with_padding() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    let list = r#"[{"RandomZoomOut": {"fill": 9}}, {"Resize": {"size": [32, 32]}}]"#;
    let asked = asked(list);
    let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Hardware), 1, Place::Cuda(0));
    let on_cpu = dataset.pipeline(&on_cpu(&asked));
    let (cpu, _) = epoch(&on_cpu, 1, Place::Host);
    let padded = |sample| {
        let drawn = on_cpu.views(Draw::first(sample), 1, None).unwrap();
        drawn.views()[0].canvas.is_some()
    };
    let expected = (0..64).filter(|sample| padded(*sample)).count() as u64;
    assert!((15..50).contains(&expected), "{expected}");
    assert_eq!(stats.decoded_cpu(), expected, "{stats:?}");
    for (gpu, cpu) in gpu.iter().zip(&cpu) {
        let difference = mean_difference(&gpu[0], &cpu[0]);
        assert!(difference <= 1.5, "{difference} grey levels");
    }
    let never = LoaderOptions { cpu_decode: CpuDecode::Never, ..asked };
    let error = never.check(&dataset.index()).unwrap_err().to_string();
    assert!(error.contains("cpu_decode: is never, but only the CPU can pad before a resize"), "{error}");
}

#[test]
fn failed_samples_are_zero_in_every_view_or_replaced_in_every_view() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(40);
    for sample in [3, 17, 30] {
        dataset.spoil(sample);
    }
    for on_error in [OnError::Zero, OnError::Skip] {
        let asked = LoaderOptions { on_error, ..asked(TEN) };
        let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 2, Place::Cuda(0));
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 2, Place::Host);
        assert!(gpu == cpu, "{on_error:?}");
        let mut zeros = 0;
        for batch in &gpu {
            let mask = &batch[12];
            for view in &batch[..10] {
                for (image, &valid) in view.chunks(view.len() / mask.len()).zip(mask) {
                    assert_eq!(image.iter().any(|&byte| byte != 0), valid == 1, "{on_error:?}");
                    zeros += u32::from(valid == 0);
                }
            }
        }
        assert_eq!(zeros, if on_error == OnError::Zero { 30 } else { 0 }, "three samples, ten views");
    }
}

#[test]
fn views_of_a_batch_that_does_not_fit_go_in_pieces() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(48);
    let asked = LoaderOptions { batch_size: 24, ..asked(TEN) };
    let (expected, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 1, Place::Host);
    let small = small(&dataset, &asked, AllowedBackends::Cpu, 64 << 10);
    let before = cuda.calls("cuLaunchKernel");
    assert!(epoch(&small, 1, Place::Cuda(0)).0 == expected);
    let launches = cuda.calls("cuLaunchKernel") - before;
    assert!(launches > 2 * 10 && launches.is_multiple_of(10), "{launches} launches are no pieces");
    for _ in 0..2 {
        assert!(epoch(&small, 1, Place::Cuda(0)).0 == expected);
    }
}

/// The launches, and the copies to the device, of an epoch of 64 images after buffers have their final size. Checks
/// that nothing is allocated.
pub fn steady_calls(cuda: &Cuda, transforms: &str) -> [u64; 2] {
    const CALLS: [&str; 5] = [
        "cuLaunchKernel",
        "cuMemcpyHtoDAsync_v2",
        "cuMemAllocFromPoolAsync",
        "cuMemHostRegister_v2",
        "cuEventCreate",
    ];
    let dataset = Dataset::folder(64);
    let pipeline = pipeline(&dataset, &asked(transforms), AllowedBackends::Cpu);
    let window = |number: u64| {
        let before = CALLS.map(|call| cuda.calls(call));
        for batch in batches(&pipeline, number) {
            batch.synchronize().unwrap();
        }
        let mut after = CALLS.map(|call| cuda.calls(call)).into_iter().zip(before);
        CALLS.map(|_| after.next().map_or(0, |(after, before)| after - before))
    };
    let made = (0..60).map(window).find(|made| made[2..] == [0, 0, 0]).expect("every epoch made something");
    [made[0], made[1]]
}

/// After buffers have their final size, a further view costs a batch one launch, and no copy or allocation.
#[test]
fn a_view_costs_a_batch_one_launch() {
    let (cuda, _nvjpeg) = stand_in::both();
    let [one, ten] = [r#"[{"RandomResizedCrop": {"size": 16}}]"#, TEN].map(|list| steady_calls(&cuda, list));
    // There are eight batches: the planes of 64 images are copied, and for each batch a table and its columns.
    assert_eq!(one, [8, 64 + 2 * 8]);
    assert_eq!(ten, [8 * 10, 64 + 2 * 8]);
}
