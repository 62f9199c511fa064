//! How bytes come from peers: one narrow trait, so that another network's engine can take the place of HTTP.

use crate::io::{Filled, Waker};
use crate::peers::client::stats::PeerStats;
use base::error::Result;
use base::names::named;
use base::slot::Slot;
use data::dataset::FileVersion;
use std::time::Instant;

/// A request to read a sample that a peer keeps.
pub struct PeerRead {
    /// The number that the answer comes back with; its meaning is the caller's.
    pub token: u64,
    /// The number of the peer, in the order in which the engine was told of them.
    pub peer: usize,
    /// The sample.
    pub sample: u64,
    /// The sample's length in bytes, by the index.
    pub length: u32,
    /// The most bytes that a copy of it has in any form. Nothing longer is taken.
    pub most: u32,
    /// The version of its file, where the caller knows it. A copy of another one is none.
    pub version: Option<FileVersion>,
    /// The slot to read into, taken for at least `most` bytes.
    pub slot: Slot,
}

/// The answer to a [`PeerRead`].
pub struct PeerAnswer {
    /// The request's token.
    pub token: u64,
    /// The number of the peer.
    pub peer: usize,
    /// What arrived, or why nothing did: then the caller reads the source.
    pub result: Result<PeerCopy, Miss>,
    /// The slot of a read that missed, to read the source with. `None` where the network may still write to it: the
    /// engine keeps it in quarantine until that is over, and then gives it back to its pool.
    pub slot: Option<Slot>,
}

/// A sample as a peer has it.
pub struct PeerCopy {
    /// Exactly the sample's bytes, whose checksum was compared.
    pub bytes: Filled,
    /// Their CRC-32C.
    pub crc: u32,
    /// The version of the source's file that they are of: the one that was asked for, or that the peer vouches for.
    pub version: FileVersion,
}

/// Why a peer did not give a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// The peer does not keep it.
    Absent,
    /// The peer keeps it as it was before its file changed.
    Stale,
    /// The peer keeps it, but gives it only to who says which version its file has.
    Unconfirmed,
    /// The peer has too much to do.
    Busy,
    /// The answer was not complete by the deadline.
    Timeout,
    /// The peer refuses the token, the dataset or the generation.
    Refused,
    /// The answer is not the sample: another length or checksum, or no answer of ours at all.
    Wrong,
    /// There is no connection, or it broke.
    Unreachable,
    /// The peer failed several times in a row, and is left alone for a while.
    Breaker,
}

named!(Miss: "absent" => Absent, "stale" => Stale, "unconfirmed" => Unconfirmed, "busy" => Busy,
    "timeout" => Timeout, "refused" => Refused, "wrong" => Wrong, "unreachable" => Unreachable,
    "breaker" => Breaker);

impl Miss {
    /// Whether it means that something is wrong with the peer, and not only that it does not have or give the sample
    /// now.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Timeout | Self::Refused | Self::Wrong | Self::Unreachable)
    }
}

/// An engine with many reads from peers in flight, driven by one thread of the caller's. None of its methods waits but
/// [`PeerTransfer::wait_until`].
///
/// Every read is answered, by its deadline at the latest. The engine sets the deadlines, from what it measures.
pub trait PeerTransfer: Send {
    /// How many more reads may be posted before some are answered.
    fn room(&self) -> usize;

    /// How many reads were posted and not yet answered.
    fn in_flight(&self) -> usize;

    /// Queues a read, which begins with the next `flush`, or with any other method that takes answers.
    fn post(&mut self, read: PeerRead);

    /// Begins the reads that were posted.
    fn flush(&mut self);

    /// Appends the answers that are there to `out`.
    ///
    /// # Errors
    /// The error that ended the engine: no answer will come any more.
    fn try_answers(&mut self, out: &mut Vec<PeerAnswer>) -> Result<()>;

    /// Lets the first answer from now on call the waker that the engine was made with. Returns `false` when there are
    /// answers already, or never will be.
    fn listen(&mut self) -> bool;

    /// Waits for answers, until `limit` or until the [waker](PeerTransfer::waker) is called, and appends them to `out`.
    /// Without a limit and with nothing in flight it does not wait. Returns whether the waker was called.
    ///
    /// # Errors
    /// The error that ended the engine.
    fn wait_until(&mut self, limit: Option<Instant>, out: &mut Vec<PeerAnswer>) -> Result<bool>;

    /// Makes a `wait_until` return soon, from any thread.
    fn waker(&self) -> Waker;

    /// What each peer did so far, by number.
    fn stats(&self) -> Vec<PeerStats>;

    /// Describes the engine: "HTTP/1.1, 4 connections a peer".
    fn describe(&self) -> String;
}
