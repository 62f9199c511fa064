//! The store: samples in segment files on a local drive, shared by all processes that use the same directory.
//!
//! A sample that is offered is copied into a write buffer. Full buffers go to the store's writer thread, which appends
//! them to the *segment* being filled. The writer publishes a segment that is large enough, or all segments on request.
//! Published segments never change. They are read like shards, by any [`crate::io::Reader`] over [`Store::files`]. →
//! `tests/load/store/`
//!
//! - **Bytes are right or missing.** A segment gets its name only when all of it is written. Its table has a checksum,
//!   and so has each sample. A segment that fails a check is unlinked, and its samples are read from the source again.
//! - **The quota holds at every instant**, including segments being filled, over all processes and datasets in the
//!   directory. A process that is killed leaves nothing in the directory ([`directory`] says how).
//! - **The store is filled once.** When the quota is used up no more samples are taken: with one cache for all ranks no
//!   policy has more hits. Only segments of datasets that are not in use are evicted for other datasets. If the quota
//!   was lowered, the oldest segments are evicted.
//! - A segment that another process evicts is unlinked. Readers that have it open continue, and its bytes stay on the
//!   drive until they close it.

mod about;
mod convert;
mod directory;
mod header_summaries;
pub mod inspect;
mod listing;
mod open_segment;
mod segment;
mod setup;
mod shared;
mod unit;
mod verify;
mod write_buffer;
mod writer;

pub use unit::UnitLock;
pub use verify::Verify;

use super::convert::{assert_is_copy, form_of_record};
use super::copies::{CopyFault, Location, Offer};
use super::counters::{CopyCounters, CopyStats};
use crate::io::Files;
use crate::segments::drive::WriteFaults;
use crate::segments::{PAGE, pages};
use base::counting::count;
use base::error::{Error, Result};
use base::locks::lock;
use base::parts::RawHeaderSummary;
use base::threads::BackgroundThread;
use base::tier_name::TierName;
use base::trace::Trace;
use crossbeam_channel::Sender;
use data::dataset::{DatasetIndex, FileId, FileVersion};
use directory::CacheDirectory;
use segment::footer_bytes;
use shared::{StoreShared, StoreState};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use write_buffer::WriteBuffers;
use writer::{SegmentWriter, WriterCommand};

/// The bytes of the largest segment, unless a sample is larger: offsets in a segment have 32 bits.
const LARGEST_SEGMENT: u64 = 1 << 30;
/// How long dropping a store waits for its writer to write, and then for the writer to end.
const END_LIMITS: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(200)];

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The cache directory (`cache.path`), which is created if it is missing. Other datasets and processes may share
    /// it.
    pub directory: PathBuf,
    /// Bytes that all segments of all datasets in the directory may take together (`cache.size`), including segments
    /// being filled. Sizes are counted in pages of 4 KiB; the lock file, tags and directories themselves do not count.
    pub quota: u64,
    /// The approximate bytes of a segment; `None` means a 64th of the quota, from 1 to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Bytes that may wait to be written. One sample may always wait, however large it is.
    pub write_buffers: usize,
    /// How copies of earlier runs and other processes are verified to match the source.
    pub verify: Verify,
    /// Writes that fail on purpose, for tests.
    pub faults: Option<WriteFaults>,
    /// The name of the tier in statistics and logs.
    pub name: TierName,
    /// The trace to which writes are logged.
    pub trace: Trace,
}

impl StoreOptions {
    /// Makes options for `quota` bytes in `directory`, with defaults for everything else.
    pub fn new(directory: impl Into<PathBuf>, quota: u64) -> Self {
        Self {
            directory: directory.into(),
            quota,
            segment_bytes: None,
            write_buffers: 32 << 20,
            verify: Verify::default(),
            faults: None,
            name: TierName::NVME,
            trace: Trace::off(),
        }
    }
}

