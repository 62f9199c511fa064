//! The augmentation pass against independent references: a plain double-precision resize, libjpeg's own pixels, and
//! itself on every instruction set.

mod cuda;
mod libjpeg;
mod reference;

use foreload::testing::augment::{
    Augmenter, Axis, DType, Fidelity, Filter, MemoryFormat, Output, Padding, View,
};
use foreload::testing::decode::{ColorModel, Planes};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::simd::Level;
use reference::Image;

const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

fn stream(test: u64, case: u64) -> RandomStream {
    RandomKey::new(b"augment test", test, 0, Use::Augment).stream(case)
}

fn between(random: &mut RandomStream, low: u32, high: u32) -> u32 {
    low + random.below(u64::from(high - low) + 1) as u32
}

/// A number from `low` to `high`, uniform in its logarithm.
fn scaled(random: &mut RandomStream, low: u32, high: u32) -> u32 {
    (random.uniform(f64::from(low).ln(), f64::from(high + 1).ln()).exp() as u32).clamp(low, high)
}

const FILTERS: [Filter; 5] =
    [Filter::Nearest, Filter::NearestExact, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];
const PADDINGS: [Padding; 4] = [Padding::Constant, Padding::Edge, Padding::Reflect, Padding::Symmetric];

fn one<T: Copy>(random: &mut RandomStream, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// A fill colour, which is black half of the time.
fn fill(random: &mut RandomStream) -> [u8; 3] {
    let colour = random.below(2) as u32;
    [0; 3].map(|_| (colour * between(random, 0, 255)) as u8)
}

fn output(random: &mut RandomStream, fidelity: Fidelity) -> Output {
    output_up_to(90, random, fidelity)
}

/// An output of at most `most` pixels per side.
fn output_up_to(most: u32, random: &mut RandomStream, fidelity: Fidelity) -> Output {
    Output {
        height: scaled(random, 1, most),
        width: scaled(random, 1, most),
        dtype: DType::F32,
        format: MemoryFormat::Nchw,
        mean: MEAN,
        std: STD,
        fill: fill(random),
        fidelity,
    }
}

/// A crop, or sometimes a window of the resized whole image, perhaps with padding.
fn axis(random: &mut RandomStream, size: u32, n: u32) -> Axis {
    if random.below(3) > 0 {
        let length = scaled(random, 1, size);
        Axis {
            start: random.below(u64::from(size - length) + 1) as u32,
            length,
            resized: n,
            offset: 0,
            filled: [0; 2],
        }
    } else {
        let full = scaled(random, 1, 150);
        let window = random.below(u64::from(full + n)) as i32 - n as i32 + 1;
        Axis { start: 0, length: size, resized: full, offset: window, filled: [0; 2] }
    }
}

fn view(random: &mut RandomStream, image: &Image, output: &Output) -> View {
    let mut view = View {
        x: axis(random, image.width, output.width),
        y: axis(random, image.height, output.height),
        flip: random.below(2) == 1,
        vertical_flip: random.below(2) == 1,
        filter: one(random, &FILTERS),
        padding: one(random, &PADDINGS),
    };
    if view.padding == Padding::Constant && random.below(2) == 0 {
        for axis in [&mut view.x, &mut view.y] {
            let first = between(random, 0, axis.resized);
            axis.filled = [first, between(random, 0, axis.resized - first) / 2];
        }
    }
    view
}

fn render(output: &Output, level: Level, planes: &Planes, view: &View) -> Vec<u8> {
    // The output is not aligned, and full of bytes that must be overwritten.
    let mut out = vec![0xa5; output.bytes() + 1];
    Augmenter::new(output.clone(), level).render(planes, view, &mut out[1..]);
    out.split_off(1)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

/// The grey levels of normalised channel-first values.
fn levels(values: &[f32]) -> Vec<f64> {
    let plane = values.len() / 3;
    let level = |(i, &v): (usize, &f32)| {
        let c = i / plane;
        (f64::from(v) * STD[c] + MEAN[c]) * 255.0
    };
    values.iter().enumerate().map(level).collect()
}

/// The mean and the largest absolute difference.
fn difference(a: &[f64], b: &[f64]) -> (f64, f64) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let (sum, largest) = differences.fold((0.0, 0f64), |(sum, largest), d| (sum + d, largest.max(d)));
    (sum / a.len() as f64, largest)
}

#[test]
fn exact_is_pil_on_libjpegs_pixels() {
    for filter in FILTERS {
        let (mut total, mut count) = (0.0, 0.0);
        for case in 0..200 {
            let random = &mut stream(1, case);
            let image = Image::random(random, 300);
            let output = output(random, Fidelity::Exact);
            let view = View { filter, ..view(random, &image, &output) };
            let planes = image.planes(&view.region(&output));
            let got = levels(&floats(&render(&output, Level::detect(), &planes, &view)));
            let want = reference::exact(&image, &view, &output);
            let (mean, largest) = difference(&got, &want);
            // Two roundings can both go the other way, and this can affect most pixels of a small image. With nearest
            // filters, pixels are not rounded.
            let most = if matches!(filter, Filter::Nearest | Filter::NearestExact) { 0.01 } else { 2.01 };
            assert!(
                largest < most && (mean < 0.2 || got.len() < 60),
                "case {case}: {mean} {largest}: {view:?} {image}"
            );
            total += mean * got.len() as f64;
            count += got.len() as f64;
        }
        println!("{filter:?}: mean difference from PIL's arithmetic: {}", total / count);
        assert!(total / count < 0.02, "{filter:?}: mean difference from PIL's arithmetic: {}", total / count);
    }
}

#[test]
fn fast_is_the_real_resize_within_a_fraction_of_a_level() {
    for case in 0..300 {
        let random = &mut stream(2, case);
        let image = Image::random(random, 300);
        let output = output(random, Fidelity::Fast);
        let view = view(random, &image, &output);
        let planes = image.planes(&view.region(&output));
        let got = levels(&floats(&render(&output, Level::detect(), &planes, &view)));
        let want = reference::fast(&image, &view, &output);
        let (mean, largest) = difference(&got, &want);
        assert!(largest < 0.08 && mean < 0.02, "case {case}: {mean} {largest}: {view:?} {image}");
    }
}

#[test]
fn every_level_gives_the_same_bytes() {
    for case in 0..400 {
        let random = &mut stream(3, case);
        let image = Image::random(random, 700);
        let either = [Fidelity::Fast, Fidelity::Exact][random.below(2) as usize];
        let mut output = output(random, either);
        output.dtype = [DType::F32, DType::F16, DType::Bf16, DType::U8][random.below(4) as usize];
        output.format = [MemoryFormat::Nchw, MemoryFormat::Nhwc][random.below(2) as usize];
        let view = view(random, &image, &output);
        let planes = image.planes(&view.region(&output));
        let portable = render(&output, Level::Portable, &planes, &view);
        for level in Level::available() {
            let same = render(&output, level, &planes, &view) == portable;
            assert!(same, "case {case}: {} differs: {output:?} {view:?} {image}", level.name());
        }
    }
}

/// The size of an image and its address determine whether it is written past the caches. The bytes must not depend on
/// that.
#[test]
fn large_images_are_the_same_wherever_they_begin() {
    for case in 0..48 {
        let random = &mut stream(8, case);
        let image = Image::random(random, 500);
        let mut output = output(random, Fidelity::Fast);
        // Rows fill whole cache lines, with 4 bytes per value and with 2.
        (output.width, output.height) = one(random, &[(224, 224), (192, 231), (448, 99)]);
        output.dtype = one(random, &[DType::F32, DType::F16, DType::Bf16, DType::U8]);
        output.format = one(random, &[MemoryFormat::Nchw, MemoryFormat::Nhwc]);
        let view = view(random, &image, &output);
        let planes = image.planes(&view.region(&output));
        let portable = render(&output, Level::Portable, &planes, &view);
        let mut room = vec![0xa5; output.bytes() + 128];
        let line = room.as_ptr().align_offset(64);
        for level in Level::available() {
            for begin in [line, line + 2, line + 32] {
                room.fill(0xa5);
                let out = &mut room[begin..][..output.bytes()];
                Augmenter::new(output.clone(), level).render(&planes, &view, out);
                assert!(out == portable, "case {case}: {} at {begin}: {output:?} {view:?}", level.name());
            }
        }
    }
}

#[test]
fn formats_and_types_hold_the_same_values() {
    for case in 0..60 {
        let random = &mut stream(4, case);
        let image = Image::random(random, 200);
        let either = [Fidelity::Fast, Fidelity::Exact][random.below(2) as usize];
        let f32s = output(random, either);
        let view = view(random, &image, &f32s);
        let planes = image.planes(&view.region(&f32s));
        let render = |output: &Output| render(output, Level::detect(), &planes, &view);
        let values = floats(&render(&f32s));
        let plane = values.len() / 3;

        let nhwc = floats(&render(&Output { format: MemoryFormat::Nhwc, ..f32s.clone() }));
        assert!((0..values.len()).all(|i| nhwc[i] == values[i % 3 * plane + i / 3]), "case {case}");

        let halves = render(&Output { dtype: DType::F16, ..f32s.clone() });
        let bf16s = render(&Output { dtype: DType::Bf16, ..f32s.clone() });
        let bytes = render(&Output { dtype: DType::U8, ..f32s.clone() });
        let pair = |from: &[u8], i: usize| u16::from_ne_bytes([from[2 * i], from[2 * i + 1]]);
        for ((i, &v), level) in values.iter().enumerate().zip(levels(&values)) {
            assert_eq!(pair(&halves, i), half::f16::from_f32(v).to_bits(), "case {case}");
            assert_eq!(pair(&bf16s, i), half::bf16::from_f32(v).to_bits(), "case {case}");
            assert!((f64::from(bytes[i]) - level).abs() < 0.5001, "case {case}: {} {level}", bytes[i]);
        }
    }
}

/// The sixteen pixels in the middle of `length` source pixels that are resized to `full`.
fn middle(length: u32, full: u32) -> Axis {
    Axis { start: 0, length, resized: full, offset: (full as i32 - 16) / 2, filled: [0; 2] }
}

#[test]
fn huge_reductions_and_enlargements_work() {
    for (width, height, full) in [(9000, 3, 16), (3, 9000, 16), (1, 1, 40), (2, 2, 4000), (5000, 1, 3)] {
        for case in 0..6 {
            let random = &mut stream(5, case);
            let image = Image::sized(random, width, height);
            let output = Output { width: 16, height: 16, ..output(random, Fidelity::Exact) };
            let view = View {
                x: middle(width, full),
                y: middle(height, full),
                flip: case % 2 == 1,
                vertical_flip: case % 3 == 1,
                filter: Filter::Bilinear,
                padding: Padding::Constant,
            };
            let planes = image.planes(&view.region(&output));
            let want = reference::exact(&image, &view, &output);
            let portable = render(&output, Level::Portable, &planes, &view);
            for level in Level::available() {
                assert_eq!(render(&output, level, &planes, &view), portable, "{}", level.name());
            }
            let (mean, largest) = difference(&levels(&floats(&portable)), &want);
            assert!(largest < 2.01, "{width}×{height} → {full}: {mean} {largest} {image}");
        }
    }
}

#[test]
fn an_augmenter_remembers_nothing_of_the_last_image() {
    let random = &mut stream(6, 0);
    let output = Output { width: 50, height: 40, ..output(random, Fidelity::Exact) };
    let fast = Output { fidelity: Fidelity::Fast, ..output.clone() };
    let mut exact_pass = Augmenter::new(output.clone(), Level::detect());
    let mut fast_pass = Augmenter::new(fast.clone(), Level::detect());
    for case in 0..60 {
        let image = Image::random(random, 300);
        let view = view(random, &image, &output);
        let planes = image.planes(&view.region(&output));
        for (pass, output) in [(&mut exact_pass, &output), (&mut fast_pass, &fast)] {
            let mut out = vec![0xa5; output.bytes()];
            pass.render(&planes, &view, &mut out);
            assert_eq!(out, render(output, Level::detect(), &planes, &view), "case {case}");
        }
    }
}

/// Resizes the whole image to its own size: only upsampling and colour conversion have an effect.
#[test]
fn pixels_are_libjpegs_bit_for_bit() {
    for case in 0..120 {
        let random = &mut stream(7, case);
        let (width, height) = (scaled(random, 1, 130), scaled(random, 1, 130));
        let samplings = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4)];
        let sampling = samplings[case as usize % samplings.len()];
        let jpeg = libjpeg::encode(random, width, height, sampling);
        let (planes, rgb) = (libjpeg::planes(&jpeg), libjpeg::rgb(&jpeg));
        assert_eq!(planes.color, ColorModel::YCbCr);
        let output = Output {
            width,
            height,
            dtype: DType::U8,
            format: MemoryFormat::Nhwc,
            mean: MEAN,
            std: STD,
            fill: [0; 3],
            fidelity: Fidelity::Exact,
        };
        let axis = |size| Axis { start: 0, length: size, resized: size, offset: 0, filled: [0; 2] };
        let view = View {
            x: axis(width),
            y: axis(height),
            flip: false,
            vertical_flip: false,
            filter: Filter::Bilinear,
            padding: Padding::Constant,
        };
        for level in Level::available() {
            let same = render(&output, level, &planes, &view) == rgb;
            assert!(same, "case {case}: {width}×{height}, chroma 1/{sampling:?}, {}", level.name());
        }
    }
}
