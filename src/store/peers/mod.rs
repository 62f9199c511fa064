//! Serves the samples in this node's cache to the job's other nodes, and reads samples from their caches.
//!
//! All nodes compute the same owner node of each sample in `tier/placement.rs`; this module only transfers bytes. A
//! [`Server`] answers from a [`ServedCache`], which the cache implements. [`HttpTransfer`] sends the requests. The
//! server and the client each have their own thread with an asynchronous runtime.
//!
//! A read is answered exactly once, by its deadline at the latest. If a peer does not give the sample, for any
//! [reason](Miss), the slot comes back and the caller reads the source. The receiver of bytes checks their length and
//! their CRC-32C. The CRC-32C also covers the sample id and the version.
//!
//! Only the token is trusted: a request without it gets 401 and nothing else. Connections, headers, bytes, times and
//! buffers are bounded on both sides. With TLS a node is identified by the digest of its certificate. →
//! `tests/load/peers/`

mod bound;
mod client;
mod open_files;
mod probe;
mod served_cache;
mod server;
mod telemetry;
mod wire;

pub use bytes::Bytes;
pub use client::{
    BreakerLimits, BreakerState, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerCopy, PeerCounts,
    PeerPusher, PeerRead, PeerStats,
};
pub use data::http::{CertificatePin, DeadlineLimits, TlsIdentity, Token};
pub use open_files::allow_open_files;
pub use probe::{
    LONGEST_WITHOUT_ANSWER, PeerProbe, ProbeSamples, ProbedReads, most_in_flight, probe_dataset,
};
pub use served_cache::{Accepted, CopyBytes, Found, ServedCache};
pub use server::{ConnectionLimits, Server, ServerOptions, ServerStats};
pub use telemetry::{PeerValue, peers_record};
pub use wire::SharedDataset;
