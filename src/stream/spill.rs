//! The spill directory: samples that wait on a local drive because memory is full, first in, first out. The directory
//! uses the same segment store as the rehearsal buffer.
//!
//! The files do not outlive their process. After a restart the sources give unused samples again. Samples that a source
//! cannot give again are counted as lost.

use super::record::Record;
use super::segments::{AppendError, MovedRecord, ReadOnlyStore, RecordPlace, SegmentOptions, SegmentStore};
use super::share::RankShare;
use base::error::{Error, Result};
use base::notices::Notices;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The run number of spill directories. Other processes cannot use the contents of a directory with this run number.
const SPILLED: u32 = u32::MAX;

/// A spill directory and its size.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// The directory. If there are several ranks, the rank is appended to the directory's name.
    pub directory: PathBuf,
    /// The quota of the directory in bytes.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) struct SpilledSample {
    pub source: usize,
    pub number: u64,
    pub id: u64,
    pub weight: f64,
    pub place: RecordPlace,
    pub since: Instant,
}

pub(super) struct Spill(Mutex<SegmentStore>);

impl Spill {
    /// Opens and empties the directory of a rank. Removes the directories of ranks that no longer exist, unless a
    /// process uses them.
    ///
    /// # Errors
    /// The errors of [`SegmentStore::open`].
    pub(super) fn open(options: &SpillOptions, share: RankShare, notices: &Notices) -> Result<Self> {
        let open = |path: &Path| {
            SegmentStore::open(&SegmentOptions::new(path, options.bytes, "spill_size"), notices)
        };
        for path in share.abandoned(&options.directory) {
            if ReadOnlyStore::new(&path).run() == Some(SPILLED)
                && let Ok(mut store) = open(&path)
            {
                store.remove()?;
            }
        }
        let mut store = open(&share.path(&options.directory))?;
        if ![0, SPILLED].contains(&store.run()) {
            let message = format!(
                "{} contains a rehearsal buffer, but a spill directory is emptied at the start: choose another \
                 directory",
                store.path().display()
            );
            return Err(Error::config("spill_directory", message));
        }
        store.retain(|_| false)?;
        store.set_run(SPILLED)?;
        Ok(Self(Mutex::new(store)))
    }

    /// Stores a sample. Returns `None` if the directory is full.
    ///
    /// # Errors
    /// I/O errors of the drive.
    pub(super) fn put(&self, record: &Record) -> Result<Option<RecordPlace>> {
        match self.store().append(record) {
            Ok(place) => Ok(Some(place)),
            Err(AppendError::Full(_)) => Ok(None),
            Err(AppendError::Failed(error)) => Err(error),
        }
    }

    /// Reads a sample and frees its bytes.
    ///
    /// # Errors
    /// I/O errors of the drive, and an error for a sample that is damaged.
    pub(super) fn take(&self, sample: &SpilledSample) -> Result<Record> {
        let mut store = self.store();
        let bytes = store.read(&sample.place);
        store.free(&sample.place)?;
        let damaged = |what| Error::Internal(format!("a spilled sample cannot be parsed: {what}"));
        let mut record = Record::parse(bytes?).map_err(damaged)?;
        record.weight = sample.weight;
        Ok(record)
    }

    /// Removes samples, so that no file contains their bytes. Adds the new places of other samples to `moved`, even if
    /// the call fails.
    ///
    /// # Errors
    /// I/O errors of the drive.
    pub(super) fn withdraw(&self, ids: &HashSet<u64>, moved: &mut Vec<MovedRecord>) -> Result<()> {
        self.store().withdraw(ids, moved).map(drop)
    }

    fn store(&self) -> MutexGuard<'_, SegmentStore> {
        self.0.lock().expect("no thread panicked while it wrote a segment")
    }
}
