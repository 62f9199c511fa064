//! Threads, queues, back-pressure and shutdown: the one module that connects all stages.
//!
//! - One reading thread walks the batches of a run in the order of the run plan ([`run_plan`]). It takes a buffer for
//!   each batch and a slot for each sample, and keeps the reader's queue full.
//! - `threads` workers decode and augment each sample into its place of a batch. A *ticket* is the right to fill one
//!   place. When the last ticket of a batch is finished, the batch goes to the consumer.
//! - The consumer ([`Epoch`]) takes finished batches in order. It counts failures in that order, so that the same run
//!   always ends at the same failure.
//!
//! The threads (`threads.rs`, `fetch.rs`, `work.rs`, `inbox.rs`, `epoch.rs`) use four traits and name no implementation
//! of them. `RunPlan` says which samples are in which batch, `Reader` reads bytes, `BatchOpener` and `PlaceFiller` make
//! batches ([`make`]). [`start`](mod@start) chooses the implementations. If several loaders share batches, it starts
//! one thread instead, which takes finished batches from another process ([`take_shared`]).
//!
//! Two pools of fixed size bound the memory of everything that waits: slots for bytes, and buffers for batches. The
//! threads start with the first epoch and are kept for later epochs. When an epoch is stopped, its tickets are dropped,
//! its reads in flight complete and their bytes are dropped, and its finished batches return their buffers at once. A
//! worker handles a failed sample itself, so nothing flows back to the reading thread.
//!
//! A forked child has none of these threads and cannot rely on any lock. It can read the batches that its parent held,
//! because the arena of encoded files is inherited. It returns nothing to the pools.
//!
//! To follow one sample on the CPU, read: `fetch.rs`, `run_plan/mod.rs`, `run_plan/epoch.rs`, `make/mod.rs`,
//! `make/host.rs`, `run.rs`, `work.rs`, `make/sample.rs`, `members.rs`, `cpu.rs`, `context.rs`, `mixing.rs` (even if
//! nothing is mixed), `inbox.rs`, `epoch.rs`. Before that, `order.rs`, `start.rs` and `threads.rs` set up the run.
//!
//! Invariants: no sample is lost, doubled or swapped, also across resume and under faults; no thread count, completion
//! order, I/O path, world size or assignment changes a byte of a global batch. (→ tests/load/pipeline.rs,
//! tests/load/resume.rs, tests/load/io/, tests/load/mixing.rs, tests/load/locality.rs)

mod arrays;
mod boxes;
mod concealed;
mod consistent_read;
mod context;
mod cpu;
mod cpu_share;
mod cuda;
mod cursor;
mod engine;
mod epoch;
mod fetch;
mod fields;
mod inbox;
mod make;
mod members;
mod mixing;
mod notify;
mod order;
mod originals;
mod peers_log;
mod preview;
mod progress;
mod reading;
mod row_start_cache;
mod run;
mod run_plan;
mod start;
mod stats;
mod status;
mod stopwatch;
mod substitute;
mod take_shared;
mod threads;
mod waker;
mod wanted;
mod windows;
mod work;

pub use concealed::{ConcealedLog, ConcealedSample};
pub use cuda::release_gpus;
pub use cursor::{Cursor, Start};
pub use epoch::{Epoch, FailureLog, Poll, SampleFailure};
pub use preview::{PreviewImage, PreviewMix};
pub use progress::Progress;
pub use reading::{OpenReader, open_reader};
pub use stats::{EpochStats, GpuStats, StageTimes};

use crate::config::LoaderConfig;
use crate::sharing::{BatchPosition, Sharing, SharingStats};
use base::error::{Error, Result};
use base::slot::SlotPool;
use base::trace::Trace;
use context::ContextsByEpoch;
use data::dataset::DatasetIndex;
use data::schedule::{SampleOwners, Schedule};
use data::state::State;
use engine::EngineShared;
use order::OrderPlan;
use pixels::augment::DrawnMix;
use reading::SampleSource;
use row_start_cache::RowStartCache;
use run::EpochRun;
use run_plan::StreamRunPlan;
use status::PipelineStatus;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use store::tier::{Cache, RankPlace};
use stream::SampleStream;
use threads::Threads;

/// The loading engine of one loader: makes batches from the samples of a dataset or a stream.
pub struct Pipeline {
    contexts: ContextsByEpoch,
    order: OrderPlan,
    /// Set if batches come from a producer process, which makes them for several loaders.
    shared: Option<(Arc<Sharing>, Arc<SharingStats>)>,
    leases: bool,
    engine: Arc<EngineShared>,
    threads: Mutex<Option<Threads>>,
    status: PipelineStatus,
}

impl Pipeline {
    /// Makes a pipeline for `index`. No thread starts and no pool is allocated before the first epoch.
    pub fn new(index: Arc<DatasetIndex>, config: LoaderConfig) -> Self {
        Self::with_reader(index, config, Box::new(open_reader))
    }

