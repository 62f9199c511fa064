//! The segment store: samples of streams in files on a local drive, for one process at a time. The code that it shares
//! with the stores of caches is in `store::segments`.
//!
//! Samples are appended to the segment being written, the *draft*, and can be read at once. A draft that is large
//! enough is published: its file gets a table, then its name. A published segment changes only as a whole, when it is
//! rewritten without some of its samples.
//!
//! - **Wrong bytes are an error.** Tables and samples have checksums. Every read in this module compares the sample's
//!   checksum. Readers that use the segments as [`Files`] compare the checksum in [`RecordPlace`].
//! - **The quota holds at every instant.** It includes drafts, snapshots and the lock file, in pages as file systems
//!   allocate them. It does not include directories and removed files that readers still have open. Space to rewrite
//!   the largest segment is always kept free, so that a full store can still be compacted and samples can be withdrawn.
//! - **A process may be killed at any moment.** Files get their names when they are complete. Incomplete files vanish,
//!   or are removed the next time the store is opened. A sample that was being moved may then be stored twice.
//! - Samples that are no longer needed are freed. A segment without needed samples is removed. A segment with few
//!   needed samples can be [compacted](SegmentStore::compact).

mod directory;
mod draft;
mod files;
mod format;
mod ownership;
mod read_only;
mod rewrite;
mod rows;
mod snapshots;
mod store_error;

pub use read_only::ReadOnlyStore;
pub use rewrite::MovedRecord;
pub use store_error::{AppendError, StoreFull};

use super::ids::IdSet;
use super::record::Record;
use base::crc::checksum;
use base::error::{DecodeError, Error, Result};
use base::locks::lock;
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
use std::sync::{Arc, Mutex};
use store::io::Files;
use store::segments::drive::WriteFaults;
use store::segments::footer::SegmentError;
use store::segments::{PAGE, pages};

/// The smallest quota, enough for several of the smallest segments.
const SMALLEST_QUOTA: u64 = 1 << 20;
/// The minimum and maximum bytes of a segment, unless a single sample is larger.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// The stored class of samples without a class.
const NO_LABEL: u32 = u32::MAX;

/// Where a store is, and how large it may become.
#[derive(Debug, Clone)]
pub struct SegmentOptions {
    /// The directory, which is created if it is missing.
    pub directory: PathBuf,
    /// The quota in bytes for all files in the directory, counted in pages of 4 KiB.
    pub quota: u64,
    /// The name of the setting that gives the quota, for messages.
    pub setting: &'static str,
    /// The bytes of the quota that are reserved for snapshots.
    pub snapshot_bytes: u64,
    /// The approximate size of a segment; `None` means a 64th of the quota, from 64 KiB to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Whether files are written without a name if the file system supports that. Tests turn it off.
    pub nameless: bool,
    /// Write errors to inject, for tests.
    pub faults: Option<WriteFaults>,
}

impl SegmentOptions {
    /// Options for `quota` bytes in `directory`, and defaults for everything else.
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

/// The place of a sample's bytes in the segments of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    /// The segment number.
    pub segment: u64,
    /// The offset in the segment, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u32,
    /// The CRC-32C of the bytes.
    pub crc: u32,
}

/// A sample that a store keeps, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRecord {
    /// The id of the sample.
    pub id: u64,
    /// The class of the sample, if the sample has one.
    pub label: Option<u32>,
    /// The place of the sample.
    pub place: RecordPlace,
}

/// A store of samples in the segments of a directory.
pub struct SegmentStore {
    segments: BTreeMap<u64, RecordRows>,
    largest: u64,
    draft: Option<SegmentDraft>,
    /// Segments whose footers could not be read, and the pages of each. Their contents are unknown.
    unreadable: BTreeMap<u64, u64>,
    /// The snapshots, and the pages of each.
    snapshots: BTreeMap<u64, u64>,
    /// Published segments that may not be synced to the drive yet.
    unsynced: BTreeSet<u64>,
    files: Arc<SegmentFiles>,
    /// The segment that was read last. It stays open.
    last_read: Mutex<Option<(u64, File)>>,
    notices: Notices,
    segment_bytes: u64,
    snapshot_pages: u64,
    /// The last field, so that it is dropped last: all files are closed before another process can lock the directory.
    directory: RecordDirectory,
}

