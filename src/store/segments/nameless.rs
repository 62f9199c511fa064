//! Files that have no name until they are whole, so that nobody sees a part of one and a dead process leaves nothing.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Makes a file in `directory` that has no name and is gone when its last descriptor is closed.
pub fn create(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(0o644))?))
}

/// Gives a nameless file its name.
pub fn link(file: &File, path: &Path) -> io::Result<()> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