/// The samples of one dataset that are kept in a cache directory.
pub struct Store {
    shared: Arc<StoreShared>,
    buffers: Mutex<WriteBuffers>,
    commands: Sender<WriterCommand>,
    writer: BackgroundThread,
    segment_bytes: u64,
}

impl Store {
    /// Checks for settings that are wrong for any directory.
    ///
    /// # Errors
    /// [`Error::Config`] for a `cache.size` below the smallest workable quota, which the error names, and for a
    /// `cache.path` inside the dataset.
    pub fn check(options: &StoreOptions, index: &DatasetIndex) -> Result<()> {
        check_quota(options.quota, index)?;
        let directory = std::path::absolute(&options.directory)
            .map_err(|error| Error::io("resolve", &options.directory, error))?;
        setup::refuse_inside(&directory, index)
    }

    /// Opens the cache directory, or creates it, brings it below the quota and loads its copies of this dataset. If the
    /// directory cannot be written, or a process that makes no progress holds its lock, its copies are only read, and a
    /// warning says so.
    ///
    /// # Errors
    /// The errors of [`Store::check`]; [`Error::Unavailable`] for a directory of another program or format, on an
    /// unsuitable file system, or if no thread can be started; [`Error::Io`] if it cannot be created or read.
    pub fn open(options: &StoreOptions, index: &Arc<DatasetIndex>) -> Result<Arc<Self>> {
        Self::check(options, index)?;
        let counters = Arc::new(CopyCounters::default());
        let directory = CacheDirectory::open(&options.directory, options.quota, index, counters.clone())?;
        let shared =
            Arc::new(StoreShared::new(index.clone(), options.name, directory, counters, options.verify));
        shared.refresh()?;
        let segment_bytes = options.segment_bytes.unwrap_or((options.quota / 64).clamp(1 << 20, 64 << 20));
        let segment_bytes = segment_bytes.min(LARGEST_SEGMENT);
        let (commands, asked) = crossbeam_channel::unbounded();
        let (written, empty) = crossbeam_channel::unbounded();
        let writer = SegmentWriter::new(shared.clone(), asked, written, segment_bytes, options);
        let end = WriterEnd(shared.clone());
        let run = move || {
            let _end = end;
            writer.run();
        };
        let writer = BackgroundThread::start("foreload-cache", "a thread of the cache", run)?;
        let buffers = Mutex::new(WriteBuffers::new(options.write_buffers, empty, commands.clone()));
        Ok(Arc::new(Self { shared, buffers, commands, writer, segment_bytes }))
    }

    /// Returns the location of a sample's copy, if there is one. Takes some 20 ns, or 150 ns if the sample is far from
    /// the previously located sample in a large dataset. Never waits for I/O.
    ///
    /// # Panics
    /// Panics if the dataset has no such sample.
    pub fn locate(&self, sample: u64) -> Option<Location> {
        self.shared.catalog().location(sample)
    }

    /// Records that the copy of a sample at `location` matches the source. This run does not check it again.
    pub fn confirm(&self, sample: u64, location: &Location) {
        self.shared.catalog_mut().confirm(sample, location.extent.file.0);
    }

    /// Marks every copy as unverified.
    pub fn mark_unverified(&self) {
        self.shared.catalog_mut().mark_unverified();
    }

    /// Drops the copy of a sample at `location`, which does not match the source any more. The sample may be offered
    /// again.
    pub fn drop_stale(&self, sample: u64, location: &Location) {
        let segment_index = location.extent.file.0;
        let (was_there, mostly) = self.shared.catalog_mut().drop_stale(sample, segment_index);
        if was_there {
            self.shared.note_stale(sample, 1);
        }
        if mostly {
            let _ = self.commands.send(WriterCommand::RemoveStale(segment_index));
        }
    }

    /// Returns whether the store takes samples now: the directory is writable, the store has space, and it does not
    /// pause after a failed write.
    pub fn is_open(&self) -> bool {
        self.shared.store_state() == StoreState::Open && self.shared.directory.writable
    }

