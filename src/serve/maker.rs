//! The thread that makes the batches of a producer, one after another as they are asked for.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::pipeline::{Epoch, Pipeline, Poll};
use crate::sharing::{BatchPosition, Bell};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long the thread waits at a time, so that it sees when nobody wants anything any more.
const PATIENCE: Duration = Duration::from_millis(200);

/// A batch, and what goes along with it.
pub(super) struct Made {
    pub batch: Batch,
    pub parcel: Option<OwnedFd>,
}

/// The thread's end that others hold. It ends when this is dropped.
pub(super) struct Maker {
    wanted: Sender<BatchPosition>,
    made: Receiver<Result<Made>>,
}

impl Maker {
    /// Starts the thread, which rings the `bell` when a batch is made.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no thread can be started.
    pub(super) fn start(pipeline: Arc<Pipeline>, place: (u32, u32), bell: Arc<Bell>) -> Result<Self> {
        let (wanted, positions) = unbounded();
        let (results, made) = unbounded();
        let work = move || {
            let mut epoch = None;
            for at in positions {
                let outcome = catch_unwind(AssertUnwindSafe(|| make(&pipeline, place, &mut epoch, at)));
                let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("sharing", &*panic)));
                if outcome.is_err() {
                    epoch = None;
                }
                if results.send(outcome).is_err() {
                    break;
                }
                bell.ring();
            }
        };
        let thread = std::thread::Builder::new().name("foreload-make".into()).spawn(work);
        thread.map_err(|error| Error::Unavailable(format!("cannot start a thread: {error}")))?;
        Ok(Self { wanted, made })
    }

    /// Wants the batch at `at`, which is made after those that were wanted before.
    pub(super) fn want(&self, at: BatchPosition) {
        let _ = self.wanted.send(at);
    }

    /// The batch that was made, if one was.
    pub(super) fn take(&self) -> Option<Result<Made>> {
        self.made.try_recv().ok()
    }
}

/// Makes the batch at `at`, by the epoch that runs if that is there.
fn make(
    pipeline: &Pipeline,
    (rank, world_size): (u32, u32),
    running: &mut Option<Epoch>,
    at: BatchPosition,
) -> Result<Made> {
    let is_there = |epoch: &Epoch| epoch.number() == at.epoch && epoch.next_step() == at.step;
    let epoch = match running.take_if(|epoch| is_there(epoch)) {
        Some(epoch) => running.insert(epoch),
        None => {
            // The former one ends before this one begins.
            *running = None;
            running.insert(pipeline.epoch(at.epoch, rank, world_size, at.step)?)
        }
    };
    loop {
        match epoch.poll_as_made(PATIENCE)? {
            Poll::Batch(batch) => {
                let parcel = batch.parcel(epoch.concealed().of(&batch))?;
                return Ok(Made { batch, parcel });
            }
            Poll::Pending => {}
            Poll::End => return Err(Error::Internal(format!("epoch {} has no step {}", at.epoch, at.step))),
        }
    }
}
