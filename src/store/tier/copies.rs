//! What all tiers that keep copies have in common: how a copy is found, offered, read and found wrong.
//!
//! The [`super::Cache`] has a list of such tiers, from the fastest to the slowest, and knows nothing else of them. Each
//! is a [`CacheTier`], and says by its [`TierParts`] what else it can do. CONTRIBUTING.md says how to add one.

use super::convert::{Conversion, ConversionResult};
use super::counters::{CopyCounters, CopyStats};
use crate::io::{ListeningReader, Reader, Waker};
use crate::peers::{CopyBytes, PeerStats};
use base::crc::checksum;
use base::error::Result;
use base::parts::RawOutline;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{Extent, FileId, FileVersion};
use data::schedule::Schedule;
use std::any::Any;
use std::collections::BTreeMap;

/// Where the copy of a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The copy's bytes. The file's number is the tier's own, never the index's, and never stands for anything else
    /// later.
    pub extent: Extent,
    /// The [`checksum`] that the bytes must have; `None` where the tier's own reader compares it.
    pub crc: Option<u32>,
    /// The version of the source's file that the bytes are of; `None` where only reading them tells.
    pub version: Option<FileVersion>,
    /// Whether that version is known to be the source's in this run; else it must be compared before the bytes are
    /// used.
    pub checked: bool,
}

impl Location {
    /// Whether these bytes, read from here, are the copy.
    pub fn is_copy(&self, bytes: &[u8]) -> bool {
        self.crc.is_none_or(|crc| checksum(bytes) == crc)
    }
}

/// What became of an offered sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The sample was copied. It can be located now or soon, or never if writing it fails.
    Taken,
    /// The sample is kept in its group already, or on its way there.
    Present,
    /// The tier's room is used up.
    Full,
    /// All write buffers wait for the drive.
    Busy,
    /// Nothing is taken for a while, because a write failed.
    Off,
}

/// What was wrong with a located sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFault {
    /// It is not there any more: it was evicted meanwhile.
    Gone,
    /// It could not be read, or is shorter or newer than it was.
    Unreadable,
    /// Its bytes do not have their checksum.
    Checksum,
    /// Nothing is wrong, but it is given only to who knows the version of its file.
    Unconfirmed,
}

/// A tier that keeps copies of samples nearer than the source. All methods return at once; any thread may call them.
pub(super) trait CacheTier: Send + Sync {
    /// What statistics and logs call it.
    fn name(&self) -> TierName;

    /// What else the tier can do.
    fn parts(&self) -> TierParts<'_>;

    /// The location of a sample's copy, if there is one.
    fn locate(&self, sample: u64) -> Option<Location>;

    /// Whether the tier takes samples now.
    fn is_open(&self) -> bool;

    /// Whether it takes samples once there is room. It does not where it can only be read, or a write has failed.
    fn can_take(&self) -> bool;

    /// Offers a sample's bytes, to be kept with other samples of its `group`. The samples of a group leave together; a
    /// sample that is kept in another group moves. The bytes are of the `version` that the sample's file had before it
    /// was read.
    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer;

    /// Notes that the copy of a sample at `location` is the source's: it need not be checked again in this run.
    fn confirm(&self, sample: u64, location: &Location);

    /// Notes that the copy of a sample at `location` is not the source's any more: it is forgotten.
    fn outdate(&self, sample: u64, location: &Location);

    /// Notes that a located sample could not be read or was wrong: it is forgotten, with what lies beside it.
    fn damaged(&self, sample: u64, location: Location, why: CopyFault);

    /// The counters and gauges.
    fn stats(&self) -> CopyStats;

    /// Who reads its copies into slots of the pool.
    fn reader(&self, slots: &SlotPool) -> TierReader;
}

/// What a tier can do beside what every tier does; `None` is what it cannot.
#[derive(Clone, Copy, Default)]
pub(super) struct TierParts<'a> {
    /// It has room on this node. Unless it is `shared`, that is this process's own.
    pub local: Option<&'a dyn LocalTier>,
    /// All ranks of the node have it together, and the next run has it again.
    pub shared: Option<&'a dyn SharedTier>,
    /// Its copies can be brought to another form.
    pub convertible: Option<&'a dyn ConvertibleTier>,
    /// It is the caches of the job's other nodes.
    pub nodes: Option<&'a dyn NodesTier>,
}

