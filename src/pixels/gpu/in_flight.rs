//! Work in flight on a stream. It owns what the device still reads until the stream has passed it.

use super::driver::call;
use super::event::Event;
use super::memory::DeviceRange;
use super::pinned::{PinnedBuffer, PinnedSlice};
use super::stream::Stream;
use base::error::{Error, Result};

/// The work of usually one batch that was queued on a stream, with all host memory that it reads.
///
/// Queue work, call [`InFlight::submit`], and later [`InFlight::wait`] or see that it [is done](InFlight::is_done).
/// Then it can be used again. Dropping it waits, so that no memory is freed before the device has read it.
pub struct InFlight {
    stream: Stream,
    event: Event,
    held: Vec<PinnedSlice>,
    /// The buffers that the device writes.
    arriving: Vec<PinnedBuffer>,
    state: InFlightState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InFlightState {
    /// Nothing is queued.
    Empty,
    /// Something may be queued that the event does not cover.
    Queueing,
    /// The event covers all that is queued.
    Submitted,
}

impl InFlight {
    /// Makes an empty one for `stream`.
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

    /// The stream, to queue more work on. Call [`InFlight::keep`] first with what that work needs.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Keeps memory until the stream has passed what is queued up to [`InFlight::submit`].
    pub fn keep(&mut self, memory: PinnedSlice) {
        self.state = InFlightState::Queueing;
        self.held.push(memory);
    }

    /// Queues a copy from the host to the device; both have the same length.
    pub fn copy_to_device(&mut self, to: DeviceRange<'_>, from: &PinnedSlice) -> Result<()> {
        same_length(to.bytes(), from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        self.keep(from.clone());
        let bound = self.stream.device().bind()?;
        let (source, stream) = (from.as_ptr().cast(), self.stream.raw());
        // SAFETY: the source is page-locked and held until the copy is done, the target is inside of a device buffer.
        unsafe { call!(bound.driver(), cuMemcpyHtoDAsync_v2(to.ptr(), source, from.len(), stream)) }
    }

    /// Queues a copy on the device; both have the same length and do not overlap.
    pub fn copy_on_device(&mut self, to: DeviceRange<'_>, from: DeviceRange<'_>) -> Result<()> {
        same_length(to.bytes(), from.bytes())?;
        if from.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        let stream = self.stream.raw();
        // SAFETY: both are inside of device buffers.
        unsafe { call!(bound.driver(), cuMemcpyDtoDAsync_v2(to.ptr(), from.ptr(), to.bytes(), stream)) }
    }

    /// Queues filling a range with a byte.
    pub fn fill(&mut self, to: DeviceRange<'_>, byte: u8) -> Result<()> {
        if to.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        // SAFETY: the target is inside of a device buffer.
        unsafe { call!(bound.driver(), cuMemsetD8Async(to.ptr(), byte, to.bytes(), self.stream.raw())) }
    }

    /// Queues filling a range with a word; its address and length must be multiples of 4.
    pub fn fill_words(&mut self, to: DeviceRange<'_>, word: u32) -> Result<()> {
        if !(to.ptr() as usize | to.bytes()).is_multiple_of(4) {
            return Err(Error::Internal(format!("{} bytes at {:#x} are no words", to.bytes(), to.ptr())));
        }
        if to.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        let (words, stream) = (to.bytes() / 4, self.stream.raw());
        // SAFETY: the target is inside of a device buffer and aligned.
        unsafe { call!(bound.driver(), cuMemsetD32Async(to.ptr(), word, words, stream)) }
    }

    /// Queues a copy from the device to the host; both have the same length. [`InFlight::arrived`] gives the buffer
    /// back.
    pub fn copy_to_host(&mut self, mut to: PinnedBuffer, from: DeviceRange<'_>) -> Result<()> {
        same_length(to.len(), from.bytes())?;
        self.state = InFlightState::Queueing;
        let target = to.as_mut_ptr().cast();
        // The buffer is kept even if the call fails: the device may have begun to write.
        self.arriving.push(to);
        let bound = self.stream.device().bind()?;
        let (bytes, stream) = (from.bytes(), self.stream.raw());
        // SAFETY: the target is page-locked and nobody else's until this work is done.
        unsafe { call!(bound.driver(), cuMemcpyDtoHAsync_v2(target, from.ptr(), bytes, stream)) }
    }

    /// Returns the next buffer that was copied to and not yet taken; `None` before the work is known to be done.
    pub fn arrived(&mut self) -> Option<PinnedBuffer> {
        (self.state == InFlightState::Empty && !self.arriving.is_empty()).then(|| self.arriving.remove(0))
    }

    /// Marks the end of what is queued: [`InFlight::event`] is passed when the device has done all of it.
    pub fn submit(&mut self) -> Result<()> {
        self.event.record(&self.stream)?;
        self.state = InFlightState::Submitted;
        Ok(())
    }

    /// The mark that [`InFlight::submit`] set, for other streams to wait for.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Whether the device has done all work; if so, drops the memory that was kept.
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
            // It is unknown whether the device still reads the memory, so leaking it is the one safe end.
            std::mem::forget((std::mem::take(&mut self.held), std::mem::take(&mut self.arriving)));
        }
    }
}

impl Stream {
    /// Copies from the device to the host and waits until the bytes are there; both have the same length.
    pub fn copy_to_host(&self, mut to: PinnedBuffer, from: DeviceRange<'_>) -> Result<PinnedBuffer> {
        same_length(to.len(), from.bytes())?;
        if from.bytes() == 0 {
            return Ok(to);
        }
        let bound = self.device().bind()?;
        let (target, bytes) = (to.as_mut_ptr().cast(), from.bytes());
        // SAFETY: the target is page-locked and ours alone until the stream is done.
        unsafe { call!(bound.driver(), cuMemcpyDtoHAsync_v2(target, from.ptr(), bytes, self.raw())) }?;
        if let Err(error) = self.synchronize() {
            if self.synchronize().is_err() {
                // It is unknown whether the device still writes the memory, so leaking it is the one safe end.
                std::mem::forget(to);
            }
            return Err(error);
        }
        Ok(to)
    }
}

fn same_length(to: usize, from: usize) -> Result<()> {
    if to == from { Ok(()) } else { Err(Error::Internal(format!("a copy of {from} bytes to {to} bytes"))) }
}
