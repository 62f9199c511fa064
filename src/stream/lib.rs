//! Streams: samples that arrive while training runs, and a buffer of earlier ones that are rehearsed.
//!
//! A stream has no epoch and no permutation. What stands in place of the schedule is a plan that is made step by step:
//! so many samples that arrived, in the order of their arrival, and so many that are drawn from the buffer.

#![warn(unreachable_pub)]

mod account;
mod asked;
mod beginning;
mod buffer;
mod group;
mod ids;
mod inlet;
mod journal;
mod ledger;
mod live;
mod mix;
mod plan;
mod reader;
mod receive;
pub mod record;
pub mod reservoir;
mod run;
pub mod segments;
pub mod share;
pub mod source;
pub mod sources;
mod spill;
mod state;
mod waiting;

pub use account::StreamAccount;
pub use asked::{SourceSpec, StreamSpec};
pub use group::RankVotes;
pub use plan::NextBatch;
pub use record::{Record, members, sample_id};
pub use run::{SampleStream, ScoreFunction};
pub use share::RankShare;
pub use source::{Arrival, Received, Replay, SourcePosition, StreamSource};
pub use sources::folder::{FolderAfter, FolderOptions, FolderSource, WatchChoice};
#[cfg(feature = "redis")]
pub use sources::redis::{RedisOptions, RedisSource};
#[cfg(feature = "zeromq")]
pub use sources::zeromq::{ZeroMqKind, ZeroMqOptions, ZeroMqSource};
pub use state::SavedStates;
