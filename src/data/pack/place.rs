//! The target directory of packing. Only one process at a time works on it.

use super::PackedAs;
use crate::dataset::packed::PACKING_STATE_FILE;
use crate::source;
use base::error::{Error, Result};
use base::names::NamedValue;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const PARTIAL: &str = ".partial";

/// The source and the settings of a packing run. A run resumes an earlier run only if all fields are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackingRecord {
    pub(super) version: u32,
    pub(super) fingerprint: String,
    /// Maximum number of bytes of the source in a shard.
    pub(super) shard_size: u64,
    #[serde(default, skip_serializing_if = "PackedAs::is_packed")]
    pub(super) to: PackedAs,
    /// Class names in the order of their numbers, if this order differs from that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) class_names: Option<Vec<String>>,
    /// The label that the user chose, if this choice changes the members of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
}

/// A line that is appended to the record file for each shard. It states the versions of the source files from which the
/// shard was made.
#[derive(Debug, Serialize, Deserialize)]
struct ShardNote {
    shard: usize,
    stamps: String,
}

pub(super) struct PackingTarget {
    pub(super) path: PathBuf,
    /// Record file, to which notes are appended. It is locked. The kernel releases the lock when the process ends for
    /// any reason.
    record: Mutex<File>,
    /// The last note about each shard, as of the time when the directory was opened.
    pub(super) noted: BTreeMap<usize, String>,
}

pub(super) enum TargetState {
    Finished,
    Open(PackingTarget),
}

/// Fails if one directory contains the other, or if both are the same. `into` need not exist.
pub(super) fn refuse_nested(from: &Path, into: &Path) -> Result<()> {
    refuse_url(into)?;
    if source::url(from).is_some() {
        return Ok(());
    }
    let is_listed = source::at(from)?.named_files().is_some();
    let resolve = |path: &Path| -> Result<PathBuf> {
        let absolute = std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?;
        // Components that do not exist yet cannot be links.
        let (known, canonical) = absolute
            .ancestors()
            .find_map(|known| Some((known, known.canonicalize().ok()?)))
            .unwrap_or_else(|| (&absolute, absolute.clone()));
        Ok(canonical.join(absolute.strip_prefix(known).unwrap_or(Path::new(""))))
    };
    let (one, other) = (resolve(from)?, resolve(into)?);
    // A name with braces stands for a list of files, which cannot contain another directory.
    if !is_listed && (one.starts_with(&other) || other.starts_with(&one)) {
        let message = format!(
            "{} and {} are the same directory or nested: choose another directory",
            from.display(),
            into.display()
        );
        return Err(Error::config("DST", message));
    }
    Ok(())
}

