//! The directory of a store: who has it, what may be written there, and files that get their name when they are whole.
//!
//! ```text
//! <directory>/lock             format, run, next segment's number; locked by the process that has the directory
//! <directory>/<number>.seg     segments
//! <directory>/<number>.snap    snapshots
//! <directory>/*.tmp            what is being written, where files without a name cannot be; removed at the next start
//! ```
//!
//! One process has the directory, so what is used is a sum that this process keeps: the pages of every file, those
//! being written included, are counted before a byte is written and until the file is gone.

use super::format::VERSION;
use super::{SegmentOptions, StoreFull};
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use store::segments::drive::Drive;
use store::segments::lock_file::{LockFormat, LockState, NEXT_AT, RUN_AT};
use store::segments::{PAGE, nameless, numbered, remove};

/// What the lock file is like.
const LOCK_FORMAT: LockFormat<24> = LockFormat { magic: *b"FLSTREAM", version: VERSION };
/// The name of the lock file.
const LOCK: &str = "lock";
/// The extension of segments.
pub(super) const SEGMENT: &str = "seg";
/// The extension of snapshots.
pub(super) const SNAPSHOT: &str = "snap";
/// The extension of files that are not whole yet.
const TEMPORARY: &str = "tmp";

/// A directory that this process has for itself.
pub(super) struct RecordDirectory {
    path: PathBuf,
    lock: File,
    /// The run that the directory is of; 0 where none has begun in it.
    run: u32,
    next: u64,
    /// In pages.
    quota: u64,
    used: u64,
    /// Whether files can be written without a name.
    nameless: bool,
    drive: Drive,
    process: u32,
}

impl RecordDirectory {
    /// Takes the directory, which is made where it is missing, and removes what was not whole when the last process
    /// ended. Files that are there are not counted yet.
    pub(super) fn open(options: &SegmentOptions) -> Result<Self> {
        let path = std::path::absolute(&options.directory)
            .map_err(|error| Error::io("resolve", &options.directory, error))?;
        fs::create_dir_all(&path).map_err(|error| Error::io("create", &path, error))?;
        let at = path.join(LOCK);
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(&at);
        let lock = lock.map_err(|error| Error::io("open", &at, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!(
                    "{} is in use by another process: give each process a directory of its own, or wait until that \
                     one has ended",
                    path.display()
                );
                return Err(Error::Unavailable(message));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", at, error)),
        }
        let (run, next) = read_lock(&lock, &at, &path)?;
        let (quota, drive) = (options.quota / PAGE, Drive::new(options.faults));
        // The lock file has a page.
        let process = std::process::id();
        let mut directory = Self { path, lock, run, next, quota, used: 1, nameless: false, drive, process };
        directory.remove_unfinished()?;
        directory.nameless = options.nameless && directory.can_be_nameless()?;
        Ok(directory)
    }

    /// Removes what was not whole when the last process ended.
    fn remove_unfinished(&self) -> Result<()> {
        let failed = |error| Error::io("list", &self.path, error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().into_string().unwrap_or_default();
            if name.ends_with(".tmp") {
                self.remove_file(&name)?;
            }
        }
        Ok(())
    }

    /// Whether the file system can write files that have no name, and name them.
    fn can_be_nameless(&self) -> Result<bool> {
        let path = self.path.join("probe.tmp");
        match nameless::create(&self.path).and_then(|file| nameless::link(&file, &path)) {
            Ok(()) => self.remove_file("probe.tmp").map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(Error::io("create a file in", &self.path, error))
            }
            Err(_) => Ok(false),
        }
    }

