//! Keeps all samples of each block that was read: a compressed block, or a block of neighbouring samples from a server.
//!
//! The thread that reads a block has the bytes of all its samples. It offers them to the tiers that keep samples in the
//! order of their first use, as staging does. So each block is read once for the tiers, whichever of its samples is
//! requested first.

use super::Cache;
use crate::tier::copies::Offer;
use base::locks::lock;
use data::dataset::{BlockObserver, FileBlock, FileId};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The maximum number of repeated offers for the samples of one block. While all write buffers wait for the drive, an
/// offer is repeated every millisecond.
const MAX_WAITS: u32 = 500;

impl Cache {
    pub(super) fn listen_for_blocks(self: &Arc<Self>) {
        if self.index.has_blocks() || self.index.has_remote() {
            let cache: Weak<Self> = Arc::downgrade(self);
            self.index.unpacked().register(cache);
        }
    }

    /// Returns whether this process must keep all samples of a file's blocks: only one of the processes that share a
    /// directory does, the one that holds the lock on the file. If the lock is free, takes it and keeps it.
    pub(in crate::tier) fn keeps_blocks_of(&self, file: FileId) -> bool {
        let mut locks = lock(&self.block_locks);
        if locks.contains_key(&file) {
            return true;
        }
        let unit_locks = self.lock_unit(u64::from(file.0));
        unit_locks.map(|unit_locks| locks.insert(file, unit_locks)).is_some()
    }

    pub(super) fn release_blocks(&self) {
        lock(&self.block_locks).clear();
    }
}

impl BlockObserver for Cache {
    /// Offers the samples of the block that the epoch uses to the tiers that are filled ahead. Tiers that decide by
    /// next use take each sample when it is used.
    fn take(&self, block: &FileBlock, bytes: &[u8]) {
        let Some(version) = block.version() else { return };
        let drawn =
            lock(&self.staging).epoch.as_ref().map(|(schedule, _)| schedule.order().selection().clone());
        let Some(drawn) = drawn.filter(|_| (0..self.tiers.len()).any(|place| self.fills_ahead(place))) else {
            return;
        };
        // A sample of arrays may have parts in several blocks, so it is kept when it is used.
        let samples = self.index.samples_in(block);
        if samples.is_empty() || !self.keeps_blocks_of(block.extent().file) {
            return;
        }
        let mut waits = 0;
        for sample in samples {
            let range = block.range(self.index.extent(sample));
            let Some(bytes) = range.and_then(|range| bytes.get(range)) else { continue };
            // Skip a sample that another node owns: it is pushed to that node when it is used.
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
