//! The cache directory, shared by processes and datasets: quota, reservations, publication and eviction.
//!
//! ```text
//! <directory>/lock                    format, next segment's number, generation; its byte ranges are locked
//! <directory>/<dataset>/used          users of the dataset share a lock on byte 0; its time: when it was last opened
//! <directory>/<dataset>/dataset.json  which dataset it is, for people
//! <directory>/<dataset>/<number>.seg  published segments, complete from the moment they have a name
//! ```
//! No file records the used space, so a crash cannot leave a wrong number. The used pages are counted: the pages of
//! published files, and for each segment being filled, a locked range of the lock file. The range is as long as the
//! pages reserved for the segment. Byte 0 of the lock file, locked briefly, makes counting and reserving one step. The
//! *generation* increases before each change of the directory, so that a process lists the directory only after a
//! change, and misses no change. A process that is killed loses its locks and its nameless files together.

mod enter;

use super::super::counters::CopyCounters;
use super::about;
use super::listing::{SegmentPages, datasets, last_use, segments};
use super::open_segment::OpenSegment;
use super::segment::{self, DatasetKey};
use super::setup::{GENERATION_AT, LOCK_LIMIT, wait_for};
use crate::segments::lock_file::NEXT_AT;
use crate::segments::{PAGE, nameless, pages, remove, u64_at};
use base::counting::count;
use base::error::{Error, Result};
use base::locks::lock;
use base::node::{LockKind, RangeLocks};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{fs, io};

/// The reservation of segment `n` is a byte range of the lock file that begins at `n << 24`. Each byte stands for a
/// page, so a segment has up to 64 GiB.
const NUMBER_SHIFT: u32 = 24;
/// The part of the lock file that has reservations.
pub(super) const RESERVATIONS: Range<u64> = 1 << NUMBER_SHIFT..i64::MAX as u64;

pub(super) struct CacheDirectory {
    path: PathBuf,
    /// The directory of this dataset's segments.
    pub(super) own: PathBuf,
    pub(super) key: DatasetKey,
    /// In pages.
    pub(super) quota: u64,
    pub(super) lock: RangeLocks,
    pub(super) marker: RangeLocks,
    pub(super) writable: bool,
    /// The pages that are reserved for the new segment of a conversion.
    conversion_reserve: AtomicU64,
    usage: Mutex<DirectoryUsage>,
    pub(super) units: Mutex<HashSet<u64>>,
    counters: Arc<CopyCounters>,
    process: u32,
}

#[derive(Default)]
struct DirectoryUsage {
    /// The generation at which `published` was listed.
    seen: Option<u64>,
    /// The pages of every published segment. The size of a published segment never changes.
    published: HashMap<DatasetKey, SegmentPages>,
    /// The sum of all pages in `published`, kept because every reservation needs it.
    sum: u64,
    reserved: HashMap<u64, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LockFileHeader {
    next: u64,
    generation: u64,
}

/// The directory while its lock is held.
struct LockedDirectory<'a> {
    directory: &'a CacheDirectory,
    usage: MutexGuard<'a, DirectoryUsage>,
    header: LockFileHeader,
}

impl CacheDirectory {
    fn new(
        path: PathBuf,
        key: DatasetKey,
        quota: u64,
        (lock, marker, writable): (RangeLocks, RangeLocks, bool),
        counters: Arc<CopyCounters>,
    ) -> Self {
        Self {
            own: path.join(key.to_string()),
            path,
            key,
            quota: quota / PAGE,
            lock,
            marker,
            writable,
            conversion_reserve: AtomicU64::new(0),
            usage: Mutex::default(),
            units: Mutex::default(),
            counters,
            process: std::process::id(),
        }
    }

    pub(super) fn segment_path(&self, number: u64) -> PathBuf {
        self.own.join(segment::name(number))
    }

