//! A reader on its own thread, so that one thread can wait for two readers at once.
//!
//! An io_uring ring delivers completions only to the thread that drives it, and a wait for one reader does not see
//! completions of another reader. [`OwnThread`] drives the second reader on its own thread. Requests and completions
//! are passed between the threads in batches. A thread makes a system call to wake the other one only if the other one
//! sleeps.

use super::{Completion, DROP_LIMIT, ListeningReader, ReadRequest, ReadStats, Reader, Waker};
use base::error::{Error, Result};
use base::locks::lock;
use base::threads::{BackgroundThread, caught};
use crossbeam_channel::{Sender, bounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A reader driven by its own thread.
pub struct OwnThread {
    shared: Arc<ThreadShared>,
    inner: Waker,
    queued: Vec<ReadRequest>,
    depth: usize,
    in_flight: usize,
    description: String,
    thread: BackgroundThread,
}

struct ThreadShared {
    state: Mutex<ReaderState>,
    requested: Condvar,
    answered: Condvar,
    on_ready: Waker,
}

#[derive(Default)]
struct ReaderState {
    requests: Vec<ReadRequest>,
    answers: Vec<Completion>,
    stats: ReadStats,
    activity: ReaderActivity,
    asleep: bool,
    /// Whether the caller waits in another reader, so that the first completion must call `on_ready`.
    listening: bool,
    woken: bool,
    closed: bool,
    failed: Option<Error>,
    ended: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum ReaderActivity {
    /// The thread will check for requests before it sleeps, so it needs no wake-up.
    #[default]
    Working,
    Idle,
    Reading,
}

struct OpenedReader {
    depth: usize,
    waker: Waker,
    description: String,
}

impl OwnThread {
    /// Opens a reader by `open`, on the thread `name` that will drive it.
    ///
    /// While the caller waits in another reader (see [`ListeningReader::listen`]), completions call `on_ready`, the
    /// waker of that other reader.
    ///
    /// # Errors
    /// The errors of `open`; [`Error::Unavailable`] if the system refuses the thread.
    pub fn new(
        name: &str,
        open: impl FnOnce() -> Result<Box<dyn Reader>> + Send + 'static,
        on_ready: Waker,
    ) -> Result<Self> {
        let shared = Arc::new(ThreadShared {
            state: Mutex::default(),
            requested: Condvar::new(),
            answered: Condvar::new(),
            on_ready,
        });
        let (opened, opening) = bounded(1);
        let work = {
            let shared = shared.clone();
            move || shared.run(open, &opened)
        };
        let thread = BackgroundThread::start(name, &format!("the thread {name} of a reader"), work)?;
        let gone = || shared.why_ended(&mut lock(&shared.state));
        let OpenedReader { depth, waker, description } = opening.recv().unwrap_or_else(|_| Err(gone()))?;
        let (queued, in_flight) = (Vec::new(), 0);
        Ok(Self { shared, inner: waker, queued, depth, in_flight, description, thread })
    }

    /// Passes submitted requests to the reader's thread. All methods that wait do this, too.
    pub fn flush(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let activity = {
            let mut state = lock(&self.shared.state);
            state.requests.append(&mut self.queued);
            std::mem::replace(&mut state.activity, ReaderActivity::Working)
        };
        self.wake_thread(activity);
    }

    /// Waits like [`Reader::wait`], but at most until `limit`. With a limit, it waits even if nothing is in flight.
    /// Returns whether the waker was called.
    ///
    /// # Errors
    /// The error that ended the reader's thread.
    pub fn wait_until(&mut self, limit: Option<Instant>, out: &mut Vec<Completion>) -> Result<bool> {
        if self.in_flight == 0 && limit.is_none() {
            return Ok(false);
        }
        self.flush();
        let shared = self.shared.clone();
        let mut state = lock(&shared.state);
        while state.answers.is_empty() && !state.woken && !state.ended {
            state.asleep = true;
            state = match limit.map(|limit| limit.saturating_duration_since(Instant::now())) {
                None => shared.answered.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    shared.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.asleep = false;
        let woken = state.woken;
        self.take_answers(&mut state, out)?;
        Ok(woken)
    }

    fn take_answers(&mut self, state: &mut ReaderState, out: &mut Vec<Completion>) -> Result<()> {
        state.listening = false;
        state.woken = false;
        if state.answers.is_empty() && state.ended {
            return Err(self.shared.why_ended(state));
        }
        self.in_flight -= state.answers.len();
        out.append(&mut state.answers);
        Ok(())
    }

    fn wake_thread(&self, activity: ReaderActivity) {
        match activity {
            ReaderActivity::Working => {}
            ReaderActivity::Idle => self.shared.requested.notify_one(),
            ReaderActivity::Reading => (self.inner.0)(),
        }
    }
}

impl Reader for OwnThread {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.room() > 0, "submit without room");
        self.in_flight += 1;
        self.queued.push(request);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.wait_until(None, out).map(drop)
    }

    fn waker(&self) -> Waker {
        let shared = self.shared.clone();
        Waker(Arc::new(move || {
            let mut state = lock(&shared.state);
            state.woken = true;
            if state.asleep {
                shared.answered.notify_one();
            }
        }))
    }

    fn stats(&self) -> ReadStats {
        lock(&self.shared.state).stats
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl ListeningReader for OwnThread {
    fn listen(&mut self) -> bool {
        self.flush();
        let mut state = lock(&self.shared.state);
        state.listening = self.in_flight > 0 && state.answers.is_empty() && !state.ended && !state.woken;
        state.listening
    }

    fn take(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.flush();
        let shared = self.shared.clone();
        self.take_answers(&mut lock(&shared.state), out)
    }
}

impl Drop for OwnThread {
    /// Waits up to [`DROP_LIMIT`] until the wrapped reader is dropped. A thread that blocks for longer is detached.
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.closed = true;
            state.requests.clear();
        }
        self.shared.requested.notify_one();
        (self.inner.0)();
        self.thread.end(2 * DROP_LIMIT);
    }
}

impl ThreadShared {
    /// Runs the reader's thread. Even if the thread panics, it sets `ended`, so that no caller waits for ever.
    fn run(&self, open: impl FnOnce() -> Result<Box<dyn Reader>>, opened: &Sender<Result<OpenedReader>>) {
        let drive = || {
            let reader = open()?;
            let known =
                OpenedReader { depth: reader.room(), waker: reader.waker(), description: reader.describe() };
            let _ = opened.send(Ok(known));
            self.drive(reader)
        };
        let outcome = caught("reading", drive);
        let mut state = lock(&self.state);
        state.failed = outcome.err();
        state.ended = true;
        self.announce(state);
    }

    fn drive(&self, mut reader: Box<dyn Reader>) -> Result<()> {
        let (mut requests, mut answers) = (Vec::new(), Vec::new());
        while self.next_requests(reader.in_flight(), &mut requests) {
            for request in requests.drain(..) {
                reader.submit(request);
            }
            reader.wait(&mut answers)?;
            let mut state = lock(&self.state);
            state.activity = ReaderActivity::Working;
            state.stats = reader.stats();
            if !state.closed && !answers.is_empty() {
                state.answers.append(&mut answers);
                self.announce(state);
            }
        }
        Ok(())
    }

    /// Takes the available requests. Sleeps while there are none and nothing is in flight. Returns `false` if the
    /// reader is closed.
    fn next_requests(&self, in_flight: usize, requests: &mut Vec<ReadRequest>) -> bool {
        let mut state = lock(&self.state);
        while !state.closed && state.requests.is_empty() && in_flight == 0 {
            state.activity = ReaderActivity::Idle;
            state = self.requested.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.activity = ReaderActivity::Reading;
        requests.append(&mut state.requests);
        !state.closed
    }

    fn announce(&self, mut state: MutexGuard<'_, ReaderState>) {
        let (asleep, listening) = (state.asleep, std::mem::take(&mut state.listening));
        drop(state);
        if asleep {
            self.answered.notify_one();
        }
        if listening {
            (self.on_ready.0)();
        }
    }

    fn why_ended(&self, state: &mut ReaderState) -> Error {
        let ended = || Error::Internal("the thread of a reader has ended".into());
        state.failed.take().unwrap_or_else(ended)
    }
}
