//! Reads bytes from files into slots, with many reads in flight.
//!
//! [`Reader`] is the common interface. `uring` implements it by io_uring where the system allows that, `pread` by
//! threads elsewhere, and `ranged` by HTTP requests for files on servers. `blocks` wraps any of them, for samples in
//! compressed blocks and for blocks of neighbouring samples on servers. `open` chooses the reader.
//!
//! Invariants:
//! - A reader owns a slot until its read completes, even if the request was abandoned. → `tests/load/io/`
//! - Short reads, I/O errors and changed files never become data. A file's stamp is checked after its read. A file that
//!   changed during the read is read again, so that no sample has bytes of two versions. → `tests/load/one_version.rs`

mod blocks;
mod files;
mod gather;
mod group;
mod immediate;
mod mixed;
mod near;
mod open;
mod own_thread;
mod pfs;
pub mod pread;
mod probe;
mod ranged;
mod read_blocking;
mod resident;
pub mod storage;
mod throttled;
mod transfer;
pub mod uring;

pub use blocks::{MAX_REMOTE_THREADS, unpacking};
pub use files::{Files, MAX_RESTARTS, RemoteFile};
pub use gather::{GatherReader, largest_room, read_room, record_gap, record_room};
pub use group::{GroupWaker, GroupedReader, ListeningReader, ReaderGroup};
pub(crate) use immediate::ImmediateReader;
pub use open::{DataSource, open, open_source, open_with_neighbours};
pub use own_thread::OwnThread;
pub use pfs::{ParallelFsModel, ParallelFsRates, PfsStats};
pub use probe::{PathReport, ProbeReport, probe};
pub use read_blocking::{read_beginning, read_blocking};
pub use resident::InMemoryDataset;
pub use throttled::DelayedReader;

use base::counting::counters;
use base::error::{Error, Result};
use base::names::named;
use base::parts::{SummarizedBytes, WantedBytes};
use base::slot::Slot;
use base::tier_name::TierName;
use data::dataset::arrays::record::RecordRanges;
use data::dataset::{Extent, FileVersion};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A request to read the bytes of `extent` into `slot`.
pub struct ReadRequest {
    /// A number that the caller chooses. The completion has the same number.
    pub token: u64,
    /// The bytes to read. The reader looks up the path and the expected size of the file.
    pub extent: Extent,
    /// The slot to read into, with space for at least `extent.length` bytes.
    pub slot: Slot,
    /// The version of the source file, if known. If another node has a cached copy, the copy is used only if it is of
    /// this version.
    pub version: Option<FileVersion>,
    /// The parts of the extent that are needed; `None` for the whole extent. A reader may read the whole extent anyway.
    pub parts: Option<WantedBytes>,
    /// The ranges that are needed of a sample whose bytes are in many places ([`Files::record`]); `None` for the whole
    /// record. A reader may read the whole record anyway.
    pub ranges: Option<Arc<RecordRanges>>,
    /// The summary of the sample's header by which `parts` were chosen, if known. A reader of a cached copy compares it
    /// with the summary of the copy, because the parts of a copy in another storage format are at other offsets.
    pub chosen_by: Option<SummarizedBytes>,
}

impl ReadRequest {
    /// Makes a request for the whole extent, of any version.
    pub fn new(token: u64, extent: Extent, slot: Slot) -> Self {
        Self { token, extent, slot, version: None, parts: None, ranges: None, chosen_by: None }
    }

    /// Returns the number of bytes from the start of the extent to the end of the wanted parts, or the number of bytes
    /// in the wanted ranges of a record.
    pub fn wanted(&self) -> u32 {
        let end = self.parts.map_or(self.extent.length, |parts| parts.end.min(self.extent.length));
        self.ranges.as_ref().map_or(end, |ranges| ranges.bytes())
    }
}

/// The answer to a [`ReadRequest`].
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// The slot with exactly `extent.length` bytes, or the error.
    pub result: Result<Filled>,
    /// The slot of a failed read, for an attempt with another source. `None` if the reader cannot hand the slot back;
    /// the slot then returns to its pool when it is dropped.
    pub slot: Option<Slot>,
    /// The storage tier from which the bytes came.
    pub tier: TierName,
    /// The version of the source file, if the tier's reader receives it together with the bytes.
    pub version: Option<FileVersion>,
}

