//! Statistics of a peer.

use super::breaker::BreakerState;
use super::transfer::Miss;
use base::counting::{count, counters};
use base::trace::Histogram;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

counters! {
    /// Counters of the requests to a peer and their outcomes.
    PeerCounts,
    /// The atomic counters.
    pub(in crate::peers) PeerCounters:
    /// The number of requested samples. Each sample is a hit or one of the misses below.
    reads,
    /// The number of samples that arrived.
    hits,
    /// The number of bytes in the samples that arrived.
    bytes,
    /// The number of samples that the peer did not keep.
    absent,
    /// The number of samples that the peer kept in another version of their file.
    stale,
    /// The number of samples that the peer gives only for a request with the version of the sample's file. Such samples
    /// are requested again with the version.
    unconfirmed,
    /// The number of samples that the peer was too busy to send.
    busy,
    /// The number of samples that had not arrived by the deadline.
    timeouts,
    /// The number of samples that the peer refused.
    refused,
    /// The number of answers with a wrong length or checksum.
    wrong,
    /// The number of samples without a connection, or whose connection broke.
    unreachable,
    /// The number of samples that were not requested, because the peer's breaker was open.
    breaker,
    /// The number of samples that this node tried to push to the peer. Each of them also counts as taken, refused, full
    /// or dropped, once its outcome is known.
    pushes,
    /// The number of samples that the peer took.
    pushes_taken,
    /// The bytes of the pushed samples that the peer took.
    pushed_bytes,
    /// The number of samples that the peer did not take because it had the sample already, or was busy.
    pushes_refused,
    /// The number of samples that the peer has no space for.
    pushes_full,
    /// The number of samples that were not pushed: too many waited, or the peer failed.
    pushes_dropped,
    /// The number of connections that were made.
    connects,
    /// Gauge: the number of open connections. A connection that the peer has closed counts until it is used again.
    connections,
}

impl PeerCounters {
    pub(super) fn missed(&self, why: Miss) {
        let counter: &AtomicU64 = match why {
            Miss::Absent => &self.absent,
            Miss::Stale => &self.stale,
            Miss::Unconfirmed => &self.unconfirmed,
            Miss::Busy => &self.busy,
            Miss::Timeout => &self.timeouts,
            Miss::Refused => &self.refused,
            Miss::Wrong => &self.wrong,
            Miss::Unreachable => &self.unreachable,
            Miss::Breaker => &self.breaker,
        };
        count(counter, 1);
    }
}

/// The statistics and the state of a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerStats {
    /// The address that the peer listens on.
    pub address: SocketAddr,
    /// The counters since the transfer was started.
    pub counts: PeerCounts,
    /// Whether requests to the peer are allowed.
    pub breaker: BreakerState,
    /// The time that the next read may take, without the transfer of its own bytes. The transfer may take four times as
    /// long as usual.
    pub deadline: Duration,
    /// The latencies of the samples that arrived.
    pub latency: Histogram,
}
