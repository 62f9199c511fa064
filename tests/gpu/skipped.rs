//! Images that a decoder reports as decoded but did not write: old contents of memory must never be delivered as
//! images.

use crate::common::{Dataset, finished};
use crate::pipeline::{epoch, mean_difference, on_cpu, options, pipeline};
use crate::stand_in;
use foreload::testing::augment::cuda::{ImageParams, POISON, PoisonCheck};
use foreload::testing::augment::{Axis, DType, Fidelity, Filter, MemoryFormat, Output, Padding, View};
use foreload::testing::config::{AllowedBackends, CpuDecode, LoaderOptions, OnError};
use foreload::testing::decode::{ColorModel, Planes, PlanesLayout};
use jpeg_encoder::{ColorType, Encoder};

#[test]
fn an_image_that_the_engine_skipped_goes_to_the_next_decoder() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(64);
    let asked = LoaderOptions { dtype: DType::U8, ..options() };
    let on_cpu = dataset.pipeline(&on_cpu(&asked));
    for backends in [AllowedBackends::All, AllowedBackends::Hardware] {
        nvjpeg.reset();
        let pipeline = pipeline(&dataset, &asked, backends);
        let (_, stats) = epoch(&pipeline, 0);
        assert_eq!(stats.gpu.decoded_again, 0, "{backends:?}");
        // The engine worked when it was probed, and then began to skip images.
        nvjpeg.knobs("skip");
        for number in 1..4 {
            let (gpu, stats) = epoch(&pipeline, number);
            let (cpu, _) = epoch(&on_cpu, number);
            let again = stats.gpu.decoded_again;
            assert!(again >= 8, "{backends:?}: {again} in 8 batches");
            // A single image is no batch for the kernels, and an image that was skipped twice goes straight to the CPU.
            let by_cpu = stats.decoded_cpu();
            assert!(by_cpu >= again, "{backends:?}: {stats:?}");
            assert_eq!(stats.gpu.decoded_hardware, 64 - by_cpu, "{stats:?}");
            for ((gpu, _), (cpu, _)) in gpu.iter().zip(&cpu) {
                for (place, (gpu, cpu)) in gpu.chunks(3 * 32 * 32).zip(cpu.chunks(3 * 32 * 32)).enumerate() {
                    let difference = mean_difference(gpu, cpu);
                    assert!(difference <= 2.0, "{backends:?}, image {place}: {difference} grey levels");
                }
            }
        }
        let said = pipeline.index().notices().take().join("\n");
        assert!(said.contains("reports success for images that it did not decode"), "{said}");
    }
}

