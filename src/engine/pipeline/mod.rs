//! Threads, queues, back-pressure and shutdown: the one module that knows every stage.
//!
//! One thread reads ahead in the schedule's order ([`fetch`]), `threads` workers decode and augment ([`work`]), and the
//! consumer takes finished batches in order ([`Epoch`]). Everything that waits is bounded by a pool that is fixed at
//! the start: slots for bytes, buffers for batches. The threads start with the first epoch and live as long as the
//! [`Pipeline`].

mod attend;
mod boxes;
mod concealed;
mod course;
mod cpu;
mod cpu_share;
mod cuda;
mod cursor;
mod epoch;
mod fetch;
mod fields;
mod inbox;
mod making;
mod mixing;
mod notify;
mod one_version;
mod order;
mod originals;
mod peers_log;
mod preview;
mod progress;
mod reading;
mod recipes;
mod stats;
mod status;
mod stopwatch;
mod substitute;
mod threads;
mod wanted;
mod work;

pub use concealed::{ConcealedLog, ConcealedSample};
pub use cuda::release_gpus;
pub use cursor::{Cursor, Start};
pub use epoch::{Epoch, FailureLog, Poll, SampleFailure};
pub use preview::{PreviewImage, PreviewMix};
pub use progress::Progress;
pub use reading::{OpenReader, open_reader};
pub use stats::EpochStats;
pub use stats::StageTimes;

use crate::config::LoaderConfig;
use crate::sharing::BatchPosition;
use attend::SharedBatches;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use base::slot::SlotPool;
use base::trace::{Trace, TraceLane};
use course::{Course, StreamCourse};
use cpu_share::CpuBudget;
use data::dataset::DatasetIndex;
use data::schedule::{SampleHomes, Schedule, Shuffling};
use data::state::{OrderIdentity, State};
use fetch::FetchWaker;
use inbox::Inbox;
use pixels::augment::{DrawnMix, MixKeys, RecipeKeys};
use recipes::{FurtherRecipes, RecipeRun};
use status::PipelineStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use stopwatch::Stopwatch;
use store::tier::{Cache, CacheStats, RankPlace};
use stream::SampleStream;
use threads::Threads;

/// Everything from the dataset's index to finished batches.
pub struct Pipeline {
    shared: Arc<PipelineShared>,
    /// The same for later epochs, whose images have other sizes: each with its first epoch, in order.
    later: Vec<(u64, Arc<PipelineShared>)>,
    /// Other recipes by which batches of the same samples are made, where they are.
    further: Mutex<FurtherRecipes>,
    threads: Mutex<Option<Threads>>,
    status: PipelineStatus,
}

/// What all threads of a pipeline share. For images of other sizes, and for other recipes, there is another; what is
/// behind `Arc` is in common.
struct PipelineShared {
    index: Arc<DatasetIndex>,
    config: LoaderConfig,
    /// What the order of samples depends on, with which a state must agree.
    identity: Arc<OrderIdentity>,
    open_reader: Arc<OpenReader>,
    /// The stream, where samples are those of one.
    stream: Option<Arc<SampleStream>>,
    /// How batches are taken from another process, where they are shared.
    shared_batches: Option<SharedBatches>,
    /// Whether batches are in memory that other processes can be lent.
    lends: bool,
    fetch_waker: Arc<FetchWaker>,
    trace: Trace,
    /// The stopwatch of the consumer, whichever thread that is.
    consumer: Mutex<Stopwatch>,
    /// The tiers that keep copies, once the threads have started.
    cache: Arc<OnceLock<Arc<Cache>>>,
    /// Where samples are kept, for `assignment="locality"`. Ranks that meet again may have other nodes.
    homes: Arc<Mutex<Option<Arc<SampleHomes>>>>,
    /// How bytes are read, in words. It is known once the reader is open.
    io: Arc<Mutex<String>>,
    /// What the GPU's decoders can do, in words, each by its name. It is known once the threads have started.
    decoders: Arc<OnceLock<Vec<(&'static str, String)>>>,
    /// Whether the reading thread waits for room with nothing in flight.
    stuck: AtomicBool,
    /// The processor time that the threads may take, with `cpu=`. It is known once the threads have started.
    budget: Arc<OnceLock<Arc<CpuBudget>>>,
}

/// One epoch, as all stages know it.
struct EpochRun {
    epoch: u64,
    course: Course,
    first_step: u64,
    /// The keys of what transforms draw, for each recipe.
    keys: Vec<RecipeKeys>,
    /// The keys of what is drawn for batches, where they are mixed.
    mix_keys: Option<MixKeys>,
    substitutes: RandomKey,
    stopped: AtomicBool,
    inbox: Arc<Inbox>,
    counters: stats::EpochCounters,
    concealed: ConcealedLog,
    /// What the tiers had done before the epoch.
    cached: CacheStats,
    /// What wakes the reading thread.
    waker: Arc<FetchWaker>,
    /// The runs of other recipes on the same samples.
    beside: Vec<RecipeRun>,
}

impl EpochRun {
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the epoch by an error, of whichever recipe that is: no batch of any is sure to come.
    fn fail(&self, error: Error) {
        for of in &self.beside {
            of.run
                .inbox
                .fail(Error::Internal(format!("the samples of another recipe could not be made: {error}")));
        }
        self.inbox.fail(error);
    }

