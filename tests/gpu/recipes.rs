//! Random recipes on a GPU: lists of all transforms that change pixels, some nested in others, some that erase
//! rectangles of the finished image. A batch has the bits of the CPU's, whatever the list.

use crate::common::{Dataset, seeds};
use crate::pipeline::{on_cpu, pipeline};
use crate::stand_in;
use crate::views::{asked, epoch, steady_calls};
use foreload::testing::augment::{Fidelity, MemoryFormat};
use foreload::testing::batch::Place;
use foreload::testing::config::{AllowedBackends, LoaderOptions, OnError};
use foreload::testing::rng::{RandomKey, RandomStream, Use};

/// The number of views of a loader; each has its own list.
const VIEWS: u64 = 25;

/// The number of loaders of the campaign; each has its own lists.
const LOADERS: u64 = 200;

fn one<'a>(random: &mut RandomStream, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

fn tenths(random: &mut RandomStream, most: u64) -> f64 {
    random.below(most + 1) as f64 / 10.0
}

/// Arguments that most warps share.
fn warp(random: &mut RandomStream) -> String {
    let filter = one(random, &["nearest", "bilinear"]);
    let fill = one(random, &["0", "null", "[124, 116, 104]"]);
    format!(r#""interpolation": {filter:?}, "fill": {fill}"#)
}

/// A transform that changes pixels; if it `may_nest`, perhaps one that contains others.
fn transform(random: &mut RandomStream, may_nest: bool) -> String {
    match random.below(if may_nest { 21 } else { 18 }) {
        0 | 1 => {
            let [b, c, s, h] = [9, 9, 9, 5].map(|most| tenths(random, most));
            format!(
                r#"{{"ColorJitter": {{"brightness": {b}, "contrast": {c}, "saturation": {s}, "hue": {h}}}}}"#
            )
        }
        2 => r#"{"RandomGrayscale": {"p": 0.5}}"#.into(),
        3 => format!(r#"{{"GaussianBlur": {{"kernel_size": {}}}}}"#, one(random, &["3", "[9, 5]", "23"])),
        4 => format!(r#"{{"RandomSolarize": {{"threshold": {}}}}}"#, random.below(256)),
        5 => format!(r#"{{"RandomPosterize": {{"bits": {}}}}}"#, random.below(9)),
        6 => r#"{"RandomInvert": {}}"#.into(),
        7 => r#"{"RandomEqualize": {"p": 0.8}}"#.into(),
        8 => r#"{"RandomAutocontrast": {"p": 0.8}}"#.into(),
        9 => format!(r#"{{"RandomAdjustSharpness": {{"sharpness_factor": {}}}}}"#, tenths(random, 30)),
        10 => format!(r#"{{"RandomRotation": {{"degrees": 180, {}}}}}"#, warp(random)),
        11 => format!(
            r#"{{"RandomAffine": {{"degrees": 30, "translate": [0.2, 0.1], "scale": [0.5, 1.5],
                "shear": [-20, 20], {}}}}}"#,
            warp(random)
        ),
        12 => r#"{"RandomPhotometricDistort": {}}"#.into(),
        13 => format!(r#"{{"RandAugment": {{"magnitude": {}, {}}}}}"#, random.below(31), warp(random)),
        14 => format!(r#"{{"TrivialAugmentWide": {{{}}}}}"#, warp(random)),
        15 => {
            let policy = one(random, &["imagenet", "cifar10", "svhn"]);
            format!(r#"{{"AutoAugment": {{"policy": {policy:?}, {}}}}}"#, warp(random))
        }
        16 => format!(r#"{{"AugMix": {{"mixture_width": {}}}}}"#, 1 + random.below(5)),
        17 => r#"{"TimmRandAugment": {"magnitude": 9, "magnitude_std": 0.5, "increasing": true}}"#.into(),
        number => {
            let within: Vec<_> = (0..1 + random.below(3)).map(|_| transform(random, false)).collect();
            let name = ["RandomApply", "RandomChoice", "RandomOrder"][number as usize - 18];
            format!(r#"{{"{name}": {{"transforms": [{}]}}}}"#, within.join(", "))
        }
    }
}

/// A whole list.
fn list(random: &mut RandomStream) -> String {
    let (height, width) = (12 + random.below(30), 12 + random.below(30));
    let mut steps = vec![format!(r#"{{"RandomResizedCrop": {{"size": [{height}, {width}]}}}}"#)];
    steps.extend((0..random.below(4)).map(|_| transform(random, true)));
    steps.insert(1 + random.below(steps.len() as u64) as usize, r#"{"RandomHorizontalFlip": {}}"#.into());
    if random.below(3) == 0 {
        steps.push(r#"{"RandomErasing": {"value": [200, 30, 90]}}"#.into());
    }
    let dtype = one(random, &["uint8", "float32", "float16", "bfloat16"]);
    steps.push(format!(r#"{{"ToDtype": {{"dtype": {dtype:?}}}}}"#));
    if dtype != "uint8" {
        steps.push(r#"{"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}"#.into());
        if random.below(2) == 0 {
            let value = one(random, &["0", "[0.5, -1, 2]", r#""random""#, r#""color""#]);
            steps.push(format!(r#"{{"RandomErasing": {{"value": {value}}}}}"#));
        }
    }
    format!("[{}]", steps.join(", "))
}

#[test]
fn random_recipes_are_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    for loader in seeds(LOADERS) {
        let random = &mut RandomKey::new(b"recipes", 2, 0, Use::Augment).stream(loader);
        let lists: Vec<_> = (0..VIEWS).map(|_| list(random)).collect();
        let views: Vec<_> =
            lists.iter().map(|list| format!(r#"{{"Views": {{"n": 1, "transforms": {list}}}}}"#)).collect();
        let (decode, memory_format) = match random.below(2) {
            0 => (Fidelity::Fast, MemoryFormat::Nchw),
            _ => (Fidelity::Exact, MemoryFormat::Nhwc),
        };
        let asked = LoaderOptions { decode, memory_format, ..asked(&format!("[{}]", views.join(", "))) };
        let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), loader, Place::Cuda(0));
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), loader, Place::Host);
        for (gpu, cpu) in gpu.iter().zip(&cpu) {
            let wrong = gpu.iter().zip(cpu).position(|(gpu, cpu)| gpu != cpu);
            let list = wrong.map(|view| lists.get(view));
            assert!(wrong.is_none(), "loader {loader}, view {wrong:?}: {list:?}");
        }
        assert_eq!(gpu.len(), 2);
    }
}

/// The buffer for programs grows once if they are longer than its first size. A failed sample is zero bytes, even if
/// rectangles of all others are erased.
#[test]
fn long_programs_find_room_and_failed_samples_stay_zero() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(32);
    dataset.spoil(5);
    let blurs = r#"{"GaussianBlur": {"kernel_size": 61, "sigma": 9}}, {"Grayscale": {}}"#.to_owned();
    let blurs = [r#"{"RandomResizedCrop": {"size": 40}}"#.to_owned(), vec![blurs; 20].join(", ")];
    let erased = r#"{"RandomErasing": {"p": 1, "value": "random"}}"#;
    let plain = [r#"{"RandomResizedCrop": {"size": 40}}"#, r#"{"ToDtype": {"dtype": "float16"}}"#, erased];
    let lists = [blurs.join(", "), plain.join(", ")];
    for list in lists {
        let asked = LoaderOptions { on_error: OnError::Zero, ..asked(&format!("[{list}]")) };
        let gpu = pipeline(&dataset, &asked, AllowedBackends::Cpu);
        let cpu = dataset.pipeline(&on_cpu(&asked));
        for number in 0..3 {
            let (batches, _) = epoch(&gpu, number, Place::Cuda(0));
            assert!(batches == epoch(&cpu, number, Place::Host).0, "epoch {number} of {list}");
            let failed = batches.iter().flat_map(|batch| {
                let bytes = batch[0].len() / batch[3].len();
                batch[0].chunks(bytes).zip(&batch[3]).filter(|(_, valid)| **valid == 0)
            });
            let failed: Vec<_> = failed.collect();
            assert!(failed.len() == 1 && failed[0].0.iter().all(|byte| *byte == 0));
        }
    }
}

/// Programs cost a batch a second launch per view and, after buffers have their size, no copy and no allocation.
#[test]
fn programs_cost_a_batch_one_launch() {
    let (cuda, _nvjpeg) = stand_in::both();
    let list = r#"[{"RandomResizedCrop": {"size": 24}}, {"RandomApply": {"transforms": [{"AugMix": {}}]}},
        {"ColorJitter": {"brightness": 0.4, "hue": 0.1}}, {"GaussianBlur": {"kernel_size": 23}},
        {"ToDtype": {"dtype": "float32"}}, {"RandomErasing": {"value": "random"}}]"#;
    // There are eight batches, with planes of 64 images, and for each batch a table and its columns.
    assert_eq!(steady_calls(&cuda, list), [2 * 8, 64 + 2 * 8]);
}
