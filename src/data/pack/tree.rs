//! Creates files below one directory, whatever their names are. No name leads out of the directory or through a link,
//! and nothing is overwritten. A file gets its name when it is complete. Until all files are complete, a marker shows
//! that the tree is unfinished.

use super::names;
use crate::dataset::packed::UNPACKING_DIRECTORY;
use base::error::{Error, Result};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat, renameat_with, statat, syncfs,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A directory that was empty when it was opened.
pub(super) struct OutputTree {
    root: OwnedFd,
    path: PathBuf,
    /// The directory [`UNPACKING_DIRECTORY`], which contains the incomplete files. Its existence marks an unfinished
    /// tree.
    unpacking: OwnedFd,
    /// Number of files begun so far. It is also the name of the next incomplete file.
    begun: AtomicU64,
    /// Held while a file is renamed, if the file system does not support a rename that never overwrites.
    naming: Mutex<()>,
}

/// Returns the flags for opening a directory, which fail for a link.
fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

impl OutputTree {
    /// Opens or creates the directory at `path`, and marks it as unfinished.
    ///
    /// # Errors
    /// [`Error::Config`] if the directory is not empty, [`Error::Io`] if it cannot be created or listed.
    pub(super) fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
        let mut entries = std::fs::read_dir(path).map_err(|error| Error::io("list", path, error))?;
        if entries.next().is_some() {
            let begun = path.join(UNPACKING_DIRECTORY).exists();
            let why = if begun { ": an earlier run did not finish in it; remove it, or" } else { ":" };
            let message = format!("{} is not empty{why} choose a new directory", path.display());
            return Err(Error::config("DST", message));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty());
        let root = root.map_err(|error| Error::io("open", path, error.into()))?;
        let made = mkdirat(&root, UNPACKING_DIRECTORY, Mode::from_raw_mode(0o777));
        let unpacking = made.and_then(|()| openat(&root, UNPACKING_DIRECTORY, directory(), Mode::empty()));
        Ok(Self {
            root,
            path: path.to_path_buf(),
            unpacking: unpacking.map_err(|error| {
                Error::io("create directory", path.join(UNPACKING_DIRECTORY), error.into())
            })?,
            begun: AtomicU64::new(0),
            naming: Mutex::new(()),
        })
    }

    /// Syncs all files to storage, then removes the marker.
    ///
    /// # Errors
    /// [`Error::Io`] if syncing or removing fails.
    pub(super) fn finish(self) -> Result<()> {
        let done =
            syncfs(&self.root).and_then(|()| unlinkat(&self.root, UNPACKING_DIRECTORY, AtFlags::REMOVEDIR));
        done.map_err(|error| Error::io("finish", &self.path, error.into()))
    }

    /// Creates the directory `name` and its parents, if they do not exist.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a name that leads out of the tree, [`Error::Io`] if the directory cannot be created.
    pub(super) fn make_directory(&self, name: &[u8]) -> Result<()> {
        self.check(name)?;
        self.walk(name).map(drop)
    }

    /// Creates the file `name` with the output of `write`, and its parent directories. The file becomes visible only
    /// when it is complete.
    ///
    /// # Errors
    /// The errors of `write`. [`Error::Dataset`] for a name that leads out of the tree, that already exists, or that
    /// has a component that is not a directory. [`Error::Io`] if the file cannot be created.
    pub(super) fn create<T>(&self, name: &[u8], write: impl FnOnce(File) -> Result<T>) -> Result<T> {
        self.check(name)?;
        let slash = name.iter().rposition(|&byte| byte == b'/');
        let (above, own) = slash.map_or((&b""[..], name), |at| (&name[..at], &name[at + 1..]));
        let directory = self.walk(above)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let partial = self.begun.fetch_add(1, Ordering::Relaxed).to_string();
        let made = openat(&self.unpacking, &partial, flags, Mode::from_raw_mode(0o666));
        let file = made.map_err(|error| Error::io("create", self.named(name), error.into()))?;
        let written = write(File::from(file)).and_then(|done| {
            self.name(&partial, &directory, OsStr::from_bytes(own)).map_err(|error| match error {
                Errno::EXIST => {
                    Error::dataset(self.named(name), "exists already: unpacking never overwrites files")
                }
                error => Error::io("create", self.named(name), error.into()),
            })?;
            Ok(done)
        });
        if written.is_err() {
            // Ignore failures: the first error is reported, and the tree stays marked as unfinished.
            let _ = unlinkat(&self.unpacking, &partial, AtFlags::empty());
        }
        written
    }

    /// Moves a complete file to the name `own` in `directory`. Fails if that name already exists.
    fn name(&self, partial: &str, directory: &OwnedFd, own: &OsStr) -> rustix::io::Result<()> {
        match renameat_with(&self.unpacking, partial, directory, own, RenameFlags::NOREPLACE) {
            // Not every file system supports `NOREPLACE`, for example NFS.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            done => return done,
        }
        let _alone = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        match statat(directory, own, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => renameat(&self.unpacking, partial, directory, own),
            Err(error) => Err(error),
        }
    }

    pub(super) fn named(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    fn check(&self, name: &[u8]) -> Result<()> {
        let own = name.split(|&byte| byte == b'/').next() == Some(UNPACKING_DIRECTORY.as_bytes());
        let fault = own.then_some("is reserved for unpacking").or_else(|| names::fault(name, false));
        fault.map_or(Ok(()), |fault| {
            let message = format!("cannot contain {:?}, which {fault}", String::from_utf8_lossy(name));
            Err(Error::dataset(&self.path, message))
        })
    }

    /// Opens the directory `name` component by component, and creates missing components.
    fn walk(&self, name: &[u8]) -> Result<OwnedFd> {
        let fail = |error: Errno| match error {
            Errno::LOOP | Errno::NOTDIR => Error::dataset(
                self.named(name),
                "is refused, because its path passes through a link or a file",
            ),
            error => Error::io("create directory", self.named(name), error.into()),
        };
        let mut at = openat(&self.root, ".", directory(), Mode::empty()).map_err(fail)?;
        for part in name.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let part = OsStr::from_bytes(part);
            at = match openat(&at, part, directory(), Mode::empty()) {
                Err(Errno::NOENT) => {
                    match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                        // Another thread may have created this directory.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(fail(error)),
                    }
                    openat(&at, part, directory(), Mode::empty()).map_err(fail)?
                }
                found => found.map_err(fail)?,
            };
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputTree, UNPACKING_DIRECTORY};
    use base::error::{Error, Result};
    use std::fs;
    use std::io::Write;

    #[test]
    fn nothing_leads_out_and_nothing_is_overwritten() {
        let scene = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (scene.path().join("out"), scene.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        let tree = OutputTree::open(&root).unwrap();
        let write = |name: &[u8]| {
            tree.create(name, |mut file| {
                file.write_all(b"whole").unwrap();
                Ok(())
            })
        };
        write(b"a/b/c.jpg").unwrap();
        std::os::unix::fs::symlink(&elsewhere, root.join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("file"), root.join("file")).unwrap();
        for (name, why) in [
            (&b"a/b/c.jpg"[..], "exists already"),
            (b"a/b", "exists already"),
            (b"a/b/c.jpg/d", "a link or a file"),
            (b"link/x", "a link or a file"),
            (b"file", "exists already"),
            (b"../x", ".."),
            (b"/x", "absolute"),
            (b"foreload-unpacking/x", "reserved for unpacking"),
        ] {
            let error = write(name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        // A failed write leaves no file, neither under its name nor in the marker directory.
        let failed: Result<()> = tree.create(b"a/d", |_| Err(Error::dataset("shard", "is damaged")));
        assert!(failed.is_err() && !root.join("a/d").exists());
        assert_eq!(fs::read_dir(root.join(UNPACKING_DIRECTORY)).unwrap().count(), 0);
        assert_eq!(fs::read(root.join("a/b/c.jpg")).unwrap(), b"whole");
        let Err(error) = OutputTree::open(&root) else { panic!("it is not empty any more") };
        assert!(error.to_string().contains("an earlier run did not finish in it"), "{error}");
        tree.finish().unwrap();
        assert!(!root.join(UNPACKING_DIRECTORY).exists());
        assert!(OutputTree::open(&root).is_err(), "it is not empty any more");
    }
}
