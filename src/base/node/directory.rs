//! The directory in which the processes of one user on a node find one another. It contains only sockets and empty
//! files for locks. A socket or file that an exited process leaves behind has no effect.

use super::RangeLocks;
use crate::error::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const VARIABLE: &str = "FORELOAD_RUNTIME_DIR";

const NAME: &str = "foreload";

/// An open directory that belongs to this user alone. Names are looked up in the open directory, even if its path
/// changes.
pub struct RuntimeDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl RuntimeDirectory {
    /// Opens this user's directory `foreload/PURPOSE`, and creates it if it is missing. It is in
    /// `$FORELOAD_RUNTIME_DIR`, else in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`, else in `/tmp`. `/run/user/UID` is
    /// the usual value of `$XDG_RUNTIME_DIR`, so processes with and without that variable use the same directory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the directory cannot be created, or does not belong to this user alone.
    pub fn open(purpose: &str) -> Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let mut refused = None;
        for (place, name, is_final) in candidates(user) {
            match Self::open_in(&place, &name, user).and_then(|ours| ours.inner(purpose, user)) {
                Ok(directory) => return Ok(directory),
                Err(error) if is_final => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::Internal("no place for a runtime directory was tried".into())))
    }

    fn open_in(place: &Path, name: &str, user: u32) -> Result<Self> {
        if !place.is_absolute() {
            // Each process would resolve it relative to its own working directory.
            return Err(unusable(place, "is not an absolute path"));
        }
        let parent = open_directory(rustix::fs::CWD, place)
            .map_err(|error| unusable(place, &format!("cannot be opened ({error})")))?;
        Self { directory: parent, path: place.to_owned() }.inner(name, user)
    }

    /// Opens our directory in `place`, for tests.
    pub fn within(place: &Path) -> Result<Self> {
        Self::open_in(place, NAME, rustix::process::geteuid().as_raw())
    }

    /// Opens or creates the directory `name` in this directory. Fails if `name` does not belong to this user alone.
    fn inner(&self, name: &str, user: u32) -> Result<Self> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.directory, name, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(unusable(&path, &format!("cannot be created ({error})"))),
        }
        let directory = open_directory(&self.directory, Path::new(name))
            .map_err(|error| unusable(&path, &format!("cannot be opened as a directory ({error})")))?;
        let about = rustix::fs::fstat(&directory).map_err(|error| unusable(&path, &error.to_string()))?;
        if about.st_uid != user {
            return Err(unusable(&path, "belongs to another user"));
        }
        if about.st_mode & 0o077 != 0 {
            return Err(unusable(&path, "is accessible to other users, must have mode 0700"));
        }
        Ok(Self { directory, path })
    }

    /// The path of this directory, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the entry `name` of this directory. The path is short enough for a socket, and valid even if the
    /// directory was moved.
    pub fn place_of(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    /// The names of all entries of this directory.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.place_of("."));
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Removes `name`, if it exists.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }

    /// Opens the file `name` for locks on its bytes, and creates it if it is missing.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn locks(&self, name: &str) -> Result<RangeLocks> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(|error| unusable(&self.path.join(name), &error.to_string()))?;
        Ok(RangeLocks::new(File::from(file)))
    }
}

/// The parent directories in which our directory can be, in order of preference. Each has the path, the name of our
/// directory in it, and whether a failure there ends the search.
fn candidates(user: u32) -> Vec<(PathBuf, String, bool)> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(chosen) = variable(VARIABLE) {
        return vec![(chosen, NAME.into(), true)];
    }
    let variable = |name| variable(name).filter(|path| path.is_absolute());
    let mut places = Vec::new();
    places.extend(variable("XDG_RUNTIME_DIR").map(|place| (place, NAME.into(), false)));
    let usual = PathBuf::from(format!("/run/user/{user}"));
    if places.first().is_none_or(|(place, ..)| *place != usual) {
        places.push((usual, NAME.into(), false));
    }
    places.push(("/tmp".into(), format!("{NAME}-{user}"), true));
    places
}

fn open_directory(within: impl std::os::fd::AsFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = rustix::fs::openat(within, name, flags, Mode::empty())?;
    debug_assert!(
        rustix::fs::fstat(&directory).is_ok_and(|about| FileType::from_raw_mode(about.st_mode).is_dir())
    );
    Ok(directory)
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::Unavailable(format!(
        "{} {why}: the processes of a user on a node need it to find one another; set {VARIABLE} to the same private \
         directory for all of them",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn it_is_this_users_alone() {
        let place = tempfile::tempdir().unwrap();
        let made = RuntimeDirectory::within(place.path()).unwrap();
        let mode = std::fs::metadata(made.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        assert_eq!(RuntimeDirectory::within(place.path()).unwrap().path(), made.path());
        std::fs::write(made.place_of("x"), "1").unwrap();
        assert_eq!(made.names(), ["x"]);
        made.remove("x");
        made.remove("x");
        assert!(made.names().is_empty());
        std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let error = RuntimeDirectory::within(place.path()).err().unwrap().to_string();
        assert!(error.contains("must have mode 0700") && error.contains(VARIABLE), "{error}");
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let place = tempfile::tempdir().unwrap();
        symlink(place.path(), place.path().join(NAME)).unwrap();
        assert!(RuntimeDirectory::within(place.path()).is_err());
        std::fs::remove_file(place.path().join(NAME)).unwrap();
        std::fs::write(place.path().join(NAME), "").unwrap();
        assert!(RuntimeDirectory::within(place.path()).is_err());
        assert!(RuntimeDirectory::within(&place.path().join("missing")).is_err());
        let relative = RuntimeDirectory::within(Path::new("here")).err().unwrap();
        assert!(relative.to_string().contains("here is not an absolute path"), "{relative}");
        let of_another = RuntimeDirectory::open_in(place.path(), "theirs", u32::MAX - 1).err().unwrap();
        assert!(of_another.to_string().contains("another user"), "{of_another}");
    }
}