impl PackingTarget {
    /// Opens or creates the directory at `path` for `record`.
    ///
    /// # Errors
    /// [`Error::Dataset`] if another process works on the directory, if it has other contents, or if it was begun with
    /// another record; [`Error::Io`] if it cannot be written.
    pub(super) fn open(path: &Path, record: &PackingRecord) -> Result<TargetState> {
        fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
        let is_finished = || path.join(record.to.finished()).exists();
        if is_finished() {
            return Ok(TargetState::Finished);
        }
        if let Err(error) = check_only_own_files(path, record.to) {
            // Another process may have finished after the first check. In that case, the unexpected file is its
            // manifest.
            return if is_finished() { Ok(TargetState::Finished) } else { Err(error) };
        }
        let named = path.join(PACKING_STATE_FILE);
        let opened = File::options().read(true).append(true).create(true).open(&named);
        let mut file = opened.map_err(|error| Error::io("create", &named, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // On a file system without locks, the user must make sure that only one process works on the directory.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
            Err(Errno::WOULDBLOCK) => {
                let message =
                    "another `foreload pack` is using it: wait until that ends, or choose another directory";
                return Err(Error::dataset(path, message));
            }
            Err(error) => return Err(Error::io("lock", &named, error.into())),
        }
        // Another process may have finished, and removed the record, while this process opened it.
        if is_finished() {
            return Ok(TargetState::Finished);
        }
        remove_partial(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| Error::io("read", &named, error))?;
        let text = String::from_utf8_lossy(&text);
        let (first, notes) = text.split_once('\n').unwrap_or((&text, ""));
        match serde_json::from_str::<PackingRecord>(first) {
            Ok(known) if known == *record => {}
            Ok(known) => return Err(Error::dataset(path, record.difference(Some(&known)))),
            // A record of another version may have other fields, so report the version instead of damage.
            Err(_) if PackingRecord::is_of_another_version(first) => {
                return Err(Error::dataset(path, record.difference(None)));
            }
            // A process that was killed at its first step leaves an incomplete record and no shard.
            Err(_) if !names(path)?.iter().any(|name| record.to.is_own(name.as_encoded_bytes())) => {
                let text =
                    serde_json::to_string(record).map_err(|error| Error::Internal(error.to_string()))?;
                let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
                written.and_then(|()| file.sync_data()).map_err(|error| Error::io("write", &named, error))?;
            }
            Err(error) => {
                let message = format!("is damaged ({error}): remove {} and pack again", path.display());
                return Err(Error::dataset(named, message));
            }
        }
        // Ignore a line that was incomplete when the machine stopped.
        let noted = notes.lines().filter_map(|line| serde_json::from_str::<ShardNote>(line).ok());
        let noted = noted.map(|note| (note.shard, note.stamps)).collect();
        Ok(TargetState::Open(Self { path: path.to_path_buf(), record: Mutex::new(file), noted }))
    }

    /// Appends a note with the digest of a shard's source stamps. Must be called before the shard is published, so that
    /// every existing shard has a note.
    ///
    /// # Errors
    /// [`Error::Io`] if the note cannot be written.
    pub(super) fn note(&self, shard: usize, stamps: &str) -> Result<()> {
        let note = ShardNote { shard, stamps: stamps.to_owned() };
        let text = serde_json::to_string(&note).map_err(|error| Error::Internal(error.to_string()))?;
        let mut file = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        // Begin with a line break. If the previous line is incomplete, the break ends it.
        let written = file.write_all(format!("\n{text}").as_bytes()).and_then(|()| file.sync_data());
        written.map_err(|error| Error::io("write", self.path.join(PACKING_STATE_FILE), error))
    }

    /// Writes a file that gets its final name only when it is complete.
    ///
    /// # Errors
    /// The errors of `write`; [`Error::Io`] if the file cannot be created or renamed.
    pub(super) fn publish<T>(&self, name: &str, write: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let partial = self.path.join(format!("{name}{PARTIAL}"));
        let written =
            File::create(&partial).map_err(|error| Error::io("create", &partial, error)).and_then(|file| {
                let outcome = write(&file)?;
                // Without the sync, a power failure after the rename could leave an incomplete file.
                file.sync_data().map_err(|error| Error::io("write", &partial, error))?;
                let target = self.path.join(name);
                fs::rename(&partial, &target)
                    .map_err(|error| Error::io("rename into place", &partial, error))?;
                Ok(outcome)
            });
        if written.is_err() {
            // Ignore failures here: the first error is reported, and the next run removes partial files.
            let _ = fs::remove_file(&partial);
        }
        written
    }

    /// Finishes packing: removes the record, which must be done after the last file was written.
    pub(super) fn finish(self) -> Result<()> {
        let sync = |path: &Path| File::open(path).and_then(|directory| directory.sync_all());
        sync(&self.path).map_err(|error| Error::io("write", &self.path, error))?;
        remove(&self.path.join(PACKING_STATE_FILE))
    }
}

fn names(path: &Path) -> Result<Vec<OsString>> {
    let fail = |error| Error::io("list", path, error);
    let entries = fs::read_dir(path).map_err(fail)?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(fail)).collect()
}

