//! One peer: its connections, its breaker and deadlines, and its statistics. Reads and pushes share the breaker.
//! Requests that wait for a connection when it opens fail too.

use super::answers::OpenRead;
use super::breaker::{Breaker, BreakerState};
use super::connection::{ConnectionPool, ConnectionTurn, PeerRequest};
use super::http::{HttpOptions, Peer};
use super::stats::{PeerCounters, PeerStats};
use super::transfer::{Miss, PeerCopy};
use crate::io::Filled;
use crate::peers::bound::ReservedBytes;
use crate::peers::counters::count;
use crate::peers::wire::{self, SharedDataset};
use base::crc::Checksum;
use base::names::NamedValue;
use base::notices::Notices;
use base::trace::SharedHistogram;
use bytes::Bytes;
use data::dataset::FileVersion;
use data::http::pinned;
use data::http::{DeadlineLimits, PostedRead, ReadEnd, RequestDeadline};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use pixels::decode::{StorageFormat, storage_format_of};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of connections for pushes. They are separate from those for reads.
const PUSH_CONNECTIONS: usize = 1;

/// One peer.
pub(super) struct PeerLink {
    address: SocketAddr,
    dataset: SharedDataset,
    host: HeaderValue,
    authorization: HeaderValue,
    reads: ConnectionPool,
    pushes: ConnectionPool,
    limits: DeadlineLimits,
    judgement: Mutex<PeerHealth>,
    pub counters: Arc<PeerCounters>,
    latency: SharedHistogram,
    /// Whether the peer has reported that it has no room for more.
    full: AtomicBool,
    notices: Notices,
}

/// The measured health of a peer.
struct PeerHealth {
    breaker: Breaker,
    deadline: RequestDeadline,
}

/// A sample to push.
pub(super) struct PeerPush {
    pub sample: u64,
    pub version: FileVersion,
    pub crc: u32,
    pub bytes: Bytes,
    pub _reserved: ReservedBytes,
}

impl PeerLink {
    pub(super) fn new(peer: &Peer, options: &HttpOptions) -> Self {
        let counters = Arc::<PeerCounters>::default();
        let tls = peer.pin.map(pinned::connector);
        let pool =
            |connections| ConnectionPool::new(peer.address, tls.clone(), connections, counters.clone());
        Self {
            address: peer.address,
            dataset: options.dataset,
            host: HeaderValue::try_from(peer.address.to_string()).expect("digits and dots"),
            authorization: options.token.header(),
            reads: pool(options.connections),
            pushes: pool(PUSH_CONNECTIONS),
            limits: options.deadline,
            judgement: Mutex::new(PeerHealth {
                breaker: Breaker::new(options.breaker),
                deadline: RequestDeadline::new(options.deadline, Instant::now()),
            }),
            counters,
            latency: SharedHistogram::default(),
            full: AtomicBool::default(),
            notices: options.notices.clone(),
        }
    }

    /// Posts a read of `bytes` at `now`; `None` if the breaker is open.
    pub(super) fn admit_read(&self, bytes: u64, now: Instant) -> Option<PostedRead> {
        let PeerHealth { breaker, deadline } = &mut *self.judgement();
        breaker.admit(now).then(|| deadline.post(bytes, now))
    }

    /// Returns whether the breaker allows a push at `now`.
    pub(super) fn admit_push(&self, now: Instant) -> bool {
        self.judgement().breaker.admit(now)
    }

    /// Returns whether the peer has reported to be full since the last [`PeerLink::offer_again`].
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Allows offers to the peer again.
    pub(super) fn offer_again(&self) {
        self.full.store(false, Relaxed);
    }

    pub(super) fn stats(&self) -> PeerStats {
        let (breaker, deadline) = {
            let judgement = self.judgement();
            (judgement.breaker.state(), judgement.deadline.allowed(0))
        };
        let (counts, latency) = (self.counters.read(), self.latency.snapshot());
        PeerStats { address: self.address, counts, breaker, deadline, latency }
    }

