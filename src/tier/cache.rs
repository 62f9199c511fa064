//! The fast tier of one pipeline: the store, the plan that says what goes into it, and the thread that stages ahead.

mod epoch_plan;

use super::fill::{self, Fill, FillChoice, FillJob};
use super::measure;
use super::plan::Admission;
use super::rates::TierRates;
use super::reader::TieredReader;
use super::stage::Stager;
use super::stats::{TierCounters, TierStats};
use super::store::{Location, Offer, Store, StoreOptions, Verify};
use crate::dataset::{DatasetIndex, Extent, FileId, FileVersion};
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice, OwnThread, Reader, Tier};
use crate::schedule::{Order, Schedule};
use crate::slot::SlotPool;
use crate::trace::Trace;
use epoch_plan::EpochPlan;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The settings of the fast tier.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The directory on local NVMe.
    pub directory: PathBuf,
    /// Bytes that the cache may take, shared by all jobs and datasets in the directory.
    pub size: u64,
    /// How the cache is filled.
    pub fill: FillChoice,
    /// Bytes per second that staging may read from the source; `None` leaves it what reads in demand leave.
    pub stage_bandwidth: Option<u64>,
    /// How a copy is known to be what the dataset has.
    pub verify: Verify,
    /// The number of ranks that share the directory, in consecutive groups of ranks; `None` means all ranks.
    pub local_world_size: Option<u32>,
    /// How the cache's files are read.
    pub io: IoChoice,
    /// Whether the cache's files are read past the page cache.
    pub direct: Direct,
    /// The number of reads in flight, of each tier.
    pub queue_depth: usize,
}

/// How long the source is measured, where the rates decide something.
const MEASURE_FOR: Duration = Duration::from_millis(300);

/// The size in bytes below which a dataset is not measured, for that would read too much of it: a hundredth or two at 1
/// GB/s.
const WORTH_MEASURING: u64 = 20_000_000_000;

/// Opens a reader of the source on the calling thread. It reads into slots of the pool, with the given number of reads
/// in flight.
pub(crate) type OpenSource = dyn Fn(&SlotPool, usize) -> Result<Box<dyn Reader>> + Send + Sync;

/// The fast tier of one pipeline.
pub struct Cache {
    index: Arc<DatasetIndex>,
    options: CacheOptions,
    trace: Trace,
    store: Arc<Store>,
    planned: Mutex<Option<EpochPlan>>,
    /// How the cache is filled, and the reason in words; set when the source has been opened.
    fill: OnceLock<(Fill, String)>,
    staging: Mutex<StagingState>,
    /// A bit for each sample that was taken by the store in this epoch, published or not.
    taken: Vec<AtomicU64>,
    demand_waits: AtomicBool,
    /// Whether there is no more room to stage for, in this epoch.
    full: AtomicBool,
    counted: TierCounters,
    last_error: Mutex<Option<String>>,
    /// The process that opened the cache: a forked child has none of its threads.
    process: u32,
}

/// The thread that stages ahead, if there is one, and the epoch that it stages for.
#[derive(Default)]
struct StagingState {
    stager: Option<Stager>,
    /// The epoch that runs, and its first step.
    epoch: Option<(Schedule, u64)>,
    /// Whether the pipeline has been closed, so that there is nothing to stage for.
    closed: bool,
}

impl Cache {
    /// Opens the cache for a dataset and loads what it holds already; what its threads do is logged in `trace`. Where
    /// the directory cannot be used the answer is `None`, a notice says why, and training goes on without a cache.
    ///
    /// # Errors
    /// The errors of [`Store::check`].
    pub fn open(
        index: &Arc<DatasetIndex>,
        mut options: CacheOptions,
        trace: Trace,
    ) -> Result<Option<Arc<Self>>> {
        // The working directory may change while the store is used.
        options.directory = std::path::absolute(&options.directory)
            .map_err(|error| Error::io("resolve", &options.directory, error))?;
        let store = StoreOptions {
            trace: trace.clone(),
            verify: options.verify,
            ..StoreOptions::new(options.directory.clone(), options.size)
        };
        Store::check(&store, index)?;
        let store = match Store::open(&store, index) {
            Ok(store) => store,
            Err(error) => {
                let why = || format!("no cache is used: {error}; every sample is read from the dataset");
                index.notices().warn_once("no cache", why);
                return Ok(None);
            }
        };
        let taken = (0..index.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Some(Arc::new(Self {
            index: index.clone(),
            options,
            trace,
            store,
            planned: Mutex::default(),
            fill: OnceLock::new(),
            staging: Mutex::default(),
            taken,
            demand_waits: AtomicBool::default(),
            full: AtomicBool::default(),
            counted: TierCounters::default(),
            last_error: Mutex::default(),
            process: std::process::id(),
        })))
    }

