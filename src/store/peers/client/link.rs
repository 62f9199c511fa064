//! One peer: its connections, its breaker and deadlines, and its statistics. Reads and pushes share the breaker. When
//! the breaker opens, requests that wait for a connection fail at once.

use super::answers::OpenRead;
use super::breaker::{Breaker, BreakerState};
use super::connection::{ConnectionPermit, ConnectionPool, PeerRequest};
use super::http::{HttpOptions, Peer};
use super::stats::{PeerCounters, PeerStats};
use super::transfer::{Miss, PeerCopy};
use crate::io::Filled;
use crate::peers::bound::ReservedBytes;
use crate::peers::wire::{self, SharedDataset};
use base::counting::count;
use base::crc::Checksum;
use base::locks::lock;
use base::names::NamedValue;
use base::notices::Notices;
use base::trace::SharedHistogram;
use bytes::Bytes;
use data::dataset::FileVersion;
use data::http::{DeadlineLimits, PostedRead, ReadEnd, RequestDeadline, pinned};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use pixels::decode::{StorageFormat, storage_format_of};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const PUSH_CONNECTIONS: usize = 1;

pub(super) struct PeerLink {
    address: SocketAddr,
    dataset: SharedDataset,
    host: HeaderValue,
    authorization: HeaderValue,
    reads: ConnectionPool,
    pushes: ConnectionPool,
    limits: DeadlineLimits,
    health: Mutex<PeerHealth>,
    pub counters: Arc<PeerCounters>,
    latency: SharedHistogram,
    /// Whether the peer has no space for more pushes in this epoch.
    pub full: AtomicBool,
    notices: Notices,
}

struct PeerHealth {
    breaker: Breaker,
    deadline: RequestDeadline,
}

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
            health: Mutex::new(PeerHealth {
                breaker: Breaker::new(options.breaker),
                deadline: RequestDeadline::new(options.deadline, Instant::now()),
            }),
            counters,
            latency: SharedHistogram::default(),
            full: AtomicBool::default(),
            notices: options.notices.clone(),
        }
    }

    pub(super) fn admit_read(&self, bytes: u64, now: Instant) -> Option<PostedRead> {
        let PeerHealth { breaker, deadline } = &mut *lock(&self.health);
        breaker.admit(now).then(|| deadline.post(bytes, now))
    }

    pub(super) fn admit_push(&self, now: Instant) -> bool {
        lock(&self.health).breaker.admit(now)
    }

    pub(super) fn stats(&self) -> PeerStats {
        let (breaker, deadline) = {
            let health = lock(&self.health);
            (health.breaker.state(), health.deadline.allowed(0))
        };
        let (counts, latency) = (self.counters.read(), self.latency.snapshot());
        PeerStats { address: self.address, counts, breaker, deadline, latency }
    }

    async fn wait_for_connection<'a>(&self, pool: &'a ConnectionPool) -> Result<ConnectionPermit<'a>, Miss> {
        let permit = pool.wait_for_connection().await;
        // If earlier requests have opened the breaker, fail at once: otherwise the waiting requests would run into the
        // same failure one after another.
        if lock(&self.health).breaker.state() == BreakerState::Open { Err(Miss::Breaker) } else { Ok(permit) }
    }

    pub(super) async fn read(self: Arc<Self>, mut read: OpenRead) {
        let (limit, sample, version) = (read.times.deadline.into(), read.sample(), read.version());
        let expected = read.length();
        let get = self.get(sample, version, expected, read.buffer());
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

    /// Reads a sample into `buffer`. If `requested_version` is known, the copy must be of that version. The copy has
    /// the `expected` length, unless it is in another storage format. Returns the version, checksum and length of the
    /// copy.
    async fn get(
        &self,
        sample: u64,
        requested_version: Option<FileVersion>,
        expected: usize,
        buffer: &mut [u8],
    ) -> Result<(FileVersion, u32, usize), Miss> {
        let path = self.dataset.path(sample);
        let request = || {
            let mut request = self.request(Method::GET, &path, Bytes::new());
            if let Some(version) = requested_version {
                request.headers_mut().insert(header::IF_MATCH, wire::version_value(version));
            }
            request
        };
        let mut exchange = self.wait_for_connection(&self.reads).await?.send(request).await?;
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
        let buffer = length.and_then(|length| buffer.get_mut(..length)).ok_or(Miss::Wrong)?;
        if requested_version.is_some_and(|requested_version| requested_version != version) {
            return Err(Miss::Wrong);
        }
        let (mut arrived, mut checksum) = (0, Checksum::new());
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|_| Miss::Unreachable)?;
            let Some(payload) = frame.data_ref() else { continue };
            buffer.get_mut(arrived..arrived + payload.len()).ok_or(Miss::Wrong)?.copy_from_slice(payload);
            checksum.update(payload);
            arrived += payload.len();
        }
        let may_be = arrived == expected || storage_format_of(buffer) != StorageFormat::AsIs;
        if arrived != buffer.len() || checksum.value() != crc || !may_be {
            return Err(Miss::Wrong);
        }
        exchange.keep_connection();
        Ok((version, crc, arrived))
    }

    pub(super) async fn push(self: Arc<Self>, push: PeerPush) {
        let outcome = self.push_when_connected(&push).await;
        // Count last: a thread that sees in the counters that a push has ended can then rely on the breaker's state.
        self.record_outcome(outcome.err());
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
    }

    /// Sends a push as soon as a connection is free; its time limit begins then. Nothing waits for the push, but
    /// without a limit it and the pushes queued after it would keep their bytes in memory.
    async fn push_when_connected(&self, push: &PeerPush) -> Result<StatusCode, Miss> {
        let permit = self.wait_for_connection(&self.pushes).await?;
        let limit = self.limits.longest(push.bytes.len() as u64);
        tokio::time::timeout(limit, self.put(permit, push)).await.unwrap_or(Err(Miss::Timeout))
    }

    async fn put(&self, permit: ConnectionPermit<'_>, push: &PeerPush) -> Result<StatusCode, Miss> {
        let path = self.dataset.path(push.sample);
        let request = || {
            let mut request = self.request(Method::PUT, &path, push.bytes.clone());
            // The HTTP library omits the length of an empty body.
            request.headers_mut().insert(header::CONTENT_LENGTH, push.bytes.len().into());
            request.headers_mut().insert(wire::VERSION, wire::version_value(push.version));
            request.headers_mut().insert(wire::CRC, wire::crc_value(push.sample, push.version, push.crc));
            request
        };
        let exchange = permit.send(request).await?;
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

    fn end_read(&self, read: &PostedRead, missed: Option<Miss>) {
        let end = match missed {
            None => ReadEnd::Arrived,
            Some(Miss::Timeout) => ReadEnd::Late,
            Some(_) => ReadEnd::Other,
        };
        lock(&self.health).deadline.end(read, end, Instant::now());
        self.record_outcome(missed);
    }

    fn record_outcome(&self, missed: Option<Miss>) {
        let mut health = lock(&self.health);
        let miss = match missed {
            // The breaker refused the request, so it was never sent.
            Some(Miss::Breaker) => return,
            Some(miss) if miss.is_failure() => miss,
            _ => return health.breaker.succeeded(),
        };
        let persists = health.breaker.failed(Instant::now());
        drop(health);
        if persists {
            self.notices.warn_once(("peers", miss.name()), || self.warning(miss));
        }
    }

    fn warning(&self, miss: Miss) -> String {
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
}

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
