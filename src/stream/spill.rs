//! What waits in a directory because memory is full: first in, first out, in the same segments as the rehearsal
//! buffer's.
//!
//! Nothing of it outlives its process: sources give what was not used once more, or it is lost and counted.

use super::record::Record;
use super::segments::{AppendError, RecordPlace, SegmentOptions, SegmentStore};
use super::sources::RankShare;
use crate::error::{Error, Result};
use crate::notices::Notices;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Where samples spill to.
#[derive(Debug, Clone)]
pub(crate) struct SpillOptions {
    /// The directory of one rank; where there are several, their numbers follow its name.
    pub directory: PathBuf,
    /// The bytes that the directory may take.
    pub bytes: u64,
}

/// A sample that waits in the directory.
#[derive(Debug, Clone)]
pub(super) struct SpilledSample {
    pub source: usize,
    pub number: u64,
    pub id: u64,
    pub weight: f64,
    pub place: RecordPlace,
    pub since: Instant,
}

/// The directory.
pub(super) struct Spill(Mutex<SegmentStore>);

impl Spill {
    /// Opens the directory of a rank, and empties it.
    ///
    /// # Errors
    /// Those of [`SegmentStore::open`].
    pub(super) fn open(options: &SpillOptions, share: RankShare, notices: &Notices) -> Result<Self> {
        let settings = SegmentOptions::new(share.path(&options.directory), options.bytes, "spill_size");
        let mut store = SegmentStore::open(&settings, notices)?;
        store.retain(|_| false)?;
        Ok(Self(Mutex::new(store)))
    }

    /// Removes the directory of a rank that is no more, if it is there.
    ///
    /// # Errors
    /// Those of [`Spill::open`].
    pub(super) fn remove(options: &SpillOptions, share: RankShare, notices: &Notices) -> Result<()> {
        match share.path(&options.directory).exists() {
            true => Self::open(options, share, notices)?.store().remove(),
            false => Ok(()),
        }
    }

    /// Puts a sample there; `None` where it is full.
    ///
    /// # Errors
    /// Those of the drive.
    pub(super) fn put(&self, record: &Record) -> Result<Option<RecordPlace>> {
        match self.store().append(record) {
            Ok(place) => Ok(Some(place)),
            Err(AppendError::Full(_)) => Ok(None),
            Err(AppendError::Failed(error)) => Err(error),
        }
    }

    /// Takes a sample from there.
    ///
    /// # Errors
    /// Those of the drive, above all for a sample that is damaged.
    pub(super) fn take(&self, sample: &SpilledSample) -> Result<Record> {
        let mut store = self.store();
        let bytes = store.read(&sample.place);
        store.free(&sample.place)?;
        let damaged = |what| Error::Internal(format!("a spilled sample is no sample: {what}"));
        let mut record = Record::parse(bytes?).map_err(damaged)?;
        record.weight = sample.weight;
        Ok(record)
    }

    /// Removes samples, so that no file has their bytes. Returns the places of those that lie elsewhere now, by their
    /// ids.
    ///
    /// # Errors
    /// Those of the drive.
    pub(super) fn withdraw(&self, ids: &HashSet<u64>) -> Result<Vec<(u64, RecordPlace)>> {
        let mut moved = Vec::new();
        let withdrawn = self.store().withdraw(ids, &mut moved);
        withdrawn.map(|_| moved.into_iter().filter_map(|of| Some((of.id, of.to?))).collect())
    }

    fn store(&self) -> MutexGuard<'_, SegmentStore> {
        self.0.lock().expect("no thread panicked while it wrote a segment")
    }
}
