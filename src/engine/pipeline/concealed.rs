//! Lists the samples of an epoch with JPEG damage that was concealed. The statistics have only the number of these
//! samples.

use super::{context::SampleContext, notify};
use crate::batch::{Batch, Remark};
use data::dataset::DatasetIndex;
use data::schedule::Draw;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

const MAX_LISTED: usize = 1000;

/// A sample that was decoded although its file is damaged.
#[derive(Debug, Clone)]
pub struct ConcealedSample {
    /// The sample's id.
    pub sample: u64,
    /// The file or shard that holds the sample.
    pub path: PathBuf,
    /// The offset of the sample's bytes in the file.
    pub offset: u64,
    /// What is damaged, for instance "concealed damage: no Huffman code, near byte 1426, in MCU 93 of 150".
    pub message: String,
}

impl ConcealedSample {
    fn new(index: &DatasetIndex, sample: u64, message: String) -> Self {
        let extent = index.place_in_file(index.extent(sample));
        Self { sample, path: index.path(extent.file), offset: extent.offset, message }
    }
}

/// The damaged samples of an epoch so far. Clones share one log.
#[derive(Debug, Clone, Default)]
pub struct ConcealedLog(Arc<Mutex<BTreeMap<u64, ConcealedSample>>>);

impl ConcealedLog {
    /// Returns one entry for each sample, in the order of the ids. Only the first 1000 damaged samples are kept.
    pub fn samples(&self) -> Vec<ConcealedSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Returns the remarks about the samples of a batch, for the consumers in other processes.
    pub fn of(&self, batch: &Batch) -> Vec<Remark> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return Vec::new();
        }
        let ids = batch.sample_ids();
        let ids = ids.bytes().as_chunks().0.iter().map(|raw| u64::from_ne_bytes(*raw));
        ids.filter_map(|id| kept.get(&id)).map(|of| (of.sample, of.message.clone())).collect()
    }

    /// Records that damage was concealed in the image with the index `image`. `what` describes the damage. If a sample
    /// has several damaged images, the log keeps only the first.
    pub(crate) fn note(&self, context: &SampleContext, image: usize, draw: Draw, what: &str) {
        let named = || {
            let message = format!("{}concealed damage: {what}", context.name_prefix(image));
            ConcealedSample::new(&context.index, draw.sample, message)
        };
        notify::concealed(context, named);
        self.keep(draw.sample, named);
    }

    pub(crate) fn record_remark(&self, context: &SampleContext, (sample, message): Remark) {
        self.keep(sample, || ConcealedSample::new(&context.index, sample, message));
    }

    fn keep(&self, sample: u64, named: impl FnOnce() -> ConcealedSample) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_LISTED {
            kept.entry(sample).or_insert_with(named);
        }
    }
}
