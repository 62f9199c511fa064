//! An instance of the library, and the allocators that provide its memory.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use super::Backend;
use super::objects::{BitStream, Params};
use crate::call;
use crate::find::Library;
use crate::result::Result;
use crate::sys;

/// Allocates memory for nvJPEG: device memory or page-locked host memory.
///
/// # Safety
/// `allocate` must return memory of that kind with at least `bytes` bytes, which no other code uses until it is freed.
/// The memory must be usable at once, not only by work that is queued on the stream later.
pub unsafe trait Allocator: Send + Sync {
    /// Returns memory of `bytes` bytes for work on `stream`, or `None` if there is none.
    fn allocate(&self, bytes: usize, stream: u64) -> Option<u64>;

    /// Frees memory. Work that was queued on `stream` may still use it.
    fn free(&self, address: u64, bytes: usize, stream: u64);
}

/// The allocators of a handle; nvJPEG holds their addresses.
struct Allocators {
    device: Context,
    pinned: Context,
}

/// The context that nvJPEG passes to the callbacks below.
struct Context(Box<dyn Allocator>);

unsafe extern "C" fn allocate(
    context: *mut c_void,
    address: *mut *mut c_void,
    bytes: usize,
    stream: sys::cudaStream_t,
) -> c_int {
    // SAFETY: the context is an allocator of `Allocators`, which live as long as the handle.
    let allocator = unsafe { &(*context.cast::<Context>()).0 };
    // A panic must not unwind through nvJPEG.
    match catch_unwind(AssertUnwindSafe(|| allocator.allocate(bytes, stream as u64))) {
        Ok(Some(found)) => {
            // SAFETY: nvJPEG gives a valid place for the address.
            unsafe { *address = found as *mut c_void };
            0
        }
        _ => 2, // This is cudaErrorMemoryAllocation.
    }
}

unsafe extern "C" fn free(
    context: *mut c_void,
    address: *mut c_void,
    bytes: usize,
    stream: sys::cudaStream_t,
) -> c_int {
    // SAFETY: as in `allocate`.
    let allocator = unsafe { &(*context.cast::<Context>()).0 };
    let freed = catch_unwind(AssertUnwindSafe(|| allocator.free(address as u64, bytes, stream as u64)));
    c_int::from(freed.is_err())
}

pub(super) struct Root {
    pub(super) library: Arc<Library>,
    pub(super) raw: sys::nvjpegHandle_t,
    pub(super) device: Box<sys::nvjpegDevAllocatorV2_t>,
    pub(super) pinned: Box<sys::nvjpegPinnedAllocatorV2_t>,
    /// They must outlive the two fields above, so they are dropped last.
    _allocators: Box<Allocators>,
}

// SAFETY: nvJPEG's handle may be used by several threads (nvJPEG guide, "Thread Safety"), and so may the allocators.
unsafe impl Send for Root {}
// SAFETY: as above.
unsafe impl Sync for Root {}

impl Drop for Root {
    fn drop(&mut self) {
        // SAFETY: everything that was made from the handle holds this root, so all of it was already dropped.
        let _ = unsafe { call!(self.library, nvjpegDestroy(self.raw)) };
    }
}

/// An instance of the library for one backend; clones share it.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Root>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle of {:?}", self.0.library)
    }
}

impl Handle {
    /// Makes an instance that takes its memory from these allocators; `flags` are `NVJPEG_FLAGS_` of [`crate::sys`].
    /// The device's context must be current now and at every later call and drop of what is made from it.
    ///
    /// # Errors
    /// Fails if the GPU or the library does not have the backend.
    pub fn new(
        library: &Arc<Library>,
        backend: Backend,
        device: Box<dyn Allocator>,
        pinned: Box<dyn Allocator>,
        flags: u32,
    ) -> Result<Self> {
        let allocators = Box::new(Allocators { device: Context(device), pinned: Context(pinned) });
        let context = |allocator: &Context| std::ptr::from_ref(allocator).cast_mut().cast();
        let mut device = Box::new(sys::nvjpegDevAllocatorV2_t {
            dev_malloc: Some(allocate),
            dev_free: Some(free),
            dev_ctx: context(&allocators.device),
        });
        let mut pinned = Box::new(sys::nvjpegPinnedAllocatorV2_t {
            pinned_malloc: Some(allocate),
            pinned_free: Some(free),
            pinned_ctx: context(&allocators.pinned),
        });
        let mut raw = null_mut();
        // SAFETY: the pointers are valid for the call, the allocators as long as the handle.
        unsafe { call!(library, nvjpegCreateExV2(backend, &mut *device, &mut *pinned, flags, &mut raw)) }?;
        Ok(Self(Arc::new(Root { library: library.clone(), raw, device, pinned, _allocators: allocators })))
    }

    /// The library that the instance belongs to.
    pub fn library(&self) -> &Arc<Library> {
        &self.0.library
    }

    /// The number of decoding engines of the GPU, and the number of cores of each.
    ///
    /// # Errors
    /// Fails if there are none, or the library does not report them.
    pub fn engines(&self) -> Result<(u32, u32)> {
        let (mut engines, mut cores) = (0, 0);
        // SAFETY: the handle and the pointers are valid.
        unsafe { call!(self.0.library, nvjpegGetHardwareDecoderInfo(self.0.raw, &mut engines, &mut cores)) }?;
        Ok((engines, cores))
    }

    /// Whether a batched decode supports decoding the file that `stream` has parsed as a whole image.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn takes_whole(&self, stream: &BitStream) -> Result<bool> {
        let mut supported = -1;
        // SAFETY: all handles are valid.
        unsafe {
            call!(self.0.library, nvjpegDecodeBatchedSupported(self.0.raw, stream.raw, &mut supported))
        }?;
        // 0 means yes.
        Ok(supported == 0)
    }

    /// Whether a batched decode with `params` supports the file that `stream` has parsed. Only the backend of the
    /// hardware engine has such a decode; other backends report that they lack it only when they are asked to decode.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn takes(&self, stream: &BitStream, params: &Params) -> Result<bool> {
        let mut supported = -1;
        // SAFETY: all handles are valid.
        unsafe {
            call!(
                self.0.library,
                nvjpegDecodeBatchedSupportedEx(self.0.raw, stream.raw, params.raw, &mut supported)
            )
        }?;
        // 0 means yes.
        Ok(supported == 0)
    }
}
