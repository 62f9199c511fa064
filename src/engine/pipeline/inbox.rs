//! Holds finished batches until the consumer takes them in the order of their steps.

use crate::batch::{Batch, Sink};
use base::error::{Error, Result};
use base::locks::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// The inbox of one run. After it is closed, it keeps nothing: a late batch returns its buffer at once.
#[derive(Default)]
pub(crate) struct Inbox {
    // Valid after every statement, so a panic elsewhere cannot break it.
    state: Mutex<InboxState>,
    arrived: Condvar,
}

#[derive(Default)]
struct InboxState {
    batches: BTreeMap<u64, Batch>,
    failure: Option<Error>,
    closed: bool,
    must_recheck: bool,
}

impl Sink for Inbox {
    fn put(&self, batch: Batch) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.batches.insert(batch.step(), batch);
            self.arrived.notify_all();
        }
    }

    fn fail(&self, error: Error) {
        Self::fail(self, error);
    }
}

impl Inbox {
    /// Records that the run cannot continue. The consumer's next wait returns the error; if there are several, the
    /// first.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.state).failure.get_or_insert(error);
        self.arrived.notify_all();
    }

    /// Makes the consumer check again whether more batches come, because the run may have ended.
    pub(crate) fn recheck(&self) {
        let mut state = lock(&self.state);
        state.must_recheck = true;
        self.arrived.notify_all();
    }

    pub(crate) fn ready(&self) -> usize {
        lock(&self.state).batches.len()
    }

    /// Waits for the batch of `step`. Returns `None` if it has not arrived by `deadline`, if the inbox is closed, or if
    /// the caller must check again whether more batches come.
    pub(crate) fn wait_for(&self, step: u64, deadline: Instant) -> Result<Option<Batch>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(error) = state.failure.take() {
                return Err(error);
            }
            if let Some(batch) = state.batches.remove(&step) {
                return Ok(Some(batch));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed || std::mem::take(&mut state.must_recheck) {
                return Ok(None);
            }
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let batches = std::mem::take(&mut state.batches);
        drop(state);
        self.arrived.notify_all();
        drop(batches);
    }
}
