//! The messages between a producer and its consumers.

use base::error::SerializedError;
use base::notices::NoticeKind;
use serde::{Deserialize, Serialize};

/// Version of the protocol. Programs of other versions do not share batches.
pub const PROTOCOL: u32 = 6;

/// The position of a batch: its epoch, and its step in this epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchPosition {
    pub epoch: u64,
    pub step: u64,
}

/// Messages of a consumer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToProducer {
    /// The first message, sent once: asks to join.
    Hello {
        /// Version of the protocol.
        protocol: u32,
        /// The key that all these loaders have in common: see [`super::Sharing::key`].
        key: String,
        /// The first batch that the consumer will ask for.
        at: BatchPosition,
        /// Process id of the consumer.
        process: u32,
        /// Microseconds since the consumer's loader was created.
        age: u64,
    },
    /// Asks for a batch whose samples were read at most `age` microseconds ago. The producer sends one answer, with the
    /// same `number`.
    Ask { number: u64, at: BatchPosition, age: u64 },
    /// Returns a buffer. `inherited`: a forked child may still read it.
    GiveBack { buffer: u64, inherited: bool },
    /// The iteration was broken off, and the requested batch is not needed. Other consumers do not wait for this
    /// consumer until it asks again.
    Rest,
    /// Leaves. The consumer may keep its buffers, and returns them later.
    Leave,
    /// Asks whether the producer is alive. Allowed after the consumer has joined.
    Ping,
}

/// Messages of a producer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToConsumer {
    /// The consumer has joined.
    Welcome {
        /// Process id of the producer.
        process: u32,
    },
    /// Leases the buffer with the requested batch. The message carries the buffer's descriptor if `is_new`. It also
    /// carries a descriptor of variable-length values and failures if `has_parcel`.
    Lend {
        number: u64,
        at: BatchPosition,
        buffer: u64,
        samples: u32,
        is_new: bool,
        has_parcel: bool,
        /// Number of consumers of the producer, including this one.
        consumers: u32,
    },
    /// This producer does not make the requested batch: its other consumers are at other steps.
    Elsewhere,
    /// The producer failed.
    Failed { error: SerializedError },
    /// A buffer that the consumer had will not be leased again.
    Forget { buffer: u64 },
    /// A warning for the user.
    Notice { kind: NoticeKind, message: String },
    /// Answer to a ping.
    Pong,
}
