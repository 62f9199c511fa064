//! A worker thread: fills places of batches from the bytes of their samples.

use super::{
    cpu_share::CpuMeter, engine::ThreadContext, make::PlaceFiller, make::PlaceJob, stopwatch::Stopwatch,
};
use base::error::Error;
use base::trace::TraceLane;
use crossbeam_channel::Receiver;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// While at least this many jobs wait per worker, a slot that comes free does not wake the reading thread: a wake-up
/// costs as much as a read.
const BUSY_JOBS_PER_WORKER: usize = 8;

/// Each worker tries to wake the reading thread at least once in this many jobs.
const WAKE_EVERY: usize = 16;

/// Works until the channel of jobs is closed, with fillers that `new` makes.
pub(crate) fn run<P, F: PlaceFiller<P>>(
    of: &ThreadContext,
    new: impl Fn() -> F,
    jobs: &Receiver<PlaceJob<P>>,
    lane: TraceLane,
) {
    let mut filler = new();
    let mut stopwatch = Stopwatch::new(lane);
    let mut meter = of.engine.budget.get().cloned().map(CpuMeter::new);
    for (count, job) in jobs.iter().enumerate() {
        let run = job.run.clone();
        // Do not count the time before the epoch began as time that the worker waited for the epoch's samples.
        stopwatch.skip_to(run.started);
        stopwatch.lap(&run.counters.idle);
        stopwatch.turn_to(run.epoch, job.open.step);
        if run.stopped() {
            drop(job);
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| filler.fill(job, &mut stopwatch))) {
            run.inbox.fail(Error::panicked("decoding", &*panic));
            // The old filler's scratch memory may be half-written.
            filler = new();
        }
        if jobs.len() < BUSY_JOBS_PER_WORKER * of.context.config.threads || count % WAKE_EVERY == 0 {
            of.waker.wake_if_waiting();
        }
        if let Some(meter) = &mut meter {
            meter.record_and_rest();
        }
    }
}
