//! Batches that several processes of a user on a node share: one of them, the producer, makes each batch once, and
//! lends its memory to all consumers that ask for it.
//!
//! This is the consumers' side and what both sides say to each other. The producer, which needs a pipeline, is in
//! `serve`. Nothing outlives the processes but the names of sockets: memory has no names, locks are the kernel's.

mod attendant;
mod key;
mod link;
mod places;
mod silent;
mod socket;
mod start;
mod wire;

pub use attendant::{Attendant, Attended, SharingStats};
pub use key::Sharing;
pub use places::{Claim, ProducerPlaces};
pub use socket::{Bell, Incoming, IncomingMessage, Listener, Socket, wait_for};
pub use start::{AskedKeys, ProducerStart, StartedAs, TOGETHER};
pub use wire::{BatchPosition, PROTOCOL, ToConsumer, ToProducer};
