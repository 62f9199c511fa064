//! Memory that another process, the producer, has leased to this process. The producer has filled the memory with a
//! batch, and may fill it again after this process has given it back.
//!
//! The mapping is private: this process sees the producer's pages. When this process writes to a page, it gets its own
//! copy of that page. These copies are dropped when the memory is given back. Otherwise they would hide parts of the
//! next batch.

use super::memory::BufferAddress;
use super::shared::SEALS;
use base::error::{Error, Result};
use memmap2::{Mmap, MmapMut, MmapOptions, UncheckedAdvice};
use rustix::fs::SealFlags;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

/// This process's mapping of a buffer of the producer. Every lease of that buffer uses the same mapping.
pub struct LeasedMap {
    pub(super) base: BufferAddress,
    map: MmapMut,
    file: File,
}

/// A second mapping of the same memory, read-only. It does not show what this process writes through the private
/// mapping.
pub(super) struct ReadOnlyMap(Mmap);

impl AsRef<[u8]> for ReadOnlyMap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl LeasedMap {
    /// Maps the memory of a descriptor from another process.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for memory that another process could still resize, or map for writing.
    pub fn new(file: OwnedFd) -> Result<Self> {
        Self::sealed_by(file, SEALS)
    }

    pub(super) fn sealed_by(file: OwnedFd, needed: SealFlags) -> Result<Self> {
        let file = File::from(file);
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(needed) {
            return Err(Error::Unavailable(
                "the process that makes shared batches sent memory without memfd seals".into(),
            ));
        }
        let length = file.metadata().map_err(cannot_map)?.len();
        let length =
            usize::try_from(length).map_err(|_| cannot_map(std::io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: the seals prevent any change of the size. The producer may change the bytes, but not while they are
        // leased. A consumer that reads a batch after giving it back races with itself.
        let mut map = unsafe { MmapOptions::new().len(length).map_copy(&file) }.map_err(cannot_map)?;
        count_forks();
        Ok(Self { base: BufferAddress(map.as_mut_ptr()), map, file })
    }

    /// Maps the memory a second time, for a device to copy from. The private mapping cannot be page-locked: the lock
    /// would make a private copy of each page.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn read_only(&self) -> Result<ReadOnlyMap> {
        // SAFETY: the same reasons as for the mapping in `sealed_by`.
        let map = unsafe { MmapOptions::new().len(self.map.len()).map(&self.file) }.map_err(cannot_map)?;
        Ok(ReadOnlyMap(map))
    }

    /// Returns the bytes. Call this only while the memory is leased: after that, the producer may write to it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    fn drop_own_pages(&self) {
        let first = self.base.0 as u64;
        let found = written_pages(first, first + self.map.len().next_multiple_of(base::slot::PAGE) as u64);
        let all = || vec![(first, first + self.map.len() as u64)];
        for (start, end) in found.unwrap_or_else(|_| all()) {
            // SAFETY: the range is within the mapping, and no reference to its bytes exists, because the last tensor
            // was dropped. Later reads of the range see the producer's pages.
            let _ = unsafe {
                self.map.unchecked_advise_range(
                    UncheckedAdvice::DontNeed,
                    (start - first) as usize,
                    (end - start).min(first + self.map.len() as u64 - start) as usize,
                )
            };
        }
    }
}

fn cannot_map(error: std::io::Error) -> Error {
    Error::io("map a shared batch in", "memory", error)
}

/// The receiver of leased memory that is given back.
pub trait LeaseOwner: Send + Sync {
    /// Takes back the buffer with the identifier `id`. If `inherited` is true, a forked child may still read the
    /// buffer, so its bytes must not change.
    fn give_back(&self, id: u64, inherited: bool);
}

/// A leased buffer, which is given back when it is dropped.
pub struct LeasedMemory {
    id: u64,
    pub(super) map: Arc<LeasedMap>,
    lease_owner: Arc<dyn LeaseOwner>,
    forks: u64,
}

impl LeasedMemory {
    /// Makes a leased buffer of the memory in `map`. `id` is the producer's identifier of the buffer.
    pub fn new(id: u64, map: Arc<LeasedMap>, lease_owner: Arc<dyn LeaseOwner>) -> Self {
        Self { id, map, lease_owner, forks: FORKS.load(Ordering::SeqCst) }
    }
}

impl Drop for LeasedMemory {
    fn drop(&mut self) {
        self.map.drop_own_pages();
        self.lease_owner.give_back(self.id, FORKS.load(Ordering::SeqCst) != self.forks);
    }
}

/// Number of times that this process has forked. A forked child shares pages with its parent, so it would see the bytes
/// change when the producer fills the memory again. So memory that is leased at the time of a fork is never filled
/// again.
static FORKS: AtomicU64 = AtomicU64::new(0);

