//! Page-locked host memory that a device can copy from and to: the readers' slots, and buffers with their own memory.

use super::device::GpuDevice;
use super::driver::call;
use base::error::{Error, Result};
use base::slot::{Slot, SlotPool};
use cudarc::driver::sys;
use std::any::Any;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// The memory of a [`SlotPool`] (its arena), page-locked for every device of this process. Clones share the
/// registration. The memory stays registered until the last clone, the last [`PinnedSlice`] and the last slot are
/// dropped.
#[derive(Clone)]
pub struct Registration {
    inner: Arc<Locked>,
    slots: SlotPool,
}

struct Locked {
    device: GpuDevice,
    /// Address of the first byte, and the length in bytes.
    range: (usize, usize),
    /// Address of the first byte on the device; 0 if kernels must not read the range.
    device_address: u64,
    /// Keeps the memory mapped while it is registered with the driver.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Locked {
    /// Page-locks a range. `owner` must keep the range mapped while `owner` exists.
    fn new(
        device: &GpuDevice,
        (base, bytes): (*const u8, usize),
        owner: Arc<dyn Any + Send + Sync>,
        flags: u32,
    ) -> Result<Self> {
        let bound = device.bind()?;
        // SAFETY: the range is mapped and stays mapped, because the result holds its owner.
        let done =
            unsafe { call!(bound.driver(), cuMemHostRegister_v2(base.cast_mut().cast(), bytes, flags)) };
        done.map_err(|error| match error {
            Error::Gpu { call, status, .. } => {
                let advice = "; lower memory, raise the limit of locked memory (ulimit -l), or use \
                              device=\"cpu\"";
                Error::Gpu { call, status: format!("{status} (of {bytes} bytes)"), advice }
            }
            other => other,
        })?;
        Ok(Self {
            device: device.clone(),
            range: (base as usize, bytes),
            device_address: 0,
            owner: Some(owner),
        })
    }

    fn contains(&self, bytes: &[u8]) -> bool {
        let (base, length) = self.range;
        let offset = (bytes.as_ptr() as usize).checked_sub(base);
        offset.and_then(|offset| offset.checked_add(bytes.len())).is_some_and(|end| end <= length)
    }
}

impl Registration {
    /// Page-locks the arena of `slots`, which takes about 0.1 s per gigabyte.
    pub fn new(device: &GpuDevice, slots: &SlotPool) -> Result<Self> {
        let (base, bytes) = slots.as_raw();
        // The memory is never write-combined, because the CPU reads it.
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // If a call below fails, dropping `locked` unregisters the memory.
        let mut locked = Locked::new(device, (base, bytes), Arc::new(slots.clone()), flags)?;
        let bound = device.bind()?;
        // SAFETY: the range was just registered, and the pointer is valid for the call.
        unsafe {
            call!(bound.driver(), cuMemHostGetDevicePointer_v2(&mut locked.device_address, base.cast(), 0))
        }?;
        Ok(Self { inner: Arc::new(locked), slots: slots.clone() })
    }

    /// The pool whose arena is page-locked.
    pub fn slots(&self) -> &SlotPool {
        &self.slots
    }

    /// Returns a handle to the bytes of `owner`, usually a [`Slot`], from which a device can copy. The handle and its
    /// clones keep `owner` alive.
    ///
    /// # Errors
    /// Fails if the bytes are not in the arena.
    pub fn pin<O>(&self, owner: O) -> Result<PinnedSlice>
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        let owner = Arc::new(owner);
        let bytes: &[u8] = (*owner).as_ref();
        let (ptr, length) = (bytes.as_ptr(), bytes.len());
        if !self.inner.contains(bytes) {
            return Err(Error::Internal("the source of a copy is not in page-locked memory".to_owned()));
        }
        Ok(PinnedSlice { ptr, bytes: length, _owner: owner, locked: self.inner.clone() })
    }

    /// Takes a buffer of `bytes` with arbitrary contents from the arena. Returns `None` if the arena has no free space.
    pub fn buffer(&self, bytes: usize) -> Option<PinnedBuffer> {
        let slot = self.slots().try_take(bytes)?;
        Some(PinnedBuffer { slot, bytes, registration: self.clone() })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let unregister = || {
            let bound = self.device.bind()?;
            // SAFETY: the range was registered. No copy is under way, because a copy holds this value.
            unsafe { call!(bound.driver(), cuMemHostUnregister(self.range.0 as *mut _)) }
        };
        if unregister().is_err() {
            // Leaves the memory mapped. If the address were reused while the driver still has it registered, the new
            // memory could not be page-locked.
            std::mem::forget(self.owner.take());
        }
    }
}

/// Page-locked bytes. Nothing writes to the bytes while a copy is under way or while they are borrowed. Each clone
/// keeps the owner of the bytes alive.
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
// SAFETY: the bytes are only read, and the owner is Sync.
unsafe impl Sync for PinnedSlice {}

impl PinnedSlice {
    /// Page-locks memory that this process can only read, for example memory that another process shares, so that
    /// devices can copy from it. `owner` keeps the memory mapped and is dropped when the last copy is done. Not all
    /// devices support this.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the driver refuses to page-lock the memory.
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

    /// The address at which kernels of the device read the bytes. Kernels may also read the arena around the bytes,
    /// from the start of the first page to the end of the last page.
    ///
    /// # Panics
    /// Panics for memory from [`read_only`](Self::read_only): devices can copy from it, but kernels cannot read it.
    pub fn device_address(&self) -> u64 {
        assert_ne!(self.locked.device_address, 0, "kernels cannot read memory of another process");
        self.locked.device_address + (self.ptr as u64 - self.locked.range.0 as u64)
    }

    /// A part of the bytes. Fails if the range exceeds the bytes.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.bytes {
            return Err(Error::Internal(format!("bytes {range:?} exceed {} page-locked bytes", self.bytes)));
        }
        Ok(Self { ptr: self.ptr.wrapping_add(range.start), bytes: range.len(), ..self.clone() })
    }
}

impl Deref for PinnedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the owner's bytes, which exist while `self` exists. Nothing writes to them while
        // they are borrowed.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }
}

/// Writable page-locked memory: a part of a [`Registration`]'s arena, or memory that was allocated for this buffer.
pub struct PinnedBuffer {
    slot: Slot,
    bytes: usize,
    registration: Registration,
}

impl PinnedBuffer {
    /// Makes a buffer of `bytes` zeros in newly allocated memory, for data that is in no slot. The memory uses huge
    /// pages and is rounded up to 2 MiB.
    pub fn new(device: &GpuDevice, bytes: usize) -> Result<Self> {
        let slots = bytes.checked_add(base::slot::PAGE).and_then(|size| SlotPool::new(size).ok());
        let slot = slots.and_then(|slots| Some((slots.try_take(bytes)?, slots)));
        let Some((slot, slots)) = slot else {
            let message = format!("cannot map {bytes} bytes of page-locked memory: lower it");
            return Err(Error::config("memory", message));
        };
        Ok(Self { slot, bytes, registration: Registration::new(device, &slots)? })
    }

    /// Turns the buffer into a source for copies to a device.
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
