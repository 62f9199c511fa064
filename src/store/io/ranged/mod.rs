//! A reader of files on servers. Each read is a request for a range of bytes, which go straight into the slot as they
//! arrive.
//!
//! The waiting thread drives all requests itself, on its own runtime, so that no other thread wakes for a read. A
//! request that fails for a transient reason is retried after a pause. If a request takes longer than 99 % of the
//! others, the reader sends a second one (a hedge) on another connection, and the first complete response wins.

mod attempt;
mod blocking;
mod race;

use super::files::{Files, MAX_RESTARTS, RemoteFile};
use super::{Completion, DROP_LIMIT, Filled, ReadCounters, ReadRequest, ReadStats, Reader, Waker};
use attempt::{RangeFailure, Wanted};
use base::error::{Error, Result};
use base::locks::lock;
pub(super) use blocking::read_blocking;
use data::dataset::{Extent, FileVersion, Stamp};
use data::http::{DeadlineLimits, HttpClient, ReadEnd, RequestDeadline, Retries};
use race::{First, race};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout, timeout_at};

/// The limits for the deadline of a request. Between the limits, measured times determine the deadline. The limits
/// allow networks of a few MB/s.
const LIMITS: DeadlineLimits = DeadlineLimits {
    first: Duration::from_secs(10),
    floor: Duration::from_secs(2),
    ceiling: Duration::from_secs(20),
    factor: 4.0,
    slowest: 4_000_000,
};
/// The maximum pause within a response before the response counts as stalled.
const SILENCE: Duration = Duration::from_secs(5);
/// The minimum time before a request is hedged, however fast other requests are.
const HEDGE_FLOOR: Duration = Duration::from_millis(50);
/// At most one in this many requests may be a hedge.
const HEDGED: u64 = 20;

pub(crate) struct RangedReader {
    runtime: Option<Runtime>,
    shared: Arc<RangedShared>,
    queued: Vec<ReadRequest>,
    depth: usize,
    in_flight: usize,
}

struct RangedShared {
    files: Arc<dyn Files>,
    /// Locked while a changed shard is compared with the index, which occupies a thread, so that one shard is compared
    /// at a time.
    accepting: tokio::sync::Mutex<()>,
    client: HttpClient,
    deadline: Mutex<RequestDeadline>,
    arrived: Mutex<Vec<Completion>>,
    notify: Arc<Notify>,
    counters: ReadCounters,
}

impl RangedReader {
    /// Makes a reader of remote `files` with up to `depth` concurrent requests, each on its own connection.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system refuses a resource that the runtime needs.
    pub(crate) fn new(files: Arc<dyn Files>, depth: usize) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
        let runtime = runtime.map_err(|error| {
            Error::Unavailable(format!("cannot make a reader of files on servers: {error}"))
        })?;
        let shared = RangedShared {
            files,
            accepting: tokio::sync::Mutex::default(),
            client: HttpClient::new(),
            deadline: Mutex::new(RequestDeadline::new(LIMITS, Instant::now())),
            arrived: Mutex::default(),
            notify: Arc::default(),
            counters: ReadCounters::default(),
        };
        let (queued, in_flight) = (Vec::new(), 0);
        Ok(Self { runtime: Some(runtime), shared: Arc::new(shared), queued, depth: depth.max(1), in_flight })
    }
}

impl Reader for RangedReader {
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
        if self.in_flight == 0 {
            return Ok(());
        }
        let runtime = self.runtime.as_ref().expect("it is taken only when the reader is dropped");
        for request in self.queued.drain(..) {
            runtime.spawn(self.shared.clone().answer(request));
        }
        runtime.block_on(self.shared.notify.notified());
        let mut arrived = lock(&self.shared.arrived);
        self.in_flight -= arrived.len();
        out.append(&mut arrived);
        Ok(())
    }

    fn waker(&self) -> Waker {
        let notify = self.shared.notify.clone();
        Waker(Arc::new(move || notify.notify_one()))
    }

    fn stats(&self) -> ReadStats {
        let stats = self.shared.counters.read();
        ReadStats { reads: stats.requests, ..stats }
    }

    fn describe(&self) -> String {
        format!("HTTP ranges, up to {} connections", self.depth)
    }
}

impl Drop for RangedReader {
    /// Drops requests in flight, with their slots. If a thread still checks a changed file after [`DROP_LIMIT`], the
    /// thread is detached.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(DROP_LIMIT);
        }
    }
}

/// A read. Dropping it answers the read, even if its task panicked.
struct OpenRequest {
    token: u64,
    shared: Arc<RangedShared>,
    answer: Option<Completion>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let died = || Error::Internal("the task of a request ended without an answer".to_owned());
        let answer = self.answer.take();
        let answer = answer.unwrap_or_else(|| Completion::failed(self.token, died(), None));
        lock(&self.shared.arrived).push(answer);
        self.shared.notify.notify_one();
    }
}

