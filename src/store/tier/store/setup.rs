//! Sets up a cache directory: its lock file, its format, and a dataset's directory in it. Refuses unsuitable
//! directories.

use super::segment::VERSION;
use crate::io::storage::Storage;
use crate::segments::lock_file::{LockFormat, LockState};
use crate::segments::nameless;
use base::error::{Error, Result};
use base::node::{LockKind, RangeLocks};
use data::dataset::DatasetIndex;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

pub(super) const LOCK: LockFormat<32> = LockFormat { magic: *b"FLCACHE\n", version: VERSION };
pub(super) const GENERATION_AT: u64 = 24;
/// How long this process waits for the directory's lock, which other processes hold only briefly.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// How long this process waits for the lock at startup, when training cannot begin yet. If another process holds the
/// lock longer, that process is probably suspended, and this process only reads the cache.
pub(super) const LOCK_LIMIT_AT_START: Duration = Duration::from_secs(3);
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Samples cached by Foreload. This directory may be \
    deleted while no job uses it.\n";

/// Locks the directory. Polls, because a blocking call has no time limit.
pub(super) fn wait_for(lock: &RangeLocks, path: &Path, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(20);
    loop {
        match lock.try_lock(0..1, LockKind::Exclusive) {
            Ok(true) => return Ok(()),
            Ok(false) if start.elapsed() > limit => {
                let message = format!(
                    "has been locked by another process for {} s: if that process is stopped, resume or end it",
                    limit.as_secs()
                );
                return Err(unusable(path, &message));
            }
            Ok(false) => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(Duration::from_millis(2));
            }
            Err(error) => return Err(cannot_serve(path, "byte-range locks (F_OFD_SETLK)", &error)),
        }
    }
}

pub(super) fn cannot_serve(path: &Path, what: &str, error: &io::Error) -> Error {
    let file_system =
        Storage::of(path).map_or_else(|_| "a file system".to_owned(), |found| found.file_system);
    let message = format!(
        "is on {file_system}, which does not support {what}: {error}; choose a directory on a local drive (ext4, xfs)"
    );
    unusable(path, &message)
}

/// Returns the error for a directory that cannot be a cache, for a reason that the settings do not show.
fn unusable(path: &Path, message: &str) -> Error {
    Error::Unavailable(format!("cache: {} {message}", path.display()))
}

/// Refuses a cache inside a dataset, because sources are read-only. → `tests/load/store/refusals.rs`
pub(super) fn refuse_inside(directory: &Path, index: &DatasetIndex) -> Result<()> {
    let existing = directory.ancestors().find_map(|path| path.canonicalize().ok());
    for root in index.local_directories() {
        let dataset = root.canonicalize().map_err(|error| Error::io("open dataset", &root, error))?;
        if existing.as_ref().is_some_and(|path| path.starts_with(&dataset)) {
            let message = format!(
                "is {}, inside the dataset {}, to which Foreload never writes: choose another directory",
                directory.display(),
                dataset.display()
            );
            return Err(Error::config("cache_dir", message));
        }
    }
    Ok(())
}

pub(super) fn open_to_read(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::io("open", path, error))
}

pub(super) fn open_file(path: &Path, create: bool) -> Result<File> {
    let opened = File::options().read(true).write(true).create(create).truncate(false).open(path);
    opened.map_err(|error| Error::io("open", path, error))
}

/// Fills a new lock file, and refuses the lock file of another program or format. The caller must hold the directory's
/// lock.
pub(super) fn initialise(lock: &RangeLocks, directory: &Path) -> Result<()> {
    let path = directory.join("lock");
    if LOCK.read(lock.file()).map_err(|error| Error::io("read", &path, error))? != LockState::New {
        return check_format(lock.file(), directory);
    }
    LOCK.initialise(lock.file()).map_err(|error| Error::io("write", &path, error))?;
    // Write the tag only if the directory has no other file than the lock file. The tag makes backup programs skip the
    // whole directory, including files of the user.
    if read_directory(directory)?.count() == 1 {
        let _ = fs::write(directory.join("CACHEDIR.TAG"), TAG);
    }
    Ok(())
}

pub(super) fn check_format(lock: &File, directory: &Path) -> Result<()> {
    let path = directory.join("lock");
    match LOCK.read(lock).map_err(|error| Error::io("read", &path, error))? {
        LockState::Ours { .. } => Ok(()),
        LockState::OtherVersion(version) => {
            let message = format!(
                "has cache format {version}, but this version of Foreload uses {VERSION}: choose another directory, or \
                 empty this one with `foreload cache clear`"
            );
            Err(unusable(directory, &message))
        }
        LockState::New | LockState::Foreign => {
            Err(unusable(&path, "is not a lock file of Foreload: give the cache an empty directory"))
        }
    }
}

/// Creates a dataset's directory, and marks it as in use and as used now. The caller must hold the directory's lock.
pub(super) fn enter_dataset(own: &Path) -> Result<RangeLocks> {
    match fs::create_dir(own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create", own, error));
        }
        _ => {}
    }
    let path = own.join("used");
    // Create the file like a segment, so that an unsuitable file system is detected now.
    let made = nameless::create(own).and_then(|file| nameless::link(&file, &path));
    match made {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::io("create a file in", own, error));
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(cannot_serve(own, "unnamed files (O_TMPFILE) and linking them", &error));
        }
        _ => {}
    }
    let file = open_file(&path, false)?;
    file.set_modified(SystemTime::now()).map_err(|error| Error::io("touch", &path, error))?;
    let marker = RangeLocks::new(file);
    let shared = marker.try_lock(0..1, LockKind::Shared).map_err(|error| Error::io("lock", &path, error))?;
    debug_assert!(shared, "only the owner of the directory's lock locks this file");
    Ok(marker)
}

pub(super) fn read_directory(path: &Path) -> Result<fs::ReadDir> {
    fs::read_dir(path).map_err(|error| Error::io("list", path, error))
}
