//! Gathers the samples of batches for a GPU: prepared samples wait here until a lane takes them.

use super::per_image::PerImage;
use crate::batch::{BatchCloser, Ticket};
use crate::config::LANES;
use crate::pipeline::{mixing::KeptPlaces, run::EpochRun};
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
    Waiting { bytes: PinnedSlice, drawn: DrawnViews },
    /// A file that the lane must read and decode on the CPU. It is stored apart from the rest of its sample, and there
    /// was no page-locked memory for it. The stamp is that of the shard's version that the sample was read from. The
    /// views are set where they depend on other fields of the sample.
    Unread { stamp: Option<Stamp>, drawn: Option<DrawnViews> },
    /// There is no image: the sample lacks it, and it is optional.
    Absent,
}

/// A sub-batch: what a lane works on at a time. It is a whole batch, or a part of one if slots ran short before the
/// batch was complete.
pub(crate) struct Piece {
    pub run: Arc<EpochRun>,
    pub items: Vec<PreparedSample>,
    pub closer: Arc<BatchCloser>,
    /// The filled places of the batch, where its groups are mixed at the end.
    pub kept: Option<Arc<KeptPlaces>>,
    /// Whether the batch is complete with this sub-batch.
    pub last: bool,
    /// Counts the sub-batch while it holds page-locked memory.
    pub in_flight: SubBatchesInFlight,
}

/// The number of sub-batches that are queued for lanes or in work. Each sub-batch has a clone that counts; the clones
/// of the reading thread and of assemblies do not count.
#[derive(Default)]
pub(crate) struct SubBatchesInFlight {
    count: Arc<AtomicUsize>,
    counted: bool,
}

impl SubBatchesInFlight {
    /// Returns a clone that counts.
    fn count(&self) -> Self {
        self.count.fetch_add(1, Ordering::SeqCst);
        Self { count: self.count.clone(), counted: true }
    }

    /// Returns whether there are no sub-batches.
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
    pub common: Sender<Piece>,
    /// The queues of sub-batches that only one lane may take, one queue for each lane.
    pub own: [Sender<Piece>; LANES],
}

/// Gathers the samples of one batch.
pub(crate) struct Assembly {
    run: Arc<EpochRun>,
    /// The queue of one lane. All sub-batches of a batch go through the same lane, in order.
    own: Sender<Piece>,
    common: Sender<Piece>,
    pieces_in_flight: SubBatchesInFlight,
    kept: Option<Arc<KeptPlaces>>,
    state: Mutex<AssemblyState>,
}

struct AssemblyState {
    missing: u32,
    items: Vec<PreparedSample>,
    /// Whether a sub-batch was sent before the batch was complete.
    parted: bool,
    /// Taken out with the last sub-batch.
    closer: Option<Arc<BatchCloser>>,
}

impl Assembly {
    /// Makes an assembly for the batch of `step`, which has `len` samples, at least one.
    pub(crate) fn new(
        run: Arc<EpochRun>,
        lanes: &LaneQueues,
        pieces_in_flight: SubBatchesInFlight,
        step: u64,
        len: u32,
        closer: BatchCloser,
    ) -> Self {
        let own = lanes.own[(step % lanes.own.len() as u64) as usize].clone();
        let common = lanes.common.clone();
        let items = Vec::with_capacity(len as usize);
        let state = AssemblyState { missing: len, items, parted: false, closer: Some(Arc::new(closer)) };
        let kept = run.mix_keys.is_some().then(Arc::default);
        Self { run, own, common, pieces_in_flight, kept, state: Mutex::new(state) }
    }

    /// Adds a sample. The last one sends the batch to a lane.
    pub(crate) fn add(&self, item: PreparedSample) {
        let mut state = self.lock();
        state.items.push(item);
        state.missing -= 1;
        if state.missing == 0 {
            self.send(&mut state);
        }
    }

    /// Sends the samples so far ahead of the rest, because the page-locked memory that they hold is needed.
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
            let piece = Piece {
                run: self.run.clone(),
                items,
                closer,
                kept: self.kept.clone(),
                last,
                in_flight: self.pieces_in_flight.count(),
            };
            let queue = if last && !state.parted { &self.common } else { &self.own };
            state.parted = true;
            // If the lanes have ended, the pipeline is ending, and the dropped tickets of the sub-batch spoil the
            // batch.
            let _ = queue.send(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, AssemblyState> {
        // The state is valid after every statement, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
