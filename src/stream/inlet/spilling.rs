//! Samples go to a directory while memory is full, and come back.

use super::{Inlet, InletState};
use crate::error::Result;
use crate::stream::segments::RecordPlace;
use crate::stream::spill::{Spill, SpilledSample};
use crate::stream::waiting::WaitingSample;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a source waits until it looks whether the directory has room again.
const FULL_PAUSE: Duration = Duration::from_millis(50);

impl Inlet {
    /// Puts a sample into the directory, as soon as it has room; `None` when nobody wants it any more.
    pub(super) fn spill(&self, spill: &Spill, sample: &WaitingSample) -> Result<Option<RecordPlace>> {
        while !self.is_closed() {
            if let Some(place) = spill.put(&sample.record)? {
                return Ok(Some(place));
            }
            self.options.notices.warn_once("full spill", || {
                "more samples wait than spill_size has room for, so sources are held up until some are used".to_owned()
            });
            let state = self.lock();
            drop(self.room.wait_timeout(state, FULL_PAUSE));
        }
        Ok(None)
    }

    /// Brings spilled samples back to memory as it has room, until nobody wants any more.
    ///
    /// # Errors
    /// Those of the directory.
    pub(in crate::stream) fn bring_back(&self) -> Result<()> {
        let Some(spill) = &self.options.spill else { return Ok(()) };
        loop {
            let mut state = self.lock();
            let (arrival, sample) = loop {
                if state.closed {
                    return Ok(());
                }
                if state.waiting.has_room()
                    && let Some(first) = state.spilled.pop_first()
                {
                    break first;
                }
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            let taken = spill.take(&sample);
            let mut state = self.lock();
            state.account.spilled -= 1;
            let SpilledSample { source, number, id, since, .. } = sample;
            match taken {
                Ok(_) if state.withdrawn.contains(&id) => {
                    state.account.withdrawn += 1;
                    state.settle(source, number, id);
                }
                Ok(record) => {
                    state.account.queued += 1;
                    let record = Arc::new(record);
                    state.waiting.add(WaitingSample { arrival, source, number, record, since });
                }
                Err(error) => {
                    state.account.failed += 1;
                    state.settle(source, number, id);
                    self.refuse(&mut state, error);
                }
            }
            drop(state);
            self.rouse();
        }
    }
}

impl InletState {
    /// Notes that a sample waits in the directory, and returns its id.
    pub(super) fn spill(&mut self, sample: WaitingSample, place: RecordPlace) -> u64 {
        let WaitingSample { arrival, source, number, record, since } = sample;
        self.account.queued -= 1;
        self.account.spilled += 1;
        let (id, weight) = (record.id, record.weight);
        self.spilled.insert(arrival, SpilledSample { source, number, id, weight, place, since });
        id
    }
}
