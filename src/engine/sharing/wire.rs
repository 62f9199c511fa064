//! What a producer and its consumers say to each other.

use crate::config::GivenSettings;
use base::error::CarriedError;
use base::notices::NoticeKind;
use serde::{Deserialize, Serialize};

/// The version of the messages. Programs of other versions do not share.
pub const PROTOCOL: u32 = 5;

/// The place of a batch among those of all epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchPosition {
    /// The epoch.
    pub epoch: u64,
    /// The step in it.
    pub step: u64,
}

/// What a consumer says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToProducer {
    /// It wants to take batches from this one on. This is said first, and once.
    Hello {
        /// The version of the messages.
        protocol: u32,
        /// What all who share batches agree on: see [`super::Sharing::key`].
        key: String,
        /// What is made of samples for it.
        recipe: GivenSettings,
        /// The first batch that it will ask for.
        at: BatchPosition,
        /// Its process.
        process: u32,
        /// How many microseconds ago its loader was made.
        age: u64,
    },
    /// It wants this batch next, and is answered once. What was read more than `age` microseconds ago is too old. The
    /// answer has its `number`.
    Ask { number: u64, at: BatchPosition, age: u64 },
    /// It needs this buffer no longer. `inherited`: a forked child may still read it.
    GiveBack { buffer: u64, inherited: bool },
    /// It has broken its iteration off and does not want what it asked for: nobody waits for it until it asks again.
    Rest,
    /// It wants no more batches. What it has it may keep, and gives back later.
    Leave,
    /// It waits, and wants to know whether anybody is there. After its hello it does so once the producer looks.
    Ping,
}

/// What a producer says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToConsumer {
    /// The consumer takes part from now on.
    Welcome {
        /// The producer's process.
        process: u32,
    },
    /// The producer looks whether it can make batches by the consumer's recipe, and says so later.
    Looks,
    /// The batch that was asked for is in this buffer. The descriptor of the buffer comes first, if the consumer does
    /// not have it yet; then that of a parcel, if one goes along.
    Lend {
        number: u64,
        at: BatchPosition,
        buffer: u64,
        samples: u32,
        is_new: bool,
        has_parcel: bool,
        /// How many consumers take part, this one included.
        consumers: u32,
        /// By how many recipes batches are made of these samples.
        recipes: u32,
    },
    /// The batch that was asked for, or said hello for, does not come from here: others have gone on, or are elsewhere.
    Elsewhere,
    /// The producer cannot go on.
    Failed { error: CarriedError },
    /// A buffer that the consumer had will not be lent again.
    Forget { buffer: u64 },
    /// What the user should hear.
    Notice { kind: NoticeKind, message: String },
    /// The answer to a ping.
    Pong,
}
