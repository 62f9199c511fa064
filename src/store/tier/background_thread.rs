//! A background thread that works during training.

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::thread::JoinHandle;
use std::time::Duration;

/// The maximum wait for the thread to end: a little longer than dropping a reader takes.
const END_LIMIT: Duration = Duration::from_secs(1);

pub(super) struct BackgroundThread {
    alive: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let (living, alive) = bounded::<()>(0);
        let work = move || {
            let _living = living;
            work();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(Self { alive, thread: Some(thread) })
    }

    /// Waits briefly for the thread, which the caller has asked to end. If a dead file system blocks the thread, the
    /// thread is detached.
    pub(super) fn end(&mut self) {
        if self.alive.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Disconnected)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
