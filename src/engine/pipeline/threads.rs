//! The threads of a pipeline, which start together and end together.

use super::cpu_share::ShareKeeper;
use super::cuda::assembly::LaneQueues;
use super::cuda::{self, GpuStage};
use super::fetch::Fetcher;
use super::{EpochRun, PipelineShared, work};
use crate::batch::{BatchPool, BatchStorage};
use crate::config::{Device, LANES};
use crate::sharing::BatchPosition;
use base::error::{Error, Result};
use base::names::NamedValue;
use base::slot::SlotPool;
use crossbeam_channel::{Receiver, Sender, unbounded};
use data::schedule::{Assignment, SampleHomes};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::tier::{Cache, RankPlace, SharedJob, Verify};

/// How long a pipeline that is dropped waits for its threads. A thread that hangs in a dead file system is left behind.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// The reading thread, the workers and, on the way to a GPU, the lanes.
pub(super) struct Threads {
    /// The process that started the threads. A forked child has copies of the handles but not the threads.
    pub process: u32,
    /// What they share.
    pub shared: Arc<PipelineShared>,
    pub batches: BatchPool,
    pub runs: Sender<Arc<EpochRun>>,
    pub current: Option<Arc<EpochRun>>,
    handles: Vec<JoinHandle<()>>,
    /// A channel that is closed when the last thread has ended.
    pub ended: Receiver<()>,
}

impl Threads {
    /// Starts the threads of a process at this `place` among those that train.
    pub(super) fn start(shared: &Arc<PipelineShared>, place: RankPlace) -> Result<Self> {
        let config = &shared.config;
        shared.notify_blocks();
        // Encoded files are handed over in their slots, which a forked child must be able to read.
        let arena = if config.decoded { SlotPool::new } else { SlotPool::inherited };
        let slots = arena(config.pools.slot_bytes)?;
        if let (Some(options), None) = (&config.cache, shared.cache.get()) {
            let nodes_share = options.peers.is_some();
            let (options, trace) = (options.clone(), shared.trace.clone());
            let job = SharedJob { place, selection: &config.selection, settings: shared.agreement() };
            if let Some(cache) = Cache::open(&shared.index, options, trace, &job)? {
                shared.cache.get_or_init(|| cache);
            }
            if nodes_share {
                let homes = shared.cache.get().and_then(|cache| cache.homes());
                let homes = homes.unwrap_or_else(|| SampleHomes::on_one_node(place.world_size));
                let homes = if config.assignment == Assignment::EvenLocality {
                    let index = shared.index.clone();
                    homes.with_even_bytes(move |sample| index.extent(sample).length.into())
                } else {
                    homes
                };
                *shared.homes.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(homes));
            }
        }
        let stage = match (config.device, &config.device_pools) {
            (Device::Cuda { ordinal }, Some(pools)) => {
                Some(Arc::new(GpuStage::open(ordinal, config, pools, &slots)?))
            }
            _ => None,
        };
        if let Some(stage) = &stage {
            shared.decoders.get_or_init(|| stage.decoders());
            if let Some((backend, why)) = stage.failed() {
                shared.notify_untried(*backend, why);
            }
        }
        let storage = match &stage {
            Some(stage) => BatchStorage::Cuda(stage.storage()?),
            None if shared.lends => BatchStorage::Shared,
            None if config.decoded => BatchStorage::Host,
            None => BatchStorage::Slots,
        };
        let fetch_waker = shared.fetch_waker.clone();
        let on_free = move || fetch_waker.wake_if_starved();
        let batches =
            BatchPool::new(config.batch_size as usize, config.layout.clone(), config.pools, storage, on_free);
        let share = config.cpu.map(|share| ShareKeeper::new(shared, share));
        let (runs, run_queue) = unbounded();
        // The channels are bounded by the slots: every job and every sample of a piece holds one.
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
            lanes = Some(LaneQueues { common, own: queues.each_ref().map(|(own, _)| own.clone()) });
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
        let fetcher = Fetcher::new(shared.clone(), slots, batches.clone(), jobs, lanes, share);
        spawn("foreload-read".into(), Box::new(move || fetcher.run(&run_queue)))?;
        let shared = shared.clone();
        Ok(Self { process: std::process::id(), shared, batches, runs, current: None, handles, ended })
    }

    /// Starts a single thread, which does `work` on the runs that it is given until no more can come.
    pub(super) fn start_alone(
        shared: &Arc<PipelineShared>,
        batches: BatchPool,
        mut work: impl FnMut(&Receiver<Arc<EpochRun>>) + Send + 'static,
    ) -> Result<Self> {
        let (runs, run_queue) = unbounded();
        let (alive, ended) = unbounded::<()>();
        let thread = std::thread::Builder::new().name("foreload-share".into()).spawn(move || {
            work(&run_queue);
            drop(alive);
        });
        let handles = vec![thread.map_err(|e| Error::Unavailable(format!("cannot start a thread: {e}")))?];
        let shared = shared.clone();
        Ok(Self { process: std::process::id(), shared, batches, runs, current: None, handles, ended })
    }

    /// Stops the epoch that runs, if one does.
    pub(super) fn stop_current(&mut self) {
        if let Some(former) = self.current.take() {
            former.stop();
        }
    }

    /// Stops the current epoch, and waits a moment for the threads.
    pub(super) fn end(mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self);
            return;
        }
        self.stop_current();
        let Self { shared, runs, handles, ended, .. } = self;
        // The reading thread ends when its senders are gone. With it end the jobs' channel and so the workers, and the
        // lanes' channels and so the lanes.
        drop(runs);
        shared.fetch_waker.wake();
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

