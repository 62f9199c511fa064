//! What a pipeline tells of itself while it runs, for `foreload top`.

use super::course::Course;
use super::{EpochRun, EpochStats, PipelineShared, Progress};
use crate::config::{Device, LANES};
use crate::status::{
    LoaderSnapshot, QueueNumbers, ShownLoader, StageNumbers, StallNumbers, StatusSource, TierNumbers, show,
};
use data::dataset::shown_root;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Shows a pipeline from its first epoch to its end.
#[derive(Default)]
pub(super) struct PipelineStatus {
    latest: Arc<LatestRun>,
    /// `None` where it is not to be shown, or cannot be.
    shown: OnceLock<Option<ShownLoader>>,
}

/// The latest run of a pipeline. It is asked by another thread, at any time.
#[derive(Default)]
struct LatestRun(Mutex<Option<RunStatus>>);

struct RunStatus {
    /// When the pipeline's first run began.
    since: Instant,
    shared: Arc<PipelineShared>,
    run: Arc<EpochRun>,
    progress: Arc<Progress>,
    /// What the runs before it did, and how many samples they delivered.
    before: EpochStats,
    delivered: u64,
}

impl PipelineStatus {
    /// Notes that a run begins.
    pub(super) fn begin(&self, shared: &Arc<PipelineShared>, run: &Arc<EpochRun>, progress: &Arc<Progress>) {
        let mut latest = self.latest.lock();
        let (mut since, mut before, mut delivered) = (run.counters.started, EpochStats::default(), 0);
        if let Some(former) = latest.take() {
            (since, before, delivered) = (former.since, former.before, former.delivered);
            before += former.run.counters.snapshot();
            delivered += former.run.counters.delivered.load(Relaxed);
        }
        let (shared, run, progress) = (shared.clone(), run.clone(), progress.clone());
        *latest = Some(RunStatus { since, shared, run, progress, before, delivered });
    }

    /// Has the pipeline shown from now on, if it is not. That it cannot be is no reason to stop.
    pub(super) fn show(&self, shared: &PipelineShared) {
        self.shown.get_or_init(|| {
            show(self.latest.clone()).unwrap_or_else(|error| {
                let notices = shared.index.notices();
                notices.inform_once("top", || format!("`foreload top` will not show this loader: {error}"));
                None
            })
        });
    }

    /// Ends the showing. Nobody has anything of the pipeline afterwards.
    pub(super) fn end(&mut self) {
        if let Some(Some(shown)) = self.shown.take()
            && shown.is_of_this_process()
        {
            drop(shown);
            drop(self.latest.lock().take());
        }
    }
}

impl LatestRun {
    fn lock(&self) -> MutexGuard<'_, Option<RunStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusSource for LatestRun {
    fn snapshot(&self) -> Option<LoaderSnapshot> {
        self.lock().as_ref().map(RunStatus::snapshot)
    }
}

impl RunStatus {
    fn snapshot(&self) -> LoaderSnapshot {
        let (shared, config, counters) = (&*self.shared, &self.shared.config, &self.run.counters);
        let place = self.run.course.place();
        let current = counters.snapshot();
        let stalls = &current.stalls;
        let stalls = StallNumbers {
            count: stalls.count(),
            p50: stalls.quantile(0.5),
            p99: stalls.quantile(0.99),
            max: stalls.max(),
        };
        let mut total = self.before.clone();
        total += current;
        let (stages, gpu) = (total.stages, total.gpu);
        let is_cuda = config.device != Device::Cpu;
        let stages = StageNumbers {
            threads: config.threads as u32,
            lanes: if is_cuda { LANES as u32 } else { 0 },
            reading: stages.reading,
            arrivals: stages.arrivals,
            decoding: stages.decode_busy,
            augmenting: stages.augment_busy,
            gpu: gpu.copy + gpu.decode + gpu.augment,
            waiting: stages.consumer_waiting,
        };
        let cached = shared.cached();
        let tiers = total.latencies.iter().map(|(name, times)| {
            let tier = cached.tier(*name);
            TierNumbers {
                name: name.to_string(),
                samples: times.count(),
                latency: times.total(),
                held_bytes: tier.held_bytes,
                quota_bytes: tier.quota,
            }
        });
        let steps = match &self.run.course {
            Course::Epoch(schedule) => Some(schedule.steps()),
            Course::Stream(_) => None,
        };
        LoaderSnapshot {
            number: 0,
            kind: match (&shared.stream, config.decoded) {
                (Some(_), _) => "stream".into(),
                (None, true) => "images".into(),
                (None, false) => "files".into(),
            },
            dataset: match &shared.stream {
                Some(stream) => stream.names().join(", "),
                None => shown_root(shared.index.root()).display().to_string(),
            },
            rank: place.rank,
            world_size: place.world_size,
            device: match config.device {
                Device::Cpu => "cpu".into(),
                Device::Cuda { ordinal } => format!("cuda:{ordinal}"),
            },
            running: self.progress.is_under_way(),
            epoch: self.run.epoch,
            step: self.progress.steps(),
            steps,
            seconds: self.since.elapsed().as_secs_f64(),
            samples: self.delivered + counters.delivered.load(Relaxed),
            bytes: total.reads.bytes + cached.all().bytes,
            failed: self.progress.failed(),
            stages,
            stalls,
            tiers: tiers.collect(),
            queue: QueueNumbers {
                in_flight: counters.in_flight.load(Relaxed),
                depth: config.queue_depth as u64,
                ready: self.run.inbox.ready() as u64,
                prefetch: config.pools.prefetch as u64,
            },
            cores: shared.cores(),
            sharing: shared.shared_batches.as_ref().map(|batches| batches.stats.numbers()),
            stream: shared.stream.as_ref().map(|stream| stream.account()),
        }
    }
}