    /// Returns whether the store takes samples whenever it has space: the directory is writable, and the store does not
    /// pause after a failed write.
    pub fn can_take(&self) -> bool {
        self.shared.store_state() != StoreState::Off && self.shared.directory.writable
    }

    /// Returns the segments as files that a reader opens like shards. They can still be read after the store is
    /// dropped.
    pub fn files(&self) -> Arc<dyn Files> {
        self.shared.clone()
    }

    /// Offers a sample's bytes, to be kept in a segment with other samples of its `group`, which are evicted together.
    /// A group number has the same meaning in every run. If the sample is already kept in another group, it moves to
    /// this group. `version` is the version that the sample's file had before it was read. Copying takes about 10 µs
    /// for 110 KB. Never waits for I/O.
    ///
    /// # Panics
    /// Panics if the dataset has no such sample, or if `bytes` has neither the length of the sample nor a possible
    /// length of a copy in another storage format.
    pub fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        assert_is_copy(&self.shared.index, sample, bytes);
        let counters = &self.shared.counters;
        let refused = |counter, offer| {
            count(counter, 1);
            offer
        };
        if self.shared.catalog().keeps(sample, group) {
            return Offer::Present;
        }
        match self.shared.store_state() {
            StoreState::Open => {}
            StoreState::Full => return refused(&counters.dropped_full, Offer::Full),
            StoreState::Off => return refused(&counters.dropped_off, Offer::Off),
        }
        if !self.shared.directory.is_ours() || !self.shared.directory.writable {
            // A forked child has the queue but no writer.
            return refused(&counters.dropped_off, Offer::Off);
        }
        let mut buffers = lock(&self.buffers);
        let Some(buffer) = buffers.buffer_for(group, bytes.len()) else {
            return refused(&counters.dropped_busy, Offer::Busy);
        };
        if !self.shared.catalog_mut().mark_pending(sample, group) {
            return Offer::Present;
        }
        buffer.push(sample, version, form_of_record(&self.shared.index, sample, bytes), bytes);
        Offer::Taken
    }

    /// Publishes the samples that were taken, however few, so that they can soon be read. Returns at once.
    pub fn publish(&self) {
        self.hand_over_all(WriterCommand::Publish);
    }

    /// Publishes like [`Store::publish`], and takes samples again if an error or the quota had stopped that. Meant for
    /// the end of an epoch. Returns at once.
    pub fn publish_at_end(&self) {
        self.hand_over_all(WriterCommand::PublishAtEnd);
    }

    fn hand_over_all(&self, then: WriterCommand) {
        let mut buffers = lock(&self.buffers);
        buffers.hand_over_all();
        let _ = self.commands.send(then);
    }

    /// Publishes the taken samples, like [`Store::publish_at_end`], and waits until that is done or has failed.
    pub fn flush(&self) {
        if self.shared.directory.is_ours() {
            self.publish_at_end();
            let (done, all) = crossbeam_channel::bounded(0);
            let _ = self.commands.send(WriterCommand::Signal(done));
            // The writer answers by dropping the sender.
            let _ = all.recv();
        }
    }

    pub(in crate::tier) fn groups(&self) -> BTreeMap<u64, u64> {
        self.shared.catalog().groups()
    }

    /// Removes all segments of a group soon, including those of other processes. Returns at once.
    pub fn evict_group(&self, group: u64) {
        if !self.shared.directory.writable {
            return;
        }
        let mut buffers = lock(&self.buffers);
        buffers.hand_over(group);
        let _ = self.commands.send(WriterCommand::EvictGroup(group));
    }

    /// Reports that a located sample could not be read or was wrong. The sample's whole segment is forgotten at once
    /// and, unless it was removed already, unlinked soon. The call is cheap. A segment counts once, however many of its
    /// samples are reported.
    pub fn damaged(&self, sample: u64, location: Location, why: CopyFault) {
        let segment_index = location.extent.file.0;
        let segment = self.shared.catalog().segment(segment_index);
        let Some(segment) = segment.filter(|_| self.shared.forget(segment_index)) else { return };
        let counters = &self.shared.counters;
        if why == CopyFault::Gone {
            return count(&counters.vanished_segments, 1);
        }
        count(&counters.damaged_segments, 1);
        let path = self.shared.directory.segment_path(segment.number);
        let what = if why == CopyFault::Checksum { "has a wrong checksum" } else { "cannot be read" };
        self.shared
            .note_damage(format!("{}: sample {sample} {what}; the segment is removed", path.display()));
        let _ = self.commands.send(WriterCommand::Remove(segment.number));
    }

    /// Loads the segments that other processes published, and drops the segments that they evicted. Takes a microsecond
    /// if nothing changed. Otherwise the call reads the footers of the new segments, so a reading thread must not make
    /// it. The writer makes it ten times a second.
    pub fn refresh(&self) {
        if let Err(error) = self.shared.refresh() {
            self.shared.failed(error.to_string());
        }
    }

    /// Locks a staging unit (a shard, by its number) of this dataset; `None` if this or another process has locked it.
    /// The kernel releases the lock when the returned value is dropped, or with the process.
    pub fn lock_unit(&self, unit: u64) -> Option<UnitLock> {
        UnitLock::take(&self.shared, unit)
    }

    /// Returns the counters and gauges of the store.
    pub fn stats(&self) -> CopyStats {
        let (held_samples, held_bytes) = self.shared.catalog().held();
        let quota_bytes = self.shared.directory.quota * PAGE;
        CopyStats { held_samples, held_bytes, quota_bytes, ..self.shared.counters.read() }
    }

    /// Returns the latest failure of a write, of a listing of the directory, or of a segment.
    pub fn last_error(&self) -> Option<String> {
        self.shared.counters.last_error()
    }

    pub(in crate::tier) fn counters(&self) -> &CopyCounters {
        &self.shared.counters
    }

    /// Returns the maximum number of bytes that the store has taken but that are not yet readable.
    pub(in crate::tier) fn unpublished(&self) -> u64 {
        2 * self.segment_bytes
    }

    /// Removes a segment of an earlier run, because other nodes own its samples now.
    pub(in crate::tier) fn forget(&self, file: FileId) {
        let _ = self.commands.send(WriterCommand::RemoveStale(file.0));
    }

    /// Returns the summary of the header of a packed copy at `location`, if it is known and the tier's reader may read
    /// only parts of the copy.
    pub(in crate::tier) fn header_summary(
        &self,
        sample: u64,
        location: &Location,
    ) -> Option<RawHeaderSummary> {
        self.shared.header_summary(sample, location)
    }
}

