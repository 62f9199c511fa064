//! The kernels, compiled for the CPU, make the same bits as the CPU's pass for any image, output, shape of the launch
//! and order of the threads.

use foreload::testing::augment::cuda::{ImageParams, Launch, OutputParams};
use foreload::testing::augment::{Augmenter, Axis, DType, Fidelity, MemoryFormat, Output, View};
use foreload::testing::decode::{Planes, PlanesLayout};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;

use super::reference::Image;
use super::{FILTERS, PADDINGS, between, middle, one, output_up_to, scaled, stream, view};
use crate::seeds::seeds;

/// Memory with the alignment of device memory.
#[derive(Clone, Default)]
struct Arena(Vec<[u64; 8]>);

impl Arena {
    fn new(bytes: usize) -> Self {
        Self(vec![[0xa5a5_a5a5_a5a5_a5a5; 8]; bytes.div_ceil(64)])
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: integers are valid as bytes, and each element has 64 bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), 64 * self.0.len()) }
    }
}

/// Copies planes to their places in `layout`.
fn upload(planes: &Planes, layout: &PlanesLayout) -> Arena {
    let mut arena = Arena::new(layout.bytes as usize);
    for (plane, to) in planes.planes.iter().zip(layout.used()) {
        let bytes = plane.stride * plane.height as usize;
        let bytes = &plane.data[..bytes.min(plane.data.len())];
        arena.bytes()[to.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    arena
}

fn output(random: &mut RandomStream, most: u32) -> Output {
    let fidelity = one(random, &[Fidelity::Fast, Fidelity::Exact]);
    Output {
        dtype: one(random, &[DType::F32, DType::F16, DType::Bf16, DType::U8]),
        format: one(random, &[MemoryFormat::Nchw, MemoryFormat::Nhwc]),
        ..output_up_to(most, random, fidelity)
    }
}

/// Runs a launch on this machine, with the threads in the order of `turn`.
fn run(output: &Output, launch: &Launch, turn: u32, table: &[ImageParams], images: u64) {
    let entries: Vec<u8> = table.iter().flat_map(|entry| entry.as_bytes()).copied().collect();
    let mut memory = Arena::new(entries.len());
    memory.bytes()[..entries.len()].copy_from_slice(&entries);
    let (table, params) = (memory.address(), launch.params);
    let arguments =
        [(&raw const table).cast(), (&raw const images).cast(), params.as_bytes().as_ptr().cast()];
    // SAFETY: the three arguments have the right types; the addresses point to memory of the callers.
    let done = unsafe {
        kernels_stand_in::launch(
            Launch::kernel(output),
            launch.grid,
            launch.block,
            params.shared_bytes,
            turn,
            arguments,
        )
    };
    done.unwrap();
}

fn coprime(random: &mut RandomStream, n: u32) -> u32 {
    fn divisor(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    loop {
        let turn = between(random, 1, n.max(2) - 1);
        if divisor(turn, n) == 1 {
            return turn;
        }
    }
}

/// A launch of another shape that must give the same bytes: smaller tiles and steps, less shared memory.
fn reshaped(random: &mut RandomStream, output: &Output, launch: &Launch) -> Launch {
    let (mut grid, mut params) = (launch.grid, launch.params);
    params.step_rows = between(random, 1, params.step_rows);
    params.tile_rows = scaled(random, 1, 64.min(output.height));
    params.shared_bytes = between(random, 28, 64) << 10;
    grid[0] = params.tiles_across * output.height.div_ceil(params.tile_rows);
    Launch { grid, params, ..*launch }
}

/// Checks that one launch for all images makes the same bytes as the CPU makes for each image.
fn assert_same(random: &mut RandomStream, output: &Output, images: &[(Planes, View)], context: &str) {
    let bytes = output.bytes();
    let mut expected = vec![0; images.len() * bytes];
    let mut augmenter = Augmenter::new(output.clone(), Level::detect());
    for ((planes, view), to) in images.iter().zip(expected.chunks_exact_mut(bytes)) {
        augmenter.render(planes, view, to);
    }
    let uploaded: Vec<_> = images
        .iter()
        .zip(0..images.len() as u32)
        // Entries can be in any order.
        .rev()
        .map(|((planes, view), place)| {
            let layout = PlanesLayout::staged(planes);
            let arena = upload(planes, &layout);
            (ImageParams::new(&layout, arena.address(), view, output).at(place), arena)
        })
        .collect();
    let table: Vec<_> = uploaded.iter().map(|(entry, _)| *entry).collect();
    let usual = Launch::new(output, table.len() as u32, 132);
    let other = reshaped(random, output, &usual);
    for (launch, turn) in [(usual, 1), (usual, usual.block[0] - 1), (other, coprime(random, other.block[0]))]
    {
        let mut out = Arena::new(expected.len());
        run(output, &launch, turn, &table, out.address());
        let got = &out.bytes()[..expected.len()];
        let wrong = got.iter().zip(&expected).position(|(a, b)| a != b);
        assert!(
            wrong.is_none(),
            "byte {wrong:?} of {bytes} an image: {context}: {launch:?}, turn {turn}, {output:?}"
        );
    }
}

#[test]
fn the_kernels_make_the_same_bytes() {
    for case in 0..500 {
        let random = &mut stream(20, case);
        let output = output(random, if case % 10 == 0 { 300 } else { 90 });
        let images: Vec<_> = (0..between(random, 1, 3))
            .map(|_| {
                let image = Image::random(random, 400);
                let view = view(random, &image, &output);
                (image.planes(&view.region(&output)), view, image)
            })
            .collect();
        let context: Vec<_> = images.iter().map(|(_, view, image)| format!("{view:?} {image}")).collect();
        let images: Vec<_> = images.into_iter().map(|(planes, view, _)| (planes, view)).collect();
        assert_same(random, &output, &images, &format!("case {case}: {}", context.join("; ")));
    }
}

/// Filters that are too long for shared memory, single pixels, enlargements, and crops of these make the same bytes.
#[test]
fn extreme_sizes_make_the_same_bytes() {
    let sizes = [
        (9000, 3, 16),
        (3, 9000, 16),
        (1, 1, 40),
        (2, 2, 4000),
        (5000, 1, 3),
        (1, 5000, 3),
        (3000, 2000, 1),
        (700, 2500, 20),
        (2500, 700, 20),
        (4000, 60, 90),
    ];
    // Six cases of each size.
    for number in seeds(60) {
        let (width, height, full) = sizes[number as usize % sizes.len()];
        let case = number / sizes.len() as u64;
        let random = &mut stream(21, case);
        let image = Image::sized(random, width, height);
        let output = Output { width: 16, height: between(random, 1, 16), ..output(random, 16) };
        let view = View {
            x: middle(width, full),
            y: middle(height, full),
            flip: case % 2 == 1,
            vertical_flip: case % 3 == 1,
            filter: one(random, &FILTERS),
            padding: one(random, &PADDINGS),
        };
        let planes = image.planes(&view.region(&output));
        let context = format!("case {case}: {width}×{height} → {full}: {image}");
        assert_same(random, &output, &[(planes, view)], &context);
    }
}

/// Typical sizes make the same bytes: crops of photographs to 224×224, and large crops of large photographs.
#[test]
fn usual_sizes_make_the_same_bytes() {
    for (case, (width, height)) in
        [(500, 375), (375, 500), (1600, 1200), (2600, 1800)].into_iter().enumerate()
    {
        for (format, dtype) in [(MemoryFormat::Nchw, DType::F16), (MemoryFormat::Nhwc, DType::F32)] {
            let random = &mut stream(22, case as u64);
            let side = [224, 256, 288, 384][case];
            let output = Output { width: side, height: side, dtype, format, ..output(random, 10) };
            let image = Image::sized(random, width, height);
            let view = View {
                x: Axis { start: 3, length: width - 7, resized: side, offset: 0, filled: [0; 2] },
                y: Axis { start: 2, length: height - 2, resized: side, offset: 0, filled: [0; 2] },
                flip: case % 2 == 0,
                vertical_flip: case % 3 == 1,
                filter: one(random, &FILTERS),
                padding: one(random, &PADDINGS),
            };
            let planes = image.planes(&view.region(&output));
            assert_same(random, &output, &[(planes, view)], &format!("{width}×{height}: {image}"));
        }
    }
}

#[test]
fn a_failed_sample_becomes_zero_bytes() {
    for case in 0..40 {
        let random = &mut stream(23, case);
        let output = output(random, 60);
        let launch = Launch::new(&output, 3, 132);
        let mut out = Arena::new(3 * output.bytes());
        run(&output, &launch, 1, &[2, 0, 1].map(|place| ImageParams::blank().at(place)), out.address());
        assert!(out.bytes()[..3 * output.bytes()].iter().all(|&byte| byte == 0), "case {case}");
        assert!(out.bytes()[3 * output.bytes()..].iter().all(|&byte| byte == 0xa5), "case {case}");
    }
}

/// Covers every sign, exponent and boundary between two roundings, with its neighbours.
#[test]
fn floats_are_rounded_as_the_half_crate_does() {
    let check = |bits: u32| {
        let value = f32::from_bits(bits);
        if !value.is_nan() {
            assert_eq!(kernels_stand_in::half_bits(value), half::f16::from_f32(value).to_bits(), "{value:e}");
            assert_eq!(
                kernels_stand_in::brain_bits(value),
                half::bf16::from_f32(value).to_bits(),
                "{value:e}"
            );
        }
    };
    for upper in 0..=u16::MAX {
        for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            check(u32::from(upper) << 16 | lower);
        }
    }
    // A float16 keeps ten binary digits; the thirteen digits below them decide the rounding.
    for upper in 0..1 << 19 {
        for lower in [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
            check(upper << 13 | lower);
        }
    }
    let random = &mut stream(24, 0);
    (0..1_000_000).for_each(|_| check(random.below(1 << 32) as u32));
}

#[test]
fn what_the_stand_in_takes_is_what_a_launch_gives() {
    assert_eq!(kernels_stand_in::PARAMETERS, [8, 8, size_of::<OutputParams>()]);
    assert_eq!(kernels_stand_in::ENTRY, ImageParams::BYTES);
    let random = &mut stream(25, 0);
    for fidelity in [Fidelity::Fast, Fidelity::Exact] {
        let output = Output { fidelity, ..output(random, 20) };
        assert!(kernels_stand_in::KERNELS.contains(&Launch::kernel(&output)));
    }
}
