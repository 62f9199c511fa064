//! Moves samples to the spill directory while memory is full, and reads them back.
//!
//! The directory is written and read under the lock of the queue, one sample at a time. So a sample that is withdrawn
//! at the same time is never looked up at its old place.

use super::{IngestQueue, IngestState};
use crate::segments::{MovedRecord, RecordPlace};
use crate::spill::{Spill, SpilledSample};
use crate::waiting::WaitingSample;
use base::error::Result;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

impl IngestQueue {
    /// Stores the samples of `overflow`. A sample goes to memory if memory has space and no older sample waits in the
    /// directory. Otherwise it goes to the directory, until the directory is full. Returns whether any sample was added
    /// to memory.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn spill_overflow(&self, state: &mut IngestState, spill: &Spill) -> Result<bool> {
        let mut more = false;
        while let Some(sample) = state.overflow.pop_front() {
            if state.spilled.is_empty() && state.waiting.has_space() {
                state.waiting.add(sample);
                more = true;
                continue;
            }
            match spill.put(&sample.record) {
                Ok(Some(place)) => state.spill(sample, place),
                full_or_failed => {
                    state.overflow.push_front(sample);
                    full_or_failed?;
                    self.options.notices.warn_once("full spill", || {
                        "the spill directory is full (spill_size), so sources wait until samples are used"
                            .to_owned()
                    });
                    break;
                }
            }
        }
        Ok(more)
    }

    /// Reads spilled samples back while memory has space, until the queue is closed.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(crate) fn read_back(&self) -> Result<()> {
        let Some(spill) = &self.options.spill else { return Ok(()) };
        let mut state = self.lock();
        while !state.closed {
            let mut more = self.spill_overflow(&mut state, spill)?;
            if state.waiting.has_space()
                && let Some((arrival, sample)) = state.spilled.pop_first()
            {
                self.restore_spilled(&mut state, spill, arrival, &sample);
                more = true;
            }
            if more {
                drop(state);
                self.space_freed.notify_all();
                self.wake_planner();
                state = self.lock();
            } else {
                state = self.space_freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }

    fn restore_spilled(&self, state: &mut IngestState, spill: &Spill, arrival: u64, sample: &SpilledSample) {
        state.counters.spilled -= 1;
        let SpilledSample { source, number, id, since, .. } = *sample;
        match spill.take(sample) {
            Ok(record) => {
                state.counters.queued += 1;
                let record = Arc::new(record);
                state.waiting.add(WaitingSample { arrival, source, number, record, since });
            }
            Err(error) => {
                state.counters.failed += 1;
                state.settle(source, number, id);
                self.refuse(state, error);
            }
        }
    }
}

impl IngestState {
    fn spill(&mut self, sample: WaitingSample, place: RecordPlace) {
        let WaitingSample { arrival, source, number, record, since } = sample;
        self.counters.queued -= 1;
        self.counters.spilled += 1;
        let (id, weight) = (record.id, record.weight);
        self.spilled.insert(arrival, SpilledSample { source, number, id, weight, place, since });
    }

    /// Removes samples from the directory, so that no file has their bytes.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn withdraw_spilled(&mut self, spill: &Spill, ids: &HashSet<u64>) -> Result<()> {
        let mut moved = Vec::new();
        let withdrawn = spill.withdraw(ids, &mut moved);
        let to = |of: MovedRecord| Some(((of.id, of.from), of.to?));
        let moved: HashMap<(u64, RecordPlace), RecordPlace> = moved.into_iter().filter_map(to).collect();
        for sample in self.spilled.values_mut() {
            sample.place = moved.get(&(sample.id, sample.place)).copied().unwrap_or(sample.place);
        }
        withdrawn
    }
}
