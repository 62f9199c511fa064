//! Locks on ranges of a file's bytes that belong to an open file description and end with it (fcntl F_OFD_*).
//!
//! The kernel releases the locks when the last descriptor is closed, however a process ends. Locks of the same
//! description never conflict. Locks of two descriptions conflict, whether in one process or in two. The locked bytes
//! need not exist.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// A file with locks on its ranges.
pub struct RangeLocks {
    file: File,
}

/// How a range of bytes is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Other open file descriptions may also hold a shared lock.
    Shared,
    /// No other open file description may hold a lock.
    Exclusive,
}

impl RangeLocks {
    /// Creates the locks of this file; none is held at first.
    pub fn new(file: File) -> Self {
        Self { file }
    }

    /// The file whose bytes are locked.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Locks `bytes` for this open file description. Returns `false` if another description has locked some of the
    /// bytes. Within `bytes`, the new lock replaces the earlier locks of this description.
    pub fn try_lock(&self, bytes: Range<u64>, kind: LockKind) -> io::Result<bool> {
        let kind = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
        match self.control(libc::F_OFD_SETLK, kind, &bytes) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases the locks of these bytes.
    pub fn unlock(&self, bytes: Range<u64>) -> io::Result<()> {
        if bytes.is_empty() {
            // For the kernel, a length of 0 means all bytes up to the end.
            return Ok(());
        }
        self.control(libc::F_OFD_SETLK, libc::F_UNLCK, &bytes).map(drop)
    }

    /// Returns the ranges within `bytes` that other open file descriptions have locked.
    pub fn locked_by_others(&self, bytes: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        let mut left = vec![bytes];
        while let Some(bytes) = left.pop() {
            if bytes.is_empty() {
                continue;
            }
            // The kernel returns one conflicting lock, not necessarily the first. So search before and after that lock.
            let answer = self.control(libc::F_OFD_GETLK, libc::F_WRLCK, &bytes)?;
            if libc::c_int::from(answer.l_type) == libc::F_UNLCK {
                continue;
            }
            let start = answer.l_start as u64;
            let end = if answer.l_len == 0 { bytes.end } else { start + answer.l_len as u64 };
            left.push(bytes.start..start.min(bytes.end));
            left.push(end.max(bytes.start)..bytes.end);
            found.push(start..end);
        }
        Ok(found)
    }

    /// Duplicates the file's descriptor. The new descriptor's number is above `other`.
    pub fn descriptor_above(&self, other: i32) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.file, other + 1)?)
    }

    fn control(&self, command: i32, kind: i32, bytes: &Range<u64>) -> io::Result<libc::flock> {
        // SAFETY: all fields are integers, for which zero is a valid value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        lock.l_start = bytes.start as _;
        lock.l_len = (bytes.end - bytes.start) as _;
        loop {
            // SAFETY: the descriptor is open while `self.file` lives, and `lock` is a valid flock to read and write.
            let result = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) };
            if result == 0 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_all_others_are_found_and_end_with_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open = || {
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            RangeLocks::new(file.unwrap())
        };
        let (one, two, three) = (open(), open(), open());
        for (who, range) in [(&two, 900..905), (&three, 50..70), (&two, 100..200), (&two, 300..301)] {
            assert!(who.try_lock(range, LockKind::Exclusive).unwrap());
        }
        assert!(one.try_lock(400..500, LockKind::Exclusive).unwrap());
        let sorted = |mut ranges: Vec<Range<u64>>| {
            ranges.sort_by_key(|range| range.start);
            ranges
        };
        let all = 0..i64::MAX as u64;
        assert_eq!(
            sorted(one.locked_by_others(all.clone()).unwrap()),
            [50..70, 100..200, 300..301, 900..905]
        );
        assert_eq!(sorted(one.locked_by_others(60..310).unwrap()), [50..70, 100..200, 300..301]);
        assert!(!one.try_lock(199..210, LockKind::Exclusive).unwrap());
        assert!(two.try_lock(100..250, LockKind::Exclusive).unwrap());
        assert!(!one.try_lock(220..221, LockKind::Shared).unwrap());
        two.unlock(150..250).unwrap();
        two.unlock(50..50).unwrap();
        assert!(one.try_lock(220..221, LockKind::Shared).unwrap());
        let second = two.descriptor_above(40).unwrap();
        assert!(second.as_raw_fd() > 40);
        drop(two);
        assert_eq!(one.locked_by_others(80..1000).unwrap().len(), 3, "held by the second descriptor");
        drop((second, three));
        assert!(one.locked_by_others(all).unwrap().is_empty());
    }
}
