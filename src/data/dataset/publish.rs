//! Publication of index files: each file is written under a unique temporary name and then renamed, so that no process
//! sees a partial file.

use base::error::{Error, Result};
use rustix::rand::GetRandomFlags;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time without a write after which a partial file counts as abandoned. It is long enough for hosts whose clocks differ
/// much. The process that writes the file can run on any host that shares the directory, so a search for this process
/// on one host is not enough.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Creates a temporary file, calls `write` to fill it, and renames it to `target`.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written. In this case the temporary file is removed, and `target` is unchanged.
pub(super) fn publish(target: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
    let (file, path) = create(target, "new")?;
    let result = write(&file)
        // After a power failure, the renamed index must be complete.
        .and_then(|()| file.sync_data())
        .map_err(|error| Error::io("write", &path, error))
        .and_then(|()| {
            std::fs::rename(&path, target).map_err(|error| Error::io("rename into place", &path, error))
        });
    if result.is_err() {
        // Report the first error. If the temporary file cannot be removed now, a later build removes it.
        let _ = std::fs::remove_file(&path);
    }
    result
}

/// Creates a file next to `target`, for reading and writing, with a name that no other process on any host uses.
///
/// # Errors
/// [`Error::Io`] if the file cannot be created.
pub(super) fn create(target: &Path, kind: &str) -> Result<(File, PathBuf)> {
    let path = temporary(target, kind).map_err(|error| Error::io("name a file next to", target, error))?;
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    file.map(|file| (file, path.clone())).map_err(|error| Error::io("create", path, error))
}

/// The temporary path of a file that will become `target`. The host name and process id tell users which process wrote
/// the file. A random number from the operating system makes the name unique, because containers can have equal host
/// names and process ids. The crate's seeded random numbers would not do, because equal jobs draw the same numbers.
fn temporary(target: &Path, kind: &str) -> io::Result<PathBuf> {
    let random = random_u64()?;
    let system = rustix::system::uname();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    // Shorten a long host name, because file systems limit the length of file names.
    let host: String = system.nodename().to_string_lossy().chars().filter(plain).take(32).collect();
    Ok(target.with_extension(format!("{host}-{}-{random:016x}.{kind}", std::process::id())))
}

pub(super) fn random_u64() -> io::Result<u64> {
    let mut random = [0u8; 8];
    // `getrandom` never returns a partial result for up to 256 bytes.
    rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut random, GetRandomFlags::empty()))?;
    Ok(u64::from_le_bytes(random))
}

/// Removes the temporary files that killed processes left next to `target`.
pub(super) fn remove_leftovers(target: &Path) {
    let (Some(directory), Some(stem)) = (target.parent(), target.file_stem()) else { return };
    let stem = [stem.as_encoded_bytes(), b"."].concat();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(&stem) && (name.ends_with(b".new") || name.ends_with(b".spill")) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            let age = modified.and_then(|modified| modified.elapsed().ok());
            if age.is_some_and(|age| age > ABANDONED) {
                // Ignore an error: a file that stays takes space on the drive, but does no harm.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
