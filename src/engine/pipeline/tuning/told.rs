//! What others see of a pipeline's tuner, and what they tell it.

use crate::pipeline::Pipeline;
use crate::tune::{KnobValues, TunerState};
use base::error::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What others see of the tuner of a pipeline, and what they tell it.
#[derive(Default)]
pub(in crate::pipeline) struct SharedState {
    /// What it stands at, for statistics.
    state: Mutex<TunerState>,
    /// The values that the knobs have in the next run instead of the tuner's.
    held: Mutex<Option<KnobValues>>,
}

impl SharedState {
    pub(in crate::pipeline) fn get(&self) -> TunerState {
        self.state().clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, TunerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the knobs held at these values in the next run, if that is some.
    fn hold(&self, values: Option<KnobValues>) {
        *self.held() = values;
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Option<KnobValues>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipeline {
    /// Holds what is tuned in the next epoch, whose tuner learns nothing then: with `text` at the usual values
    /// (`usual`), or at those but for what it names (`threads=2,queue_depth=64`); not at all where it is empty.
    ///
    /// # Errors
    /// [`Error::Config`](base::error::Error::Config) by the name `setting`: for another text, for values that cannot be
    /// had here, and where nothing is tuned.
    pub fn hold(&self, text: &str, setting: &'static str) -> Result<()> {
        let held = (!text.is_empty()).then(|| self.shared.config.tuning.held_at(text, setting));
        self.shared.tuned.hold(held.transpose()?);
        Ok(())
    }

    /// What is tuned, by its names, with the values of the moment; empty before the first epoch.
    pub fn knobs(&self) -> Vec<(&'static str, usize)> {
        self.tuner().knobs.iter().map(|knob| (knob.knob.name(), knob.value)).collect()
    }

    /// How often the tuner has changed something.
    pub fn changes(&self) -> u64 {
        self.tuner().log.changes()
    }

    /// What is tuned, and what was changed so far; empty before the first epoch.
    pub fn tuner(&self) -> TunerState {
        self.shared.tuned.get()
    }
}