    /// Stops the epoch, whose batches nobody wants any more. Finished ones give their buffers back, and the threads
    /// turn to what is next. The runs beside it end with it.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.inbox.close();
        self.beside.iter().for_each(|of| of.run.stop());
        self.waker.wake();
    }
}

impl Pipeline {
    /// Makes a pipeline for `index`. No thread starts and no pool is allocated before the first epoch.
    pub fn new(index: Arc<DatasetIndex>, config: LoaderConfig) -> Self {
        Self::with_reader(index, config, Box::new(open_reader))
    }

    /// Makes a pipeline that reads through a reader of the caller's, for instance one that injects faults.
    pub fn with_reader(
        index: Arc<DatasetIndex>,
        mut config: LoaderConfig,
        open_reader: Box<OpenReader>,
    ) -> Self {
        let later = std::mem::take(&mut config.later);
        let identity = order::identity(&index, &config);
        let shared = PipelineShared {
            index,
            config,
            identity: Arc::new(identity),
            open_reader: open_reader.into(),
            stream: None,
            shared_batches: None,
            lends: false,
            fetch_waker: Arc::default(),
            trace: Trace::off(),
            consumer: Mutex::new(Stopwatch::new(TraceLane::off())),
            cache: Arc::default(),
            homes: Arc::default(),
            io: Arc::default(),
            decoders: Arc::default(),
            stuck: AtomicBool::default(),
            budget: Arc::default(),
        };
        let with = |(epoch, config)| (epoch, Arc::new(shared.with(config)));
        Self {
            later: later.into_iter().map(with).collect(),
            shared: Arc::new(shared),
            further: Mutex::default(),
            threads: Mutex::default(),
            status: PipelineStatus::default(),
        }
    }

    /// What the threads share in `epoch`.
    fn shared_in(&self, epoch: u64) -> &Arc<PipelineShared> {
        recipes::in_epoch(&self.shared, &self.later, epoch)
    }

    /// Makes a pipeline for the samples of a stream, of which `index` is the index.
    pub fn of_stream(index: Arc<DatasetIndex>, config: LoaderConfig, stream: Arc<SampleStream>) -> Self {
        let reads = stream.clone();
        let open = move |_: &Arc<DatasetIndex>, slots: &SlotPool, config: &LoaderConfig| {
            reads.open_reader(slots, config.io, config.direct, config.queue_depth)
        };
        let mut pipeline = Self::with_reader(index, config, Box::new(open));
        let shared = Arc::get_mut(&mut pipeline.shared).expect("nobody else has the pipeline yet");
        shared.stream = Some(stream);
        pipeline
    }

    /// Makes the threads log what they do. [`Trace::finish`] comes after the pipeline is dropped.
    ///
    /// # Panics
    /// Panics when an epoch has begun already.
    pub fn traced(mut self, trace: Trace) -> Self {
        for shared in self.not_begun() {
            shared.consumer = Mutex::new(Stopwatch::new(trace.lane("consumer")));
            shared.trace = trace.clone();
        }
        self
    }

    /// The dataset.
    pub fn index(&self) -> &Arc<DatasetIndex> {
        &self.shared.index
    }

    /// The settings; of images whose sizes depend on the epoch, those of the first.
    pub fn config(&self) -> &LoaderConfig {
        &self.shared.config
    }

