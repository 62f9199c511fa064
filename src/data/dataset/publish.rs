//! How index files are published: written under a name that nobody else uses and then renamed, so that they are there
//! whole or not at all.

use base::error::{Error, Result};
use rustix::rand::GetRandomFlags;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After this long without a write, nobody works on a half-written file any more, however much the clocks of two hosts
/// differ. Its builder may run on any host that shares the directory, so looking for a process would tell nothing.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Puts what `write` writes in the place of `target`.
///
/// # Errors
/// [`Error::Io`] when it cannot be written; nothing of it is left then, and `target` is what it was.
pub(super) fn publish(target: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
    let (file, path) = create(target, "new")?;
    let result = write(&file)
        // A power failure after the rename must not leave an index whose columns were never written.
        .and_then(|()| file.sync_data())
        .map_err(|error| Error::io("write", &path, error))
        .and_then(|()| {
            std::fs::rename(&path, target).map_err(|error| Error::io("rename into place", &path, error))
        });
    if result.is_err() {
        // The cause is reported; a leftover that cannot be removed now is removed by a later build.
        let _ = std::fs::remove_file(&path);
    }
    result
}

/// Creates a file beside `target`, for reading and writing, that no other process of any host has.
///
/// # Errors
/// [`Error::Io`] when it cannot be created.
pub(super) fn create(target: &Path, kind: &str) -> Result<(File, PathBuf)> {
    let path = temporary(target, kind).map_err(|error| Error::io("name a file beside", target, error))?;
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    file.map(|file| (file, path.clone())).map_err(|error| Error::io("create", path, error))
}

/// The path at which a file that is to become `target` is written. Host and process are for people, to see whose it is;
/// the system's randomness makes the name unique. Containers may have equal host names and process numbers, and the
/// crate's own random numbers are the same in equal jobs.
fn temporary(target: &Path, kind: &str) -> io::Result<PathBuf> {
    let random = chance()?;
    let system = rustix::system::uname();
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    // A part of a long host name is enough for people, and keeps the file name short enough.
    let host: String = system.nodename().to_string_lossy().chars().filter(plain).take(32).collect();
    Ok(target.with_extension(format!("{host}-{}-{random:016x}.{kind}", std::process::id())))
}

/// A number from the system's randomness.
pub(super) fn chance() -> io::Result<u64> {
    let mut random = [0u8; 8];
    // Up to 256 bytes come whole or not at all.
    rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut random, GetRandomFlags::empty()))?;
    Ok(u64::from_le_bytes(random))
}

/// Removes what builders of `target` that were killed left behind.
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
                // This is best effort: a leftover costs space, not correctness.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
