//! A batch on its way to a GPU: its samples gather here, prepared, until a lane takes them.

use super::per_image::PerImage;
use crate::augment::DrawnViews;
use crate::batch::{Seal, Ticket};
use crate::config::LANES;
use crate::dataset::Stamp;
use crate::decode::JpegHeader;
use crate::decode::nvjpeg::PlanesLayout;
use crate::error::Result;
use crate::gpu::PinnedSlice;
use crate::pipeline::Run;
use crate::schedule::BatchEntry;
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A sample as a worker leaves it.
pub(crate) struct Item {
    pub place: BatchEntry,
    pub ticket: Ticket,
    /// Its images, or why one of them or another field could not be read or understood.
    pub pixels: Result<PerImage<Pixels>>,
}

/// An image before a lane has it, in page-locked memory.
pub(crate) enum Pixels {
    /// A file for the GPU to decode.
    Encoded { bytes: PinnedSlice, header: JpegHeader, drawn: DrawnViews },
    /// Planes, decoded by the CPU.
    Decoded { bytes: PinnedSlice, layout: PlanesLayout, drawn: DrawnViews },
    /// A file for the CPU, when there was no page-locked memory to decode into.
    Waiting(PinnedSlice),
    /// A file for the CPU that lies apart from the rest of its sample, when there was no page-locked memory for it: the
    /// stamp of the shard whose version the sample is of.
    Unread(Option<Stamp>),
    /// None: the sample is without image, and may be.
    Absent,
}

/// What a lane works on at a time: a whole batch, or a part of one where buffers ran short before it was complete.
pub(crate) struct Piece {
    pub run: Arc<Run>,
    pub items: Vec<Item>,
    pub seal: Arc<Seal>,
    /// The batch is complete with this.
    pub last: bool,
    /// For as long as it holds page-locked memory.
    pub under_way: UnderWay,
}

/// Counts pieces under way: each has a clone, beside those of the reading thread and of assemblies, which count
/// nothing.
#[derive(Default)]
pub(crate) struct UnderWay {
    count: Arc<AtomicUsize>,
    counted: bool,
}

impl UnderWay {
    /// One more.
    fn count(&self) -> Self {
        self.count.fetch_add(1, Ordering::SeqCst);
        Self { count: self.count.clone(), counted: true }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }
}

impl Clone for UnderWay {
    fn clone(&self) -> Self {
        Self { count: self.count.clone(), counted: false }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.counted {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The lanes' queues.
pub(crate) struct Lanes {
    /// Of batches that are whole, for whichever lane is free first.
    pub common: Sender<Piece>,
    /// Of pieces that only one lane may have, one for each lane.
    pub own: [Sender<Piece>; LANES],
}

/// Gathers the samples of one batch.
pub(crate) struct Assembly {
    run: Arc<Run>,
    /// All pieces of a batch go through one lane, in order; a batch that is whole goes to the lane that is free first.
    own: Sender<Piece>,
    common: Sender<Piece>,
    under_way: UnderWay,
    state: Mutex<State>,
}

struct State {
    missing: u32,
    items: Vec<Item>,
    /// A piece has gone ahead.
    parted: bool,
    /// Gone with the last piece.
    seal: Option<Arc<Seal>>,
}

impl Assembly {
    /// Waits for `len` samples, at least one, of the batch of `step`.
    pub(crate) fn new(
        run: Arc<Run>,
        lanes: &Lanes,
        under_way: UnderWay,
        step: u64,
        len: u32,
        seal: Seal,
    ) -> Self {
        let own = lanes.own[(step % lanes.own.len() as u64) as usize].clone();
        let common = lanes.common.clone();
        let items = Vec::with_capacity(len as usize);
        let state = State { missing: len, items, parted: false, seal: Some(Arc::new(seal)) };
        Self { run, own, common, under_way, state: Mutex::new(state) }
    }

    /// Adds a sample; the last one sends the batch to its lane.
    pub(crate) fn add(&self, item: Item) {
        let mut state = self.lock();
        state.items.push(item);
        state.missing -= 1;
        if state.missing == 0 {
            self.send(&mut state);
        }
    }

    /// Sends what is there ahead of the rest: the page-locked memory it holds is needed.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        if !state.items.is_empty() {
            self.send(&mut state);
        }
    }

    fn send(&self, state: &mut State) {
        let last = state.missing == 0;
        let seal = if last { state.seal.take() } else { state.seal.clone() };
        if let Some(seal) = seal {
            let items = std::mem::take(&mut state.items);
            let piece = Piece { run: self.run.clone(), items, seal, last, under_way: self.under_way.count() };
            let queue = if last && !state.parted { &self.common } else { &self.own };
            state.parted = true;
            // Without lanes the pipeline is ending, and the piece's tickets spoil the batch.
            let _ = queue.send(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Valid after every statement: a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
