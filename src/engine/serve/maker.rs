//! The thread that makes the batches of a producer, one after another as they are asked for.

use super::tasks::TaskThread;
use super::window::RecipeNumber;
use crate::batch::Batch;
use crate::pipeline::{Epoch, Pipeline, Poll};
use crate::sharing::{BatchPosition, Bell};
use base::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the thread waits for the batch of one recipe before it looks whether those of others are there.
const PATIENCE: Duration = Duration::from_millis(200);

/// What was made of the samples of a step: a batch by each recipe.
pub(super) type Made = BTreeMap<RecipeNumber, Arc<MadeBatch>>;

/// A batch, and what goes along with it.
pub(super) struct MadeBatch {
    pub batch: Batch,
    pub parcel: Option<OwnedFd>,
}

/// The batches at a place by these recipes, which are to be made.
pub(super) struct WantedStep {
    pub at: BatchPosition,
    pub recipes: BTreeSet<RecipeNumber>,
    /// When the youngest loader was made that was taken for batches.
    pub youngest: Instant,
}

/// Starts the thread, which rings the `bell` when batches are made. With each step goes a time before which nothing of
/// it was read.
///
/// # Errors
/// [`Error::Unavailable`] when no thread can be started.
pub(super) fn start(
    pipeline: Arc<Pipeline>,
    place: (u32, u32),
    bell: Arc<Bell>,
) -> Result<TaskThread<WantedStep, (Made, Instant)>> {
    let mut kept = RunningEpochs::default();
    let mut confirmed = Instant::now();
    TaskThread::start("foreload-make", bell, move |wanted: WantedStep| {
        // Where this fails, nothing runs on.
        let mut running = std::mem::take(&mut kept);
        if wanted.youngest > confirmed {
            // A loader of its own would ask anew whether copies are what the dataset has.
            confirmed = Instant::now();
            if let Some(cache) = pipeline.cache() {
                running = RunningEpochs::default();
                cache.doubt();
            }
        }
        let made = make(&pipeline, place, &mut running, &wanted)?;
        let since = running.note_made(pipeline.most_ahead());
        kept = running;
        Ok((made, since))
    })
}

/// The epoch that runs, by each recipe.
#[derive(Default)]
struct RunningEpochs {
    /// The recipe that leads.
    lead: Option<RecipeNumber>,
    epochs: BTreeMap<RecipeNumber, Epoch>,
    /// When they began, and when each of the latest steps was there.
    times: VecDeque<Instant>,
}

impl RunningEpochs {
    /// Notes that a step is there. Returns a time before which nothing of it was read: no more than `ahead` steps have
    /// buffers at a time, so that the reading of this one began when the step so many before it was given away, which
    /// was asked for when the one before that was there.
    fn note_made(&mut self, ahead: usize) -> Instant {
        self.times.push_back(Instant::now());
        while self.times.len() > ahead + 2 {
            self.times.pop_front();
        }
        self.times[0]
    }
}

/// Makes the batches that are wanted, by the epoch that runs if that is there and has these recipes. One that is wanted
/// no more is dropped; a new one, or the loss of the one that leads, begins the epoch anew at this step.
fn make(
    pipeline: &Pipeline,
    place: (u32, u32),
    running: &mut RunningEpochs,
    WantedStep { at, recipes, .. }: &WantedStep,
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
        // The former one ends before this one begins.
        *running = RunningEpochs::default();
        running.times.push_back(Instant::now());
        // Who leads goes on to lead: with another all threads would be others.
        let others = recipes.iter().copied().filter(|recipe| Some(*recipe) != lead);
        let numbers: Vec<_> = lead.into_iter().chain(others).collect();
        let epochs = pipeline.epochs(&numbers, at.epoch, place, at.step)?;
        running.lead = numbers.first().copied();
        running.epochs.extend(numbers.into_iter().zip(epochs));
    }
    let mut made = Made::new();
    // All are asked before any is waited for: who is asked may have one more buffer, without which none goes on.
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

/// The next batch of an epoch, if it is there within so long.
fn next_of(epoch: &mut Epoch, patience: Duration) -> Result<Option<MadeBatch>> {
    match epoch.poll_as_made(patience)? {
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
