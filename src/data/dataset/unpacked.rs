//! A bounded cache of decompressed blocks, shared by all readers of a dataset.
//!
//! If several threads request a block at the same time, one thread reads and decompresses the block, and the others
//! wait. The least recently used blocks are evicted.

use super::{FileBlock, FileId, FileVersion, Stamp};
use base::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum total size of the decompressed blocks in the cache, in bytes. A single larger block is cached too.
pub const MAX_CACHED_BYTES: u64 = 256 << 20;
/// Maximum total size, in bytes, of blocks that are decompressed at the same time. The compressed and the decompressed
/// bytes are counted. A single larger block is decompressed alone.
const MAX_IN_PROGRESS_BYTES: u64 = 256 << 20;

/// Receiver of every block that is decompressed. For example, a cache tier can store the samples in the block.
pub trait BlockObserver: Send + Sync {
    /// Receives a block with its decompressed bytes. The implementation copies the bytes that it needs.
    fn take(&self, block: &FileBlock, bytes: &[u8]);
}

/// Counters of decompression since a dataset was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnpackStats {
    /// The number of decompressed blocks. A block is counted each time it is decompressed.
    pub blocks: u64,
    /// The total compressed size of these blocks in bytes.
    pub packed: u64,
    /// The total decompressed size of these blocks in bytes.
    pub unpacked: u64,
}

impl UnpackStats {
    /// The increase since the counters were `before`.
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

/// Identifies a block: its file, its first address, and the version of the file.
type BlockKey = (FileId, u64, Option<FileVersion>);

/// The decompressed blocks of a dataset.
#[derive(Default)]
pub struct BlockCache {
    state: Mutex<BlockState>,
    changed: Condvar,
    /// The newest stamps of files that have no stamp in the index.
    noted: Mutex<HashMap<FileId, Stamp>>,
    observers: Mutex<Vec<Weak<dyn BlockObserver>>>,
    blocks: AtomicU64,
    packed: AtomicU64,
    unpacked: AtomicU64,
}

#[derive(Default)]
struct BlockState {
    blocks: HashMap<BlockKey, HeldBlock>,
    /// The cached blocks, by the time of their last use.
    by_use: BTreeMap<u64, BlockKey>,
    clock: u64,
    cached_bytes: u64,
    bytes_in_progress: u64,
    /// The number of times that all blocks were forgotten.
    cleared: u64,
}

enum HeldBlock {
    InProgress,
    Cached { bytes: Arc<Vec<u8>>, used: u64 },
}

impl BlockState {
    fn find(&mut self, key: BlockKey) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let Some(HeldBlock::Cached { bytes, used }) = self.blocks.get_mut(&key) else { return None };
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(bytes.clone())
    }

    fn keep(&mut self, key: BlockKey, bytes: &Arc<Vec<u8>>) {
        self.clock += 1;
        self.cached_bytes += bytes.len() as u64;
        self.blocks.insert(key, HeldBlock::Cached { bytes: bytes.clone(), used: self.clock });
        self.by_use.insert(self.clock, key);
        while self.cached_bytes > MAX_CACHED_BYTES && self.by_use.len() > 1 {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            if let Some(HeldBlock::Cached { bytes, .. }) = self.blocks.remove(&oldest) {
                self.cached_bytes -= bytes.len() as u64;
            }
        }
    }
}

/// A block that is being decompressed. Dropping this guard wakes the waiting threads, also after an error or a panic.
struct BlockInProgress<'a> {
    all: &'a BlockCache,
    key: BlockKey,
    cost: u64,
    cleared: u64,
    found: Option<Arc<Vec<u8>>>,
}

impl Drop for BlockInProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.bytes_in_progress -= self.cost;
        match &self.found {
            Some(bytes) if state.cleared == self.cleared => state.keep(self.key, bytes),
            _ => drop(state.blocks.remove(&self.key)),
        }
        drop(state);
        self.all.changed.notify_all();
    }
}

impl BlockCache {
    fn lock(&self) -> MutexGuard<'_, BlockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of a block, and whether `unpack` had to read and decompress it. Waits while another thread
    /// decompresses the same block, or while too many blocks are being decompressed.
    ///
    /// # Errors
    /// The errors of `unpack`.
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
            let has_room =
                state.bytes_in_progress == 0 || state.bytes_in_progress + cost <= MAX_IN_PROGRESS_BYTES;
            if has_room && !state.blocks.contains_key(&key) {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.blocks.insert(key, HeldBlock::InProgress);
        state.bytes_in_progress += cost;
        let cleared = state.cleared;
        drop(state);
        let mut bytes_in_progress = BlockInProgress { all: self, key, cost, cleared, found: None };
        let bytes = Arc::new(unpack()?);
        if block.is_compressed() {
            self.blocks.fetch_add(1, Relaxed);
            self.packed.fetch_add(u64::from(block.extent().length), Relaxed);
            self.unpacked.fetch_add(bytes.len() as u64, Relaxed);
        }
        bytes_in_progress.found = Some(bytes.clone());
        Ok((bytes, true))
    }

