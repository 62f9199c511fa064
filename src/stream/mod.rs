//! Streams: samples that arrive while training runs, and a buffer of earlier ones that are rehearsed.
//!
//! A stream has no epoch and no permutation. What stands in place of the schedule is a plan that is made step by step:
//! so many samples that arrived, in the order of their arrival, and so many that are drawn from the buffer.

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
pub(crate) mod record;
pub(crate) mod reservoir;
mod run;
pub(crate) mod segments;
pub(crate) mod share;
pub(crate) mod source;
pub(crate) mod sources;
mod spill;
mod state;
mod waiting;

pub(crate) use account::StreamAccount;
pub(crate) use asked::{SourceSpec, StreamSpec};
pub(crate) use group::RankVotes;
pub(crate) use plan::NextBatch;
pub(crate) use record::{Record, members, sample_id};
pub(crate) use run::{SampleStream, ScoreFunction};
pub(crate) use share::RankShare;
pub(crate) use source::{Arrival, Received, Replay, SourcePosition, StreamSource};
pub(crate) use sources::folder::{FolderAfter, FolderOptions, FolderSource, WatchChoice};
pub(crate) use sources::redis::{RedisOptions, RedisSource};
pub(crate) use sources::zeromq::{ZeroMqKind, ZeroMqOptions, ZeroMqSource};
pub(crate) use state::SavedStates;