impl TierParts<'_> {
    /// The bytes that the tier may hold in all, on this node.
    pub(super) fn capacity(&self) -> u64 {
        self.local.map_or(0, LocalTier::capacity)
    }
}

/// When a tier is to publish what it has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publish {
    /// Soon, however little it is.
    Soon,
    /// Soon, because an epoch ends; the tier then tries again to fill where something had stopped that.
    AtEnd,
    /// Now: the call waits until it is done or given up.
    Now,
}

/// The part of a tier that has room on this node. All methods but [`LocalTier::read_blocking`] and, with
/// [`Publish::Now`], [`LocalTier::publish`] return at once.
pub(super) trait LocalTier: Send + Sync {
    /// The bytes that it may hold in all.
    fn capacity(&self) -> u64;

    /// The bytes held of each group.
    fn groups(&self) -> BTreeMap<u64, u64>;

    /// Removes all samples of a group soon.
    fn evict_group(&self, group: u64);

    /// Publishes what was taken.
    fn publish(&self, when: Publish);

    /// Has every copy checked once more before it is used again, as if a run began.
    fn doubt(&self);

    /// Whether a sample of so many bytes that is offered now is kept or refused without waiting for memory.
    fn offers_at_once(&self, group: u64, length: u32) -> bool;

    /// Reads a copy on the calling thread.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] when it cannot be read, `NotFound` where it is gone.
    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>>;

    /// The bytes of a copy for another node, or where they are.
    ///
    /// # Errors
    /// What is wrong with the copy; `None` where it is this process that lacks something.
    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>>;

    /// What it counts, with its latest failure that stopped nothing.
    fn counters(&self) -> &CopyCounters;
}

/// The part of a tier that the ranks of a node share, and that is kept for the next run.
pub(super) trait SharedTier: Send + Sync {
    /// Claims unit `unit` of this dataset for staging; `None` when another process has it. The claim ends with what is
    /// returned, or with the process.
    fn claim_unit(&self, unit: u64) -> Option<Box<dyn Any + Send>>;

    /// The bytes that were taken and cannot be located yet, at most.
    fn unpublished(&self) -> u64;

    /// Removes a file of copies soon, which an earlier run kept and other nodes are to keep now.
    fn forget(&self, file: FileId);

    /// The outline of a sample's packed copy at `location`, where that is known and the tier's reader may read parts of
    /// the copy alone.
    fn outline(&self, sample: u64, location: &Location) -> Option<RawOutline>;
}

/// The part of a tier whose copies can be brought to another form.
pub(super) trait ConvertibleTier: Send + Sync {
    /// Brings the copies of one file of copies, or block of memory, to another form. It takes its time.
    fn convert(&self, conversion: &mut Conversion<'_>) -> ConversionResult;

    /// Leaves room for the conversion of a file of copies, if that is `wanted`. Returns whether the tier is large
    /// enough for that.
    fn leave_spare(&self, wanted: bool) -> bool;
}

/// The part of a tier that is the caches of the job's other nodes.
pub(super) trait NodesTier: Send + Sync {
    /// Whether a sample is to be kept by this tier and by none of this node's.
    fn claims(&self, sample: u64) -> bool;

    /// Whether the tier would keep this sample, if it were offered now.
    fn wants(&self, sample: u64) -> bool;

    /// Notes that an epoch of this schedule begins, at this step.
    fn begin(&self, schedule: &Schedule, first_step: u64);

    /// What was asked of each of the job's nodes, by their names.
    fn peers(&self) -> Vec<(String, PeerStats)>;
}

/// Opens a reader, whose first answer calls the waker while it listens.
pub(super) type OpenListening = dyn FnOnce(Waker) -> Result<Box<dyn ListeningReader>>;

/// Who reads the copies of a tier.
pub(super) enum TierReader {
    /// A reader that waits for its reads itself; it is to be opened by the thread that drives it.
    Waiting(Box<dyn FnOnce() -> Result<Box<dyn Reader>> + Send>),
    /// A reader that somebody else works for.
    Listening(Box<OpenListening>),
}
