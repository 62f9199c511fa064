//! The connections of a server, and their time limits.

use crate::peers::server::stats::ServerCounters;
use base::counting::count;
use base::locks::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The time limits of a connection. Each limit applies to a whole phase, so that a client cannot extend it by sending
/// one byte at a time.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The time in which a new connection must send its first request with a valid token, including the TLS handshake.
    pub first_request: Duration,
    /// The time in which a connection must send its next request, once it has sent a valid token.
    pub idle: Duration,
    /// The time in which the server must answer a request and the client must read the response.
    pub request: Duration,
}

impl Default for ConnectionLimits {
    /// 5 seconds for the first request, 60 seconds until the next request, and 30 seconds for a response.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first_request: seconds(5), idle: seconds(60), request: seconds(30) }
    }
}

pub(super) struct ConnectionWatch {
    start: Instant,
    authorised: AtomicBool,
    /// The number of responses in progress. It can be 2 for a moment, because the next request may arrive before the
    /// bytes of the previous response are released.
    answers: AtomicU64,
    /// When the present state of the connection began, in milliseconds after `start`.
    since: AtomicU64,
}

impl ConnectionWatch {
    fn new(start: Instant) -> Self {
        let watch = Self {
            start,
            authorised: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            since: AtomicU64::new(0),
        };
        watch.mark();
        watch
    }

    fn mark(&self) {
        self.since.store(self.start.elapsed().as_millis() as u64, Relaxed);
    }

    /// Records a request with a valid token. Its response counts as in progress until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveResponse {
        self.authorised.store(true, Relaxed);
        self.answers.fetch_add(1, Relaxed);
        self.mark();
        ActiveResponse(self.clone())
    }

    fn overdue(&self, limits: &ConnectionLimits) -> bool {
        let limit = match (self.answers.load(Relaxed), self.authorised.load(Relaxed)) {
            (0, false) => limits.first_request,
            (0, true) => limits.idle,
            _ => limits.request,
        };
        let since = Duration::from_millis(self.since.load(Relaxed));
        self.start.elapsed().saturating_sub(since) > limit
    }
}

pub(super) struct ActiveResponse(Arc<ConnectionWatch>);

impl Drop for ActiveResponse {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Relaxed);
        self.0.mark();
    }
}

pub(super) struct OpenConnections {
    start: Instant,
    bound: usize,
    limits: ConnectionLimits,
    state: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    open: HashMap<u64, (Arc<ConnectionWatch>, Option<AbortHandle>)>,
}

/// A place among the open connections. Dropping it frees the place.
pub(super) struct ConnectionPlace {
    connections: Arc<OpenConnections>,
    pub number: u64,
    pub watch: Arc<ConnectionWatch>,
}

impl OpenConnections {
    pub(super) fn new(bound: usize, limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), bound, limits, state: Mutex::default() })
    }

    pub(super) fn enter(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let mut state = lock(&self.state);
        if state.open.len() >= self.bound {
            return None;
        }
        let (number, watch) = (state.next, Arc::new(ConnectionWatch::new(self.start)));
        state.next += 1;
        state.open.insert(number, (watch.clone(), None));
        Some(ConnectionPlace { connections: self.clone(), number, watch })
    }

    pub(super) fn served_by(&self, number: u64, task: AbortHandle) {
        if let Some((_, handle)) = lock(&self.state).open.get_mut(&number) {
            *handle = Some(task);
        }
    }

    pub(super) fn open(&self) -> usize {
        lock(&self.state).open.len()
    }

    pub(super) fn end_overdue(&self, counters: &ServerCounters) {
        for (watch, task) in lock(&self.state).open.values() {
            if let Some(task) = task.as_ref().filter(|_| watch.overdue(&self.limits)) {
                // Aborting a task frees its place only when the task is dropped. So a task may be aborted twice; count
                // it once.
                if !task.is_finished() {
                    count(&counters.slow_connections, 1);
                }
                task.abort();
            }
        }
    }

    pub(super) fn check_interval(&self) -> Duration {
        let shortest = self.limits.first_request.min(self.limits.idle).min(self.limits.request);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        lock(&self.connections.state).open.remove(&self.number);
    }
}
