//! Page-locked memory, which a device copies from and to by itself: the slots of the readers and buffers of our own.

use super::device::GpuDevice;
use super::driver::call;
use base::error::{Error, Result};
use base::slot::{Slot, SlotPool};
use cudarc::driver::sys;
use std::any::Any;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// The arena of a [`SlotPool`], page-locked for every device of this process. Clones are the same registration. It
/// ends, and the arena with it, when the last clone, the last [`PinnedSlice`] and the last slot are gone.
#[derive(Clone)]
pub struct Registration {
    inner: Arc<Locked>,
    slots: SlotPool,
}

/// A range of memory that is page-locked.
struct Locked {
    device: GpuDevice,
    /// The address of its first byte, and the number of its bytes.
    range: (usize, usize),
    /// The address at which the device sees the first byte; 0 where kernels may not read it.
    seen_at: u64,
    /// What keeps the memory mapped for as long as the driver knows it.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Locked {
    /// Page-locks a range, which stays mapped as long as its `owner` lives.
    fn new(
        device: &GpuDevice,
        (base, bytes): (*const u8, usize),
        owner: Arc<dyn Any + Send + Sync>,
        flags: u32,
    ) -> Result<Self> {
        let bound = device.bind()?;
        // SAFETY: the range is mapped and stays so, for what is made here holds its owner.
        let done =
            unsafe { call!(bound.driver(), cuMemHostRegister_v2(base.cast_mut().cast(), bytes, flags)) };
        done.map_err(|error| match error {
            Error::Gpu { call, status, .. } => {
                let advice = "; lower memory, or let this process lock more (ulimit -l)";
                Error::Gpu { call, status: format!("{status} (of {bytes} bytes)"), advice }
            }
            other => other,
        })?;
        Ok(Self { device: device.clone(), range: (base as usize, bytes), seen_at: 0, owner: Some(owner) })
    }
}

impl Registration {
    /// Page-locks the arena of `slots`, which takes about 0.1 s a gigabyte.
    pub fn new(device: &GpuDevice, slots: &SlotPool) -> Result<Self> {
        let (base, bytes) = slots.as_raw();
        // The memory is never write-combined: processors read it.
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // From here on it is registered, and no more once this is dropped.
        let mut locked = Locked::new(device, (base, bytes), Arc::new(slots.clone()), flags)?;
        let bound = device.bind()?;
        // SAFETY: the range was just registered, and the pointer is valid for the call.
        unsafe { call!(bound.driver(), cuMemHostGetDevicePointer_v2(&mut locked.seen_at, base.cast(), 0)) }?;
        Ok(Self { inner: Arc::new(locked), slots: slots.clone() })
    }

    /// The pool whose arena is page-locked.
    pub fn slots(&self) -> &SlotPool {
        &self.slots
    }

    /// Returns the bytes of `owner`, usually a [`Slot`], as memory to copy from; `owner` is dropped after the last
    /// copy. It is an error if the bytes are not in the arena.
    pub fn pin<O>(&self, owner: O) -> Result<PinnedSlice>
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        let owner = Arc::new(owner);
        let bytes: &[u8] = (*owner).as_ref();
        let (ptr, length) = (bytes.as_ptr(), bytes.len());
        if !self.inner.contains(bytes) {
            return Err(Error::Internal("a copy from memory that is not page-locked".to_owned()));
        }
        Ok(PinnedSlice { ptr, bytes: length, _owner: owner, locked: self.inner.clone() })
    }
}

impl Registration {
    /// Takes a buffer of `bytes` with arbitrary contents from the arena; `None` if there is no room.
    pub fn buffer(&self, bytes: usize) -> Option<PinnedBuffer> {
        let slot = self.slots().try_take(bytes)?;
        Some(PinnedBuffer { slot, bytes, registration: self.clone() })
    }
}