    /// Returns whether this process opened the directory. A forked child must not use it, because it shares its
    /// parent's locks.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the current generation. It differs after each publication and eviction.
    pub(super) fn generation(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.lock
            .file()
            .read_exact_at(&mut bytes, GENERATION_AT)
            .map_err(|error| self.failed("read", error))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns the numbers of this dataset's published segments, and the generation at which they were listed.
    pub(super) fn published(&self) -> Result<(HashSet<u64>, u64)> {
        if !self.writable {
            // Without the lock, the list may miss a segment that another process is publishing. This process then sees
            // the segment only after the next change of the directory.
            let generation = self.generation()?;
            return Ok((segments(&self.own, None)?.into_keys().collect(), generation));
        }
        let mut guard = self.enter()?;
        guard.list_if_changed()?;
        guard.used()?;
        let numbers = guard.usage.published.get(&self.key).map(|own| own.keys().copied().collect());
        Ok((numbers.unwrap_or_default(), guard.header.generation))
    }

    pub(super) fn set_conversion_reserve(&self, pages: u64) {
        self.conversion_reserve.store(pages, Relaxed);
    }

    /// Begins a segment of `pages` pages for a group. If fewer pages are free, returns the number of free pages.
    pub(super) fn begin(self: &Arc<Self>, group: u64, pages: u64) -> Result<Result<OpenSegment, u64>> {
        let reserve = self.conversion_reserve.load(Relaxed);
        self.begin_in(group, pages, |guard| Ok(guard.make_room(pages + reserve)?.saturating_sub(reserve)))
    }

    /// Begins a segment for a conversion. Unlike [`CacheDirectory::begin`], may use the pages that are reserved for
    /// conversions, and evicts datasets that are not in use only with `may_leave`.
    pub(super) fn begin_conversion(
        self: &Arc<Self>,
        group: u64,
        pages: u64,
        may_leave: bool,
    ) -> Result<Result<OpenSegment, u64>> {
        self.begin_in(group, pages, |guard| if may_leave { guard.make_room(pages) } else { guard.free() })
    }

    fn begin_in(
        self: &Arc<Self>,
        group: u64,
        pages: u64,
        room: impl FnOnce(&mut LockedDirectory<'_>) -> Result<u64>,
    ) -> Result<Result<OpenSegment, u64>> {
        let file = nameless::create(&self.own)
            .map_err(|error| Error::io("create a segment in", &self.own, error))?;
        let mut guard = self.enter()?;
        let free = room(&mut guard)?;
        if free < pages {
            return Ok(Err(free));
        }
        let number = guard.header.next;
        guard.header.next += 1;
        guard.write_header()?;
        self.lock_range(&mut guard.usage, number, pages)?;
        drop(guard);
        let open = OpenSegment::new(self, file, (number, pages), group);
        open.map(Ok).map_err(|error| self.failed("hold", error))
    }

    /// Extends the reservation of a segment being filled to `pages` pages in total. If fewer pages are free, returns
    /// the number of pages that the segment could have.
    pub(super) fn extend(&self, open: &mut OpenSegment, pages: u64) -> Result<Result<(), u64>> {
        let more = pages.saturating_sub(open.reservation.pages);
        if more == 0 {
            return Ok(Ok(()));
        }
        let mut guard = self.enter()?;
        let reserve = self.conversion_reserve.load(Relaxed);
        let free = guard.make_room(more + reserve)?.saturating_sub(reserve);
        if free < more {
            return Ok(Err(open.reservation.pages + free));
        }
        self.lock_range(&mut guard.usage, open.reservation.number, pages)?;
        drop(guard);
        open.reservation.pages = pages;
        Ok(Ok(()))
    }

    fn lock_range(&self, usage: &mut DirectoryUsage, number: u64, pages: u64) -> Result<()> {
        let range = reservation(number, pages);
        match self.lock.try_lock(range, LockKind::Exclusive) {
            Ok(true) => {
                let before = usage.reserved.insert(number, pages).unwrap_or(0);
                count(&self.counters.used_bytes, (pages - before) * PAGE);
                Ok(())
            }
            Ok(false) => Err(self.failed("reserve", io::Error::from(io::ErrorKind::WouldBlock))),
            Err(error) => Err(self.failed("reserve", error)),
        }
    }

    /// Gives a segment its name and releases its reservation: from then on the size of its file counts as used instead.
    pub(super) fn publish(&self, open: &mut OpenSegment, bytes: u64) -> Result<()> {
        let number = open.reservation.number;
        debug_assert!(pages(bytes) <= open.reservation.pages, "grown beyond what was reserved");
        let mut guard = self.enter()?;
        guard.bump()?;
        open.link(&self.segment_path(number))?;
        guard.usage.published.entry(self.key).or_default().insert(number, pages(bytes));
        guard.usage.sum += pages(bytes);
        guard.usage.reserved.remove(&number);
        open.reservation.released = true;
        self.lock
            .unlock(reservation(number, open.reservation.pages))
            .map_err(|error| self.failed("unlock", error))
    }

    pub(super) fn release(&self, number: u64, pages: u64) {
        if self.is_ours() {
            lock(&self.usage).reserved.remove(&number);
            self.counters.freed(pages * PAGE);
            let _ = self.lock.unlock(reservation(number, pages));
        }
    }

    /// Unlinks a segment of this dataset. Returns its bytes if it existed.
    pub(super) fn remove(&self, number: u64) -> Result<Option<u64>> {
        if !self.writable {
            return Ok(None);
        }
        let mut guard = self.enter()?;
        guard.bump()?;
        guard.unlink(self.key, number)
    }

    /// Returns the number of pages that are free without evicting anything.
    pub(super) fn free(&self) -> Result<u64> {
        Ok(self.enter()?.free()?.saturating_sub(self.conversion_reserve.load(Relaxed)))
    }

    /// Evicts until the directory is within the quota, which may have been larger before.
    fn shrink(&self) -> Result<()> {
        let mut guard = self.enter()?;
        guard.list_if_changed()?;
        // Segment numbers must only grow, even if the lock file was created anew.
        let last = guard.usage.published.values().filter_map(|own| Some(*own.last_key_value()?.0)).max();
        let last = last.unwrap_or(0);
        if guard.header.next <= last {
            guard.header.next = last + 1;
            guard.write_header()?;
        }
        if guard.used()? > self.quota {
            guard.evict(0, true)?;
        }
        Ok(())
    }

    fn enter(&self) -> Result<LockedDirectory<'_>> {
        let usage = lock(&self.usage);
        wait_for(&self.lock, &self.path, LOCK_LIMIT)?;
        let mut guard =
            LockedDirectory { directory: self, usage, header: LockFileHeader { next: 0, generation: 0 } };
        guard.header = guard.read_header()?;
        Ok(guard)
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, self.path.join("lock"), error)
    }
}

