//! Bytes from files into slots: one trait, io_uring where the system lets us, threads with pread where not.

pub(crate) mod fault;
mod files;
mod open;
mod own_thread;
mod pfs;
pub(crate) mod pread;
mod probe;
mod read_blocking;
mod resident;
pub(crate) mod storage;
mod throttled;
mod transfer;
pub(crate) mod uring;

pub use files::Files;
pub use open::{DataSource, open, open_source};
pub use own_thread::OwnThread;
pub use pfs::{Pfs, PfsRates, PfsStats};
pub use probe::probe;
pub(crate) use probe::{PathReport, ProbeReport};
pub use read_blocking::read_blocking;
pub(crate) use resident::Resident;
pub use throttled::Throttled;

use crate::dataset::Extent;
use crate::error::{Error, Result};
use crate::slot::Slot;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One read: the bytes of `extent` into `slot`.
pub struct ReadRequest {
    /// Comes back in the completion; meaning is the caller's.
    pub token: u64,
    /// What to read. Paths and expected sizes are looked up in the reader's index.
    pub extent: Extent,
    /// Where to; taken with at least `extent.length`.
    pub slot: Slot,
}

/// The answer to a [`ReadRequest`].
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// The slot with exactly `extent.length` bytes, or why not.
    pub result: Result<Filled>,
    /// The slot of a failed read where it could be had back, to try another source with; else it is in its pool.
    pub slot: Option<Slot>,
    /// Where the bytes came from.
    pub tier: Tier,
}

/// The places bytes come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tier {
    /// Where the dataset is.
    #[default]
    Source,
    /// The fast local one that holds copies.
    Nvme,
}

impl Completion {
    /// The bytes are there.
    pub fn arrived(token: u64, filled: Filled) -> Self {
        Self { token, result: Ok(filled), slot: None, tier: Tier::Source }
    }

    /// They could not be had; `slot` is the request's, unless it was lost on the way.
    pub fn failed(token: u64, error: Error, slot: impl Into<Option<Slot>>) -> Self {
        Self { token, result: Err(error), slot: slot.into(), tier: Tier::Source }
    }

    /// They came from `tier`.
    pub fn of(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }
}

/// A slot whose bytes have arrived: derefs to the extent's bytes.
pub struct Filled {
    slot: Slot,
    data: Range<usize>,
}

impl Filled {
    /// `data` of `slot` has arrived.
    ///
    /// # Panics
    /// When the slot has no room for `data`.
    pub fn new(slot: Slot, data: Range<usize>) -> Self {
        assert!(data.start <= data.end && data.end <= slot.capacity(), "{data:?} of a slot");
        Self { slot, data }
    }

    /// The part of it that is wanted: `range` of what has arrived.
    ///
    /// # Panics
    /// When less has arrived.
    pub fn narrowed(self, range: Range<usize>) -> Self {
        let data = self.data.start + range.start..self.data.start + range.end;
        assert!(
            data.start <= data.end && data.end <= self.data.end,
            "{range:?} of {} bytes",
            self.data.len()
        );
        Self { data, ..self }
    }

    /// These bytes in place of those that have arrived, which are not needed any more.
    ///
    /// # Panics
    /// When there are more of them.
    pub fn replaced(mut self, bytes: &[u8]) -> Self {
        let start = self.data.start;
        self.slot.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Self { data: start..start + bytes.len(), ..self }
    }

    /// The slot, to be read into anew.
    pub fn into_slot(self) -> Slot {
        self.slot
    }

    /// The extent's first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.slot.bytes_mut()[self.data.clone()].as_mut_ptr()
    }
}

impl std::ops::Deref for Filled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.slot.bytes()[self.data.clone()]
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Counters since the reader was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Reads asked of the system, resubmissions of short reads included.
    pub reads: u64,
    /// Files opened.
    pub opens: u64,
}

/// Reads in flight, driven by one thread.
pub trait Reader: Send {
    /// How many more requests may be submitted before some complete.
    fn room(&self) -> usize;
    /// How many requests are in flight.
    fn in_flight(&self) -> usize;
    /// Queues a read. May defer the system call to the next `wait`.
    fn submit(&mut self, request: ReadRequest);
    /// Submits what is queued and appends completions to `out`; blocks until at least one is there, the [`Waker`]
    /// was called, or nothing is in flight.
    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()>;
    /// Makes a `wait` in this or another thread return soon.
    fn waker(&self) -> Waker;
    /// What was done so far.
    fn stats(&self) -> ReadStats;
    /// The path in use in words: "io_uring, O_DIRECT, registered buffers".
    fn describe(&self) -> String;
}

/// Wakes a reader's `wait` from any thread.
#[derive(Clone)]
pub struct Waker(pub Arc<dyn Fn() + Send + Sync>);

/// Which way to read, as the user asked (`io=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IoChoice {
    /// io_uring when its self-test passes, else threads; direct or buffered by file system.
    #[default]
    Auto,
    /// io_uring or an error.
    #[serde(rename = "io_uring")]
    Uring,
    /// Threads with pread.
    Pread,
}

/// Whether to bypass the page cache (`direct=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direct {
    /// By file system.
    #[default]
    Auto,
    /// O_DIRECT, or an error where the file system refuses it.
    On,
    /// Through the page cache.
    Off,
}

/// How long dropping a reader waits for reads in flight.
pub(crate) const DROP_LIMIT: Duration = Duration::from_millis(800);
