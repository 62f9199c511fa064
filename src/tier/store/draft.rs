//! A segment being filled: a file without a name, and the right to its pages.

use super::directory::Directory;
use crate::error::{Error, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A file in `directory` that has no name and goes with its last descriptor.
pub(super) fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(0o644))?))
}

/// Gives a nameless file its name.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// A nameless segment. Dropped, file and reservation end, in this order: what is reserved is at no instant less than
/// what is written.
pub(super) struct Draft {
    file: File,
    reserved: Reserved,
    /// Keeps the lock file's description, and so the reservation, until the process has closed `file`, whatever the
    /// order of its end: the kernel closes descriptors by number, up or down by version, and `file` has one between two
    /// of the lock file's.
    _last: OwnedFd,
}

struct Reserved {
    directory: Arc<Directory>,
    number: u64,
    pages: u64,
    published: bool,
}

impl Draft {
    /// The segment `number` with `pages` pages, which are reserved.
    pub(crate) fn new(directory: &Arc<Directory>, file: File, number: u64, pages: u64) -> io::Result<Self> {
        let reserved = Reserved { directory: directory.clone(), number, pages, published: false };
        let lock = directory.lock.file().as_raw_fd();
        let file = if file.as_raw_fd() > lock {
            file
        } else {
            File::from(rustix::io::fcntl_dupfd_cloexec(&file, lock + 1)?)
        };
        let last = directory.lock.descriptor_above(file.as_raw_fd())?;
        Ok(Self { file, reserved, _last: last })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn number(&self) -> u64 {
        self.reserved.number
    }

    /// Pages that are reserved for it.
    pub(crate) fn pages(&self) -> u64 {
        self.reserved.pages
    }

    pub(super) fn grown(&mut self, pages: u64) {
        self.reserved.pages = pages;
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`] naming `path`.
    pub(super) fn link(&self, path: &Path) -> Result<()> {
        link(&self.file, path).map_err(|error| Error::io("publish", path, error))
    }

    /// Its reservation has been given back.
    pub(super) fn published(&mut self) {
        self.reserved.published = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.published {
            self.directory.release(self.number, self.pages);
        }
    }
}
