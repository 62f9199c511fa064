//! The segment store: samples of streams in files on a local drive, for one process at a time.
//!
//! Samples are appended to the segment being written, the *draft*, and can be read at once; when it is large enough it
//! is published: its file gets a table, then its name. A published segment changes only as a whole, when it is written
//! anew without some of its samples.
//!
//! - **Bytes are right or an error.** Tables and samples have checksums. A sample is compared with its own whenever it
//!   is read here; what reads segments as [`Files`] compares the checksum of its place.
//! - **The quota holds at every instant**, with drafts, snapshots and the lock file, in pages as file systems allocate
//!   them; directories and what readers still have open do not count. Room for writing the largest segment anew is
//!   always kept free, so that a full store can still be compacted and samples withdrawn.
//! - **A process may be killed at any moment.** Files get their names when they are whole. What was not is gone, or
//!   removed when the store is opened next. A sample that was about to be moved may then be there twice.
//! - Samples that nobody will ask for again are freed. A segment of which nothing is left is removed, and one of which
//!   little is left can be [compacted](SegmentStore::compact).

mod directory;
mod draft;
mod files;
mod foreign;
mod format;
mod full;
mod rewrite;
mod rows;
mod snapshots;
mod whole;

pub use foreign::ForeignStore;
pub use full::{AppendError, StoreFull};
pub use rewrite::MovedRecord;

use super::ids::IdSet;
use super::record::Record;
use base::crc::checksum;
use base::error::{DecodeError, Error, Result};
use base::notices::{NoticeKind, Notices};
use data::dataset::{Extent, Stamp};
use directory::{RecordDirectory, SEGMENT, SNAPSHOT};
use draft::SegmentDraft;
use files::SegmentFiles;
use format::{file_bytes, read_footer};
use rows::{RecordRow, RecordRows};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::io::Files;
use store::segments::drive::WriteFaults;
use store::segments::footer::SegmentError;
use store::segments::{PAGE, pages};

/// The smallest quota: some of the smallest segments.
const SMALLEST_QUOTA: u64 = 1 << 20;
/// How large a segment becomes, unless a sample is larger.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// The class of samples that have none.
const NO_LABEL: u32 = u32::MAX;

/// Where a store is and how large it may grow.
#[derive(Debug, Clone)]
pub struct SegmentOptions {
    /// The directory, which is made where it is missing.
    pub directory: PathBuf,
    /// The bytes that all files in it may take together, in pages of 4 KiB.
    pub quota: u64,
    /// The setting that the quota comes from, for messages.
    pub setting: &'static str,
    /// The bytes among these that samples leave for snapshots.
    pub snapshot_bytes: u64,
    /// About how many bytes a segment has; `None` means a 64th of the quota, from 64 KiB to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Whether files are written without a name, where the file system can do that; tests turn it off.
    pub nameless: bool,
    /// Writes that fail on purpose, for tests.
    pub faults: Option<WriteFaults>,
}

impl SegmentOptions {
    /// Options for `quota` bytes in `directory`, and defaults for all else.
    pub fn new(directory: impl Into<PathBuf>, quota: u64, setting: &'static str) -> Self {
        Self {
            directory: directory.into(),
            quota,
            setting,
            snapshot_bytes: 0,
            segment_bytes: None,
            nameless: true,
            faults: None,
        }
    }
}

/// Where a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    /// The number of the segment.
    pub segment: u64,
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
    /// Their CRC-32C.
    pub crc: u32,
}

/// A sample that a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRecord {
    /// The number of the sample.
    pub id: u64,
    /// Its class, where it has one.
    pub label: Option<u32>,
    /// Where it is.
    pub place: RecordPlace,
}

/// Samples in the segments of a directory.
pub struct SegmentStore {
    segments: BTreeMap<u64, RecordRows>,
    /// The bytes of the largest of these.
    largest: u64,
    draft: Option<SegmentDraft>,
    /// Segments whose ends could not be read: what they hold is not known.
    unreadable: BTreeMap<u64, u64>,
    /// The snapshots, and the pages of each.
    snapshots: BTreeMap<u64, u64>,
    /// Segments that were published and are perhaps not on the drive yet.
    unsynced: BTreeSet<u64>,
    files: Arc<SegmentFiles>,
    /// The segment that was read last, which stays open.
    last_read: Mutex<Option<(u64, File)>>,
    notices: Notices,
    segment_bytes: u64,
    snapshot_pages: u64,
    /// The last field, so that another process gets the directory only when all files are closed.
    directory: RecordDirectory,
}