fn check_only_own_files(path: &Path, to: PackedAs) -> Result<()> {
    let names = names(path)?;
    let begun = names.iter().any(|name| name == PACKING_STATE_FILE);
    let own = |name: &[u8]| {
        to.is_own(name) || name == PACKING_STATE_FILE.as_bytes() || name.ends_with(PARTIAL.as_bytes())
    };
    let stranger = names.iter().find(|name| !begun || !own(name.as_encoded_bytes()));
    stranger.map_or(Ok(()), |name| {
        let message = format!("contains something else ({}): choose an empty directory", name.display());
        Err(Error::dataset(path, message))
    })
}

/// Removes the record of a finished dataset. It still exists if the run that finished the dataset was killed before it
/// removed the record.
pub(super) fn remove_leftover_record(path: &Path) -> Result<()> {
    remove(&path.join(PACKING_STATE_FILE))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    // A read-only file system refuses to remove even a missing file.
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

fn remove_partial(path: &Path) -> Result<()> {
    for name in names(path)?.iter().filter(|name| name.as_encoded_bytes().ends_with(PARTIAL.as_bytes())) {
        remove(&path.join(name))?;
    }
    Ok(())
}

impl PackingRecord {
    pub(super) const VERSION: u32 = 2;

    fn is_of_another_version(text: &str) -> bool {
        let value = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        value["version"].as_u64().is_some_and(|version| version != u64::from(Self::VERSION))
    }

    /// Returns why a run with this record cannot resume a run with the record `known`. `None` stands for a record of
    /// another version.
    pub(super) fn difference(&self, known: Option<&Self>) -> String {
        let anew = "remove it, or choose another directory";
        let Some(known) = known.filter(|known| known.version == self.version) else {
            return format!("was begun by another version of Foreload: {anew}");
        };
        if known.to != self.to {
            let (then, now) = (known.to.name(), self.to.name());
            return format!("was begun with --to {then}, not {now}: give the same, or {anew}");
        }
        if known.fingerprint == self.fingerprint && known.shard_size != self.shard_size {
            let (then, now) = (known.shard_size, self.shard_size);
            return format!("was begun with --shard-size {then}, not {now}: give the same, or {anew}");
        }
        if known.fingerprint == self.fingerprint && known.class_names != self.class_names {
            return format!("was begun with other --class-names: give the same, or {anew}");
        }
        if known.fingerprint == self.fingerprint && known.label != self.label {
            return format!("was begun with another --label: give the same, or {anew}");
        }
        format!("was begun with another dataset, or the dataset has changed since then: {anew}")
    }
}

/// Fails for a URL, because the target must be a directory of a file system.
///
/// # Errors
/// [`Error::Dataset`] for a URL.
pub(super) fn refuse_url(path: &Path) -> Result<()> {
    match source::url(path) {
        None => Ok(()),
        Some(_) => Err(Error::dataset(source::shown(path), "is a URL: give the path of a directory")),
    }
}
#[cfg(test)]
mod tests {
    use super::{PACKING_STATE_FILE, PackedAs, PackingRecord, PackingTarget};
    use crate::dataset::packed::MANIFEST_FILE;
    use std::fs;
    use std::sync::Barrier;

    #[test]
    fn what_another_process_finishes_meanwhile_is_finished() {
        let (version, fingerprint) = (PackingRecord::VERSION, "00".repeat(32));
        let to = PackedAs::Packed;
        let record =
            PackingRecord { version, fingerprint, shard_size: 1, to, class_names: None, label: None };
        let scene = tempfile::tempdir().unwrap();
        for round in 0..4000 {
            let path = scene.path().join(round.to_string());
            fs::create_dir(&path).unwrap();
            fs::write(path.join(PACKING_STATE_FILE), serde_json::to_string(&record).unwrap()).unwrap();
            fs::write(path.join("whole.partial"), "{}").unwrap();
            let begin = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    (0..round % 200 * 5).for_each(|_| std::hint::spin_loop());
                    // The other thread may have removed the partial file as a leftover.
                    if fs::rename(path.join("whole.partial"), path.join(MANIFEST_FILE)).is_ok() {
                        fs::remove_file(path.join(PACKING_STATE_FILE)).unwrap();
                    }
                });
                begin.wait();
                PackingTarget::open(&path, &record).unwrap();
            });
            fs::remove_dir_all(&path).unwrap();
        }
    }
}
