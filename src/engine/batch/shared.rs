//! Batch buffers that can be leased to other processes: memory of an unnamed file (memfd). The memory is freed when the
//! last process that maps the file exits or unmaps it.

use super::Batch;
use super::memory::BufferAddress;
use base::error::{Error, Result};
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The seals of leased memory. They keep its size, so no access hits a missing page. No process can write to the memory
/// through a new mapping or a descriptor, or remove the seals.
pub(super) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Identifiers of freed buffers. Consumers that have leased these buffers are told to unmap them.
static FREED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Returns the identifiers of the buffers that were freed since the previous call.
pub fn take_freed_buffers() -> Vec<u64> {
    std::mem::take(&mut *FREED.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        FREED.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// A buffer that only this process can write to, through the mapping that was made before the seals.
pub(super) struct SharedMemory {
    id: u64,
    file: File,
    pub(super) base: BufferAddress,
    map: MmapMut,
}

impl SharedMemory {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let file = create_memfd(bytes)?;
        // SAFETY: the file is this process's own, and its size does not change.
        let mut map =
            unsafe { MmapOptions::new().len(bytes.max(1)).map_mut(&file) }.map_err(no_memory(bytes))?;
        let _ = map.advise(Advice::HugePage);
        seal(&file, SEALS)?;
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            base: BufferAddress(map.as_mut_ptr()),
            file,
            map,
        })
    }

    pub(super) fn touch(&self) {
        let _ = self.map.advise(Advice::PopulateWrite);
    }
}

pub(super) fn create_memfd(bytes: usize) -> Result<File> {
    let file = rustix::fs::memfd_create(c"foreload batch", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(file.map_err(cannot)?);
    file.set_len(bytes.max(1) as u64).map_err(no_memory(bytes))?;
    Ok(file)
}

pub(super) fn seal(file: &File, seals: SealFlags) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, seals).map_err(cannot)
}

pub(super) fn no_memory(bytes: usize) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::io(format!("allocate a batch of {bytes} bytes from"), "memory", error)
}

fn cannot(error: Errno) -> Error {
    Error::Unavailable(match error {
        Errno::MFILE | Errno::NFILE => {
            format!(
                "cannot share memory with other processes: {error}; raise `ulimit -n` of the process that makes the \
                 batches"
            )
        }
        _ => format!(
            "this system cannot share memory with other processes, which needs sealed memfds (Linux 5.1): {error}"
        ),
    })
}

/// Checks whether this system can lease memory to other processes.
///
/// # Errors
/// [`Error::Unavailable`] if it cannot.
pub fn check_leasing() -> Result<()> {
    SharedMemory::new(1).map(|_| ())
}

/// The memory of a batch, for leasing it to other processes.
#[derive(Clone, Copy)]
pub struct SharedSlot<'a> {
    /// The identifier of the buffer. No other buffer of this process ever gets the same identifier.
    pub id: u64,
    /// The memfd of the buffer, for a process that does not have its descriptor yet.
    pub file: std::os::fd::BorrowedFd<'a>,
}

impl Batch {
    /// Returns the memory of the batch for other processes; `None` if the memory cannot be shared.
    pub fn shared(&self) -> Option<SharedSlot<'_>> {
        let memory = self.buffer.memory().shared()?;
        Some(SharedSlot { id: memory.id, file: memory.file.as_fd() })
    }

    /// Drops the batch without reusing its memory, so consumers that have leased the memory may keep it.
    ///
    /// # Panics
    /// Panics if tensors of the batch exist.
    pub fn abandon(mut self) {
        let buffer =
            std::sync::Arc::get_mut(&mut self.buffer).expect("a leased batch has no tensors in this process");
        buffer.not_reused = true;
    }
}
