//! Indexed images on a GPU, alone and mixed with packed ones. Foreload's own kernels decode both, and their batches are
//! the CPU's bit for bit, whatever the other samples and settings are.

use crate::common::{Dataset, jpeg, wait_for, with_cache};
use crate::packed::own;
use crate::pipeline::{epoch, on_cpu, options, pipeline, small};
use crate::several_images::{self, Shard};
use crate::stand_in;
use crate::views;
use foreload::Shuffling;
use foreload::testing::augment::{DType, Fidelity, MemoryFormat};
use foreload::testing::batch::Place;
use foreload::testing::config::{AllowedBackends, CpuDecode, GpuDecoder, LoaderOptions, OnError};
use foreload::testing::decode::Backend;
use foreload::testing::decode::forms::{ConvertedFormat, FormatConverter};
use foreload::testing::tier::{CacheStats, FormChoice};

/// A dataset whose samples are all indexed, or in turn indexed, packed and plain JPEGs.
fn dataset(samples: usize, is_mixed: bool) -> Dataset {
    let dataset = Dataset::folder(samples);
    for sample in 0..samples {
        match (is_mixed, sample % 3) {
            (false, _) | (true, 0) => _ = dataset.bring_to(ConvertedFormat::Indexed, sample),
            (true, 1) => _ = dataset.bring_to(ConvertedFormat::Packed, sample),
            _ => {}
        }
    }
    dataset.indexed_anew()
}

#[test]
fn batches_of_indexed_images_are_those_of_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(32, false);
    for (decode, dtype, memory_format, train, decoder) in [
        (Fidelity::Fast, DType::F32, MemoryFormat::Nchw, true, GpuDecoder::Auto),
        (Fidelity::Exact, DType::U8, MemoryFormat::Nhwc, true, GpuDecoder::Own),
        (Fidelity::Exact, DType::F32, MemoryFormat::Nchw, false, GpuDecoder::Own),
    ] {
        let asked = LoaderOptions { decode, dtype, memory_format, train: Some(train), decoder, ..options() };
        let (gpu, stats) = epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 3);
        let (cpu, of_cpu) = epoch(&dataset.pipeline(&on_cpu(&asked)), 3);
        assert!(gpu == cpu, "{decode:?} {dtype:?} {memory_format:?}, train {train}");
        assert_eq!(of_cpu.decoded[Backend::Indexed], 32);
        assert_eq!(
            (stats.gpu.decoded_cuda_indexed, stats.decoded_cpu(), stats.gpu.decoded_again),
            (32, 0, 0)
        );
    }
}

/// For an indexed image, nvJPEG gets the JPEG inside, and makes of it what it makes of the original file.
#[test]
fn who_decodes_goes_by_the_setting() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let (mixed, plain) = (dataset(24, true), Dataset::folder(24));
    // Without shuffling, so that samples are in the same order: datasets with other bytes are shuffled in another
    // order.
    let in_order = LoaderOptions { shuffle: Some(Shuffling::Off), train: Some(false), ..options() };
    let (cpu, _) = epoch(&mixed.pipeline(&on_cpu(&in_order)), 0);
    for (decoder, [indexed, packed, nvjpeg, by_cpu]) in [
        // If the decoder of files is fixed, an index changes nothing.
        (GpuDecoder::Auto, [0, 8, 16, 0]),
        (GpuDecoder::Own, [8, 8, 0, 8]),
        (GpuDecoder::NvJpeg, [0, 0, 16, 8]),
    ] {
        let asked = LoaderOptions { decoder, ..in_order.clone() };
        let (batches, stats) = epoch(&pipeline(&mixed, &asked, AllowedBackends::Hardware), 0);
        let gpu = &stats.gpu;
        let counted = [gpu.decoded_cuda_indexed, gpu.decoded_cuda_packed, gpu.decoded_hardware];
        assert_eq!((counted, stats.decoded_cpu()), ([indexed, packed, nvjpeg], by_cpu), "{decoder:?}");
        match decoder {
            GpuDecoder::Own => assert!(batches == cpu),
            _ => assert_eq!(batches.len(), cpu.len()),
        }
        if decoder == GpuDecoder::NvJpeg {
            let (files, _) = epoch(&pipeline(&plain, &asked, AllowedBackends::Hardware), 0);
            let bytes = files[0].0.len() / 8;
            let images = batches
                .iter()
                .zip(&files)
                .flat_map(|(batch, files)| batch.0.chunks(bytes).zip(files.0.chunks(bytes)));
            for (sample, (image, of_file)) in images.enumerate().filter(|(sample, _)| sample % 3 != 1) {
                assert!(image == of_file, "sample {sample}");
            }
        }
    }
}

