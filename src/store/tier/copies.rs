//! The common interface of all tiers that keep copies: how to find, offer, read and report a copy.
//!
//! The [`super::Cache`] has a list of such tiers, from the fastest to the slowest, and uses only this interface. Each
//! tier is a [`CacheTier`], and lists its further abilities in its [`TierParts`]. CONTRIBUTING.md says how to add one.

use super::convert::{Conversion, ConversionResult};
use super::counters::{CopyCounters, CopyStats};
use crate::io::{ListeningReader, Reader, Waker};
use crate::peers::{CopyBytes, PeerStats};
use base::crc::checksum;
use base::error::Result;
use base::parts::RawHeaderSummary;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{Extent, FileId, FileVersion};
use data::schedule::Schedule;
use std::any::Any;
use std::collections::BTreeMap;

/// The location of a sample's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The copy's bytes. The file's number belongs to the tier, not to the index, and is never reused.
    pub extent: Extent,
    /// The [`checksum`] that the bytes must have; `None` if the tier's own reader verifies it.
    pub crc: Option<u32>,
    /// The version of the source file that the bytes come from; `None` if it is known only after the bytes were read.
    pub version: Option<FileVersion>,
    /// Whether this run has verified that the source's file has this version. If not, compare the versions before the
    /// bytes are used.
    pub checked: bool,
}

impl Location {
    /// Returns whether these bytes, read from this location, are the copy.
    pub fn is_copy(&self, bytes: &[u8]) -> bool {
        self.crc.is_none_or(|crc| checksum(bytes) == crc)
    }
}

/// The result of offering a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The sample was copied. It can be located now or soon, or never if writing it fails.
    Taken,
    /// The sample is kept in its group already, or on its way there.
    Present,
    /// The tier is full.
    Full,
    /// All write buffers wait for the drive.
    Busy,
    /// Nothing is taken for a while, because a write failed.
    Off,
}

/// The defect of a located copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFault {
    /// The copy was evicted and no longer exists.
    Gone,
    /// The copy could not be read, or its file has changed: it is shorter or newer than before.
    Unreadable,
    /// The copy's bytes do not match their checksum.
    Checksum,
    /// There is no defect, but the tier gives the copy only for a request with the version of the sample's file.
    Unconfirmed,
}

/// A tier that keeps copies of samples nearer than the source. All methods return at once; any thread may call them.
pub(super) trait CacheTier: Send + Sync {
    /// Returns the tier's name in statistics and logs.
    fn name(&self) -> TierName;

    /// Returns the tier's further abilities.
    fn parts(&self) -> TierParts<'_>;

    /// Returns the location of a sample's copy, if there is one.
    fn locate(&self, sample: u64) -> Option<Location>;

    /// Returns whether the tier takes samples now.
    fn is_open(&self) -> bool;

    /// Returns whether the tier takes samples when there is space. It does not if it is read-only, or if a write has
    /// failed.
    fn can_take(&self) -> bool;

    /// Offers a sample's bytes, to be kept with other samples of its `group`, which are evicted together. A sample that
    /// another group has moves to this group. `version` is the version that the sample's file had before it was read.
    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer;

    /// Records that the copy of a sample at `location` matches the source. This run does not check it again.
    fn confirm(&self, sample: u64, location: &Location);

    /// Drops the copy of a sample at `location`, which does not match the source any more.
    fn drop_stale(&self, sample: u64, location: &Location);

    /// Drops a copy that could not be read or was wrong, with its whole segment or block.
    fn damaged(&self, sample: u64, location: Location, why: CopyFault);

    /// Returns the counters and gauges.
    fn stats(&self) -> CopyStats;

    /// Returns a reader of the tier's copies, which reads into slots of the pool.
    fn reader(&self, slots: &SlotPool) -> TierReader;
}

/// The abilities that only some tiers have. A field is `None` if the tier lacks the ability.
#[derive(Clone, Copy, Default)]
pub(super) struct TierParts<'a> {
    /// Keeps copies on this node. If the tier is not also `shared`, the copies belong to this process alone.
    pub local: Option<&'a dyn LocalTier>,
    /// All ranks of the node share the tier, and the next run finds its copies.
    pub shared: Option<&'a dyn SharedTier>,
    /// The tier's copies can be converted to another storage format.
    pub convertible: Option<&'a dyn ConvertibleTier>,
    /// The tier stands for the caches of the job's other nodes.
    pub nodes: Option<&'a dyn NodesTier>,
}

