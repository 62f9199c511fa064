//! The thread that makes the batches of a producer, one step after another on request.

use super::tasks::TaskThread;
use super::window::RecipeNumber;
use crate::batch::Batch;
use crate::pipeline::{Epoch, Pipeline, Poll};
use crate::sharing::{BatchPosition, WakeEvent};
use base::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for the batch of one recipe before it checks those of the others.
const PATIENCE: Duration = Duration::from_millis(200);

/// The batches of one step: one for each recipe.
pub(super) type Made = BTreeMap<RecipeNumber, Arc<MadeBatch>>;

/// A batch, and the parcel that is sent with it: values of any length, failures, and notes on damaged images.
pub(super) struct MadeBatch {
    pub batch: Batch,
    pub parcel: Option<OwnedFd>,
}

/// A request for the batches of a step, by these recipes.
pub(super) struct StepRequest {
    pub at: BatchPosition,
    pub recipes: BTreeSet<RecipeNumber>,
    /// When the youngest of the admitted loaders was made.
    pub youngest: Instant,
}

/// Starts the thread, which rings the `bell` when batches are made. Each step comes with a time before which none of
/// its samples was read.
///
/// # Errors
/// [`Error::Unavailable`] if the thread cannot be started.
pub(super) fn start(
    pipeline: Arc<Pipeline>,
    place: (u32, u32),
    bell: Arc<WakeEvent>,
) -> Result<TaskThread<StepRequest, (Made, Instant)>> {
    let mut kept = RunningEpochs::default();
    let mut confirmed = Instant::now();
    TaskThread::start("foreload-make", bell, move |wanted: StepRequest| {
        // If making the batches fails, the running epochs are dropped.
        let mut running = std::mem::take(&mut kept);
        if wanted.youngest > confirmed {
            // A new loader without sharing would verify that cached copies match the dataset, so the copies are
            // verified again here.
            confirmed = Instant::now();
            if let Some(cache) = pipeline.cache() {
                running = RunningEpochs::default();
                cache.mark_unverified();
            }
        }
        let made = make(&pipeline, place, &mut running, &wanted)?;
        let since = running.note_made(pipeline.most_ahead());
        kept = running;
        Ok((made, since))
    })
}

/// The running epoch, one per recipe.
#[derive(Default)]
struct RunningEpochs {
    /// The primary recipe.
    lead: Option<RecipeNumber>,
    epochs: BTreeMap<RecipeNumber, Epoch>,
    /// When the epochs began, and when each of the latest steps was made.
    times: VecDeque<Instant>,
}

impl RunningEpochs {
    /// Records that a step was made. Returns a time before which none of its samples was read.
    ///
    /// At most `ahead` steps have buffers at a time. So the step `ahead` before this one had been delivered when the
    /// reading of this step began. That step was requested after the step before it had been made, and this is the time
    /// returned.
    fn note_made(&mut self, ahead: usize) -> Instant {
        self.times.push_back(Instant::now());
        while self.times.len() > ahead + 2 {
            self.times.pop_front();
        }
        self.times[0]
    }
}

/// Makes the requested batches. Continues the running epochs if they are at this step and have all these recipes;
/// recipes that are no longer wanted are dropped. Otherwise, and if the primary recipe is no longer wanted, restarts
/// the epoch at this step.
fn make(
    pipeline: &Pipeline,
    place: (u32, u32),
    running: &mut RunningEpochs,
    StepRequest { at, recipes, .. }: &StepRequest,
) -> Result<Made> {
    let is_there = |epoch: &Epoch| epoch.number() == at.epoch && epoch.next_step() == at.step;
    let lead = running.lead.filter(|lead| recipes.contains(lead));
    if lead.is_some() && recipes.iter().all(|recipe| running.epochs.get(recipe).is_some_and(is_there)) {
        let running_so_far = std::mem::take(&mut running.epochs).into_iter();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            running_so_far.partition(|(recipe, _)| recipes.contains(recipe));
        running.epochs = kept;
        gone.into_values().for_each(Epoch::release);
    } else {
        // The old epochs end before the new ones begin.
        *running = RunningEpochs::default();
        running.times.push_back(Instant::now());
        // The primary recipe stays the primary one, because another one would need new threads.
        let others = recipes.iter().copied().filter(|recipe| Some(*recipe) != lead);
        let numbers: Vec<_> = lead.into_iter().chain(others).collect();
        let epochs = pipeline.epochs(&numbers, at.epoch, place, at.step)?;
        running.lead = numbers.first().copied();
        running.epochs.extend(numbers.into_iter().zip(epochs));
    }
    let mut made = Made::new();
    // All epochs are polled before any is waited for. Polling gives an epoch one more buffer, and without it none of
    // them can continue.
    let mut patience = Duration::ZERO;
    while made.len() < running.epochs.len() {
        for (recipe, epoch) in &mut running.epochs {
            if !made.contains_key(recipe)
                && let Some(batch) = next_of(epoch, patience)?
            {
                made.insert(*recipe, Arc::new(batch));
            }
        }
        patience = PATIENCE;
    }
    Ok(made)
}

/// Returns the next batch of an epoch, if it is ready within `patience`.
fn next_of(epoch: &mut Epoch, patience: Duration) -> Result<Option<MadeBatch>> {
    match epoch.poll_with_failures(patience)? {
        Poll::Batch(batch) => {
            let parcel = batch.parcel(epoch.concealed().of(&batch))?;
            Ok(Some(MadeBatch { batch, parcel }))
        }
        Poll::Pending => Ok(None),
        Poll::End => {
            let message = format!("epoch {} has no step {}", epoch.number(), epoch.next_step());
            Err(Error::Internal(message))
        }
    }
}