impl SegmentStore {
    /// Opens the store, or makes it. All samples that it finds count as wanted until [`SegmentStore::retain`] says
    /// otherwise. Segments whose ends are damaged are removed, with a notice.
    ///
    /// # Errors
    /// [`Error::Config`] for a quota that is too small; [`Error::Unavailable`] where another process has the directory,
    /// or where it is another program's; [`Error::Io`] where it cannot be made, read or written.
    pub fn open(options: &SegmentOptions, notices: &Notices) -> Result<Self> {
        if options.quota < SMALLEST_QUOTA {
            let message = format!("is {} bytes, must be at least {SMALLEST_QUOTA}", options.quota);
            return Err(Error::config(options.setting, message));
        }
        let (smallest, largest) = SEGMENT_BYTES.into_inner();
        let directory = RecordDirectory::open(options)?;
        let mut store = Self {
            segments: BTreeMap::new(),
            largest: 0,
            draft: None,
            unreadable: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            files: Arc::new(SegmentFiles::new(directory.path().to_owned())),
            last_read: Mutex::default(),
            notices: notices.clone(),
            segment_bytes: options.segment_bytes.unwrap_or((options.quota / 64).clamp(smallest, largest)),
            snapshot_pages: pages(options.snapshot_bytes),
            directory,
        };
        for (number, bytes) in store.directory.files(SNAPSHOT)? {
            store.snapshots.insert(number, pages(bytes));
            store.directory.count(pages(bytes));
        }
        store.find_segments()?;
        Ok(store)
    }

    /// Finds the segments that are there, and checks their ends.
    fn find_segments(&mut self) -> Result<()> {
        let mut damaged = Vec::new();
        for (number, bytes) in self.directory.files(SEGMENT)? {
            self.directory.take_number(number);
            self.directory.count(pages(bytes));
            match self.load(number, bytes) {
                Ok(()) => {}
                Err(SegmentError::Damaged(what)) => {
                    self.directory.remove(number, SEGMENT)?;
                    self.directory.release(pages(bytes));
                    damaged.push((number, what));
                }
                Err(SegmentError::Io(error)) => {
                    let path = self.segment_path(number);
                    self.unreadable.insert(number, pages(bytes));
                    let message =
                        format!("{} cannot be read ({error}), so its samples are missing", path.display());
                    self.notices.notify(NoticeKind::Warning, message);
                }
            }
        }
        if let Some(&(number, what)) = damaged.first() {
            let message = format!(
                "{} segments in {} were damaged and have been removed with their samples, the first of them {} \
                 ({what}): after a power cut that may be; else check the drive",
                damaged.len(),
                self.directory.path().display(),
                self.segment_path(number).display()
            );
            self.notices.notify(NoticeKind::Warning, message);
        }
        Ok(())
    }

    /// Loads a segment that is counted already.
    fn load(&mut self, number: u64, size: u64) -> Result<(), SegmentError> {
        let path = self.segment_path(number);
        let file = File::open(&path)?;
        let rows = read_footer(&file, size, number)?;
        self.enter(number, Stamp::of(&file.metadata()?), rows);
        Ok(())
    }

    /// Makes a segment known that is published, in place of the one that had its number.
    fn enter(&mut self, number: u64, stamp: Stamp, rows: RecordRows) {
        self.files.enter(number, self.segment_path(number), stamp);
        self.close(number);
        self.segments.insert(number, rows);
        self.find_largest();
    }

    fn find_largest(&mut self) {
        let bytes = self.segments.values().map(|rows| file_bytes(rows.payload(), rows.len()));
        self.largest = bytes.max().unwrap_or(0);
    }

    /// Appends a sample, which can be read at once.
    ///
    /// # Errors
    /// [`AppendError`]; the sample is not there then, and all others are.
    pub fn append(&mut self, record: &Record) -> Result<RecordPlace, AppendError> {
        let bytes = record.bytes();
        let too_large = |draft: &SegmentDraft| {
            draft.pages_with(bytes.len()) > pages(self.segment_bytes) && draft.rows.len() > 0
        };
        if self.draft.as_ref().is_some_and(too_large) {
            self.publish()?;
        }
        let (before, after) = match &self.draft {
            Some(draft) => (draft.pages(), draft.pages_with(bytes.len())),
            None => (0, pages(file_bytes(bytes.len() as u64, 1))),
        };
        let spare = self.spare().max(after) + self.left_for_snapshots();
        self.directory.reserve(after - before, spare).map_err(AppendError::Full)?;
        let label = record.label.unwrap_or(NO_LABEL);
        let appended = self.push((record.id, label, checksum(bytes)), bytes);
        Ok(appended.inspect_err(|_| self.directory.release(after - before))?)
    }