impl PipelineShared {
    /// What all ranks must have set alike, by name: what batches are made of, and how their samples are shared out.
    fn agreement(&self) -> Vec<(String, String)> {
        let config = &self.config;
        let verify = match config.cache.as_ref().map(|cache| cache.verify) {
            None | Some(Verify::Never) => "never, as immutable has it",
            Some(verify) => verify.name(),
        };
        let more = [
            ("batch_size", config.batch_size.to_string()),
            ("assignment", config.assignment.name().to_owned()),
            ("verify", verify.to_owned()),
        ];
        let values = self.identity.values().into_iter().chain(more);
        values.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The threads that run for `shared`, which are started if there are none.
///
/// # Errors
/// [`Error::Unavailable`] in a forked child; those of starting threads.
pub(super) fn running<'a>(
    threads: &'a mut Option<Threads>,
    shared: &Arc<PipelineShared>,
    place: RankPlace,
    at: BatchPosition,
) -> Result<&'a mut Threads> {
    if threads.as_ref().is_some_and(|threads| threads.process != std::process::id()) {
        return Err(forked());
    }
    // Images of another size need other pools, and so other threads. These end before those begin.
    if let Some(former) = threads.take_if(|threads| !Arc::ptr_eq(&threads.shared, shared)) {
        former.end();
    }
    match threads {
        Some(threads) => Ok(threads),
        empty => Ok(empty.insert(started(shared, place, at)?)),
    }
}

/// New threads: one that takes batches from another process, where they are shared, or those that make them.
fn started(shared: &Arc<PipelineShared>, place: RankPlace, at: BatchPosition) -> Result<Threads> {
    let Some(batches) = &shared.shared_batches else { return Threads::start(shared, place) };
    match Threads::attend(shared, batches, place, at) {
        Err(Error::Unavailable(why)) => {
            shared.index.notices().warn_once("shared", || {
                format!("shared is given, but this loader makes its batches for itself alone: {why}")
            });
            Threads::start(shared, place)
        }
        attending => attending,
    }
}

/// The error of a forked child, which has none of the parent's threads.
pub(super) fn forked() -> Error {
    Error::Unavailable(
        "this loader was used before the process forked; its threads live in the parent: make a new loader in the \
         child (with torch, num_workers=0)"
            .into(),
    )
}
