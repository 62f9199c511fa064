//! The common interface of all tiers that keep copies: how to find, offer, read and report a copy.
//!
//! The [`super::Cache`] has a list of such tiers, from the fastest to the slowest, and uses only this interface. Each
//! tier is a [`CacheTier`], and [`TierParts`] lists its optional abilities. CONTRIBUTING.md describes how to add a
//! tier.

use super::convert::{Conversion, ConversionResult};
use super::counters::{CopyCounters, CopyStats};
use super::peers::OtherNodes;
use super::store::Store;
use crate::io::{ListeningReader, Reader, Waker};
use crate::peers::CopyBytes;
use base::crc::checksum;
use base::error::Result;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{Extent, FileVersion};
use std::collections::BTreeMap;

/// The location of a sample's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The extent of the copy's bytes. Its `file` is a number of the tier (not of the dataset's index) that is never
    /// reused.
    pub extent: Extent,
    /// The [`checksum`] of the bytes; `None` if the tier's own reader verifies it.
    pub crc: Option<u32>,
    /// The version of the source file from which the bytes come; `None` if it is known only after the bytes are read.
    pub version: Option<FileVersion>,
    /// Whether this run has verified that the source file still has this version. If not, compare the versions before
    /// the bytes are used.
    pub checked: bool,
}

impl Location {
    /// Returns whether `bytes`, which were read from this location, have the expected checksum.
    pub fn is_copy(&self, bytes: &[u8]) -> bool {
        self.crc.is_none_or(|crc| checksum(bytes) == crc)
    }
}

/// The result of offering a sample to a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The tier copied the sample. The copy can be located now or soon; if it cannot be written, never.
    Taken,
    /// The tier already has the sample in this group, or is writing it.
    Present,
    /// The tier is full.
    Full,
    /// All write buffers wait for the drive.
    Busy,
    /// The tier takes nothing for a while, because a write failed.
    Off,
}

/// The reason why a copy that was located cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFault {
    /// The copy was evicted.
    Gone,
    /// The copy could not be read, or its file has changed since it was located.
    Unreadable,
    /// The copy's bytes do not match their checksum.
    Checksum,
    /// The copy has no defect, but the tier returns it only for a request that contains the version of the source file.
    Unconfirmed,
}

/// A tier that keeps copies of samples, faster than the source. All methods return at once, and any thread may call
/// them.
pub(super) trait CacheTier: Send + Sync {
    fn name(&self) -> TierName;

    fn parts(&self) -> TierParts<'_>;

    fn locate(&self, sample: u64) -> Option<Location>;

    fn is_open(&self) -> bool;

    /// Returns whether the tier would take samples if it had space. It would not if it is read-only or a write has
    /// failed.
    fn can_take(&self) -> bool;

    /// Offers a sample's bytes to the tier. The samples of a `group` are evicted together. A sample that another group
    /// has moves to this group. `version` is the version that the source file had before the sample was read.
    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer;

    /// Records that the copy of a sample at `location` matches the source, so that this run does not check it again.
    fn confirm(&self, sample: u64, location: &Location);

    /// Drops the copy of a sample at `location`, which no longer matches the source.
    fn drop_stale(&self, sample: u64, location: &Location);

    /// Drops a copy that cannot be used because of `why`, together with its whole segment.
    fn damaged(&self, sample: u64, location: Location, why: CopyFault);

    fn stats(&self) -> CopyStats;

    fn reader(&self, slots: &SlotPool) -> TierReader;
}

/// The abilities that only some tiers have. A field is `None` if the tier lacks the ability.
#[derive(Clone, Copy, Default)]
pub(super) struct TierParts<'a> {
    /// Keeps copies on this node. Without `shared`, the copies belong to this process alone.
    pub local: Option<&'a dyn LocalTier>,
    /// The store that all ranks of the node share, and whose copies the next run finds.
    pub shared: Option<&'a Store>,
    /// Can convert copies to another storage format.
    pub convertible: Option<&'a dyn ConvertibleTier>,
    /// The caches of the job's other nodes.
    pub nodes: Option<&'a OtherNodes>,
}

impl TierParts<'_> {
    pub(super) fn capacity(&self) -> u64 {
        self.local.map_or(0, LocalTier::capacity)
    }
}

/// When a tier makes the samples that it has taken readable (publishes them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publish {
    /// Soon, even if there are only few samples.
    Soon,
    /// Soon, because an epoch ends. A tier that has stopped filling tries again.
    AtEnd,
    /// Now. The call waits until the samples are readable or could not be written.
    Now,
}

/// A tier that keeps copies on this node. All methods return at once, except [`LocalTier::read_blocking`] and, with
/// [`Publish::Now`], [`LocalTier::publish`].
pub(super) trait LocalTier: Send + Sync {
    fn capacity(&self) -> u64;

    fn groups(&self) -> BTreeMap<u64, u64>;

    /// Removes all samples of a group, at once or a little later.
    fn evict_group(&self, group: u64);

    fn publish(&self, when: Publish);

    fn mark_unverified(&self);

    /// Returns whether the tier can keep or refuse a sample of `length` bytes without waiting for memory.
    fn offers_at_once(&self, group: u64, length: u32) -> bool;

    /// Reads a copy on the calling thread.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the copy cannot be read, with `NotFound` if the copy was removed.
    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>>;

    /// Returns the bytes of a copy for another node, or their location in a file.
    ///
    /// # Errors
    /// The defect of the copy, or `None` if this process lacks a resource.
    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>>;

    /// Returns the counters, which include the latest error despite which training continued.
    fn counters(&self) -> &CopyCounters;
}

pub(super) trait ConvertibleTier: Send + Sync {
    /// Converts the copies of one segment, which takes a while.
    fn convert(&self, conversion: &mut Conversion<'_>) -> ConversionResult;

    /// If `wanted`, reserves space for the conversion of a segment; otherwise releases that space. Returns whether the
    /// tier is large enough for the reservation.
    fn reserve_for_conversion(&self, wanted: bool) -> bool;
}

/// Opens a reader that another thread drives. The argument is called when the first completion arrives while the reader
/// listens.
pub(super) type OpenListening = dyn FnOnce(Waker) -> Result<Box<dyn ListeningReader>>;

pub(super) enum TierReader {
    /// A reader that waits for its reads itself, opened by the thread that will drive it.
    Waiting(Box<dyn FnOnce() -> Result<Box<dyn Reader>> + Send>),
    /// A reader that another thread drives.
    Listening(Box<OpenListening>),
}