impl Locked {
    fn contains(&self, bytes: &[u8]) -> bool {
        let (base, length) = self.range;
        let offset = (bytes.as_ptr() as usize).checked_sub(base);
        offset.and_then(|offset| offset.checked_add(bytes.len())).is_some_and(|end| end <= length)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let unregister = || {
            let bound = self.device.bind()?;
            // SAFETY: it was registered, and nothing copies any more: a copy under way holds this.
            unsafe { call!(bound.driver(), cuMemHostUnregister(self.range.0 as *mut _)) }
        };
        if unregister().is_err() {
            // It stays mapped: other memory at an address that the driver still knows could not be page-locked.
            std::mem::forget(self.owner.take());
        }
    }
}

/// Page-locked bytes, which nobody writes while a copy of them is under way or they are looked at; this and its clones
/// keep their owner alive.
#[derive(Clone)]
pub struct PinnedSlice {
    ptr: *const u8,
    bytes: usize,
    /// The owner of the bytes, which must be dropped before the registration.
    _owner: Arc<dyn Any + Send + Sync>,
    locked: Arc<Locked>,
}

// SAFETY: the bytes belong to the owner, which is Send and Sync, and are only read.
unsafe impl Send for PinnedSlice {}
// SAFETY: as above.
unsafe impl Sync for PinnedSlice {}

impl PinnedSlice {
    /// Page-locks memory that this process may only read, such as what another process shares, to copy from; `owner`
    /// keeps it mapped, and is dropped after the last copy. Not all devices can do that.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the driver refuses it.
    pub fn read_only<O>(device: &GpuDevice, owner: O) -> Result<Self>
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        let owner = Arc::new(owner);
        let (ptr, bytes) = ((*owner).as_ref().as_ptr(), (*owner).as_ref().len());
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_READ_ONLY;
        let locked = Locked::new(device, (ptr, bytes), owner.clone(), flags)?;
        Ok(Self { ptr, bytes, _owner: owner, locked: Arc::new(locked) })
    }

    /// The address at which kernels of the device read the bytes. The arena around them can be read too, from and to
    /// its pages' bounds.
    ///
    /// # Panics
    /// Panics for memory that can only be copied from.
    pub fn seen_at(&self) -> u64 {
        assert_ne!(self.locked.seen_at, 0, "kernels read no memory of another process");
        self.locked.seen_at + (self.ptr as u64 - self.locked.range.0 as u64)
    }

    /// A part of the bytes; an error if the range leaves them.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.bytes {
            return Err(Error::Internal(format!("bytes {range:?} of {} page-locked ones", self.bytes)));
        }
        Ok(Self { ptr: self.ptr.wrapping_add(range.start), bytes: range.len(), ..self.clone() })
    }
}

impl Deref for PinnedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the owner's bytes, which live as long as `self` and are not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }
}

/// Page-locked memory that can be written: a part of a [`Registration`]'s arena, or an arena of its own.
pub struct PinnedBuffer {
    slot: Slot,
    bytes: usize,
    registration: Registration,
}

impl PinnedBuffer {
    /// Makes a buffer of `bytes` zeros in memory of its own, for what has no slot. It has huge pages and is rounded up
    /// to 2 MiB.
    pub fn new(device: &GpuDevice, bytes: usize) -> Result<Self> {
        let slots = bytes.checked_add(base::slot::PAGE).and_then(|room| SlotPool::new(room).ok());
        let slot = slots.and_then(|slots| Some((slots.try_take(bytes)?, slots)));
        let Some((slot, slots)) = slot else {
            return Err(Error::config("memory", format!("cannot map {bytes} bytes to page-lock; lower it")));
        };
        Ok(Self { slot, bytes, registration: Registration::new(device, &slots)? })
    }

    /// Turns the buffer into memory to copy from.
    pub fn into_slice(self) -> Result<PinnedSlice> {
        let registration = self.registration.clone();
        registration.pin(self)
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.slot.bytes()[..self.bytes]
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.slot.bytes_mut()[..self.bytes]
    }
}

impl AsRef<[u8]> for PinnedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
