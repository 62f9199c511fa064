//! Events: marks in a stream that other streams and the host wait for.

use super::device::GpuDevice;
use super::driver::{NOT_READY, call};
use super::stream::StreamRef;
use base::error::Result;
use cudarc::driver::sys;
use std::time::Duration;

/// A mark in a stream. It can be recorded repeatedly: waiting for it means waiting for its latest record.
///
/// An event that was never recorded counts as passed.
pub struct Event {
    device: GpuDevice,
    event: sys::CUevent,
}

// SAFETY: an event is a handle that the driver lets any thread use.
unsafe impl Send for Event {}
// SAFETY: the driver lets several threads use the event at a time.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event without timing, which is cheaper. A host thread that waits for it sleeps instead of spinning.
    pub fn new(device: &GpuDevice) -> Result<Self> {
        use sys::CUevent_flags as Flags;
        Self::create(device, Flags::CU_EVENT_BLOCKING_SYNC as u32 | Flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// Makes an event that also records the time when it was passed, for [`Event::since`].
    pub fn timed(device: &GpuDevice) -> Result<Self> {
        Self::create(device, sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32)
    }

    fn create(device: &GpuDevice, flags: u32) -> Result<Self> {
        let bound = device.bind()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the device's context is current.
        unsafe { call!(bound.driver(), cuEventCreate(&mut event, flags)) }?;
        Ok(Self { device: device.clone(), event })
    }

    /// The event's device. Only streams of this device can record the event; any stream may wait for it.
    pub fn device(&self) -> &GpuDevice {
        &self.device
    }

    /// Marks the end of the work that `stream` has queued so far.
    pub fn record(&self, stream: impl Into<StreamRef>) -> Result<()> {
        let bound = self.device.bind()?;
        // SAFETY: the event exists; the creator of the reference guarantees that the stream exists.
        unsafe { call!(bound.driver(), cuEventRecord(self.event, stream.into().raw())) }
    }

    /// Returns whether the stream has passed the mark.
    pub fn is_done(&self) -> Result<bool> {
        let bound = self.device.bind()?;
        // SAFETY: the event exists while `self` exists.
        let status = unsafe { (bound.driver().functions.cuEventQuery)(self.event) };
        match status {
            NOT_READY => Ok(false),
            status => bound.driver().check("cuEventQuery", status).map(|()| true),
        }
    }

    /// Sleeps until the stream has passed the mark.
    pub fn synchronize(&self) -> Result<()> {
        let bound = self.device.bind()?;
        // SAFETY: the event exists while `self` exists.
        unsafe { call!(bound.driver(), cuEventSynchronize(self.event)) }
    }

    /// Returns the time between `earlier` and this event, with a resolution of half a microsecond. Both events must be
    /// [timed](Event::timed), recorded and passed.
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        let bound = self.device.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is valid for the call, and both events exist.
        unsafe { call!(bound.driver(), cuEventElapsedTime(&mut milliseconds, earlier.event, self.event)) }?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(bound) = self.device.bind() {
            // SAFETY: `self` owns the event; the driver keeps the parts that queued waits still need.
            let _ = unsafe { call!(bound.driver(), cuEventDestroy_v2(self.event)) };
        }
    }
}
