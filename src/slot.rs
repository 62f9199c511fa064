//! Slots: page-aligned buffers that bytes are read into, carved from one arena with a hard cap.

use crate::error::Result;
use std::sync::Arc;

/// Readable bytes after the end of every slot's data: decoders may load whole vectors past the end.
pub const PADDING: usize = 64;

/// The arena all slots are carved from: 2 MiB-aligned, huge pages where the system has them, prefaulted, fixed size.
#[derive(Clone)]
pub struct SlotPool {
    _inner: Arc<()>,
}

impl SlotPool {
    /// An arena of `bytes` (rounded up to 2 MiB).
    pub fn new(_bytes: usize) -> Result<Self> {
        todo!()
    }
    /// A slot for a read of `length` bytes with room for O_DIRECT alignment on both sides and [`PADDING`], or `None`
    /// when the arena has no such room now.
    pub fn try_take(&self, _length: usize) -> Option<Slot> {
        todo!()
    }
    /// Blocks until a slot of `length` is free or `stop` says so (`None`).
    pub fn take(&self, _length: usize, _stop: &dyn Fn() -> bool) -> Option<Slot> {
        todo!()
    }
    /// Wakes every `take` so that it looks at its `stop` again.
    pub fn wake_all(&self) {
        todo!()
    }
    /// Largest `length` a slot can ever have.
    pub fn largest(&self) -> usize {
        todo!()
    }
    /// Base address and length in bytes of the arena, for registration with io_uring or the GPU driver.
    pub fn as_raw(&self) -> (*mut u8, usize) {
        todo!()
    }
}

/// One buffer; goes back to its pool when dropped.
pub struct Slot {
    _pool: SlotPool,
}