fn count_forks() {
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::SeqCst);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler adds to an atomic and does nothing else, which is safe in any thread at any time.
        let _ = unsafe { libc::pthread_atfork(Some(count), None, None) };
    });
}

/// The argument of the ioctl `PAGEMAP_SCAN`: `struct pm_scan_arg` of the kernel's `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct PageScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A range of pages that the scan found: `struct page_region` of the kernel's `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// Returns the address ranges between `first` and `end` of a private mapping that this process has written to. The
/// pages in these ranges are private copies. The scan takes about a hundredth of the time of dropping all pages and
/// faulting them in again.
///
/// # Errors
/// Linux before 6.7 does not have this scan.
fn written_pages(first: u64, end: u64) -> std::io::Result<Vec<(u64, u64)>> {
    let pages = File::open("/proc/self/pagemap")?;
    let mut found = Vec::new();
    let mut regions = [PageRegion::default(); 64];
    let mut scan = PageScan {
        size: size_of::<PageScan>() as u64,
        start: first,
        end,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PRESENT,
        ..PageScan::default()
    };
    while scan.start < end {
        // SAFETY: the kernel reads and writes the argument and up to `vec_len` regions, both of which outlive the call.
        let count = unsafe { libc::ioctl(pages.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        if count < 0 {
            return Err(std::io::Error::last_os_error());
        }
        found.extend(regions[..count as usize].iter().map(|region| (region.start, region.end)));
        if scan.walk_end <= scan.start {
            break;
        }
        scan.start = scan.walk_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::shared::{create_memfd, seal};
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Returned(Mutex<Vec<(u64, bool)>>);

    impl LeaseOwner for Returned {
        fn give_back(&self, id: u64, inherited: bool) {
            self.0.lock().unwrap().push((id, inherited));
        }
    }

    /// Returns two mappings of a sealed file of almost three pages: the producer's and the consumer's.
    fn leased() -> (MmapMut, Arc<LeasedMap>) {
        let file = create_memfd(3 * 4096 - 5).unwrap();
        // SAFETY: the size of the file does not change.
        let writer = unsafe { MmapOptions::new().map_mut(&file) }.unwrap();
        seal(&file, SEALS).unwrap();
        (writer, Arc::new(LeasedMap::new(file.into()).unwrap()))
    }

    #[test]
    fn what_is_written_reaches_nobody_and_is_gone_when_the_memory_goes_back() {
        let (mut writer, map) = leased();
        let returned = Arc::new(Returned::default());
        for round in 1..4u8 {
            writer.fill(round);
            let memory = LeasedMemory::new(7, map.clone(), returned.clone());
            assert!(map.bytes().iter().all(|&byte| byte == round), "round {round}");
            // SAFETY: the bytes are within the mapping, and no reference to them is alive.
            unsafe {
                memory.map.base.0.write(100 + round);
                memory.map.base.0.add(memory.map.bytes().len() - 1).write(200 + round);
            }
            assert_eq!((map.bytes()[0], *map.bytes().last().unwrap()), (100 + round, 200 + round));
            assert_eq!((writer[0], *writer.last().unwrap()), (round, round));
            drop(memory);
        }
        assert_eq!(returned.0.lock().unwrap().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [7; 3]);
        writer.fill(9);
        assert!(map.bytes().iter().all(|&byte| byte == 9));
    }

    #[test]
    fn only_pages_that_were_written_to_are_found() {
        let (_writer, map) = leased();
        let first = map.base.0 as u64;
        assert_eq!(map.bytes()[5000], 0);
        let Ok(none) = written_pages(first, first + 3 * 4096) else { return };
        assert!(none.is_empty(), "{none:?}");
        // SAFETY: the written byte is within the mapping.
        unsafe { map.base.0.add(4096).write(1) };
        assert_eq!(written_pages(first, first + 3 * 4096).unwrap(), [(first + 4096, first + 2 * 4096)]);
    }

    #[test]
    fn nobody_can_write_to_lent_memory_or_cut_it_off() {
        let file = create_memfd(4096).unwrap();
        let unsealed = file.try_clone().unwrap();
        assert!(LeasedMap::new(unsealed.into()).is_err(), "the lender might cut it off");
        seal(&file, SEALS).unwrap();
        assert!(file.write_at(&[1], 0).is_err());
        assert!(file.set_len(1).is_err() && file.set_len(9000).is_err());
        // SAFETY: the kernel refuses this mapping.
        assert!(unsafe { MmapOptions::new().map_mut(&file) }.is_err());
        assert!(seal(&file, SealFlags::WRITE).is_err(), "sealed for good");
        assert!(
            rustix::fs::fallocate(
                &file,
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
                0,
                4096
            )
            .is_err()
        );
        assert!(LeasedMap::new(file.into()).is_ok());
    }
}
