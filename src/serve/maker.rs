//! The thread that makes the batches of a producer, one after another as they are asked for.

use super::window::RecipeNumber;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::pipeline::{Epoch, Pipeline, Poll};
use crate::sharing::{BatchPosition, Bell};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long the thread waits for the batch of one recipe before it looks whether those of others are there.
const PATIENCE: Duration = Duration::from_millis(200);

/// What was made of the samples of a step: a batch by each recipe.
pub(super) type Made = BTreeMap<RecipeNumber, Arc<MadeBatch>>;

/// A batch, and what goes along with it.
pub(super) struct MadeBatch {
    pub batch: Batch,
    pub parcel: Option<OwnedFd>,
}

/// What the maker is told to make.
type WantedStep = (BatchPosition, BTreeSet<RecipeNumber>);

/// The thread's end that others hold. It ends when this is dropped.
pub(super) struct Maker {
    wanted: Sender<WantedStep>,
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
            let mut epochs = RunningEpochs::default();
            for wanted in positions {
                let outcome = catch_unwind(AssertUnwindSafe(|| make(&pipeline, place, &mut epochs, &wanted)));
                let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("sharing", &*panic)));
                if outcome.is_err() {
                    epochs = RunningEpochs::default();
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

    /// Wants the batches at `at` by these recipes, which are made after those that were wanted before.
    pub(super) fn want(&self, at: BatchPosition, recipes: BTreeSet<RecipeNumber>) {
        let _ = self.wanted.send((at, recipes));
    }

    /// The batch that was made, if one was.
    pub(super) fn take(&self) -> Option<Result<Made>> {
        self.made.try_recv().ok()
    }
}

/// The epoch that runs, by each recipe.
#[derive(Default)]
struct RunningEpochs {
    /// The recipe that leads.
    lead: Option<RecipeNumber>,
    epochs: BTreeMap<RecipeNumber, Epoch>,
}

/// Makes the batches that are wanted, by the epoch that runs if that is there and has these recipes. One that is wanted
/// no more is dropped; a new one, or the loss of the one that leads, begins the epoch anew at this step.
fn make(
    pipeline: &Pipeline,
    place: (u32, u32),
    running: &mut RunningEpochs,
    (at, recipes): &WantedStep,
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
