//! A thread's stopwatch: the time between two laps goes to a counter of the epoch, and into the interval log if there
//! is one.

use crate::trace::{Gauge, Stage, StageWork, TraceLane};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One per thread.
pub(super) struct Watch {
    now: Instant,
    lane: TraceLane,
    /// What the thread works for.
    epoch: u64,
    step: u64,
}

impl Watch {
    pub(super) fn new(lane: TraceLane) -> Self {
        Self { now: Instant::now(), lane, epoch: 0, step: 0 }
    }

    /// From here on the thread works for a step of an epoch.
    pub(super) fn turn_to(&mut self, epoch: u64, step: u64) {
        (self.epoch, self.step) = (epoch, step);
    }

    /// The last lap.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// What came before `moment` counts for nothing.
    pub(super) fn skip_to(&mut self, moment: Instant) {
        self.now = self.now.max(moment);
    }

    /// Adds the time since the last lap to `counter`, and returns it.
    pub(super) fn lap(&mut self, counter: &AtomicU64) -> Duration {
        let before = std::mem::replace(&mut self.now, Instant::now());
        let passed = self.now - before;
        counter.fetch_add(passed.as_nanos() as u64, Ordering::Relaxed);
        passed
    }

    /// Likewise, and logs it as `stage` that dealt with so many bytes of a sample.
    pub(super) fn lap_as(&mut self, counter: &AtomicU64, stage: Stage, bytes: usize) -> Duration {
        let before = self.now;
        let passed = self.lap(counter);
        self.log(stage, before, bytes, 1);
        passed
    }

    /// Logs `stage` from `start` to the last lap.
    pub(super) fn log(&mut self, stage: Stage, start: Instant, bytes: usize, samples: u64) {
        let work = StageWork { bytes: bytes as u64, samples, epoch: Some(self.epoch), step: self.step };
        self.lane.record(stage, start, self.now, work);
    }

    /// Logs where `gauge` stands.
    pub(super) fn gauge(&mut self, gauge: Gauge, value: usize) {
        self.lane.gauge(gauge, self.now, value as u64);
    }
}
