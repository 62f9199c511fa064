//! Packed images on a GPU: Foreload's own kernel decodes them, and their batches are the CPU's bit for bit.

use crate::common::{Dataset, batches, child, passes, succeeds};
use crate::pipeline::{epoch, on_cpu, options, pipeline, small};
use crate::stand_in;
use crate::steady::never;
use foreload::Device;
use foreload::Shuffling;
use foreload::testing::augment::{DType, Fidelity, MemoryFormat};
use foreload::testing::config::{AllowedBackends, CpuDecode, GpuDecoder, LoaderOptions, OnError};
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::decode::Backend;
use foreload::testing::gpu::StreamRef;
use foreload::testing::pipeline::Pipeline;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A dataset in which the samples that `packed` selects by their ids are packed.
fn dataset(samples: usize, packed: impl Fn(usize) -> bool) -> Dataset {
    let dataset = Dataset::folder(samples);
    (0..samples).filter(|sample| packed(*sample)).for_each(|sample| _ = dataset.pack(sample));
    dataset.indexed_anew()
}

pub fn own(options: LoaderOptions) -> LoaderOptions {
    LoaderOptions { decoder: GpuDecoder::Own, ..options }
}

#[test]
fn batches_are_those_of_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(32, |_| true);
    for (decode, dtype, memory_format, train, decoder) in [
        (Fidelity::Fast, DType::F32, MemoryFormat::Nchw, true, GpuDecoder::Auto),
        (Fidelity::Fast, DType::F16, MemoryFormat::Nhwc, true, GpuDecoder::Own),
        (Fidelity::Exact, DType::F32, MemoryFormat::Nchw, false, GpuDecoder::Own),
        (Fidelity::Exact, DType::U8, MemoryFormat::Nhwc, true, GpuDecoder::Auto),
    ] {
        let asked = LoaderOptions { decode, dtype, memory_format, train: Some(train), decoder, ..options() };
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 3);
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 3);
        assert!(gpu == cpu, "{decode:?} {dtype:?} {memory_format:?}, train {train}");
        assert_eq!((stats.gpu.decoded_cuda_packed, stats.decoded_cpu(), stats.gpu.decoded_again), (32, 0, 0));
        assert!(stats.gpu.h2d_bytes > 0);
    }
}

/// Of a packed dataset, and of packed copies in a cache, only the rows are read that a kernel decodes, or the CPU where
/// kernels are not allowed.
#[test]
fn batches_are_the_same_of_fewer_bytes() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::photographs(24).packed();
    let whole = dataset.index().total_bytes();
    for decode in [Fidelity::Fast, Fidelity::Exact] {
        let usual = LoaderOptions { decode, ..options() };
        let (cpu, of_cpu) = epoch(&dataset.pipeline(&on_cpu(&usual)), 1);
        assert!(of_cpu.reads.skipped > whole / 20, "{:?} of {whole}", of_cpu.reads);
        for decoder in [GpuDecoder::Own, GpuDecoder::Auto, GpuDecoder::NvJpeg] {
            let asked = LoaderOptions { decoder, ..usual.clone() };
            let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 1);
            assert!(gpu == cpu, "{decode:?} {decoder:?}");
            assert_eq!(stats.reads.skipped, of_cpu.reads.skipped, "{decode:?} {decoder:?}");
            let by_kernel = if decoder == GpuDecoder::NvJpeg { 0 } else { 24 };
            assert_eq!((stats.gpu.decoded_cuda_packed, stats.decoded_cpu()), (by_kernel, 24 - by_kernel));
        }
        // Without the CPU's help, an image may have to be restored for nvJPEG, which needs all of its bytes.
        let alone = own(LoaderOptions { cpu_decode: CpuDecode::Never, ..usual });
        let (gpu, stats) = epoch(&pipeline(&dataset, &alone, AllowedBackends::All), 1);
        assert!(gpu == cpu && stats.reads.skipped == 0, "{:?}", stats.reads);
    }
}

#[test]
fn who_decodes_goes_by_the_setting() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(16, |sample| sample % 2 == 0);
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&options())), 0);
    for (decoder, [packed, nvjpeg, by_cpu]) in
        [(GpuDecoder::Auto, [8, 8, 0]), (GpuDecoder::Own, [8, 0, 8]), (GpuDecoder::NvJpeg, [0, 8, 8])]
    {
        let asked = LoaderOptions { decoder, ..options() };
        let (batches, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 0);
        let gpu = &stats.gpu;
        let of_nvjpeg = gpu.decoded_hardware + gpu.decoded_cuda + gpu.decoded_cuda_batched;
        let counted = [gpu.decoded_cuda_packed, of_nvjpeg, stats.decoded_cpu()];
        assert_eq!(counted, [packed, nvjpeg, by_cpu], "{decoder:?}");
        assert!(batches == cpu || decoder != GpuDecoder::Own, "nvJPEG alone may round in its own way");
        assert_eq!((stats.rebuilt, gpu.decoded_again), (0, 0));
    }
}

