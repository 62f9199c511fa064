//! The threads of a pipeline: started together, ended together.

use super::cuda::assembly::Lanes;
use super::cuda::{self, Stage};
use super::fetch::{Bell, Fetcher};
use super::{Run, Shared, work};
use crate::batch::{BatchPool, Storage};
use crate::config::{Device, LANES};
use crate::error::{Error, Result};
use crate::slot::SlotPool;
use crate::tier::Cache;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a pipeline waits for its threads when it is dropped; a thread that hangs in a dead file system is left
/// behind.
const FAREWELL: Duration = Duration::from_secs(1);

/// The reading thread, the workers, and on the way to a GPU the lanes.
pub(super) struct Threads {
    /// In which they were started: a forked child has copies of the handles but not the threads.
    pub process: u32,
    pub batches: BatchPool,
    pub runs: Sender<Arc<Run>>,
    pub current: Option<Arc<Run>>,
    handles: Vec<JoinHandle<()>>,
    /// Closed when the last thread has ended.
    pub ended: Receiver<()>,
}

impl Threads {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let config = &shared.config;
        // Encoded files are handed over in their slots.
        let arena = if config.decoded { SlotPool::new } else { SlotPool::inherited };
        let slots = arena(config.pools.slot_bytes)?;
        if let (Some(options), None) = (&config.cache, shared.cache.get())
            && let Some(cache) = Cache::open(&shared.index, options.clone(), shared.trace.clone())?
        {
            shared.cache.get_or_init(|| cache);
        }
        let stage = match (config.device, &config.device_pools) {
            (Device::Cuda { ordinal }, Some(pools)) => {
                Some(Arc::new(Stage::open(ordinal, config, pools, &slots)?))
            }
            _ => None,
        };
        if let Some(stage) = &stage {
            shared.decoders.get_or_init(|| stage.decoders());
            if let Some((backend, why)) = stage.failed() {
                shared.tell_untried(*backend, why);
            }
        }
        let storage = match &stage {
            Some(stage) => Storage::Cuda(stage.storage()?),
            None if config.decoded => Storage::Host,
            None => Storage::Slots,
        };
        let bell = shared.bell.clone();
        let on_free = move || bell.ring();
        let batches =
            BatchPool::new(config.batch_size as usize, config.layout.clone(), config.pools, storage, on_free);
        let (runs, run_queue) = unbounded();
        // Bounded by the slots: every job, and every sample of a piece, holds one.
        let (jobs, job_queue) = unbounded();
        let (alive, ended) = unbounded::<()>();
        let mut handles = Vec::new();
        let mut spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            let (alive, stage) = (alive.clone(), stage.clone());
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                if let Some(stage) = stage {
                    stage.attach_thread();
                }
                work();
                drop(alive);
            });
            let failed = |e| Error::Unavailable(format!("cannot start a thread: {e}; lower threads="));
            thread.map(|handle| handles.push(handle)).map_err(failed)
        };
        let mut lanes = None;
        if let Some(stage) = &stage {
            let (common, whole) = unbounded();
            let queues: [_; LANES] = std::array::from_fn(|_| unbounded());
            lanes = Some(Lanes { common, own: queues.each_ref().map(|(own, _)| own.clone()) });
            for (i, (_, own)) in queues.into_iter().enumerate() {
                let (shared, stage, common) = (shared.clone(), stage.clone(), whole.clone());
                spawn(
                    format!("foreload-lane-{i}"),
                    Box::new(move || cuda::lane::run(&shared, &stage, i, [&own, &common])),
                )?;
            }
        }
        for i in 0..config.threads {
            let (shared, stage, jobs) = (shared.clone(), stage.clone(), job_queue.clone());
            let lane = shared.trace.lane(&format!("worker {i}"));
            spawn(
                format!("foreload-work-{i}"),
                Box::new(move || work::run(&shared, stage.as_deref(), &jobs, lane)),
            )?;
        }
        let fetcher = Fetcher::new(shared.clone(), slots, batches.clone(), jobs, lanes);
        spawn("foreload-read".into(), Box::new(move || fetcher.run(&run_queue)))?;
        Ok(Self { process: std::process::id(), batches, runs, current: None, handles, ended })
    }

    /// Stops what runs, and waits for the threads a moment.
    pub(super) fn end(self, bell: &Bell) {
        if self.process != std::process::id() {
            std::mem::forget(self);
            return;
        }
        let Self { runs, current, handles, ended, .. } = self;
        if let Some(run) = current {
            run.stop(bell);
        }
        // Without senders the reading thread ends, and with it the jobs' channel and the workers, the lanes' channels
        // and the lanes.
        drop(runs);
        bell.wake();
        let deadline = Instant::now() + FAREWELL;
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
