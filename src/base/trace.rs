//! An interval log: which stage did what, when, for how long, in the Trace Event Format that Perfetto and Chrome read.
//!
//! [`Trace`] is the log of a process, and [`TraceLane`] a thread's handle to it. Threads never wait for the disk: what
//! the writer cannot take in time is dropped and counted. A log that is off costs a branch.

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
pub use limit::{HARDLY, limit};
pub use peers::{PeerNumbers, PeersRecord, TraceNumber};
pub use read::read;
pub use summary::{EpochSummary, PeersSummary, StageSummary, TraceSummary};

use crate::error::Result;
use crate::tier_name::TierName;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use writer::TraceLog;

/// What a thread, or a tier on its behalf, was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The consumer waits for a batch.
    Wait,
    /// The consumer is busy between two batches: it trains.
    Train,
    /// Samples are on their way from this tier.
    Read(TierName),
    /// Whole shards are on their way from the source to the tiers that keep them, ahead of their use.
    Ahead,
    /// Bytes are written to this tier.
    Write(TierName),
    /// Images are decoded by the CPU.
    Decode,
    /// Images are cropped, resized, normalised and stored by the CPU.
    Augment,
    /// The GPU is given planes and tables.
    Copy,
    /// The GPU decodes.
    GpuDecode,
    /// The GPU augments.
    GpuAugment,
}

impl Stage {
    /// The stages that are no tier's, each with its name.
    const OWN: [(Self, &str); 8] = [
        (Self::Wait, "wait"),
        (Self::Train, "train"),
        (Self::Ahead, "stage ahead"),
        (Self::Decode, "decode"),
        (Self::Augment, "augment"),
        (Self::Copy, "gpu copy"),
        (Self::GpuDecode, "gpu decode"),
        (Self::GpuAugment, "gpu augment"),
    ];

    /// The name in the file and in reports: `decode`, or `read` and `write` with a tier's name.
    pub fn name(self) -> String {
        match self {
            Self::Read(tier) => format!("read {tier}"),
            Self::Write(tier) => format!("write {tier}"),
            own => Self::OWN.into_iter().find(|(stage, _)| *stage == own).map_or("", |(_, name)| name).into(),
        }
    }

    /// The stage called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split_once(' ') {
            Some(("read", tier)) => TierName::new(tier).map(Self::Read),
            Some(("write", tier)) => TierName::new(tier).map(Self::Write),
            _ => Self::OWN.into_iter().find(|(_, own)| *own == name).map(|(stage, _)| stage),
        }
    }

    /// The row in which viewers show it, from above.
    fn row(self) -> u32 {
        match self {
            Self::Wait => 1,
            Self::Train => 2,
            Self::Read(_) => 3,
            Self::Ahead => 4,
            Self::Write(_) => 5,
            Self::Decode => 6,
            Self::Augment => 7,
            Self::Copy => 8,
            Self::GpuDecode => 9,
            Self::GpuAugment => 10,
        }
    }
}

/// A value over time, beside the intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// Reads in flight.
    InFlight,
    /// Bytes that this tier holds.
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

/// What was done in an interval, and for which step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageWork {
    /// The number of bytes read or written.
    pub bytes: u64,
    /// The number of samples worked on.
    pub samples: u64,
    /// The epoch that it was for; `None` means the epoch at the time, or those to come.
    pub epoch: Option<u64>,
    /// The step of the epoch that it was for.
    pub step: u64,
}

/// A process' interval log, or none. Clones share it.
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
    /// The number of intervals that were lost because the file could not be written as fast.
    pub dropped: u64,
}

impl Trace {
    /// Makes a log that is off: it throws everything away at once.
    pub fn off() -> Self {
        Self(None)
    }

    /// Makes a log in a new file at `path`, in which the process is called `process`. An older file is overwritten.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`] when the file cannot be made; [`crate::error::Error::Unavailable`] without another
    /// thread.
    pub fn create(path: &Path, process: &str) -> Result<Self> {
        Ok(Self(Some(TraceLog::create(path, process)?)))
    }

    /// Whether there is a log.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The handle of the thread called `thread`.
    pub fn lane(&self, thread: &str) -> TraceLane {
        TraceLane::new(self.0.clone(), thread)
    }

    /// Completes the file. Drop the lanes first: what they still hold, and what comes later, is not in it.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`] when the file could not be written in full.
    pub fn finish(&self) -> Result<TraceTotals> {
        self.0.as_ref().map_or_else(|| Ok(TraceTotals::default()), |log| log.finish())
    }
}

/// The nanoseconds from `origin` to `moment`; 0 if it was before.
fn since(origin: Instant, moment: Instant) -> u64 {
    moment.saturating_duration_since(origin).as_nanos() as u64
}
