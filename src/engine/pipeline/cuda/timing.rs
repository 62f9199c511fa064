//! Measures how long each step of the work takes on the GPU, with events between the steps.

use super::balance::LoadBalancer;
use super::rate::TimedCall;
use crate::pipeline::{EpochRun, stats::GpuTimes};
use base::error::{Error, Result};
use base::trace::{Stage, StageWork, TraceLane};
use pixels::decode::nvjpeg::NvJpegBackend;
use pixels::gpu::{Event, GpuDevice, Stream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time between two events that is exact to some microseconds: CUDA returns such times as 32-bit floats.
const NEAR: Duration = Duration::from_secs(60);

/// An event from which the times of other events are measured.
pub(crate) struct TimeOrigin {
    event: Event,
    /// The time of the event, counted from the first origin of the stage.
    at: Duration,
}

impl TimeOrigin {
    /// Makes an origin at the current time on `stream`. Its time is measured from the origin `other`; without `other`
    /// it is 0.
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

    fn moment(&self, mark: &Event) -> Result<Duration> {
        Ok(self.at + mark.since(&self.event)?)
    }
}

pub(crate) struct Timing {
    device: GpuDevice,
    origin: Arc<TimeOrigin>,
    events: Vec<ChunkEvents>,
    used: usize,
    log: TraceLane,
}

pub(crate) struct ChunkEvents {
    begin: Event,
    pub copied: Event,
    /// Begin and end of the decoding engine's work on its own stream. The time between them begins when the host has
    /// prepared the work, and includes the pauses between the engine's calls.
    pub engine: [Event; 2],
    /// Begin and end of the work of nvJPEG's kernels that decode large batches.
    pub batched: [Event; 2],
    /// Completes when all kernels have decoded their planes.
    decoded: Event,
    pub done: Event,
    /// The numbers of images that the engine and the batched kernels decoded. 0 if a call failed, because its time does
    /// not show how fast images are decoded.
    pub on_engine: usize,
    pub on_batched: usize,
}

impl ChunkEvents {
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

    /// Records the begin of the work on `stream`, and makes the work on the stream `engine` begin after that.
    pub(crate) fn begin(&mut self, stream: &Stream, engine: &Stream) -> Result<()> {
        (self.on_engine, self.on_batched) = (0, 0);
        self.begin.record(stream)?;
        engine.wait(&self.begin)
    }

    /// Records that all decoding is queued, and makes `stream` wait for the decoding engine's work.
    pub(crate) fn decoded(&self, stream: &Stream) -> Result<()> {
        // Record the end of the kernels' work before the wait for the engine.
        self.decoded.record(stream)?;
        stream.wait(&self.engine[1])
    }
}

impl Timing {
    pub(crate) fn new(device: &GpuDevice, origin: Arc<TimeOrigin>, log: TraceLane) -> Self {
        Self { device: device.clone(), origin, events: Vec::new(), used: 0, log }
    }

    pub(crate) fn next(&mut self) -> Result<&mut ChunkEvents> {
        if self.used == self.events.len() {
            self.events.push(ChunkEvents::new(&self.device)?);
        }
        self.used += 1;
        Ok(&mut self.events[self.used - 1])
    }

    /// Returns the events of the chunk that is being queued.
    ///
    /// # Panics
    /// Panics before the first chunk.
    pub(crate) fn current(&mut self) -> &mut ChunkEvents {
        &mut self.events[self.used - 1]
    }

    /// Adds the times of the completed work to the counters of `run`. All work on `stream` must be done.
    pub(crate) fn collect(&mut self, run: &EpochRun, balancer: &LoadBalancer, stream: &Stream) -> Result<()> {
        let finished_at = Instant::now();
        let mut chunk_times = Vec::new();
        for events in &self.events[..std::mem::take(&mut self.used)] {
            let seconds = |mark: &Event| Ok::<f64, Error>(self.origin.moment(mark)?.as_secs_f64());
            let call = |images, [given, done]: &[Event; 2]| {
                Ok::<_, Error>(TimedCall { images, given: seconds(given)?, done: seconds(done)? })
            };
            if events.on_engine > 0 {
                balancer.record_gpu_call(call(events.on_engine, &events.engine)?);
            }
            if NvJpegBackend::CudaBatched.accepts_call_of(events.on_batched) {
                balancer.record_gpu_call(call(events.on_batched, &events.batched)?);
            }
            let copied = events.copied.since(&events.begin)?;
            let decoded = events.decoded.since(&events.begin)?.max(events.engine[1].since(&events.begin)?);
            let done = events.done.since(&events.begin)?;
            let begin = self.origin.moment(&events.begin)?;
            let times = GpuTimes {
                begin,
                copy: copied,
                decode: decoded.saturating_sub(copied),
                augment: done.saturating_sub(decoded),
                done: begin + done,
            };
            run.counters.add_gpu(&times);
            chunk_times.push(times);
        }
        if chunk_times.last().is_some_and(|last| last.done > self.origin.at + NEAR) {
            self.origin = Arc::new(TimeOrigin::new(&self.device, stream, Some(&self.origin))?);
        }
        if self.log.is_on() {
            self.log(run.epoch, &chunk_times, finished_at);
        }
        Ok(())
    }

    /// Logs the steps of a sub-batch for the trace. The last step has ended at `finished_at` on the host's clock, which
    /// relates the times of the device to that clock.
    fn log(&mut self, epoch: u64, chunk_times: &[GpuTimes], finished_at: Instant) {
        let end = chunk_times.last().map_or(Duration::ZERO, |times| times.done);
        let work = StageWork { epoch: Some(epoch), ..StageWork::default() };
        for times in chunk_times {
            let mut at = times.begin;
            for (stage, took) in [
                (Stage::Copy, times.copy),
                (Stage::GpuDecode, times.decode),
                (Stage::GpuAugment, times.augment),
            ] {
                let host = |moment: Duration| {
                    finished_at.checked_sub(end.saturating_sub(moment)).unwrap_or(finished_at)
                };
                self.log.record(stage, host(at), host(at + took), work);
                at += took;
            }
        }
    }
}
