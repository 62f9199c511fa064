//! Work in flight on a stream. Until the stream has finished the work, [`InFlight`] owns the memory that the work uses.

use super::driver::call;
use super::event::Event;
use super::memory::DeviceRange;
use super::pinned::{PinnedBuffer, PinnedSlice};
use super::stream::Stream;
use base::error::{Error, Result};

/// Work that was queued on a stream, usually the work of one batch. Owns the host memory that the device reads and
/// writes for this work.
///
/// Queue work, call [`InFlight::submit`], then [`InFlight::wait`] or poll [`InFlight::is_done`]. When the work is done,
/// the `InFlight` can be reused. Dropping it waits for the work, so that no memory is freed while the device uses it.
pub struct InFlight {
    stream: Stream,
    event: Event,
    held: Vec<PinnedSlice>,
    arriving: Vec<PinnedBuffer>,
    state: InFlightState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InFlightState {
    Empty,
    /// Work may be queued, and the event does not cover it yet.
    Queueing,
    /// The event covers all queued work.
    Submitted,
}

impl InFlight {
    /// Makes an `InFlight` without work for `stream`.
    pub fn new(stream: &Stream) -> Result<Self> {
        let event = Event::new(stream.device())?;
        Ok(Self {
            stream: stream.clone(),
            event,
            held: Vec::new(),
            arriving: Vec::new(),
            state: InFlightState::Empty,
        })
    }

    /// The stream, for queueing more work. First call [`InFlight::keep`] with the memory that the work reads.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Keeps memory until the stream has passed all work that is queued before [`InFlight::submit`].
    pub fn keep(&mut self, memory: PinnedSlice) {
        self.state = InFlightState::Queueing;
        self.held.push(memory);
    }

    /// Queues a copy from the host to the device. Both lengths must be equal.
    pub fn copy_to_device(&mut self, to: DeviceRange<'_>, from: &PinnedSlice) -> Result<()> {
        same_length(to.bytes(), from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        self.keep(from.clone());
        let bound = self.stream.device().bind()?;
        let (source, stream) = (from.as_ptr().cast(), self.stream.raw());
        // SAFETY: the source is page-locked and held until the copy is done; the target is inside a device buffer.
        unsafe { call!(bound.driver(), cuMemcpyHtoDAsync_v2(to.ptr(), source, from.len(), stream)) }
    }

    /// Queues a copy on the device. Both lengths must be equal, and the ranges must not overlap.
    pub fn copy_on_device(&mut self, to: DeviceRange<'_>, from: DeviceRange<'_>) -> Result<()> {
        same_length(to.bytes(), from.bytes())?;
        if from.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        let stream = self.stream.raw();
        // SAFETY: both ranges are inside device buffers.
        unsafe { call!(bound.driver(), cuMemcpyDtoDAsync_v2(to.ptr(), from.ptr(), to.bytes(), stream)) }
    }

    /// Queues filling a range with a byte.
    pub fn fill(&mut self, to: DeviceRange<'_>, byte: u8) -> Result<()> {
        if to.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        // SAFETY: the target is inside a device buffer.
        unsafe { call!(bound.driver(), cuMemsetD8Async(to.ptr(), byte, to.bytes(), self.stream.raw())) }
    }

    /// Queues filling a range with a word; its address and length must be multiples of 4.
    pub fn fill_words(&mut self, to: DeviceRange<'_>, word: u32) -> Result<()> {
        if !(to.ptr() as usize | to.bytes()).is_multiple_of(4) {
            return Err(Error::Internal(format!(
                "a fill with words needs multiples of 4, not {} bytes at {:#x}",
                to.bytes(),
                to.ptr()
            )));
        }
        if to.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        let (words, stream) = (to.bytes() / 4, self.stream.raw());
        // SAFETY: the target is inside a device buffer and aligned.
        unsafe { call!(bound.driver(), cuMemsetD32Async(to.ptr(), word, words, stream)) }
    }

    /// Queues a copy from the device to the host. Both lengths must be equal. [`InFlight::arrived`] returns the buffer.
    pub fn copy_to_host(&mut self, mut to: PinnedBuffer, from: DeviceRange<'_>) -> Result<()> {
        same_length(to.len(), from.bytes())?;
        self.state = InFlightState::Queueing;
        let target = to.as_mut_ptr().cast();
        // Keep the buffer even if the call fails: the device may have begun to write.
        self.arriving.push(to);
        let bound = self.stream.device().bind()?;
        let (bytes, stream) = (from.bytes(), self.stream.raw());
        // SAFETY: the target is page-locked, and nothing else accesses it until this copy is done.
        unsafe { call!(bound.driver(), cuMemcpyDtoHAsync_v2(target, from.ptr(), bytes, stream)) }
    }

    /// Takes the next buffer that a copy has filled. Returns `None` if no buffer is left, or if neither
    /// [`InFlight::is_done`] nor [`InFlight::wait`] has found the work done yet.
    pub fn arrived(&mut self) -> Option<PinnedBuffer> {
        (self.state == InFlightState::Empty && !self.arriving.is_empty()).then(|| self.arriving.remove(0))
    }

    /// Marks the end of the queued work: [`InFlight::event`] is passed when the device has done all of it.
    pub fn submit(&mut self) -> Result<()> {
        self.event.record(&self.stream)?;
        self.state = InFlightState::Submitted;
        Ok(())
    }

    /// The event that [`InFlight::submit`] records, for other streams to wait for.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Returns whether the device has done all work. If it has, drops the memory that was kept.
    pub fn is_done(&mut self) -> Result<bool> {
        let done = match self.state {
            InFlightState::Empty => true,
            InFlightState::Queueing => false,
            InFlightState::Submitted => self.event.is_done()?,
        };
        if done {
            self.clear();
        }
        Ok(done)
    }

    /// Sleeps until the device has done all work, then drops the memory that was kept.
    pub fn wait(&mut self) -> Result<()> {
        match self.state {
            InFlightState::Empty => {}
            InFlightState::Queueing => self.stream.synchronize()?,
            InFlightState::Submitted => self.event.synchronize()?,
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.held.clear();
        self.state = InFlightState::Empty;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.wait().is_err() && self.stream.synchronize().is_err() {
            // The device may still read the memory, so leaking it is the only safe choice.
            std::mem::forget((std::mem::take(&mut self.held), std::mem::take(&mut self.arriving)));
        }
    }
}

impl Stream {
    /// Copies from the device to the host and waits for the bytes. Both lengths must be equal.
    pub fn copy_to_host(&self, mut to: PinnedBuffer, from: DeviceRange<'_>) -> Result<PinnedBuffer> {
        same_length(to.len(), from.bytes())?;
        if from.bytes() == 0 {
            return Ok(to);
        }
        let bound = self.device().bind()?;
        let (target, bytes) = (to.as_mut_ptr().cast(), from.bytes());
        // SAFETY: the target is page-locked, and nothing else accesses it until the stream is done.
        unsafe { call!(bound.driver(), cuMemcpyDtoHAsync_v2(target, from.ptr(), bytes, self.raw())) }?;
        if let Err(error) = self.synchronize() {
            if self.synchronize().is_err() {
                // The device may still write the memory, so leaking it is the only safe choice.
                std::mem::forget(to);
            }
            return Err(error);
        }
        Ok(to)
    }
}

fn same_length(to: usize, from: usize) -> Result<()> {
    if to == from {
        Ok(())
    } else {
        Err(Error::Internal(format!("cannot copy {from} bytes into {to} bytes")))
    }
}
