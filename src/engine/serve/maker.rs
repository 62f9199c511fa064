//! The thread that makes the batches of a producer, one step after another on request.

use super::tasks::TaskThread;
use crate::batch::Batch;
use crate::pipeline::{Epoch, Pipeline, Poll};
use crate::sharing::{BatchPosition, WakeEvent};
use base::error::{Error, Result};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for a batch before it checks again whether the pipeline is alive.
const PATIENCE: Duration = Duration::from_millis(200);

/// A batch, and a file descriptor with the data that is sent along with the batch: variable-length values, failures,
/// and notes on damaged images.
pub(super) struct MadeBatch {
    pub batch: Batch,
    pub parcel: Option<OwnedFd>,
}

pub(super) struct StepRequest {
    pub at: BatchPosition,
    pub youngest: Instant,
}

/// Starts the thread. It signals `bell` when a batch is made. With each batch it returns a time before which none of
/// the batch's samples was read.
///
/// # Errors
/// [`Error::Unavailable`] if the thread cannot be started.
pub(super) fn start(
    pipeline: Arc<Pipeline>,
    place: (u32, u32),
    bell: Arc<WakeEvent>,
) -> Result<TaskThread<StepRequest, (MadeBatch, Instant)>> {
    let mut kept = RunningEpoch::default();
    let mut confirmed = Instant::now();
    TaskThread::start("foreload-make", bell, move |wanted: StepRequest| {
        // Take the epoch out of `kept`: if making the batch fails, it is dropped.
        let mut running = std::mem::take(&mut kept);
        if wanted.youngest > confirmed {
            // A loader that does not share batches verifies at its start that cached copies match the dataset. So
            // verify the copies again when a new loader joins.
            confirmed = Instant::now();
            if let Some(cache) = pipeline.cache() {
                running = RunningEpoch::default();
                cache.mark_unverified();
            }
        }
        let made = make(&pipeline, place, &mut running, wanted.at)?;
        let since = running.note_made(pipeline.most_ahead());
        kept = running;
        Ok((made, since))
    })
}

#[derive(Default)]
struct RunningEpoch {
    epoch: Option<Epoch>,
    times: VecDeque<Instant>,
}

impl RunningEpoch {
    /// Records that a step was made. Returns a time before which none of its samples was read.
    ///
    /// At most `ahead` steps have buffers at a time. So reading of step n began after step n - `ahead` was delivered,
    /// and that step was requested after step n - `ahead` - 1 was made. The time when step n - `ahead` - 1 was made is
    /// returned.
    fn note_made(&mut self, ahead: usize) -> Instant {
        self.times.push_back(Instant::now());
        while self.times.len() > ahead + 2 {
            self.times.pop_front();
        }
        self.times[0]
    }
}

/// Makes the batch at `at`. Continues the running epoch if `at` is its next step; otherwise starts an epoch at `at`.
fn make(
    pipeline: &Pipeline,
    place: (u32, u32),
    running: &mut RunningEpoch,
    at: BatchPosition,
) -> Result<MadeBatch> {
    let is_there = |epoch: &mut Epoch| epoch.number() == at.epoch && epoch.next_step() == at.step;
    let epoch = match running.epoch.take_if(is_there) {
        Some(epoch) => epoch,
        None => {
            // End the old epoch before the new one begins.
            *running = RunningEpoch::default();
            running.times.push_back(Instant::now());
            pipeline.epoch(at.epoch, place.0, place.1, at.step)?
        }
    };
    let epoch = running.epoch.insert(epoch);
    loop {
        match epoch.poll_with_failures(PATIENCE)? {
            Poll::Batch(batch) => {
                let parcel = batch.parcel(epoch.concealed().of(&batch))?;
                return Ok(MadeBatch { batch, parcel });
            }
            Poll::Pending => {}
            Poll::End => {
                let message = format!("epoch {} has no step {}", epoch.number(), epoch.next_step());
                return Err(Error::Internal(message));
            }
        }
    }
}
