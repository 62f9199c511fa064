//! An instance of the library and the allocators that it takes its memory from.

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

/// Where nvJPEG takes memory from: device memory or page-locked host memory.
///
/// # Safety
/// What `allocate` returns must be memory of that kind for as many bytes, which nobody else uses until it is freed. It
/// must be usable at once, not only by what is put on the stream from then on.
pub unsafe trait Allocator: Send + Sync {
    /// Returns memory of `bytes` bytes for work on `stream`, or `None` if there is none.
    fn allocate(&self, bytes: usize, stream: u64) -> Option<u64>;

    /// Takes memory back. Work on `stream` may still use it.
    fn free(&self, address: u64, bytes: usize, stream: u64);
}

/// The allocators of a handle; nvJPEG holds their addresses.
struct Allocators {
    device: Context,
    pinned: Context,
}

/// What nvJPEG passes back to the callbacks below.
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
        // SAFETY: everything made from the handle holds this root, hence is gone.
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
    /// When the GPU or the library does not have the backend.
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
    /// When there are none, or the library cannot tell.
    pub fn engines(&self) -> Result<(u32, u32)> {
        let (mut engines, mut cores) = (0, 0);
        // SAFETY: the handle and the pointers are valid.
        unsafe { call!(self.0.library, nvjpegGetHardwareDecoderInfo(self.0.raw, &mut engines, &mut cores)) }?;
        Ok((engines, cores))
    }

    /// Whether a batched decode takes whole images like the file that `stream` has parsed.
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

    /// Whether a batched decode with `params` takes the file that `stream` has parsed. Only the engine's backend has
    /// such a decode; others report that they lack it when they are asked to decode.
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
