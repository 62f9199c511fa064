//! The augmentation pass over a typical crop: 400×300 pixels, 4:2:0, to 224×224, into a batch of 64. Also operations on
//! the pixels of an image of that size, each compared with a list without operations.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use foreload::testing::augment::{
    Augmenter, Axis, DType, Fidelity, Filter, MemoryFormat, Output, Padding, Recipe, Renderer, Transforms,
    View,
};
use foreload::testing::decode::{ColorModel, Plane, Planes};
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::simd::Level;

const WIDTH: u32 = 500;
const HEIGHT: u32 = 375;
const BATCH: usize = 64;

/// A plane of smooth areas with some noise; the pass takes the same time for any pixels.
fn plane(index: u64, step: u32) -> Plane {
    let mut random = RandomKey::new(b"", 0, 0, Use::Augment).stream(index);
    let (width, height) = (WIDTH.div_ceil(step), HEIGHT.div_ceil(step));
    let stride = (width as usize).next_multiple_of(64);
    let data = (0..stride * height as usize + 64)
        .map(|i| (i / stride / 2 + i % stride / 4) as u8 / 2 + random.below(64) as u8);
    Plane {
        data: data.collect(),
        stride,
        x0: 0,
        y0: 0,
        width,
        height,
        full_width: width,
        full_height: height,
        step_x: step,
        step_y: step,
    }
}

/// An image of three planes.
fn planes() -> Planes {
    Planes {
        image_width: WIDTH,
        image_height: HEIGHT,
        color: ColorModel::YCbCr,
        planes: [plane(0, 1), plane(1, 2), plane(2, 2)],
    }
}

fn pass(criterion: &mut Criterion) {
    let planes = planes();
    let axis = |start, length| Axis { start, length, resized: 224, offset: 0, filled: [0; 2] };
    let (x, y) = (axis(51, 400), axis(30, 300));
    let mut group = criterion.benchmark_group("augment");
    for fidelity in [Fidelity::Fast, Fidelity::Exact] {
        for (filter, dtype, format) in [
            (Filter::Bilinear, DType::F32, MemoryFormat::Nchw),
            (Filter::Bilinear, DType::F32, MemoryFormat::Nhwc),
            (Filter::Bilinear, DType::F16, MemoryFormat::Nchw),
            (Filter::Bilinear, DType::U8, MemoryFormat::Nchw),
            (Filter::Bicubic, DType::F32, MemoryFormat::Nchw),
            (Filter::Nearest, DType::F32, MemoryFormat::Nchw),
        ] {
            let view = View { x, y, flip: true, vertical_flip: false, filter, padding: Padding::Constant };
            let output = Output {
                height: 224,
                width: 224,
                dtype,
                format,
                mean: [0.485, 0.456, 0.406],
                std: [0.229, 0.224, 0.225],
                fill: [0; 3],
                fidelity,
            };
            for level in Level::available() {
                let mut augmenter = Augmenter::new(output.clone(), level);
                let mut batch = vec![0u8; BATCH * output.bytes()];
                let mut slot = 0;
                let name = format!("{fidelity:?} {filter:?} {dtype:?} {format:?}").to_lowercase();
                group.bench_function(BenchmarkId::new(name, level.name()), |b| {
                    b.iter(|| {
                        let out = &mut batch[slot * output.bytes()..][..output.bytes()];
                        augmenter.render(black_box(&planes), black_box(&view), out);
                        slot = (slot + 1) % BATCH;
                    });
                });
            }
        }
    }
    group.finish();
}

/// The operations after the resize, with fixed parameters. Grayscale, the cheapest, shows the cost of going through
/// grey levels instead of writing the batch directly.
const OPERATIONS: [(&str, &str); 13] = [
    ("none", ""),
    ("grayscale", r#"{"Grayscale": {}}"#),
    ("brightness", r#"{"ColorJitter": {"brightness": [1.3, 1.3]}}"#),
    ("contrast", r#"{"ColorJitter": {"contrast": [1.3, 1.3]}}"#),
    ("saturation", r#"{"ColorJitter": {"saturation": [1.3, 1.3]}}"#),
    ("hue", r#"{"ColorJitter": {"hue": [0.07, 0.07]}}"#),
    ("equalize", r#"{"RandomEqualize": {"p": 1}}"#),
    ("sharpness", r#"{"RandomAdjustSharpness": {"sharpness_factor": 1.7, "p": 1}}"#),
    ("blur", r#"{"GaussianBlur": {"kernel_size": 23, "sigma": 2}}"#),
    ("rotation", r#"{"RandomRotation": {"degrees": [20, 20], "interpolation": "bilinear"}}"#),
    ("nearest rotation", r#"{"RandomRotation": {"degrees": [20, 20]}}"#),
    ("shear", r#"{"RandomAffine": {"degrees": 0, "shear": [17, 17], "interpolation": "bilinear"}}"#),
    ("erasing", r#"{"ToDtype": {"dtype": "float32"}}, {"RandomErasing": {"p": 1, "value": "random"}}"#),
];

fn operations(criterion: &mut Criterion) {
    let planes = planes();
    let mut group = criterion.benchmark_group("operations");
    for (name, list) in OPERATIONS {
        let resize = r#"{"Resize": {"size": [224, 224]}}"#;
        let list = if list.is_empty() { format!("[{resize}]") } else { format!("[{resize}, {list}]") };
        let transforms = Transforms::from_json(&list).expect("a list");
        let recipe = Recipe::new(&transforms, MemoryFormat::Nchw, Fidelity::Fast).expect("transforms");
        let drawn = recipe.draw(&recipe.keys(0, 0), 0, 0, (WIDTH, HEIGHT)).expect("an image of any size");
        let drawn = &drawn.views()[0];
        let mut out = vec![0u8; recipe.views()[0].output(drawn).bytes()];
        for level in Level::available() {
            let mut renderer = Renderer::new(&recipe, level);
            group.bench_function(BenchmarkId::new(name, level.name()), |b| {
                b.iter(|| renderer.render(0, black_box(&planes), black_box(drawn), &mut out));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pass, operations);
criterion_main!(benches);
