//! Blocks of memory, and places for samples in them.

use super::super::catalog::{SegmentIndex, SegmentRow};
use base::crc::checksum;
use base::parts::RawHeaderSummary;
use base::slot::Slot;
use data::dataset::FileVersion;
use pixels::decode::StorageFormat;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// A block of memory.
pub(super) struct RamBlock {
    /// The memory of the block. Bytes that the catalog has entered never change.
    pub(super) memory: RwLock<Slot>,
    /// The samples that were copied to the block.
    pub(super) samples: Mutex<Vec<u64>>,
}

impl RamBlock {
    pub(super) fn memory(&self) -> RwLockReadGuard<'_, Slot> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples(&self) -> MutexGuard<'_, Vec<u64>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The common properties of a block's samples: their group, and the storage format of the last attempt to convert them.
pub(super) type BlockKind = (u64, StorageFormat);

/// A block that is being filled.
pub(super) struct OpenBlock {
    pub(super) segment: SegmentIndex,
    pub(super) block: Arc<RamBlock>,
    /// The number of bytes in use.
    pub(super) used: usize,
    /// Whether no sample was added since the end of an epoch. Most likely no sample will be added any more.
    pub(super) idle_since_epoch: bool,
    /// The number of the block's samples that are known to have no other storage format.
    pub(super) unconvertible: u64,
}

impl OpenBlock {
    /// Reserves the next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> MemoryPlace {
        let place = MemoryPlace { segment: self.segment, block: self.block.clone(), offset: self.used };
        self.used += length;
        self.idle_since_epoch = false;
        place
    }
}

/// A place for a sample.
pub(super) struct MemoryPlace {
    pub(super) segment: SegmentIndex,
    pub(super) block: Arc<RamBlock>,
    pub(super) offset: usize,
}

impl MemoryPlace {
    /// Copies a sample in this storage format to the place. Returns its row.
    pub(super) fn fill(
        &self,
        (sample, version): (u64, FileVersion),
        (form, last_target): (StorageFormat, StorageFormat),
        bytes: &[u8],
    ) -> SegmentRow {
        let mut slot = self.block.memory.write().unwrap_or_else(PoisonError::into_inner);
        slot.bytes_mut()[self.offset..self.offset + bytes.len()].copy_from_slice(bytes);
        drop(slot);
        self.block.samples().push(sample);
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
