//! A segment being filled: a file without a name, the pages reserved for it, and the samples that it has so far.

use super::directory::CacheDirectory;
use super::segment::Footer;
use super::write_buffer::WriteBuffer;
use crate::segments::nameless;
use base::error::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A segment that is being filled with the samples of one group.
///
/// The order of the fields matters: the file is dropped, and so closed, before its pages are released. So the reserved
/// pages always cover the written pages.
pub(super) struct OpenSegment {
    pub file: File,
    pub reservation: Reservation,
    pub payload: u64,
    /// The footer that the file will get: a row for each sample that has been written.
    pub footer: Footer,
}

/// Reserves a part of the directory's quota for a segment, until dropped.
pub(super) struct Reservation {
    directory: Arc<CacheDirectory>,
    pub number: u64,
    pub pages: u64,
    /// Whether the pages were released already, because the published file counts in their place.
    pub released: bool,
    /// A second descriptor of the lock file, with a higher number than the segment's descriptor. It keeps the
    /// reservation until the process has closed the segment, however the process ends. The kernel closes descriptors in
    /// the order of their numbers, upwards or downwards depending on its version. The number of the segment's
    /// descriptor is between the numbers of the two descriptors of the lock file.
    _upper_lock: OwnedFd,
}

impl OpenSegment {
    pub(super) fn new(
        directory: &Arc<CacheDirectory>,
        file: File,
        (number, pages): (u64, u64),
        group: u64,
    ) -> io::Result<Self> {
        let lock = directory.lock.file().as_raw_fd();
        let opened = if file.as_raw_fd() > lock {
            Ok(file)
        } else {
            rustix::io::fcntl_dupfd_cloexec(&file, lock + 1).map(File::from).map_err(io::Error::from)
        };
        let both = opened.and_then(|file| {
            let upper_lock = directory.lock.descriptor_above(file.as_raw_fd())?;
            Ok((file, upper_lock))
        });
        let (file, upper_lock) = both.inspect_err(|_| directory.release(number, pages))?;
        let reservation = Reservation {
            directory: directory.clone(),
            number,
            pages,
            released: false,
            _upper_lock: upper_lock,
        };
        Ok(Self { file, reservation, payload: 0, footer: Footer { group, rows: Vec::new() } })
    }

    /// Takes the rows of a buffer whose bytes have been written after the payload.
    pub(super) fn append(&mut self, buffer: &mut WriteBuffer) {
        // All samples of a segment begin below 4 GiB.
        let start = self.payload as u32;
        let rows = buffer.rows.drain(..).map(|mut row| {
            row.offset += start;
            row
        });
        self.footer.rows.extend(rows);
        self.payload += buffer.bytes.len() as u64;
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`] naming `path`.
    pub(super) fn link(&self, path: &Path) -> Result<()> {
        nameless::link(&self.file, path).map_err(|error| Error::io("publish", path, error))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.released {
            self.directory.release(self.number, self.pages);
        }
    }
}
