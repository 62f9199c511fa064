//! Blocks of memory, and places for samples in them.

use super::super::catalog::{SegmentIndex, SegmentRow};
use base::crc::checksum;
use base::locks::{lock, write_lock};
use base::parts::RawHeaderSummary;
use base::slot::Slot;
use data::dataset::FileVersion;
use pixels::decode::StorageFormat;
use std::sync::{Arc, Mutex, RwLock};

pub(super) struct RamBlock {
    /// The memory of the block. The bytes of samples that are in the catalog never change.
    pub(super) memory: RwLock<Slot>,
    pub(super) samples: Mutex<Vec<u64>>,
}

/// The common properties of a block's samples: their group, and the storage format that the last conversion tried to
/// reach.
pub(super) type BlockKind = (u64, StorageFormat);

pub(super) struct OpenBlock {
    pub(super) segment: SegmentIndex,
    pub(super) block: Arc<RamBlock>,
    pub(super) used: usize,
    /// Whether no sample was added since the end of an epoch. Most likely no sample will be added any more.
    pub(super) idle_since_epoch: bool,
    /// The number of the block's samples for which a conversion was tried and found impossible.
    pub(super) unconvertible: u64,
}

impl OpenBlock {
    pub(super) fn take(&mut self, length: usize) -> MemoryPlace {
        let place = MemoryPlace { segment: self.segment, block: self.block.clone(), offset: self.used };
        self.used += length;
        self.idle_since_epoch = false;
        place
    }
}

pub(super) struct MemoryPlace {
    pub(super) segment: SegmentIndex,
    pub(super) block: Arc<RamBlock>,
    pub(super) offset: usize,
}

impl MemoryPlace {
    pub(super) fn fill(
        &self,
        (sample, version): (u64, FileVersion),
        (form, last_target): (StorageFormat, StorageFormat),
        bytes: &[u8],
    ) -> SegmentRow {
        let mut slot = write_lock(&self.block.memory);
        slot.bytes_mut()[self.offset..self.offset + bytes.len()].copy_from_slice(bytes);
        drop(slot);
        lock(&self.block.samples).push(sample);
        let (offset, length) = (self.offset as u32, bytes.len() as u32);
        // Copies in memory are always read whole, so they need no header summary.
        let header_summary = RawHeaderSummary::default();
        SegmentRow {
            sample,
            version,
            offset,
            length,
            crc: checksum(bytes),
            form,
            last_target,
            header_summary,
        }
    }
}
