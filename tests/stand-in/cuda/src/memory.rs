//! Device memory: host pages in their own address range, so that a stray access faults, and an address is never used
//! again after it was freed.

use crate::clock::Stamp;
use crate::shadow::Operation;
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: u64 = 4096;

/// The byte that fills a fresh allocation, so that it looks wrong.
const FRESH: u8 = 0xA7;

/// The number of bytes of a fresh allocation that are filled; filling more would only cost time.
const FILLED: u64 = 1 << 20;

/// Where an allocation came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `cuMemAlloc`.
    Plain,
    /// A memory pool, by handle.
    Pool(u64),
}

/// An allocation. It is kept for messages after it was freed.
#[derive(Debug)]
pub struct Allocation {
    pub start: u64,
    pub end: u64,
    pub source: Source,
    /// The step that made it usable; `None` until its stream gets there.
    pub born: Option<Stamp>,
    /// The number of the call that freed it, and that operation.
    pub freed: Option<(u64, Arc<Operation>)>,
}

/// All device memory of all devices.
pub struct Memory {
    base: u64,
    next: u64,
    end: u64,
    allocations: BTreeMap<u64, Allocation>,
    /// The pages of freed memory that an operation might still use, after a violation was reported.
    to_release: Vec<(u64, u64)>,
}

impl Memory {
    pub fn reserve() -> Self {
        for bits in [42, 38, 34] {
            let length = 1u64 << bits;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let base =
                unsafe { libc::mmap(std::ptr::null_mut(), length as usize, libc::PROT_NONE, flags, -1, 0) };
            if base != libc::MAP_FAILED {
                let base = base as u64;
                let allocations = BTreeMap::new();
                return Self { base, next: base, end: base + length, allocations, to_release: Vec::new() };
            }
        }
        panic!("no address range for device memory");
    }

    /// Whether an address is one of device memory, allocated or not.
    pub fn is_device(&self, address: u64) -> bool {
        (self.base..self.end).contains(&address)
    }

    /// Allocates memory at an address that was never used, after a page that faults; `None` if addresses run out.
    pub fn allocate(&mut self, bytes: u64, source: Source) -> Option<u64> {
        let first = self.next + PAGE;
        // The address is aligned to 512 and not more, because the driver guarantees no more.
        let start = first + 512 * (1 + self.allocations.len() as u64 % 7);
        let last = (start + bytes).next_multiple_of(PAGE);
        if last >= self.end {
            return None;
        }
        // SAFETY: pages of our own reservation that are not used yet.
        let made = unsafe {
            libc::mprotect(first as *mut _, (last - first) as usize, libc::PROT_READ | libc::PROT_WRITE)
        };
        if made != 0 {
            return None;
        }
        self.next = last;
        // SAFETY: just made writable.
        unsafe { std::ptr::write_bytes(start as *mut u8, FRESH, bytes.min(FILLED) as usize) };
        let end = start + bytes;
        self.allocations.insert(start, Allocation { start, end, source, born: None, freed: None });
        Some(start)
    }

    /// The allocation that holds `address`, even if it was freed.
    pub fn find(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, allocation) = self.allocations.range_mut(..=address).next_back()?;
        (address < allocation.end).then_some(allocation)
    }

    /// The allocation that begins at `start`.
    pub fn at(&mut self, start: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&start)
    }

    /// The allocations that were not freed.
    pub fn live(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.values().filter(|allocation| allocation.freed.is_none())
    }

    /// Marks the pages of an allocation for release.
    pub fn give_up(&mut self, start: u64, end: u64) {
        self.to_release.push((start, end));
    }

    /// Releases pages; called when no operation runs.
    pub fn release(&mut self) {
        for (start, end) in self.to_release.drain(..) {
            let (first, last) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: pages of our own reservation that belonged to this allocation alone.
            unsafe { libc::mmap(first as *mut _, (last - first) as usize, libc::PROT_NONE, flags, -1, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_aligned_and_never_used_twice() {
        let mut memory = Memory::reserve();
        let first = memory.allocate(100, Source::Plain).unwrap();
        let second = memory.allocate(10_000, Source::Plain).unwrap();
        assert!((first | second).is_multiple_of(512) && second > first + 100);
        assert!(memory.is_device(first) && !memory.is_device(0));
        assert_eq!(memory.find(second + 9_999).unwrap().start, second);
        assert!(memory.find(second + 10_000).is_none());
        memory.give_up(first, first + 100);
        memory.release();
        assert_ne!(memory.allocate(100, Source::Plain).unwrap(), first);
    }
}
