//! Where the bytes of a batch are: in host memory, or its images on a GPU.

use super::pool::Plan;
use crate::error::{Error, Result};
use memmap2::{Advice, MmapMut};

/// Where a pool's buffers are.
#[derive(Clone, Default)]
pub enum Storage {
    /// Host memory.
    #[default]
    Host,
    /// Host memory for the columns; encoded files stay in the slots they were read into.
    Slots,
}

impl Storage {
    pub(super) fn allocate(&self, plan: &Plan) -> Result<Memory> {
        match self {
            Self::Host | Self::Slots => {
                let mut map = map(plan.bytes)?;
                let images = map.as_mut_ptr();
                Ok(Memory { images: Base(images), columns: Base(images.wrapping_add(plan.columns)), map })
            }
        }
    }
}

/// The memory of one buffer.
pub(super) struct Memory {
    /// Owns what the pointers point to.
    #[expect(dead_code, reason = "held, not used")]
    map: MmapMut,
    /// First byte of the images, and of the columns: all that write to the buffer, consumers included, go through these.
    pub images: Base,
    pub columns: Base,
}

impl Memory {
    /// What the pool keeps of a buffer nobody uses any more.
    pub(super) fn given_back(self) -> Self {
        self
    }
}

/// An address in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Base(pub *mut u8);

// SAFETY: the memory is kept by the buffer (or the encoded file) beside it; tickets write through it each to a place of its own, and tensors
// exist only when the last ticket is gone.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

fn map(bytes: usize) -> Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)
        .map_err(|e| Error::io(format!("allocate a batch of {bytes} bytes from"), "memory", e))?;
    // Huge pages make first touch and TLB misses cheap; a kernel without them still works.
    let _ = memory.advise(Advice::HugePage);
    Ok(memory)
}
