//! The tier in memory: samples in blocks of arenas of huge pages, for this process alone.
//!
//! A block holds samples of one group, one after another. All blocks have the same length, so that the memory of an
//! evicted group suits any other group. A sample's bytes are copied in when it is offered and copied out when it is
//! read, so that no slot and no reader ever points into a block. The catalog, which the store on a drive uses too, has
//! the locations; a block is a segment of the catalog. Arenas are made as they are needed, and stay.

mod block;
mod convert;

use super::catalog::{Catalog, SegmentIndex};
use super::convert::{assert_is_copy, form_of_record};
use super::copies::{CacheTier, CopyFault, LocalTier, Location, Offer, Publish, TierParts, TierReader};
use super::counters::{CopyCounters, CopyStats};
use crate::io::ImmediateReader;
use crate::io::storage::{available_memory, memory_limit};
use crate::peers::CopyBytes;
use base::counting::count;
use base::error::{Error, Result};
use base::locks::{lock, read_lock, write_lock};
use base::slot::{OVERHEAD, Slot, SlotPool};
use base::tier_name::TierName;
use block::{BlockKind, MemoryPlace, OpenBlock, RamBlock};
use data::dataset::arrays::MAX_RECORD;
use data::dataset::{DatasetIndex, Extent, FileVersion, Stamp};
use pixels::decode::StorageFormat;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The bytes of a huge page. Arenas are multiples of it.
const HUGE_PAGE: u64 = 2 << 20;

/// The bytes of an arena (memory that is taken from the system at once), unless a block is larger.
const ARENA: u64 = 64 << 20;

/// The number of blocks that a large tier is divided into. Each group of samples fills separate blocks, so a tier with
/// many groups needs many blocks.
const BLOCKS: u64 = 2048;

/// The minimum number of samples of mean size that fit into a block, if the tier is large enough.
const SAMPLES_OF_BLOCK: u64 = 16;

/// The maximum number of open blocks of a group. A block whose end is too short for one sample stays open for a smaller
/// sample. With a single open block, some 3 % of the memory would be lost to such ends.
const OPEN_BLOCKS: usize = 8;

/// The maximum number of answers of a reader that wait to be taken.
const READER_DEPTH: usize = 64;

pub(crate) struct Ram(Arc<RamShared>);

struct RamShared {
    index: Arc<DatasetIndex>,
    name: TierName,
    capacity: u64,
    block_bytes: u64,
    catalog: RwLock<Catalog>,
    blocks: RwLock<HashMap<SegmentIndex, Arc<RamBlock>>>,
    filling: Mutex<Filling>,
    /// Held while an arena is made, which takes tens of milliseconds. Only threads that need the memory wait for this
    /// lock.
    growing: Mutex<()>,
    counters: CopyCounters,
}

enum NoRoom {
    Full,
    /// There will be space after another arena is made.
    Arena,
}

#[derive(Default)]
struct Filling {
    open: BTreeMap<BlockKind, Vec<OpenBlock>>,
    next: u64,
    arenas: Vec<SlotPool>,
    mapped: u64,
    /// Whether the system has refused memory. If so, no sample is taken until the next epoch.
    refused: bool,
    full: bool,
}

impl Ram {
    /// Makes an empty tier of up to `of_node` bytes, divided by `ranks`. It takes memory only when the memory is
    /// needed.
    ///
    /// # Errors
    /// [`Error::Config`] if the part of a rank is too small for one block or larger than the free memory, or if
    /// `of_node` is more than this machine or control group has.
    pub(crate) fn new(index: &Arc<DatasetIndex>, name: TierName, of_node: u64, ranks: u64) -> Result<Self> {
        let capacity = of_node / ranks;
        let mean = index.mean_bytes();
        let usual = (capacity / BLOCKS).max(SAMPLES_OF_BLOCK * mean).min(capacity / 4).min(ARENA / 2);
        let largest = u64::from(index.largest());
        // One huge file must not decide the size of blocks. But arrays are alike, so a block is a multiple of the
        // largest one, and little is lost at its end.
        let block_bytes = match index.has_arrays() && (HUGE_PAGE..=MAX_RECORD).contains(&largest) {
            true => (largest * (usual / largest).max(1)).next_multiple_of(HUGE_PAGE),
            false => usual.max(largest).min(ARENA / 2).next_power_of_two().max(OVERHEAD as u64),
        };
        let smallest = block_bytes.next_multiple_of(HUGE_PAGE);
        if capacity < smallest {
            let message = format!(
                "is {capacity} bytes for this process, must be at least {smallest}, to hold the largest sample ({} \
                 bytes) in huge pages",
                index.largest()
            );
            return Err(Error::config("cache_ram", message));
        }
        let (limit, available) = (memory_limit(), available_memory());
        if of_node > limit {
            let message = format!(
                "is {of_node} bytes, must be at most {limit}, the memory of this machine or container"
            );
            return Err(Error::config("cache_ram", message));
        }
        // Other ranks may have filled their parts already. `available` is 0 if the system does not report the free
        // memory.
        if available > 0 && capacity > available {
            let message = format!(
                "is {capacity} bytes for this process, but only {available} are free: lower it, or request more memory \
                 for the job"
            );
            return Err(Error::config("cache_ram", message));
        }
        Ok(Self(Arc::new(RamShared {
            index: index.clone(),
            name,
            capacity,
            block_bytes,
            catalog: RwLock::new(Catalog::new(index.len())),
            blocks: RwLock::default(),
            filling: Mutex::default(),
            growing: Mutex::default(),
            counters: CopyCounters::default(),
        })))
    }
}

