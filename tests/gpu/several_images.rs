//! Samples with several images on a GPU: a lane decodes all images of a sample together, and they fail together.

use crate::common::{jpeg, png, tar_of};
use crate::pipeline::{mean_difference, on_cpu, options};
use crate::stand_in;
use crate::views::{Tensors, epoch};
use foreload::testing::augment::ImageTransforms;
use foreload::testing::batch::Place;
use foreload::testing::config::{AllowedBackends, FieldOptions, LoaderConfig, LoaderOptions, OnError};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::pipeline::Pipeline;
use std::sync::Arc;
use tempfile::TempDir;

/// A shard of samples with three images of different sizes: two JPEGs, and a PNG that the CPU decodes.
pub struct Shard(TempDir);

/// Two views of the first image, and one view of each other image. No image has a multiple of 16 bytes.
const EACH: &str = r#"{
    "left.jpg": {"Views": {"n": 2, "transforms": [
        {"RandomResizedCrop": {"size": [33, 21]}}, {"RandomHorizontalFlip": {}}]}},
    "right.jpg": [{"RandomResizedCrop": {"size": 15, "scale": [0.2, 1]}}, {"Grayscale": {}}],
    "map.png": [{"RandomResizedCrop": {"size": 17}}, {"ToDtype": {"dtype": "float16"}}]}"#;

/// The bytes per image of each tensor.
const BYTES: [usize; 4] = [3 * 33 * 21, 3 * 33 * 21, 3 * 15 * 15, 2 * 3 * 17 * 17];

impl Shard {
    /// Makes this many samples. In samples of `spoiled`, the second file is no image. In sample `apart`, it is stored
    /// far from the others.
    fn new(samples: usize, spoiled: &[usize], apart: bool) -> Self {
        Self::with_left(samples, spoiled, apart, jpeg)
    }

    /// Makes samples like [`Shard::new`], whose first files are made by `left` from the sample's number.
    pub fn with_left(samples: usize, spoiled: &[usize], apart: bool, left: impl Fn(u64) -> Vec<u8>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let right = |sample: usize| match spoiled.contains(&sample) {
            true => b"<!DOCTYPE html> not found".to_vec(),
            false => jpeg(1000 + sample as u64),
        };
        let mut members = Vec::new();
        for sample in 0..samples {
            members.push((format!("{sample:04}.left.jpg"), left(sample as u64)));
            members.push((format!("{sample:04}.map.png"), png(sample as u8)));
            if !apart {
                members.push((format!("{sample:04}.right.jpg"), right(sample)));
            }
        }
        if apart {
            members.push(("0000.filler".into(), vec![0; 200_000]));
            members.extend((0..samples).map(|sample| (format!("{sample:04}.right.jpg"), right(sample))));
        }
        std::fs::write(directory.path().join("data/0.tar"), tar_of(members)).unwrap();
        Self(directory)
    }

    fn index(&self, options: &LoaderOptions) -> Arc<DatasetIndex> {
        let directory = Some(self.0.path().join("index"));
        let options =
            IndexOptions { directory, ..options.validate().unwrap().index_options(Contents::Images) };
        Arc::new(DatasetIndex::open(&self.0.path().join("data"), &options).unwrap())
    }

    pub fn pipeline(&self, options: &LoaderOptions, change: impl FnOnce(&mut LoaderConfig)) -> Pipeline {
        let index = self.index(options);
        let mut config = options.check(&index).unwrap();
        change(&mut config);
        Pipeline::new(index, config)
    }

    /// The batches of an epoch on the CPU.
    pub fn expected(&self, options: &LoaderOptions, number: u64) -> Vec<Tensors> {
        epoch(&self.pipeline(&on_cpu(options), |_| ()), number, Place::Host).0
    }
}

pub fn asked() -> LoaderOptions {
    LoaderOptions {
        transforms: Some(ImageTransforms::from_json(EACH).unwrap()),
        fields: Some(["left.jpg", "right.jpg", "map.png"].map(FieldOptions::named).to_vec()),
        ..options()
    }
}

#[test]
fn planes_of_the_cpu_become_the_same_bits() {
    let (cuda, _nvjpeg) = stand_in::both();
    for apart in [false, true] {
        let shard = Shard::new(24, &[], apart);
        let pipeline = shard.pipeline(&asked(), |config| config.backends = AllowedBackends::Cpu);
        let before = cuda.calls("cuLaunchKernel");
        let (gpu, stats) = epoch(&pipeline, 3, Place::Cuda(0));
        assert!(gpu == shard.expected(&asked(), 3), "apart: {apart}");
        assert_eq!((gpu.len(), stats.decoded_cpu()), (3, 3 * 24), "each image is decoded once");
        // Four launches for the views, and the second kernel of the view that changes colours.
        assert_eq!(cuda.calls("cuLaunchKernel") - before, 3 * 5);
        for batch in &gpu {
            assert_eq!(batch[..4].iter().map(Vec::len).collect::<Vec<_>>(), BYTES.map(|bytes| 8 * bytes));
        }
    }
}

