//! The interface between a node's server and its cache: the trait [`ServedCache`].

use bytes::Bytes;
use data::dataset::FileVersion;
use std::fs::File;
use std::sync::Arc;

/// The samples of one dataset that a node keeps.
///
/// The server's only thread calls these methods. They look up copies and copy bytes, and must not wait. Only
/// [`ServedCache::accept`] runs on another thread if it has to free space first.
pub trait ServedCache: Send + Sync {
    /// Finds the copy of `sample`, if there is a usable copy. `version` is the current version of the sample's file, as
    /// the requesting peer knows it. Without a version, a copy is usable only if this run has confirmed that the copy
    /// is of the current version.
    fn find(&self, sample: u64, version: Option<FileVersion>) -> Found;

    /// Returns the length of `sample` in bytes, by the index; `None` if the dataset has no such sample. Pushes of
    /// another length are refused.
    fn length(&self, sample: u64) -> Option<u32>;

    /// Reports that the copy of `sample` is damaged: its bytes do not match its checksum `crc`.
    fn damaged(&self, sample: u64, crc: u32);

    /// Returns `false` if [`ServedCache::accept`] must first free space for this sample, which takes a while.
    fn accepts_at_once(&self, _sample: u64) -> bool {
        true
    }

    /// Takes a sample that a peer pushes: the bytes of `sample` in `version`. Their length and their checksum `crc`
    /// (CRC-32C) have been verified.
    fn accept(&self, sample: u64, version: FileVersion, crc: u32, bytes: &[u8]) -> Accepted;
}

/// The result of looking for a copy.
pub enum Found {
    /// There is no copy.
    Absent,
    /// There is a copy, but the sample's file has another version now.
    Stale,
    /// There is a copy, but this run has not confirmed that it is of the current version of the sample's file.
    Unconfirmed,
    /// There is a usable copy.
    Copy {
        /// The bytes of the copy.
        bytes: CopyBytes,
        /// The CRC-32C of the bytes. The receiver of the bytes checks it.
        crc: u32,
        /// The version of the source file that the bytes come from.
        version: FileVersion,
    },
}

/// Where a copy's bytes are.
pub enum CopyBytes {
    /// In memory. [`Bytes::from_owner`] makes them from any owner.
    Memory(Bytes),
    /// In a file that never changes.
    File {
        /// The file, open for reading.
        file: Arc<File>,
        /// The offset of the copy in the file, in bytes.
        offset: u64,
        /// The number of bytes.
        length: u32,
        /// The alignment of the offsets and lengths of reads, in bytes: 1 for a file that is read through the page
        /// cache, [`PAGE`](base::slot::PAGE) for one that is open with O_DIRECT. A power of two, at most a page.
        alignment: u32,
    },
}

/// The result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The sample was copied, and will be kept.
    Taken,
    /// The sample is kept already.
    Present,
    /// There is no space for the sample.
    Full,
    /// The cache's writer cannot keep up.
    Busy,
    /// The cache keeps nothing at present.
    Off,
}
