//! Where a loader stands: which epoch comes next and from where, between its user, its iterations and its checkpoints.

use super::Progress;
use crate::error::Result;
use crate::state::State;
use std::sync::Arc;

/// Of one loader. Of the latest iteration it holds what outlives it, for an iteration ends when its user drops it.
#[derive(Default)]
pub struct Cursor {
    epoch: u64,
    /// The user chose the epoch, and no iteration has begun since.
    chosen: bool,
    reached: Reached,
}

/// How far the epoch has come.
#[derive(Default)]
enum Reached {
    #[default]
    Nothing,
    /// Where it was saved: there its next iteration begins.
    Saved(State),
    /// Where its latest iteration is; the next one begins anew.
    Run(Arc<Progress>),
}

impl Cursor {
    /// The epoch that comes next, or runs.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The user chooses an epoch. What is known of how far that one has come stays.
    pub fn choose(&mut self, epoch: u64) {
        let known = match &self.reached {
            Reached::Nothing => false,
            Reached::Saved(state) => state.epoch == epoch,
            Reached::Run(progress) => progress.epoch() == epoch,
        };
        if !known {
            self.reached = Reached::Nothing;
        }
        self.epoch = epoch;
        self.chosen = true;
    }

    /// The next iteration begins where `state` ends, in its epoch; but when that one is through and a later one was chosen,
    /// that has begun: some frameworks load states only when they iterate.
    pub fn load(&mut self, state: State) {
        if self.chosen && state.is_through() && self.epoch > state.epoch {
            self.reached = Reached::Nothing;
            return;
        }
        self.epoch = state.epoch;
        self.reached = Reached::Saved(state);
    }

    /// Where the next iteration goes on, if not at its epoch's beginning.
    pub fn saved(&self) -> Option<&State> {
        if let Reached::Saved(state) = &self.reached { Some(state) } else { None }
    }

    /// An iteration over [`Cursor::epoch`] begins.
    pub fn begin(&mut self, progress: Arc<Progress>) {
        self.reached = Reached::Run(progress);
        self.chosen = false;
    }

    /// The state, of `at_step` if that is given; `None` when the epoch has not begun.
    ///
    /// # Errors
    /// [`crate::Error::Config`] for an `at_step` that is not known.
    pub fn state(&self, at_step: Option<u64>) -> Option<Result<State>> {
        match &self.reached {
            Reached::Nothing => None,
            Reached::Saved(state) => Some(state.clone().at_step(at_step)),
            Reached::Run(progress) => Some(progress.state(at_step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Fingerprint;
    use crate::schedule::{LastBatch, Order, Schedule};
    use crate::state::Identity;

    fn progress(epoch: u64, steps: u64) -> Arc<Progress> {
        let identity = Identity {
            fingerprint: String::new(),
            seed: 1,
            epoch_size: 100,
            shuffle: true,
            last_batch: LastBatch::Drop,
            selection: None,
        };
        let order = Order::shuffled(&Fingerprint([1; 32]), 1, epoch, 100);
        let schedule = Schedule::new(order, 10, 0, 1, LastBatch::Drop).unwrap();
        Arc::new(Progress::new(Arc::new(identity), epoch, schedule, steps, 0))
    }

    fn state(epoch: u64, steps: u64) -> State {
        progress(epoch, steps).state(None).unwrap()
    }

    /// Where the next iteration begins: epoch and position.
    fn next(cursor: &Cursor) -> (u64, u64) {
        (cursor.epoch(), cursor.saved().map_or(0, |state| state.position))
    }

    #[test]
    fn a_state_counts_until_another_epoch_is_chosen_or_its_iteration_begins() {
        let mut cursor = Cursor::default();
        cursor.load(state(3, 4));
        assert_eq!(next(&cursor), (3, 40));
        cursor.choose(3);
        assert_eq!(next(&cursor), (3, 40));
        cursor.choose(4);
        assert_eq!(next(&cursor), (4, 0));
        cursor.load(state(3, 4));
        cursor.begin(progress(3, 4));
        assert_eq!(next(&cursor), (3, 0));
        assert_eq!(cursor.state(None).unwrap().unwrap().position, 40);
    }

    #[test]
    fn an_epoch_that_is_through_leaves_the_one_chosen_after_it_alone() {
        for (chosen, steps, expected) in [(1, 10, (1, 0)), (0, 10, (0, 100)), (1, 4, (0, 40))] {
            let mut cursor = Cursor::default();
            cursor.choose(chosen);
            cursor.load(state(0, steps));
            assert_eq!(next(&cursor), expected);
        }
        // What was chosen for an iteration that has begun says nothing of the next one.
        let mut cursor = Cursor::default();
        cursor.choose(5);
        cursor.begin(progress(5, 0));
        cursor.load(state(0, 10));
        assert_eq!(next(&cursor), (0, 100));
    }
}