/// A cache that another job has filled may hold packed copies. Where only nvJPEG may decode, it gets files restored
/// from these copies.
#[test]
fn nvjpeg_alone_decodes_packed_copies_of_another_job() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(200);
    let packed = with_cache(dataset.cached(200.0, on_cpu(&options())), |cache| {
        cache.directory.form = FormChoice::Packed
    });
    let filling = dataset.pipeline(&packed);
    epoch(&filling, 0);
    let cache = filling.cache().expect("a cache");
    cache.flush();
    // At the start of an epoch the loader looks again for samples to convert.
    epoch(&filling, 1);
    // A few files are so small that they are not converted.
    let is_over =
        |stats: &CacheStats| stats.all().converted_samples + stats.all().unconvertible_samples >= 200;
    let converted = wait_for("all are packed", || cache.stats(), is_over).all().converted_samples;
    assert!(converted > 150);
    drop(filling);
    let asked = LoaderOptions { decoder: GpuDecoder::NvJpeg, cpu_decode: CpuDecode::Never, ..options() };
    let (expected, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Hardware), 1);
    let cached = with_cache(dataset.cached(200.0, asked), |cache| cache.directory.form = FormChoice::AsIs);
    let with_copies = pipeline(&dataset, &cached, AllowedBackends::Hardware);
    let (batches, stats) = epoch(&with_copies, 1);
    assert!(batches == expected);
    assert_eq!((stats.gpu.decoded_hardware, stats.rebuilt, stats.decoded_cpu()), (200, converted, 0));
    assert_eq!(with_copies.cache().expect("a cache").stats().source.source_reads, 0);
}

#[test]
fn damaged_indexed_images_are_what_they_are_on_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(24, false);
    for sample in [3, 11, 20] {
        let mut bytes = std::fs::read(dataset.path(sample)).unwrap();
        // A marker in the middle of the coded data: the rows after it have no data.
        let middle = bytes.len() * 3 / 5;
        bytes[middle..middle + 2].copy_from_slice(&[0xFF, 0xD9]);
        std::fs::write(dataset.path(sample), bytes).unwrap();
    }
    let mut again = 0;
    for on_error in [OnError::Zero, OnError::Skip] {
        let asked = own(LoaderOptions { on_error, train: Some(true), ..options() });
        let (cpu, gpu) =
            (dataset.pipeline(&on_cpu(&asked)), pipeline(&dataset, &asked, AllowedBackends::All));
        for number in 0..3 {
            let ((got, stats), (expected, of_cpu)) = (epoch(&gpu, number), epoch(&cpu, number));
            assert!(got == expected, "{on_error:?}, epoch {number}");
            assert_eq!(stats.concealed, of_cpu.concealed);
            again += stats.gpu.decoded_again;
        }
    }
    assert!(again > 0, "the kernel has found damage");
}

/// The sub-batches are so small that a lane waits for its own tables while the engine decodes other images.
#[test]
fn little_memory_changes_no_byte() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(48, true);
    for decoder in [GpuDecoder::Own, GpuDecoder::Auto] {
        let asked = LoaderOptions { batch_size: 24, decoder, ..options() };
        let (expected, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Hardware), 1);
        let small = small(&dataset, &asked, AllowedBackends::Hardware, 64 << 10);
        for _ in 0..3 {
            assert!(epoch(&small, 1).0 == expected, "{decoder:?}");
        }
    }
}

#[test]
fn a_resumed_epoch_goes_on_with_the_bytes_of_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(40, true);
    let asked = own(options());
    let (expected, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 2);
    let gpu = pipeline(&dataset, &asked, AllowedBackends::All);
    for first in [1, 3, 4] {
        let mut running = gpu.epoch(2, 0, 1, first).unwrap();
        for (images, _) in &expected[first as usize..] {
            let batch = running.next_batch().unwrap().unwrap();
            assert!(batch.images().read().unwrap()[..] == images[..], "from step {first} on");
        }
        assert!(running.next_batch().unwrap().is_none());
    }
}

#[test]
fn several_views_are_made_of_one_image() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = dataset(24, true);
    for transforms in [views::TWO, views::TEN] {
        let asked = own(views::asked(transforms));
        let (gpu, stats) = views::epoch(&pipeline(&dataset, &asked, AllowedBackends::All), 3, Place::Cuda(0));
        let (cpu, _) = views::epoch(&dataset.pipeline(&on_cpu(&asked)), 3, Place::Host);
        assert!(gpu == cpu, "{transforms}");
        assert_eq!((stats.gpu.decoded_cuda_indexed, stats.gpu.decoded_cuda_packed), (8, 8));
    }
}

#[test]
fn samples_of_several_images_have_the_bytes_of_the_cpu() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let left = |sample: u64| {
        let (file, mut made) = (jpeg(sample), Vec::new());
        let form = [ConvertedFormat::Indexed, ConvertedFormat::Packed][sample as usize % 2];
        FormatConverter::default().make(form, &file, &mut made).unwrap();
        made
    };
    for apart in [false, true] {
        let shard = Shard::with_left(24, &[7], apart, left);
        for on_error in [OnError::Zero, OnError::Skip] {
            let asked = own(LoaderOptions { on_error, ..several_images::asked() });
            let gpu = shard.pipeline(&asked, |_| ());
            let (got, stats) = views::epoch(&gpu, 1, Place::Cuda(0));
            assert!(got == shard.expected(&asked, 1), "apart: {apart}, {on_error:?}");
            assert!(stats.gpu.decoded_cuda_indexed >= 11 && stats.gpu.decoded_cuda_packed >= 11, "{stats:?}");
        }
    }
}