#[test]
fn what_the_gpu_decodes_comes_near_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let shard = Shard::new(64, &[], false);
    // In batches of 32 samples the kernels have 64 JPEGs, enough for a batched call.
    for (backends, batch_size) in
        [(AllowedBackends::Hardware, 8), (AllowedBackends::CudaBatched, 32), (AllowedBackends::Cuda, 8)]
    {
        let asked = LoaderOptions { batch_size, ..asked() };
        let pipeline = shard.pipeline(&asked, |config| config.backends = backends);
        let (gpu, stats) = epoch(&pipeline, 1, Place::Cuda(0));
        for (gpu, cpu) in gpu.iter().zip(&shard.expected(&asked, 1)) {
            assert_eq!(gpu[4..], cpu[4..], "{backends:?}");
            assert_eq!(gpu[3], cpu[3], "{backends:?}: PNGs are the CPU's");
            for (view, (gpu, cpu)) in gpu[..3].iter().zip(cpu).enumerate() {
                let difference = mean_difference(gpu, cpu);
                assert!(difference <= 1.5, "{backends:?}, view {view}: {difference} grey levels");
            }
        }
        assert_eq!(stats.decoded_cpu(), 64, "{backends:?}: {stats:?}");
    }
}

#[test]
fn a_sample_fails_with_all_its_images() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let shard = Shard::new(40, &[3, 17, 30], false);
    for on_error in [OnError::Zero, OnError::Skip] {
        let asked = LoaderOptions { on_error, ..asked() };
        let pipeline = shard.pipeline(&asked, |config| config.backends = AllowedBackends::Cpu);
        let (gpu, _) = epoch(&pipeline, 2, Place::Cuda(0));
        assert!(gpu == shard.expected(&asked, 2), "{on_error:?}");
        let mut zeros = 0;
        for batch in &gpu {
            for (tensor, bytes) in batch.iter().zip(BYTES) {
                for (image, &valid) in tensor.chunks(bytes).zip(&batch[6]) {
                    zeros += u32::from(valid == 0);
                    assert!(valid == 1 || image.iter().all(|&byte| byte == 0));
                }
            }
        }
        assert_eq!(zeros, if on_error == OnError::Zero { 3 * 4 } else { 0 });
    }
}

#[test]
fn batches_that_do_not_fit_go_in_pieces() {
    let (_cuda, _nvjpeg) = stand_in::both();
    for apart in [false, true] {
        let shard = Shard::new(48, &[], apart);
        let asked = LoaderOptions { batch_size: 24, ..asked() };
        let expected = shard.expected(&asked, 1);
        for backends in [AllowedBackends::Cpu, AllowedBackends::All] {
            let small = shard.pipeline(&asked, |config| {
                config.backends = backends;
                // There are slots for about ten of 72 files, and device memory for the planes of a few images.
                config.pools.slot_bytes = 2 << 20;
                config.device_pools.as_mut().unwrap().arena = 512 << 10;
            });
            for _ in 0..2 {
                let (gpu, _) = epoch(&small, 1, Place::Cuda(0));
                assert_eq!(gpu.len(), expected.len());
                for (gpu, cpu) in gpu.iter().zip(&expected) {
                    assert_eq!(gpu[3..], cpu[3..], "{backends:?}, apart: {apart}");
                    for (gpu, cpu) in gpu[..3].iter().zip(cpu) {
                        let difference = mean_difference(gpu, cpu);
                        let most = if backends == AllowedBackends::Cpu { 0.0 } else { 1.5 };
                        assert!(difference <= most, "{backends:?}, apart: {apart}: {difference} grey levels");
                    }
                }
            }
        }
    }
}

/// If one image was not written, its whole sample is decoded again, although the CPU has decoded another image of it.
#[test]
fn a_sample_whose_image_was_skipped_is_decoded_again_as_a_whole() {
    let (_cuda, nvjpeg) = stand_in::both();
    let shard = Shard::new(64, &[], false);
    for backends in [AllowedBackends::All, AllowedBackends::Hardware] {
        nvjpeg.reset();
        let pipeline = shard.pipeline(&asked(), |config| config.backends = backends);
        let (_, stats) = epoch(&pipeline, 0, Place::Cuda(0));
        assert_eq!(stats.gpu.decoded_again, 0, "{backends:?}");
        nvjpeg.knobs("skip");
        let mut again = 0;
        for number in 1..4 {
            let (gpu, stats) = epoch(&pipeline, number, Place::Cuda(0));
            again += stats.gpu.decoded_again;
            for (gpu, cpu) in gpu.iter().zip(&shard.expected(&asked(), number)) {
                assert_eq!(gpu[3..], cpu[3..], "{backends:?}");
                for (tensor, (gpu, cpu)) in gpu[..3].iter().zip(cpu).enumerate() {
                    for (place, (gpu, cpu)) in
                        gpu.chunks(BYTES[tensor]).zip(cpu.chunks(BYTES[tensor])).enumerate()
                    {
                        let difference = mean_difference(gpu, cpu);
                        assert!(
                            difference <= 3.0,
                            "{backends:?}, {tensor}, {place}: {difference} grey levels"
                        );
                    }
                }
            }
        }
        assert!(again >= 8, "{backends:?}: {again}");
    }
}
