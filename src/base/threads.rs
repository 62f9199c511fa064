//! Starts threads, and ends them in limited time.

use crate::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts a thread called `name`, which the error calls `what`, for example "a thread of the cache".
///
/// # Errors
/// [`Error::Unavailable`] if the system starts no thread.
pub fn start_thread<T: Send + 'static>(
    name: impl Into<String>,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| Error::Unavailable(format!("cannot start {what}: {error}")))
}

/// Does `work`, which an error after a panic calls `doing`.
///
/// # Errors
/// The error of `work`, and [`Error::Internal`] if it panics.
pub fn caught<T>(doing: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::panicked(doing, &*panic)))
}

/// A thread that is joined only if it ends in time.
pub struct BackgroundThread {
    alive: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The error of [`start_thread`].
    pub fn start(name: &str, what: &str, work: impl FnOnce() + Send + 'static) -> Result<Self> {
        let (living, alive) = bounded::<()>(0);
        let work = move || {
            let _living = living;
            work();
        };
        Ok(Self { alive, thread: Some(start_thread(name, what, work)?) })
    }

    /// Waits up to `limit` for the thread, which the caller has asked to end. If a dead file system blocks the thread,
    /// the thread is detached. Returns whether the thread has ended.
    pub fn end(&mut self, limit: Duration) -> bool {
        let ended = self.alive.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take_if(|_| ended) {
            let _ = thread.join();
        }
        ended
    }
}
