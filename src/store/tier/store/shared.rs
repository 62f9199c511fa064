//! The state that the callers, the writer and the readers of a store share, and the loading of other processes'
//! segments.

use super::super::catalog::{Catalog, SegmentIndex, SegmentRow};
use super::super::copies::Location;
use super::super::counters::CopyCounters;
use super::directory::CacheDirectory;
use super::header_summaries::{SegmentSummaries, StoreSummaries};
use super::open_segment::OpenSegment;
use super::segment::{Footer, may_be};
use super::verify::{Verify, versions_now};
use crate::io::Files;
use crate::segments::footer::SegmentError;
use base::counting::count;
use base::error::Result;
use base::locks::{lock, read_lock, write_lock};
use base::parts::RawHeaderSummary;
use base::tier_name::TierName;
use data::dataset::{DatasetIndex, Extent, FileId, FileVersion, Stamp};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of samples that are entered while the catalog is locked once. Readers wait for the lock for some ten
/// microseconds at most.
const PLACED_AT_ONCE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StoreState {
    Open,
    Full,
    /// Nothing is taken, because a write failed.
    Off,
}

pub(super) struct StoreShared {
    pub index: Arc<DatasetIndex>,
    name: TierName,
    pub directory: Arc<CacheDirectory>,
    pub counters: Arc<CopyCounters>,
    pub verify: Verify,
    /// The versions of the shards when the store was opened.
    shards: HashMap<Extent, FileVersion>,
    /// Set when the store is dropped and the drive does not respond: nothing more is written.
    pub abandoned: AtomicBool,
    catalog: RwLock<Catalog>,
    /// The header summaries (`header_summaries`) of the catalog's segments. The summaries of a segment are added while
    /// the catalog is locked, so that no other thread can remove the segment before they are added.
    header_summaries: StoreSummaries,
    forgotten: AtomicU64,
    store_state: AtomicU8,
    /// The generation of the directory that the catalog is up to date with.
    refreshed: Mutex<Option<u64>>,
}

impl StoreShared {
    pub(super) fn new(
        index: Arc<DatasetIndex>,
        name: TierName,
        directory: CacheDirectory,
        counters: Arc<CopyCounters>,
        verify: Verify,
    ) -> Self {
        let shards: Vec<Extent> = if verify == Verify::Never {
            Vec::new()
        } else {
            // Copies are only of samples, so skip the files of arrays whose samples belong to another shard.
            let has_samples = |file: &FileId| !index.samples_of(*file).is_empty();
            let shards =
                index.files().filter(|&file| index.known_version(file).is_some()).filter(has_samples);
            shards.map(|file| Extent { file, offset: 0, length: 0 }).collect()
        };
        let shards = versions_now(&index, &shards);
        Self {
            catalog: RwLock::new(Catalog::new(index.len())),
            header_summaries: StoreSummaries::default(),
            index,
            name,
            directory: Arc::new(directory),
            counters,
            verify,
            shards,
            abandoned: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
            store_state: AtomicU8::new(StoreState::Open as u8),
            refreshed: Mutex::default(),
        }
    }

