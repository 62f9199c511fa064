//! Shows and empties a cache directory, without a dataset, while jobs may be running.
//!
//! Directories of older formats are shown and emptied too: the lock file and the names in a directory are the same in
//! all formats.

use super::about::{self, DatasetInfo};
use super::directory::RESERVATIONS;
use super::segment::{self, DatasetKey, VERSION};
use super::setup::{GENERATION_AT, LOCK, LOCK_LIMIT, open_file, read_directory, wait_for};
use crate::segments::lock_file::{LockState, VERSION_AT};
use crate::segments::{PAGE, numbered, remove, u32_at};
use base::error::{Error, Result};
use base::node::RangeLocks;
use data::dataset::shown_root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The contents of a cache directory.
#[derive(Debug, Clone, Serialize)]
pub struct CacheContents {
    /// The path of the directory.
    pub directory: PathBuf,
    /// The version of the directory's format.
    pub format: u32,
    /// Whether this program can use the directory; if not, the directory can still be emptied.
    pub usable: bool,
    /// The datasets in it, the most recently used first.
    pub datasets: Vec<CachedDataset>,
    /// Bytes of all datasets' segments.
    pub bytes: u64,
    /// Bytes reserved for segments that jobs are filling.
    pub filling_bytes: u64,
    /// The names of all other entries of the directory.
    pub others: Vec<String>,
}

/// The copies of one dataset.
#[derive(Debug, Clone, Serialize)]
pub struct CachedDataset {
    /// The name of the dataset's directory.
    pub key: String,
    /// The dataset's fingerprint in hexadecimal; `None` if the program that filled the cache did not write it.
    pub fingerprint: Option<String>,
    /// The paths and URLs of the dataset when it was last used.
    pub roots: Vec<String>,
    /// The number of samples in its segments. A sample in two segments counts twice: during a conversion to another
    /// storage format, or after an interrupted one.
    pub samples: u64,
    /// The number of segment files.
    pub segments: u64,
    /// The bytes of the segment files.
    pub bytes: u64,
    /// When a job last opened the dataset, in seconds since 1970; `None` if unknown.
    pub last_used: Option<u64>,
    /// Whether a job uses the dataset now.
    pub in_use: bool,
}

/// The result of emptying a cache.
#[derive(Debug, Clone, Serialize)]
pub struct ClearResult {
    /// The removed datasets, as they were before.
    pub datasets: Vec<CachedDataset>,
    /// The number of segments removed.
    pub segments: u64,
    /// The bytes freed. A file that a job has open is freed when that job closes it, soon after.
    pub bytes: u64,
    /// Whether the directory had an older format, and this program can use it from now on.
    pub renewed: bool,
}