    /// Waits until a connection of `pool` is free. Fails if the breaker is open by then.
    async fn turn<'a>(&self, pool: &'a ConnectionPool) -> Result<ConnectionTurn<'a>, Miss> {
        let turn = pool.turn().await;
        // The requests before it have failed. Those that wait for a connection must not each wait for the same failure.
        if self.judgement().breaker.state() == BreakerState::Open { Err(Miss::Breaker) } else { Ok(turn) }
    }

    /// Reads a sample and answers the read.
    pub(super) async fn read(self: Arc<Self>, mut read: OpenRead) {
        let (limit, sample, version) = (read.times.deadline.into(), read.sample(), read.version());
        let expected = read.length();
        let get = self.get(sample, version, expected, read.room());
        let result = tokio::time::timeout_at(limit, get).await;
        let result = result.unwrap_or(Err(Miss::Timeout));
        if result.is_ok() {
            self.latency.record(read.times.took());
        }
        self.end_read(&read.times, result.err());
        read.finish(result.map(|(version, crc, length)| {
            move |slot| PeerCopy { bytes: Filled::new(slot, 0..length), crc, version }
        }));
    }

    /// Reads a sample into `room`, in the `asked` version if that is known. The sample has the `expected` length, or
    /// another one if its copy is in another storage format. Returns its version, checksum and length.
    async fn get(
        &self,
        sample: u64,
        asked: Option<FileVersion>,
        expected: usize,
        room: &mut [u8],
    ) -> Result<(FileVersion, u32, usize), Miss> {
        let path = self.dataset.path(sample);
        let request = || {
            let mut request = self.request(Method::GET, &path, Bytes::new());
            if let Some(version) = asked {
                request.headers_mut().insert(header::IF_MATCH, wire::version_value(version));
            }
            request
        };
        let mut exchange = self.turn(&self.reads).await?.send(request).await?;
        let response = &mut exchange.response;
        let status = response.status();
        if status != StatusCode::OK {
            if response.body().is_end_stream() {
                exchange.keep_connection();
            }
            return Err(miss_of(status));
        }
        let headers = response.headers();
        let version = wire::version_of(headers, header::ETAG);
        let crc = version.and_then(|version| wire::crc_of(headers, sample, version));
        let (Some(version), Some(crc)) = (version, crc) else { return Err(Miss::Wrong) };
        let length = wire::length_of(headers).and_then(|length| usize::try_from(length).ok());
        let room = length.and_then(|length| room.get_mut(..length)).ok_or(Miss::Wrong)?;
        if asked.is_some_and(|asked| asked != version) {
            return Err(Miss::Wrong);
        }
        let (mut arrived, mut checksum) = (0, Checksum::new());
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|_| Miss::Unreachable)?;
            let Some(piece) = frame.data_ref() else { continue };
            room.get_mut(arrived..arrived + piece.len()).ok_or(Miss::Wrong)?.copy_from_slice(piece);
            checksum.update(piece);
            arrived += piece.len();
        }
        let may_be = arrived == expected || storage_format_of(room) != StorageFormat::AsIs;
        if arrived != room.len() || checksum.value() != crc || !may_be {
            return Err(Miss::Wrong);
        }
        exchange.keep_connection();
        Ok((version, crc, arrived))
    }

    /// Pushes a sample.
    pub(super) async fn push(self: Arc<Self>, push: PeerPush) {
        let outcome = self.put_in_turn(&push).await;
        match outcome {
            Ok(StatusCode::CREATED) => {
                count(&self.counters.pushes_taken, 1);
                count(&self.counters.pushed_bytes, push.bytes.len() as u64);
            }
            Ok(StatusCode::INSUFFICIENT_STORAGE | StatusCode::FORBIDDEN) => {
                self.full.store(true, Relaxed);
                count(&self.counters.pushes_full, 1);
            }
            Ok(_) => count(&self.counters.pushes_refused, 1),
            Err(_) => count(&self.counters.pushes_dropped, 1),
        }
        self.judge(outcome.err());
    }

    /// Sends a push as soon as a connection is free; its time limit begins then. The limit is needed although nothing
    /// waits for the push: it holds its bytes, and so do the pushes after it.
    async fn put_in_turn(&self, push: &PeerPush) -> Result<StatusCode, Miss> {
        let turn = self.turn(&self.pushes).await?;
        let limit = self.limits.longest(push.bytes.len() as u64);
        tokio::time::timeout(limit, self.put(turn, push)).await.unwrap_or(Err(Miss::Timeout))
    }

    async fn put(&self, turn: ConnectionTurn<'_>, push: &PeerPush) -> Result<StatusCode, Miss> {
        let path = self.dataset.path(push.sample);
        let request = || {
            let mut request = self.request(Method::PUT, &path, push.bytes.clone());
            // The HTTP library sends no length for an empty body.
            request.headers_mut().insert(header::CONTENT_LENGTH, push.bytes.len().into());
            request.headers_mut().insert(wire::VERSION, wire::version_value(push.version));
            request.headers_mut().insert(wire::CRC, wire::crc_value(push.sample, push.version, push.crc));
            request
        };
        let exchange = turn.send(request).await?;
        let status = exchange.response.status();
        if exchange.response.body().is_end_stream() {
            exchange.keep_connection();
        }
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::CONFLICT => Err(Miss::Refused),
            status => Ok(status),
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> PeerRequest {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("digits and slashes");
        request.headers_mut().insert(header::HOST, self.host.clone());
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        request
    }

    /// Records how a read ended: `None` if its bytes arrived.
    fn end_read(&self, read: &PostedRead, missed: Option<Miss>) {
        let end = match missed {
            None => ReadEnd::Arrived,
            Some(Miss::Timeout) => ReadEnd::Late,
            Some(_) => ReadEnd::Other,
        };
        self.judgement().deadline.end(read, end, Instant::now());
        self.judge(missed);
    }

    /// Updates the breaker with the outcome of an admitted request: `None` if it was answered.
    fn judge(&self, missed: Option<Miss>) {
        let mut judgement = self.judgement();
        let miss = match missed {
            // No request was sent.
            Some(Miss::Breaker) => return,
            Some(miss) if miss.is_failure() => miss,
            _ => return judgement.breaker.succeeded(),
        };
        let persists = judgement.breaker.failed(Instant::now());
        drop(judgement);
        if persists {
            self.notices.warn_once(("peers", miss.name()), || self.complaint(miss));
        }
    }

    fn complaint(&self, miss: Miss) -> String {
        let (what, remedy) = match miss {
            Miss::Refused => (
                "refuses this node's requests",
                "check that all nodes belong to the same start of the job and have the same dataset",
            ),
            Miss::Wrong => ("answers with wrong bytes", "check its memory and the network between the nodes"),
            Miss::Timeout => ("is too slow", "check its load and the network between the nodes"),
            _ => ("cannot be reached", "check that it runs, and that no firewall blocks it"),
        };
        format!(
            "the peer {} {what}: its samples are read from the source, and it is retried from time to time; {remedy}. \
             stats() counts this for each peer.",
            self.address
        )
    }

    fn judgement(&self) -> MutexGuard<'_, PeerHealth> {
        self.judgement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the reason for an answer without the sample.
fn miss_of(status: StatusCode) -> Miss {
    match status {
        StatusCode::NOT_FOUND => Miss::Absent,
        StatusCode::PRECONDITION_FAILED => Miss::Stale,
        StatusCode::PRECONDITION_REQUIRED => Miss::Unconfirmed,
        StatusCode::SERVICE_UNAVAILABLE => Miss::Busy,
        StatusCode::UNAUTHORIZED | StatusCode::CONFLICT => Miss::Refused,
        _ => Miss::Wrong,
    }
}