    /// Opens a reader over both tiers, to be driven by the calling thread. The reader of the source, which `open`
    /// makes, is driven by a thread of its own. Where the cache is filled ahead, staging begins with the epoch that
    /// runs.
    ///
    /// # Errors
    /// The errors of opening either reader.
    pub fn reader(self: &Arc<Self>, open: Arc<OpenSource>, slots: &SlotPool) -> Result<Box<dyn Reader>> {
        let depth = self.options.queue_depth;
        let store = crate::io::DataSource {
            files: self.store.files(),
            root: self.options.directory.clone(),
            // The store may hold nothing yet; then the reader tests itself on another file.
            first: Extent { file: FileId(0), offset: 0, length: 1 },
            bytes: self.options.size,
        };
        let nvme = crate::io::open_source(&store, slots, self.options.io, self.options.direct, depth)?;
        let source = {
            let (open, slots) = (open.clone(), slots.clone());
            OwnThread::new("foreload-source", move || open(&slots, depth), nvme.waker())?
        };
        self.choose_fill(&open);
        if self.fill.get().is_some_and(|(fill, _)| *fill == Fill::Ahead) {
            let failed = |e| Error::Unavailable(format!("cannot start the staging thread: {e}"));
            let mut staging = self.staging();
            if staging.closed {
                return Err(Error::Unavailable(
                    "the pipeline was dropped while its storage was opened".into(),
                ));
            }
            let stager = Stager::start(self.clone(), open).map_err(failed)?;
            // The reader is opened when an epoch has begun.
            if let Some((schedule, first_step)) = &staging.epoch {
                stager.begin(schedule.clone(), *first_step);
            }
            staging.stager = Some(stager);
        }
        Ok(Box::new(TieredReader::new(self.clone(), source, nvme)?))
    }

    fn choose_fill(&self, open: &Arc<OpenSource>) {
        self.fill.get_or_init(|| {
            if self.staging().epoch.is_none() {
                return (Fill::Use, fill::KEPT_AS_READ.into());
            }
            let (all, bytes) = (self.index.len(), self.index.total_bytes());
            let drawn = |(schedule, _): &(Schedule, u64)| schedule.order().selection().members();
            let samples = self.staging().epoch.as_ref().map_or(all, drawn);
            let job = FillJob {
                samples,
                bytes: epoch_plan::part_of(bytes, samples, all),
                shards: self.index.is_sharded(),
                depth: self.options.queue_depth,
            };
            fill::choose(self.options.fill, &job, self.measure(&job, open))
        });
    }

    /// Measures the rates of the source, where they decide something and are worth the reads; else says why it does
    /// not.
    fn measure(&self, job: &FillJob, open: &Arc<OpenSource>) -> Result<TierRates, String> {
        if self.options.fill != FillChoice::Auto || !job.shards || job.bytes < WORTH_MEASURING {
            return Err("the dataset is too small to measure its storage".into());
        }
        let measured = measure::source(&self.index, &**open, job.depth, MEASURE_FOR);
        let measured = measured.map_err(|error| format!("its storage could not be measured: {error}"))?;
        self.counted.source_bytes.fetch_add(measured.bytes(), Relaxed);
        Ok(measured.rates)
    }

