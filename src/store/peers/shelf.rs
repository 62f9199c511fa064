//! What a server serves: the trait that a node's cache implements.

use bytes::Bytes;
use data::dataset::FileVersion;
use std::fs::File;
use std::sync::Arc;

/// The samples of one dataset that a node keeps. Its methods are called on the server's one thread: they look things
/// up and copy bytes, and do not wait. [`Shelf::accept`] alone is called on another one where it makes room first.
pub trait Shelf: Send + Sync {
    /// Where the copy of `sample` is, if there is one that may be used. The peer that asks knows that its file has
    /// `version` now; without it, only a copy serves that is known to be of what its file was in this run.
    fn find(&self, sample: u64, version: Option<FileVersion>) -> Found;

    /// The length of `sample` in bytes, by the index; `None` when the dataset has no such sample. No other number of
    /// bytes is taken from a peer.
    fn length(&self, sample: u64) -> Option<u32>;

    /// Notes that the copy of `sample` with this `crc` has other bytes.
    fn damaged(&self, sample: u64, crc: u32);

    /// Whether [`Shelf::accept`] takes this sample, or refuses it, without making room first, which takes a while.
    fn accepts_at_once(&self, _sample: u64) -> bool {
        true
    }

    /// Takes what a peer pushes: the bytes of `sample` in `version`. Their length and their checksum `crc` (CRC-32C)
    /// have been verified.
    fn accept(&self, sample: u64, version: FileVersion, crc: u32, bytes: &[u8]) -> Accepted;
}

/// The answer to whether there is a copy.
pub enum Found {
    /// There is none.
    Absent,
    /// There is one, of another version than its file has now.
    Stale,
    /// There is one, but nobody has said in this run which version its file has now.
    Unconfirmed,
    /// There is one.
    Copy {
        /// Its bytes.
        bytes: CopyBytes,
        /// Their CRC-32C. Who receives the bytes checks it.
        crc: u32,
        /// The version of the source's file that they are of.
        version: FileVersion,
    },
}

/// Where a copy's bytes are.
pub enum CopyBytes {
    /// In memory. [`Bytes::from_owner`] makes them of whatever owns them.
    Memory(Bytes),
    /// In a file that never changes.
    File {
        /// The file, open for reading.
        file: Arc<File>,
        /// Where the copy begins in it, in bytes.
        offset: u64,
        /// The number of bytes.
        length: u32,
        /// What positions and lengths of reads must be multiples of, in bytes: 1 for a file that is read through the
        /// page cache, [`PAGE`](base::slot::PAGE) for one that is open with O_DIRECT. A power of two, and not more
        /// than a page.
        alignment: u32,
    },
}

/// What became of a sample that a peer pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It was copied, and will be kept.
    Taken,
    /// It is kept already.
    Present,
    /// There is no room for it.
    Full,
    /// Writing is behind.
    Busy,
    /// Nothing is kept at present.
    Off,
}
