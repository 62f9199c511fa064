//! Device memory from a pool with its own limit, allocated and freed in stream order.

use super::device::GpuDevice;
use super::driver::{OUT_OF_MEMORY, call};
use super::stream::Stream;
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The alignment of device pointers. Buffers count towards the cap in multiples of this number of bytes.
const ALIGNMENT: usize = 512;

/// Device memory that this process keeps. Freed buffers stay in the pool, so after the first batches no allocation asks
/// the driver for more memory. Clones share the pool. The memory is returned when the last clone and the last buffer
/// are dropped.
#[derive(Clone)]
pub struct MemoryPool {
    inner: Arc<MemoryPoolInner>,
}

struct MemoryPoolInner {
    device: GpuDevice,
    pool: sys::CUmemoryPool,
    cap: usize,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    now: usize,
    peak: usize,
}

// SAFETY: a pool is a handle that the driver lets any thread use; the other fields are behind a mutex.
unsafe impl Send for MemoryPoolInner {}
// SAFETY: the driver lets several threads use the pool at a time; a mutex guards the field that changes.
unsafe impl Sync for MemoryPoolInner {}

/// Gauges of a [`MemoryPool`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct PoolUsage {
    /// The maximum total size of all buffers.
    pub cap: usize,
    /// The current total size of all buffers.
    pub used: usize,
    /// The largest total size of all buffers so far.
    pub peak: usize,
    /// The memory that the driver holds for the pool now.
    pub reserved: usize,
    /// The largest amount of memory that the driver has held for the pool so far.
    pub reserved_peak: usize,
}

