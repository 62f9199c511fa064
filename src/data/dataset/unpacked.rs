//! Blocks that are unpacked, as many as memory is meant to have, for all who read a dataset.
//!
//! Who asks for a block that another is about to unpack waits for it, so that no block is read or unpacked twice at the
//! same time. Those that were asked for last are kept.

use super::{FileBlock, FileId, FileVersion};
use base::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The most bytes of unpacked blocks that are kept, beside a single larger one.
pub const UNPACKED_KEPT: u64 = 256 << 20;
/// The most bytes, packed and unpacked, of blocks that are being unpacked at the same time, beside a single larger one.
const MOST_UNDER_WAY: u64 = 256 << 20;

/// Who is told of every block that was unpacked, and may keep the samples in it.
pub trait BlockTaker: Send + Sync {
    /// Takes what it wants of a block, whose bytes these are.
    fn take(&self, block: &FileBlock, bytes: &[u8]);
}

/// What was unpacked since a dataset was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnpackStats {
    /// The number of blocks, each as often as it was unpacked.
    pub blocks: u64,
    /// Their bytes in the dataset.
    pub packed: u64,
    /// Their bytes once unpacked.
    pub unpacked: u64,
}

impl UnpackStats {
    /// What was unpacked since the counters were `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            blocks: self.blocks - before.blocks,
            packed: self.packed - before.packed,
            unpacked: self.unpacked - before.unpacked,
        }
    }
}

impl std::ops::AddAssign for UnpackStats {
    fn add_assign(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.packed += more.packed;
        self.unpacked += more.unpacked;
    }
}

/// A block of a version of its file.
type BlockKey = (FileId, u64, Option<FileVersion>);

/// The unpacked blocks of a dataset.
#[derive(Default)]
pub struct UnpackedBlocks {
    state: Mutex<BlockState>,
    changed: Condvar,
    takers: Mutex<Vec<Weak<dyn BlockTaker>>>,
    blocks: AtomicU64,
    packed: AtomicU64,
    unpacked: AtomicU64,
}

#[derive(Default)]
struct BlockState {
    blocks: HashMap<BlockKey, HeldBlock>,
    /// The blocks that are there, by the time at which they were asked for last.
    by_use: BTreeMap<u64, BlockKey>,
    clock: u64,
    kept: u64,
    under_way: u64,
}

enum HeldBlock {
    UnderWay,
    There { bytes: Arc<Vec<u8>>, used: u64 },
}

impl BlockState {
    /// The block, if it is there, which is asked for now.
    fn find(&mut self, key: BlockKey) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let Some(HeldBlock::There { bytes, used }) = self.blocks.get_mut(&key) else { return None };
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(bytes.clone())
    }

    /// Keeps a block in place of those that were asked for longest ago.
    fn keep(&mut self, key: BlockKey, bytes: &Arc<Vec<u8>>) {
        self.clock += 1;
        self.kept += bytes.len() as u64;
        self.blocks.insert(key, HeldBlock::There { bytes: bytes.clone(), used: self.clock });
        self.by_use.insert(self.clock, key);
        while self.kept > UNPACKED_KEPT && self.by_use.len() > 1 {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            if let Some(HeldBlock::There { bytes, .. }) = self.blocks.remove(&oldest) {
                self.kept -= bytes.len() as u64;
            }
        }
    }
}

/// A block that is being unpacked. However that ends, nobody waits for it for ever.
struct BlockUnderWay<'a> {
    all: &'a UnpackedBlocks,
    key: BlockKey,
    cost: u64,
    found: Option<Arc<Vec<u8>>>,
}

impl Drop for BlockUnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.under_way -= self.cost;
        match &self.found {
            Some(bytes) => state.keep(self.key, bytes),
            None => drop(state.blocks.remove(&self.key)),
        }
        drop(state);
        self.all.changed.notify_all();
    }
}

