//! Makes batches. On the reading thread a [`BatchOpener`] opens the places of a batch, one for each of its samples. On
//! each worker a [`PlaceFiller`] fills them from the bytes of the samples. The code of these threads does not depend on
//! the type of a place, or on where the batch is stored.

pub(crate) mod host;
pub(crate) mod sample;
mod shape;

use super::run::EpochRun;
use super::stopwatch::Stopwatch;
use base::error::Result;
use data::schedule::BatchEntry;
use std::sync::Arc;
use std::time::Duration;
use store::io::Filled;

/// A place of a batch, which must be filled from the bytes of its sample.
pub(crate) struct OpenPlace<P> {
    pub entry: BatchEntry,
    pub step: u64,
    pub place: P,
}

pub(crate) struct PlaceJob<P> {
    pub run: Arc<EpochRun>,
    pub open: OpenPlace<P>,
    pub bytes: Result<Filled>,
}

pub(crate) trait BatchOpener: Send + 'static {
    /// Everything that the filler needs to fill one place.
    type Place: Send + 'static;

    /// How long the reading thread waits for a slot before it calls [`BatchOpener::release_slots`]; `None` if slots
    /// become free without this call.
    const SLOT_WAIT: Option<Duration> = None;

    fn attach_thread(&self) {}

    /// Opens the batch of `step` and its `len` places, in order. Returns `None` while no buffer is free for the batch.
    ///
    /// # Errors
    /// The errors of allocating a buffer.
    fn begin(&mut self, run: &Arc<EpochRun>, step: u64, len: u32) -> Result<Option<Vec<Self::Place>>>;

    /// Gives up the slots that incomplete batches hold, because no slot became free for a while.
    fn release_slots(&mut self) {}
}

pub(crate) trait PlaceFiller<P> {
    fn fill(&mut self, job: PlaceJob<P>, stopwatch: &mut Stopwatch);
}
