//! A share of the node's processors (`cpu=`) bounds threads and their time, and changes no byte.

use crate::common::{Dataset, epoch_bytes};
use crate::pipeline::options;
use foreload::testing::config::LoaderOptions;

/// The threads of a small budget are enough for all batches, and parked threads are woken at the end.
#[test]
fn same_bytes_within_a_budget() {
    let dataset = Dataset::folder(61);
    let reference = epoch_bytes(&dataset.pipeline(&options()), 3);
    let asked = LoaderOptions { cpu: Some(0.01), threads: None, ..options() };
    let pipeline = dataset.pipeline(&asked);
    for _ in 0..2 {
        assert!(epoch_bytes(&pipeline, 3) == reference);
    }
}

#[test]
fn as_many_threads_are_started_as_the_share_is_processors() {
    let dataset = Dataset::folder(8);
    let started = |cpu, threads| {
        let pipeline = dataset.pipeline(&LoaderOptions { cpu, threads, ..options() });
        assert_eq!(pipeline.cores(), None, "nothing is known before the first epoch");
        epoch_bytes(&pipeline, 0);
        (pipeline.config().threads, pipeline.cores())
    };
    assert_eq!(started(None, Some(3)), (3, None));
    let (threads, cores) = started(Some(1e-6), Some(3));
    assert!(threads == 1 && cores.is_some_and(|cores| cores > 0.0 && cores < 0.1), "{threads}, {cores:?}");
    let (threads, cores) = started(Some(1.0), Some(1));
    assert!(threads == 1 && cores.is_some_and(|cores| cores > 0.0), "{threads}, {cores:?}");
}
