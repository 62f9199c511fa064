//! The cursor of a loader: the epoch and the step at which the next iteration begins. They follow from the user's
//! choice, from earlier iterations and from loaded checkpoints.

use super::Progress;
use base::error::Result;
use data::state::State;
use std::sync::Arc;

/// The position of one loader between and within its epochs. It keeps the progress of the latest iteration, because the
/// iteration itself ends when its user drops it.
///
/// Every iteration runs the epoch after the epoch of the previous iteration, even if that iteration did not reach its
/// end. A chosen epoch or a loaded state changes that for one iteration.
#[derive(Default)]
pub struct Cursor {
    next: u64,
    /// Whether the user chose `next`, and no iteration has begun since.
    chosen: bool,
    resume_point: ResumePoint,
}

#[derive(Default)]
enum ResumePoint {
    #[default]
    Nothing,
    Saved(State),
    Run(Arc<Progress>),
}

/// The beginning of an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At the beginning of this epoch.
    Epoch(u64),
    /// At the place where this state was saved.
    State(State),
}

impl Cursor {
    /// Returns the epoch that is running, or else the epoch that the next iteration runs.
    pub fn epoch(&self) -> u64 {
        match &self.resume_point {
            ResumePoint::Run(progress) if !self.chosen && progress.is_under_way() => progress.epoch(),
            _ => self.next,
        }
    }

    /// Chooses the epoch of the next iteration. If a state of that epoch was loaded, the iteration still begins where
    /// the state says.
    pub fn choose(&mut self, epoch: u64) {
        let known = match &self.resume_point {
            ResumePoint::Nothing => false,
            ResumePoint::Saved(state) => state.epoch == epoch,
            ResumePoint::Run(progress) => progress.epoch() == epoch,
        };
        if !known {
            self.resume_point = ResumePoint::Nothing;
        }
        self.next = epoch;
        self.chosen = true;
    }

    /// Makes the next iteration resume where `state` was saved, or begin the next epoch if the state's epoch is over.
    ///
    /// If the state's epoch is over and the user has already chosen a later epoch, the later epoch stays chosen: some
    /// frameworks choose the epoch before they load the state. If the user has chosen exactly the epoch that is over,
    /// the next iteration has no batches, so that no epoch is trained on twice.
    pub fn load(&mut self, state: State) {
        if !state.is_through() {
            self.next = state.epoch;
        } else if !self.chosen || self.next < state.epoch {
            self.next = state.epoch.saturating_add(1);
        } else if self.next > state.epoch {
            self.resume_point = ResumePoint::Nothing;
            return;
        }
        self.resume_point = ResumePoint::Saved(state);
    }

    /// Returns where the next iteration begins. An iteration that was never asked for a batch does not count.
    pub fn start(&self) -> Start {
        match &self.resume_point {
            ResumePoint::Saved(state) if state.epoch == self.next => Start::State(state.clone()),
            ResumePoint::Run(progress) if !self.chosen => match progress.untouched_state() {
                Some(state) => Start::State(state),
                None => Start::Epoch(self.next),
            },
            _ => Start::Epoch(self.next),
        }
    }

    /// Records that an iteration begins.
    pub fn begin(&mut self, progress: Arc<Progress>) {
        self.next = progress.epoch().saturating_add(1);
        self.chosen = false;
        self.resume_point = ResumePoint::Run(progress);
    }