impl TierParts<'_> {
    /// Returns the bytes that the tier may hold in total, on this node.
    pub(super) fn capacity(&self) -> u64 {
        self.local.map_or(0, LocalTier::capacity)
    }
}

/// When a tier must publish the samples that it has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publish {
    /// Soon, however few samples there are.
    Soon,
    /// Soon, because an epoch ends. A tier that had stopped filling then tries again.
    AtEnd,
    /// Now: the call waits until the samples are published or publishing has failed.
    Now,
}

/// A tier that keeps copies on this node. All methods return at once, except [`LocalTier::read_blocking`] and, with
/// [`Publish::Now`], [`LocalTier::publish`].
pub(super) trait LocalTier: Send + Sync {
    /// Returns the bytes that the tier may hold in total.
    fn capacity(&self) -> u64;

    /// Returns the bytes held for each group.
    fn groups(&self) -> BTreeMap<u64, u64>;

    /// Removes all samples of a group soon.
    fn evict_group(&self, group: u64);

    /// Publishes the samples that were taken.
    fn publish(&self, when: Publish);

    /// Marks every copy as unverified, as at the start of a run.
    fn mark_unverified(&self);

    /// Returns whether a sample of `length` bytes that is offered now is kept or refused without waiting for memory.
    fn offers_at_once(&self, group: u64, length: u32) -> bool;

    /// Reads a copy on the calling thread.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the copy cannot be read, with `NotFound` if the copy was removed.
    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>>;

    /// Returns the bytes of a copy for another node, or their place in a file.
    ///
    /// # Errors
    /// The defect of the copy; `None` if this process lacks a resource.
    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>>;

    /// Returns the tier's counters, which include its latest error that training continued after.
    fn counters(&self) -> &CopyCounters;
}

/// A tier that the ranks of a node share, and that is kept for the next run.
pub(super) trait SharedTier: Send + Sync {
    /// Locks a staging unit (a shard, by its number) of this dataset; `None` if another process has locked it. The lock
    /// ends when the returned value is dropped, or with the process.
    fn lock_unit(&self, unit: u64) -> Option<Box<dyn Any + Send>>;

    /// Returns the maximum number of bytes that the tier has taken but that cannot be located yet.
    fn unpublished(&self) -> u64;

    /// Removes soon a file of copies from an earlier run, because other nodes own its samples now.
    fn forget(&self, file: FileId);

    /// Returns the header summary (`header_summary`) of a sample's packed copy at `location`, if it is known and the
    /// tier's reader may read parts of the copy alone.
    fn header_summary(&self, sample: u64, location: &Location) -> Option<RawHeaderSummary>;
}

/// A tier whose copies can be converted to another storage format.
pub(super) trait ConvertibleTier: Send + Sync {
    /// Converts the copies of one file of copies, or of one block of memory. This takes a while.
    fn convert(&self, conversion: &mut Conversion<'_>) -> ConversionResult;

    /// If `wanted`, reserves space for the conversion of a file of copies; otherwise releases that space. Returns
    /// whether the tier is large enough for the reservation.
    fn reserve_for_conversion(&self, wanted: bool) -> bool;
}

/// A tier that stands for the caches of the job's other nodes.
pub(super) trait NodesTier: Send + Sync {
    /// Returns whether this tier, and none of this node's tiers, must keep a sample.
    fn is_responsible_for(&self, sample: u64) -> bool;

    /// Returns whether the tier would keep this sample if it were offered now.
    fn wants(&self, sample: u64) -> bool;

    /// Begins an epoch of this schedule, at this step.
    fn begin(&self, schedule: &Schedule, first_step: u64);

    /// Returns the statistics of requests to each of the job's nodes, by node name.
    fn peers(&self) -> Vec<(String, PeerStats)>;
}

/// Opens a reader. While the reader listens, its first answer calls the waker.
pub(super) type OpenListening = dyn FnOnce(Waker) -> Result<Box<dyn ListeningReader>>;

/// How to read the copies of a tier.
pub(super) enum TierReader {
    /// A reader that waits for its reads itself. The thread that drives it must open it.
    Waiting(Box<dyn FnOnce() -> Result<Box<dyn Reader>> + Send>),
    /// A reader that another thread drives.
    Listening(Box<OpenListening>),
}
