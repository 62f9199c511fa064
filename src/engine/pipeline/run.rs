//! One run of the threads: the batches of an epoch or of an iteration over a stream, by one recipe.

use super::{
    concealed::ConcealedLog, context::SampleContext, course::Course, inbox::Inbox, stats::EpochCounters,
    waker::FetchWaker,
};
use crate::batch::BatchPool;
use base::error::Error;
use base::rng::{RandomKey, Use};
use data::schedule::Shuffling;
use pixels::augment::{MixKeys, RecipeKeys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::tier::CacheStats;

/// One run, an epoch or a stream's iteration, as all stages know it.
pub(crate) struct EpochRun {
    pub context: Arc<SampleContext>,
    /// The buffers of its batches.
    pub batches: BatchPool,
    pub epoch: u64,
    pub course: Arc<dyn Course>,
    pub first_step: u64,
    /// The keys of what transforms draw, for each recipe.
    pub keys: Vec<RecipeKeys>,
    /// The keys of what is drawn for batches, where they are mixed.
    pub mix_keys: Option<MixKeys>,
    pub substitutes: RandomKey,
    stopped: AtomicBool,
    pub inbox: Arc<Inbox>,
    pub counters: EpochCounters,
    pub concealed: ConcealedLog,
    /// What the tiers had done before the epoch.
    pub cached: CacheStats,
    /// What wakes the reading thread.
    pub waker: Arc<FetchWaker>,
    /// Runs on the same samples by other recipes, which end with this one.
    pub linked: Vec<Arc<EpochRun>>,
}

impl EpochRun {
    /// A run of a course from `first_step` on.
    pub(crate) fn new(
        (context, batches): (Arc<SampleContext>, BatchPool),
        epoch: u64,
        course: Arc<dyn Course>,
        first_step: u64,
        waker: Arc<FetchWaker>,
        linked: Vec<Arc<EpochRun>>,
    ) -> Self {
        let (config, seed) = (&context.config, context.config.seed);
        // An evaluation that takes its samples in the dataset's order has the same substitutes in every epoch.
        let same = config.shuffling == Shuffling::Off && !config.images.are_random();
        let of = if same { 0 } else { epoch };
        Self {
            epoch,
            course,
            first_step,
            keys: config.images.keys(seed, epoch),
            mix_keys: config.mix.as_ref().map(|plan| plan.mixing.keys(seed, epoch)),
            substitutes: RandomKey::new(&context.index.fingerprint().0, seed, of, Use::Substitute),
            stopped: AtomicBool::new(false),
            inbox: Arc::default(),
            counters: EpochCounters::new(config, &context.index),
            concealed: ConcealedLog::default(),
            cached: context.source.cached(),
            waker,
            linked,
            context,
            batches,
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// This run, and those linked to it whose batches are wanted.
    pub(crate) fn wanted_runs(&self) -> impl Iterator<Item = &Self> + Clone {
        let linked = self.linked.iter().map(|run| &**run);
        std::iter::once(self).chain(linked.filter(|run| !run.stopped()))
    }

    /// Ends the epoch by an error, of whichever recipe that is: no batch of any is sure to come.
    pub(crate) fn fail(&self, error: Error) {
        for run in &self.linked {
            let message = format!("the samples of another recipe could not be made: {error}");
            run.inbox.fail(Error::Internal(message));
        }
        self.inbox.fail(error);
    }

    /// Stops the epoch, whose batches nobody wants any more. Finished ones give their buffers back, and the threads
    /// turn to what is next.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.inbox.close();
        self.linked.iter().for_each(|run| run.stop());
        self.waker.wake();
    }
}