impl RamShared {
    fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        read_lock(&self.catalog)
    }

    fn catalog_mut(&self) -> RwLockWriteGuard<'_, Catalog> {
        write_lock(&self.catalog)
    }

    fn read<T>(&self, extent: &Extent, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let block = read_lock(&self.blocks).get(&extent.file.0).cloned();
        let Some(block) = block else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::io("read", format!("a sample's copy in {}", self.name), gone));
        };
        let slot = read_lock(&block.memory);
        let begin = extent.offset as usize;
        Ok(take(&slot.bytes()[begin..begin + extent.length as usize]))
    }

    /// Finds space for `length` bytes: in an open block of this kind, or in a new block. Fails with [`NoRoom::Full`]
    /// for a sample that is larger than a block.
    fn room(&self, filling: &mut Filling, kind: BlockKind, length: usize) -> Result<MemoryPlace, NoRoom> {
        let mut open = filling.open.get_mut(&kind).into_iter().flatten();
        if let Some(open) = open.find(|open| self.fits(open, length)) {
            return Ok(open.take(length));
        }
        if length as u64 > self.block_bytes {
            return Err(NoRoom::Full);
        }
        let slot = match self.new_block(filling) {
            Ok(slot) => slot,
            Err(NoRoom::Full) => return self.room_in_later_group(filling, kind, length).ok_or(NoRoom::Full),
            Err(NoRoom::Arena) => return Err(NoRoom::Arena),
        };
        let block = Arc::new(RamBlock { memory: RwLock::new(slot), samples: Mutex::default() });
        let number = filling.next;
        filling.next += 1;
        let stamp = Stamp { size: self.block_bytes, ..Stamp::default() };
        let segment = {
            let mut catalog = self.catalog_mut();
            catalog.announce(number);
            catalog.publish(number, kind.0, &stamp)
        };
        write_lock(&self.blocks).insert(segment, block.clone());
        let mut new = OpenBlock { segment, block, used: 0, idle_since_epoch: false, unconvertible: 0 };
        let place = new.take(length);
        let open = filling.open.entry(kind).or_default();
        open.push(new);
        if open.len() > OPEN_BLOCKS {
            let fullest = (0..open.len()).max_by_key(|&number| open[number].used).expect("more than one");
            open.remove(fullest);
        }
        Ok(place)
    }

    /// Finds space for `length` bytes when there is no unused block: in an open block of a group that is evicted later.
    /// The sample may then stay longer than needed. But with many groups, the unused ends of blocks are a large part of
    /// a small memory.
    fn room_in_later_group(
        &self,
        filling: &mut Filling,
        kind: BlockKind,
        length: usize,
    ) -> Option<MemoryPlace> {
        let later = filling.open.range_mut(kind..).filter(|((_, form), _)| *form == kind.1);
        later.flat_map(|(_, open)| open).find(|open| self.fits(open, length)).map(|open| open.take(length))
    }

    fn fits(&self, open: &OpenBlock, length: usize) -> bool {
        open.used + length <= self.block_bytes as usize
    }

    fn new_block(&self, filling: &mut Filling) -> Result<Slot, NoRoom> {
        if let Some(slot) = self.free_block(filling) {
            return Ok(slot);
        }
        filling.full = self.next_arena(filling) == 0;
        Err(if filling.full { NoRoom::Full } else { NoRoom::Arena })
    }

    fn free_block(&self, filling: &Filling) -> Option<Slot> {
        // A slot takes OVERHEAD bytes more than requested.
        let length = self.block_bytes as usize - OVERHEAD;
        filling.arenas.iter().rev().find_map(|arena| arena.try_take(length))
    }

    /// Returns the bytes of the next arena; 0 if there is no room for a block.
    fn next_arena(&self, filling: &Filling) -> u64 {
        let left = (self.capacity - filling.mapped) / HUGE_PAGE * HUGE_PAGE;
        if left < self.block_bytes {
            return 0;
        }
        let blocks = (ARENA / self.block_bytes).max(1);
        (blocks * self.block_bytes).next_multiple_of(HUGE_PAGE).min(left)
    }

    /// Makes an arena in addition to the `known` arenas, if no other thread has done so. While the system allocates the
    /// memory, this thread holds only the lock `growing`, which other threads need only to make an arena.
    fn grow(&self, known: usize) {
        let _growing = lock(&self.growing);
        let bytes = {
            let filling = lock(&self.filling);
            if filling.arenas.len() > known || filling.refused {
                return;
            }
            self.next_arena(&filling)
        };
        let arena = SlotPool::new(bytes as usize);
        let mut filling = lock(&self.filling);
        match arena {
            Ok(arena) => {
                filling.arenas.push(arena);
                filling.mapped += bytes;
            }
            Err(_) => {
                filling.refused = true;
                let failure = format!("the system has no memory for {bytes} more bytes of {}", self.name);
                self.counters.failed(failure);
            }
        }
    }

    /// Finds space for a sample of this kind and of `length` bytes. Returns the place with a lock, which the caller
    /// holds until the catalog has the sample, so that no other thread stores the same sample. `is_kept` is called
    /// under that lock, and returns whether the tier already keeps the sample.
    fn place(
        &self,
        kind: BlockKind,
        length: usize,
        is_kept: impl Fn() -> bool,
    ) -> Result<(MutexGuard<'_, Filling>, MemoryPlace), Offer> {
        loop {
            let mut filling = lock(&self.filling);
            if is_kept() {
                return Err(Offer::Present);
            }
            if filling.refused {
                return Err(Offer::Off);
            }
            match self.room(&mut filling, kind, length) {
                Ok(place) => return Ok((filling, place)),
                Err(NoRoom::Full) => return Err(Offer::Full),
                Err(NoRoom::Arena) => {
                    let known = filling.arenas.len();
                    drop(filling);
                    self.grow(known);
                }
            }
        }
    }

    fn note_damage(&self, segment: SegmentIndex, sample: u64) {
        count(&self.counters.damaged_segments, 1);
        let name = self.name;
        self.counters.note(format!(
            "{name}: the copy of sample {sample} has a wrong checksum: test this machine's memory"
        ));
        self.evict_block(segment);
    }

    fn evict_block(&self, segment: SegmentIndex) {
        if self.free(segment) {
            count(&self.counters.evicted_segments, 1);
            count(&self.counters.evicted_bytes, self.block_bytes);
        }
    }

    fn free(&self, segment: SegmentIndex) -> bool {
        if !self.catalog_mut().forget(segment) {
            return false;
        }
        // Free the memory before `full` is cleared, so that a thread that sees space can take it.
        write_lock(&self.blocks).remove(&segment);
        let mut filling = lock(&self.filling);
        filling.open.retain(|_, open| {
            open.retain(|open| open.segment != segment);
            !open.is_empty()
        });
        filling.full = false;
        true
    }
}

