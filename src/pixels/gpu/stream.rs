//! Streams: queues of work that a device does in order. A stream is Foreload's own, or belongs to another library and
//! is used by its handle.

use super::device::GpuDevice;
use super::driver::{NOT_READY, STREAM_CAPTURE_IMPLICIT, call};
use super::event::Event;
use base::error::{Error, Result};
use cudarc::driver::sys;
use std::fmt;
use std::sync::Arc;

/// A stream of Foreload's own, which does not wait for the legacy default stream. Clones share the stream.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<StreamInner>,
}

struct StreamInner {
    device: GpuDevice,
    stream: sys::CUstream,
}

// SAFETY: a stream is a handle that the driver lets any thread use.
unsafe impl Send for StreamInner {}
// SAFETY: the driver lets several threads use the stream at a time.
unsafe impl Sync for StreamInner {}

impl Stream {
    /// Makes a non-blocking stream of default priority on `device`.
    pub fn new(device: &GpuDevice) -> Result<Self> {
        let bound = device.bind()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the device's context is current.
        unsafe { call!(bound.driver(), cuStreamCreateWithPriority(&mut stream, flags, 0)) }?;
        Ok(Self { inner: Arc::new(StreamInner { device: device.clone(), stream }) })
    }

    /// The stream's device.
    pub fn device(&self) -> &GpuDevice {
        &self.inner.device
    }

    /// The driver's handle, for other libraries. The handle is valid while a clone of this stream exists.
    pub fn handle(&self) -> u64 {
        self.inner.stream as u64
    }

    /// Makes work that is queued from now on wait for the latest record of `event`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        StreamRef::from(self).wait(event)
    }

    /// Waits until all queued work is done. The driver may spin during the wait, so call this only at the end of a
    /// stream's life. At other times use [`Event::synchronize`], which sleeps.
    pub fn synchronize(&self) -> Result<()> {
        let bound = self.device().bind()?;
        // SAFETY: the stream exists while `self` exists.
        unsafe { call!(bound.driver(), cuStreamSynchronize(self.inner.stream)) }
    }

    /// Returns whether all queued work is done.
    pub fn is_done(&self) -> Result<bool> {
        let bound = self.device().bind()?;
        // SAFETY: the stream exists while `self` exists.
        let status = unsafe { (bound.driver().functions.cuStreamQuery)(self.inner.stream) };
        match status {
            NOT_READY => Ok(false),
            status => bound.driver().check("cuStreamQuery", status).map(|()| true),
        }
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.inner.stream
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:#x} of {:?}", self.handle(), self.device())
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        // Queued work still finishes. Without a context (in a forked child, or at the end of the process) there is
        // nothing to destroy.
        if let Ok(bound) = self.device.bind() {
            // SAFETY: `self` was the last owner of the stream.
            let _ = unsafe { call!(bound.driver(), cuStreamDestroy_v2(self.stream)) };
        }
    }
}

/// The handle of a stream: a borrowed [`Stream`], or a consumer's stream. It does not keep the stream alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamRef(u64);

impl StreamRef {
    /// The legacy default stream of the current context.
    pub const LEGACY: Self = Self(1);

    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(2);

    /// Makes a reference from a stream number as DLPack and the CUDA array interface define it. 1 is the legacy default
    /// stream, 2 the calling thread's default stream, and a larger number a handle. 0 could mean either default stream,
    /// so 0 and negative numbers are refused.
    ///
    /// # Safety
    ///
    /// A number above 2 must be the handle of a stream of this process. The stream must exist whenever the result is
    /// used; the driver does not check this.
    pub unsafe fn from_number(number: i64) -> Result<Self> {
        match u64::try_from(number) {
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err(Error::config(
                "stream",
                format!(
                    "is {number}, must be 1 (legacy default stream), 2 (per-thread default stream) or the handle of a \
                     stream"
                ),
            )),
        }
    }

    /// Returns whether recording an event on this stream would invalidate a capture. This is the case if the stream
    /// captures a CUDA graph, or if it is the legacy default stream, which would have to wait for a capturing stream.
    pub fn captures(self, device: &GpuDevice) -> Result<bool> {
        let bound = device.bind()?;
        let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut state = none;
        // SAFETY: the pointer is valid for the call; the creator of the reference guarantees that the stream exists.
        let status = unsafe { (bound.driver().functions.cuStreamIsCapturing)(self.raw(), &mut state) };
        match status {
            STREAM_CAPTURE_IMPLICIT => Ok(true),
            status => bound.driver().check("cuStreamIsCapturing", status).map(|()| state != none),
        }
    }

    /// The handle. 1 and 2 are the driver's own numbers for the default streams.
    pub fn handle(self) -> u64 {
        self.0
    }

    /// Makes work that is queued from now on wait for the latest record of `event`.
    pub fn wait(self, event: &Event) -> Result<()> {
        let bound = event.device().bind()?;
        // SAFETY: the event exists; the creator of the reference guarantees that the stream exists.
        unsafe { call!(bound.driver(), cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }

    pub(super) fn raw(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }
}

impl From<&Stream> for StreamRef {
    fn from(stream: &Stream) -> Self {
        Self(stream.handle())
    }
}