#[test]
fn little_memory_changes_no_byte() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(48, |sample| sample % 3 != 0);
    let asked = own(LoaderOptions { batch_size: 24, ..options() });
    let (expected, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 1);
    let small = small(&dataset, &asked, AllowedBackends::All, 48 << 10);
    for _ in 0..3 {
        assert!(epoch(&small, 1).0 == expected);
    }
}

/// After all buffers have their size, no memory is allocated for a batch. Kernels fetch the bytes that they decode, so
/// that the number of copies (of tables) does not depend on the number of images.
#[test]
fn no_packed_image_takes_a_copy_of_its_own() {
    let (cuda, nvjpeg) = stand_in::both();
    let dataset = dataset(64, |_| true);
    let copies = |batch_size: u32| {
        let asked = own(LoaderOptions { batch_size, ..options() });
        let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
        for window in 0..60 {
            let (made, copied) = (never(&cuda, &nvjpeg), cuda.calls("cuMemcpyHtoDAsync_v2"));
            for number in 4 * window..4 * window + 4 {
                for batch in batches(&pipeline, number) {
                    drop(batch.images().lend(StreamRef::LEGACY).unwrap());
                }
            }
            if never(&cuda, &nvjpeg) == made {
                return (cuda.calls("cuMemcpyHtoDAsync_v2") - copied) / (4 * 64 / u64::from(batch_size));
            }
        }
        panic!("something is made for every few batches");
    };
    let (small, large) = (copies(8), copies(32));
    assert!(small == large && small < 8, "{small} copies of 8 images, {large} of 32");
}

/// Flips a bit in the middle of the rows of a packed image, so that some epoch's crop contains it.
fn damage_rows(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let head = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let plain = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
    let middle = (head + bytes.len() - plain) / 2;
    bytes[middle] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_answered_as_on_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(24, |_| true);
    [3, 11, 20].into_iter().for_each(|sample| damage_rows(&dataset.path(sample)));
    // Damages the head of this image.
    let mut bytes = std::fs::read(dataset.path(7)).unwrap();
    bytes[30] ^= 1;
    std::fs::write(dataset.path(7), bytes).unwrap();
    let mut again = 0;
    for on_error in [OnError::Zero, OnError::Skip] {
        let asked = own(LoaderOptions { on_error, train: Some(true), ..options() });
        let (cpu, gpu) =
            (dataset.pipeline(&on_cpu(&asked)), pipeline(&dataset, &asked, AllowedBackends::All));
        for number in 0..3 {
            let ((got, stats), (expected, _)) = (epoch(&gpu, number), epoch(&cpu, number));
            assert!(got == expected, "{on_error:?}, epoch {number}");
            again += stats.gpu.decoded_again;
        }
    }
    assert!(again > 0, "the kernel has found damage");
    let message = |pipeline: &Pipeline| {
        let mut running = pipeline.epoch(0, 0, 1, 0).unwrap();
        std::iter::repeat_with(|| running.next_batch()).find_map(Result::err).unwrap().to_string()
    };
    let asked =
        own(LoaderOptions { batch_size: 24, shuffle: Some(Shuffling::Off), train: Some(false), ..options() });
    let by_gpu = message(&pipeline(&dataset, &asked, AllowedBackends::All));
    assert_eq!(by_gpu, message(&dataset.pipeline(&on_cpu(&asked))));
    let never = LoaderOptions { cpu_decode: CpuDecode::Never, decoder: GpuDecoder::Auto, ..asked };
    let by_gpu = message(&pipeline(&dataset, &never, AllowedBackends::All));
    assert!(by_gpu.contains("a row of MCUs is damaged"), "{by_gpu}");
}

/// Damages bits in rows that are read, and in rows that are not.
#[test]
fn damage_of_what_is_read_in_parts_is_answered_as_on_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::photographs(24).packed();
    let shard = dataset.beside("data").join("000000.packed");
    let mut bytes = std::fs::read(&shard).unwrap();
    let images = dataset.index().total_bytes() as usize;
    (images / 50..images).step_by(images / 40).for_each(|at| bytes[at] ^= 2);
    std::fs::write(&shard, bytes).unwrap();
    for decoder in [GpuDecoder::Own, GpuDecoder::NvJpeg] {
        let asked = LoaderOptions { decoder, on_error: OnError::Zero, ..options() };
        let (cpu, gpu) =
            (dataset.pipeline(&on_cpu(&asked)), pipeline(&dataset, &asked, AllowedBackends::All));
        let (mut again, mut failed) = (0, 0);
        for number in 0..3 {
            let ((got, stats), (expected, of_cpu)) = (epoch(&gpu, number), epoch(&cpu, number));
            assert!(got == expected, "{decoder:?}, epoch {number}");
            assert_eq!(stats.reads.skipped, of_cpu.reads.skipped);
            again += stats.gpu.decoded_again;
            failed += 24 - of_cpu.decoded_cpu();
        }
        assert!((again > 0) == (decoder == GpuDecoder::Own) && failed > 0, "{again} and {failed}");
    }
}

