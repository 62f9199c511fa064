//! Streams: samples that arrive while training runs, mixed with earlier samples from a rehearsal buffer.
//!
//! A stream has no epoch and no permutation. A [`plan`] takes the place of the schedule. It chooses samples step by
//! step, a little ahead of the consumer: new samples in the order of their arrival, and samples drawn from the
//! rehearsal buffer.
//!
//! Sources ([`source`], [`sources`]) run on one thread each ([`receive`]). They add samples to the ingest queue
//! ([`ingest`]), and the plan takes samples from this queue. The dataset of the pipeline is the table of samples in use
//! ([`live`]), and [`reader`] fills slots from this table. So fetching, decoding and batching are the same as for an
//! epoch. The run plan (`RunPlan` in `src/engine/pipeline/run_plan/`) connects the plan and the pipeline. When the
//! consumer has a step, its samples count as delivered: they are settled in the progress of their sources
//! ([`source_progress`]) and written to the [`journal`]. A sample is *settled* when its source never has to give it
//! again: it was delivered, dropped, withdrawn, or it failed.
//!
//! At every instant each received sample is delivered, waiting, or counted as dropped, failed, withdrawn or lost. No
//! batch contains a sample twice. The samples after a saved state are the same whether the run continues or another run
//! resumes from the state. → `tests/python/test_streams.py`, `tests/python/test_stream_buffers.py`,
//! `tests/python/test_stream_elastic.py`

#![warn(unreachable_pub)]

mod agreement;
mod buffer;
mod counters;
mod ids;
mod ingest;
mod journal;
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
mod source_progress;
pub mod sources;
mod spec;
mod spill;
mod start_point;
mod state;
mod waiting;

pub use agreement::RankVotes;
pub use counters::StreamCounters;
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
pub use spec::{SourceSpec, StreamSpec};
pub use state::SavedStates;
