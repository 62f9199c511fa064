//! How far the consumer of an epoch has come. A checkpoint needs this even after the epoch was dropped. A batch counts
//! when the consumer gets it, and not when it is only read ahead.

use super::run_plan::RunPlan;
use base::error::{Error, Result};
use base::locks::lock;
use data::state::{OrderIdentity, State};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The progress of one epoch. The epoch writes it, and any holder of the `Arc` reads it.
pub struct Progress {
    identity: Arc<OrderIdentity>,
    epoch: u64,
    run_plan: Arc<dyn RunPlan>,
    yielded: Mutex<YieldedSteps>,
    asked: AtomicBool,
    /// Whether the epoch has ended: its consumer dropped it or reached its end, or it failed.
    ended: AtomicBool,
}

struct YieldedSteps {
    steps: u64,
    /// The number of failures over time: (number of steps, failures after these steps), one entry for each change.
    failures: Vec<(u64, u64)>,
}

impl Progress {
    pub(crate) fn new(
        identity: Arc<OrderIdentity>,
        epoch: u64,
        run_plan: Arc<dyn RunPlan>,
        steps: u64,
        errors: u64,
    ) -> Self {
        let failures = vec![(steps, errors)];
        let yielded = Mutex::new(YieldedSteps { steps, failures });
        Self {
            identity,
            epoch,
            run_plan,
            yielded,
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Returns the epoch's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether the consumer still uses the epoch. It counts as using the epoch's last batch until it asks for
    /// another.
    pub fn is_under_way(&self) -> bool {
        !self.ended.load(Ordering::SeqCst)
    }

    /// Returns the state in which the epoch began, if the consumer has not asked for a batch yet. Returns `None` if the
    /// epoch began at its end, so that no batch is left.
    pub fn untouched_state(&self) -> Option<State> {
        let yielded = lock(&self.yielded);
        let (steps, errors) = yielded.failures[0];
        if self.asked.load(Ordering::SeqCst) || steps >= self.run_plan.steps() {
            return None;
        }
        self.run_plan.state(&self.identity, self.epoch, steps, errors)
    }

    pub(crate) fn steps(&self) -> u64 {
        lock(&self.yielded).steps
    }

    pub(crate) fn asked(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Returns the number of failures so far, including failures before the epoch was resumed.
    pub fn failed(&self) -> u64 {
        lock(&self.yielded).failures.last().map_or(0, |(_, failed)| *failed)
    }

    /// Returns the state after the batches that were yielded so far. A caller that reads ahead of what it uses passes
    /// `at_step` and gets the state after that many steps of the epoch.
    ///
    /// # Errors
    /// [`Error::Config`] for an `at_step` that was not yielded, or is before the beginning of this run of the epoch;
    /// [`Error::Unavailable`] for a stream.
    pub fn state(&self, at_step: Option<u64>) -> Result<State> {
        let yielded = lock(&self.yielded);
        let steps = at_step.unwrap_or(yielded.steps);
        let begun = yielded.failures[0].0;
        if !(begun..=yielded.steps).contains(&steps) {
            let message = format!(
                "is {steps}, must be one of the steps that were yielded, {begun} to {}",
                yielded.steps
            );
            return Err(Error::config("at_step", message));
        }
        let known = yielded.failures.partition_point(|(then, _)| *then <= steps);
        let errors = yielded.failures[known - 1].1;
        let of_stream = || {
            Error::Unavailable(
                "an epoch of a stream has no state of its own: use the state of its StreamLoader".into(),
            )
        };
        self.run_plan.state(&self.identity, self.epoch, steps, errors).ok_or_else(of_stream)
    }

    pub(crate) fn step(&self, failed: u64) {
        let mut yielded = lock(&self.yielded);
        yielded.steps += 1;
        let steps = yielded.steps;
        if yielded.failures.last().is_none_or(|(_, before)| *before != failed) {
            yielded.failures.push((steps, failed));
        }
    }
}
