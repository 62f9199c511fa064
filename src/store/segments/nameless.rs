//! Files that get their names when they are complete. So no process sees an incomplete file, and a killed process
//! leaves none behind.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Creates a file without a name in `directory`. If [`link`] never gives it a name, the system deletes it when its last
/// descriptor is closed.
pub fn create(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(0o644))?))
}

/// Gives a nameless file its name.
pub fn link(file: &File, path: &Path) -> io::Result<()> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
