//! The interface for reads from peers: one narrow trait, so that an engine for another network can replace HTTP.

use crate::io::{Filled, Waker};
use crate::peers::client::stats::PeerStats;
use base::error::Result;
use base::names::named;
use base::slot::Slot;
use data::dataset::FileVersion;
use std::time::Instant;

/// A request to read a sample that a peer keeps.
pub struct PeerRead {
    /// A number that the caller chooses. The answer has the same number.
    pub token: u64,
    /// The index of the peer, in the order in which the engine received the peers.
    pub peer: usize,
    /// The sample.
    pub sample: u64,
    /// The sample's length in bytes, by the index.
    pub length: u32,
    /// The maximum number of bytes of the sample's copy, in any storage format. Longer answers are refused.
    pub most: u32,
    /// The version of the sample's file, if the caller knows it. A copy of another version is a miss.
    pub version: Option<FileVersion>,
    /// The slot to read into, with space for at least `most` bytes.
    pub slot: Slot,
}

/// The answer to a [`PeerRead`].
pub struct PeerAnswer {
    /// The request's token.
    pub token: u64,
    /// The index of the peer.
    pub peer: usize,
    /// The copy that arrived, or the reason why none arrived. Without a copy, the caller reads the source.
    pub result: Result<PeerCopy, Miss>,
    /// The slot of a read that missed, for the read from the source. `None` if the network may still write to the slot.
    /// The engine keeps such a slot until the network has finished, and then returns it to its pool.
    pub slot: Option<Slot>,
}

/// A sample from a peer.
pub struct PeerCopy {
    /// Exactly the sample's bytes, with a verified checksum.
    pub bytes: Filled,
    /// The CRC-32C of the bytes.
    pub crc: u32,
    /// The version of the source file that the bytes come from: the requested version, or the version that the peer has
    /// confirmed.
    pub version: FileVersion,
}

/// Why a peer did not give a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// The peer does not keep the sample.
    Absent,
    /// The peer keeps the sample in another version than the sample's file has now.
    Stale,
    /// The peer keeps the sample, but gives it only for a request with the version of the sample's file.
    Unconfirmed,
    /// The peer is too busy.
    Busy,
    /// The answer was not complete by the deadline.
    Timeout,
    /// The peer refuses the token, the dataset or the generation.
    Refused,
    /// The response has a wrong length or checksum, or does not come from a Foreload server.
    Wrong,
    /// No connection could be made, or the connection broke.
    Unreachable,
    /// The peer failed several times in a row, and is skipped for a backoff period.
    Breaker,
}

named!(Miss: "absent" => Absent, "stale" => Stale, "unconfirmed" => Unconfirmed, "busy" => Busy,
    "timeout" => Timeout, "refused" => Refused, "wrong" => Wrong, "unreachable" => Unreachable,
    "breaker" => Breaker);

impl Miss {
    /// Returns whether the miss is a fault of the peer. A healthy peer can lack the sample or be busy, which is no
    /// fault.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Timeout | Self::Refused | Self::Wrong | Self::Unreachable)
    }
}

/// An engine with many reads from peers in flight, driven by one thread of the caller. Only
/// [`PeerTransfer::wait_until`] blocks.
///
/// The engine answers every read, by the read's deadline at the latest. It computes the deadlines from measured times.
pub trait PeerTransfer: Send {
    /// Returns how many more reads may be posted before some are answered.
    fn room(&self) -> usize;

    /// Returns the number of reads that were posted and not yet answered.
    fn in_flight(&self) -> usize;

    /// Queues a read. The read begins at the next `flush`, or at the next call of a method that takes answers.
    fn post(&mut self, read: PeerRead);

    /// Begins the reads that were posted.
    fn flush(&mut self);

    /// Appends the available answers to `out`.
    ///
    /// # Errors
    /// The error that ended the engine: no more answers will arrive.
    fn try_answers(&mut self, out: &mut Vec<PeerAnswer>) -> Result<()>;

    /// Arms the waker that the engine was made with: the next answer calls it. Returns `false` if answers are already
    /// available, or if none will arrive.
    fn listen(&mut self) -> bool;

    /// Waits for answers, until `limit` or until the [waker](PeerTransfer::waker) is called, and appends them to `out`.
    /// Without a limit and with nothing in flight it does not wait. Returns whether the waker was called.
    ///
    /// # Errors
    /// The error that ended the engine.
    fn wait_until(&mut self, limit: Option<Instant>, out: &mut Vec<PeerAnswer>) -> Result<bool>;

    /// Makes a `wait_until` return soon, from any thread.
    fn waker(&self) -> Waker;

    /// Returns the statistics of each peer, in the order of the peers' indices.
    fn stats(&self) -> Vec<PeerStats>;

    /// Describes the engine: "HTTP/1.1, 4 connections a peer".
    fn describe(&self) -> String;
}
