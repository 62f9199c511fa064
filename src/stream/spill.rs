//! What waits in a directory because memory is full: first in, first out, in the same segments as the rehearsal
//! buffer's.
//!
//! Nothing of it outlives its process: sources give what was not used once more, or it is lost and counted.

use super::record::Record;
use super::segments::{AppendError, ForeignStore, MovedRecord, RecordPlace, SegmentOptions, SegmentStore};
use super::share::RankShare;
use base::error::{Error, Result};
use base::notices::Notices;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// What stands for the run in directories of samples that spilled: nothing there is of any use to another process.
const SPILLED: u32 = u32::MAX;

/// Where samples spill to.
#[derive(Debug, Clone)]
pub struct SpillOptions {
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
    /// Opens the directory of a rank, and empties it. Those of ranks that are no more are removed, unless a process has
    /// them.
    ///
    /// # Errors
    /// Those of [`SegmentStore::open`].
    pub(super) fn open(options: &SpillOptions, share: RankShare, notices: &Notices) -> Result<Self> {
        let open = |path: &Path| {
            SegmentStore::open(&SegmentOptions::new(path, options.bytes, "spill_size"), notices)
        };
        for path in share.forsaken(&options.directory) {
            if ForeignStore::new(&path).run() == Some(SPILLED)
                && let Ok(mut store) = open(&path)
            {
                store.remove()?;
            }
        }
        let mut store = open(&share.path(&options.directory))?;
        if ![0, SPILLED].contains(&store.run()) {
            let message = format!(
                "{} has a rehearsal buffer: what is left in a directory that samples spill to is removed, so name \
                 another one",
                store.path().display()
            );
            return Err(Error::config("spill_directory", message));
        }
        store.retain(|_| false)?;
        store.set_run(SPILLED)?;
        Ok(Self(Mutex::new(store)))
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

    /// Removes samples, so that no file has their bytes. Also where that fails, adds to `moved` where others lie now.
    ///
    /// # Errors
    /// Those of the drive.
    pub(super) fn withdraw(&self, ids: &HashSet<u64>, moved: &mut Vec<MovedRecord>) -> Result<()> {
        self.store().withdraw(ids, moved).map(drop)
    }

    fn store(&self) -> MutexGuard<'_, SegmentStore> {
        self.0.lock().expect("no thread panicked while it wrote a segment")
    }
}
