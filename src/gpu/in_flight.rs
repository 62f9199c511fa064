//! Work in flight on a stream: it owns what the device still reads, until the stream has passed it.

use super::driver::call;
use super::event::Event;
use super::memory::DeviceRange;
use super::pinned::{PinnedBuffer, PinnedSlice};
use super::stream::Stream;
use crate::error::{Error, Result};

/// What one trip, usually a batch, has queued on a stream, with everything it reads from the host.
///
/// Queue, [`InFlight::depart`], and later [`InFlight::land`] or see that it [is done](InFlight::is_done); then it may
/// be used for the next trip. Dropping it waits: no memory goes before the device has read it.
pub struct InFlight {
    stream: Stream,
    event: Event,
    held: Vec<PinnedSlice>,
    /// What the device writes.
    arriving: Vec<PinnedBuffer>,
    state: InFlightState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InFlightState {
    /// Nothing is queued.
    Empty,
    /// Something may be queued that the event does not cover.
    Queueing,
    /// The event covers all.
    Departed,
}

impl InFlight {
    /// An empty one on `stream`.
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

    /// Its stream, to queue more work on; call [`InFlight::keep`] first with what that work needs.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Keeps memory until the stream has passed what is queued up to [`InFlight::depart`].
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

    /// Queues filling with one byte.
    pub fn fill(&mut self, to: DeviceRange<'_>, byte: u8) -> Result<()> {
        if to.bytes() == 0 {
            return Ok(());
        }
        self.state = InFlightState::Queueing;
        let bound = self.stream.device().bind()?;
        // SAFETY: the target is inside of a device buffer.
        unsafe { call!(bound.driver(), cuMemsetD8Async(to.ptr(), byte, to.bytes(), self.stream.raw())) }
    }

    /// Queues filling with a word, of a range whose address and length are multiples of 4.
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

    /// Queues a copy from the device to the host, of the same length; [`InFlight::arrived`] gives the buffer back.
    pub fn copy_to_host(&mut self, mut to: PinnedBuffer, from: DeviceRange<'_>) -> Result<()> {
        same_length(to.len(), from.bytes())?;
        self.state = InFlightState::Queueing;
        let target = to.as_mut_ptr().cast();
        // Also where the call fails: the device may have begun to write.
        self.arriving.push(to);
        let bound = self.stream.device().bind()?;
        let (bytes, stream) = (from.bytes(), self.stream.raw());
        // SAFETY: the target is page-locked and nobody else's until the flight has landed.
        unsafe { call!(bound.driver(), cuMemcpyDtoHAsync_v2(target, from.ptr(), bytes, stream)) }
    }

    /// The next buffer that was copied to and has not been fetched yet; none before the flight has landed.
    pub fn arrived(&mut self) -> Option<PinnedBuffer> {
        (self.state == InFlightState::Empty && !self.arriving.is_empty()).then(|| self.arriving.remove(0))
    }

    /// Marks the end of what is queued: [`InFlight::event`] is passed when the device has done all of it.
    pub fn depart(&mut self) -> Result<()> {
        self.event.record(&self.stream)?;
        self.state = InFlightState::Departed;
        Ok(())
    }

    /// The mark that [`InFlight::depart`] set, for other streams to wait for.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Whether the device has done all; if so, what was kept is dropped.
    pub fn is_done(&mut self) -> Result<bool> {
        let done = match self.state {
            InFlightState::Empty => true,
            InFlightState::Queueing => false,
            InFlightState::Departed => self.event.is_done()?,
        };
        if done {
            self.clear();
        }
        Ok(done)
    }

    /// Sleeps until the device has done all, then drops what was kept.
    pub fn land(&mut self) -> Result<()> {
        match self.state {
            InFlightState::Empty => {}
            InFlightState::Queueing => self.stream.synchronize()?,
            InFlightState::Departed => self.event.synchronize()?,
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
        if self.land().is_err() && self.stream.synchronize().is_err() {
            // The driver does not say whether the device still reads: leaking is the one safe end.
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
                // The driver does not say whether the device still writes: leaking is the one safe end.
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
