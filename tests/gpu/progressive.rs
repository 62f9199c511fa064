//! Images whose size depends on the epoch, on a GPU: the lanes of one size end before those of the next begin.

use crate::common::Dataset;
use crate::pipeline::{epoch, on_cpu, options, pipeline};
use crate::stand_in;
use foreload::DType;
use foreload::testing::config::{AllowedBackends, LoaderOptions};
use foreload::testing::pipeline::Pipeline;

#[test]
fn epochs_of_other_sizes_are_the_cpus() {
    let (_cuda, _nvjpeg) = stand_in::both();
    let dataset = Dataset::folder(24);
    let image_size_from = Some([(1, (40, 48)), (2, (16, 20))].into());
    let asked = LoaderOptions { image_size_from, dtype: DType::U8, ..options() };
    let cpu: Pipeline = dataset.pipeline(&on_cpu(&asked));
    let gpu = pipeline(&dataset, &asked, AllowedBackends::All);
    for number in [0, 1, 2, 0] {
        let (of_gpu, of_cpu) = (epoch(&gpu, number).0, epoch(&cpu, number).0);
        assert_eq!((of_gpu.len(), of_cpu.len()), (3, 3));
        for ((images, rest), (expected, of_rest)) in of_gpu.iter().zip(&of_cpu) {
            assert_eq!((images.len(), rest), (expected.len(), of_rest), "epoch {number}");
            let difference = crate::pipeline::mean_difference(images, expected);
            assert!(difference <= 1.5, "epoch {number}: {difference} grey levels");
        }
    }
}
