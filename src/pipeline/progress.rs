//! How far the consumer of an epoch has come: what a checkpoint wants to know, also when the epoch was dropped.

use crate::error::{Error, Result};
use crate::schedule::Schedule;
use crate::state::{OrderIdentity, State};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of one epoch; the epoch writes it and whoever holds it reads it.
pub struct Progress {
    identity: Arc<OrderIdentity>,
    epoch: u64,
    schedule: Schedule,
    reached: Mutex<Reached>,
    /// Whether its consumer has asked for a batch.
    asked: AtomicBool,
    /// Whether its consumer has dropped it or was told that no batch is left, or it failed.
    ended: AtomicBool,
}

struct Reached {
    /// Steps whose batches were yielded, from the epoch's beginning.
    steps: u64,
    /// Failures so far, and after which steps there were fewer: (steps, failures then), where the number changed.
    failures: Vec<(u64, u64)>,
}

impl Progress {
    pub(super) fn new(
        identity: Arc<OrderIdentity>,
        epoch: u64,
        schedule: Schedule,
        steps: u64,
        errors: u64,
    ) -> Self {
        let failures = vec![(steps, errors)];
        let reached = Mutex::new(Reached { steps, failures });
        Self {
            identity,
            epoch,
            schedule,
            reached,
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether its consumer is busy with it: with its last batch, too, until it asks for one more.
    pub fn is_under_way(&self) -> bool {
        !self.ended.load(Ordering::SeqCst)
    }

    /// Where it began, when its consumer asked for no batch although there are some.
    pub fn unasked(&self) -> Option<State> {
        let reached = self.reached();
        let (steps, errors) = reached.failures[0];
        if self.asked.load(Ordering::SeqCst) || steps >= self.schedule.steps() {
            return None;
        }
        Some(State::new(&self.identity, self.epoch, &self.schedule, steps, errors))
    }

    /// Its consumer asks for a batch.
    pub(super) fn asked(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// No more batches come of it.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Failures so far, also before the epoch was resumed.
    pub(super) fn failed(&self) -> u64 {
        self.reached().failures.last().map_or(0, |(_, failed)| *failed)
    }

    /// The state after the batches that were yielded; with `at_step` after so many steps of the epoch, for who has read
    /// ahead of what was used.
    ///
    /// # Errors
    /// [`Error::Config`] for an `at_step` that was not reached, or lies before where this run of the epoch began.
    pub fn state(&self, at_step: Option<u64>) -> Result<State> {
        let reached = self.reached();
        let steps = at_step.unwrap_or(reached.steps);
        let begun = reached.failures[0].0;
        if !(begun..=reached.steps).contains(&steps) {
            let message = format!(
                "is {steps}, must be one of the steps that were yielded, {begun} to {}",
                reached.steps
            );
            return Err(Error::config("at_step", message));
        }
        let known = reached.failures.partition_point(|(then, _)| *then <= steps);
        let errors = reached.failures[known - 1].1;
        Ok(State::new(&self.identity, self.epoch, &self.schedule, steps, errors))
    }

    /// One more batch is yielded; so many failed in all.
    pub(super) fn step(&self, failed: u64) {
        let mut reached = self.reached();
        reached.steps += 1;
        let steps = reached.steps;
        if reached.failures.last().is_none_or(|(_, before)| *before != failed) {
            reached.failures.push((steps, failed));
        }
    }

    fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
