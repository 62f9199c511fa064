//! The directory of index files, and the lock of the process that builds an index. The directory is never inside a
//! dataset, because sources are read-only.

use super::cancel::Cancel;
use super::{Contents, IndexOptions, SampleAxis, publish};
use crate::source::{is_url, shown};
use base::error::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) struct IndexDirectory {
    pub(super) path: PathBuf,
    /// Whether the user named the directory. If so, no other directory replaces it.
    pub(super) named: bool,
}

impl IndexDirectory {
    /// The directory that [`IndexOptions::directory`] selects; `None` if no setting selects a directory and the user
    /// has no home directory.
    pub(super) fn of(options: &IndexOptions) -> Result<Option<Self>> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = options.directory.clone().or_else(|| variable("FORELOAD_INDEX_DIR"));
        let usual = || {
            variable("XDG_CACHE_HOME")
                .map(|cache| cache.join("foreload/index"))
                .or_else(|| variable("HOME").map(|home| home.join(".cache/foreload/index")))
        };
        let is_named = named.is_some();
        if let Some(url) = named.as_ref().filter(|path| is_url(path)) {
            let message =
                format!("is {}, must be the path of a directory on this machine", shown(url).display());
            return Err(Error::config("index_dir", message));
        }
        let Some(path) = named.or_else(usual) else { return Ok(None) };
        let path = std::path::absolute(&path).map_err(|error| Error::io("resolve", path, error))?;
        Ok(Some(Self { path, named: is_named }))
    }

    /// The user's own directory below the directory of temporary files, for jobs without a writable home directory, as
    /// in containers. An index says where samples are stored, so no other user must be able to write an index there.
    ///
    /// # Errors
    /// [`Error::Config`] for `index_dir` if the directory does not exist and cannot be created.
    pub(super) fn temporary() -> Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        // The last candidate is in memory, for containers whose whole file system is read-only.
        let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
        let usual = format!("foreload-index-{user}");
        // If another user has taken the usual name, use a random name. The next start then indexes again.
        let once = format!("{usual}-{:016x}", super::publish::random_u64().unwrap_or_default());
        let mut refused = Vec::new();
        for path in
            [&usual, &once].into_iter().flat_map(|name| places.iter().map(move |place| place.join(name)))
        {
            match own(&path, user) {
                Ok(()) => return Ok(Self { path, named: false }),
                Err(why) => refused.push(format!("{}: {why}", path.display())),
            }
        }
        let message = format!(
            "is not set, and neither the user's cache directory nor a temporary directory can be written ({}): set it \
             to a writable directory",
            refused.join("; ")
        );
        Err(Error::config("index_dir", message))
    }

    /// The path of the index file of the dataset at `canonical`, for the split and label that the user named, and for
    /// `arrays` if other arrays were chosen than the usual index file has. The name of the file depends on `canonical`,
    /// so a dataset that was moved or copied gets a new index, with the same fingerprint.
    ///
    /// # Errors
    /// [`Error::Config`] for a directory inside the dataset. Datasets are read-only, so no index is written into one.
    pub(super) fn file(
        &self,
        canonical: &Path,
        options: &IndexOptions,
        arrays: Option<&[String]>,
    ) -> Result<PathBuf> {
        let existing = self.path.ancestors().find_map(|path| path.canonicalize().ok());
        if existing.is_some_and(|path| path.starts_with(canonical)) {
            let message = format!(
                "is {}, inside the dataset {}, which Foreload never writes to: choose another or set \
                 FORELOAD_INDEX_DIR",
                self.path.display(),
                canonical.display()
            );
            return Err(Error::config("index_dir", message));
        }
        let mut digest = Sha256::new();
        digest.update(canonical.as_os_str().as_bytes());
        if let Some(split) = &options.split {
            // NUL is a safe separator, because no path contains it.
            digest.update([0]);
            digest.update(split);
        }
        if let Some(label) = &options.label {
            // No split contains a NUL either.
            digest.update([0, 0]);
            digest.update(label);
        }
        if let Some(images) = &options.images {
            digest.update([0; 6]);
            let absolute = || std::path::absolute(images).ok().filter(|_| !is_url(Path::new(images)));
            digest.update(absolute().unwrap_or_else(|| images.into()).as_os_str().as_bytes());
        }
        if options.sample_axis == SampleAxis::File {
            digest.update([0, 0, 0]);
        }
        if let Some(arrays) = arrays {
            digest.update([0, 0, 0, 0]);
            for name in arrays {
                digest.update(name);
                // Shards may lack an optional array.
                digest.update([0, u8::from(options.optional.contains(name))]);
            }
        }
        if !options.parallel.is_empty() {
            digest.update([0, 0, 0, 0, 0]);
            for field in &options.parallel {
                digest.update(&field.source);
                digest.update([0, u8::from(field.optional)]);
            }
        }
        let digest = digest.finalize();
        let suffix = match options.contents {
            Contents::Images if options.every_stem => "-stems.index",
            Contents::Images => ".index",
            Contents::Files => "-files.index",
        };
        let name: String =
            digest[..16].iter().map(|byte| format!("{byte:02x}")).chain([suffix.to_owned()]).collect();
        Ok(self.path.join(name))
    }

    pub(super) fn is_why(&self, error: &Error) -> bool {
        matches!(error, Error::Io { path, .. } if path.starts_with(&self.path))
    }
}

/// Waits until no other process builds `index`, and locks it. Creates the directory of `index` if it is missing. The
/// kernel releases the lock if the process dies.
pub(super) fn lock(index: &Path, root: &Path, cancel: &Cancel) -> Result<File> {
    if let Some(directory) = index.parent() {
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::io("create index directory", directory, error))?;
    }
    let path = index.with_extension("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| Error::io("create", &path, error))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => publish::remove_leftovers(index),
            // Poll the lock, because a blocking call could not be cancelled.
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                cancel.check(root)?;
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            // Without support for locks, two processes might build the same index at the same time, each in its own
            // file.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
            Err(error) => return Err(Error::io("lock", &path, error.into())),
        }
        return Ok(file);
    }
}

/// Creates a directory at `path` that only this user can access, unless it exists. The error says why the directory
/// cannot be created or used.
fn own(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    // Do not follow links, because a link could lead into another user's directory.
    let found = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err("it is not a directory that only this user can access".to_owned());
    }
    Ok(())
}
