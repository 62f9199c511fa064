//! Slots: page-aligned buffers for reads, allocated from one arena of fixed size.
//!
//! Huge pages under the arena are the largest single gain of the read path (1.3 to 1.6 times the throughput of 4 KiB
//! pages with O_DIRECT). So the arena is one mapping, aligned to 2 MiB and faulted in when it is created.

use crate::error::{Error, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// The alignment of slots in bytes. Their lengths are multiples of it. Most file systems require this alignment for
/// O_DIRECT.
pub const PAGE: usize = 4096;

const HUGE_PAGE: usize = 2 << 20;

/// The arena of all slots. It has a fixed size, is aligned to 2 MiB, uses huge pages if the system has them, and is
/// faulted in.
///
/// Pages are allocated first-fit. Samples are freed nearly in the order of their allocation, so the free space stays in
/// few long ranges. The memory lives until the pool and the last slot are dropped.
#[derive(Clone)]
pub struct SlotPool {
    arena: Arc<Arena>,
}

impl SlotPool {
    /// Creates an arena of `bytes`, rounded up to 2 MiB. The whole arena is resident from then on. A forked child does
    /// not inherit the arena, so slots are usable in this process only.
    ///
    /// # Errors
    /// [`Error::Config`] for `memory` if there is not enough memory.
    pub fn new(bytes: usize) -> Result<Self> {
        Self::map(bytes, AtFork::Leave)
    }

    /// Creates an arena like [`SlotPool::new`], for slots that consumers get. A forked child inherits a copy of the
    /// arena.
    ///
    /// # Errors
    /// The errors of [`SlotPool::new`].
    pub fn inherited(bytes: usize) -> Result<Self> {
        Self::map(bytes, AtFork::Inherit)
    }

    fn map(bytes: usize, at_fork: AtFork) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::config("memory", "leaves no bytes for read buffers: raise it"));
        }
        let arena = Arena::map(bytes, at_fork).map_err(|source| {
            Error::config("memory", format!("cannot map {bytes} bytes of read buffers: {source}; lower it"))
        })?;
        Ok(Self { arena: Arc::new(arena) })
    }

    /// Takes a slot for a read of `length` bytes, with space for O_DIRECT alignment on both sides. `None` if the arena
    /// has no such space now.
    pub fn try_take(&self, length: usize) -> Option<Slot> {
        let pages = pages_for(length)?;
        let first = self.arena.space().take(pages)?;
        Some(Slot { arena: self.arena.clone(), first, pages })
    }

    /// The maximum `length` of a slot.
    pub fn largest(&self) -> usize {
        self.arena.bytes - OVERHEAD
    }

    /// The base address and the length in bytes of the arena, for registration with io_uring or the GPU driver.
    pub fn as_raw(&self) -> (*mut u8, usize) {
        (self.arena.base.as_ptr(), self.arena.bytes)
    }

    /// The current use of the pool's memory.
    pub fn usage(&self) -> SlotUsage {
        let space = self.arena.space();
        SlotUsage {
            bytes: self.arena.bytes,
            in_use: space.in_use as usize * PAGE,
            peak: space.peak as usize * PAGE,
            pieces: space.free.len(),
        }
    }
}

/// Gauges of a [`SlotPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUsage {
    /// The size of the arena in bytes.
    pub bytes: usize,
    /// The allocated bytes, including alignment.
    pub in_use: usize,
    /// The maximum number of bytes that were ever allocated at the same time.
    pub peak: usize,
    /// The number of ranges that the free space consists of.
    pub pieces: usize,
}

/// The number of bytes of a slot in addition to its `length`. Up to `PAGE - 1` of them precede the data, because
/// O_DIRECT starts at a page boundary. One byte follows the data; a reader uses it to detect that a file has grown.
/// Rounding up to pages gives the space that O_DIRECT needs at the end.
pub const OVERHEAD: usize = PAGE;

/// The number of pages of a slot for a read of `length` bytes; `None` if no slot is so large.
pub fn pages_for(length: usize) -> Option<u32> {
    let bytes = length.checked_add(OVERHEAD)?;
    u32::try_from(bytes.div_ceil(PAGE)).ok()
}

