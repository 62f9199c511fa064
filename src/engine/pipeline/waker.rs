//! Wakes the reading thread while it waits for a slot, a batch buffer or samples of a stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use store::io::Waker;

/// Wakes the reading thread when a slot, a buffer or samples that it waits for may be available. The thread is not
/// woken while it does not wait.
#[derive(Default)]
pub(crate) struct FetchWaker {
    waiting: AtomicBool,
    /// Whether the thread waits for a slot or a batch buffer while no read is in flight.
    pub idle_and_blocked: AtomicBool,
    thread: Mutex<Option<Thread>>,
    waker: Mutex<Option<Waker>>,
}

impl FetchWaker {
    pub(crate) fn wake_if_waiting(&self) {
        if self.waiting.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Marks that the thread is about to ask for a slot or a buffer and may have to wait.
    pub(crate) fn prepare_to_wait(&self) {
        self.waiting.store(true, Ordering::SeqCst);
    }

    /// Clears the mark of [`FetchWaker::prepare_to_wait`] if the thread need not wait. If it `waits`, the mark stays,
    /// unless a wake-up has cleared it already.
    pub(crate) fn keep_waiting(&self, waits: bool) {
        self.waiting.fetch_and(waits, Ordering::SeqCst);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn wakes_this_thread(&self) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
    }

    /// Sets how the thread is woken while it waits for reads or for another process.
    pub(crate) fn wake_by(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Wakes the reading thread, even if it does not wait.
    pub(crate) fn wake(&self) {
        self.waiting.store(false, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            (waker.0)();
        }
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}
