//! Batch buffers that other processes can be lent: memory behind a file that has no name (memfd), which ends with the
//! last process that has it.

use super::Batch;
use super::memory::Base;
use base::error::{Error, Result};
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What nobody can do to lent memory any more: change its size, so that no access is to a page that is gone, write to
/// it through a mapping or a descriptor made from now on, or take these seals away.
pub(super) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// The number of the next buffer of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The numbers of buffers that are gone, for whoever was lent them.
static GONE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// The numbers of the buffers that are gone since this was asked for last.
pub fn buffers_gone() -> Vec<u64> {
    std::mem::take(&mut *GONE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        GONE.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// A buffer that this process alone can write, by the mapping that was made before the seals.
pub(super) struct SharedMemory {
    id: u64,
    file: File,
    base: Base,
    map: MmapMut,
}

impl SharedMemory {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let file = nameless_file(bytes)?;
        // SAFETY: the file is this process's own, and nobody changes its size.
        let mut map =
            unsafe { MmapOptions::new().len(bytes.max(1)).map_mut(&file) }.map_err(no_memory(bytes))?;
        let _ = map.advise(Advice::HugePage);
        seal(&file, SEALS)?;
        Ok(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), base: Base(map.as_mut_ptr()), file, map })
    }

    pub(super) fn base(&self) -> Base {
        self.base
    }

    /// Has the kernel back all pages with memory now.
    pub(super) fn touch(&self) {
        let _ = self.map.advise(Advice::PopulateWrite);
    }
}

/// A file without a name, of so many bytes.
pub(super) fn nameless_file(bytes: usize) -> Result<File> {
    let file = rustix::fs::memfd_create(c"foreload batch", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(file.map_err(cannot)?);
    file.set_len(bytes.max(1) as u64).map_err(no_memory(bytes))?;
    Ok(file)
}

/// Seals a file without a name.
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
                "no memory can be lent to other processes: {error}; raise `ulimit -n` of who makes the batches"
            )
        }
        _ => format!(
            "this system cannot lend memory to other processes (memfd with seals, Linux 5.1): {error}"
        ),
    })
}

/// Checks whether this system can lend memory to other processes.
///
/// # Errors
/// [`Error::Unavailable`] where it cannot.
pub fn check_lending() -> Result<()> {
    SharedMemory::new(1).map(|_| ())
}

/// A batch as other processes can be lent it.
#[derive(Clone, Copy)]
pub struct SharedSlot<'a> {
    /// The number of the buffer, which no other of this process ever has.
    pub id: u64,
    /// The file that its memory is behind, for a process that does not have it yet.
    pub file: std::os::fd::BorrowedFd<'a>,
}

impl Batch {
    /// The batch for other processes; `None` where its memory is this one's alone.
    pub fn shared(&self) -> Option<SharedSlot<'_>> {
        let memory = self.buffer.memory().shared()?;
        Some(SharedSlot { id: memory.id, file: memory.file.as_fd() })
    }

    /// Gives the batch up, whose memory is not used again: whoever was lent it may keep it.
    ///
    /// # Panics
    /// Panics when there are tensors of it.
    pub fn abandon(mut self) {
        let buffer = std::sync::Arc::get_mut(&mut self.buffer).expect("no tensors of a batch that is lent");
        buffer.kept_out = true;
    }
}
