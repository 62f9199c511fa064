//! A thread with a runtime for futures: the peer server has one, and the client for peers has one.

use base::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long `drop` waits for the thread. Nothing on the thread blocks, so the thread normally ends at once. If it gets
/// no processor time, `drop` leaves it running.
const DROP_LIMIT: Duration = Duration::from_millis(800);

const BLOCKING_THREADS: usize = 2;

/// A thread with a runtime and all futures that were spawned on it. Dropping this value ends the thread and the
/// futures.
pub struct RuntimeThread {
    /// Process that started the thread. A forked child does not have the thread.
    process: u32,
    /// Dropping this sender ends the thread's main future.
    stop: Option<oneshot::Sender<()>>,
    /// The thread owns the sender. So the channel is disconnected once the thread has ended.
    alive: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Runs the future that `begin` makes on a thread called `name`, until the future ends or the returned value is
    /// dropped. `begin` runs at once on the calling thread, inside the runtime's context, so that it can create sockets
    /// and timers. If the future panics, the thread calls `died` and then drops everything that was spawned on the
    /// runtime.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system refuses the thread, or resources for its runtime.
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
            // Dropping `work` closes its channels. This informs waiting threads that the work has ended.
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(refused)?;
        Ok(Self { process: std::process::id(), stop: Some(stop), alive, thread: Some(thread) })
    }

    /// Whether this process started the thread, as opposed to the process that this one was forked from.
    pub fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        if !self.is_own_process() {
            // In a forked child, the runtime's locks may stay locked for ever, and waking the runtime would wake the
            // parent's runtime.
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
