//! Reads from peers: requests and answers.

use crate::io::Filled;
use base::names::named;
use base::slot::Slot;
use data::dataset::FileVersion;

/// A request to read a sample from the cache of a peer.
pub struct PeerRead {
    /// A number that the caller chooses. The answer has the same number.
    pub token: u64,
    /// The index of the peer in the list with which the transport was made.
    pub peer: usize,
    /// The id of the sample.
    pub sample: u64,
    /// The length of the sample in the dataset's index, in bytes.
    pub length: u32,
    /// The maximum length of a copy of the sample, in any storage format, in bytes. Longer responses are refused.
    pub most: u32,
    /// The version of the sample's file, if the caller knows it. A copy of another version counts as a miss.
    pub version: Option<FileVersion>,
    /// The slot to read into, with space for at least `most` bytes.
    pub slot: Slot,
}

/// The answer to a [`PeerRead`].
pub struct PeerAnswer {
    /// The request's token.
    pub token: u64,
    /// The index of the peer in the list with which the transport was made.
    pub peer: usize,
    /// The copy that arrived, or the reason why none arrived. Without a copy, the caller reads the source.
    pub result: Result<PeerCopy, Miss>,
    /// The slot of a read that missed, for the read from the source. `None` if the network may still write to the slot;
    /// the slot then returns to its pool when the network has finished.
    pub slot: Option<Slot>,
}

/// A copy of a sample from a peer.
pub struct PeerCopy {
    /// The bytes of the copy. Their checksum was verified.
    pub bytes: Filled,
    /// The CRC-32C of the bytes.
    pub crc: u32,
    /// The version of the source file from which the bytes come: the requested version, or the version that the peer
    /// has confirmed.
    pub version: FileVersion,
}

/// The reason why a peer did not send a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// The peer has no copy of the sample.
    Absent,
    /// The peer has a copy of another version than the requested one.
    Stale,
    /// The peer has a copy, but sends it only if the request contains the version of the sample's file.
    Unconfirmed,
    /// The peer is too busy.
    Busy,
    /// The response was not complete by the deadline.
    Timeout,
    /// The peer rejects the token, does not serve the dataset, or serves another generation of it.
    Refused,
    /// The response has a wrong length or checksum, or does not come from a Foreload server.
    Wrong,
    /// No connection could be made, or the connection broke.
    Unreachable,
    /// The request was not sent, because the peer failed several times in a row and is skipped for a backoff period.
    Breaker,
}

named!(Miss: "absent" => Absent, "stale" => Stale, "unconfirmed" => Unconfirmed, "busy" => Busy,
    "timeout" => Timeout, "refused" => Refused, "wrong" => Wrong, "unreachable" => Unreachable,
    "breaker" => Breaker);

impl Miss {
    /// Returns whether the miss is a fault of the peer. A healthy peer may lack the sample or be busy.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Timeout | Self::Refused | Self::Wrong | Self::Unreachable)
    }
}