impl CacheTier for Ram {
    fn name(&self) -> TierName {
        self.0.name
    }

    fn parts(&self) -> TierParts<'_> {
        TierParts { local: Some(self), convertible: Some(&*self.0), ..TierParts::default() }
    }

    fn locate(&self, sample: u64) -> Option<Location> {
        self.0.catalog().location(sample)
    }

    fn is_open(&self) -> bool {
        let filling = lock(&self.0.filling);
        !filling.full && !filling.refused
    }

    fn can_take(&self) -> bool {
        !lock(&self.0.filling).refused
    }

    fn offer(&self, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let shared = &self.0;
        assert_is_copy(&shared.index, sample, bytes);
        let refused = |counter, offer| {
            count(counter, 1);
            offer
        };
        let form = form_of_record(&shared.index, sample, bytes);
        let placed = shared.place((group, form), bytes.len(), || shared.catalog().keeps(sample, group));
        let (_filling, place) = match placed {
            Ok(placed) => placed,
            Err(Offer::Off) => return refused(&shared.counters.dropped_off, Offer::Off),
            Err(Offer::Full) => return refused(&shared.counters.dropped_full, Offer::Full),
            Err(offer) => return offer,
        };
        let row = place.fill((sample, version), (form, form), bytes);
        let mut catalog = shared.catalog_mut();
        // An older copy in an expired group must not be found in place of the new copy, even if the older copy's block
        // is newer.
        catalog.mark_pending(sample, group);
        catalog.place(place.segment, &[row], true);
        drop(catalog);
        count(&shared.counters.admitted_samples, 1);
        count(&shared.counters.admitted_bytes, bytes.len() as u64);
        Offer::Taken
    }

    fn confirm(&self, sample: u64, location: &Location) {
        self.0.catalog_mut().confirm(sample, location.extent.file.0);
    }

    fn drop_stale(&self, sample: u64, location: &Location) {
        let segment = location.extent.file.0;
        let (was_there, mostly) = self.0.catalog_mut().drop_stale(sample, segment);
        if was_there {
            count(&self.0.counters.stale, 1);
        }
        if mostly {
            self.0.evict_block(segment);
        }
    }

    fn damaged(&self, sample: u64, location: Location, why: CopyFault) {
        if why == CopyFault::Gone {
            return;
        }
        self.0.note_damage(location.extent.file.0, sample);
    }

    fn stats(&self) -> CopyStats {
        let (held_samples, held_bytes) = self.0.catalog().held();
        let quota_bytes = self.0.capacity;
        CopyStats { held_samples, held_bytes, used_bytes: held_bytes, quota_bytes, ..self.0.counters.read() }
    }

    fn reader(&self, _slots: &SlotPool) -> TierReader {
        let shared = self.0.clone();
        let copy = move |extent: Extent, slot: &mut Slot| {
            shared.read(&extent, |bytes| {
                slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            })
        };
        TierReader::Listening(Box::new(move |_| {
            Ok(Box::new(ImmediateReader::new(READER_DEPTH, "memory", copy)))
        }))
    }
}

