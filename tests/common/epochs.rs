//! Epochs that tests run to their end, and the numbers in batches.

use foreload::Error;
use foreload::testing::batch::Batch;
use foreload::testing::pipeline::{Epoch, Pipeline};

/// The batches of an epoch of the only rank.
pub fn batches(pipeline: &Pipeline, number: u64) -> impl Iterator<Item = Batch> + use<> {
    let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
    std::iter::from_fn(move || epoch.next_batch().unwrap())
}

/// An epoch of the only rank, after its last batch.
pub fn finished(pipeline: &Pipeline, number: u64) -> Epoch {
    let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
    while epoch.next_batch().unwrap().is_some() {}
    epoch
}

/// The error that an epoch must end with.
pub fn failure(epoch: &mut Epoch) -> Error {
    loop {
        match epoch.next_batch() {
            Ok(batch) => assert!(batch.is_some(), "the epoch ended in order"),
            Err(error) => return error,
        }
    }
}

/// The numbers of an int64 tensor.
pub fn longs(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|raw| i64::from_ne_bytes(*raw)).collect()
}

/// The sample ids of a batch.
pub fn ids(batch: &Batch) -> Vec<i64> {
    longs(batch.sample_ids().bytes())
}