    pub(super) fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        read_lock(&self.catalog)
    }

    pub(super) fn catalog_mut(&self) -> RwLockWriteGuard<'_, Catalog> {
        write_lock(&self.catalog)
    }

    /// Forgets a segment with all its samples, so that readers close it. Returns whether it could be read before.
    pub(super) fn forget(&self, segment_index: SegmentIndex) -> bool {
        let forgotten = self.catalog_mut().forget(segment_index);
        self.header_summaries.forget(segment_index);
        self.forgotten.fetch_add(u64::from(forgotten), Relaxed);
        forgotten
    }

    pub(super) fn store_state(&self) -> StoreState {
        match self.store_state.load(Relaxed) {
            0 => StoreState::Open,
            1 => StoreState::Full,
            _ => StoreState::Off,
        }
    }

    pub(super) fn set_state(&self, store_state: StoreState) {
        self.store_state.store(store_state as u8, Relaxed);
    }

    pub(super) fn cancel_pending(&self, rows: &[SegmentRow]) {
        for rows in rows.chunks(PLACED_AT_ONCE) {
            let mut catalog = self.catalog_mut();
            rows.iter().for_each(|row| catalog.cancel_pending(row.sample));
        }
    }

    /// Enters the samples of a published segment into the catalog. `checked` says that this run has verified them to
    /// match the source.
    pub(super) fn place(&self, segment_index: SegmentIndex, rows: &[SegmentRow], checked: bool) {
        for rows in rows.chunks(PLACED_AT_ONCE) {
            self.catalog_mut().place(segment_index, rows, checked);
        }
    }

    pub(super) fn replace(&self, former: SegmentIndex, segment_index: SegmentIndex, rows: &[SegmentRow]) {
        for rows in rows.chunks(PLACED_AT_ONCE) {
            self.catalog_mut().replace(former, segment_index, rows);
        }
    }

    /// Publishes a segment whose bytes are all written. Returns its index in the catalog, where the caller must enter
    /// its samples; `None` if the catalog had the segment already.
    pub(super) fn publish(&self, open: &mut OpenSegment, stamp: &Stamp) -> Result<Option<SegmentIndex>> {
        let number = open.reservation.number;
        // Announce the segment first, so that a thread that lists the directory in between recognises it as ours.
        let announced = self.catalog_mut().announce(number);
        if let Err(error) = self.directory.publish(open, stamp.size) {
            if announced {
                self.catalog_mut().retract(number);
            }
            return Err(error);
        }
        Ok(announced.then(|| self.enter(number, &open.footer, stamp)))
    }

    fn enter(&self, number: u64, footer: &Footer, stamp: &Stamp) -> SegmentIndex {
        let header_summaries = SegmentSummaries::of(&footer.rows);
        let mut catalog = self.catalog_mut();
        let segment_index = catalog.publish(number, footer.group, stamp);
        self.header_summaries.enter(segment_index, header_summaries);
        segment_index
    }

    /// Returns the header summary of a sample's packed copy at `location`, with which parts of the copy can be read, if
    /// it is known.
    pub(super) fn header_summary(&self, sample: u64, location: &Location) -> Option<RawHeaderSummary> {
        let Extent { file, offset, length } = location.extent;
        match length == self.index.extent(sample).length {
            // The copy was not converted for the cache.
            true => self.index.header_summary(sample).copied(),
            false => self.header_summaries.get(file.0, u32::try_from(offset).ok()?),
        }
    }

    pub(super) fn remove_superseded(&self, segment_index: SegmentIndex) {
        let Some(segment) = self.catalog().segment(segment_index) else { return };
        if self.forget(segment_index)
            && let Err(error) = self.directory.remove(segment.number)
        {
            self.failed(error.to_string());
        }
    }

    /// Removes a segment in which most samples are out of date, because their files have changed. The few current
    /// samples are not worth the space of the segment.
    pub(super) fn remove_stale(&self, segment_index: SegmentIndex) {
        let Some(segment) = self.catalog().segment(segment_index).filter(|_| self.directory.writable) else {
            return;
        };
        if self.forget(segment_index) {
            match self.directory.remove(segment.number) {
                Ok(bytes) => {
                    count(&self.counters.evicted_segments, 1);
                    count(&self.counters.evicted_bytes, bytes.unwrap_or(0));
                }
                Err(error) => self.failed(error.to_string()),
            }
        }
    }

    pub(super) fn failed(&self, error: String) {
        self.index.notices().warn_once("cache errors", || {
            format!(
                "cache error: {error}. Training continues, and samples that are not cached are read from the dataset"
            )
        });
        self.counters.failed(error);
    }

    pub(super) fn note_damage(&self, what: String) {
        self.index.notices().warn_once("damaged copies", || {
            format!(
                "cache segment {what}. Its samples are read from the dataset. If this happens again, check the drive"
            )
        });
        self.counters.note(format!("cache segment {what}"));
    }

    pub(super) fn note_stale(&self, sample: u64, samples: u64) {
        count(&self.counters.stale, samples);
        self.index.notices().warn_once("stale copies", || {
            let (path, name) = (self.index.shown_path(sample), self.name);
            let path = path.display();
            format!(
                "cached copies are out of date, because files have changed since, e.g. {path}: these samples are read \
                 from the dataset and cached again (stats()[\"cache\"][\"tiers\"][\"{name}\"][\"stale\"] counts them)"
            )
        });
    }

    /// Loads the segments that other processes published, and drops the segments that they evicted. Loading comes
    /// first, so that a sample that another process moved between segments is never missing.
    pub(super) fn refresh(&self) -> Result<()> {
        if !self.directory.is_ours() {
            return Ok(());
        }
        let mut refreshed = lock(&self.refreshed);
        if *refreshed == Some(self.directory.generation()?) {
            return Ok(());
        }
        // Take this list before the directory is listed. Otherwise a segment that this process publishes in between
        // would count as evicted.
        let known: Vec<(u32, u64)> =
            self.catalog().live().map(|(segment_index, segment)| (segment_index, segment.number)).collect();
        let (published, generation) = self.directory.published()?;
        let news: Vec<u64> = {
            let catalog = self.catalog();
            published.iter().copied().filter(|&number| !catalog.has(number)).collect()
        };
        self.load(&news);
        for (segment_index, number) in known {
            let superseded = self.catalog().segment(segment_index).is_some_and(|known| known.is_superseded());
            if !published.contains(&number) && self.forget(segment_index) && !superseded {
                count(&self.counters.vanished_segments, 1);
            }
        }
        *refreshed = Some(generation);
        Ok(())
    }

    /// Reads the footers of segments, by several threads if there are many: a drive serves small reads concurrently.
    fn load(&self, numbers: &[u64]) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&number) = numbers.get(next.fetch_add(1, Relaxed)) {
                self.load_one(number);
            }
        };
        std::thread::scope(|scope| {
            for i in 1..(numbers.len() / 16).min(16) {
                let thread = std::thread::Builder::new().name(format!("foreload-load-{i}"));
                if thread.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }

    fn load_one(&self, number: u64) {
        match self.read_segment(number) {
            Ok((stamp, footer)) => {
                let announced = self.catalog_mut().announce(number);
                if announced {
                    let segment_index = self.enter(number, &footer, &stamp);
                    self.place_loaded(segment_index, footer.rows);
                }
            }
            Err(SegmentError::Damaged(what)) => {
                count(&self.counters.damaged_segments, 1);
                let path = self.directory.segment_path(number);
                self.note_damage(format!("{}: {what}; it was removed", path.display()));
                if let Err(error) = self.directory.remove(number) {
                    self.failed(error.to_string());
                }
            }
            Err(SegmentError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(SegmentError::Io(error)) => {
                let path = self.directory.segment_path(number);
                self.failed(format!("read cache segment {}: {error}", path.display()));
            }
        }
    }

    /// Enters the samples of a segment of another run or process into the catalog, except samples of shards that have
    /// changed. This run has checked the versions of shards; the version of another file is checked before a copy of
    /// its sample is used.
    fn place_loaded(&self, segment_index: SegmentIndex, mut rows: Vec<SegmentRow>) {
        if self.verify == Verify::Never {
            // Even without verification, a copy of an impossible length cannot be the sample.
            rows.retain(|row| may_be(&self.index, row));
            return self.place(segment_index, &rows, true);
        }
        let (mut stale, mut shards) = (Vec::new(), Vec::new());
        let version = |row: &SegmentRow| {
            let extent = self.index.extent(row.sample);
            let Some(version) = self.index.known_version(extent.file) else {
                // The copy is compared when it is used. A copy of another length is of other files.
                return (!may_be(&self.index, row)).then_some(FileVersion::NO_COPY);
            };
            // The index may have been opened long ago. Its version of a shard counts only if the shard still had that
            // version when the store was opened.
            let same = self.shards.get(&self.index.versioned(extent)) == Some(&version);
            Some(if same { version } else { FileVersion::NO_COPY })
        };
        rows.retain(|row| match version(row) {
            None => true,
            Some(version) => {
                if version == row.version { &mut shards } else { &mut stale }.push(*row);
                false
            }
        });
        self.place(segment_index, &rows, false);
        self.place(segment_index, &shards, self.verify == Verify::Stamp);
        if let Some(first) = stale.first() {
            self.note_stale(first.sample, stale.len() as u64);
            if self.catalog_mut().note_stale(segment_index, stale.len() as u32) {
                self.remove_stale(segment_index);
            }
        }
    }

    pub(super) fn read_segment(&self, number: u64) -> Result<(Stamp, Footer), SegmentError> {
        let file = File::open(self.directory.segment_path(number))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(SegmentError::Io(io::Error::other("is not a file")));
        }
        let stamp = Stamp::of(&metadata);
        let footer = Footer::read(&file, stamp.size, self.directory.key, number, &self.index)?;
        Ok((stamp, footer))
    }
}

impl Files for StoreShared {
    fn path(&self, file: FileId) -> PathBuf {
        let segment = self.catalog().segment(file.0);
        self.directory.segment_path(segment.map_or(0, |segment| segment.number))
    }

    /// Returns size and modification time alone, because linking a segment changes its change time.
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        let segment = self.catalog().segment(file.0);
        Some(segment.map_or_else(Stamp::default, |segment| Stamp {
            size: segment.bytes,
            mtime: segment.mtime,
            ..Stamp::default()
        }))
    }

    fn never_change(&self) -> bool {
        true
    }

    fn is_gone(&self, file: FileId) -> bool {
        self.catalog().segment(file.0).is_none_or(|segment| segment.forgotten)
    }

    fn gone(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }
}