    /// Forgets all blocks, also those that are being decompressed, and all stamps that were noted.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.cleared += 1;
        state.blocks.retain(|_, block| matches!(block, HeldBlock::InProgress));
        state.by_use.clear();
        state.cached_bytes = 0;
        drop(state);
        self.noted().clear();
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<FileId, Stamp>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the current stamp of a file that has none in the index, so that the block of another version is not used.
    pub(super) fn note_stamp(&self, file: FileId, stamp: Stamp) {
        let mut noted = self.noted();
        // Another thread may note its older stamp later. Programs set other times of a file as they like, also in the
        // future. Servers have no such time, so what was looked up last counts.
        let known = noted.entry(file).or_insert(stamp);
        if stamp.ctime >= known.ctime {
            *known = stamp;
        }
    }

    /// The stamp that was noted last for a file.
    pub(super) fn noted_stamp(&self, file: FileId) -> Option<Stamp> {
        self.noted().get(&file).copied()
    }

    /// Registers `observer` to receive every block that is decompressed from now on, until `observer` is dropped.
    pub fn register(&self, observer: Weak<dyn BlockObserver>) {
        let mut observers = self.observers.lock().unwrap_or_else(PoisonError::into_inner);
        observers.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &observer));
        observers.push(observer);
    }

    /// Offers a decompressed block to all registered observers.
    pub fn notify(&self, block: &FileBlock, bytes: &[u8]) {
        let observers = self.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        observers.iter().filter_map(Weak::upgrade).for_each(|observer| observer.take(block, bytes));
    }

    /// The counters since the dataset was opened.
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
    use super::super::blocks::{BlockContent, CompressedBlock};
    use super::*;
    use base::error::Error;
    use std::sync::atomic::AtomicUsize;

    fn block(number: u64, unpacked: u32) -> FileBlock {
        let row = CompressedBlock { start: number << 32, offset: 0, packed: 10, unpacked, sum: 0, codec: 0 };
        FileBlock { file: FileId(0), content: BlockContent::Compressed(row), version: None }
    }

    #[test]
    fn a_block_is_unpacked_once_by_all_who_ask_at_the_same_time() {
        let (all, count) = (BlockCache::default(), AtomicUsize::new(0));
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
        let all = BlockCache::default();
        let size = (MAX_CACHED_BYTES / 4) as u32;
        let get = |number| all.get(&block(number, size), || Ok(vec![0; size as usize])).unwrap().1;
        assert!((0..4).all(get));
        assert!(!get(0));
        assert!(get(4) && !get(0) && !get(2) && get(1), "the block 1 was the oldest");
        assert!(all.lock().cached_bytes <= MAX_CACHED_BYTES);
    }

    #[test]
    fn after_clearing_no_block_is_used_that_was_read_before() {
        let all = BlockCache::default();
        let get = |byte| all.get(&block(1, 1), || Ok(vec![byte])).unwrap().0[0];
        assert_eq!((get(1), get(2)), (1, 1));
        all.clear();
        assert_eq!((get(3), get(4)), (3, 3));
        all.clear();
        let during = all.get(&block(1, 1), || {
            all.clear();
            Ok(vec![5])
        });
        assert_eq!((during.unwrap().0[0], get(6), all.lock().cached_bytes), (5, 6, 1));
        let stamp = |ctime| Stamp { ctime, ..Stamp::default() };
        [3, 5, 4].into_iter().for_each(|time| all.note_stamp(FileId(0), stamp(time)));
        assert_eq!(all.noted_stamp(FileId(0)), Some(stamp(5)));
    }

    #[test]
    fn what_fails_is_tried_again_by_the_next_who_asks() {
        let all = BlockCache::default();
        let failed = || Err(Error::Internal("as the test wants it".into()));
        assert!(all.get(&block(1, 5), failed).is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            all.get(&block(1, 5), || panic!("as the test wants it"))
        }));
        assert!(panicked.is_err());
        assert!(all.get(&block(1, 5), || Ok(vec![0; 5])).unwrap().1);
        assert_eq!(all.lock().bytes_in_progress, 0);
    }
}