/// Packs a dataset with `foreload pack` into a directory of this name next to it.
fn packed_dataset(of: &Dataset, name: &str) -> Arc<DatasetIndex> {
    let (into, index) = (of.beside(name), of.beside(&format!("{name}-index")));
    let program = Path::new(env!("CARGO_BIN_EXE_foreload"));
    let root = of.path(0).parent().unwrap().parent().unwrap().to_owned();
    succeeds(Command::new(program).arg("pack").args([&root, &into]).env("FORELOAD_INDEX_DIR", &index));
    let options = IndexOptions { directory: Some(index), ..IndexOptions::default() };
    Arc::new(DatasetIndex::open(&into, &options).unwrap())
}

#[test]
fn the_cpu_may_do_nothing_only_where_all_is_packed() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let plain = Dataset::folder(8);
    let never = own(LoaderOptions { cpu_decode: CpuDecode::Never, ..options() });
    let refused = never.check(&plain.index()).unwrap_err().to_string();
    assert!(refused.contains("decoder: is own") && refused.contains("foreload pack"), "{refused}");
    let index = packed_dataset(&plain, "all");
    let (batches, stats) = epoch(&Pipeline::new(index.clone(), never.check(&index).unwrap()), 0);
    assert_eq!((batches.len(), stats.gpu.decoded_cuda_packed, stats.decoded_cpu()), (1, 8, 0));
    let nvjpeg = LoaderOptions { decoder: GpuDecoder::NvJpeg, ..never.clone() };
    let refused = nvjpeg.check(&index).unwrap_err().to_string();
    assert!(refused.contains("decoder: is nvjpeg, which cannot decode packed images"), "{refused}");
    // A file that cannot be restored byte for byte was stored unchanged.
    let file = std::fs::read(plain.path(5)).unwrap();
    let (coded, end) = file.split_at(file.len() - 2);
    std::fs::write(plain.path(5), [coded, &[0x55], end].concat()).unwrap();
    let index = packed_dataset(&plain, "but one");
    let zero = LoaderOptions { on_error: OnError::Zero, ..never.clone() };
    let (batches, stats) = epoch(&Pipeline::new(index.clone(), zero.check(&index).unwrap()), 0);
    assert_eq!(batches[0].1[2].iter().filter(|&&bit| bit == 1).count(), 7);
    assert_eq!((stats.gpu.decoded_cuda_packed, stats.decoded_cpu()), (7, 0));
    let pipeline = Pipeline::new(index.clone(), never.check(&index).unwrap());
    let error = pipeline.epoch(0, 0, 1, 0).unwrap().next_batch().err().unwrap().to_string();
    assert!(error.contains("the image is neither packed nor indexed, and decoder=\"own\""), "{error}");
}

/// The tables of a batch are in device memory of each lane, and are counted.
#[test]
fn tables_count_as_device_memory() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(8, |_| true);
    let cap = |decoder| {
        let asked = LoaderOptions { batch_size: 256, decoder, ..options() };
        let pools = asked.check(&dataset.index()).unwrap().device_pools.unwrap();
        pools.cap_for(16 << 20).unwrap()
    };
    let tables = cap(GpuDecoder::Auto) - cap(GpuDecoder::NvJpeg);
    assert!((3 * 256 * 1000..3 * 256 * 10_000).contains(&tables), "{tables}");
}

#[test]
fn nvjpeg_is_not_needed() {
    passes(&mut child(works_without_nvjpeg));
}

#[test]
#[ignore = "runs in a process that has no nvJPEG"]
fn works_without_nvjpeg() {
    let _cuda = stand_in::cuda();
    let dataset = dataset(16, |sample| sample != 3);
    let asked = own(options());
    let refused = options().check(&dataset.index()).unwrap_err().to_string();
    assert!(refused.contains("decoder=\"own\" works without it"), "{refused}");
    let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 0);
    let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 0);
    assert!(gpu == cpu);
    assert_eq!((stats.gpu.decoded_cuda_packed, stats.decoded[Backend::Region]), (15, 1));
    // A packed dataset needs no nvJPEG, but a warning says that nvJPEG is missing.
    let index = packed_dataset(&Dataset::folder(8), "all");
    let config = options().check(&index).unwrap();
    assert_eq!((config.device, config.decoder), (Device::Cuda { ordinal: 0 }, GpuDecoder::Own));
    let strict = LoaderOptions { decoder: GpuDecoder::NvJpeg, ..options() };
    assert!(strict.check(&index).is_err());
    let auto = LoaderOptions { device: "auto".into(), ..asked };
    assert_eq!(auto.check(&dataset.index()).unwrap().device, Device::Cuda { ordinal: 0 });
}

/// Without a GPU the setting is accepted and has no effect.
#[test]
fn the_setting_is_taken_without_a_gpu() {
    let dataset = dataset(8, |_| true);
    let asked = own(LoaderOptions { cpu_decode: CpuDecode::Never, ..on_cpu(&options()) });
    assert_eq!(epoch(&dataset.pipeline(&asked), 0).1.decoded[Backend::Packed], 8);
}
