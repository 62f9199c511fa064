//! A worker thread of a producer: it runs one task after another, and signals an event after each.

use crate::sharing::WakeEvent;
use base::error::Result;
use base::threads::{caught, start_thread};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;

/// The owner's handle of the thread. The thread ends when the handle is dropped.
pub(super) struct TaskThread<Task, Outcome> {
    tasks: Sender<Task>,
    outcomes: Receiver<Result<Outcome>>,
}

impl<Task: Send + 'static, Outcome: Send + 'static> TaskThread<Task, Outcome> {
    /// Starts a thread with this name, which runs `work` for each task. A panic becomes the error of that task.
    ///
    /// # Errors
    /// The error of [`start_thread`].
    pub(super) fn start(
        name: &str,
        bell: Arc<WakeEvent>,
        mut work: impl FnMut(Task) -> Result<Outcome> + Send + 'static,
    ) -> Result<Self> {
        let (tasks, given) = unbounded();
        let (done, outcomes) = unbounded();
        start_thread(name, "a thread", move || {
            for task in given {
                if done.send(caught("sharing", || work(task))).is_err() {
                    break;
                }
                bell.ring();
            }
        })?;
        Ok(Self { tasks, outcomes })
    }

    pub(super) fn give(&self, task: Task) {
        let _ = self.tasks.send(task);
    }

    /// Returns the outcome of the next task, if it is done. Outcomes come in the order of their tasks.
    pub(super) fn take(&self) -> Option<Result<Outcome>> {
        self.outcomes.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::wait_for;
    use std::os::fd::AsFd;

    #[test]
    fn tasks_are_done_in_order_and_a_panic_is_the_error_of_one() {
        let bell = Arc::new(WakeEvent::new().unwrap());
        let halve = |number: u32| {
            assert!(number != 3, "three cannot be halved");
            Ok(number / 2)
        };
        let thread = TaskThread::start("foreload-test", bell.clone(), halve).unwrap();
        for number in [4, 3, 2] {
            thread.give(number);
        }
        let mut outcomes = Vec::new();
        while outcomes.len() < 3 {
            wait_for(&[bell.as_fd()], None);
            bell.heard();
            outcomes.extend(std::iter::from_fn(|| thread.take()));
        }
        let [Ok(2), Err(error), Ok(1)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(error.to_string().contains("three cannot be halved"), "{error}");
    }
}