    /// Begins an epoch and turns staging to it. `order_of` gives the order of any epoch.
    pub fn begin(&self, epoch: u64, schedule: &Schedule, first_step: u64, order_of: &dyn Fn(u64) -> Order) {
        self.taken.iter().for_each(|word| word.store(0, Relaxed));
        let (store, largest) = (self.store.stats(), u64::from(self.index.largest()));
        let left = store.quota_bytes.saturating_sub(store.held_bytes);
        // The last bytes of the quota are not worth reading pieces of which nearly nothing can be kept.
        self.full.store(left < largest.max(store.quota_bytes / 100), Relaxed);
        self.plan(epoch, schedule, order_of);
        // What is kept for a later use, or by one node of several, is kept as it is read.
        let keeps_first = self.planned().is_none() && self.is_whole(schedule);
        let mut staging = self.staging();
        staging.epoch = keeps_first.then(|| (schedule.clone(), first_step));
        if let (Some(stager), Some((schedule, first_step))) = (&staging.stager, &staging.epoch) {
            stager.begin(schedule.clone(), *first_step);
        }
    }

    /// Ends the reads of an epoch: samples that wait to be written together are written now, for the next epoch and for
    /// other processes.
    pub fn end(&self) {
        self.store.seal();
    }

    /// Waits until all that was kept so far can be read from the fast tier.
    pub fn flush(&self) {
        self.store.flush();
    }

    /// Says in words how the cache is filled, and why; empty before the first epoch.
    pub fn describe(&self) -> String {
        let fill = |(fill, why): &(Fill, String)| {
            let words = if *fill == Fill::Ahead { "ahead" } else { "on use" };
            format!("filled {words} ({why})")
        };
        self.fill.get().map(fill).unwrap_or_default()
    }

    /// The latest error that stopped nothing.
    pub fn last_error(&self) -> Option<String> {
        let own = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.or_else(|| self.store.last_error())
    }