/// A buffer that returns to its pool when it is dropped.
pub struct Slot {
    arena: Arc<Arena>,
    first: u32,
    pages: u32,
}

impl Slot {
    /// The size of the slot: at least the requested `length` plus a [`PAGE`], and a multiple of [`PAGE`].
    pub fn capacity(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// A pointer to the first byte, aligned to [`PAGE`].
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base()
    }

    /// All bytes of the slot.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: see `base`; `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.base(), self.capacity()) }
    }

    /// All bytes of the slot, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: see `base`; `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.capacity()) }
    }

    /// Splits the slot into its first `pages` pages and the rest. Each of the two slots returns to the pool on its own.
    ///
    /// # Errors
    /// Returns the slot if it has no more than `pages` pages, or if `pages` is zero.
    pub fn split(mut self, pages: u32) -> Result<(Self, Self), Self> {
        match self.pages.checked_sub(pages) {
            Some(left) if left > 0 && pages > 0 => {
                self.pages = pages;
                let rest = Self { arena: self.arena.clone(), first: self.first + pages, pages: left };
                Ok((self, rest))
            }
            _ => Err(self),
        }
    }

    /// Joins the slot and the slot `next`, whose pages follow those of this slot.
    ///
    /// # Errors
    /// Returns both slots if the pages of `next` do not follow.
    pub fn join(mut self, mut next: Self) -> Result<Self, (Self, Self)> {
        if !Arc::ptr_eq(&self.arena, &next.arena) || self.first + self.pages != next.first {
            return Err((self, next));
        }
        // From now on, the pages belong to this slot. Without pages, `next` returns nothing to the pool.
        self.pages += std::mem::take(&mut next.pages);
        Ok(self)
    }

    /// A pointer to the slot's pages. The pages are inside the arena's mapping, which lives as long as `self.arena`.
    /// They are initialised (to zero by the kernel), and belong to this slot alone until it is dropped.
    fn base(&self) -> *mut u8 {
        self.arena.base.as_ptr().wrapping_add(self.first as usize * PAGE)
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.arena.space().give_back(self.first, self.pages);
        }
    }
}

/// What a forked child inherits of an arena.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtFork {
    /// Nothing. A fork then takes no time or memory for the arena, and the parent's later writes cause no copy-on-write
    /// faults.
    Leave,
    /// A copy.
    ///
    /// A fork can happen while the kernel reads into the arena for the parent. Pages of registered buffers are pinned:
    /// since Linux 5.9 the child gets copies of pinned pages, and the parent keeps its own (io_uring as it is used here
    /// needs 5.17). A read into an unregistered buffer continues in the parent's old page, which both processes then
    /// share. This is safe, because only the kernel writes to a slot while its read is in flight. The next read into
    /// that slot first gives the parent a page of its own.
    Inherit,
}

struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    mapping: NonNull<c_void>,
    mapped: usize,
    space: Mutex<FreeSpace>,
}

