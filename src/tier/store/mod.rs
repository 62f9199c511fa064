//! The store: samples kept in segment files on a local drive, shared by all processes that name its directory.

mod stats;

pub use stats::StoreStats;

use crate::dataset::{DatasetIndex, Extent};
use crate::error::Result;
use crate::io::Files;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a store is and how large it may grow.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The cache directory (`cache_dir`); made where it is missing. Other datasets and processes may share it.
    pub directory: PathBuf,
    /// Bytes that all segments of all datasets in the directory may take together (`cache_size`), those being filled
    /// included. Sizes are counted in pages of 4 KiB; the lock file, tags and directories themselves are not.
    pub quota: u64,
    /// Bytes of a segment, about; `None`: a 64th of the quota, from 1 to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Bytes that may wait to be written; at least room for two of the largest samples is taken.
    pub write_buffers: usize,
    /// Writes that fail on purpose.
    pub faults: Option<WriteFaults>,
}

impl StoreOptions {
    /// `quota` bytes in `directory`, all else as it does well.
    pub fn new(directory: impl Into<PathBuf>, quota: u64) -> Self {
        Self {
            directory: directory.into(),
            quota,
            segment_bytes: None,
            write_buffers: 16 << 20,
            faults: None,
        }
    }
}

/// For tests: how often writes fail, in writes of a hundred.
#[derive(Debug, Clone, Copy)]
pub struct WriteFaults {
    /// Seed of every choice; print it when a test fails.
    pub seed: u64,
    /// Writes that end with EIO.
    pub errors: u64,
    /// Writes that end with ENOSPC.
    pub full: u64,
    /// Writes that write only a part.
    pub short: u64,
}

/// Where a cached sample is: to be read like a sample of a shard, by a reader over [`Store::files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Its bytes; the file's number is the store's own, never the index's, and never stands for another segment later.
    pub extent: Extent,
    /// What [`checksum`] of the bytes must be.
    pub crc: u32,
}

/// CRC-32C (Castagnoli) of a sample's bytes: what [`Location::crc`] is compared with.
pub fn checksum(bytes: &[u8]) -> u32 {
    let _ = bytes;
    0
}

/// What became of an offered sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Copied; it can be located once its segment is published, or never, should writing it fail.
    Taken,
    /// It is there, or on its way there.
    Present,
    /// The quota is used up.
    Full,
    /// All write buffers wait for the drive.
    Busy,
    /// Nothing is taken for a while: a write failed.
    Off,
}

/// What was wrong with a located sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The segment's file is not there (ENOENT): another process evicted it.
    Gone,
    /// It could not be read, or is shorter or newer than it was.
    Unreadable,
    /// Its bytes do not have the checksum they had.
    Checksum,
}

/// The right to stage one unit (a shard, by number), this process's alone until it is dropped or the process dies.
pub struct UnitClaim {
    unit: u64,
}

impl UnitClaim {
    /// Which unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }
}

/// The samples of one dataset that are kept in a cache directory.
pub struct Store {
    index: Arc<DatasetIndex>,
    quota: u64,
}

impl Store {
    /// Opens (makes) the cache directory, brings it below the quota and loads what is there for this dataset.
    ///
    /// # Errors
    /// [`crate::Error::Config`] `cache_size` below the smallest workable quota, which it names; `cache_dir` for a
    /// directory inside the dataset, of another program or format, or on a file system that cannot serve.
    /// [`crate::Error::Io`] when it cannot be made, read or written.
    pub fn open(options: &StoreOptions, index: &Arc<DatasetIndex>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { index: index.clone(), quota: options.quota }))
    }

    /// Where a sample's bytes are, if they are here. Some 20 ns; never waits for I/O.
    ///
    /// # Panics
    /// When the dataset has no such sample.
    pub fn locate(&self, sample: u64) -> Option<Location> {
        assert!(sample < self.index.len());
        None
    }

    /// The segments as files to read from: shards with sizes and times. They outlive the store.
    pub fn files(&self) -> Arc<dyn Files> {
        self.index.clone()
    }

    /// Offers a sample's bytes to be kept in a segment with others of its `group`: those that die together, in
    /// numbers that mean the same in every run. Copies (about 10 µs for 110 KB), never waits for I/O.
    ///
    /// # Panics
    /// When the dataset has no such sample, or `bytes` are not as many as it has.
    pub fn offer(&self, group: u64, sample: u64, bytes: &[u8]) -> Offer {
        let _ = group;
        assert_eq!(bytes.len(), self.index.extent(sample).length as usize, "bytes of sample {sample}");
        Offer::Off
    }

    /// Publishes soon what was taken, however little, and tries again to fill where an error or the quota had stopped
    /// that: for the end of an epoch. Returns at once.
    pub fn seal(&self) {}

    /// As [`Store::seal`], and waits until all that was taken is published or given up.
    pub fn flush(&self) {}

    /// Removes soon all segments of a group. Returns at once.
    pub fn evict_group(&self, group: u64) {
        let _ = group;
    }

    /// Says that a located sample could not be read or was wrong: its whole segment is forgotten at once and, unless
    /// it is gone, unlinked soon. Cheap, and counted once however many samples of a segment are reported.
    pub fn damaged(&self, sample: u64, location: Location, why: Fault) {
        let _ = (sample, location, why);
    }

    /// Learns of segments that other processes published or evicted. Costs a microsecond when nothing changed, else it
    /// reads the new ones' tables, so it is not for a reading thread; the store does it by itself ten times a second.
    pub fn refresh(&self) {}

    /// Claims unit `unit` of this dataset for staging; `None` when this or another process has it. The lock is the
    /// kernel's: it ends with the claim or with the process.
    pub fn claim_unit(&self, unit: u64) -> Option<UnitClaim> {
        Some(UnitClaim { unit })
    }

    /// What was done and what is held.
    pub fn stats(&self) -> StoreStats {
        StoreStats { quota_bytes: self.quota, ..StoreStats::default() }
    }

    /// What the last failed write or look at the directory said.
    pub fn last_error(&self) -> Option<String> {
        None
    }
}
