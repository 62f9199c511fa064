//! Reads samples that other nodes keep, and pushes samples to their owner nodes.

mod answers;
mod breaker;
mod connection;
mod http;
mod link;
mod stats;
mod transfer;

pub use breaker::{BreakerLimits, BreakerState};
pub use http::{HttpOptions, HttpTransfer, Peer, PeerPusher};
pub use stats::{PeerCounts, PeerStats};
pub use transfer::{Miss, PeerAnswer, PeerCopy, PeerRead};
