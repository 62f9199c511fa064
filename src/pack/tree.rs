//! Files below one directory, whatever their names say: no name leads out of it, none through a link, and nothing that
//! is there is written to.

use super::names;
use crate::error::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A directory that was empty when it was opened.
pub(super) struct OutputTree {
    root: OwnedFd,
    path: PathBuf,
}

/// The flags that open a directory which is no link.
fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

impl OutputTree {
    /// Opens the directory at `path`, or makes it.
    ///
    /// # Errors
    /// [`Error::Config`] where it is not empty, [`Error::Io`] where it cannot be made or listed.
    pub(super) fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
        let mut entries = std::fs::read_dir(path).map_err(|error| Error::io("list", path, error))?;
        if entries.next().is_some() {
            let message = format!("{} is not empty: name a new directory", path.display());
            return Err(Error::config("DST", message));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty());
        Ok(Self {
            root: root.map_err(|error| Error::io("open", path, error.into()))?,
            path: path.to_path_buf(),
        })
    }

    /// Makes the directory `name` where it is missing, with those above it.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a name that leads elsewhere, [`Error::Io`] where it cannot be made.
    pub(super) fn make_directory(&self, name: &[u8]) -> Result<()> {
        self.check(name)?;
        self.walk(name).map(drop)
    }

    /// Makes the file `name`, with the directories above it.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a name that leads elsewhere, that is there already, or of which a part is no directory;
    /// [`Error::Io`] where it cannot be made.
    pub(super) fn create(&self, name: &[u8]) -> Result<File> {
        self.check(name)?;
        let slash = name.iter().rposition(|&byte| byte == b'/');
        let (above, own) = slash.map_or((&b""[..], name), |at| (&name[..at], &name[at + 1..]));
        let directory = self.walk(above)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&directory, OsStr::from_bytes(own), flags, Mode::from_raw_mode(0o666));
        made.map(File::from).map_err(|error| match error {
            Errno::EXIST => Error::dataset(self.named(name), "is there twice: nothing is overwritten"),
            error => Error::io("create", self.named(name), error.into()),
        })
    }

    /// The path of `name`, for messages.
    pub(super) fn named(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    fn check(&self, name: &[u8]) -> Result<()> {
        names::fault(name, false).map_or(Ok(()), |fault| {
            let message = format!("is to hold {:?}, which {fault}", String::from_utf8_lossy(name));
            Err(Error::dataset(&self.path, message))
        })
    }

    /// Opens the directory `name`, part by part, and makes what is missing.
    fn walk(&self, name: &[u8]) -> Result<OwnedFd> {
        let fail = |error: Errno| match error {
            Errno::LOOP | Errno::NOTDIR => {
                Error::dataset(self.named(name), "leads through a link or a file: it is refused")
            }
            error => Error::io("create directory", self.named(name), error.into()),
        };
        let mut at = openat(&self.root, ".", directory(), Mode::empty()).map_err(fail)?;
        for part in name.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let part = OsStr::from_bytes(part);
            at = match openat(&at, part, directory(), Mode::empty()) {
                Err(Errno::NOENT) => {
                    match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                        // Another thread may have made it.
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
    use super::OutputTree;
    use std::fs;

    #[test]
    fn nothing_leads_out_and_nothing_is_overwritten() {
        let scene = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (scene.path().join("out"), scene.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        let tree = OutputTree::open(&root).unwrap();
        tree.create(b"a/b/c.jpg").unwrap();
        std::os::unix::fs::symlink(&elsewhere, root.join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("file"), root.join("file")).unwrap();
        for (name, why) in [
            (&b"a/b/c.jpg"[..], "twice"),
            (b"a/b", "twice"),
            (b"a/b/c.jpg/d", "a link or a file"),
            (b"link/x", "a link or a file"),
            (b"file", "twice"),
            (b"../x", ".."),
            (b"/x", "absolute"),
        ] {
            let error = tree.create(name).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(OutputTree::open(&root).is_err(), "it is not empty any more");
    }
}