    /// Returns the state to save: the current state, or the state after `at_step` steps of the epoch. `None` if the
    /// epoch has not begun.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for an `at_step` whose state is not known.
    pub fn state(&self, at_step: Option<u64>) -> Option<Result<State>> {
        match &self.resume_point {
            ResumePoint::Nothing => None,
            ResumePoint::Saved(state) => Some(state.clone().at_step(at_step)),
            ResumePoint::Run(progress) => Some(progress.state(at_step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::dataset::Fingerprint;
    use data::schedule::{LastBatch, Order, Schedule};
    use data::state::OrderIdentity;

    /// Returns the progress of an iteration over an epoch of ten steps. It began with step `first`, and `taken` batches
    /// were taken.
    fn progress(epoch: u64, first: u64, taken: u64) -> Arc<Progress> {
        let identity = OrderIdentity {
            fingerprint: String::new(),
            seed: 1,
            epoch_size: 100,
            shuffle: true,
            blocks: None,
            last_batch: LastBatch::Drop,
            selection: None,
            repeats: 1,
            mix: None,
            buckets: None,
            bins: None,
        };
        let order = Order::shuffled(&Fingerprint([1; 32]), 1, epoch, 100);
        let schedule = Schedule::new(order, 10, 0, 1, LastBatch::Drop).unwrap();
        let progress = Progress::new(Arc::new(identity), epoch, Arc::new(schedule), first, 0);
        for _ in 0..taken {
            progress.asked();
            progress.step(0);
        }
        Arc::new(progress)
    }

    fn state(epoch: u64, steps: u64) -> State {
        progress(epoch, steps, 0).state(None).unwrap()
    }

    fn next(cursor: &Cursor) -> (u64, u64) {
        match cursor.start() {
            Start::Epoch(epoch) => (epoch, 0),
            Start::State(state) => (state.epoch, state.position),
        }
    }

    fn reached(cursor: &Cursor) -> (u64, u64) {
        let state = cursor.state(None).unwrap().unwrap();
        (state.epoch, state.position)
    }

    #[test]
    fn epochs_follow_one_another_whether_they_come_to_their_end_or_not() {
        let mut cursor = Cursor::default();
        assert_eq!((cursor.epoch(), next(&cursor)), (0, (0, 0)));
        for (epoch, taken) in [(0, 10), (1, 3), (2, 10)] {
            let run = progress(epoch, 0, taken);
            cursor.begin(run.clone());
            assert_eq!(cursor.epoch(), epoch, "under way");
            run.end();
            assert_eq!((cursor.epoch(), next(&cursor)), (epoch + 1, (epoch + 1, 0)));
            assert_eq!(reached(&cursor), (epoch, taken * 10));
        }
        // A chosen epoch is run once, even if it was chosen and run before. The epoch after it comes next.
        for chosen in [7, 7, 2] {
            cursor.choose(chosen);
            assert_eq!((cursor.epoch(), next(&cursor)), (chosen, (chosen, 0)));
            cursor.begin(progress(chosen, 0, 10));
            assert_eq!(next(&cursor), (chosen + 1, 0));
        }
    }

    #[test]
    fn an_iteration_that_was_asked_for_nothing_does_not_count() {
        let mut cursor = Cursor::default();
        cursor.begin(progress(0, 0, 0));
        assert_eq!(next(&cursor), (0, 0));
        cursor.load(state(3, 4));
        cursor.begin(progress(3, 4, 0));
        assert_eq!(next(&cursor), (3, 40));
        cursor.choose(3);
        assert_eq!(next(&cursor), (3, 0), "the batch has begun, so it begins again");
        // An iteration that resumes at the end of its epoch has no batch to ask for.
        cursor.begin(progress(3, 10, 0));
        assert_eq!(next(&cursor), (4, 0));
    }

    #[test]
    fn a_state_counts_until_another_epoch_is_chosen_or_its_iteration_begins() {
        let mut cursor = Cursor::default();
        cursor.load(state(3, 4));
        assert_eq!((cursor.epoch(), next(&cursor)), (3, (3, 40)));
        cursor.choose(3);
        assert_eq!(next(&cursor), (3, 40));
        cursor.choose(4);
        assert_eq!(next(&cursor), (4, 0));
        cursor.load(state(3, 4));
        cursor.begin(progress(3, 4, 6));
        assert_eq!(next(&cursor), (4, 0));
        assert_eq!(reached(&cursor), (3, 100));
    }

    #[test]
    fn a_state_of_an_epoch_that_is_through_goes_on_with_the_next() {
        let mut cursor = Cursor::default();
        cursor.load(state(3, 10));
        assert_eq!((cursor.epoch(), next(&cursor)), (4, (4, 0)));
        assert_eq!(reached(&cursor), (3, 100));
        cursor.choose(4);
        assert_eq!(next(&cursor), (4, 0));
        // An epoch was chosen before the state was loaded. If the state's epoch is over, the chosen epoch is next;
        // otherwise the state counts.
        for (chosen, steps, expected) in [(1, 10, (1, 0)), (0, 10, (0, 100)), (1, 4, (0, 40))] {
            let mut cursor = Cursor::default();
            cursor.choose(chosen);
            cursor.load(state(0, steps));
            assert_eq!(next(&cursor), expected);
        }
        let mut cursor = Cursor::default();
        cursor.load(state(0, 10));
        cursor.choose(0);
        assert_eq!(next(&cursor), (0, 100));
        // A chosen epoch counts for one iteration only. Here that iteration has begun before the state is loaded.
        let mut cursor = Cursor::default();
        cursor.choose(5);
        cursor.begin(progress(5, 0, 1));
        cursor.load(state(0, 10));
        assert_eq!(next(&cursor), (1, 0));
    }
}
