//! Datasets in directories and files of this machine's file systems.

use super::{
    COARSE_TICK, DatasetSource, Entry, EntryKind, EntryState, Identity, OpenFile, SizedFile, SourceDirectory,
    Stamp,
};
use base::error::{Error, Result};
use rustix::fs::{Advice, AtFlags, CWD, FileType, RawDir, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct FileSystem {
    root: PathBuf,
}

impl FileSystem {
    /// Makes the source at `root`. Messages show `root` as the user wrote it.
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }
}

impl DatasetSource for FileSystem {
    fn path(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(name)) }
    }

    fn canonical(&self) -> Result<PathBuf> {
        self.root.canonicalize().map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                let is_pattern = self.root.as_os_str().as_bytes().iter().any(|byte| b"*?".contains(byte));
                let remedy = match is_pattern {
                    true => "patterns are not expanded: name files by braces, as in {0..9}.h5, or give their directory",
                    false => "give an existing directory or shard",
                };
                Error::dataset(&self.root, format!("does not exist: {remedy}"))
            }
            _ => Error::io("open dataset", &self.root, error),
        })
    }

    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>> {
        Ok(Arc::new(Self { root: super::absolute(&self.root)? }))
    }

    /// Returns false on FUSE, where a user-space program assigns the inode numbers, perhaps new ones at each mount.
    fn has_lasting_inodes(&self) -> bool {
        // FUSE_SUPER_MAGIC, as in statfs(2).
        !rustix::fs::statfs(&self.root).is_ok_and(|found| found.f_type as u32 == 0x6573_5546)
    }

    fn is_directory(&self) -> Result<bool> {
        let found = self.root.metadata().map_err(|error| Error::io("open dataset", &self.root, error))?;
        Ok(found.is_dir())
    }

    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>> {
        let path = self.path(name);
        let fail = |error: std::io::Error| Error::io("list", &path, error);
        let directory =
            File::options().read(true).custom_flags(libc::O_DIRECTORY).open(&path).map_err(fail)?;
        let look = || directory.metadata().map(|metadata| Stamp::of(&metadata));
        let stamp = Stamp::stable(COARSE_TICK, look).map_err(fail)?;
        Ok(Box::new(FileDirectory { path, directory, stamp }))
    }

    fn identity(&self, name: &[u8]) -> Result<Option<Identity>> {
        let path = self.path(name);
        identity_of(&path, path.metadata())
    }

    /// Requests the stamp from the server of a network file system, because the client's cached attributes may be a
    /// minute old.
    fn stamp(&self, name: &[u8]) -> Result<EntryState> {
        let path = self.path(name);
        let flags = AtFlags::STATX_FORCE_SYNC;
        let found = match rustix::fs::statx(CWD, &path, flags, StatxFlags::BASIC_STATS) {
            Ok(found) => Ok(Stamp::of_statx(&found)),
            // Sandboxes that do not support `statx` return one of these two errors.
            Err(Errno::NOSYS | Errno::PERM) => Stamp::at(&path),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(stamp) => Ok(EntryState::Stamped(stamp)),
            Err(error) if is_gone(&error) => Ok(EntryState::Gone),
            Err(error) => Err(Error::io("look at", path, error)),
        }
    }

    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        let path = self.path(name);
        match path.metadata() {
            Ok(found) => Ok(found.is_file().then_some(found.len())),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(Error::io("look at", path, error)),
        }
    }

    fn open(&self, name: &[u8]) -> Result<OpenFile> {
        let path = self.path(name);
        let fail = |error| Error::io("open", &path, error);
        // Check before opening, because opening a pipe would wait for a writer.
        if !path.metadata().map_err(fail)?.is_file() {
            return Err(Error::dataset(path, "is not a regular file"));
        }
        let file = File::open(&path).map_err(fail)?;
        let look = || file.metadata().map_err(|error| Error::io("look at", &path, error));
        let stamp = Stamp::stable(COARSE_TICK, || look().map(|metadata| Stamp::of(&metadata)))?;
        // Headers are far apart, so readahead would also read the images between them. If this hint fails, reads are
        // only slower.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(OpenFile { bytes: Box::new(SizedFile { file, size: stamp.size }), stamp })
    }
}

/// Whether an error means that there is nothing at a path.
pub fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn identity_of(path: &Path, found: std::io::Result<Metadata>) -> Result<Option<Identity>> {
    let metadata = found.map_err(|error| Error::io("look at", path, error))?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

/// Returns the kind of an entry that is not a link.
fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::Directory => EntryKind::Directory,
        FileType::RegularFile => EntryKind::File,
        _ => EntryKind::Special,
    }
}

struct FileDirectory {
    path: PathBuf,
    directory: File,
    stamp: Stamp,
}

impl SourceDirectory for FileDirectory {
    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn identity(&self) -> Result<Option<Identity>> {
        identity_of(&self.path, self.directory.metadata())
    }

    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
        let mut buffer = Vec::with_capacity(1 << 16);
        let mut entries = RawDir::new(&self.directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| Error::io("list", &self.path, error.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let (kind, target) = match entry.file_type() {
                FileType::Symlink | FileType::Unknown => {
                    match rustix::fs::statat(&self.directory, name, AtFlags::empty()) {
                        Ok(found) => {
                            let kind = FileType::from_raw_mode(found.st_mode);
                            (kind_of(kind), Some((found.st_dev, found.st_ino)))
                        }
                        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => (EntryKind::BrokenLink, None),
                        Err(_) => (EntryKind::Unseen, None),
                    }
                }
                kind => (kind_of(kind), None),
            };
            if show(Entry { name: name.to_bytes(), kind, target, size: None })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        let with_nul = CString::new(name).map_err(|_| {
            Error::dataset(self.path.join(OsStr::from_bytes(name)), "has a NUL byte in its name")
        })?;
        match rustix::fs::statat(&self.directory, &with_nul, AtFlags::empty()) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Ok(Some(found.st_size as u64))
            }
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(Error::io("look at", self.path.join(OsStr::from_bytes(name)), error.into())),
        }
    }
}