impl Completion {
    /// Makes a completion with the bytes that arrived.
    pub fn arrived(token: u64, filled: Filled) -> Self {
        Self { token, result: Ok(filled), slot: None, tier: TierName::SOURCE, version: None }
    }

    /// Makes a completion that failed. `slot` is the request's slot, or `None` if the reader cannot hand it back.
    pub fn failed(token: u64, error: Error, slot: impl Into<Option<Slot>>) -> Self {
        Self { token, result: Err(error), slot: slot.into(), tier: TierName::SOURCE, version: None }
    }

    /// Returns the same completion, attributed to `tier`.
    pub fn of(self, tier: TierName) -> Self {
        Self { tier, ..self }
    }
}

/// A slot whose bytes have arrived. It dereferences to the extent's bytes. Clones share the bytes.
///
/// If only parts of the extent were read, dereferencing panics, so that old contents of the slot are never used as a
/// sample's bytes. [`Filled::in_parts`] returns the parts. The same holds for a record whose pieces are in several
/// places of the slot: [`Filled::piece`] returns its bytes.
#[derive(Clone)]
pub struct Filled {
    slot: Arc<Slot>,
    data: Range<usize>,
    parts: Option<WantedBytes>,
    /// The pieces of a record, sorted by their offsets in it; `None` if the bytes are in one place.
    pieces: Option<Arc<[FilledPiece]>>,
}

/// Bytes of a record that have arrived: their offset in the record, and their place in the slot.
struct FilledPiece {
    at: u32,
    data: Range<usize>,
}

impl Filled {
    /// Wraps a slot in which the range `data` has arrived.
    ///
    /// # Panics
    /// Panics if `data` exceeds the slot.
    pub fn new(slot: Slot, data: Range<usize>) -> Self {
        assert!(data.start <= data.end && data.end <= slot.capacity(), "{data:?} of a slot");
        Self { slot: Arc::new(slot), data, parts: None, pieces: None }
    }

    /// Returns the extent's bytes, and the parts of them that were read (`None` if all were read). Bytes outside these
    /// parts are undefined.
    ///
    /// # Panics
    /// Panics if the bytes are pieces of a record.
    pub fn in_parts(&self) -> (&[u8], Option<WantedBytes>) {
        assert!(self.pieces.is_none(), "{PARTS_ALONE}");
        (&self.slot.bytes()[self.data.clone()], self.parts)
    }

    /// Returns the number of the extent's bytes that were read.
    pub fn arrived(&self) -> usize {
        match &self.pieces {
            Some(pieces) => pieces.iter().map(|piece| piece.data.len()).sum(),
            None => self.parts.map_or(self.data.len(), |parts| parts.bytes() as usize),
        }
    }

    /// Returns the bytes in `range` of a sample's record, or of an extent that is in one place. Returns `None` if these
    /// bytes were not read, or if they are in several places of the slot.
    pub fn piece(&self, range: Range<u32>) -> Option<&[u8]> {
        let (at, data) = match &self.pieces {
            None if self.parts.is_some() => return None,
            None => (0, &self.data),
            Some(pieces) => {
                let after = pieces.partition_point(|piece| piece.at <= range.start);
                let FilledPiece { at, data } = pieces.get(after.checked_sub(1)?)?;
                (*at, data)
            }
        };
        let [start, end] = [range.start, range.end].map(|place| place.checked_sub(at));
        self.slot.bytes().get(data.clone())?.get(start? as usize..end? as usize)
    }

    /// Returns all `length` bytes of a record, or of an extent in one place. Copies them if they are in several places
    /// of the slot. Returns `None` if only parts were read.
    pub(crate) fn whole(&self, length: u32) -> Option<Cow<'_, [u8]>> {
        if let Some(bytes) = self.piece(0..length) {
            return Some(Cow::Borrowed(bytes));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        for FilledPiece { at, data } in self.pieces.as_deref()? {
            if *at as usize != bytes.len() {
                return None;
            }
            bytes.extend_from_slice(self.slot.bytes().get(data.clone())?);
        }
        (bytes.len() == length as usize).then_some(Cow::Owned(bytes))
    }

    /// Returns the slot, narrowed to `range` of the bytes that have arrived.
    ///
    /// # Panics
    /// Panics if `range` exceeds the bytes that have arrived, or if only parts of the extent were read.
    pub fn narrowed(self, range: Range<usize>) -> Self {
        self.assert_whole();
        let data = self.data.start + range.start..self.data.start + range.end;
        assert!(
            data.start <= data.end && data.end <= self.data.end,
            "{range:?} of {} bytes",
            self.data.len()
        );
        Self { data, ..self }
    }

