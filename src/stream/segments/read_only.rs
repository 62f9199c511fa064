//! Directories of other ranks, which are read without locking them. Their processes may have exited, or may be writing.

use super::directory::{SEGMENT, SNAPSHOT, run_of};
use super::format::read_footer;
use super::snapshots;
use crate::ids::IdSet;
use crate::record::Record;
use base::crc::checksum;
use base::error::{Error, Result};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use store::segments::footer::SegmentError;
use store::segments::numbered;

/// The maximum number of times that the segments are listed. They are listed again if some were rewritten during the
/// read.
const LIST_ATTEMPTS: u32 = 5;

/// A directory of samples and snapshots that is only read.
pub struct ReadOnlyStore {
    path: PathBuf,
}

impl ReadOnlyStore {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The run that the directory belongs to. `None` if it is not the directory of a store.
    pub(crate) fn run(&self) -> Option<u32> {
        run_of(&self.path)
    }

    /// The bytes of snapshot `number`. `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of [`super::SegmentStore::read_snapshot`].
    pub(crate) fn read_snapshot(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(numbered::name(number, SNAPSHOT));
        match fs::exists(&path) {
            Ok(true) => snapshots::read(&path, number).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(Error::io("look at", path, error)),
        }
    }

    /// Passes each of the `wanted` samples to `take`, and removes its id from `wanted`. The ids that remain in `wanted`
    /// are of missing or damaged samples.
    ///
    /// # Errors
    /// The errors of `take`; [`Error::Io`] for files that cannot be read.
    pub(crate) fn take(&self, wanted: &mut IdSet, mut take: impl FnMut(Record) -> Result<()>) -> Result<()> {
        for _ in 0..LIST_ATTEMPTS {
            let mut vanished = false;
            // If a sample is stored twice, the copy that was appended last counts.
            for number in self.segments()?.into_iter().rev() {
                if wanted.is_empty() {
                    return Ok(());
                }
                vanished |= !self.take_from_segment(number, wanted, &mut take)?;
            }
            if !vanished {
                break;
            }
        }
        Ok(())
    }

    /// Takes the wanted samples of one segment. Returns false if the segment was removed.
    fn take_from_segment(
        &self,
        number: u64,
        wanted: &mut IdSet,
        take: &mut impl FnMut(Record) -> Result<()>,
    ) -> Result<bool> {
        let path = self.path.join(numbered::name(number, SEGMENT));
        let failed = |error| Error::io("read", &path, error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(failed)?,
        };
        let size = file.metadata().map_err(failed)?.len();
        let rows = match read_footer(&file, size, number) {
            Ok(rows) => rows,
            // The samples of a damaged segment count as missing.
            Err(SegmentError::Damaged(_)) => return Ok(true),
            Err(SegmentError::Io(error)) => return Err(failed(error)),
        };
        for row in rows.iter().rev().filter(|row| wanted.contains(&row.id)).collect::<Vec<_>>() {
            let mut bytes = vec![0; row.length as usize];
            file.read_exact_at(&mut bytes, row.offset).map_err(failed)?;
            if checksum(&bytes) == row.crc
                && let Ok(record) = Record::parse(bytes)
                && wanted.remove(&row.id)
            {
                take(record)?;
            }
        }
        Ok(true)
    }

    fn segments(&self) -> Result<Vec<u64>> {
        match numbered::files(&self.path, SEGMENT, |_| Some(0)) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            found => Ok(found?.into_keys().collect()),
        }
    }
}
