//! The stamp of a file shows whether the file has changed. A stamp consists of size, modification time, change time and
//! inode. It is not part of the dataset's fingerprint, because a copy of a dataset has other times and inodes.
//!
//! A write sets the change time when it begins (a write through a memory mapping perhaps a while later), and no program
//! can set the change time back. A file that replaces another has another inode, except if the file system reuses inode
//! numbers. Device numbers are not included, because they differ between mounts and nodes. In many FUSE file systems
//! the inodes differ as well, so the stamps of their files have no inode.
//!
//! A stamp cannot detect a change that alters none of the four fields, for example a second write within one tick of
//! the file system's clock. So a stamp is taken only when the last change is longer ago than a tick.
//!
//! The stamp of an object on a server has the object's size, and its Last-Modified as modification time. A digest of
//! the ETag takes the place of the inode. With an ETag, the server guarantees the version, and the change time is
//! unset. Without an ETag, Last-Modified is also the change time: it has whole seconds, within which an object may
//! change again. For the page of a remote directory, and for a list of shards on a server, the inode is a digest of the
//! text.

use crate::http::{HeaderMap, header};
use rustix::fs::{FileType, Statx};
use sha2::{Digest, Sha256};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One tick of the kernel's clock. Within this time after its last change, a file may change again and keep its stamp.
pub const TICK: Duration = Duration::from_millis(20);
/// Tick of a file system that stores times in steps of one or two seconds.
pub const COARSE_TICK: Duration = Duration::from_secs(2);

/// Size, times and inode of a file or directory. A `ctime` or `inode` of 0 means that it is unknown; it is not
/// compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Size in bytes; 0 for directories, whose size has no meaning.
    pub size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub mtime: i64,
    /// Time of the last change of the file or its metadata, in nanoseconds since 1970.
    pub ctime: i64,
    /// Inode number; for an object on a server, a digest of its ETag.
    pub inode: u64,
}

/// One version of a file, as a digest of its stamp. A copy of the file is valid only while the file has the version
/// that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion(pub u64);

impl FileVersion {
    /// The version of a file whose bytes cannot be trusted: no copy matches it.
    pub const NO_COPY: Self = Self(0);
}

impl Stamp {
    /// Number of bytes that [`Stamp::to_bytes`] returns.
    pub const BYTES: usize = 32;