impl SegmentStore {
    /// Opens or creates the store. All samples in it count as needed until [`SegmentStore::retain`] is called. Segments
    /// with damaged footers are removed, with a warning.
    ///
    /// # Errors
    /// [`Error::Config`] if the quota is too small; [`Error::Unavailable`] if another process uses the directory, or if
    /// the directory belongs to another program; [`Error::Io`] if the directory cannot be created, read or written.
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
                "{} segments in {} were damaged, and were removed with their samples; the first was {} ({what}): this \
                 can follow a power cut; otherwise check the drive",
                damaged.len(),
                self.directory.path().display(),
                self.segment_path(number).display()
            );
            self.notices.notify(NoticeKind::Warning, message);
        }
        Ok(())
    }

    /// Loads a segment whose pages are counted already.
    fn load(&mut self, number: u64, size: u64) -> Result<(), SegmentError> {
        let path = self.segment_path(number);
        let file = File::open(&path)?;
        let rows = read_footer(&file, size, number)?;
        self.add_published(number, Stamp::of(&file.metadata()?), rows);
        Ok(())
    }

    fn add_published(&mut self, number: u64, stamp: Stamp, rows: RecordRows) {
        self.files.add(number, self.segment_path(number), stamp);
        self.close(number);
        self.segments.insert(number, rows);
        self.find_largest();
    }

    fn find_largest(&mut self) {
        let bytes = self.segments.values().map(|rows| file_bytes(rows.payload(), rows.len()));
        self.largest = bytes.max().unwrap_or(0);
    }

    /// Appends a sample. It can be read at once.
    ///
    /// # Errors
    /// [`AppendError`]. Then the sample is not stored, and all earlier samples are kept.
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

    /// Publishes the draft (the segment being written), if there is one.
    ///
    /// # Errors
    /// [`Error::Io`]. All samples are kept, and the call may be repeated.
    pub fn publish(&mut self) -> Result<()> {
        let Some(mut draft) = self.draft.take_if(|draft| draft.rows.len() > 0) else { return Ok(()) };
        match draft.publish(&mut self.directory, false) {
            Ok(stamp) => {
                self.unsynced.insert(draft.number);
                self.add_published(draft.number, stamp, draft.rows);
                Ok(())
            }
            Err(error) => {
                self.draft = Some(draft);
                Err(error)
            }
        }
    }

    /// Reads the sample at `place`, and compares its checksum.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no such sample, [`Error::Io`] if it cannot be read, [`Error::Decode`] if it
    /// is damaged. All name the segment.
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
        Error::Unavailable(format!("{} no longer has a sample of {length} bytes at {offset}", path.display()))
    }

    /// Reads a sample of a published segment. The caller compares the bytes with the checksum.
    fn read_row(&self, segment: u64, row: &RecordRow) -> Result<Vec<u8>> {
        let path = self.segment_path(segment);
        let mut last = lock(&self.last_read);
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

    /// The segments as files for readers. Readers must compare what they read with the checksum of the place.
    pub fn as_files(&self) -> Arc<dyn Files> {
        self.files.clone()
    }

    /// Where readers of [`SegmentStore::as_files`] find the sample at `place`. `None` while its segment is not
    /// published: then only [`SegmentStore::read`] can read it.
    pub fn extent(&self, place: &RecordPlace) -> Option<Extent> {
        self.files.extent(place)
    }

    /// All needed samples, in the order in which they were appended or last moved.
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

    /// Frees the sample at `place`, which is no longer needed. A segment without needed samples is removed.
    ///
    /// # Errors
    /// [`Error::Io`] if the segment cannot be removed.
    pub fn free(&mut self, place: &RecordPlace) -> Result<()> {
        if let Some(draft) = self.draft.as_mut().filter(|draft| draft.number == place.segment) {
            draft.rows.free(place);
        } else if let Some(rows) = self.segments.get_mut(&place.segment) {
            rows.free(place);
        }
        self.remove_if_unwanted(place.segment)
    }

    /// Frees all samples except the samples whose ids `is_wanted` accepts. If a sample is stored twice, the copy that
    /// was appended last stays.
    ///
    /// # Errors
    /// [`Error::Io`] if a segment cannot be removed.
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
        // Keep a small draft even if none of its samples is needed. Otherwise a spill directory whose samples are soon
        // read back would create a file for every few samples.
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

    /// Removes a segment with everything in it.
    ///
    /// # Errors
    /// [`Error::Io`] if the segment cannot be removed. Then the segment is still in the store.
    pub fn release(&mut self, segment: u64) -> Result<()> {
        let Some(rows) = self.segments.get(&segment) else { return Ok(()) };
        let taken = pages(file_bytes(rows.payload(), rows.len()));
        self.close(segment);
        self.directory.remove(segment, SEGMENT)?;
        self.files.remove(segment);
        self.segments.remove(&segment);
        self.find_largest();
        self.unsynced.remove(&segment);
        self.directory.release(taken);
        Ok(())
    }

    /// The used bytes, counted in pages.
    pub fn used(&self) -> u64 {
        self.directory.used() * PAGE
    }

    /// The quota in bytes.
    pub fn quota(&self) -> u64 {
        self.directory.quota() * PAGE
    }

    /// The bytes of all needed samples.
    pub fn live_bytes(&self) -> u64 {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.rows.live_bytes());
        draft + self.segments.values().map(RecordRows::live_bytes).sum::<u64>()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The pages that are kept free, so that any segment can be rewritten.
    fn spare(&self) -> u64 {
        let draft = self.draft.as_ref().map_or(0, SegmentDraft::pages);
        pages(self.largest.max(self.segment_bytes)).max(draft)
    }

    fn left_for_snapshots(&self) -> u64 {
        self.snapshot_pages.saturating_sub(self.snapshots.values().sum())
    }

    fn segment_path(&self, number: u64) -> PathBuf {
        self.directory.path_of(number, SEGMENT)
    }

    /// Closes the segment's file if it is still open after the last read, because an open file keeps its bytes on the
    /// drive.
    fn close(&self, segment: u64) {
        lock(&self.last_read).take_if(|(number, _)| *number == segment);
    }
}
