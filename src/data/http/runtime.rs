//! A thread that runs futures: one for the server, one for the client.

use base::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long dropping waits for the thread. Nothing on it blocks, so that it takes a moment; only a system that gives
/// it no time makes it longer, and then the thread is left behind.
const DROP_LIMIT: Duration = Duration::from_millis(800);

/// The most threads for what may hold up the one, beside it. They end when they were not needed for a while.
const BLOCKING_THREADS: usize = 2;

/// A thread with a runtime, and all that was spawned on it. Both end when this is dropped.
pub struct RuntimeThread {
    /// The process that started the thread: a forked child does not have it.
    process: u32,
    /// Ends the thread's first future when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    /// Disconnected when the thread has ended.
    alive: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Runs the future that `begin` makes on a thread called `name`, until it ends or this is dropped. `begin` is
    /// called at once, where it can make things that belong to the runtime. Should the future panic, the thread calls
    /// `died`, and then drops all that was spawned on it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system refuses the thread, or what its runtime needs.
    pub fn start<Work>(
        name: &str,
        begin: impl FnOnce() -> std::io::Result<Work>,
        died: impl FnOnce() + Send + 'static,
    ) -> Result<Self>
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let refused =
            |error: std::io::Error| Error::Unavailable(format!("cannot start the thread {name}: {error}"));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(BLOCKING_THREADS).thread_name(name);
        let runtime = runtime.build().map_err(refused)?;
        let work = {
            let _context = runtime.enter();
            begin().map_err(refused)?
        };
        let (stop, mut stopped) = oneshot::channel::<()>();
        let (living, alive) = bounded::<()>(0);
        let run = move || {
            let _living = living;
            let mut work = std::pin::pin!(work);
            let until_stopped =
                std::future::poll_fn(|context| match std::pin::Pin::new(&mut stopped).poll(context) {
                    std::task::Poll::Ready(_) => std::task::Poll::Ready(()),
                    std::task::Poll::Pending => work.as_mut().poll(context),
                });
            if catch_unwind(AssertUnwindSafe(|| runtime.block_on(until_stopped))).is_err() {
                died();
            }
            // Who waits for what the work was to do learns of its end by what the work owned.
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(refused)?;
        Ok(Self { process: std::process::id(), stop: Some(stop), alive, thread: Some(thread) })
    }

    /// Whether the thread is one of this process, and not of one that this was forked from.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        if !self.is_here() {
            // Its locks may be held for ever here, and waking the runtime would wake the parent's.
            std::mem::forget(self.stop.take());
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop = None;
        if let Err(RecvTimeoutError::Disconnected) = self.alive.recv_timeout(DROP_LIMIT) {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}
