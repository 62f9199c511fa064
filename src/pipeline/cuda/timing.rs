//! How long the GPU takes for what, by events between the parts of the work.

use super::shares::Shares;
use crate::decode::nvjpeg::NvJpegBackend;
use crate::error::{Error, Result};
use crate::gpu::{Event, GpuDevice, Stream};
use crate::pipeline::Run;
use crate::pipeline::stats::GpuTimes;
use crate::trace::{Stage, StageWork, TraceLane};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CUDA counts in floats: so long after a moment it is still known to some microseconds how long that is.
const NEAR: Duration = Duration::from_secs(60);

/// A moment that others are measured from.
pub(crate) struct Origin {
    event: Event,
    /// Since the stage's beginning.
    at: Duration,
}

impl Origin {
    /// Now, on `stream`, `at` the stage's beginning or by another origin.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn new(device: &GpuDevice, stream: &Stream, other: Option<&Self>) -> Result<Self> {
        let event = Event::timed(device)?;
        event.record(stream)?;
        event.synchronize()?;
        let at = other.map_or(Ok(Duration::ZERO), |other| other.moment(&event))?;
        Ok(Self { event, at })
    }

    /// When `mark` was passed.
    fn moment(&self, mark: &Event) -> Result<Duration> {
        Ok(self.at + mark.since(&self.event)?)
    }
}

/// The events of one lane; those of a flight are read when it has landed.
pub(crate) struct Timing {
    device: GpuDevice,
    /// What this lane measures from.
    origin: Arc<Origin>,
    marks: Vec<Marks>,
    used: usize,
    log: TraceLane,
}

/// Around the parts of one chunk of images.
pub(crate) struct Marks {
    begin: Event,
    /// Planes and tables are on the device.
    copied: Event,
    /// The decoding engine's part, on its own stream, from where the host has prepared it; and that of the kernels
    /// which decode large batches.
    pub engine: [Event; 2],
    pub batched: [Event; 2],
    /// All planes are there.
    decoded: Event,
    done: Event,
    /// Images of these that one call decoded; where something failed the time is not that of images.
    pub on_engine: usize,
    pub on_batched: usize,
}

impl Marks {
    fn new(device: &GpuDevice) -> Result<Self> {
        let event = || Event::timed(device);
        Ok(Self {
            begin: event()?,
            copied: event()?,
            engine: [event()?, event()?],
            batched: [event()?, event()?],
            decoded: event()?,
            done: event()?,
            on_engine: 0,
            on_batched: 0,
        })
    }

    /// Work begins on `stream`, and on the engine's behind it.
    pub(crate) fn begin(&mut self, stream: &Stream, engine: &Stream) -> Result<()> {
        (self.on_engine, self.on_batched) = (0, 0);
        self.begin.record(stream)?;
        engine.wait(&self.begin)
    }

    /// All copies are queued.
    pub(crate) fn copied(&self, stream: &Stream) -> Result<()> {
        self.copied.record(stream)
    }

    /// The engine's part is queued. Marked at once: later, and its time would be that which the host takes to queue the
    /// CUDA kernels' part, so that an engine that idles looked busy.
    pub(crate) fn engine_queued(&self, engine: &Stream) -> Result<()> {
        self.engine[1].record(engine)
    }

    /// All decoding is queued; `stream` goes on when the engine has done its part too.
    pub(crate) fn decoded(&self, stream: &Stream) -> Result<()> {
        // CUDA's part ends here, before the engine's is waited for.
        self.decoded.record(stream)?;
        stream.wait(&self.engine[1])
    }

    /// All is queued.
    pub(crate) fn done(&self, stream: &Stream) -> Result<()> {
        self.done.record(stream)
    }
}

impl Timing {
    pub(crate) fn new(device: &GpuDevice, origin: Arc<Origin>, log: TraceLane) -> Self {
        Self { device: device.clone(), origin, marks: Vec::new(), used: 0, log }
    }

    /// Marks for the next chunk.
    pub(crate) fn next(&mut self) -> Result<&mut Marks> {
        if self.used == self.marks.len() {
            self.marks.push(Marks::new(&self.device)?);
        }
        self.used += 1;
        Ok(&mut self.marks[self.used - 1])
    }

    /// Those of the chunk that is being queued.
    ///
    /// # Panics
    /// Before the first.
    pub(crate) fn current(&mut self) -> &mut Marks {
        &mut self.marks[self.used - 1]
    }

    /// Adds what the flight that has landed took; `stream` is idle.
    pub(crate) fn collect(&mut self, run: &Run, shares: &Shares, stream: &Stream) -> Result<()> {
        let landed = Instant::now();
        let mut flown = Vec::new();
        for marks in &self.marks[..std::mem::take(&mut self.used)] {
            let seconds = |mark: &Event| Ok::<f64, Error>(self.origin.moment(mark)?.as_secs_f64());
            if marks.on_engine > 0 {
                let (given, done) = (seconds(&marks.engine[0])?, seconds(&marks.engine[1])?);
                shares.gpu_took(|gpu| gpu.engine_took(marks.on_engine, given, done));
            }
            if NvJpegBackend::CudaBatched.takes_call_of(marks.on_batched) {
                let (given, done) = (seconds(&marks.batched[0])?, seconds(&marks.batched[1])?);
                shares.gpu_took(|gpu| gpu.cuda_took(marks.on_batched, given, done));
            }
            let copied = marks.copied.since(&marks.begin)?;
            let decoded = marks.decoded.since(&marks.begin)?.max(marks.engine[1].since(&marks.begin)?);
            let done = marks.done.since(&marks.begin)?;
            let begin = self.origin.moment(&marks.begin)?;
            let times = GpuTimes {
                begin,
                copy: copied,
                decode: decoded.saturating_sub(copied),
                augment: done.saturating_sub(decoded),
                done: begin + done,
            };
            run.clock.add_gpu(&times);
            flown.push(times);
        }
        if flown.last().is_some_and(|last| last.done > self.origin.at + NEAR) {
            self.origin = Arc::new(Origin::new(&self.device, stream, Some(&self.origin))?);
        }
        if self.log.is_on() {
            self.log(run.epoch, &flown, landed);
        }
        Ok(())
    }

    /// Logs a flight that `landed` just now: the device's clock is not the host's, but the last of it has just been
    /// done.
    fn log(&mut self, epoch: u64, flown: &[GpuTimes], landed: Instant) {
        let end = flown.last().map_or(Duration::ZERO, |times| times.done);
        let work = StageWork { epoch: Some(epoch), ..StageWork::default() };
        for times in flown {
            let mut at = times.begin;
            for (stage, took) in [
                (Stage::Copy, times.copy),
                (Stage::GpuDecode, times.decode),
                (Stage::GpuAugment, times.augment),
            ] {
                let host =
                    |moment: Duration| landed.checked_sub(end.saturating_sub(moment)).unwrap_or(landed);
                self.log.record(stage, host(at), host(at + took), work);
                at += took;
            }
        }
    }
}
