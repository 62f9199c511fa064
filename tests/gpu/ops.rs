//! Lists of transforms that change colours on a GPU: grey levels first, then a second kernel, with the bits of the CPU.

use crate::common::Dataset;
use crate::pipeline::{on_cpu, pipeline};
use crate::stand_in;
use crate::views::{asked, epoch};
use foreload::testing::augment::{Fidelity, MemoryFormat};
use foreload::testing::batch::Place;
use foreload::testing::config::{AllowedBackends, LoaderOptions, OnError};

/// A list of transforms: a crop of this size, `steps`, grey, and a conversion to this type.
fn grey(size: [u32; 2], steps: &str, dtype: &str) -> String {
    let finish = match dtype {
        "uint8" => "",
        _ => r#", {"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}"#,
    };
    format!(
        r#"[{{"RandomResizedCrop": {{"size": {size:?}}}}}, {{"RandomHorizontalFlip": {{}}}}{steps},
            {{"Grayscale": {{}}}}, {{"ToDtype": {{"dtype": {dtype:?}}}}}{finish}]"#
    )
}

#[test]
fn grey_images_are_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(16);
    let pad = r#", {"Pad": {"padding": [3, 1], "fill": [200, 30, 90]}}"#;
    // Rows consist of whole words or not, and have more pixels than a block has threads.
    for (list, decode, memory_format) in [
        (grey([32, 32], "", "uint8"), Fidelity::Fast, MemoryFormat::Nchw),
        (grey([33, 51], pad, "uint8"), Fidelity::Exact, MemoryFormat::Nhwc),
        (grey([47, 21], pad, "float32"), Fidelity::Fast, MemoryFormat::Nhwc),
        (grey([31, 45], r#", {"Grayscale": {}}"#, "float16"), Fidelity::Exact, MemoryFormat::Nchw),
        (grey([64, 64], pad, "bfloat16"), Fidelity::Fast, MemoryFormat::Nchw),
    ] {
        let asked = LoaderOptions { decode, memory_format, ..asked(&list) };
        let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 1, Place::Cuda(0));
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 1, Place::Host);
        assert!(gpu == cpu, "{list} {decode:?} {memory_format:?}");
        let coloured = list.replace(r#"{"Grayscale": {}}, "#, "");
        let coloured = LoaderOptions { transforms: crate::views::asked(&coloured).transforms, ..asked };
        assert!(epoch(&dataset.pipeline(&on_cpu(&coloured)), 1, Place::Host).0 != cpu, "no step, no test");
    }
}

/// The levels of all views are stored one after another in the same memory. A failed sample is zero, not a normalised
/// zero.
#[test]
fn grey_views_beside_coloured_ones_are_the_cpus() {
    let (cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(24);
    dataset.spoil(7);
    let [large, small] = [[33, 21], [15, 15]].map(|size| grey(size, "", "float32"));
    let plain = r#"[{"RandomResizedCrop": {"size": 24}}]"#;
    let view = |n: u32, list: &str| format!(r#"{{"Views": {{"n": {n}, "transforms": {list}}}}}"#);
    let lists = [view(2, &small), view(1, plain), view(2, &large)];
    for on_error in [OnError::Zero, OnError::Skip] {
        let asked = LoaderOptions { on_error, ..asked(&format!("[{}]", lists.join(","))) };
        let before = cuda.calls("cuLaunchKernel");
        let (gpu, _) = epoch(&pipeline(&dataset, &asked, AllowedBackends::Cpu), 2, Place::Cuda(0));
        assert_eq!(cuda.calls("cuLaunchKernel") - before, 3 * (2 * 4 + 1), "of three batches");
        let (cpu, _) = epoch(&dataset.pipeline(&on_cpu(&asked)), 2, Place::Host);
        assert!(gpu == cpu, "{on_error:?}");
        let failed =
            gpu.iter().map(|batch| batch[7].iter().filter(|&&valid| valid == 0).count()).sum::<usize>();
        assert_eq!(failed, usize::from(on_error == OnError::Zero));
    }
}
