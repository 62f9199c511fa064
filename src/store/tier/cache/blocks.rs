//! What the cache takes of blocks: whoever unpacks one, or reads a stretch of a file on a server at once, has all of
//! its samples at hand.

use super::Cache;
use crate::tier::copies::Offer;
use data::dataset::{BlockTaker, FileBlock, FileId};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// How often a sample is offered again, a millisecond later, while all write buffers wait for the drive, and how often
/// all samples of a block are together.
const MOST_WAITS: u32 = 500;

impl Cache {
    /// Is told of every block that is read from now on.
    pub(super) fn listen_for_blocks(self: &Arc<Self>) {
        if self.index.has_blocks() || self.index.has_remote() {
            let cache: Weak<Self> = Arc::downgrade(self);
            self.index.unpacked().tell(cache);
        }
    }

    /// Whether it is this process that keeps whole blocks of a file, and not another that shares a directory with it.
    /// Once it is, it stays so.
    pub(in crate::tier) fn keeps_blocks_of(&self, file: FileId) -> bool {
        let mut claims = self.block_claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.contains_key(&file) {
            return true;
        }
        let claimed = self.claim_unit(u64::from(file.0));
        claimed.map(|claim| claims.insert(file, claim)).is_some()
    }

    /// Lets other processes keep the blocks that this one kept.
    pub(super) fn give_blocks_up(&self) {
        self.block_claims.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl BlockTaker for Cache {
    /// Has the samples of a block kept that the epoch draws, as if they had been staged. Tiers that decide by the
    /// future take each sample when it is used.
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
            // What another node keeps for all is brought there when it is used.
            if !drawn.contains(sample) || self.knows(sample) || self.claimed_by(sample).is_some() {
                continue;
            }
            while !self.is_full() && self.keep_staged(sample, version, bytes) == Offer::Busy {
                if waits == MOST_WAITS {
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
