//! The interval log of a job: which stage worked when and for how long, in the Trace Event Format, which Perfetto and
//! Chrome read.
//!
//! [`Trace`] is the log of a process, and [`TraceLane`] is a thread's handle to it. Threads never wait for the disk: if
//! the writer falls too far behind, intervals are dropped and counted. A log that is off costs one branch.

mod histogram;
mod lane;
mod limit;
mod merge;
mod peers;
mod read;
mod summary;
mod writer;

pub use histogram::{Histogram, SharedHistogram};
pub use lane::TraceLane;
pub use limit::{NEGLIGIBLE_WAIT, limit};
pub use peers::{PeerNumbers, PeersRecord, TraceNumber};
pub use read::read;
pub use summary::{EpochSummary, PeersSummary, StageSummary, TraceSummary};

use crate::error::Result;
use crate::tier_name::TierName;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use writer::TraceLog;

/// A kind of work that a thread does, or that a tier does for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The consumer waits for a batch.
    Wait,
    /// The consumer is busy between two batches, usually with training.
    Train,
    /// Reads of samples from this tier are in flight.
    Read(TierName),
    /// Reads of whole shards from the source are in flight, to copy them ahead of use.
    Ahead,
    /// Bytes are being written to this tier.
    Write(TierName),
    /// The CPU decodes images.
    Decode,
    /// The CPU crops, resizes, normalises and stores images.
    Augment,
    /// Planes and tables are copied to the GPU.
    Copy,
    /// The GPU decodes.
    GpuDecode,
    /// The GPU augments.
    GpuAugment,
}

impl Stage {
    /// The stages without a tier, with their names and their rows in viewers.
    const WITHOUT_TIER: [(Self, &str, u32); 8] = [
        (Self::Wait, "wait", 1),
        (Self::Train, "train", 2),
        (Self::Ahead, "stage ahead", 4),
        (Self::Decode, "decode", 6),
        (Self::Augment, "augment", 7),
        (Self::Copy, "gpu copy", 8),
        (Self::GpuDecode, "gpu decode", 9),
        (Self::GpuAugment, "gpu augment", 10),
    ];

    fn without_tier(self) -> (&'static str, u32) {
        let known = Self::WITHOUT_TIER.into_iter().find(|(stage, ..)| *stage == self);
        known.map_or(("", 0), |(_, name, row)| (name, row))
    }

    /// The name in the file and in reports: `decode`, or `read` and `write` with a tier's name.
    pub fn name(self) -> String {
        match self {
            Self::Read(tier) => format!("read {tier}"),
            Self::Write(tier) => format!("write {tier}"),
            own => own.without_tier().0.into(),
        }
    }

    /// The stage called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split_once(' ') {
            Some(("read", tier)) => TierName::new(tier).map(Self::Read),
            Some(("write", tier)) => TierName::new(tier).map(Self::Write),
            _ => Self::WITHOUT_TIER.into_iter().find(|(_, own, _)| *own == name).map(|(stage, ..)| stage),
        }
    }

    fn row(self) -> u32 {
        match self {
            Self::Read(_) => 3,
            Self::Write(_) => 5,
            own => own.without_tier().1,
        }
    }
}

/// A value that is recorded over time, in addition to the intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// Reads in flight.
    InFlight,
    /// Bytes stored in this tier.
    Held(TierName),
}

impl Gauge {
    fn name(self) -> String {
        match self {
            Self::InFlight => "reads in flight".into(),
            Self::Held(tier) => format!("{tier} bytes"),
        }
    }
}

/// The amount of work in an interval, and the step that needs the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageWork {
    /// The number of bytes read or written.
    pub bytes: u64,
    /// The number of samples worked on.
    pub samples: u64,
    /// The epoch that needs the work; `None` if the work serves the current epoch or a later one.
    pub epoch: Option<u64>,
    /// The step of the epoch that needs the work.
    pub step: u64,
}

/// The interval log of a process, or a log that is off. Clones share it.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<TraceLog>>);

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trace({})", if self.is_on() { "on" } else { "off" })
    }
}

/// The totals of a finished log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceTotals {
    /// The number of intervals in the file.
    pub intervals: u64,
    /// The number of intervals that were dropped because the file could not be written fast enough.
    pub dropped: u64,
}

impl Trace {
    /// Makes a log that is off and drops everything.
    pub fn off() -> Self {
        Self(None)
    }

    /// Makes a log in a new file at `path`, with `process` as the name of the process. Overwrites an older file.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`] if the file cannot be created; [`crate::error::Error::Unavailable`] if the writer's
    /// thread cannot be started.
    pub fn create(path: &Path, process: &str) -> Result<Self> {
        Ok(Self(Some(TraceLog::create(path, process)?)))
    }

    /// Whether the log is on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the handle of the thread called `thread`.
    pub fn lane(&self, thread: &str) -> TraceLane {
        TraceLane::new(self.0.clone(), thread)
    }

    /// Completes the file. Drop the lanes first: the file does not get intervals that a lane still holds or records
    /// later.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`] if the file could not be written completely.
    pub fn finish(&self) -> Result<TraceTotals> {
        self.0.as_ref().map_or_else(|| Ok(TraceTotals::default()), |log| log.finish())
    }
}

/// Returns the nanoseconds from `origin` to `moment`; 0 if `moment` is earlier.
fn since(origin: Instant, moment: Instant) -> u64 {
    moment.saturating_duration_since(origin).as_nanos() as u64
}
