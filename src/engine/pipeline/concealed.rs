//! The samples of an epoch whose damage was concealed. The counters count them, and this log names them.

use super::{context::SampleContext, notify};
use crate::batch::{Batch, Remark};
use data::dataset::DatasetIndex;
use data::schedule::Draw;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The largest number of samples that are kept for the user to look at; more are only counted.
const KEPT: usize = 1000;

/// A sample that was decoded although its file is damaged.
#[derive(Debug, Clone)]
pub struct ConcealedSample {
    /// The sample's id.
    pub sample: u64,
    /// The file or shard that it is in.
    pub path: PathBuf,
    /// The offset of its bytes in the file.
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

/// The samples of an epoch whose damage was concealed so far. A clone sees what is added later.
#[derive(Debug, Clone, Default)]
pub struct ConcealedLog(Arc<Mutex<BTreeMap<u64, ConcealedSample>>>);

impl ConcealedLog {
    /// One entry for each sample, in the order of their ids; the first 1000 that were found are kept.
    pub fn samples(&self) -> Vec<ConcealedSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// What is to be said of the samples of a batch.
    pub fn of(&self, batch: &Batch) -> Vec<Remark> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return Vec::new();
        }
        let ids = batch.sample_ids();
        let ids = ids.bytes().as_chunks().0.iter().map(|raw| u64::from_ne_bytes(*raw));
        ids.filter_map(|id| kept.get(&id)).map(|of| (of.sample, of.message.clone())).collect()
    }

    /// Notes that damage of an image of a draw's sample was concealed; `what` says what is damaged. Of a sample with
    /// several such images, the log has the first.
    pub(crate) fn note(&self, context: &SampleContext, image: usize, draw: Draw, what: &str) {
        let named = || {
            let message = format!("{}concealed damage: {what}", context.name_prefix(image));
            ConcealedSample::new(&context.index, draw.sample, message)
        };
        notify::concealed(context, named);
        self.keep(draw.sample, named);
    }

    /// Notes what another process says of a sample that it decoded.
    pub(crate) fn note_as_told(&self, context: &SampleContext, (sample, message): Remark) {
        self.keep(sample, || ConcealedSample::new(&context.index, sample, message));
    }

    fn keep(&self, sample: u64, named: impl FnOnce() -> ConcealedSample) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.entry(sample).or_insert_with(named);
        }
    }
}
