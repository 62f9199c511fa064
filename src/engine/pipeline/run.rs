//! One run of the threads: an epoch, or an iteration over a stream.

use super::{
    concealed::ConcealedLog, context::SampleContext, inbox::Inbox, run_plan::RunPlan, stats::EpochCounters,
    waker::FetchWaker, windows::WindowKeys,
};
use crate::batch::BatchPool;
use base::rng::{RandomKey, Use};
use data::schedule::Shuffling;
use pixels::augment::{MixKeys, RecipeKeys};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use store::tier::{CacheStats, RankPlace};

/// An epoch's run in one size of images. Everything else of the run is in [`RunShared`].
pub(crate) struct EpochRun {
    pub context: Arc<SampleContext>,
    /// The number of the layout of the run's batches.
    pub layout: usize,
    pub keys: Vec<RecipeKeys>,
    /// With buckets, the runs in the sizes of all buckets, of which this is the largest. Else empty.
    buckets: Vec<Arc<EpochRun>>,
    shared: Arc<RunShared>,
}

pub(crate) struct RunShared {
    pub batches: BatchPool,
    pub epoch: u64,
    pub started: Instant,
    pub run_plan: Arc<dyn RunPlan>,
    pub place: RankPlace,
    pub first_step: u64,
    pub mix_keys: Option<MixKeys>,
    pub windows: WindowKeys,
    pub substitutes: RandomKey,
    stopped: AtomicBool,
    pub inbox: Arc<Inbox>,
    pub counters: EpochCounters,
    pub concealed: ConcealedLog,
    /// The counters of the tiers at the beginning of the run. They are subtracted to get the run's own counts.
    pub cached: CacheStats,
    pub waker: Arc<FetchWaker>,
}

impl EpochRun {
    pub(crate) fn new(
        (context, batches): (Arc<SampleContext>, BatchPool),
        epoch: u64,
        run_plan: Arc<dyn RunPlan>,
        place: RankPlace,
        first_step: u64,
        waker: Arc<FetchWaker>,
    ) -> Self {
        let (config, seed) = (&context.config, context.config.seed);
        // If samples come in the dataset's order and no transform or window is random, as in an evaluation, each epoch
        // has the same substitutes.
        let is_random = config.images.are_random() || config.windows.are_random();
        let same = config.shuffling == Shuffling::Off && !is_random;
        let of = if same { 0 } else { epoch };
        let shared = Arc::new(RunShared {
            epoch,
            started: Instant::now(),
            run_plan,
            place,
            first_step,
            mix_keys: config.mix.as_ref().map(|plan| plan.mixing.keys(seed, epoch)),
            windows: WindowKeys::new(&config.windows, &config.fields, seed, epoch),
            substitutes: RandomKey::new(&context.index.fingerprint().0, seed, of, Use::Substitute),
            stopped: AtomicBool::new(false),
            inbox: Arc::default(),
            counters: EpochCounters::new(config, &context.index),
            concealed: ConcealedLog::default(),
            cached: context.source.cached(),
            waker,
            batches,
        });
        let of = |layout, context: &Arc<SampleContext>, buckets| Self {
            layout,
            keys: context.config.images.keys(seed, epoch),
            context: context.clone(),
            buckets,
            shared: shared.clone(),
        };
        let buckets = context.buckets.iter().enumerate();
        let buckets: Vec<_> =
            buckets.map(|(layout, context)| Arc::new(of(layout, context, Vec::new()))).collect();
        of(0, &context, buckets)
    }

    /// Returns the run in the size of the images of `step`.
    pub(crate) fn at(self: &Arc<Self>, step: u64) -> &Arc<Self> {
        if self.buckets.is_empty() {
            return self;
        }
        self.run_plan.bucket(step).and_then(|bucket| self.buckets.get(usize::from(bucket))).unwrap_or(self)
    }
}

impl Deref for EpochRun {
    type Target = RunShared;

    fn deref(&self) -> &RunShared {
        &self.shared
    }
}

impl RunShared {
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Stops the run. Its consumer gets no more batches, finished batches return their buffers, and the threads take
    /// the next run.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.inbox.close();
        self.waker.wake();
    }
}
