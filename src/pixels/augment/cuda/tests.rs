//! Programs make the same bytes as the CPU's kernels, for random operations and in any order of a block's threads. The
//! tests run the GPU's kernels, compiled for the CPU.

use super::super::ops::{Affine, Erasure, ErasureValues, PixelOp, PixelPass, Rectangle, WarpSampling, erase};
use super::super::{
    Augmenter, Axis, DType, DrawnView, Fidelity, Filter, MemoryFormat, Output, Padding, View,
};
use super::program::{Programs, SPAN_BYTES};
use super::views::{SHARED_BYTES, threads};
use super::{ImageParams, OutputParams};
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;

/// The number of random cases. `FORELOAD_RECIPES` sets another number.
fn recipes() -> u64 {
    std::env::var("FORELOAD_RECIPES").map_or(2000, |number| number.parse().expect("a number of recipes"))
}

fn stream(case: u64) -> RandomStream {
    RandomKey::new(b"programs", 1, 0, Use::Augment).stream(case)
}

fn one<T: Clone>(random: &mut RandomStream, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

fn between(random: &mut RandomStream, low: i32, high: i32) -> i32 {
    low + random.below((high - low + 1) as u64) as i32
}

fn moved(random: &mut RandomStream) -> [f64; 2] {
    [0; 2].map(|_| {
        let (whole, any) = (between(random, -20, 20).into(), random.uniform(-20.0, 20.0));
        one(random, &[whole, whole, any])
    })
}

/// Draws a factor: 0, 1 (which changes nothing), or any number up to 2.5.
fn factor(random: &mut RandomStream) -> f64 {
    let usual = random.uniform(0.0, 2.5);
    one(random, &[0.0, 1.0, usual, usual, usual])
}

fn sampling(random: &mut RandomStream) -> WarpSampling {
    let fills = [None, Some([0.0; 3]), Some([0; 3].map(|_| random.uniform(0.0, 255.0)))];
    let centre = [random.uniform(-9.0, 50.0), random.uniform(-9.0, 50.0)];
    WarpSampling {
        interpolation: one(random, &[Filter::Nearest, Filter::Bilinear, Filter::Bicubic]),
        fill: one(random, &fills),
        center: one(random, &[None, None, Some(centre)]),
    }
}

fn rectangle(random: &mut RandomStream, (width, height): (u32, u32)) -> Rectangle {
    let [i, h] = [0; 2].map(|_| random.below(u64::from(height) + 2) as u32);
    let [j, w] = [0; 2].map(|_| random.below(u64::from(width) + 2) as u32);
    Rectangle { i, j, h, w }
}

fn op(random: &mut RandomStream, size: (u32, u32), may_nest: bool) -> PixelOp {
    let random_shear = random.uniform(-60.0, 60.0);
    match random.below(if may_nest { 20 } else { 19 }) {
        0 => PixelOp::RgbToGrayscale,
        1 => PixelOp::AdjustBrightness { brightness_factor: factor(random) },
        2 => PixelOp::AdjustContrast { contrast_factor: factor(random) },
        3 => PixelOp::AdjustSaturation { saturation_factor: factor(random) },
        4 => {
            let usual = random.uniform(-0.5, 0.5);
            PixelOp::AdjustHue { hue_factor: one(random, &[usual, usual, -0.5, 0.0, 0.5]) }
        }
        5 => PixelOp::AdjustSharpness { sharpness_factor: factor(random) },
        6 => PixelOp::Invert,
        7 => PixelOp::Posterize { bits: between(random, 0, 8) as u32 },
        8 => PixelOp::Solarize { threshold: random.uniform(0.0, 256.0) },
        9 => PixelOp::SolarizeAdd { addition: between(random, -120, 120), threshold: 128 },
        10 => PixelOp::Autocontrast,
        11 => PixelOp::Equalize,
        12 => PixelOp::PermuteChannels { permutation: one(random, &[[2, 0, 1], [1, 0, 2], [0, 0, 2]]) },
        13 => PixelOp::GaussianBlur {
            kernel_size: [0; 2].map(|_| 1 + 2 * between(random, 0, 11) as u32),
            sigma: [0; 2].map(|_| random.uniform(0.1, 3.0)),
        },
        14 => PixelOp::Affine(Affine {
            angle: random.uniform(-180.0, 180.0),
            translate: moved(random),
            scale: random.uniform(0.3, 2.0),
            shear: [0; 2].map(|_| random.uniform(-45.0, 45.0)),
            sampling: sampling(random),
        }),
        15 if random.below(2) == 0 => PixelOp::Affine(Affine {
            angle: 0.0,
            translate: moved(random),
            scale: 1.0,
            shear: one(random, &[[0.0; 2], [random_shear, 0.0]]),
            sampling: sampling(random),
        }),
        15 => {
            let usual = random.uniform(-400.0, 400.0);
            let angle = one(random, &[0.0, 90.0, 180.0, 270.0, usual, usual, usual]);
            PixelOp::Rotate { angle, sampling: sampling(random) }
        }
        16 => PixelOp::HorizontalFlip,
        17 => PixelOp::VerticalFlip,
        18 => {
            let v = [0; 3].map(|_| between(random, 0, 255) as u8);
            PixelOp::Erase { rectangle: rectangle(random, size), v }
        }
        _ => {
            let chains = between(random, 0, 4) as usize;
            let weights = (0..chains).map(|_| random.uniform(0.0, 0.4)).collect();
            PixelOp::Augmix { weights, chains: (0..chains).map(|_| ops(random, size, false)).collect() }
        }
    }
}

fn ops(random: &mut RandomStream, size: (u32, u32), may_nest: bool) -> Vec<PixelOp> {
    (0..random.below(5)).map(|_| op(random, size, may_nest)).collect()
}

fn erasures(random: &mut RandomStream, size: (u32, u32)) -> Vec<Erasure> {
    let numbers = |random: &mut RandomStream| [0; 3].map(|_| random.uniform(-3.0, 300.0) as f32);
    let erasure = |random: &mut RandomStream| Erasure {
        rectangle: rectangle(random, size),
        v: match random.below(2) {
            0 => ErasureValues::Values(numbers(random)),
            _ => ErasureValues::Noise {
                key: [random.next_u32(), random.next_u32()],
                mean: numbers(random),
                std: numbers(random),
            },
        },
    };
    (0..random.below(3)).map(|_| erasure(random)).collect()
}

fn drawn(random: &mut RandomStream, (width, height): (u32, u32)) -> DrawnView {
    let axis = |length| Axis { start: 0, length, resized: length, offset: 0, filled: [0; 2] };
    let (filter, padding) = (Filter::Bilinear, Padding::Constant);
    DrawnView {
        view: View { x: axis(width), y: axis(height), flip: false, vertical_flip: false, filter, padding },
        of_planes: None,
        width,
        height,
        is_resized_mirrored: [false; 2],
        canvas: None,
        dropped: Vec::new(),
        ops: ops(random, (width, height), true),
        erasures: erasures(random, (width, height)),
    }
}

/// Draws levels like a photograph's, or a few different levels, or a single level.
fn levels(random: &mut RandomStream, pixels: usize) -> Vec<u8> {
    let (low, range) = (between(random, 0, 255), one(random, &[1, 3, 40, 255, 255]));
    let slope = between(random, 0, 3) as usize;
    let level = |i: usize, random: &mut RandomStream| {
        (low + (i * slope / 7 % 256) as i32 + between(random, 0, range - 1)).clamp(0, 255) as u8
    };
    (0..3 * pixels).map(|i| level(i, random)).collect()
}

fn output(random: &mut RandomStream) -> Output {
    let side = |random: &mut RandomStream| match random.below(8) {
        0 => between(random, 1, 3) as u32,
        1 => between(random, 60, 130) as u32,
        _ => between(random, 4, 40) as u32,
    };
    Output {
        height: side(random),
        width: side(random),
        dtype: one(random, &[DType::F32, DType::F16, DType::Bf16, DType::U8]),
        format: one(random, &[MemoryFormat::Nchw, MemoryFormat::Nhwc]),
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        fill: [0; 3],
        fidelity: Fidelity::Fast,
    }
}

fn by_cpu(level: Level, output: &Output, drawn: &DrawnView, levels: &[u8]) -> Vec<u8> {
    let mut pass = PixelPass::new(level);
    pass.levels(levels.len() / 3).copy_from_slice(levels);
    let mut out = vec![0; output.bytes()];
    Augmenter::new(output.clone(), level).store(pass.run(&drawn.ops, (drawn.width, drawn.height)), &mut out);
    erase(Level::Portable, &drawn.erasures, output, &mut out);
    out
}

struct Launched {
    entries: Vec<u8>,
    spans: Vec<[u32; 3]>,
    words: Vec<u32>,
    params: OutputParams,
}

impl Launched {
    /// Makes the arguments for images in reverse order; `None` is a blank image.
    fn new(output: &Output, images: &[Option<&DrawnView>], max_sets: usize) -> Self {
        let mut programs = Programs::default();
        programs.begin_view(max_sets);
        images.iter().rev().for_each(|drawn| programs.add(*drawn).unwrap());
        let entries = images.iter().enumerate().rev().flat_map(|(place, drawn)| {
            let entry = drawn.map_or(ImageParams::blank(), |_| ImageParams::default());
            entry.at(place as u32).as_bytes().to_vec()
        });
        let mut bytes = vec![0; programs.bytes()];
        programs.write(&mut bytes);
        let words: Vec<_> = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let (spans, words) = words.split_at(words.len().min(images.len() * SPAN_BYTES / 4));
        Self {
            entries: entries.collect(),
            spans: spans.as_chunks().0.to_vec(),
            words: words.to_vec(),
            params: OutputParams::new(output),
        }
    }

    /// Makes images from the levels in `sets`. `turn` selects the order in which the threads of a block run.
    fn run(&self, n: usize, threads: u32, turn: u32, sets: &mut [u8], set_bytes: u64, images: &mut [u8]) {
        let (table, spans, words) = (self.entries.as_ptr(), self.spans.as_ptr(), self.words.as_ptr());
        let (sets, images, params) = (sets.as_mut_ptr(), images.as_mut_ptr(), self.params.as_bytes());
        let arguments = [
            (&raw const table).cast(),
            (&raw const spans).cast(),
            (&raw const words).cast(),
            (&raw const sets).cast(),
            (&raw const set_bytes).cast(),
            (&raw const images).cast(),
            params.as_ptr().cast(),
        ];
        let (grid, block) = ([n as u32, 1, 1], [threads, 1, 1]);
        // SAFETY: the arguments match the kernel's, and they point to as much memory as it uses.
        unsafe { kernels_stand_in::launch_ops(grid, block, SHARED_BYTES, turn, arguments) }.unwrap();
    }

    fn erase(&self, n: usize, threads: u32, turn: u32, images: &mut [u8]) {
        let (table, spans, words) = (self.entries.as_ptr(), self.spans.as_ptr(), self.words.as_ptr());
        let (images, params) = (images.as_mut_ptr(), self.params.as_bytes());
        let arguments = [
            (&raw const table).cast(),
            (&raw const spans).cast(),
            (&raw const words).cast(),
            (&raw const images).cast(),
            params.as_ptr().cast(),
        ];
        let (grid, block) = ([n as u32, 1, 1], [threads, 1, 1]);
        // SAFETY: the arguments match the kernel's, and they point to as much memory as it uses.
        unsafe { kernels_stand_in::launch_erase(grid, block, SHARED_BYTES, turn, arguments) }.unwrap();
    }
}

/// Returns two launch shapes that must give the same bytes: a number of threads, and an order of the block's threads.
fn shapes(random: &mut RandomStream, output: &Output) -> [(u32, u32); 2] {
    let usual = threads(output.width * output.height);
    let other = 32 * between(random, 1, 16) as u32;
    [(usual, usual - 1), (other, one(random, &[1, 3, 7, 5]))].map(|(threads, turn)| {
        // `turn` must have no common divisor with the number of threads, so that each thread runs once.
        if threads % turn == 0 { (threads, 1) } else { (threads, turn) }
    })
}

#[test]
fn programs_make_the_bytes_of_the_cpu() {
    const SETS: usize = 3 + 4;
    for case in 0..recipes() {
        let random = &mut stream(case);
        let output = output(random);
        let pixels = (output.width * output.height) as usize;
        let n = between(random, 1, 3) as usize;
        let images: Vec<_> = (0..n)
            .map(|_| (drawn(random, (output.width, output.height)), levels(random, pixels), random.below(12)))
            .collect();
        let is_shown = |dice: &u64| *dice > 0;
        let level = one(random, &Level::available().collect::<Vec<_>>());
        let expected: Vec<_> = images
            .iter()
            .flat_map(|(drawn, levels, dice)| match is_shown(dice) {
                true => by_cpu(level, &output, drawn, levels),
                false => vec![0; output.bytes()],
            })
            .collect();
        let requested: Vec<_> =
            images.iter().map(|(drawn, _, dice)| is_shown(dice).then_some(drawn)).collect();
        let launched = Launched::new(&output, &requested, SETS);
        for (threads, turn) in shapes(random, &output) {
            let set_bytes = 3 * pixels * (n + 1);
            let mut sets = vec![0xa5; SETS * set_bytes];
            for (place, (_, levels, _)) in images.iter().enumerate() {
                sets[place * 3 * pixels..][..3 * pixels].copy_from_slice(levels);
            }
            let mut out = vec![0xa5; expected.len()];
            launched.run(n, threads, turn, &mut sets, set_bytes as u64, &mut out);
            let wrong = out.iter().zip(&expected).position(|(got, expected)| got != expected);
            assert!(
                wrong.is_none(),
                "case {case}, {level:?}, {threads} threads in turns of {turn}, byte {wrong:?} of {} an image, \
                 {output:?}: {requested:#?}",
                output.bytes()
            );
        }
    }
}

#[test]
fn finished_images_are_erased_as_on_the_cpu() {
    for case in 0..recipes() / 10 {
        let random = &mut stream(1 << 32 | case);
        let output = output(random);
        let n = between(random, 1, 4) as usize;
        let images: Vec<_> = (0..n).map(|_| drawn(random, (output.width, output.height))).collect();
        let mut expected: Vec<u8> = (0..n * output.bytes()).map(|_| random.next_u32() as u8).collect();
        let before = expected.clone();
        for (drawn, image) in images.iter().zip(expected.chunks_exact_mut(output.bytes())) {
            erase(Level::Portable, &drawn.erasures, &output, image);
        }
        let launched = Launched::new(&output, &images.iter().map(Some).collect::<Vec<_>>(), 0);
        if launched.spans.is_empty() {
            assert!(images.iter().all(|drawn| drawn.erasures.is_empty()), "case {case}");
            continue;
        }
        for (threads, turn) in shapes(random, &output) {
            let mut out = before.clone();
            launched.erase(n, threads, turn, &mut out);
            assert!(out == expected, "case {case}, {threads} threads in turns of {turn}: {images:#?}");
        }
    }
}

/// Images so large that each thread has many pixels, even for operations that read pixels of other threads.
#[test]
fn usual_sizes_make_the_same_bytes() {
    for case in 0..20 {
        let random = &mut stream(2 << 32 | case);
        let output = Output { width: 224, height: 224, ..output(random) };
        let image = drawn(random, (224, 224));
        let levels = levels(random, 224 * 224);
        let launched = Launched::new(&output, &[Some(&image)], 7);
        let mut sets = vec![0xa5; 7 * levels.len()];
        sets[..levels.len()].copy_from_slice(&levels);
        let mut out = vec![0xa5; output.bytes()];
        launched.run(1, 512, 511, &mut sets, levels.len() as u64, &mut out);
        assert!(out == by_cpu(Level::detect(), &output, &image, &levels), "case {case}: {image:#?}");
    }
}