    /// How bytes are read, in words; empty before the first epoch.
    pub fn io(&self) -> String {
        self.shared.io.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tiers that keep copies; `None` without any and before the first epoch.
    pub fn cache(&self) -> Option<&Arc<Cache>> {
        self.shared.cache.get()
    }

    /// What each of the GPU's decoders can do, and why not more, by its name; empty without a GPU and before the first
    /// epoch.
    pub fn decoders(&self) -> &[(&'static str, String)] {
        self.shared.decoders.get().map_or(&[], Vec::as_slice)
    }

    /// The processors that the threads may keep busy on average, by what the node's loaders share at the moment;
    /// `None` without `cpu=` and before the first epoch.
    pub fn cores(&self) -> Option<f64> {
        self.shared.cores()
    }

    /// Says where samples are kept. From the next epoch on, assignments by locality go by it.
    pub fn set_homes(&self, homes: Arc<SampleHomes>) {
        *self.shared.homes.lock().unwrap_or_else(PoisonError::into_inner) = Some(homes);
    }

    /// Whether `state` is one of this pipeline's orders.
    ///
    /// # Errors
    /// The errors of [`State::check`].
    pub fn check(&self, state: &State) -> Result<()> {
        state.check(&self.shared.identity)
    }

    /// The state before the first step of `epoch`.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`].
    pub fn state(&self, epoch: u64, rank: u32, world_size: u32) -> Result<State> {
        let schedule = self.in_slices(epoch, rank, world_size)?;
        Ok(State::new(&self.shared.identity, epoch, &schedule, 0, 0))
    }

    /// Starts `epoch` at `first_step`; keep the pipeline for as long as the epoch runs. An epoch of this pipeline that
    /// still runs is stopped, because there is one set of threads and pools.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`]; [`Error::Io`] when there is no memory for the pools;
    /// [`Error::Unavailable`] in a forked child.
    pub fn epoch(&self, epoch: u64, rank: u32, world_size: u32, first_step: u64) -> Result<Epoch> {
        let schedule = self.in_slices(epoch, rank, world_size)?;
        let first_step = first_step.min(schedule.steps());
        self.start(epoch, schedule, first_step, 0)
    }

    /// Goes on where `state` was saved, on whatever rank and in a world of whatever size that was. Nothing that was
    /// yielded before is read again.
    ///
    /// # Errors
    /// The errors of [`Pipeline::check`], [`State::first_step`] and [`Pipeline::epoch`].
    pub fn resume(&self, state: &State, rank: u32, world_size: u32) -> Result<Epoch> {
        self.check(state)?;
        let schedule = self.in_slices(state.epoch, rank, world_size)?;
        let first_step = state.first_step(&schedule)?;
        if state.is_through() {
            self.index().notices().warn_once("epoch", || {
                format!(
                    "epoch {} was chosen, but nothing of it is left in the state that was loaded: this iteration has \
                     no batch; a training goes on with epoch {}, which the loader's `epoch` says when none is chosen",
                    state.epoch,
                    state.epoch.saturating_add(1)
                )
            });
        }
        self.start(state.epoch, schedule, first_step, state.errors)
    }

    fn start(&self, epoch: u64, schedule: Schedule, first_step: u64, errors: u64) -> Result<Epoch> {
        self.shared.warn_of_padding(&schedule);
        let mut epochs = self.start_by(&[0], epoch, schedule, first_step, errors)?;
        epochs.pop().ok_or_else(|| Error::Internal("an epoch without a recipe".into()))
    }

    /// Goes on with the stream of this pipeline, behind the batch that was delivered last. Keep the pipeline for as
    /// long as it runs. An iteration of this pipeline that still runs is stopped; `errors` samples have failed so far.
    ///
    /// # Errors
    /// The errors of [`SampleStream::begin`]; [`Error::Io`] when there is no memory for the pools;
    /// [`Error::Unavailable`] in a forked child.
    pub fn stream(&self, place: RankPlace, errors: u64) -> Result<Epoch> {
        let shared = &self.shared;
        let Some(stream) = &shared.stream else {
            return Err(Error::Internal("a dataset was taken for a stream".into()));
        };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = &mut *threads {
            threads.stop_current();
        }
        let waker = shared.fetch_waker.clone();
        let (iteration, first_step) = stream.begin(move || waker.wake())?;
        let threads =
            threads::running(&mut threads, shared, place, BatchPosition { epoch: 0, step: first_step })?;
        let global_batch = self.global_batch(place.world_size);
        let course = Course::Stream(StreamCourse { stream: stream.clone(), iteration, global_batch, place });
        let run = shared.run(0, course, first_step, shared.fetch_waker.clone(), Vec::new());
        self.run(threads, shared, run, errors)
    }

    /// Has the threads do a run.
    fn run(
        &self,
        threads: &mut Threads,
        shared: &Arc<PipelineShared>,
        run: EpochRun,
        errors: u64,
    ) -> Result<Epoch> {
        let progress = self.progress(run.epoch, &run.course, run.first_step, errors);
        let run = Arc::new(run);
        self.status.begin(shared, &run, &progress);
        threads.current = Some(run.clone());
        let (batches, ended) = (threads.batches.clone(), threads.ended.clone());
        threads.runs.send(run.clone()).map_err(|_| Error::Internal("the reading thread has ended".into()))?;
        self.status.show(shared);
        Ok(Epoch::new(shared.clone(), run, batches, ended, progress))
    }

    fn progress(&self, epoch: u64, course: &Course, first_step: u64, errors: u64) -> Arc<Progress> {
        let identity = self.shared.identity.clone();
        Arc::new(Progress::new(identity, epoch, course.clone(), first_step, errors))
    }

    /// What `epoch` of so many ranks draws for the batch of place number `position`; `None` where nothing
    /// is mixed.
    pub fn mix(&self, position: u64, epoch: u64, world_size: u32) -> Option<DrawnMix> {
        let config = &self.shared_in(epoch).config;
        let plan = config.mix.as_ref()?;
        let keys = plan.mixing.keys(config.seed, epoch);
        Some(plan.draw(&keys, position, self.global_batch(world_size)))
    }

    /// The number of places of a step of so many ranks.
    fn global_batch(&self, world_size: u32) -> u64 {
        u64::from(self.shared.config.batch_size) * u64::from(world_size)
    }
}

impl PipelineShared {
    /// A run of a course from `first_step` on.
    fn run(
        &self,
        epoch: u64,
        course: Course,
        first_step: u64,
        waker: Arc<FetchWaker>,
        beside: Vec<RecipeRun>,
    ) -> EpochRun {
        let (config, seed) = (&self.config, self.config.seed);
        // An evaluation that takes its samples in the dataset's order has the same substitutes in every epoch.
        let same = config.shuffling == Shuffling::Off && !config.images.are_random();
        let of = if same { 0 } else { epoch };
        EpochRun {
            epoch,
            course,
            first_step,
            keys: config.images.keys(seed, epoch),
            mix_keys: config.mix.as_ref().map(|plan| plan.mixing.keys(seed, epoch)),
            substitutes: RandomKey::new(&self.index.fingerprint().0, seed, of, Use::Substitute),
            stopped: AtomicBool::new(false),
            inbox: Arc::default(),
            counters: stats::EpochCounters::new(config, &self.index),
            concealed: ConcealedLog::default(),
            cached: self.cached(),
            waker,
            beside,
        }
    }

    /// The same with other settings, which differ in what is done to images alone.
    fn with(&self, config: LoaderConfig) -> Self {
        Self {
            index: self.index.clone(),
            config,
            identity: self.identity.clone(),
            open_reader: self.open_reader.clone(),
            stream: self.stream.clone(),
            shared_batches: self.shared_batches.clone(),
            lends: self.lends,
            fetch_waker: Arc::default(),
            trace: Trace::off(),
            consumer: Mutex::new(Stopwatch::new(TraceLane::off())),
            cache: self.cache.clone(),
            homes: self.homes.clone(),
            io: self.io.clone(),
            decoders: self.decoders.clone(),
            stuck: AtomicBool::default(),
            budget: self.budget.clone(),
        }
    }

    /// The processors that the threads may keep busy on average.
    fn cores(&self) -> Option<f64> {
        self.budget.get().map(|budget| budget.cores())
    }

    /// What the tiers have done since the pipeline began.
    fn cached(&self) -> CacheStats {
        self.cache.get().map(|cache| cache.stats()).unwrap_or_default()
    }

    /// Makes `source` the failure of `sample`.
    fn sample_error(&self, sample: u64, source: Error) -> Error {
        let extent = self.index.place_in_file(self.index.extent(sample));
        Error::Sample {
            id: sample,
            key: self.index.key_in_tar(sample),
            path: self.index.shown_path(sample).into(),
            offset: extent.offset,
            length: extent.length,
            source: Box::new(source),
        }
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