// SAFETY: the pointers are to a mapping that only `Drop` removes. Its bytes are accessed through slots, which never
// share pages, and the free list is behind a mutex.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn map(bytes: usize, at_fork: AtFork) -> std::io::Result<Self> {
        let too_large = || std::io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_large)?;
        let pages = u32::try_from(bytes / PAGE).map_err(|_| too_large())?;
        // The mapping has one huge page more than needed, so that it contains an aligned range. The bytes outside this
        // range are never touched.
        let mapped = bytes.checked_add(HUGE_PAGE).ok_or_else(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses does not overlap any memory in use.
        let mapping = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let mapping = NonNull::new(mapping).expect("the kernel maps nothing at address 0 unasked");
        let start = mapping.as_ptr().cast::<u8>();
        let base = NonNull::new(start.wrapping_add(start.align_offset(HUGE_PAGE)))
            .expect("above the mapping's start");
        // From here on `Drop` unmaps the memory, even if prefaulting fails.
        let arena = Self {
            base,
            bytes,
            mapping,
            mapped,
            space: Mutex::new(FreeSpace { free: vec![(0, pages)], in_use: 0, peak: 0 }),
        };
        arena.prefault(at_fork)?;
        Ok(arena)
    }

    fn prefault(&self, at_fork: AtFork) -> std::io::Result<()> {
        let base = self.base.as_ptr().cast::<c_void>();
        // SAFETY: the range is inside our mapping, which nothing has used yet. Huge pages and LinuxDontFork are hints
        // that may fail: reads or forks are then slower.
        let _ = unsafe { madvise(base, self.bytes, Advice::LinuxHugepage) };
        if at_fork == AtFork::Leave {
            // SAFETY: as above.
            let _ = unsafe { madvise(base, self.bytes, Advice::LinuxDontFork) };
        }
        // SAFETY: as above; populating changes no byte.
        match unsafe { madvise(base, self.bytes, Advice::LinuxPopulateWrite) } {
            // Linux before 5.14 does not support this advice.
            Err(rustix::io::Errno::INVAL) => {
                for page in (0..self.bytes).step_by(PAGE) {
                    // SAFETY: inside our mapping. Volatile, so that the compiler keeps the write that faults the page
                    // in.
                    unsafe { self.base.as_ptr().add(page).write_volatile(0) };
                }
                Ok(())
            }
            other => other.map_err(Into::into),
        }
    }

    fn space(&self) -> MutexGuard<'_, FreeSpace> {
        self.space.lock().expect("no panic while the lock is held")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this is our whole mapping, and the arena is dropped after the last slot in it.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The free ranges as (first page, number of pages), sorted by first page, never adjacent. There are only tens of
/// ranges, so a scan is faster than a tree.
struct FreeSpace {
    free: Vec<(u32, u32)>,
    in_use: u32,
    peak: u32,
}

impl FreeSpace {
    fn take(&mut self, pages: u32) -> Option<u32> {
        let place = self.free.iter().position(|&(_, length)| length >= pages)?;
        let (first, length) = self.free[place];
        if length == pages {
            self.free.remove(place);
        } else {
            self.free[place] = (first + pages, length - pages);
        }
        self.in_use += pages;
        self.peak = self.peak.max(self.in_use);
        Some(first)
    }

    fn give_back(&mut self, first: u32, pages: u32) {
        let next = self.free.partition_point(|&(start, _)| start < first);
        let joins_next = self.free.get(next).is_some_and(|&(start, _)| start == first + pages);
        let joins_previous = next > 0 && {
            let (start, length) = self.free[next - 1];
            start + length == first
        };
        match (joins_previous, joins_next) {
            (true, true) => {
                let (_, after) = self.free.remove(next);
                self.free[next - 1].1 += pages + after;
            }
            (true, false) => self.free[next - 1].1 += pages,
            (false, true) => self.free[next] = (first, pages + self.free[next].1),
            (false, false) => self.free.insert(next, (first, pages)),
        }
        self.in_use -= pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RandomKey, RandomStream, Use};
    use std::collections::VecDeque;

    fn random(seed: u64) -> RandomStream {
        RandomKey::new(b"slot tests", seed, 0, Use::Order).stream(0)
    }