impl MemoryPool {
    /// Makes a pool on `device` whose buffers never exceed `cap` bytes together. Allocates nothing yet.
    pub fn new(device: &GpuDevice, cap: usize) -> Result<Self> {
        if cap == 0 {
            return Err(Error::config("device_memory", "is 0, must be large enough for a batch"));
        }
        let bound = device.bind()?;
        // SAFETY: the structure has only numbers and pointers, for which zero means "none".
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device.handle(),
        };
        // `maxSize` stays unset: [`MemoryPool::allocate`] counts bytes and enforces the cap exactly, and a driver may
        // refuse a `maxSize` that is larger than the device's memory.
        let mut pool = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        unsafe { call!(bound.driver(), cuMemPoolCreate(&mut pool, &properties)) }?;
        // From here on, `Drop` destroys the pool.
        let inner = MemoryPoolInner { device: device.clone(), pool, cap, used: Mutex::default() };
        // With a lower threshold, each synchronisation would return free memory to the system.
        let mut threshold = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold).cast();
        // SAFETY: this attribute is a cuuint64_t.
        unsafe { call!(bound.driver(), cuMemPoolSetAttribute(inner.pool, attribute, value)) }?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The pool's device.
    pub fn device(&self) -> &GpuDevice {
        &self.inner.device
    }

    /// Allocates a buffer of `bytes` with arbitrary contents, aligned to 512 bytes, for work that is queued on `stream`
    /// from now on. The buffer is freed in the order of `stream`. Before another stream uses the buffer, it must wait
    /// for an event that `stream` records after the allocation. Before the buffer is dropped, `stream` must wait for
    /// the other stream's last use.
    ///
    /// # Errors
    /// An error that names `device_memory` if the buffer would exceed the cap.
    pub fn allocate(&self, stream: &Stream, bytes: usize) -> Result<DeviceBuffer> {
        let counted = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        {
            let mut used = self.inner.used();
            let now = used.now.checked_add(counted).filter(|now| *now <= self.inner.cap);
            let Some(now) = now else {
                return Err(Error::config(
                    "device_memory",
                    format!(
                        "is {} bytes, of which {} are in use, but {counted} more are needed: raise it, or lower \
                         batch_size",
                        self.inner.cap, used.now
                    ),
                ));
            };
            used.now = now;
            used.peak = used.peak.max(now);
        }
        self.take(stream, bytes, counted).inspect_err(|_| self.inner.used().now -= counted)
    }

    fn take(&self, stream: &Stream, bytes: usize, counted: usize) -> Result<DeviceBuffer> {
        if !stream.device().same(self.device()) {
            return Err(Error::Internal(
                "the stream and the memory pool are on different devices".to_owned(),
            ));
        }
        let bound = self.device().bind()?;
        let driver = bound.driver();
        let mut ptr = 0;
        // SAFETY: the pointer is valid for the call; the pool and the stream exist.
        let status = unsafe {
            (driver.functions.cuMemAllocFromPoolAsync)(&mut ptr, bytes.max(1), self.inner.pool, stream.raw())
        };
        match driver.check("cuMemAllocFromPoolAsync", status) {
            Ok(()) => Ok(DeviceBuffer { ptr, bytes, counted, stream: stream.clone(), pool: self.clone() }),
            Err(Error::Gpu { call, status: described, advice }) if status == OUT_OF_MEMORY => {
                let described = format!("{described} (of {bytes} bytes)");
                Err(Error::Gpu { call, status: described, advice })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes in use, the bytes that the driver holds, and the peaks of both.
    pub fn usage(&self) -> Result<PoolUsage> {
        let bound = self.device().bind()?;
        let attribute = |attribute| {
            let mut value = 0u64;
            let place = (&raw mut value).cast();
            // SAFETY: the attributes below are cuuint64_t.
            unsafe { call!(bound.driver(), cuMemPoolGetAttribute(self.inner.pool, attribute, place)) }?;
            Ok::<usize, Error>(value as usize)
        };
        use sys::CUmemPool_attribute as Attribute;
        let reserved = attribute(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let reserved_peak = attribute(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
        let used = self.inner.used();
        Ok(PoolUsage { cap: self.inner.cap, used: used.now, peak: used.peak, reserved, reserved_peak })
    }
}

impl MemoryPoolInner {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryPoolInner {
    fn drop(&mut self) {
        if let Ok(bound) = self.device.bind() {
            // SAFETY: `self` owns the pool. No buffer exists, because each buffer holds its pool. The driver completes
            // frees that are still queued.
            let _ = unsafe { call!(bound.driver(), cuMemPoolDestroy(self.pool)) };
        }
    }
}

/// A buffer in device memory. Dropping it frees the memory after all work that is queued on its stream at that time.
pub struct DeviceBuffer {
    ptr: u64,
    bytes: usize,
    counted: usize,
    stream: Stream,
    pool: MemoryPool,
}

impl DeviceBuffer {
    /// The device address of the first byte.
    pub fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The requested length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stream that the buffer was allocated on and will be freed on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The whole buffer as a range.
    pub fn whole(&self) -> DeviceRange<'_> {
        DeviceRange { ptr: self.ptr, bytes: self.bytes, _buffer: PhantomData }
    }

    /// The range of `bytes` bytes at `offset`. Fails if the range exceeds the buffer.
    pub fn range(&self, offset: usize, bytes: usize) -> Result<DeviceRange<'_>> {
        self.whole().part(offset, bytes)
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} of {:?}", self.bytes, self.ptr, self.pool.device())
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Ok(bound) = self.pool.device().bind() {
            // SAFETY: `self` owns the allocation, and its address is not used from here on.
            let _ = unsafe { call!(bound.driver(), cuMemFreeAsync(self.ptr, self.stream.raw())) };
        }
        self.pool.inner.used().now -= self.counted;
    }
}

/// A part of a [`DeviceBuffer`], which cannot be dropped while the range exists.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRange<'a> {
    ptr: u64,
    bytes: usize,
    _buffer: PhantomData<&'a DeviceBuffer>,
}

impl DeviceRange<'_> {
    /// The device address of the first byte.
    pub fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The range of `bytes` bytes at `offset`. Fails if the new range exceeds this range.
    pub fn part(&self, offset: usize, bytes: usize) -> Result<Self> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(Self { ptr: self.ptr + offset as u64, bytes, ..*self }),
            _ => Err(Error::Internal(format!(
                "{bytes} bytes at offset {offset} exceed a device buffer of {} bytes",
                self.bytes
            ))),
        }
    }
}
