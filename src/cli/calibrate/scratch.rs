//! Measures the cache's drive with a file that is written, read and deleted.

use super::{NvmeReport, absolute, goes_direct};
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use base::slot::SlotPool;
use data::dataset::{Extent, FileId, Stamp};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::io::storage::Storage;
use store::io::{DataSource, Direct, Files, IoChoice, open_source};
use store::tier::measure;

const LARGEST: u64 = 256 << 20;

/// The minimum size of the file in bytes for a meaningful measurement.
const SMALLEST: u64 = 8 << 20;

const WRITE_BYTES: usize = 4 << 20;

/// A file without a name. The kernel deletes it when the process exits.
struct ScratchFile {
    fd: OwnedFd,
    direct: bool,
    size: u64,
    stamp: Stamp,
}

impl Files for ScratchFile {
    fn path(&self, _: FileId) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }
    fn stamp(&self, _: FileId) -> Option<Stamp> {
        Some(self.stamp)
    }
}

/// Writes and reads a file in `directory` for about `limit`. The directory is created if it is missing.
///
/// # Errors
/// [`Error::Config`] if there is too little space; otherwise the errors of writing and reading.
pub(super) fn measure(directory: &Path, sample: u64, depth: usize, limit: Duration) -> Result<NvmeReport> {
    let directory = absolute(directory)?;
    let made = !directory.exists();
    std::fs::create_dir_all(&directory).map_err(|error| Error::io("make", &directory, error))?;
    let measured = measure_in(&directory, sample, depth, limit);
    if made {
        // Remove the directory only if it is empty: another process may have created files in it.
        let _ = std::fs::remove_dir(&directory);
    }
    measured
}

fn measure_in(directory: &Path, sample: u64, depth: usize, limit: Duration) -> Result<NvmeReport> {
    let begun = Instant::now();
    let mut scratch = ScratchFile::create(directory)?;
    scratch.fill(directory, room(directory)?, limit / 2)?;
    let write_seconds = begun.elapsed().as_secs_f64();
    let storage = Storage::of(&scratch.path(FileId(0)))?;
    let direct = scratch.direct && goes_direct(&storage);
    let size = scratch.size;
    let source = DataSource {
        files: Arc::new(scratch),
        root: directory.to_owned(),
        first: Extent { file: FileId(0), offset: 0, length: 4096 },
        bytes: size,
    };
    let choice = if direct { Direct::On } else { Direct::Off };
    let open = |slots: &SlotPool, depth: usize| open_source(&source, slots, IoChoice::Auto, choice, depth);
    let length = sample.clamp(1, size / 4) as u32;
    let measured = measure::file(size, length, &open, depth, limit / 2)?;
    Ok(NvmeReport {
        path: directory.to_owned(),
        file_system: storage.file_system,
        direct,
        written_bytes: size,
        write_seconds,
        measured,
    })
}

fn room(directory: &Path) -> Result<u64> {
    let found =
        rustix::fs::statvfs(directory).map_err(|error| Error::io("statvfs", directory, error.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let room = (free / 4).min(LARGEST) / WRITE_BYTES as u64 * WRITE_BYTES as u64;
    if room < SMALLEST {
        let message = format!(
            "{} has {free} bytes free; measuring uses a quarter of them, and needs at least {SMALLEST}",
            directory.display()
        );
        return Err(Error::config("cache", message));
    }
    Ok(room)
}

impl ScratchFile {
    fn create(directory: &Path) -> Result<Self> {
        let open = |more: OFlags| {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | more;
            rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)
        };
        let (fd, direct) = match open(OFlags::DIRECT) {
            Ok(fd) => (fd, true),
            Err(Errno::INVAL) => (
                open(OFlags::empty())
                    .map_err(|error| Error::io("create a file in", directory, error.into()))?,
                false,
            ),
            Err(error) => return Err(Error::io("create a file in", directory, error.into())),
        };
        Ok(Self { fd, direct, size: 0, stamp: Stamp::default() })
    }

    fn fill(&mut self, directory: &Path, room: u64, limit: Duration) -> Result<()> {
        let failed = |error: Errno| Error::io("write to a file in", directory, error.into());
        let slots = SlotPool::new(2 * WRITE_BYTES)?;
        let mut slot =
            slots.try_take(WRITE_BYTES).ok_or_else(|| Error::Internal("no slot to write from".into()))?;
        // Random bytes cannot be compressed by the drive.
        let mut random = RandomKey::new(b"calibrate", 0, 0, Use::Order).stream(0);
        for word in slot.bytes_mut().chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let begun = Instant::now();
        while self.size < SMALLEST || (self.size < room && begun.elapsed() < limit) {
            let mut done = 0;
            while done < WRITE_BYTES {
                let rest = &slot.bytes()[done..WRITE_BYTES];
                match rustix::io::pwrite(&self.fd, rest, self.size + done as u64).map_err(failed)? {
                    0 => return Err(failed(Errno::NOSPC)),
                    written => done += written,
                }
            }
            self.size += WRITE_BYTES as u64;
        }
        rustix::fs::fdatasync(&self.fd).map_err(failed)?;
        // If writes went through the page cache, drop them from it before reading.
        let _ = rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed);
        let path = self.path(FileId(0));
        let found = std::fs::metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
        // The file has no name, so it is opened through its descriptor.
        self.stamp = Stamp::of(&found);
        Ok(())
    }
}