impl LocalTier for Ram {
    fn capacity(&self) -> u64 {
        self.0.capacity
    }

    fn groups(&self) -> BTreeMap<u64, u64> {
        self.0.catalog().groups()
    }

    fn evict_group(&self, group: u64) {
        let of_group: Vec<SegmentIndex> = {
            let catalog = self.0.catalog();
            catalog.live().filter(|(_, segment)| segment.group == group).map(|(segment, _)| segment).collect()
        };
        of_group.into_iter().for_each(|segment| self.0.evict_block(segment));
    }

    /// Publishes nothing, because copies are always readable at once. After an epoch, allows new arenas again, because
    /// the system may have memory again.
    fn publish(&self, when: Publish) {
        if when == Publish::AtEnd {
            let mut filling = lock(&self.0.filling);
            (filling.refused, filling.full) = (false, false);
            filling.open.values_mut().flatten().for_each(|open| open.idle_since_epoch = true);
        }
    }

    fn mark_unverified(&self) {
        self.0.catalog_mut().mark_unverified();
    }

    fn offers_at_once(&self, group: u64, length: u32) -> bool {
        let filling = lock(&self.0.filling);
        let fits = filling
            .open
            .get(&(group, StorageFormat::AsIs))
            .is_some_and(|open| open.iter().any(|open| self.0.fits(open, length as usize)));
        fits || filling.refused || self.0.next_arena(&filling) == 0 || self.0.free_block(&filling).is_some()
    }

    fn read_blocking(&self, location: &Location) -> Result<Vec<u8>> {
        self.0.read(&location.extent, <[u8]>::to_vec)
    }

    fn bytes_of(&self, location: &Location) -> Result<CopyBytes, Option<CopyFault>> {
        // Copy the bytes: the block may be written to while the answer is sent.
        let bytes = self.read_blocking(location).map_err(|_| Some(CopyFault::Gone))?;
        Ok(CopyBytes::Memory(bytes.into()))
    }

    fn counters(&self) -> &CopyCounters {
        &self.0.counters
    }
}

#[cfg(test)]
mod tests;