/// If no other decoder is allowed, the same one tries again. If it skips the image again, that is an error, and never
/// an older image.
#[test]
fn a_skipped_image_that_no_other_decoder_may_have_is_an_error() {
    let (_cuda, nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let asked = LoaderOptions { cpu_decode: CpuDecode::Never, on_error: OnError::Zero, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::Hardware);
    epoch(&pipeline, 0);
    nvjpeg.knobs("skip");
    let running = finished(&pipeline, 1);
    let again = running.stats().gpu.decoded_again;
    assert_eq!((running.failed(), again), (2, 4), "one of each batch, twice");
}

/// An image whose last column has the grey level of the poison is decoded a second time, not more often.
#[test]
fn an_image_that_looks_like_poison_is_decoded_twice_and_delivered() {
    let (_cuda, _nvjpeg) = stand_in::both();
    // Regions end at a multiple of the MCU, so that the last column has the poison's highest byte.
    let [first, other] = POISON.map(|word| (word >> 24) as u8);
    let dataset = Dataset::folder(16);
    for sample in 0..16 {
        let level = [first, other, 128][sample % 3];
        let mut file = Vec::new();
        let pixels = vec![level; 3 * 208 * 160];
        Encoder::new(&mut file, 95).encode(&pixels, 208, 160, ColorType::Rgb).unwrap();
        std::fs::write(dataset.path(sample), file).unwrap();
    }
    let dataset = dataset.indexed_anew();
    let asked =
        LoaderOptions { train: Some(false), dtype: DType::U8, cpu_decode: CpuDecode::Never, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::Hardware);
    let (gpu, stats) = epoch(&pipeline, 0);
    let (cpu, _) =
        epoch(&dataset.pipeline(&on_cpu(&LoaderOptions { cpu_decode: CpuDecode::Fallback, ..asked })), 0);
    assert!(gpu.iter().zip(&cpu).all(|(gpu, cpu)| mean_difference(&gpu.0, &cpu.0) <= 1.0));
    assert!((6..=12).contains(&stats.gpu.decoded_again), "{stats:?}");
    assert_eq!((stats.gpu.decoded_hardware, stats.decoded_cpu()), (16, 0), "{stats:?}");
    assert!(pipeline.index().notices().take().is_empty(), "it is no decoder's fault");
}

/// If a column has one level from top to bottom, all of its points may equal the poison. That does not mean that the
/// decoder skips images: no warning is given, and the image is delivered.
#[test]
fn a_narrow_image_that_looks_like_poison_is_no_failure() {
    let (_cuda, _nvjpeg) = stand_in::both();
    // Each row begins with the poison's lowest byte.
    let [first, other] = POISON.map(|word| word as u8);
    let dataset = Dataset::folder(16);
    for sample in 0..16 {
        let mut file = Vec::new();
        let pixels = [[first, other][sample % 2]; 3 * 40];
        Encoder::new(&mut file, 95).encode(&pixels, 1, 40, ColorType::Rgb).unwrap();
        std::fs::write(dataset.path(sample), file).unwrap();
    }
    let dataset = dataset.indexed_anew();
    let asked = LoaderOptions { train: Some(false), dtype: DType::U8, ..options() };
    let pipeline = pipeline(&dataset, &asked, AllowedBackends::All);
    let by_cpu = dataset.pipeline(&on_cpu(&asked));
    for number in 0..4 {
        let (gpu, stats) = epoch(&pipeline, number);
        let (cpu, _) = epoch(&by_cpu, number);
        assert!(gpu.iter().zip(&cpu).all(|(gpu, cpu)| mean_difference(&gpu.0, &cpu.0) <= 1.0));
        assert_eq!((stats.gpu.decoded_hardware, stats.decoded_cpu()), (16, 0), "{stats:?}");
        assert_eq!(stats.gpu.decoded_again, 8, "those of either level");
    }
    let said = pipeline.index().notices().take();
    assert!(said.is_empty(), "{said:?}");
}

/// Makes planes of an image of this size with 4:2:0 sampling, all of one level, whose rows begin at multiples of
/// `align`.
fn planes(width: u32, height: u32, color: ColorModel, align: usize, level: u8) -> Planes {
    let mut planes = Planes { color, image_width: width, image_height: height, ..Planes::default() };
    for (index, plane) in planes.planes.iter_mut().enumerate() {
        let step = if index == 0 { 1 } else { 2 };
        (plane.width, plane.height) = (width.div_ceil(step), height.div_ceil(step));
        (plane.full_width, plane.full_height) = (plane.width, plane.height);
        (plane.step_x, plane.step_y) = (step, step);
        plane.stride = (plane.width as usize).next_multiple_of(align);
        plane.data = vec![level; plane.stride * plane.height as usize];
    }
    planes
}

/// The parameters of an image whose planes are at `base`.
fn entry(layout: &PlanesLayout, base: *const u8) -> ImageParams {
    let output = Output {
        height: 8,
        width: 8,
        dtype: DType::U8,
        format: MemoryFormat::Nchw,
        mean: [0.0; 3],
        std: [1.0; 3],
        fill: [0; 3],
        fidelity: Fidelity::Fast,
    };
    let luma = &layout.planes[0];
    let whole = |length| Axis { start: 0, length, resized: 8, offset: 0, filled: [0; 2] };
    let view = View {
        x: whole(luma.full_width),
        y: whole(luma.full_height),
        flip: false,
        vertical_flip: false,
        filter: Filter::default(),
        padding: Padding::default(),
    };
    ImageParams::new(layout, base as u64, &view, &output)
}

/// The number of lines of an image that the kernel finds untouched. It must not depend on the order of the threads.
fn untouched(entry: &ImageParams, poison: u32) -> u32 {
    let (table, mut count) = (entry.as_bytes().as_ptr(), 0u32);
    let counts = &raw mut count;
    let arguments = [(&raw const table).cast(), (&raw const counts).cast(), (&raw const poison).cast()];
    let found = [1, 255, 77].map(|turn| {
        // SAFETY: these are the kernel's arguments; the caller holds the planes.
        unsafe { kernels_stand_in::launch_untouched([1, 1, 1], [256, 1, 1], 96, turn, arguments) }.unwrap();
        count
    });
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    found[0]
}

#[test]
fn lines_that_nobody_wrote_are_found_whatever_the_shape() {
    for (width, height) in [(1, 1), (1, 300), (2, 3), (33, 32), (500, 375), (4000, 3)] {
        for (color, lines) in [(ColorModel::YCbCr, 24), (ColorModel::Gray, 8)] {
            let planes = planes(width, height, color, 1, 128);
            let layout = PlanesLayout::staged(&planes);
            let mut arena = vec![[POISON[0]; 16]; layout.bytes.div_ceil(64) as usize + 1];
            let base = arena.as_mut_ptr().cast::<u8>();
            let entry = entry(&layout, base);
            let what = format!("{width}×{height}, {color:?}");
            assert_eq!(untouched(&entry, POISON[0]), lines, "{what}");
            assert_eq!(untouched(&entry, POISON[1]), 0, "{what}: another round, another poison");
            // SAFETY: `at` is inside of the arena.
            let write = |at: usize| unsafe { base.add(at).write(128) };
            for plane in layout.used() {
                for (x, y) in (0..plane.height).flat_map(|y| (0..plane.width).map(move |x| (x, y))) {
                    // All columns but the last are written, as by a decoder that rounds down.
                    if x + 1 < plane.width || plane.width == 1 {
                        write(plane.offset as usize + (y * plane.stride + x) as usize);
                    }
                }
            }
            let columns = layout.used().iter().filter(|plane| plane.width > 1).count() as u32;
            assert_eq!(untouched(&entry, POISON[0]), columns, "{what}: the last column of each plane");
            for plane in layout.used() {
                (0..plane.height).for_each(|y| {
                    write(plane.offset as usize + (y * plane.stride + plane.width - 1) as usize)
                });
            }
            assert_eq!(untouched(&entry, POISON[0]), 0, "{what}: all is written");
        }
    }
    assert_eq!(untouched(&ImageParams::blank(), POISON[0]), 0, "a blank image has no planes");
}

/// No flat image, of any level and in any round, counts as skipped. An image that was skipped always does, if it is not
/// narrow.
#[test]
fn no_flat_image_passes_for_skipped() {
    for (width, height) in
        [(1, 1), (1, 9), (2, 2), (3, 5), (8, 1), (8, 8), (16, 16), (33, 32), (125, 40), (249, 8), (500, 375)]
    {
        for color in [ColorModel::YCbCr, ColorModel::Gray] {
            let what = format!("{width}×{height}, {color:?}");
            let mut alike = 0;
            for level in 0..=255 {
                // The alignment is that of nvJPEG's planes.
                let planes = planes(width, height, color, 64, level);
                let layout = PlanesLayout::staged(&planes);
                let mut arena =
                    vec![[u32::from_ne_bytes([level; 4]); 16]; layout.bytes.div_ceil(64) as usize];
                let entry = entry(&layout, arena.as_mut_ptr().cast());
                let lines = POISON.map(|word| untouched(&entry, word));
                let max_false_lines = PoisonCheck::max_false_lines(&layout);
                assert!(
                    lines.iter().all(|lines| *lines <= max_false_lines),
                    "{what}, level {level}: {lines:?}"
                );
                assert!(lines.contains(&0), "{what}, level {level}: no round would do");
                alike += lines.iter().filter(|lines| **lines > 0).count();
                if level == 0 {
                    arena.fill([POISON[0]; 16]);
                    let certain = layout.used().iter().any(|plane| plane.width > 3 && plane.width % 124 != 1);
                    assert_eq!(untouched(&entry, POISON[0]) > max_false_lines, certain, "{what}: unwritten");
                }
            }
            println!("{what}: {alike} of 512 levels and rounds are decoded twice");
        }
    }
}