    #[test]
    fn slots_have_room_for_alignment_and_a_byte_more() {
        let pool = SlotPool::new(4 << 20).unwrap();
        for length in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut slot = pool.try_take(length).unwrap();
            assert_eq!(slot.as_mut_ptr() as usize % PAGE, 0);
            assert_eq!(slot.capacity() % PAGE, 0);
            // The worst case for O_DIRECT: data begins at the last byte of a page.
            assert!(slot.capacity() >= (PAGE - 1 + length + 1).next_multiple_of(PAGE));
        }
        assert_eq!(pool.as_raw().0 as usize % HUGE_PAGE, 0);
        assert!(pool.try_take(pool.largest() + 1).is_none());
        assert_eq!(pool.try_take(pool.largest()).unwrap().capacity(), 4 << 20);
        assert!(pool.try_take(usize::MAX).is_none());
        assert!(SlotPool::new(0).is_err());
        assert!(SlotPool::new(usize::MAX).is_err());
    }

    #[test]
    fn no_two_slots_overlap_and_all_room_comes_back() {
        for seed in 0..20 {
            let mut random = random(seed);
            let pool = SlotPool::new(8 << 20).unwrap();
            let mut held: Vec<(Slot, u8)> = Vec::new();
            for step in 0..2000u32 {
                if random.below(5) < 3 {
                    let length = random.below(200_000) as usize;
                    if let Some(mut slot) = pool.try_take(length) {
                        slot.bytes_mut().fill(step as u8);
                        held.push((slot, step as u8));
                    }
                } else if !held.is_empty() {
                    let (slot, mark) = held.swap_remove(random.below(held.len() as u64) as usize);
                    assert!(slot.bytes().iter().all(|&byte| byte == mark), "seed {seed}, step {step}");
                }
                let taken: usize = held.iter().map(|(slot, _)| slot.capacity()).sum();
                assert_eq!(pool.usage().in_use, taken, "seed {seed}, step {step}");
            }
            drop(held);
            let usage = pool.usage();
            assert_eq!((usage.in_use, usage.pieces), (0, 1), "seed {seed}");
            assert!(usage.peak > 0 && usage.peak <= usage.bytes);
            assert!(pool.try_take(pool.largest()).is_some(), "seed {seed}");
        }
    }

    #[test]
    fn little_is_lost_to_fragments_when_lifetimes_are_nearly_first_in_first_out() {
        for seed in 0..10 {
            let mut random = random(seed);
            let pool = SlotPool::new(32 << 20).unwrap();
            let mut held = VecDeque::new();
            let (mut sum, mut refusals) = (0.0, 0u32);
            for _ in 0..20_000 {
                let length = 10_000 + random.below(140_000) as usize;
                loop {
                    if let Some(slot) = pool.try_take(length) {
                        held.push_back(slot);
                        break;
                    }
                    sum += pool.usage().in_use as f64 / pool.usage().bytes as f64;
                    refusals += 1;
                    // Decoders finish slightly out of order.
                    held.swap_remove_front(random.below(8) as usize);
                }
                assert!(pool.usage().pieces < 200, "seed {seed}: {:?}", pool.usage());
            }
            let full = sum / f64::from(refusals);
            assert!(full > 0.85, "seed {seed}: refused when {full:.2} full on average");
        }
    }

    #[test]
    fn split_slots_are_apart_and_can_be_joined_again() {
        let pool = SlotPool::new(2 << 20).unwrap();
        let mut slot = pool.try_take(10 * PAGE).unwrap();
        let (address, pages) = (slot.as_mut_ptr(), 11);
        assert_eq!(slot.capacity(), pages as usize * PAGE);
        for wrong in [0, pages, pages + 1] {
            slot = slot.split(wrong).err().expect("the slot");
        }
        let (mut first, rest) = slot.split(4).ok().unwrap();
        let (mut second, mut third) = rest.split(1).ok().unwrap();
        for (mark, part) in (1..).zip([&mut first, &mut second, &mut third]) {
            part.bytes_mut().fill(mark);
        }
        assert_eq!([&first, &second, &third].map(|part| part.capacity() / PAGE), [4, 1, 6]);
        let (first, third) = first.join(third).err().expect("they are not neighbours");
        let other = SlotPool::new(2 << 20).unwrap().try_take(1).unwrap();
        let (first, _) = first.join(other).err().expect("another pool");
        let mut slot = first.join(second).and_then(|slot| slot.join(third)).ok().unwrap();
        assert_eq!((slot.as_mut_ptr(), slot.capacity() / PAGE), (address, 11));
        assert!((0..11).all(|page| slot.bytes()[page * PAGE] == [1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3][page]));
        assert_eq!(pool.usage().in_use, 11 * PAGE);
        let (first, rest) = slot.split(3).ok().unwrap();
        drop(first);
        assert_eq!((pool.usage().in_use, pool.usage().pieces), (8 * PAGE, 2));
        drop(rest);
        assert_eq!((pool.usage().in_use, pool.usage().pieces), (0, 1));
    }

    #[test]
    fn a_slot_outlives_its_pool() {
        let pool = SlotPool::new(1).unwrap();
        let mut slot = pool.try_take(100).unwrap();
        drop(pool);
        slot.bytes_mut()[0] = 7;
        assert_eq!(slot.bytes()[0], 7);
    }
}