    /// Makes a pipeline that reads through the caller's reader, for instance one that injects faults.
    pub fn with_reader(index: Arc<DatasetIndex>, config: LoaderConfig, open_reader: Box<OpenReader>) -> Self {
        Self::of_source(index, config, open_reader, None)
    }

    /// Makes a pipeline for the samples of `stream`. `index` must be the index of that stream.
    pub fn of_stream(index: Arc<DatasetIndex>, config: LoaderConfig, stream: Arc<SampleStream>) -> Self {
        let reads = stream.clone();
        let open = move |_: &Arc<DatasetIndex>, slots: &SlotPool, config: &LoaderConfig| {
            reads.open_reader(slots, config.io, config.direct, config.queue_depth)
        };
        Self::of_source(index, config, Box::new(open), Some(stream))
    }

    fn of_source(
        index: Arc<DatasetIndex>,
        config: LoaderConfig,
        open_reader: Box<OpenReader>,
        stream: Option<Arc<SampleStream>>,
    ) -> Self {
        // The cache of row starts helps only if an image is decoded again, and most samples of a stream are decoded
        // once.
        let rows = RowStartCache::new(if stream.is_some() { 0 } else { config.row_bytes });
        let source = SampleSource { index, open_reader, stream, cache: OnceLock::new(), rows };
        let contexts = ContextsByEpoch::new(&Arc::new(source), config);
        Self {
            order: OrderPlan::new(&contexts.first),
            contexts,
            shared: None,
            leases: false,
            engine: Arc::new(EngineShared::new(Trace::off())),
            threads: Mutex::default(),
            status: PipelineStatus::default(),
        }
    }

    /// Makes the threads log what they do in `trace`. Call [`Trace::finish`] after the pipeline is dropped.
    pub fn traced(mut self, trace: Trace) -> Self {
        self.engine = Arc::new(EngineShared::new(trace));
        self
    }