    fn push(&mut self, row: (u64, u32, u32), bytes: &[u8]) -> Result<RecordPlace> {
        let draft = match &mut self.draft {
            Some(draft) => draft,
            None => {
                let number = self.directory.next_number()?;
                self.draft.insert(SegmentDraft::new(&self.directory, number, self.segment_bytes)?)
            }
        };
        draft.push(&mut self.directory, row, bytes)
    }

    /// Publishes the segment being written, if there is one.
    ///
    /// # Errors
    /// [`Error::Io`]; all samples are still there, and it may be tried again.
    pub fn publish(&mut self) -> Result<()> {
        let Some(mut draft) = self.draft.take_if(|draft| draft.rows.len() > 0) else { return Ok(()) };
        match draft.publish(&mut self.directory, false) {
            Ok(stamp) => {
                self.unsynced.insert(draft.number);
                self.enter(draft.number, stamp, draft.rows);
                Ok(())
            }
            Err(error) => {
                self.draft = Some(draft);
                Err(error)
            }
        }
    }

    /// The bytes of the sample at `place`, which are those that were appended.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no such sample, [`Error::Io`] where it cannot be read, [`Error::Decode`]
    /// where it is damaged; all name the segment.
    pub fn read(&self, place: &RecordPlace) -> Result<Vec<u8>> {
        let (bytes, row) = match (&self.draft, self.segments.get(&place.segment)) {
            (Some(draft), _) if draft.number == place.segment => {
                let row = draft.rows.find(place).ok_or_else(|| self.is_missing(place))?;
                (draft.read(row)?, row)
            }
            (_, Some(rows)) => {
                let row = rows.find(place).ok_or_else(|| self.is_missing(place))?;
                (self.read_row(place.segment, row)?, row)
            }
            _ => return Err(self.is_missing(place)),
        };
        self.check(place.segment, row, &bytes)?;
        Ok(bytes)
    }

    fn is_missing(&self, place: &RecordPlace) -> Error {
        let (path, RecordPlace { offset, length, .. }) = (self.segment_path(place.segment), place);
        Error::Unavailable(format!("{} has no sample of {length} bytes at {offset} any more", path.display()))
    }

    /// Reads a sample of a published segment, unchecked.
    fn read_row(&self, segment: u64, row: &RecordRow) -> Result<Vec<u8>> {
        let path = self.segment_path(segment);
        let mut last = self.last_read();
        let file = match &mut *last {
            Some((number, file)) if *number == segment => file,
            last => {
                let file = File::open(&path).map_err(|error| Error::io("open", &path, error))?;
                &mut last.insert((segment, file)).1
            }
        };
        let mut bytes = vec![0; row.length as usize];
        let read = file.read_exact_at(&mut bytes, row.offset);
        read.map_err(|error| {
            Error::io(format!("read {} bytes at {} of", row.length, row.offset), path, error)
        })?;
        Ok(bytes)
    }

    /// Compares a sample's bytes with its checksum.
    fn check(&self, segment: u64, row: &RecordRow, bytes: &[u8]) -> Result<()> {
        if checksum(bytes) == row.crc {
            return Ok(());
        }
        let (path, RecordRow { offset, length, .. }) = (self.segment_path(segment), row);
        let message = format!(
            "{}: the sample of {length} bytes at {offset} is damaged: its checksum differs; check the drive",
            path.display()
        );
        Err(DecodeError::Damaged(message).into())
    }

    /// The segments as files for readers. What they read of a place is to be compared with the place's checksum.
    pub fn as_files(&self) -> Arc<dyn Files> {
        self.files.clone()
    }

    /// Where readers over [`SegmentStore::as_files`] find the sample at `place`; `None` as long as its segment is not
    /// published, when only [`SegmentStore::read`] can.
    pub fn extent(&self, place: &RecordPlace) -> Option<Extent> {
        self.files.extent(place)
    }

