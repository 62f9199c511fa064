//! The flag `--emulate-pfs`, which makes the dataset's storage as slow as a parallel file system.

use base::error::Result;
use engine::config::parse_pfs;
use engine::pipeline::{self, OpenReader};
use std::sync::Arc;
use store::io::{DelayedReader, ParallelFsModel, ParallelFsRates};

pub(super) fn rates(text: &str) -> Result<ParallelFsRates> {
    parse_pfs("emulate-pfs", text)
}

/// Returns the function that opens a reader of the dataset, slowed down to `rates` if `rates` are given. All readers
/// that the function opens share the emulated queues.
pub(super) fn open_reader(rates: Option<ParallelFsRates>) -> Box<OpenReader> {
    let pfs = rates.map(|rates| Arc::new(ParallelFsModel::new(rates)));
    Box::new(move |index, slots, config| {
        let reader = pipeline::open_reader(index, slots, config)?;
        match &pfs {
            None => Ok(reader),
            Some(pfs) => Ok(Box::new(DelayedReader::new(reader, index.clone(), pfs.clone())?)),
        }
    })
}
