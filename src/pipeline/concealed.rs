//! The samples of an epoch whose damage was concealed: counted by the clock, named here.

use super::{Run, Shared};
use crate::schedule::Draw;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples kept for the user to look at; more are only counted.
const KEPT: usize = 1000;

/// A sample that was decoded although its file is damaged.
#[derive(Debug, Clone)]
pub struct ConcealedSample {
    /// Sample id.
    pub sample: u64,
    /// File or shard.
    pub path: PathBuf,
    /// Where its bytes begin in the file.
    pub offset: u64,
    /// What is damaged: "concealed damage: no Huffman code, near byte 1426, in MCU 93 of 150".
    pub message: String,
}

/// The samples concealed so far in an epoch; a copy sees what is added later.
#[derive(Debug, Clone, Default)]
pub struct ConcealedLog(Arc<Mutex<BTreeMap<u64, ConcealedSample>>>);

impl ConcealedLog {
    /// One entry for each sample (of the first 1000), in order of their numbers.
    pub fn samples(&self) -> Vec<ConcealedSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Run {
    /// Notes that damage of an image of a draw's sample was concealed; `what` is damaged. Each image counts, and the
    /// first of a sample names it.
    pub(super) fn conceal(&self, shared: &Shared, image: usize, draw: Draw, what: &str) {
        self.clock.concealed.fetch_add(1, Ordering::Relaxed);
        let index = &shared.index;
        let extent = index.extent(draw.sample);
        let named = || ConcealedSample {
            sample: draw.sample,
            path: index.path(extent.file),
            offset: extent.offset,
            message: format!("{}concealed damage: {what}", shared.said_of(image)),
        };
        shared.tell_concealed(named);
        let mut kept = self.concealed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.entry(draw.sample).or_insert_with(named);
        }
    }
}