    /// Makes the stamp of a file with this `metadata`.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            size: if metadata.is_dir() { 0 } else { metadata.len() },
            mtime: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }

    /// Makes the stamp from the result of `statx`, called with the basic mask.
    pub fn of_statx(found: &Statx) -> Self {
        let is_dir = FileType::from_raw_mode(found.stx_mode.into()).is_dir();
        Self {
            size: if is_dir { 0 } else { found.stx_size },
            mtime: nanoseconds(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
            ctime: nanoseconds(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into()),
            inode: found.stx_ino,
        }
    }

    /// Makes the stamp of an object of `size` bytes from a server's headers.
    pub fn of_object(size: u64, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).map(|value: &crate::http::HeaderValue| value.as_bytes());
        let modified = text(header::LAST_MODIFIED).and_then(|date| std::str::from_utf8(date).ok());
        let modified = modified.and_then(|date| httpdate::parse_http_date(date).ok());
        Self::of_described(size, text(header::ETAG), modified)
    }

    /// Makes the stamp of an object of `size` bytes from its ETag and modification time, if known.
    pub(super) fn of_described(size: u64, etag: Option<&[u8]>, modified: Option<SystemTime>) -> Self {
        let etag = etag.filter(|etag| !etag.is_empty()).map_or(0, |etag| {
            // Accept weak ETags: they name a version, even if the server does not guarantee every byte. An ETag has
            // quotes in headers, but not in listings.
            let etag = etag.strip_prefix(b"W/").unwrap_or(etag);
            let quoted = etag.strip_prefix(b"\"").and_then(|etag| etag.strip_suffix(b"\""));
            first_bits(Sha256::new_with_prefix(quoted.unwrap_or(etag))) | 1
        });
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        // Times in headers have whole seconds, so drop the fraction that times in listings have.
        let mtime =
            i64::try_from(since.as_secs()).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
        let mtime = mtime.unwrap_or(i64::MAX);
        Self { size, mtime, ctime: if etag == 0 { mtime } else { 0 }, inode: etag }
    }

    /// Makes the stamp of a text that lists files, for example the page of a remote directory. The stamp depends only
    /// on the text.
    pub(super) fn of_text(text: &[u8]) -> Self {
        Self::of_digest(Sha256::new_with_prefix(text))
    }

    pub(super) fn of_digest(digest: Sha256) -> Self {
        Self { inode: first_bits(digest) | 1, ..Self::default() }
    }

    /// Whether the stamp can distinguish two versions of a file that have the same size.
    pub fn has_version(self) -> bool {
        self.mtime != 0 || self.inode != 0
    }

    /// Compares an object that a server sends, with these headers and `size` bytes, with this stamp. Returns the
    /// difference in words that follow "the file". Missing headers are not compared, unless all are missing.
    pub fn difference_of_object(self, headers: &HeaderMap, size: u64) -> Option<String> {
        let found = Self::of_object(size, headers);
        if size != self.size {
            return self.difference(found);
        }
        if self.inode != 0 && found.inode != 0 {
            let other = found.inode != self.inode;
            return other.then(|| "has another ETag than when it was indexed".to_owned());
        }
        if self.mtime != 0 && found.mtime != 0 {
            let same_time = Self { ctime: 0, inode: 0, ..self };
            return same_time.difference(found);
        }
        let lost = self.has_version() && !found.has_version();
        lost.then(|| {
            "is now sent without the ETag or Last-Modified that it had when it was indexed".to_owned()
        })
    }

    /// Returns the current stamp of the file at `path`, with links followed.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::of(&metadata))
    }

    /// Calls `look` for a file's stamp until the stamp is reliable. For a tick after a change, another change might not
    /// alter the stamp. If the last change is that recent, this function waits for a tick, or for `patience` if that is
    /// shorter, and calls `look` again.
    ///
    /// # Errors
    /// The errors of `look`.
    pub fn stable<E>(patience: Duration, mut look: impl FnMut() -> Result<Self, E>) -> Result<Self, E> {
        let stamp = look()?;
        let wait = stamp.tick().min(patience);
        if !stamp.changed_within(wait) {
            return Ok(stamp);
        }
        std::thread::sleep(wait);
        look()
    }

    /// Whether the last change is so long ago that every future write gives another stamp.
    pub fn is_stable(self) -> bool {
        !self.changed_within(self.tick())
    }

    /// Returns the time after a change within which another change might not alter the stamp.
    fn tick(self) -> Duration {
        let is_coarse = self.ctime % 1_000_000_000 == 0;
        if is_coarse { COARSE_TICK } else { TICK }
    }

    /// Whether the last change is at most `tick` ago. Assumes that the clocks of this machine and of the file system
    /// agree.
    pub fn changed_within(self, tick: Duration) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.abs_diff(Duration::from_nanos(self.ctime.max(0) as u64)) <= tick
    }

    /// Returns the stamp without its inode, for file systems without permanent inode numbers.
    pub fn without_inode(self) -> Self {
        Self { inode: 0, ..self }
    }

    /// Returns the four fields in their order, each little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = [self.size, self.mtime as u64, self.ctime as u64, self.inode];
        bytes
            .chunks_exact_mut(8)
            .zip(fields)
            .for_each(|(place, field)| place.copy_from_slice(&field.to_le_bytes()));
        bytes
    }

    /// Returns the version of a file with this stamp.
    pub fn version(self) -> FileVersion {
        FileVersion(first_bits(Sha256::new_with_prefix(self.to_bytes())))
    }

    /// Returns how the stamp `found` differs from this one, in words that follow "the file"; `None` if they are equal.
    pub fn difference(self, found: Self) -> Option<String> {
        if found.size != self.size {
            return Some(format!("is {} bytes, was {} when indexed", found.size, self.size));
        }
        if found.mtime != self.mtime {
            let (now, then) = (seconds(found.mtime), seconds(self.mtime));
            return Some(format!("was modified at {now}, at {then} when indexed (seconds since 1970)"));
        }
        if self.inode != 0 && found.inode != self.inode {
            let message =
                "was replaced by another file or object of the same size and time since it was indexed";
            return Some(message.to_owned());
        }
        if self.ctime != 0 && found.ctime != self.ctime {
            let (now, then) = (seconds(found.ctime), seconds(self.ctime));
            return Some(format!("was changed at {now}, at {then} when indexed (seconds since 1970)"));
        }
        None
    }
}

fn first_bits(digest: Sha256) -> u64 {
    let digest: [u8; 32] = digest.finalize().into();
    u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"))
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

fn seconds(nanoseconds: i64) -> String {
    format!("{}.{:09}", nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_is_known_is_compared() {
        let stamp = Stamp { size: 1, mtime: 2, ctime: 3, inode: 4 };
        assert_eq!(stamp.difference(stamp), None);
        for other in [
            Stamp { size: 9, ..stamp },
            Stamp { mtime: 9, ..stamp },
            Stamp { ctime: 9, ..stamp },
            Stamp { inode: 9, ..stamp },
        ] {
            assert!(stamp.difference(other).is_some(), "{other:?}");
            assert_ne!(stamp.version(), other.version());
        }
        let known = Stamp { ctime: 0, inode: 0, ..stamp };
        assert_eq!(known.difference(stamp), None);
        assert!(known.difference(Stamp { mtime: 9, ..stamp }).is_some());
    }
}
