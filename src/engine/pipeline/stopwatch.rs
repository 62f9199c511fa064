//! The stopwatch of a thread. It adds the time between two laps to a counter of the epoch, and logs it if tracing is
//! on.

use base::trace::{Gauge, Stage, StageWork, TraceLane};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Stopwatch {
    now: Instant,
    lane: TraceLane,
    epoch: u64,
    step: u64,
}

impl Stopwatch {
    pub(crate) fn new(lane: TraceLane) -> Self {
        Self { now: Instant::now(), lane, epoch: 0, step: 0 }
    }

    pub(crate) fn turn_to(&mut self, epoch: u64, step: u64) {
        (self.epoch, self.step) = (epoch, step);
    }

    /// Returns the time at which the latest lap ended.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Ignores the time before `moment`.
    pub(crate) fn skip_to(&mut self, moment: Instant) {
        self.now = self.now.max(moment);
    }

    /// Ends a lap: adds the time since the previous lap to `counter`, and returns this time.
    pub(crate) fn lap(&mut self, counter: &AtomicU64) -> Duration {
        let before = std::mem::replace(&mut self.now, Instant::now());
        let passed = self.now - before;
        counter.fetch_add(passed.as_nanos() as u64, Ordering::Relaxed);
        passed
    }

    /// Ends a lap like [`Stopwatch::lap`], and logs it as `stage`, which processed `bytes` bytes of one sample.
    pub(crate) fn lap_as(&mut self, counter: &AtomicU64, stage: Stage, bytes: usize) -> Duration {
        let before = self.now;
        let passed = self.lap(counter);
        self.log(stage, before, bytes, 1);
        passed
    }

    /// Logs that `stage` ran from `start` to the end of the latest lap.
    pub(crate) fn log(&mut self, stage: Stage, start: Instant, bytes: usize, samples: u64) {
        let work = StageWork { bytes: bytes as u64, samples, epoch: Some(self.epoch), step: self.step };
        self.lane.record(stage, start, self.now, work);
    }

    pub(crate) fn lane(&mut self) -> &mut TraceLane {
        &mut self.lane
    }

    pub(crate) fn gauge(&mut self, gauge: Gauge, value: usize) {
        self.lane.gauge(gauge, self.now, value as u64);
    }
}