impl Drop for CacheDirectory {
    fn drop(&mut self) {
        // Closing the file unlocks it too, but a process that is being started may hold the descriptor for a moment.
        if self.is_ours() {
            let _ = self.marker.unlock(0..1);
        }
    }
}

impl LockedDirectory<'_> {
    fn read_header(&self) -> Result<LockFileHeader> {
        let file = self.directory.lock.file();
        let failed = |error| self.directory.failed("read", error);
        if file.metadata().map_err(failed)?.nlink() == 0 {
            return Err(Error::Unavailable(format!(
                "the cache directory {} was removed while it was in use",
                self.directory.path.display()
            )));
        }
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, NEXT_AT).map_err(failed)?;
        Ok(LockFileHeader { next: u64_at(&bytes, 0).max(1), generation: u64_at(&bytes, 8) })
    }

    fn write_header(&self) -> Result<()> {
        let bytes = [self.header.next.to_le_bytes(), self.header.generation.to_le_bytes()].concat();
        let written = self.directory.lock.file().write_all_at(&bytes, NEXT_AT);
        written.map_err(|error| self.directory.failed("write", error))
    }

    /// Increases the generation, because the directory is about to change.
    fn bump(&mut self) -> Result<()> {
        let before = self.header.generation;
        self.header.generation += 1;
        self.write_header()?;
        // The list includes this process's own changes already. Changes by others must still be listed.
        if self.usage.seen == Some(before) {
            self.usage.seen = Some(self.header.generation);
        }
        Ok(())
    }

    /// Lists the directory if another process changed it. Sizes are queried once, because segments never change.
    fn list_if_changed(&mut self) -> Result<()> {
        if self.usage.seen == Some(self.header.generation) {
            return Ok(());
        }
        let mut published = HashMap::new();
        for (key, path) in datasets(&self.directory.path)? {
            published.insert(key, segments(&path, self.usage.published.get(&key))?);
        }
        self.usage.sum = published.values().flat_map(SegmentPages::values).sum();
        self.usage.published = published;
        self.usage.seen = Some(self.header.generation);
        Ok(())
    }

    /// Returns the number of used pages: the published pages, and the pages that this process and others have reserved.
    /// Call [`LockedDirectory::list_if_changed`] first.
    fn used(&self) -> Result<u64> {
        let others = self.directory.lock.locked_by_others(RESERVATIONS);
        let others = others.map_err(|error| self.directory.failed("look at locks of", error))?;
        let reserved: u64 = others.iter().map(|range| range.end - range.start).sum();
        let own: u64 = self.usage.reserved.values().sum();
        let used = self.usage.sum + own + reserved;
        self.directory.counters.used_bytes.store(used * PAGE, Relaxed);
        Ok(used)
    }

    fn free(&mut self) -> Result<u64> {
        self.list_if_changed()?;
        Ok(self.directory.quota.saturating_sub(self.used()?))
    }

    /// Evicts unused datasets until `wanted` pages are free. Returns the number of free pages.
    fn make_room(&mut self, wanted: u64) -> Result<u64> {
        let free = self.free()?;
        if free >= wanted {
            return Ok(free);
        }
        // List the directory again before evicting: files may have been removed by hand.
        self.usage.seen = None;
        self.list_if_changed()?;
        self.evict(wanted, false)?;
        self.free()
    }

    /// Evicts until `wanted` pages are free. Evicts datasets that are not in use first, beginning with the least
    /// recently used. Then, with `even_used`, evicts the oldest segments of the datasets in use.
    fn evict(&mut self, wanted: u64, even_used: bool) -> Result<()> {
        let limit = self.directory.quota.saturating_sub(wanted);
        let mut excess = self.used()?.saturating_sub(limit);
        let path = |key: &DatasetKey| self.directory.path.join(key.to_string());
        let (mut unused, mut used) = (Vec::new(), Vec::new());
        for &key in self.usage.published.keys() {
            match last_use(&path(&key)) {
                Some(time) => unused.push((time, key)),
                None => used.push(key),
            }
        }
        unused.sort_unstable();
        let segments = |key: &DatasetKey| {
            let numbers = self.usage.published[key].keys();
            numbers.map(|&number| (number, *key)).collect::<Vec<_>>()
        };
        let mut order: Vec<(u64, DatasetKey)> = unused.iter().flat_map(|(_, key)| segments(key)).collect();
        if even_used {
            let mut oldest: Vec<(u64, DatasetKey)> = used.iter().flat_map(segments).collect();
            oldest.sort_unstable();
            order.extend(oldest);
        }
        if excess == 0 || order.is_empty() {
            return Ok(());
        }
        self.bump()?;
        for (number, key) in order {
            if excess == 0 {
                break;
            }
            if let Some(bytes) = self.unlink(key, number)? {
                excess = excess.saturating_sub(pages(bytes));
                count(&self.directory.counters.evicted_segments, 1);
                count(&self.directory.counters.evicted_bytes, bytes);
            }
        }
        for (_, key) in unused {
            if self.usage.published[&key].is_empty() {
                self.usage.published.remove(&key);
                // Ignore errors: a directory that still holds other files cannot be removed.
                let _ = about::forget(&self.directory.path.join(key.to_string()));
            }
        }
        Ok(())
    }

    fn unlink(&mut self, key: DatasetKey, number: u64) -> Result<Option<u64>> {
        let path = self.directory.path.join(key.to_string()).join(segment::name(number));
        let bytes = fs::symlink_metadata(&path).map(|found| found.len());
        let was_there = remove(&path).map_err(|error| Error::io("evict", path, error))?;
        let removed = was_there.then(|| bytes.unwrap_or(0));
        let known = self.usage.published.get_mut(&key).and_then(|segments| segments.remove(&number));
        self.usage.sum -= known.unwrap_or(0);
        self.directory.counters.freed(removed.map_or(0, pages) * PAGE);
        Ok(removed)
    }
}

impl Drop for LockedDirectory<'_> {
    fn drop(&mut self) {
        let _ = self.directory.lock.unlock(0..1);
    }
}

fn reservation(number: u64, pages: u64) -> Range<u64> {
    let start = number << NUMBER_SHIFT;
    start..start + pages
}