/// Stops the store from taking samples when the writer ends, for whatever reason.
struct WriterEnd(Arc<StoreShared>);

impl Drop for WriterEnd {
    fn drop(&mut self) {
        self.0.set_state(StoreState::Off);
        if std::thread::panicking() {
            let defect = "the cache's writer thread panicked, and nothing more is cached: this is a bug in Foreload; \
                 please report it";
            self.0.failed(defect.to_owned());
        }
    }
}

/// Publishes the taken samples, and abandons samples that the drive does not take within a second.
impl Drop for Store {
    fn drop(&mut self) {
        // A forked child has no writer, and must not end the parent's.
        if !self.shared.directory.is_ours() {
            return;
        }
        self.publish_at_end();
        let _ = self.commands.send(WriterCommand::Stop);
        for limit in END_LIMITS {
            if self.writer.end(limit) {
                return;
            }
            self.shared.abandoned.store(true, Relaxed);
        }
    }
}

fn check_quota(quota: u64, index: &DatasetIndex) -> Result<()> {
    let largest = index.largest();
    let smallest = pages(u64::from(largest) + footer_bytes(1)) * PAGE;
    if quota < smallest {
        let message = format!(
            "is {quota} bytes, must be at least {smallest}, to hold a segment with the largest sample ({largest} \
             bytes)"
        );
        return Err(Error::config("cache_size", message));
    }
    Ok(())
}
