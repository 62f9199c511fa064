//! What a peer did for this node, for telemetry.

use super::breaker::BreakerState;
use super::transfer::Miss;
use crate::peers::counters::{count, counters};
use base::trace::Histogram;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

counters! {
    /// What was asked of a peer, and what came of it.
    PeerCounts,
    /// The counters themselves.
    PeerCounters:
    /// The number of samples asked for. Each is a hit or one of the misses.
    reads,
    /// The number of samples that arrived.
    hits,
    /// The bytes of these samples.
    bytes,
    /// The number of samples that the peer did not keep.
    absent,
    /// The number of samples that the peer kept as they were before their files changed.
    stale,
    /// The number of samples that the peer gives only to who knows the version of their files. They are asked for
    /// again.
    unconfirmed,
    /// The number of samples that the peer had no time for.
    busy,
    /// The number of samples that had not arrived by the deadline.
    timeouts,
    /// The number of samples that the peer refused.
    refused,
    /// The number of answers with a wrong length or checksum.
    wrong,
    /// The number of samples for which there was no connection, or it broke.
    unreachable,
    /// The number of samples that were not asked for, because the peer had failed before.
    breaker,
    /// The number of samples that were offered to be pushed. Each is taken, refused, too much, or dropped.
    pushes,
    /// The number of samples that the peer took.
    pushes_taken,
    /// The bytes of these samples.
    pushed_bytes,
    /// The number of samples that the peer did not take because it has them already, or no time.
    pushes_refused,
    /// The number of samples that the peer has no room for.
    pushes_full,
    /// The number of samples that were not pushed: too many waited, or the peer failed.
    pushes_dropped,
    /// The number of connections that were made.
    connects,
    /// Gauge: the number of connections that are kept. That the peer has closed one shows when it is used next.
    connections,
}

impl PeerCounters {
    /// Counts a read that missed.
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

/// What a peer did, and how things stand with it.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerStats {
    /// Where it listens.
    pub address: SocketAddr,
    /// The counters since the transfer was started.
    pub counts: PeerCounts,
    /// Whether it is asked.
    pub breaker: BreakerState,
    /// How long the next read may take, beside four times the usual time for its bytes.
    pub deadline: Duration,
    /// How long the samples took that arrived.
    pub latency: Histogram,
}
