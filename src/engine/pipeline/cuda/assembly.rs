//! Collects the samples of batches for a GPU: prepared samples wait here until a lane takes them.

use super::per_image::PerImage;
use crate::batch::{BatchCloser, Ticket};
use crate::config::LANES;
use crate::pipeline::{mixing::FilledPlaces, run::EpochRun};
use base::error::Result;
use crossbeam_channel::Sender;
use data::dataset::Stamp;
use data::schedule::BatchEntry;
use pixels::augment::DrawnViews;
use pixels::decode::cuda::CudaPlan;
use pixels::decode::{JpegHeader, PlanesLayout};
use pixels::gpu::PinnedSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place of a batch for a GPU.
pub(crate) struct GpuPlace {
    pub ticket: Ticket,
    pub assembly: Arc<Assembly>,
}

/// A sample as a worker has prepared it.
pub(crate) struct PreparedSample {
    pub place: BatchEntry,
    pub ticket: Ticket,
    /// The sample's images, or the error of reading or decoding one of them or another field.
    pub pixels: Result<PerImage<PreparedImage>>,
}

/// An image as a worker has prepared it for a lane.
pub(crate) enum PreparedImage {
    /// A file for nvJPEG.
    Encoded { bytes: PinnedSlice, header: JpegHeader, drawn: DrawnViews },
    /// A packed or an indexed image for one of Foreload's own kernels, and how to decode it.
    Own { bytes: PinnedSlice, plan: Box<CudaPlan>, drawn: DrawnViews },
    /// Planes that the CPU has decoded.
    Decoded { bytes: PinnedSlice, layout: PlanesLayout, drawn: DrawnViews },
    /// A file that the lane must decode on the CPU, because there was no page-locked memory to decode into.
    Undecoded { bytes: PinnedSlice, drawn: DrawnViews },
    /// A file that the lane must read and decode on the CPU. It is not stored next to the rest of its sample, and there
    /// was no page-locked memory for it. `stamp` identifies the version of the shard that the sample was read from.
    /// `drawn` is set if the views depend on other fields of the sample.
    Unread { stamp: Option<Stamp>, drawn: Option<DrawnViews> },
    /// There is no image: the sample lacks it, and it is optional.
    Absent,
}

/// A sub-batch: the samples that a lane processes together. It is a whole batch, or a part of one if slots ran short
/// before the batch was complete.
pub(crate) struct SubBatch {
    pub run: Arc<EpochRun>,
    pub items: Vec<PreparedSample>,
    pub closer: Arc<BatchCloser>,
    /// The filled places of a batch whose images are mixed, until their groups are mixed; `None` if nothing is mixed.
    pub filled: Option<Arc<FilledPlaces>>,
    /// Whether the batch is complete with this sub-batch.
    pub last: bool,
    /// Counts the sub-batch while it holds page-locked memory.
    pub in_flight: SubBatchesInFlight,
}

/// The number of sub-batches that are queued for lanes or in work. Each sub-batch holds a clone made by `count`, which
/// counts as one until it is dropped. The clones that the reading thread and assemblies hold do not count.
#[derive(Default)]
pub(crate) struct SubBatchesInFlight {
    count: Arc<AtomicUsize>,
    counted: bool,
}

impl SubBatchesInFlight {
    /// Returns a clone that counts as one sub-batch.
    fn count(&self) -> Self {
        self.count.fetch_add(1, Ordering::SeqCst);
        Self { count: self.count.clone(), counted: true }
    }

    /// Returns whether no sub-batch is queued or in work.
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

/// The queues of the lanes.
pub(crate) struct LaneQueues {
    /// The queue of whole batches, for the lane that is free first.
    pub common: Sender<SubBatch>,
    /// One queue for each lane. Only that lane takes sub-batches from it.
    pub own: [Sender<SubBatch>; LANES],
}

/// Collects the samples of one batch.
pub(crate) struct Assembly {
    run: Arc<EpochRun>,
    /// The queue of the lane that gets all sub-batches of this batch, in order, if the batch is split.
    own: Sender<SubBatch>,
    common: Sender<SubBatch>,
    sub_batches_in_flight: SubBatchesInFlight,
    filled: Option<Arc<FilledPlaces>>,
    state: Mutex<AssemblyState>,
}

struct AssemblyState {
    missing: u32,
    items: Vec<PreparedSample>,
    /// Whether a sub-batch was sent before the batch was complete.
    was_split: bool,
    /// Closes the batch after its last sub-batch. Moved into that sub-batch when it is sent.
    closer: Option<Arc<BatchCloser>>,
}

impl Assembly {
    /// Makes an assembly for the batch of `step`, which has `len` samples, at least one.
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

    /// Adds a sample. After the last sample, sends the batch to a lane.
    pub(crate) fn add(&self, item: PreparedSample) {
        let mut state = self.lock();
        state.items.push(item);
        state.missing -= 1;
        if state.missing == 0 {
            self.send(&mut state);
        }
    }

    /// Sends the samples that have arrived so far as a sub-batch, because the page-locked memory that they hold is
    /// needed.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
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
            // If the lanes have ended, the pipeline is ending. The tickets of the sub-batch are then dropped, so the
            // batch is not delivered.
            let _ = queue.send(sub_batch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, AssemblyState> {
        // The state is valid after every statement, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
