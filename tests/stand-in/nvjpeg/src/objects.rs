//! The objects of the opaque handles: which of them exist, and their types.

use std::any::{Any, type_name};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvjpeg_sys::sys::{
    self, nvjpegDevAllocatorV2_t as DeviceAllocator, nvjpegPinnedAllocatorV2_t as PinnedAllocator,
    nvjpegStatus_t as Status,
};

use crate::driver::{Event, Stream};
use crate::{Answer, misuse};

type Object = Arc<dyn Any + Send + Sync>;

static OBJECTS: Mutex<Option<(usize, HashMap<usize, Object>)>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut usize, &mut HashMap<usize, Object>) -> T) -> T {
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, objects) = objects.get_or_insert_with(|| (0x1000, HashMap::new()));
    act(next, objects)
}

/// The number of objects that exist.
pub fn count() -> u64 {
    with(|_, objects| objects.len() as u64)
}

/// Gives an object a new handle, which was never used before, and stores the handle in `place`.
pub fn give<T: Any + Send + Sync, R>(object: T, place: *mut *mut R) -> Answer {
    if place.is_null() {
        return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
    }
    let handle = with(|next, objects| {
        *next += 16;
        objects.insert(*next, Arc::new(object));
        *next
    });
    // SAFETY: not null, and the caller allows writing it.
    unsafe { *place = handle as *mut R };
    Ok(())
}

/// The object of a handle.
pub fn get<T: Any + Send + Sync, R>(handle: *mut R) -> Answer<Arc<T>> {
    if handle.is_null() {
        return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
    }
    let object = with(|_, objects| objects.get(&(handle as usize)).cloned());
    match object.map(Arc::downcast) {
        Some(Ok(object)) => Ok(object),
        _ => misuse(&format!("{handle:p} is no {} that lives", type_name::<T>())),
    }
}

/// Destroys an object.
pub fn end<T: Any + Send + Sync, R>(handle: *mut R) -> Answer {
    crate::driver::context().unwrap_or_else(|_| misuse("an object is destroyed without a current context"));
    get::<T, R>(handle)?;
    with(|_, objects| objects.remove(&(handle as usize)));
    Ok(())
}

/// Locks an object that only one thread may use at a time; concurrent use is an error of the caller.
pub fn alone<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(std::sync::TryLockError::WouldBlock) => misuse("an object is used by two threads at once"),
    }
}

/// A handle of the library.
pub struct Instance {
    pub pinned: PinnedAllocator,
    pub strict: bool,
    pub backend: sys::nvjpegBackend_t,
    /// The stream of the decoding engine, if there is one.
    pub engine: Option<Stream>,
}

// SAFETY: any thread may use the allocators' contexts, as nvJPEG's guide demands.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

/// Memory that grows through the caller's allocator.
pub struct Buffer {
    allocate: Allocate,
    free: Free,
    context: *mut c_void,
    address: u64,
    capacity: usize,
    /// The event that is complete when the work that uses the memory is done.
    done: Option<Event>,
}

type Allocate = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, sys::cudaStream_t) -> i32;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, sys::cudaStream_t) -> i32;

// SAFETY: as for `Instance`.
unsafe impl Send for Buffer {}

impl Buffer {
    pub fn of_device(allocator: &DeviceAllocator) -> Answer<Self> {
        Self::new(allocator.dev_malloc, allocator.dev_free, allocator.dev_ctx)
    }

    pub fn of_host(allocator: &PinnedAllocator) -> Answer<Self> {
        Self::new(allocator.pinned_malloc, allocator.pinned_free, allocator.pinned_ctx)
    }

    fn new(allocate: Option<Allocate>, free: Option<Free>, context: *mut c_void) -> Answer<Self> {
        let invalid = Status::NVJPEG_STATUS_INVALID_PARAMETER;
        let (allocate, free) = (allocate.ok_or(invalid)?, free.ok_or(invalid)?);
        Ok(Self { allocate, free, context, address: 0, capacity: 0, done: None })
    }

    /// The address of the memory, with at least `bytes` bytes, which the host may write.
    pub fn room(&mut self, bytes: usize, stream: u64) -> Answer<u64> {
        if self.done.as_ref().is_some_and(|done| !done.is_passed().unwrap_or(true)) {
            misuse("a buffer is used again while its last work is under way");
        }
        if bytes > self.capacity {
            self.release(stream);
            let mut address = std::ptr::null_mut();
            // SAFETY: the caller provided the function for this.
            let code = unsafe { (self.allocate)(self.context, &mut address, bytes, stream as _) };
            if code != 0 || address.is_null() {
                return Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE);
            }
            (self.address, self.capacity) = (address as u64, bytes);
        }
        Ok(self.address)
    }

    /// Records that work on `stream` uses the memory.
    pub fn used_by(&mut self, stream: u64) -> Answer {
        if self.done.is_none() {
            self.done = Some(Event::new()?);
        }
        self.done.as_ref().map_or(Ok(()), |done| done.record(stream))
    }

    /// Makes `stream` wait for the work that uses the memory.
    pub fn hold(&self, stream: u64) -> Answer {
        self.done.as_ref().map_or(Ok(()), |done| done.hold(stream))
    }

    fn release(&mut self, stream: u64) {
        if self.capacity > 0 {
            // SAFETY: it was allocated by the matching function.
            unsafe { (self.free)(self.context, self.address as *mut c_void, self.capacity, stream as _) };
            (self.address, self.capacity) = (0, 0);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.done.as_ref().is_some_and(|done| !done.is_passed().unwrap_or(true)) {
            misuse("a buffer is destroyed while its last work is under way");
        }
        self.release(0);
    }
}
