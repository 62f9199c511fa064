//! Writes to a local drive. A write writes all bytes or fails. Tests can inject faults.

use base::rng::{RandomKey, RandomStream, Use};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// How often writes fail in tests, as percentages.
#[derive(Debug, Clone, Copy)]
pub struct WriteFaults {
    /// The seed of every choice; print it when a test fails.
    pub seed: u64,
    /// Percentage of writes that fail with EIO.
    pub errors: u64,
    /// Percentage of writes that fail with ENOSPC.
    pub full: u64,
    /// Percentage of writes that write only a part of the bytes.
    pub short: u64,
}

/// Asks the kernel to start writing dirty pages. Otherwise they accumulate until the kernel blocks the next process
/// that writes.
fn start_writeback(file: &File, offset: u64, length: u64) {
    // SAFETY: the descriptor is open, and the call touches no memory of ours. Its result does not matter.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, length as i64, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// The drive, with injected faults in tests.
pub struct Drive {
    faults: Option<(WriteFaults, RandomStream)>,
}

impl Drive {
    /// Makes a drive with these `faults`.
    pub fn new(faults: Option<WriteFaults>) -> Self {
        let faults = faults.map(|faults| {
            (faults, RandomKey::new(b"faults of writes", faults.seed, 0, Use::Order).stream(0))
        });
        Self { faults }
    }

    /// Writes all bytes at `offset`, and asks the kernel to start their writeback.
    ///
    /// # Errors
    /// The system's error. A part of the bytes may have been written.
    pub fn write(&mut self, file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        let (start, length) = (offset, bytes.len() as u64);
        while !bytes.is_empty() {
            let length = self.allowed(bytes.len())?;
            match file.write_at(&bytes[..length], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        start_writeback(file, start, length);
        Ok(())
    }

    fn allowed(&mut self, length: usize) -> io::Result<usize> {
        let Some((faults, random)) = &mut self.faults else { return Ok(length) };
        let draw = random.below(100);
        let (full, short) = (faults.errors + faults.full, faults.errors + faults.full + faults.short);
        match draw {
            _ if draw < faults.errors => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ if draw < full => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ if draw < short => Ok(1 + random.below(length as u64) as usize),
            _ => Ok(length),
        }
    }
}
