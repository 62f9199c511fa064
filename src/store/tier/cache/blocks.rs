//! Keeps all samples of a block that was read.
//!
//! A thread that decompresses a block, or reads a block of neighbours from a server, has the bytes of all samples of
//! the block. It offers the samples to the tiers that are filled with the samples that come first, as if the samples
//! had been staged. So each block is decompressed once for the tiers, no matter which of its samples is requested
//! first.

use super::Cache;
use crate::tier::copies::Offer;
use data::dataset::{BlockObserver, FileBlock, FileId};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// The maximum number of times that offers are repeated for the samples of one block. An offer is repeated every
/// millisecond while all write buffers wait for the drive.
const MAX_WAITS: u32 = 500;

impl Cache {
    /// Registers the cache to receive every block that is read from now on.
    pub(super) fn listen_for_blocks(self: &Arc<Self>) {
        if self.index.has_blocks() || self.index.has_remote() {
            let cache: Weak<Self> = Arc::downgrade(self);
            self.index.unpacked().register(cache);
        }
    }

    /// Returns whether this process must keep all samples of a file's blocks. Of the processes that share a directory,
    /// only the process that holds the lock on the file does. Takes the lock if it is free, and holds it from then on.
    pub(in crate::tier) fn keeps_blocks_of(&self, file: FileId) -> bool {
        let mut locks = self.block_locks.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.contains_key(&file) {
            return true;
        }
        let unit_locks = self.lock_unit(u64::from(file.0));
        unit_locks.map(|unit_locks| locks.insert(file, unit_locks)).is_some()
    }

    /// Releases the locks on files, so that other processes may keep the samples of their blocks.
    pub(super) fn release_blocks(&self) {
        self.block_locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl BlockObserver for Cache {
    /// Keeps each sample of the block that the epoch draws, as if it had been staged. Only tiers that are filled ahead
    /// take samples here; tiers that decide by future uses take each sample when it is used.
    fn take(&self, block: &FileBlock, bytes: &[u8]) {
        let Some(version) = block.version() else { return };
        let drawn = self.staging().epoch.as_ref().map(|(schedule, _)| schedule.order().selection().clone());
        let Some(drawn) = drawn.filter(|_| (0..self.tiers.len()).any(|place| self.fills_ahead(place))) else {
            return;
        };
        if !self.keeps_blocks_of(block.extent().file) {
            return;
        }
        let mut waits = 0;
        for sample in self.index.samples_in(block) {
            let range = block.range(self.index.extent(sample));
            let Some(bytes) = range.and_then(|range| bytes.get(range)) else { continue };
            // Skip a sample of another node: when the sample is used, it is pushed to that node.
            if !drawn.contains(sample) || self.knows(sample) || self.responsible_tier(sample).is_some() {
                continue;
            }
            while !self.is_full() && self.keep_staged(sample, version, bytes) == Offer::Busy {
                if waits == MAX_WAITS {
                    return;
                }
                waits += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.is_full() {
                return;
            }
        }
    }
}