    /// Returns the capacity of the slot in bytes.
    pub fn room(&self) -> usize {
        self.slot.capacity()
    }

    /// Returns the slot with `bytes` instead of the bytes that arrived.
    ///
    /// # Panics
    /// Panics if `bytes` do not fit into the slot ([`Filled::room`]), or if a clone shares the slot.
    pub fn replaced(mut self, bytes: &[u8]) -> Self {
        let last_start = self.room().checked_sub(bytes.len()).expect("a slot with room for the bytes");
        let start = self.data.start.min(last_start);
        self.own_slot().bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Self { data: start..start + bytes.len(), parts: None, pieces: None, ..self }
    }

    /// Returns the slot for another read; `None` while a clone shares it.
    pub fn into_slot(self) -> Option<Slot> {
        Arc::into_inner(self.slot)
    }

    /// Returns a pointer to the extent's first byte.
    ///
    /// # Panics
    /// Panics if a clone shares the bytes, or if only parts of the extent were read.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.assert_whole();
        let data = self.data.clone();
        self.own_slot().bytes_mut()[data].as_mut_ptr()
    }

    fn assert_whole(&self) {
        assert!(self.parts.is_none() && self.pieces.is_none(), "{PARTS_ALONE}");
    }

    fn own_slot(&mut self) -> &mut Slot {
        Arc::get_mut(&mut self.slot).expect("bytes that are written to are not shared")
    }
}

impl std::ops::Deref for Filled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.assert_whole();
        &self.slot.bytes()[self.data.clone()]
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

const PARTS_ALONE: &str = "the whole sample is needed in one place, but only parts or pieces of it were read";

counters! {
    /// Counters since the reader was made.
    ReadStats,
    /// The same counters, for several threads that count.
    pub ReadCounters:
    /// The bytes that arrived.
    bytes,
    /// The bytes of samples that were not read, because only parts of the samples were wanted.
    skipped,
    /// The number of reads submitted to the system, including resubmitted short reads.
    reads,
    /// The number of files opened.
    opens,
    /// The number of requests to servers: first, repeated and hedged ones. Each of them also counts as a read.
    requests,
    /// The number of requests repeated after a failure.
    retries,
    /// The number of hedged requests: second requests that were sent while a slow first one was still open.
    hedges,
}

/// A reader with many reads in flight. One thread calls it.
pub trait Reader: Send {
    /// Returns how many more requests may be submitted before some complete.
    fn room(&self) -> usize;
    /// Returns how many requests are in flight.
    fn in_flight(&self) -> usize;
    /// Queues a read. May defer the system call to the next `wait`.
    fn submit(&mut self, request: ReadRequest);
    /// Submits queued reads and appends completions to `out`. Blocks until a completion is available, the [`Waker`] is
    /// called, or nothing is in flight.
    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()>;
    /// Returns a waker: calling it from any thread makes the current or next `wait` return soon.
    fn waker(&self) -> Waker;
    /// Returns the counters so far.
    fn stats(&self) -> ReadStats;
    /// Describes how the reader reads, for example "io_uring, O_DIRECT, registered buffers".
    fn describe(&self) -> String;
}

/// Wakes a reader's `wait` from any thread.
#[derive(Clone)]
pub struct Waker(pub Arc<dyn Fn() + Send + Sync>);

/// The interface that reads files (`io=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if a test read succeeds, else threads.
    #[default]
    Auto,
    /// io_uring. Opening a reader fails if the system refuses io_uring.
    Uring,
    /// Threads with pread.
    Pread,
}

named!(IoChoice: "auto" => Auto, "io_uring" => Uring, "pread" => Pread);

/// Whether reads bypass the page cache (`direct=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direct {
    /// Decided by the file system, the size of the dataset and the available memory.
    #[default]
    Auto,
    /// O_DIRECT. Opening a reader fails if the file system refuses O_DIRECT.
    On,
    /// Buffered reads, through the page cache.
    Off,
}

named!(Direct: "auto" => Auto, "on" => On, "off" => Off);

/// How long a dropped reader waits for reads in flight.
pub const DROP_LIMIT: Duration = Duration::from_millis(800);