/// Lists a cache directory. Changes nothing, and waits for no lock.
///
/// # Errors
/// [`Error::Config`] if the directory is no cache of Foreload; [`Error::Io`] if it cannot be listed.
pub fn contents(directory: &Path) -> Result<CacheContents> {
    let path = directory.join("lock");
    let lock = File::open(&path).map_err(|error| refusal(directory, error))?;
    let format = format(&lock, directory)?;
    let filling = RangeLocks::new(lock)
        .locked_by_others(RESERVATIONS)
        .map_err(|error| Error::io("look at", path, error))?;
    let (mut datasets, mut others) = (Vec::new(), Vec::new());
    for entry in read_directory(directory)? {
        let entry = entry.map_err(|error| Error::io("list", directory, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && DatasetKey::parse(&name).is_some() {
            match dataset(&entry.path(), name) {
                // Another process has just emptied the dataset's directory.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                found => datasets.push(found?),
            }
        } else if name != "lock" && name != "CACHEDIR.TAG" {
            others.push(name);
        }
    }
    datasets.sort_by_key(|dataset| std::cmp::Reverse((dataset.in_use, dataset.last_used)));
    others.sort_unstable();
    Ok(CacheContents {
        directory: directory.to_path_buf(),
        format,
        usable: format == VERSION,
        bytes: datasets.iter().map(|dataset| dataset.bytes).sum(),
        datasets,
        filling_bytes: filling.iter().map(|range| (range.end - range.start) * PAGE).sum(),
        others,
    })
}

/// Removes the copies of the dataset `which` (a path it was used at, or the beginning of its fingerprint or key), or of
/// all datasets. Jobs that use the copies continue: they read missing samples from their dataset, and keep new copies
/// from then on.
///
/// # Errors
/// The errors of [`contents`]; [`Error::Config`] if `which` names no dataset or several, or the format is a newer one;
/// [`Error::Io`] if something cannot be removed.
pub fn clear(directory: &Path, which: Option<&str>) -> Result<ClearResult> {
    let path = directory.join("lock");
    contents(directory)?;
    let lock = RangeLocks::new(open_file(&path, false)?);
    // Processes hold this lock while they enter, publish or evict, so no process is doing so now.
    wait_for(&lock, directory, LOCK_LIMIT)?;
    let cleared = clear_locked(directory, &lock, which);
    lock.unlock(0..1).map_err(|error| Error::io("unlock", path, error))?;
    cleared
}

fn clear_locked(directory: &Path, lock: &RangeLocks, which: Option<&str>) -> Result<ClearResult> {
    let held = contents(directory)?;
    if held.format > VERSION {
        let message = format!(
            "{} has cache format {}, newer than this program's {VERSION}: empty it with the version of Foreload that \
             filled it",
            directory.display(),
            held.format
        );
        return Err(Error::config("cache_dir", message));
    }
    let chosen = match which {
        Some(which) => choose(&held, which)?,
        None => held.datasets.clone(),
    };
    bump(lock.file()).map_err(|error| Error::io("write", directory.join("lock"), error))?;
    let (mut segments, mut bytes) = (0, 0);
    for dataset in &chosen {
        let own = directory.join(&dataset.key);
        for (number, size) in segment_files(&own)? {
            let path = own.join(segment::name(number));
            if remove(&path).map_err(|error| Error::io("remove", path, error))? {
                (segments, bytes) = (segments + 1, bytes + size);
            }
        }
        if !dataset.in_use {
            match about::forget(&own) {
                // Another program put a file there, or another process removed it first.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
                }
                done => done.map_err(|error| Error::io("remove", own, error))?,
            }
        }
    }
    let idle = held.filling_bytes == 0 && held.datasets.iter().all(|dataset| !dataset.in_use);
    let renewed = which.is_none() && idle && !held.usable;
    if renewed {
        let written = lock.file().write_all_at(&VERSION.to_le_bytes(), VERSION_AT);
        written.map_err(|error| Error::io("write", directory.join("lock"), error))?;
    }
    Ok(ClearResult { datasets: chosen, segments, bytes, renewed })
}

fn choose(held: &CacheContents, which: &str) -> Result<Vec<CachedDataset>> {
    let bad = |message: String| Error::config("dataset", message);
    let at_path = Path::new(which).canonicalize().map_or_else(
        |_| shown_root(Path::new(which)).to_string_lossy().into_owned(),
        |path| path.to_string_lossy().into_owned(),
    );
    let used_there = |dataset: &&CachedDataset| dataset.roots.contains(&at_path);
    let found: Vec<_> = held.datasets.iter().filter(used_there).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let begins = |text: &String| which.len() >= MIN_PREFIX && text.starts_with(which);
    let named =
        |dataset: &&CachedDataset| begins(&dataset.key) || dataset.fingerprint.as_ref().is_some_and(begins);
    let found: Vec<_> = held.datasets.iter().filter(named).cloned().collect();
    let names =
        |datasets: &[CachedDataset]| datasets.iter().map(CachedDataset::name).collect::<Vec<_>>().join(", ");
    match &found[..] {
        [] if held.datasets.is_empty() => Err(bad(format!("is {which:?}, but the cache is empty"))),
        [] => {
            let here = names(&held.datasets);
            Err(bad(format!(
                "is {which:?}, but the cache has {here}: give the path of a dataset, or at least the first \
                 {MIN_PREFIX} characters of its fingerprint"
            )))
        }
        // One dataset may have several directories, for its earlier states.
        [first, rest @ ..] if rest.iter().any(|other| other.name() != first.name()) => Err(bad(format!(
            "is {which:?}, which matches several datasets ({}): give more characters",
            names(&found)
        ))),
        _ => Ok(found),
    }
}

impl CachedDataset {
    /// Returns the dataset's fingerprint if it is known, else its key.
    pub fn name(&self) -> &str {
        self.fingerprint.as_deref().unwrap_or(&self.key)
    }
}

/// The minimum length of a fingerprint's beginning that names a dataset, so that a typing error clears nothing.
const MIN_PREFIX: usize = 6;

fn format(lock: &File, directory: &Path) -> Result<u32> {
    match LOCK.read(lock).map_err(|error| refusal(directory, error))? {
        LockState::Ours { .. } => Ok(VERSION),
        LockState::OtherVersion(version) => Ok(version),
        LockState::New | LockState::Foreign => {
            Err(Error::config("cache_dir", format!("{} is not a cache of Foreload", directory.display())))
        }
    }
}

fn refusal(directory: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        let message = format!("{} is not a cache of Foreload: it has no file `lock`", directory.display());
        return Error::config("cache_dir", message);
    }
    Error::io("read", directory.join("lock"), error)
}

/// Increases the generation, because the directory is about to change.
fn bump(lock: &File) -> io::Result<()> {
    let mut bytes = [0; 8];
    lock.read_exact_at(&mut bytes, GENERATION_AT)?;
    lock.write_all_at(&(u64::from_le_bytes(bytes) + 1).to_le_bytes(), GENERATION_AT)
}

fn dataset(own: &Path, key: String) -> Result<CachedDataset> {
    let files = segment_files(own)?;
    let used = File::open(own.join("used")).ok();
    let modified = used.as_ref().and_then(|file| file.metadata().ok()?.modified().ok());
    let in_use = used.is_some_and(|file| {
        !RangeLocks::new(file).locked_by_others(0..1).is_ok_and(|users| users.is_empty())
    });
    let about = DatasetInfo::read(own);
    Ok(CachedDataset {
        key,
        fingerprint: about.as_ref().map(|about| about.fingerprint.clone()),
        roots: about.map(|about| about.roots).unwrap_or_default(),
        samples: files
            .iter()
            .filter_map(|(&number, &size)| samples(&own.join(segment::name(number)), size))
            .sum(),
        segments: files.len() as u64,
        bytes: files.values().sum(),
        last_used: modified
            .and_then(|time| Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())),
        in_use,
    })
}

fn segment_files(own: &Path) -> Result<BTreeMap<u64, u64>> {
    numbered::files(own, segment::EXTENSION, |_| None)
}

/// Returns the number of samples from a segment's trailer. In every format the last 64 bytes begin with a magic number
/// (8 bytes), the version of the format (4 bytes) and the number of samples (4 bytes).
fn samples(path: &Path, size: u64) -> Option<u64> {
    let mut bytes = [0; 16];
    File::open(path).ok()?.read_exact_at(&mut bytes, size.checked_sub(64)?).ok()?;
    (bytes[..8] == segment::MAGIC).then(|| u64::from(u32_at(&bytes, 12)))
}
