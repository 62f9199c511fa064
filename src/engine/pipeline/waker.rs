//! What wakes the reading thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use store::io::Waker;

/// Wakes the reading thread when something that it waits for may have come free, and leaves it alone while it waits for
/// nothing.
#[derive(Default)]
pub(crate) struct FetchWaker {
    /// Whether the reading thread waits for a slot or a batch buffer.
    starving: AtomicBool,
    /// Whether it waits for room with no read in flight.
    pub stuck: AtomicBool,
    thread: Mutex<Option<Thread>>,
    waker: Mutex<Option<Waker>>,
}

impl FetchWaker {
    /// Wakes the reading thread if it waits for a slot or a batch buffer.
    pub(crate) fn wake_if_starved(&self) {
        if self.starving.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Notes that the thread waits for what may come free.
    pub(crate) fn starve(&self) {
        self.starving.store(true, Ordering::SeqCst);
    }

    /// Notes whether the thread waits after all. If it does, what woke it since [`FetchWaker::starve`] stays noted.
    pub(crate) fn keep_starving(&self, starves: bool) {
        self.starving.fetch_and(starves, Ordering::SeqCst);
    }

    /// Whether the thread waits, and nothing has woken it since it said so.
    pub(crate) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::SeqCst)
    }

    /// Notes that the calling thread is the one to wake.
    pub(crate) fn wakes_this_thread(&self) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
    }

    /// Says how the thread is woken while it waits for something else than room.
    pub(crate) fn wake_by(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Wakes the reading thread, whatever it waits for.
    pub(crate) fn wake(&self) {
        self.starving.store(false, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            (waker.0)();
        }
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}
