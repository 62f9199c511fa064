//! A segment being filled: a file without a name, the pages reserved for it, and the samples it has so far.

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
/// The order of the fields matters when it is dropped: the file is closed before its pages are released, so that at no
/// instant less is reserved than written.
pub(super) struct OpenSegment {
    file: File,
    reservation: Reservation,
    /// Bytes of the samples that have been written.
    pub payload: u64,
    /// The footer that the file will get: a row for each sample that has been written.
    pub footer: Footer,
}

/// The right to a segment's pages, which ends when it is dropped.
struct Reservation {
    directory: Arc<CacheDirectory>,
    number: u64,
    pages: u64,
    /// Whether the pages have been released already, because the published file counts in their place.
    released: bool,
    /// A second descriptor of the lock file, numbered above the segment's. It keeps the reservation until the process
    /// has closed the segment, however the process ends: the kernel closes descriptors in the order of their numbers,
    /// upwards or downwards depending on its version, and the segment's number lies between two of the lock file's.
    _upper_lock: OwnedFd,
}

impl OpenSegment {
    /// The empty segment `number` of `group` in the nameless `file`, with `pages` pages that have been reserved.
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

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The segment's number in the directory.
    pub(super) fn number(&self) -> u64 {
        self.reservation.number
    }

    /// The number of pages that are reserved for the segment.
    pub(super) fn pages(&self) -> u64 {
        self.reservation.pages
    }

    /// Notes that `pages` pages are reserved now.
    pub(super) fn set_pages(&mut self, pages: u64) {
        self.reservation.pages = pages;
    }

    /// Takes over the rows of a buffer whose bytes have been written behind the payload.
    pub(super) fn append(&mut self, buffer: &mut WriteBuffer) {
        // A segment is below 4 GiB up to the first byte of its last sample.
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

    /// Notes that the pages have been released.
    pub(super) fn set_released(&mut self) {
        self.reservation.released = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.released {
            self.directory.release(self.number, self.pages);
        }
    }
}
