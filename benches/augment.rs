//! The augmentation pass over a typical crop: 400×300 pixels, 4:2:0, to 224×224, into a batch of 64.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use foreload::testing::augment::{
    Augmenter, Axis, DType, Fidelity, Filter, MemoryFormat, Output, Padding, View,
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

fn pass(criterion: &mut Criterion) {
    let planes = Planes {
        image_width: WIDTH,
        image_height: HEIGHT,
        color: ColorModel::YCbCr,
        planes: [plane(0, 1), plane(1, 2), plane(2, 2)],
    };
    let axis = |start, length| Axis { start, length, resized: 224, offset: 0 };
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

criterion_group!(benches, pass);
criterion_main!(benches);
