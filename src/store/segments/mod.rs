//! Segment files: what the cache's store ([`crate::tier::store`]) and the store of streams have in common.
//!
//! Both keep samples one behind the other in numbered files, which end with a checksummed table ([`footer`]) and get
//! their name when they are whole ([`nameless`]), in a directory with a lock file ([`lock_file`]) and a quota in pages.
//! What differs is whose the directory is. That of a cache is shared by processes and datasets, and its segments never
//! change. That of a stream belongs to one process, which frees samples, writes segments anew and keeps snapshots.

pub mod drive;
pub mod footer;
pub mod lock_file;
pub mod nameless;
pub mod numbered;

use std::io;
use std::path::Path;

/// The bytes of a page. Sizes are counted in pages, as file systems allocate them.
pub const PAGE: u64 = base::slot::PAGE as u64;

/// The number of pages that `bytes` take.
pub fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}

/// Removes a file, and returns whether it was there.
pub fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// The number at `at`, where there are four bytes.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// The number at `at`, where there are eight bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}
