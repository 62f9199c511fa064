//! What all tiers that keep copies have in common: how a copy is found, offered, read and found wrong.
//!
//! The [`super::Cache`] has a list of such tiers, from the fastest to the slowest, and knows nothing else of them. To
//! add one, implement [`CacheTier`], and open it in `cache/open.rs`.

use super::convert::{Conversion, ConversionResult};
use super::counters::CopyStats;
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

/// A tier that keeps copies of samples nearer than the source. All methods but [`CacheTier::flush`] and
/// [`CacheTier::read_blocking`] return at once, and any thread may call them.
pub trait CacheTier: Send + Sync {
    /// What statistics and logs call it.
    fn name(&self) -> TierName;

    /// The bytes that it may hold in all.
    fn capacity(&self) -> u64;

    /// Whether all ranks of the node have it together; else each process has its own.
    fn is_shared(&self) -> bool;

    /// The location of a sample's copy, if there is one.
    fn locate(&self, sample: u64) -> Option<Location>;

    /// The outline of a sample's packed copy at `location`, where that is known and the tier's reader may read parts of
    /// the copy alone.
    fn outline(&self, _sample: u64, _location: &Location) -> Option<RawOutline> {
        None
    }

    /// Whether the tier is the caches of the job's other nodes. Then it has no room of its own, and says by
    /// [`CacheTier::claims`] which samples the tiers of this node leave to it.
    fn spans_nodes(&self) -> bool {
        false
    }

    /// Whether a sample is to be kept by this tier and no other.
    fn claims(&self, _sample: u64) -> bool {
        false
    }

    /// Whether the tier would keep this sample, if it were offered now.
    fn wants(&self, _sample: u64) -> bool {
        self.is_open()
    }

    /// Notes that an epoch of this schedule begins, at this step.
    fn begin(&self, _schedule: &Schedule, _first_step: u64) {}

    /// Whether the tier takes samples now.
    fn is_open(&self) -> bool;

    /// Whether it takes samples once there is room. It does not where it can only be read, or a write has failed.
    fn can_take(&self) -> bool;

    /// Offers a sample's bytes, to be kept with other samples of its `group`. The samples of a group leave together; a
    /// sample that is kept in another group moves. The bytes are of the `version` that the sample's file had before it
    /// was read.
    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer;

    /// Whether a sample of so many bytes that is offered now is kept or refused without waiting for memory.
    fn offers_at_once(&self, _group: u64, _length: u32) -> bool {
        true
    }

    /// Notes that the copy of a sample at `location` is the source's: it need not be checked again in this run.
    fn confirm(&self, sample: u64, location: &Location);

    /// Has every copy checked once more before it is used again, as if a run began.
    fn doubt(&self);

    /// Notes that the copy of a sample at `location` is not the source's any more: it is forgotten.
    fn outdate(&self, sample: u64, location: &Location);

    /// Removes a file of copies soon, which an earlier run kept and other nodes are to keep now. A tier without copies
    /// of earlier runs has none.
    fn forget(&self, _file: FileId) {}

    /// Notes that a located sample could not be read or was wrong: it is forgotten, with what lies beside it.
    fn damaged(&self, sample: u64, location: Location, why: CopyFault);

    /// The bytes held of each group.
    fn groups(&self) -> BTreeMap<u64, u64>;

    /// Removes all samples of a group soon.
    fn evict_group(&self, group: u64);

    /// Brings the copies of one file of copies, or block of memory, to another form. Unlike other methods it takes its
    /// time. A tier without copies of its own has nothing to convert.
    fn convert(&self, _conversion: &mut Conversion<'_>) -> ConversionResult {
        ConversionResult::Nothing
    }

    /// Leaves room for the conversion of a file of copies, if that is `wanted`. Returns whether the tier is large
    /// enough for that.
    fn leave_spare(&self, _wanted: bool) -> bool {
        true
    }

    /// Publishes what was taken soon, however little.
    fn publish(&self) {}

    /// Publishes what was taken soon, and tries again to fill where something had stopped that; meant for the end of an
    /// epoch.
    fn seal(&self) {}

    /// Publishes what was taken, and waits until that is done or given up.
    fn flush(&self) {}

    /// The bytes that were taken and cannot be located yet, at most.
    fn unpublished(&self) -> u64 {
        0
    }

    /// Claims unit `unit` of this dataset for staging; `None` when another process has it. The claim ends with what is
    /// returned, or with the process.
    fn claim_unit(&self, _unit: u64) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(()))
    }

    /// The counters and gauges.
    fn stats(&self) -> CopyStats;

    /// The latest failure that stopped nothing.
    fn last_error(&self) -> Option<String> {
        None
    }

    /// What was asked of each of the job's nodes, by their names, where the tier is those.
    fn peers(&self) -> Vec<(String, PeerStats)> {
        Vec::new()
    }

    /// Forgets the latest error, so that [`CacheTier::last_error`] has later ones only.
    fn forget_error(&self) {}

    /// Who reads its copies into slots of the pool.
    fn reader(&self, slots: &SlotPool) -> TierReader;

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
}

/// Opens a reader, whose first answer calls the waker while it listens.
pub type OpenListening = dyn FnOnce(Waker) -> Result<Box<dyn ListeningReader>>;

/// Who reads the copies of a tier.
pub enum TierReader {
    /// A reader that waits for its reads itself; it is to be opened by the thread that drives it.
    Waiting(Box<dyn FnOnce() -> Result<Box<dyn Reader>> + Send>),
    /// A reader that somebody else works for.
    Listening(Box<OpenListening>),
}
