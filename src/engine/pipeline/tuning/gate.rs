//! A gate before the work: as many workers go on as shall, and the others sleep until it is opened wider.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets the workers with the lowest numbers pass.
pub(in crate::pipeline) struct WorkerGate {
    open: AtomicUsize,
    /// Held while the number is changed, so that nobody falls asleep over a change.
    changing: Mutex<()>,
    changed: Condvar,
}

impl WorkerGate {
    pub(in crate::pipeline) fn new(open: usize) -> Self {
        Self { open: AtomicUsize::new(open), changing: Mutex::default(), changed: Condvar::new() }
    }

    /// Lets so many workers pass from now on. One that has a job, or waits for one, does that job first.
    pub(in crate::pipeline) fn open_for(&self, workers: usize) {
        if self.open.load(Ordering::Relaxed) == workers {
            return;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.open.store(workers, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// How many workers pass.
    pub(in crate::pipeline) fn width(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until the worker with this number, counted from 0, may work. Returns whether it had to wait.
    pub(in crate::pipeline) fn pass(&self, worker: usize) -> bool {
        if worker < self.open.load(Ordering::Relaxed) {
            return false;
        }
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        while worker >= self.open.load(Ordering::Relaxed) {
            changing = self.changed.wait(changing).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

/// Opens a gate for all when it is dropped: those behind it have to end.
pub(in crate::pipeline) struct OpensAtTheEnd(pub(in crate::pipeline) std::sync::Arc<WorkerGate>);

impl Drop for OpensAtTheEnd {
    fn drop(&mut self) {
        self.0.open_for(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn those_behind_it_sleep_until_it_opens_or_ends() {
        let gate = Arc::new(WorkerGate::new(1));
        assert!(!gate.pass(0));
        let passed = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (1..4)
            .map(|worker| {
                let (gate, passed) = (gate.clone(), passed.clone());
                std::thread::spawn(move || {
                    gate.pass(worker);
                    passed.fetch_add(worker, Ordering::SeqCst);
                })
            })
            .collect();
        gate.open_for(2);
        while passed.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(passed.load(Ordering::SeqCst), 1, "the second worker alone");
        drop(OpensAtTheEnd(gate.clone()));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!((passed.load(Ordering::SeqCst), gate.width()), (6, usize::MAX));
    }
}
