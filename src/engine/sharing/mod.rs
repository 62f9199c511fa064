//! Sharing of batches: several processes of one user on one node take the same batches from one process, the producer.
//! The producer makes each batch once, and leases its memory to all consumers that ask for it. This module has the
//! consumers' side and the protocol; the producer needs a pipeline, so it is in `serve`.
//!
//! ```text
//! producer: maker ─► pipeline ─► batches in memfds ─► window ─► leases ─► socket: buffer numbers, descriptors
//! loader:   epoch ◄─ inbox ◄─ batch pool ◄─ thread (`take_shared.rs`) ◄─ `BatchClient` ◄─► socket; returns buffers
//! ```
//!
//! - A loader with `shared=` has one thread that takes batches instead of reading and decoding. It fills the usual
//!   inbox, so order, states, failures and warnings work as without sharing.
//! - The producer is a separate process, so that a consumer that is stopped, killed or busy with Python cannot affect
//!   the others. The first loader starts it, with its own program. The new process forks and exits at once, so that the
//!   loader keeps no child process (`start.rs`). The producer exits when it has no consumers.
//! - The key identifies compatible loaders (`key.rs`). It is a digest of the dataset's locations, the identity of the
//!   order, the stamps of the shards, the rank, the number of ranks and the version. It also covers every setting that
//!   decides what is in a batch.
//! - A producer is found at a place `KEY.NUMBER`: a lock on a byte of a file, and a socket (`places.rs`). The loader
//!   that starts a producer takes the lock and passes the open file on. So the lock is held without a gap, and the
//!   kernel releases it when the producer exits.
//! - All producers of a key make the same batches, at different steps. A consumer that is near none of these producers
//!   starts one more. Every few steps a consumer checks whether a producer with a lower number has reached the same
//!   step, and moves to that producer.
//! - A consumer asks for each batch by epoch and step, and says how old its samples may be. They must not have been
//!   read before its loader was made, nor more than a second before its iteration began.
//! - A consumer that waits for long pings the producer. A producer that does not answer is skipped for a backoff period
//!   that doubles each time (`backoff.rs`). A lost producer is replaced by the consumer that gets its lock first. The
//!   new one waits a moment for the other consumers, and starts with the first batch that any of them needs.
//! - Only the names of sockets outlive the processes: memory has no names (memfds), and locks belong to the kernel.
//!
//! → `tests/python/test_shared.py`, `tests/python/test_shared_kills.py`

mod backoff;
mod batch_client;
mod key;
mod link;
mod places;
mod socket;
mod start;
mod wire;

pub use batch_client::{BatchClient, LeasedBatch, SharingStats};
pub use key::Sharing;
pub use places::{PlaceLock, ProducerPlaces};
pub use socket::{Incoming, Listener, Socket, WakeEvent, wait_for};
pub use start::{ProducerStart, ProducerStdio, RequestedKeys, TOGETHER};
pub use wire::{BatchPosition, PROTOCOL, ToConsumer, ToProducer};
