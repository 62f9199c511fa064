//! Segment files: the common parts of the cache's store ([`crate::tier::store`]) and of the store of streams.
//!
//! Both stores keep samples one after another in numbered files, in a directory with a lock file ([`lock_file`]) and a
//! quota in pages. A segment ends with a checksummed table ([`footer`]) and gets its name only when it is complete
//! ([`nameless`]).
//!
//! The stores differ in policy. A cache's directory is shared by processes and datasets, and its segments never change.
//! A stream's directory belongs to one process, which frees samples, rewrites segments and keeps snapshots.

pub mod drive;
pub mod footer;
pub mod lock_file;
pub mod nameless;
pub mod numbered;

use std::io;
use std::path::Path;

/// The size of a page in bytes. File systems allocate pages, so sizes are counted in pages.
pub const PAGE: u64 = base::slot::PAGE as u64;

/// Returns the number of pages that `bytes` occupy.
pub fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}

/// Removes a file. Returns whether it existed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Reads four bytes from offset `at` as a little-endian number.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// Reads eight bytes from offset `at` as a little-endian number.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}
