//! The directory of a store: its lock, its quota, and files that get their names when they are complete.
//!
//! ```text
//! <directory>/lock             format, run, next segment number; locked by the process that uses the directory
//! <directory>/<number>.seg     segments
//! <directory>/<number>.snap    snapshots
//! <directory>/*.tmp            incomplete files, if files cannot be written without a name; removed at the next start
//! ```
//!
//! One process uses the directory, so this process keeps a sum of the used space. The pages of every file are counted
//! before the first byte is written, and until the file is removed.

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

const LOCK_FORMAT: LockFormat<24> = LockFormat { magic: *b"FLSTREAM", version: VERSION };
const LOCK: &str = "lock";
pub(super) const SEGMENT: &str = "seg";
pub(super) const SNAPSHOT: &str = "snap";
const TEMPORARY: &str = "tmp";

pub(super) struct RecordDirectory {
    path: PathBuf,
    lock: File,
    /// The run that the directory belongs to; 0 before the first run.
    run: u32,
    next: u64,
    /// The quota in pages.
    quota: u64,
    /// The used space in pages.
    used: u64,
    /// Whether the file system supports files without a name.
    nameless: bool,
    drive: Drive,
    process: u32,
}

impl RecordDirectory {
    /// Creates the directory if it is missing, locks it, and removes incomplete files of the process that used it
    /// before. Existing files are not counted yet.
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
                    "{} is in use by another process: choose a directory for each process, or wait until that process \
                     has exited",
                    path.display()
                );
                return Err(Error::Unavailable(message));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", at, error)),
        }
        let (run, next) = read_lock(&lock, &at, &path)?;
        let (quota, drive) = (options.quota / PAGE, Drive::new(options.faults));
        // The lock file takes a page.
        let process = std::process::id();
        let mut directory = Self { path, lock, run, next, quota, used: 1, nameless: false, drive, process };
        directory.remove_unfinished()?;
        directory.nameless = options.nameless && directory.can_be_nameless()?;
        Ok(directory)
    }

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

    /// Whether the file system can write files without a name, and name them later.
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

    /// The numbers of the files with this extension, in ascending order, and the size of each file in bytes.
    pub(super) fn files(&self, extension: &str) -> Result<BTreeMap<u64, u64>> {
        numbered::files(&self.path, extension, |_| None)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, number: u64, extension: &str) -> PathBuf {
        self.path.join(numbered::name(number, extension))
    }

    pub(super) fn quota(&self) -> u64 {
        self.quota
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Counts `pages` additional pages as used, if `spare` pages stay free.
    ///
    /// # Errors
    /// [`StoreFull`] if the quota has not enough free pages.
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

    /// Counts pages of existing files, even beyond the quota.
    pub(super) fn count(&mut self, pages: u64) {
        self.used += pages;
    }

    pub(super) fn release(&mut self, pages: u64) {
        debug_assert!(pages <= self.used, "released more than was counted");
        self.used -= pages;
    }

    /// Marks all numbers up to this one as used.
    pub(super) fn take_number(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    /// Returns a file number that no segment has ever had.
    pub(super) fn next_number(&mut self) -> Result<u64> {
        let written = self.lock.write_all_at(&(self.next + 1).to_le_bytes(), NEXT_AT);
        written.map_err(|error| Error::io("write", self.path.join(LOCK), error))?;
        self.next += 1;
        Ok(self.next - 1)
    }

    pub(super) fn run(&self) -> u32 {
        self.run
    }

    pub(super) fn set_run(&mut self, run: u32) -> Result<()> {
        let written = self.lock.write_all_at(&run.to_le_bytes(), RUN_AT).and_then(|()| self.lock.sync_data());
        written.map_err(|error| Error::io("write", self.path.join(LOCK), error))?;
        self.run = run;
        Ok(())
    }

    /// Creates a file, which gets its name in [`RecordDirectory::publish`].
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

    pub(super) fn write(&mut self, file: &UnnamedFile, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.drive.write(&file.file, bytes, offset);
        written.map_err(|error| Error::io("write", &file.path, error))
    }

    /// Gives a file its name, and replaces an existing file with this name. If `safe` is true, the file's bytes are
    /// synced to the drive first, so that no power cut leaves an incomplete file. The name is on the drive only after
    /// [`RecordDirectory::sync`].
    pub(super) fn publish(&self, new: &mut UnnamedFile, safe: bool) -> Result<()> {
        let failed = |error| Error::io("publish", &new.path, error);
        if safe {
            new.file.sync_all().map_err(failed)?;
        }
        if new.temporary.is_none() {
            match nameless::link(&new.file, &new.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // A link cannot replace a name, but a rename can. So give the file a temporary name first.
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

    pub(super) fn discard(&self, new: UnnamedFile) {
        if let Some(temporary) = &new.temporary {
            let _ = fs::remove_file(temporary);
        }
    }

    /// Syncs the names of files to the drive.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::io("sync", &self.path, error))
    }

    pub(super) fn remove(&self, number: u64, extension: &str) -> Result<()> {
        self.remove_file(&numbered::name(number, extension))
    }

    /// Removes the lock file, and the directory if nothing else is in it. Do not use the directory afterwards.
    pub(super) fn remove_itself(&self) -> Result<()> {
        self.remove_file(LOCK)?;
        // This fails if the directory has files of other programs, which must stay.
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
        // Closing the file also releases the lock. But a process that is being started may still hold the descriptor
        // for a moment. In a forked process the lock belongs to the parent.
        if self.process == std::process::id() {
            let _ = self.lock.unlock();
        }
    }
}

/// A file without a name, or with a temporary name.
pub(super) struct UnnamedFile {
    pub file: File,
    pub path: PathBuf,
    temporary: Option<PathBuf>,
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.{TEMPORARY}", path.extension().unwrap_or_default().display()))
}

/// The run that a directory belongs to. Another process may be using the directory. `None` if it is not the directory
/// of a store.
pub(super) fn run_of(directory: &Path) -> Option<u32> {
    match File::open(directory.join(LOCK)).and_then(|lock| LOCK_FORMAT.read(&lock)).ok()? {
        LockState::Ours { run, .. } => Some(run),
        _ => None,
    }
}

fn read_lock(lock: &File, at: &Path, directory: &Path) -> Result<(u32, u64)> {
    let refused = |path: &Path, message: &str| {
        let message = format!("{} {message}: choose another directory", path.display());
        Err(Error::Unavailable(message))
    };
    match LOCK_FORMAT.read(lock).map_err(|error| Error::io("read", at, error))? {
        LockState::Ours { run, next } => Ok((run, next)),
        LockState::Foreign => refused(at, "is not a file of Foreload, or is damaged"),
        LockState::OtherVersion(version) => {
            refused(directory, &format!("has format {version}, but this program uses {VERSION}"))
        }
        LockState::New => {
            // Damaged segments are removed, so files of other programs with these extensions must not be mistaken for
            // segments.
            let names = fs::read_dir(directory).map_err(|error| Error::io("list", directory, error))?;
            let mut extensions =
                names.filter_map(|entry| entry.ok()?.path().extension().map(ToOwned::to_owned));
            if extensions.any(|found| [SEGMENT, SNAPSHOT, TEMPORARY].iter().any(|own| found == *own)) {
                return refused(directory, "contains files that may belong to another program");
            }
            LOCK_FORMAT.initialise(lock).map_err(|error| Error::io("write", at, error))?;
            Ok((0, 1))
        }
    }
}