impl RangedShared {
    async fn answer(self: Arc<Self>, request: ReadRequest) {
        let mut open = OpenRequest { token: request.token, shared: self.clone(), answer: None };
        let ReadRequest { token, extent, mut slot, .. } = request;
        let length = extent.length as usize;
        let Some(room) = slot.bytes_mut().get_mut(..length) else {
            let error =
                Error::Internal(format!("a slot of {} bytes for a read of {length}", slot.capacity()));
            open.answer = Some(Completion::failed(token, error, slot));
            return;
        };
        open.answer = Some(match self.read(extent, room).await {
            Ok(version) => Completion { version, ..Completion::arrived(token, Filled::new(slot, 0..length)) },
            Err(error) => Completion::failed(token, error, slot),
        });
    }

    /// Reads an extent into the buffer `room`, which has the same length. Returns the version of a file that is one
    /// sample.
    async fn read(self: &Arc<Self>, extent: Extent, room: &mut [u8]) -> Result<Option<FileVersion>> {
        let file = self.files.remote(extent.file);
        let path = || self.files.path(extent.file);
        let file = file.ok_or_else(|| Error::Internal(format!("{} is not on a server", path().display())))?;
        let mut restarts = 0;
        loop {
            let stamp = self.files.stamp(extent.file);
            match self.fetch(&file, Wanted { extent, stamp }, room).await {
                Ok(found) => return Ok(found.filter(|found| found.is_stable()).map(Stamp::version)),
                Err(RangeFailure::VersionChanged(difference)) if restarts < MAX_RESTARTS => {
                    let _alone = self.accepting.lock().await;
                    if self.files.stamp(extent.file) != stamp {
                        // While this read waited, another read found that the shard still holds the indexed samples.
                        continue;
                    }
                    restarts += 1;
                    let files = self.files.clone();
                    // `accept` may parse the shard again, which makes further requests and waits for them.
                    let accepted = tokio::task::spawn_blocking(move || files.accept(extent.file, difference));
                    accepted.await.map_err(|_| {
                        Error::Internal("the check of a changed file ended without a result".to_owned())
                    })??;
                }
                Err(failure) => return Err(failure.into_error(&path(), extent)),
            }
        }
    }

    async fn fetch(
        &self,
        file: &RemoteFile,
        wanted: Wanted,
        room: &mut [u8],
    ) -> Result<Option<Stamp>, RangeFailure> {
        if room.is_empty() && wanted.stamp.is_some() {
            return Ok(None);
        }
        let mut retries = Retries::new();
        loop {
            let posted = lock(&self.deadline).post(room.len() as u64, Instant::now());
            // A slow server may stay slow for a while, so each retry may take longer than the one before.
            let allowed = posted.deadline.saturating_duration_since(Instant::now()) * (1 + retries.failed());
            let result = self.hedged(file, wanted, room, allowed).await;
            let end = match &result {
                Ok(_) => ReadEnd::Arrived,
                Err(failure) if failure.is_late() => ReadEnd::Late,
                Err(_) => ReadEnd::Other,
            };
            lock(&self.deadline).end(&posted, end, Instant::now());
            match result {
                Err(RangeFailure::Transient(failure)) => {
                    let pause = retries.after(failure).map_err(RangeFailure::RequestError)?;
                    self.counters.retries.fetch_add(1, Relaxed);
                    sleep(pause).await;
                }
                other => return other,
            }
        }
    }

    async fn hedged(
        &self,
        file: &RemoteFile,
        wanted: Wanted,
        room: &mut [u8],
        allowed: Duration,
    ) -> Result<Option<Stamp>, RangeFailure> {
        let limit = tokio::time::Instant::now() + allowed;
        let late = |_| RangeFailure::late(allowed);
        let mut copy = Vec::new();
        let (winner, length) = {
            let length = room.len();
            let usual = lock(&self.deadline).usual(length as u64);
            let mut first = pin!(timeout_at(limit, self.attempt(file, wanted, room)));
            let Some(usual) = usual else { return first.await.unwrap_or_else(|over| Err(late(over))) };
            match timeout(usual.max(HEDGE_FLOOR), first.as_mut()).await {
                Ok(result) => return result.unwrap_or_else(|over| Err(late(over))),
                Err(_) if !self.may_hedge() => return first.await.unwrap_or_else(|over| Err(late(over))),
                Err(_) => {}
            }
            copy.resize(length, 0);
            let second = pin!(timeout_at(limit, self.attempt(file, wanted, &mut copy)));
            (race(first, second).await, length)
        };
        match winner {
            First::Original(result) => result.unwrap_or_else(|over| Err(late(over))),
            First::Hedge(result) => {
                let found = result.unwrap_or_else(|over| Err(late(over)))?;
                room.copy_from_slice(&copy[..length]);
                Ok(found)
            }
        }
    }

    /// Returns whether one more request may be a hedge, and counts the hedge if so.
    fn may_hedge(&self) -> bool {
        let ReadCounters { requests, hedges, .. } = &self.counters;
        let may = (hedges.load(Relaxed) + 1) * HEDGED <= requests.load(Relaxed);
        if may {
            hedges.fetch_add(1, Relaxed);
        }
        may
    }
}
