//! Publishes the status of a running pipeline, for `foreload top`.

use super::{engine::EngineShared, progress::Progress, run::EpochRun, stats::EpochStats};
use crate::config::{Device, LANES};
use crate::sharing::SharingStats;
use crate::status::{
    LoaderSnapshot, QueueNumbers, StageNumbers, StallNumbers, StatusRegistration, StatusSource, TierNumbers,
    register,
};
use base::locks::lock;
use base::notices::Notices;
use data::dataset::shown_root;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct PipelineStatus {
    latest: Arc<LatestRun>,
    registration: OnceLock<Option<StatusRegistration>>,
}

/// The latest run of a pipeline. Another thread may read it at any time.
#[derive(Default)]
struct LatestRun(Mutex<Option<RunStatus>>);

struct RunStatus {
    since: Instant,
    engine: Arc<EngineShared>,
    sharing: Option<Arc<SharingStats>>,
    run: Arc<EpochRun>,
    progress: Arc<Progress>,
    /// The sum of the statistics of earlier runs, and the number of samples that these runs delivered.
    before: EpochStats,
    delivered: u64,
}

impl PipelineStatus {
    pub(crate) fn begin(
        &self,
        engine: Arc<EngineShared>,
        sharing: Option<Arc<SharingStats>>,
        run: Arc<EpochRun>,
        progress: Arc<Progress>,
    ) {
        let mut latest = lock(&self.latest.0);
        let (mut since, mut before, mut delivered) = (run.started, EpochStats::default(), 0);
        if let Some(former) = latest.take() {
            (since, before, delivered) = (former.since, former.before, former.delivered);
            before += former.run.counters.snapshot();
            delivered += former.run.counters.delivered.load(Relaxed);
        }
        *latest = Some(RunStatus { since, engine, sharing, run, progress, before, delivered });
    }

    pub(crate) fn show(&self, notices: &Notices) {
        self.registration.get_or_init(|| {
            register(self.latest.clone()).unwrap_or_else(|error| {
                notices.inform_once("top", || format!("`foreload top` cannot show this loader: {error}"));
                None
            })
        });
    }

    /// Stops publishing. Afterwards no other thread holds anything of the pipeline.
    pub(crate) fn end(&mut self) {
        if let Some(Some(registration)) = self.registration.take()
            && registration.is_of_this_process()
        {
            drop(registration);
            drop(lock(&self.latest.0).take());
        }
    }
}

impl StatusSource for LatestRun {
    fn snapshot(&self) -> Option<LoaderSnapshot> {
        lock(&self.0).as_ref().map(RunStatus::snapshot)
    }
}

impl RunStatus {
    fn snapshot(&self) -> LoaderSnapshot {
        let (context, counters) = (&*self.run.context, &self.run.counters);
        let (config, source) = (&context.config, &context.source);
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
        let has_lanes = config.device != Device::Cpu && !config.images.list().is_empty();
        let stages = StageNumbers {
            threads: config.threads as u32,
            lanes: if has_lanes { LANES as u32 } else { 0 },
            reading: stages.reading,
            arrivals: stages.arrivals,
            decoding: stages.decode_busy,
            augmenting: stages.augment_busy,
            gpu: gpu.copy + gpu.decode + gpu.augment,
            waiting: stages.consumer_waiting,
        };
        let cached = source.cached();
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
        LoaderSnapshot {
            number: 0,
            kind: match (&source.stream, config.decoded) {
                (Some(_), _) => "stream".into(),
                (None, true) => "images".into(),
                (None, false) => "files".into(),
            },
            dataset: match &source.stream {
                Some(stream) => stream.names().join(", "),
                None => shown_root(context.index.root()).display().to_string(),
            },
            rank: self.run.place.rank,
            world_size: self.run.place.world_size,
            device: config.device.to_string(),
            running: self.progress.is_under_way(),
            epoch: self.run.epoch,
            step: self.progress.steps(),
            steps: self.run.run_plan.known_steps(),
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
            cores: self.engine.cores(),
            sharing: self.sharing.as_ref().map(|stats| stats.numbers()),
            stream: source.stream.as_ref().map(|stream| stream.counters()),
        }
    }
}
