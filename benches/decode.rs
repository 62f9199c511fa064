//! Decoding the crops of RandomResizedCrop, and whole images, compared with libjpeg's C code without SIMD.
//!
//! The images are generated, 500×375 in 4:2:0 with noise, unless `FORELOAD_BENCH_DATA` names a directory of JPEG files
//! (searched two levels deep, 200 files). `make limits` compares with libjpeg-turbo as it is distributed.

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use foreload::testing::augment::{Fidelity, MemoryFormat, Recipe, Transforms};
use foreload::testing::decode::{Decoder, Planes, Region};
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::simd::Level;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use libjpeg_reference::{J_COLOR_SPACE, pixels_into};

const RECIPE: &str = r#"[{"RandomResizedCrop": {"size": 224}}, {"RandomHorizontalFlip": {}}]"#;

/// Reads the JPEG files below a directory.
fn read(directory: &Path, depth: u32, files: &mut Vec<Vec<u8>>) {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .expect("FORELOAD_BENCH_DATA")
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if files.len() >= 200 {
            return;
        } else if path.is_dir() && depth > 0 {
            read(&path, depth - 1, files);
        } else if path.extension().is_some_and(|name| name == "jpg" || name == "jpeg" || name == "JPEG") {
            files.push(std::fs::read(path).unwrap());
        }
    }
}

/// Makes images with about as many bits per pixel as ImageNet's.
fn make() -> Vec<Vec<u8>> {
    let (width, height) = (500u16, 375u16);
    let image = |index| {
        let mut random = RandomKey::new(b"bench", 0, 0, Use::Augment).stream(index);
        let mut pixels = Vec::new();
        for y in 0..u64::from(height) {
            for x in 0..u64::from(width) {
                let shade = 60 + (x * (index + 2) / 16 + y / 4) % 120;
                let grain = random.below(24);
                pixels.extend([shade, shade / 2 + 40, 200 - shade].map(|value| (value + grain) as u8));
            }
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 92);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
        bytes
    };
    (0..16).map(image).collect()
}

fn whole(width: u32, height: u32) -> Region {
    Region { x: 0, y: 0, width, height }
}

fn decode(criterion: &mut Criterion) {
    let mut files = Vec::new();
    match std::env::var_os("FORELOAD_BENCH_DATA") {
        Some(directory) => read(Path::new(&directory), 2, &mut files),
        None => files = make(),
    }
    assert!(!files.is_empty(), "no JPEG files in FORELOAD_BENCH_DATA");
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(files.len() as u64)).sample_size(10);
    let asked = Transforms::from_json(RECIPE).unwrap();
    let recipe = Recipe::new(&asked, MemoryFormat::Nchw, Fidelity::Fast).unwrap();
    let keys = recipe.keys(1, 0);
    let mut planes = Planes::default();
    for level in Level::available() {
        let mut decoder = Decoder::with_level(100_000_000, level);
        group.bench_function(BenchmarkId::new("crop", level.name()), |bencher| {
            bencher.iter(|| {
                for (index, file) in files.iter().enumerate() {
                    let crop = |width, height| {
                        recipe.draw(&keys, index as u64, 0, (width, height)).unwrap().region()
                    };
                    decoder.decode(file, crop, &mut planes).unwrap();
                    black_box(&planes);
                }
            });
        });
        group.bench_function(BenchmarkId::new("whole", level.name()), |bencher| {
            bencher.iter(|| {
                for file in &files {
                    decoder.decode(file, whole, &mut planes).unwrap();
                    black_box(&planes);
                }
            });
        });
    }
    let mut pixels = Vec::new();
    group.bench_function("libjpeg without SIMD, whole, RGB", |bencher| {
        bencher.iter(|| {
            for file in &files {
                pixels_into(file, J_COLOR_SPACE::JCS_RGB, &mut pixels).unwrap();
                black_box(&pixels);
            }
        });
    });
}

criterion_group!(benches, decode);
criterion_main!(benches);