    /// The files with this extension: their numbers, rising, and their bytes.
    pub(super) fn files(&self, extension: &str) -> Result<BTreeMap<u64, u64>> {
        numbered::files(&self.path, extension, |_| None)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file by its number and extension.
    pub(super) fn path_of(&self, number: u64, extension: &str) -> PathBuf {
        self.path.join(numbered::name(number, extension))
    }

    /// The quota, in pages.
    pub(super) fn quota(&self) -> u64 {
        self.quota
    }

    /// What is used, in pages.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Counts `pages` more of which `spare` are kept free for others.
    ///
    /// # Errors
    /// There are not so many.
    pub(super) fn reserve(&mut self, pages: u64, spare: u64) -> Result<(), StoreFull> {
        if pages > 0 && self.used + pages + spare > self.quota {
            return Err(StoreFull {
                path: self.path.clone(),
                wanted: pages * PAGE,
                free: self.quota.saturating_sub(self.used + spare) * PAGE,
                quota: self.quota * PAGE,
            });
        }
        self.used += pages;
        Ok(())
    }

    /// Counts pages of files that are there, whether or not the quota allows them.
    pub(super) fn count(&mut self, pages: u64) {
        self.used += pages;
    }

    pub(super) fn release(&mut self, pages: u64) {
        debug_assert!(pages <= self.used, "released more than was counted");
        self.used -= pages;
    }

    /// Says that numbers up to this one are taken.
    pub(super) fn take_number(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    /// A number that no segment has ever had.
    pub(super) fn next_number(&mut self) -> Result<u64> {
        let written = self.lock.write_all_at(&(self.next + 1).to_le_bytes(), NEXT_AT);
        written.map_err(|error| Error::io("write", self.path.join(LOCK), error))?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// The run that the directory is of; 0 where none has begun in it.
    pub(super) fn run(&self) -> u32 {
        self.run
    }

    /// Notes the run that the directory is of.
    pub(super) fn set_run(&mut self, run: u32) -> Result<()> {
        let written = self.lock.write_all_at(&run.to_le_bytes(), RUN_AT).and_then(|()| self.lock.sync_data());
        written.map_err(|error| Error::io("write", self.path.join(LOCK), error))?;
        self.run = run;
        Ok(())
    }

    /// A new file, which [`RecordDirectory::publish`] names.
    pub(super) fn create(&self, number: u64, extension: &'static str) -> Result<UnnamedFile> {
        let path = self.path_of(number, extension);
        if self.nameless {
            let file = nameless::create(&self.path);
            let file = file.map_err(|error| Error::io("create a file in", &self.path, error))?;
            return Ok(UnnamedFile { file, path, temporary: None });
        }
        let temporary = temporary(&path);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&temporary);
        let file = file.map_err(|error| Error::io("create", &temporary, error))?;
        Ok(UnnamedFile { file, path, temporary: Some(temporary) })
    }

    /// Writes all bytes at `offset`.
    pub(super) fn write(&mut self, file: &UnnamedFile, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.drive.write(&file.file, bytes, offset);
        written.map_err(|error| Error::io("write", &file.path, error))
    }

    /// Gives a file its name, in place of the file that has it, if there is one. A file that is to be `safe` is on the
    /// drive before, so that no power cut leaves a part of it; its name is when [`RecordDirectory::sync`] returns.
    pub(super) fn publish(&self, new: &mut UnnamedFile, safe: bool) -> Result<()> {
        let failed = |error| Error::io("publish", &new.path, error);
        if safe {
            new.file.sync_all().map_err(failed)?;
        }
        if new.temporary.is_none() {
            match nameless::link(&new.file, &new.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // A link takes no name from others, but a file that has some name can be moved.
                    let temporary = temporary(&new.path);
                    let _ = fs::remove_file(&temporary);
                    nameless::link(&new.file, &temporary).map_err(failed)?;
                    new.temporary = Some(temporary);
                }
                linked => return linked.map_err(failed),
            }
        }
        if let Some(temporary) = &new.temporary {
            fs::rename(temporary, &new.path).map_err(failed)?;
            new.temporary = None;
        }
        Ok(())
    }

    /// Gives up a file that has no name yet.
    pub(super) fn discard(&self, new: UnnamedFile) {
        if let Some(temporary) = &new.temporary {
            let _ = fs::remove_file(temporary);
        }
    }

    /// Brings names to the drive.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::io("sync", &self.path, error))
    }

    /// Removes a file, which may be gone already.
    pub(super) fn remove(&self, number: u64, extension: &str) -> Result<()> {
        self.remove_file(&numbered::name(number, extension))
    }

    /// Removes the lock file, and the directory if nothing else is in it. It is not to be used behind that.
    pub(super) fn remove_itself(&self) -> Result<()> {
        self.remove_file(LOCK)?;
        // What somebody else keeps there stays.
        let _ = fs::remove_dir(&self.path);
        Ok(())
    }

    fn remove_file(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        remove(&path).map(drop).map_err(|error| Error::io("remove", path, error))
    }
}

impl Drop for RecordDirectory {
    fn drop(&mut self) {
        // Closing the file unlocks it too, but a process that is just being started may hold the descriptor for a
        // moment. In a forked process the lock is the parent's.
        if self.process == std::process::id() {
            let _ = self.lock.unlock();
        }
    }
}

/// A file that has no name yet, or a temporary one.
pub(super) struct UnnamedFile {
    pub file: File,
    /// The path that it will have.
    pub path: PathBuf,
    temporary: Option<PathBuf>,
}

/// The path of the file at `path` while it is not whole.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.{TEMPORARY}", path.extension().unwrap_or_default().display()))
}

/// The run that a directory of a store is of, which another process may have; `None` where it is none of a store.
pub(super) fn run_of(directory: &Path) -> Option<u32> {
    match File::open(directory.join(LOCK)).and_then(|lock| LOCK_FORMAT.read(&lock)).ok()? {
        LockState::Ours { run, .. } => Some(run),
        _ => None,
    }
}

/// Reads the run and the next segment's number from a lock file, or writes the file where it is new.
fn read_lock(lock: &File, at: &Path, directory: &Path) -> Result<(u32, u64)> {
    let refused = |path: &Path, message: &str| {
        let message = format!("{} {message}: choose another directory", path.display());
        Err(Error::Unavailable(message))
    };
    match LOCK_FORMAT.read(lock).map_err(|error| Error::io("read", at, error))? {
        LockState::Ours { run, next } => Ok((run, next)),
        LockState::Foreign => refused(at, "is not Foreload's, or is damaged"),
        LockState::OtherVersion(version) => {
            refused(directory, &format!("has format {version}, this program's is {VERSION}"))
        }
        LockState::New => {
            // What other programs keep here under such names must not be taken for damaged segments, which are removed.
            let names = fs::read_dir(directory).map_err(|error| Error::io("list", directory, error))?;
            let mut extensions =
                names.filter_map(|entry| entry.ok()?.path().extension().map(ToOwned::to_owned));
            if extensions.any(|found| [SEGMENT, SNAPSHOT, TEMPORARY].iter().any(|own| found == *own)) {
                return refused(directory, "has files that may be another program's");
            }
            LOCK_FORMAT.initialise(lock).map_err(|error| Error::io("write", at, error))?;
            Ok((0, 1))
        }
    }
}