    /// Takes batches from the producer process of `sharing`, from the first epoch on.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.shared = Some((Arc::new(sharing), Arc::default()));
        self
    }

    /// Makes batches in memory that can be leased to other processes.
    pub fn with_leasable_batches(mut self) -> Self {
        self.leases = true;
        self
    }

    /// Returns the counters of shared batches; `None` if batches are not shared.
    pub fn sharing_stats(&self) -> Option<&SharingStats> {
        self.shared.as_ref().map(|(_, stats)| &**stats)
    }

    /// Returns the dataset's index.
    pub fn index(&self) -> &Arc<DatasetIndex> {
        &self.contexts.first.index
    }

    /// Returns the settings. If image sizes depend on the epoch, these are the settings of the first epoch.
    pub fn config(&self) -> &LoaderConfig {
        &self.contexts.first.config
    }

    /// Returns a description of how bytes are read; empty before the first epoch.
    pub fn io(&self) -> String {
        self.engine.io.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the tiers that keep copies; `None` if there are no tiers, and before the first epoch.
    pub fn cache(&self) -> Option<&Arc<Cache>> {
        self.contexts.first.source.cache.get()
    }

    /// Returns the GPU's decoders by name, each with what it can decode and what limits it. Empty without a GPU and
    /// before the first epoch.
    pub fn decoders(&self) -> &[(&'static str, String)] {
        self.engine.decoders.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the average number of processors that the threads may keep busy, given the loaders that share the node
    /// now. `None` without `cpu=` and before the first epoch.
    pub fn cores(&self) -> Option<f64> {
        self.engine.cores()
    }

    /// Returns the maximum number of batches that are prepared ahead of the consumer.
    pub fn most_ahead(&self) -> usize {
        self.contexts.most_ahead()
    }

    /// Sets the owner node of each sample. Assignment by locality uses it from the next epoch on.
    pub fn set_homes(&self, homes: Arc<SampleOwners>) {
        self.order.set_homes(homes);
    }

    /// Starts `epoch` at `first_step`. Keep the pipeline alive while the epoch runs. An earlier epoch of this pipeline
    /// that still runs is stopped, because there is one set of threads and pools.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`] and [`DatasetIndex::check_arrays`]; [`Error::Io`] when there is no memory
    /// for the pools; [`Error::Unavailable`] in a forked child.
    pub fn epoch(&self, epoch: u64, rank: u32, world_size: u32, first_step: u64) -> Result<Epoch> {
        let schedule = self.order.in_slices(epoch, rank, world_size)?;
        let first_step = first_step.min(schedule.steps());
        self.start(epoch, schedule, first_step, 0)
    }

    /// Resumes where `state` was saved, whatever the rank and the world size were then. Nothing that was yielded before
    /// is read again.
    ///
    /// # Errors
    /// The errors of [`Pipeline::check`], [`State::first_step`] and [`Pipeline::epoch`].
    pub fn resume(&self, state: &State, rank: u32, world_size: u32) -> Result<Epoch> {
        self.check(state)?;
        let schedule = self.order.in_slices(state.epoch, rank, world_size)?;
        let first_step = state.first_step(&schedule)?;
        if state.is_through() {
            self.index().notices().warn_once("epoch", || {
                format!(
                    "epoch {} was chosen, but it is complete in the loaded state, so this iteration has no batches: \
                     continue with epoch {}, which the loader's `epoch` returns if none is chosen",
                    state.epoch,
                    state.epoch.saturating_add(1)
                )
            });
        }
        self.start(state.epoch, schedule, first_step, state.errors)
    }

    fn start(&self, epoch: u64, schedule: Schedule, first_step: u64, errors: u64) -> Result<Epoch> {
        // If batches are leased to other loaders, those loaders warn their users themselves.
        if !self.leases {
            self.order.warn_of_padding(&schedule);
        }
        self.index().check_arrays()?;
        let context = self.contexts.in_epoch(epoch);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // The first epoch must report errors from opening the cache, so only later epochs clear them.
        let first = threads.is_none();
        let place = RankPlace { rank: schedule.rank(), world_size: schedule.world_size() };
        let at = BatchPosition { epoch, step: first_step };
        let threads = self.running(&mut threads, context, place, at)?;
        let schedule = self.order.assigned(schedule)?;
        threads.stop_current();
        if let Some(cache) = self.cache() {
            if !first {
                cache.forget_error();
            }
            let order = |epoch| self.order.order(epoch, schedule.world_size());
            let order = |epoch| {
                order(epoch).expect("an order that can be divided in one epoch can be divided in all")
            };
            cache.begin(epoch, &schedule, first_step, &order);
        }
        let (made, waker) = ((context.clone(), threads.batches.clone()), threads.of.waker.clone());
        self.run(threads, EpochRun::new(made, epoch, Arc::new(schedule), place, first_step, waker), errors)
    }

    /// Resumes the stream of this pipeline after the last batch that was delivered. Keep the pipeline alive while the
    /// iteration runs. An earlier iteration that still runs is stopped. `errors` is the number of samples that have
    /// failed so far.
    ///
    /// # Errors
    /// The errors of [`SampleStream::begin`]; [`Error::Io`] when there is no memory for the pools;
    /// [`Error::Unavailable`] in a forked child.
    pub fn stream(&self, place: RankPlace, errors: u64) -> Result<Epoch> {
        let context = &self.contexts.first;
        let Some(stream) = &context.source.stream else {
            return Err(Error::Internal("a stream was requested from a pipeline with a dataset".into()));
        };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // The batches of a stream are never shared, so the position does not matter.
        let at = BatchPosition { epoch: 0, step: 0 };
        let threads = self.running(&mut threads, context, place, at)?;
        threads.stop_current();
        let (wakes, waker) = (threads.of.waker.clone(), threads.of.waker.clone());
        let (iteration, first_step) = stream.begin(move || wakes.wake())?;
        let global_batch = self.global_batch(place.world_size);
        let run_plan = Arc::new(StreamRunPlan { stream: stream.clone(), iteration, global_batch });
        let made = (context.clone(), threads.batches.clone());
        self.run(threads, EpochRun::new(made, 0, run_plan, place, first_step, waker), errors)
    }

    fn run(&self, threads: &mut Threads, run: EpochRun, errors: u64) -> Result<Epoch> {
        let run = Arc::new(run);
        let identity = self.order.identity.clone();
        let progress = Progress::new(identity, run.epoch, run.run_plan.clone(), run.first_step, errors);
        let progress = Arc::new(progress);
        let sharing = self.shared.as_ref().map(|(_, stats)| stats.clone());
        self.status.begin(self.engine.clone(), sharing, run.clone(), progress.clone());
        threads.run(&run)?;
        self.status.show(run.context.index.notices());
        Ok(Epoch::new(run, self.engine.consumer.clone(), threads.ended.clone(), progress))
    }

    /// Returns how the images of a global batch are mixed: the global batch of `epoch`, with `world_size` ranks, that
    /// contains place `position`. `None` if nothing is mixed.
    pub fn mix(&self, position: u64, epoch: u64, world_size: u32) -> Option<DrawnMix> {
        let config = &self.contexts.in_epoch(epoch).config;
        let plan = config.mix.as_ref()?;
        let keys = plan.mixing.keys(config.seed, epoch);
        Some(plan.draw(&keys, position, self.global_batch(world_size)))
    }

    fn global_batch(&self, world_size: u32) -> u64 {
        u64::from(self.config().batch_size) * u64::from(world_size)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.status.end();
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            threads.end();
        }
        if let Some(cache) = self.cache() {
            cache.close();
        }
    }
}
