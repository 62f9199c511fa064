//! Datasets on a web server: whatever the server does, the batches are those of the directory that it serves, or there
//! is an error that says why not.

mod cached;
mod changes;
mod faults;
mod manifest;
mod near;
mod packed;
mod records;
mod roots;
mod same;
mod secrets;
mod settings;
mod starts;

use crate::common::{Dataset, epoch_bytes, pipeline};
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::pipeline::Pipeline;
use range_server::{Fault, Options, RangeServer};
use std::path::PathBuf;
use std::sync::Arc;

/// A dataset, and a server of the directory that contains it.
struct Served {
    dataset: Dataset,
    server: RangeServer,
}

impl Served {
    fn new(dataset: Dataset) -> Self {
        Self::with(dataset, Options::default())
    }

    fn with(dataset: Dataset, options: Options) -> Self {
        let options = Options { record: true, ..options };
        let server = RangeServer::start(&dataset.beside(""), options).unwrap();
        Self { dataset, server }
    }

    /// The URL of a file or directory next to the data.
    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.server.url())
    }

    /// Opens the dataset at this URL. Its index is separate from that of the directory.
    fn open(&self, url: &str) -> foreload::Result<Arc<DatasetIndex>> {
        let options =
            IndexOptions { directory: Some(self.dataset.beside("http-index")), ..IndexOptions::default() };
        DatasetIndex::open(url.as_ref(), &options).map(Arc::new)
    }

    /// The index of the data on the server.
    fn index(&self) -> Arc<DatasetIndex> {
        self.open(&self.url("data")).unwrap()
    }

    fn pipeline(&self, options: &LoaderOptions) -> Pipeline {
        pipeline(self.index(), options)
    }

    /// From now on the server fails in these ways.
    fn fail(&self, faults: &[&str]) {
        self.server.set_faults(faults.iter().map(|fault| fault.parse::<Fault>().unwrap()).collect());
    }

    /// The number of requests so far.
    fn requests(&self) -> u64 {
        self.server.stats().requests
    }

    /// The number of requests that asked for bytes.
    fn gets(&self) -> u64 {
        let stats = self.server.stats();
        stats.requests - stats.heads
    }

    /// Writes a file next to the data.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dataset.beside(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// The hashes of two epochs.
fn two_epochs(pipeline: &Pipeline) -> [[u8; 32]; 2] {
    [0, 1].map(|number| epoch_bytes(pipeline, number))
}

/// The error of the first epoch, which must fail.
fn failure(pipeline: &Pipeline) -> String {
    crate::common::failure(&mut pipeline.epoch(0, 0, 1, 0).unwrap()).to_string()
}
