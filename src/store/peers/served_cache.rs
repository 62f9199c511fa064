//! The interface between a node's server and its cache: the trait [`ServedCache`].

use bytes::Bytes;
use data::dataset::FileVersion;
use std::fs::File;
use std::sync::Arc;

/// The cached samples of one dataset, as the node's server uses them.
///
/// The server's only thread calls these methods, so they must not wait. If [`ServedCache::accept`] has to free space
/// first, it runs on another thread.
pub trait ServedCache: Send + Sync {
    /// Finds the copy of `sample`, if there is a usable one. `version` is the current version of the sample's file, if
    /// the requesting peer knows it. If it is `None`, a copy is usable only if this run has confirmed that the copy is
    /// of the current version.
    fn find(&self, sample: u64, version: Option<FileVersion>) -> Found;

    /// Returns the length of `sample` in the dataset's index, in bytes; `None` if the dataset has no such sample.
    /// Pushes of another length are refused.
    fn length(&self, sample: u64) -> Option<u32>;

    /// Reports that the copy of `sample` is damaged: its bytes do not match its checksum `crc`.
    fn damaged(&self, sample: u64, crc: u32);

    /// Returns `false` if [`ServedCache::accept`] must first free space for this sample, which takes a while.
    fn accepts_at_once(&self, _sample: u64) -> bool {
        true
    }

    /// Stores a sample that a peer pushes: the bytes of `sample` in `version`. The length and the checksum `crc`
    /// (CRC-32C) of the bytes have been verified.
    fn accept(&self, sample: u64, version: FileVersion, crc: u32, bytes: &[u8]) -> Accepted;
}

/// The result of [`ServedCache::find`].
pub enum Found {
    /// There is no copy.
    Absent,
    /// There is a copy, but it is of another version than the requested one.
    Stale,
    /// There is a copy, but this run has not confirmed that it is of the current version of the sample's file.
    Unconfirmed,
    /// There is a usable copy.
    Copy {
        /// The bytes of the copy.
        bytes: CopyBytes,
        /// The CRC-32C of the bytes. The receiver of the bytes checks it.
        crc: u32,
        /// The version of the source file from which the bytes come.
        version: FileVersion,
    },
}

/// The location of a copy's bytes.
pub enum CopyBytes {
    /// In memory.
    Memory(Bytes),
    /// In a file that never changes.
    File {
        /// The file, open for reading.
        file: Arc<File>,
        /// The offset of the copy in the file, in bytes.
        offset: u64,
        /// The number of bytes.
        length: u32,
        /// The required alignment of the offsets and lengths of reads, in bytes: 1 if the file is read through the page
        /// cache, [`PAGE`](base::slot::PAGE) if it is open with O_DIRECT. A power of two, at most a page.
        alignment: u32,
    },
}

/// The result of [`ServedCache::accept`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The sample was copied into the cache.
    Taken,
    /// The cache already has the sample.
    Present,
    /// There is no space for the sample.
    Full,
    /// The cache's writing thread is too far behind.
    Busy,
    /// The cache is switched off at present.
    Off,
}