impl UnpackedBlocks {
    fn lock(&self) -> MutexGuard<'_, BlockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a block, which `unpack` reads and unpacks unless they are there; and whether it did. Waits where
    /// another thread does that already, or where too many blocks are being unpacked.
    ///
    /// # Errors
    /// Those of `unpack`.
    pub fn get(
        &self,
        block: &FileBlock,
        unpack: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<(Arc<Vec<u8>>, bool)> {
        let key = (block.file, block.addresses().start, block.version);
        let cost = block.unpacked() + if block.is_compressed() { block.extent().length.into() } else { 0 };
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.find(key) {
                return Ok((bytes, false));
            }
            let has_room = state.under_way == 0 || state.under_way + cost <= MOST_UNDER_WAY;
            if has_room && !state.blocks.contains_key(&key) {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.blocks.insert(key, HeldBlock::UnderWay);
        state.under_way += cost;
        drop(state);
        let mut under_way = BlockUnderWay { all: self, key, cost, found: None };
        let bytes = Arc::new(unpack()?);
        if block.is_compressed() {
            self.blocks.fetch_add(1, Relaxed);
            self.packed.fetch_add(u64::from(block.extent().length), Relaxed);
            self.unpacked.fetch_add(bytes.len() as u64, Relaxed);
        }
        under_way.found = Some(bytes.clone());
        Ok((bytes, true))
    }

    /// Has `taker` told of every block that is unpacked from now on, as long as it lives.
    pub fn tell(&self, taker: Weak<dyn BlockTaker>) {
        let mut takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner);
        takers.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &taker));
        takers.push(taker);
    }

    /// Tells those who want to know that a block was unpacked.
    pub fn offer(&self, block: &FileBlock, bytes: &[u8]) {
        let takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        takers.iter().filter_map(Weak::upgrade).for_each(|taker| taker.take(block, bytes));
    }

    /// What was unpacked so far.
    pub fn stats(&self) -> UnpackStats {
        UnpackStats {
            blocks: self.blocks.load(Relaxed),
            packed: self.packed.load(Relaxed),
            unpacked: self.unpacked.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{BlockContent, StoredBlock};
    use super::*;
    use base::error::Error;
    use std::sync::atomic::AtomicUsize;

    fn block(number: u64, unpacked: u32) -> FileBlock {
        let row = StoredBlock { start: number << 32, offset: 0, packed: 10, unpacked, sum: 0, codec: 0 };
        FileBlock { file: FileId(0), content: BlockContent::Compressed(row), version: None }
    }

    #[test]
    fn a_block_is_unpacked_once_by_all_who_ask_at_the_same_time() {
        let (all, count) = (UnpackedBlocks::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let unpack = || {
                        count.fetch_add(1, Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(vec![7; 100])
                    };
                    assert_eq!(*all.get(&block(1, 100), unpack).unwrap().0, vec![7; 100]);
                });
            }
        });
        assert_eq!(count.load(Relaxed), 1);
        assert_eq!(all.stats(), UnpackStats { blocks: 1, packed: 10, unpacked: 100 });
    }

    #[test]
    fn what_was_asked_for_longest_ago_gives_way() {
        let all = UnpackedBlocks::default();
        let size = (UNPACKED_KEPT / 4) as u32;
        let get = |number| all.get(&block(number, size), || Ok(vec![0; size as usize])).unwrap().1;
        assert!((0..4).all(get));
        assert!(!get(0));
        assert!(get(4) && !get(0) && !get(2) && get(1), "the block 1 was the oldest");
        assert!(all.lock().kept <= UNPACKED_KEPT);
    }

    #[test]
    fn what_fails_is_tried_again_by_the_next_who_asks() {
        let all = UnpackedBlocks::default();
        let failed = || Err(Error::Internal("as the test wants it".into()));
        assert!(all.get(&block(1, 5), failed).is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            all.get(&block(1, 5), || panic!("as the test wants it"))
        }));
        assert!(panicked.is_err());
        assert!(all.get(&block(1, 5), || Ok(vec![0; 5])).unwrap().1);
        assert_eq!(all.lock().under_way, 0);
    }
}
