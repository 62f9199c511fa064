//! The lock file of a directory of segments. It identifies the format of the directory and the run that owns it.
//!
//! ```text
//! magic · version u32 · run u32 · next segment's number u64 · extra bytes of the format, zeros at first
//! ```

use super::{u32_at, u64_at};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The offset of the version in a lock file.
pub const VERSION_AT: u64 = 8;
/// The offset of the number of the run that owns the directory.
pub const RUN_AT: u64 = 12;
/// The offset of the next segment's number.
pub const NEXT_AT: u64 = 16;

/// A format of lock files with `BYTES` bytes.
pub struct LockFormat<const BYTES: usize> {
    /// The first bytes of the file.
    pub magic: [u8; 8],
    /// The version of the format of the directory.
    pub version: u32,
}

/// The content of a lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// The file is empty: the directory was never used.
    New,
    /// The file belongs to another program, or is damaged.
    Foreign,
    /// The file has another version than this program writes.
    OtherVersion(u32),
    /// The file is valid.
    Ours {
        /// The number of the run that owns the directory; 0 before the first run.
        run: u32,
        /// The number of the next segment.
        next: u64,
    },
}

impl<const BYTES: usize> LockFormat<BYTES> {
    /// Writes the content of a new lock file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn initialise(&self, lock: &File) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16] = 1;
        lock.write_all_at(&bytes, 0)
    }

    /// Reads a lock file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn read(&self, lock: &File) -> io::Result<LockState> {
        let size = lock.metadata()?.len();
        if size == 0 {
            return Ok(LockState::New);
        }
        let mut bytes = [0; BYTES];
        if size == BYTES as u64 {
            lock.read_exact_at(&mut bytes, 0)?;
        }
        Ok(match u32_at(&bytes, VERSION_AT as usize) {
            _ if bytes[..8] != self.magic => LockState::Foreign,
            version if version != self.version => LockState::OtherVersion(version),
            _ => LockState::Ours {
                run: u32_at(&bytes, RUN_AT as usize),
                next: u64_at(&bytes, NEXT_AT as usize).max(1),
            },
        })
    }
}
