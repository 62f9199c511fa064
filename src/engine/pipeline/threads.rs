//! The threads of a pipeline, which start together and end together.

use super::{
    cpu_share::CpuShareLimiter, engine::ThreadContext, fetch::Fetcher, make::BatchOpener, make::PlaceFiller,
    run::EpochRun, work,
};
use crate::batch::{BatchPool, BatchStorage, Pools};
use base::error::{Error, Result};
use base::slot::SlotPool;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long dropping a pipeline waits for its threads. A thread that hangs in a dead file system is abandoned.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Threads {
    /// The process that started the threads. A forked child has copies of the handles but not the threads.
    pub process: u32,
    pub of: ThreadContext,
    pub batches: BatchPool,
    runs: Sender<Arc<EpochRun>>,
    current: Option<Arc<EpochRun>>,
    handles: Vec<JoinHandle<()>>,
    pub ended: Receiver<()>,
}

pub(crate) struct Spawner {
    handles: Vec<JoinHandle<()>>,
    alive: Sender<()>,
    ended: Receiver<()>,
}

impl Spawner {
    pub(crate) fn new() -> Self {
        let (alive, ended) = unbounded();
        Self { handles: Vec::new(), alive, ended }
    }

    pub(crate) fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let alive = self.alive.clone();
        let work = move || {
            work();
            drop(alive);
        };
        let failed = |e| Error::Unavailable(format!("cannot start a thread: {e}; lower threads="));
        self.handles.push(std::thread::Builder::new().name(name).spawn(work).map_err(failed)?);
        Ok(())
    }

    pub(crate) fn started(
        self,
        of: ThreadContext,
        batches: BatchPool,
        runs: Sender<Arc<EpochRun>>,
    ) -> Threads {
        let Self { handles, ended, .. } = self;
        Threads { process: std::process::id(), of, batches, runs, current: None, handles, ended }
    }

    /// Starts the reading thread and the workers. They read into `slots`, open batches with `opener`, and fill them
    /// with fillers that `new` makes.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn start<O: BatchOpener, F: PlaceFiller<O::Place>>(
        mut self,
        of: ThreadContext,
        slots: SlotPool,
        storage: BatchStorage,
        opener: O,
        new: impl Fn() -> F + Clone + Send + 'static,
    ) -> Result<Threads> {
        let config = &of.context.config;
        let batches = pool(&of, config.pools, storage);
        let share = config.cpu.map(|share| CpuShareLimiter::new(&of.context, &of.engine.budget, share));
        // The channels need no limit: every job and every sample of a sub-batch holds a slot, and the number of slots
        // is limited.
        let ((runs, run_queue), (jobs, job_queue)) = (unbounded(), unbounded());
        for i in 0..config.threads {
            let (of, new, jobs) = (of.clone(), new.clone(), job_queue.clone());
            let lane = of.engine.trace.lane(&format!("worker {i}"));
            self.spawn(format!("foreload-work-{i}"), move || work::run(&of, new, &jobs, lane))?;
        }
        let fetcher = Fetcher::new(of.clone(), slots, opener, jobs, share);
        self.spawn("foreload-read".into(), move || fetcher.run(&run_queue))?;
        Ok(self.started(of, batches, runs))
    }
}

pub(crate) fn pool(of: &ThreadContext, limits: Pools, storage: BatchStorage) -> BatchPool {
    let (config, waker) = (&of.context.config, of.waker.clone());
    let layouts = match of.context.buckets.as_slice() {
        [] => vec![config.layout.clone()],
        buckets => buckets.iter().map(|context| context.config.layout.clone()).collect(),
    };
    let capacity = config.batch_size as usize;
    BatchPool::of_layouts(capacity, layouts, limits, storage, move || waker.wake_if_waiting())
}

impl Threads {
    pub(crate) fn run(&mut self, run: &Arc<EpochRun>) -> Result<()> {
        self.current = Some(run.clone());
        self.runs.send(run.clone()).map_err(|_| Error::Internal("the reading thread has ended".into()))
    }

    pub(crate) fn stop_current(&mut self) {
        if let Some(former) = self.current.take() {
            former.stop();
        }
    }

    /// Stops the current run and waits briefly for the threads to end.
    pub(crate) fn end(mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self);
            return;
        }
        self.stop_current();
        let Self { of, runs, handles, ended, .. } = self;
        // Dropping the sender ends the reading thread. That closes the channel of jobs, which ends the workers and,
        // with a GPU, the lanes.
        drop(runs);
        of.waker.wake();
        let deadline = Instant::now() + SHUTDOWN_WAIT;
        let all_ended = loop {
            match ended.recv_deadline(deadline) {
                Ok(()) => {}
                Err(e) => break e.is_disconnected(),
            }
        };
        if all_ended {
            for handle in handles {
                // A panic was already reported to the consumer.
                let _ = handle.join();
            }
        }
    }
}

pub(crate) fn forked() -> Error {
    Error::Unavailable(
        "this loader was used before the process forked, and its threads exist only in the parent: make a new loader \
         in the child (with torch, use num_workers=0)"
            .into(),
    )
}
