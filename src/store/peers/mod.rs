//! Samples from the caches of a job's other nodes: a server of what this node keeps, and a client that reads what
//! others keep.
//!
//! Who keeps a sample is computed elsewhere, by every node alike; here bytes travel. A [`Server`] answers from the
//! [`Shelf`] that the cache implements. [`HttpTransfer`] asks, and is one implementation of [`PeerTransfer`]: where a
//! peer does not give a sample in time, for whatever [reason](Miss), the slot comes back and the caller reads the
//! source. Whoever receives bytes checks their length and their CRC-32C.
//!
//! Nothing here is trusted but the token: without it a request is answered with 401 and nothing else. Connections,
//! headers, bytes, times and buffers are bounded on both sides.

mod bound;
mod client;
mod counters;
mod open_files;
mod probe;
mod server;
mod shelf;
mod telemetry;
mod wire;

pub use bytes::Bytes;
pub use client::{
    BreakerLimits, BreakerState, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerCopy, PeerCounts,
    PeerPusher, PeerRead, PeerStats, PeerTransfer,
};
pub use data::http::{CertificatePin, DeadlineLimits, TlsIdentity, Token};
pub use open_files::allow_open_files;
pub use probe::{LONGEST_IN_VAIN, PeerProbe, ProbeShelf, ProbedReads, most_in_flight, probe_dataset};
pub use server::{ConnectionLimits, Server, ServerOptions, ServerStats};
pub use shelf::{Accepted, CopyBytes, Found, Shelf};
pub use telemetry::{PeerValue, peers_record};
pub use wire::SharedDataset;