    /// All samples that somebody may still ask for, in the order in which they were appended or last moved.
    pub fn places(&self) -> impl Iterator<Item = StoredRecord> {
        let draft = self.draft.iter().map(|draft| (draft.number, &draft.rows));
        let segments = self.segments.iter().map(|(&number, rows)| (number, rows));
        segments.chain(draft).flat_map(|(number, rows)| {
            rows.iter().filter(|row| row.is_live()).map(move |row| StoredRecord {
                id: row.id,
                label: Some(row.label).filter(|&label| label != NO_LABEL),
                place: row.place(number),
            })
        })
    }

    /// Notes that nobody will ask for the sample at `place` any more. A segment without a sample that is asked for is
    /// removed.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be removed.
    pub fn free(&mut self, place: &RecordPlace) -> Result<()> {
        if let Some(draft) = self.draft.as_mut().filter(|draft| draft.number == place.segment) {
            draft.rows.free(place);
        } else if let Some(rows) = self.segments.get_mut(&place.segment) {
            rows.free(place);
        }
        self.remove_if_unwanted(place.segment)
    }

    /// Notes that nobody will ask for samples other than those of which `is_wanted` says so by their ids. Of a sample
    /// that is there twice, the one appended last stays.
    ///
    /// # Errors
    /// [`Error::Io`] where a segment cannot be removed.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(u64) -> bool) -> Result<()> {
        let mut seen = IdSet::default();
        let mut is_gone = |row: &RecordRow| !is_wanted(row.id) || !seen.insert(row.id);
        if let Some(draft) = &mut self.draft {
            draft.rows.free_all(&mut is_gone);
        }
        self.segments.values_mut().rev().for_each(|rows| rows.free_all(&mut is_gone));
        let numbers: Vec<u64> =
            self.segments.keys().copied().chain(self.draft.iter().map(|draft| draft.number)).collect();
        numbers.into_iter().try_for_each(|number| self.remove_if_unwanted(number))
    }

    fn remove_if_unwanted(&mut self, number: u64) -> Result<()> {
        // A small draft is not worth another file: samples that only pass through would need one each.
        let is_worth = |draft: &SegmentDraft| 4 * draft.rows.payload() > self.segment_bytes;
        let unwanted =
            |draft: &mut SegmentDraft| draft.number == number && draft.rows.live() == 0 && is_worth(draft);
        if let Some(draft) = self.draft.take_if(unwanted) {
            draft.discard(&mut self.directory);
        } else if self.segments.get(&number).is_some_and(|rows| rows.live() == 0) {
            return self.release(number);
        }
        Ok(())
    }

    /// Removes a segment, whatever is in it.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be removed; then it is still there.
    pub fn release(&mut self, segment: u64) -> Result<()> {
        let Some(rows) = self.segments.get(&segment) else { return Ok(()) };
        let taken = pages(file_bytes(rows.payload(), rows.len()));
        self.close(segment);
        self.directory.remove(segment, SEGMENT)?;
        self.files.leave(segment);
        self.segments.remove(&segment);
        self.find_largest();
        self.unsynced.remove(&segment);
        self.directory.release(taken);
        Ok(())
    }

    /// The bytes that are used, in pages.
    pub fn used(&self) -> u64 {
        self.directory.used() * PAGE
    }

    /// The bytes that may be used.
    pub fn quota(&self) -> u64 {
        self.directory.quota() * PAGE
    }

    /// The bytes of the samples that somebody may still ask for.
    pub fn live_bytes(&self) -> u64 {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.rows.live_bytes());
        draft + self.segments.values().map(RecordRows::live_bytes).sum::<u64>()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The pages that are kept free, so that any segment can be written anew.
    fn spare(&self) -> u64 {
        let draft = self.draft.as_ref().map_or(0, SegmentDraft::pages);
        pages(self.largest.max(self.segment_bytes)).max(draft)
    }

    /// The pages that samples leave for snapshots.
    fn left_for_snapshots(&self) -> u64 {
        self.snapshot_pages.saturating_sub(self.snapshots.values().sum())
    }

    fn segment_path(&self, number: u64) -> PathBuf {
        self.directory.path_of(number, SEGMENT)
    }

    /// Closes the segment, if it was the one that was read last: an open file keeps its bytes on the drive.
    fn close(&self, segment: u64) {
        self.last_read().take_if(|(number, _)| *number == segment);
    }

    fn last_read(&self) -> MutexGuard<'_, Option<(u64, File)>> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
