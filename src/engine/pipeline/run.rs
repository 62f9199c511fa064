//! One run of the threads: an epoch, or an iteration over a stream.

use super::{
    concealed::ConcealedLog, context::SampleContext, inbox::Inbox, run_plan::RunPlan, stats::EpochCounters,
    waker::FetchWaker, windows::WindowKeys,
};
use crate::batch::BatchPool;
use base::rng::{RandomKey, Use};
use data::schedule::Shuffling;
use pixels::augment::{MixKeys, RecipeKeys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use store::tier::{CacheStats, RankPlace};

pub(crate) struct EpochRun {
    pub context: Arc<SampleContext>,
    pub batches: BatchPool,
    pub epoch: u64,
    pub started: Instant,
    pub run_plan: Arc<dyn RunPlan>,
    pub place: RankPlace,
    pub first_step: u64,
    pub keys: Vec<RecipeKeys>,
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
        Self {
            epoch,
            started: Instant::now(),
            run_plan,
            place,
            first_step,
            keys: config.images.keys(seed, epoch),
            mix_keys: config.mix.as_ref().map(|plan| plan.mixing.keys(seed, epoch)),
            windows: WindowKeys::new(&config.windows, &config.fields, seed, epoch),
            substitutes: RandomKey::new(&context.index.fingerprint().0, seed, of, Use::Substitute),
            stopped: AtomicBool::new(false),
            inbox: Arc::default(),
            counters: EpochCounters::new(config, &context.index),
            concealed: ConcealedLog::default(),
            cached: context.source.cached(),
            waker,
            context,
            batches,
        }
    }

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
