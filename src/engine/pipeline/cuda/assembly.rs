//! Collects the samples of batches for a GPU. Samples that workers have prepared wait in an assembly until a lane (a
//! thread that works on one batch on the GPU) takes them.

use super::image::LaneImage;
use super::per_image::PerImage;
use crate::batch::{BatchCloser, Ticket};
use crate::config::LANES;
use crate::pipeline::{mixing::FilledPlaces, run::EpochRun};
use base::error::Result;
use base::locks::lock;
use crossbeam_channel::Sender;
use data::schedule::BatchEntry;
use pixels::augment::DrawnViews;
use pixels::decode::JpegHeader;
use pixels::gpu::PinnedSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The right to fill one row of a batch for a GPU, and the assembly that collects the batch.
pub(crate) struct GpuPlace {
    pub ticket: Ticket,
    pub assembly: Arc<Assembly>,
}

pub(crate) struct PreparedSample {
    pub place: BatchEntry,
    pub ticket: Ticket,
    pub pixels: Result<PerImage<PreparedImage>>,
}

pub(crate) enum PreparedImage {
    /// An image for nvJPEG. The lane chooses its decoder.
    Encoded { bytes: PinnedSlice, header: JpegHeader, drawn: DrawnViews },
    /// An image that needs no decoder of nvJPEG.
    Ready(LaneImage),
}

/// The samples that a lane processes together: a whole batch, or a part of a batch if slots ran short before the batch
/// was complete.
pub(crate) struct SubBatch {
    pub run: Arc<EpochRun>,
    pub items: Vec<PreparedSample>,
    pub closer: Arc<BatchCloser>,
    /// For a batch whose images are mixed: collects the filled rows until their mixing groups are complete.
    pub filled: Option<Arc<FilledPlaces>>,
    /// Whether the batch is complete with this sub-batch.
    pub last: bool,
    pub in_flight: SubBatchesInFlight,
}

/// Counts the sub-batches that are queued for lanes or in work. Each sub-batch holds a clone made by `count`, which
/// counts as one until it is dropped. Other clones do not count.
#[derive(Default)]
pub(crate) struct SubBatchesInFlight {
    count: Arc<AtomicUsize>,
    counted: bool,
}

impl SubBatchesInFlight {
    fn count(&self) -> Self {
        self.count.fetch_add(1, Ordering::SeqCst);
        Self { count: self.count.clone(), counted: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

impl Clone for SubBatchesInFlight {
    fn clone(&self) -> Self {
        Self { count: self.count.clone(), counted: false }
    }
}

impl Drop for SubBatchesInFlight {
    fn drop(&mut self) {
        if self.counted {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

pub(crate) struct LaneQueues {
    /// The queue of whole batches. The lane that is free first takes the next one.
    pub common: Sender<SubBatch>,
    pub own: [Sender<SubBatch>; LANES],
}

pub(crate) struct Assembly {
    run: Arc<EpochRun>,
    /// The queue of one lane. If the batch is split, that lane gets all its sub-batches, in order.
    own: Sender<SubBatch>,
    common: Sender<SubBatch>,
    sub_batches_in_flight: SubBatchesInFlight,
    filled: Option<Arc<FilledPlaces>>,
    // Valid after every statement, so a panic elsewhere cannot break it.
    state: Mutex<AssemblyState>,
}

struct AssemblyState {
    missing: u32,
    items: Vec<PreparedSample>,
    was_split: bool,
    /// Closes the batch after its last sub-batch. The closer is moved into that sub-batch when it is sent.
    closer: Option<Arc<BatchCloser>>,
}

impl Assembly {
    pub(crate) fn new(
        run: Arc<EpochRun>,
        lanes: &LaneQueues,
        sub_batches_in_flight: SubBatchesInFlight,
        step: u64,
        len: u32,
        closer: BatchCloser,
    ) -> Self {
        let own = lanes.own[(step % lanes.own.len() as u64) as usize].clone();
        let common = lanes.common.clone();
        let items = Vec::with_capacity(len as usize);
        let state = AssemblyState { missing: len, items, was_split: false, closer: Some(Arc::new(closer)) };
        let filled = run.mix_keys.is_some().then(Arc::default);
        Self { run, own, common, sub_batches_in_flight, filled, state: Mutex::new(state) }
    }

    pub(crate) fn add(&self, item: PreparedSample) {
        let mut state = lock(&self.state);
        state.items.push(item);
        state.missing -= 1;
        if state.missing == 0 {
            self.send(&mut state);
        }
    }

    /// Sends the samples collected so far to a lane as a sub-batch, because the reading thread waits for their slots.
    pub(crate) fn flush(&self) {
        let mut state = lock(&self.state);
        if !state.items.is_empty() {
            self.send(&mut state);
        }
    }

    fn send(&self, state: &mut AssemblyState) {
        let last = state.missing == 0;
        let closer = if last { state.closer.take() } else { state.closer.clone() };
        if let Some(closer) = closer {
            let items = std::mem::take(&mut state.items);
            let sub_batch = SubBatch {
                run: self.run.clone(),
                items,
                closer,
                filled: self.filled.clone(),
                last,
                in_flight: self.sub_batches_in_flight.count(),
            };
            let queue = if last && !state.was_split { &self.common } else { &self.own };
            state.was_split = true;
            // Sending fails only if the pipeline is ending and the lanes have ended. The tickets of the sub-batch are
            // then dropped, so the batch is not delivered.
            let _ = queue.send(sub_batch);
        }
    }
}