    /// Forgets the latest error, when another epoch begins.
    pub fn forget_error(&self) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.store.forget_error();
    }

    /// The counters since the cache was opened, and the gauges.
    pub fn stats(&self) -> TierStats {
        self.counted.with(&self.store.stats(), self.options.size)
    }

    /// Whether the ranks that share the store use the whole dataset.
    fn is_whole(&self, schedule: &Schedule) -> bool {
        self.options.local_world_size.is_none_or(|local| local >= schedule.world_size())
    }

    fn planned(&self) -> MutexGuard<'_, Option<EpochPlan>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that opened the cache: in a process that was forked since, its locks may be held for
    /// ever.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn index(&self) -> &Arc<DatasetIndex> {
        &self.index
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Counts a sample that has arrived, and offers it to the store if the plan wants it. `version` is the version of
    /// its file before it was read; a sample whose version is unknown is not kept.
    pub(super) fn arrived(&self, sample: u64, bytes: &[u8], from: Tier, version: Option<FileVersion>) {
        let (count, sum) = match from {
            Tier::Source => (&self.counted.source_reads, &self.counted.source_bytes),
            Tier::Nvme => (&self.counted.nvme_hits, &self.counted.nvme_bytes),
        };
        count.fetch_add(1, Relaxed);
        sum.fetch_add(bytes.len() as u64, Relaxed);
        let Some(version) = version else { return };
        let mut planned = self.planned();
        let group = match &mut *planned {
            None if from == Tier::Nvme => return,
            None => 0,
            Some(planned) => {
                let admission = planned.admit(sample, bytes.len() as u64);
                for group in planned.plan.take_evicted() {
                    self.store.evict_group(group);
                }
                match admission {
                    Admission::Bypass => return,
                    Admission::Admit { group } => group,
                }
            }
        };
        drop(planned);
        match self.store.offer(group, sample, version, bytes) {
            Offer::Taken => self.take(sample),
            // What is there already has been counted.
            Offer::Present | Offer::Full | Offer::Busy | Offer::Off => {
                if let Some(planned) = &mut *self.planned() {
                    planned.plan.lost(group, bytes.len() as u64);
                }
            }
        }
    }

    pub(super) fn verify(&self) -> Verify {
        self.options.verify
    }

    /// Counts `files` files whose version was asked for.
    pub(super) fn count_stats(&self, files: u64) {
        self.counted.looks.fetch_add(files, Relaxed);
    }

    /// Notes that the source's bytes of a sample differ from its copy at `location`, although its file has the same
    /// stamp.
    pub(super) fn mismatched(&self, sample: u64, location: &Location) {
        self.counted.mismatched.fetch_add(1, Relaxed);
        self.index.notices().warn_once("mismatched copies", || {
            let extent = self.index.extent(sample);
            let (path, Extent { offset, length, .. }) = (self.index.path(extent.file), extent);
            format!(
                "the cache's copy of sample {sample} ({}, bytes {offset}+{length}) is not what the dataset has, though \
                 nothing shows that the file changed: it is cached anew (stats()[\"cache\"][\"mismatched\"] counts \
                 them)",
                path.display()
            )
        });
        self.store.outdate(sample, location);
    }

    /// Counts a sample that the fast tier had and could not give.
    pub(super) fn fell_back(&self) {
        self.counted.fallbacks.fetch_add(1, Relaxed);
    }

    /// Offers a staged sample to the store.
    pub(super) fn keep_staged(&self, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let offer = self.store.offer(0, sample, version, bytes);
        match offer {
            Offer::Taken => {
                self.take(sample);
                self.counted.staged_samples.fetch_add(1, Relaxed);
            }
            // Bytes that cannot be kept need not be read ahead.
            Offer::Full | Offer::Off => self.full.store(true, Relaxed),
            Offer::Present | Offer::Busy => {}
        }
        offer
    }

    pub(super) fn staged(&self, bytes: u64) {
        self.counted.staged_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn staging_begins(&self, units: u64) {
        self.counted.staged_units.store(0, Relaxed);
        self.counted.units.store(units, Relaxed);
    }

    pub(super) fn staged_unit(&self) {
        self.counted.staged_units.fetch_add(1, Relaxed);
    }

    /// Whether there is no more room to stage for in this epoch.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Whether a sample is in the store or on its way there.
    pub(super) fn knows(&self, sample: u64) -> bool {
        let taken = self.taken[(sample / 64) as usize].load(Relaxed) >> (sample % 64) & 1 == 1;
        taken || self.store.locate(sample).is_some()
    }

    fn take(&self, sample: u64) {
        self.taken[(sample / 64) as usize].fetch_or(1 << (sample % 64), Relaxed);
    }

    /// Notes that the pipeline begins to read one more batch.
    pub(crate) fn begin_batch(&self) {
        if let Some(stager) = &self.staging().stager {
            stager.begin_batch();
        }
    }

    pub(super) fn note_demand(&self, waits: bool) {
        self.demand_waits.store(waits, Relaxed);
    }

    /// Whether the pipeline waits for reads of its own.
    pub(super) fn demand_waits(&self) -> bool {
        self.demand_waits.load(Relaxed)
    }

    /// The number of steps that staging keeps ahead of the pipeline where each sample is a file: what is staged only a
    /// moment before its use is not published yet, and would be read twice.
    pub(super) fn lead(&self, schedule: &Schedule) -> u64 {
        let mean = (self.index.total_bytes() / self.index.len().max(1)).max(1);
        let unpublished = 2 * self.store.segment_bytes() / mean;
        unpublished.div_ceil(schedule.samples_per_batch()) + 2
    }

    /// Ends the stager. It holds the cache, so that dropping the cache would not end it.
    pub fn close(&self) {
        // The thread belongs to the parent process.
        if !self.is_ours() {
            return;
        }
        let mut staging = self.staging();
        staging.closed = true;
        let stager = staging.stager.take();
        // The stager's thread may be waiting for this lock.
        drop(staging);
        drop(stager);
    }

    /// Bytes per second that this process may stage.
    pub(super) fn stage_bandwidth(&self) -> Option<u64> {
        let ranks = u64::from(self.options.local_world_size.unwrap_or(1).max(1));
        self.options.stage_bandwidth.map(|bandwidth| (bandwidth / ranks).max(1))
    }

    pub(super) fn note_error(&self, error: Error) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    fn staging(&self) -> MutexGuard<'_, StagingState> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
