//! Batches of the same samples by several recipes: each sample is read once, decoded once as far as the views of all of
//! them need, and becomes a place in a batch of each.
//!
//! One recipe leads: the threads are started by its settings, and read for its run. The others have runs beside that,
//! with pools, inboxes and failures of their own, so that each has what it would have alone.

use super::{Epoch, EpochRun, Pipeline, PipelineShared, course::Course, threads};
use crate::batch::{BatchPool, BatchStorage, Pools};
use crate::config::LoaderConfig;
use crate::sharing::BatchPosition;
use base::error::{Error, Result};
use data::schedule::Schedule;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use store::tier::RankPlace;

/// The recipes beside the pipeline's own, by their numbers.
#[derive(Default)]
pub(super) struct FurtherRecipes {
    list: BTreeMap<usize, FurtherRecipe>,
    latest: usize,
    /// The buffers of batches by recipes that do not lead.
    pools: BTreeMap<usize, PoolBeside>,
}

/// A recipe beside the pipeline's own.
struct FurtherRecipe {
    shared: Arc<PipelineShared>,
    /// The same for later epochs, like [`Pipeline::later`].
    later: Vec<(u64, Arc<PipelineShared>)>,
}

/// The buffers for a recipe's batches, and beside which one they are made.
struct PoolBeside {
    shared: Arc<PipelineShared>,
    lead: Arc<PipelineShared>,
    batches: BatchPool,
}

/// The run of a recipe that does not lead.
pub(super) struct RecipeRun {
    pub shared: Arc<PipelineShared>,
    pub batches: BatchPool,
    pub run: Arc<EpochRun>,
}

/// What the threads share in `epoch`, of what they share at `first` and from later epochs on.
pub(super) fn in_epoch<'a>(
    first: &'a Arc<PipelineShared>,
    later: &'a [(u64, Arc<PipelineShared>)],
    epoch: u64,
) -> &'a Arc<PipelineShared> {
    let begun = later.partition_point(|(begins, _)| *begins <= epoch);
    begun.checked_sub(1).map_or(first, |latest| &later[latest].1)
}

impl FurtherRecipes {
    /// The pool of a recipe's batches, which are made beside those of `lead`.
    fn pool(&mut self, number: usize, shared: &Arc<PipelineShared>, lead: &Arc<PipelineShared>) -> BatchPool {
        let is_there =
            |pool: &&PoolBeside| Arc::ptr_eq(&pool.shared, shared) && Arc::ptr_eq(&pool.lead, lead);
        if let Some(pool) = self.pools.get(&number).filter(is_there) {
            return pool.batches.clone();
        }
        let (config, waker) = (&shared.config, lead.fetch_waker.clone());
        // Batches of all recipes are made together, as many ahead as the primary recipe allows.
        let limits = Pools { prefetch: lead.config.pools.prefetch, ..config.pools };
        let storage = if shared.lends { BatchStorage::Shared } else { BatchStorage::Host };
        let (capacity, layout) = (config.batch_size as usize, config.layout.clone());
        let batches = BatchPool::new(capacity, layout, limits, storage, move || waker.wake_if_starved());
        let (shared, lead) = (shared.clone(), lead.clone());
        self.pools.insert(number, PoolBeside { shared, lead, batches: batches.clone() });
        batches
    }
}

impl Pipeline {
    /// Adds a recipe, by which batches of the same samples in the same order can be made. Returns its number, which no
    /// other has or will have; the pipeline's own is 0.
    pub fn add_recipe(&self, mut config: LoaderConfig) -> usize {
        let later = std::mem::take(&mut config.later);
        let with = |config| Arc::new(self.shared.with(config));
        let later = later.into_iter().map(|(epoch, config)| (epoch, with(config))).collect();
        let mut further = self.further();
        further.latest += 1;
        let number = further.latest;
        further.list.insert(number, FurtherRecipe { shared: with(config), later });
        number
    }

    /// Forgets all recipes that were added but these.
    pub fn keep_recipes(&self, kept: impl Fn(usize) -> bool) {
        self.further().list.retain(|number, _| kept(*number));
    }

    /// The most batches that are read and made ahead of the one that comes next, whichever recipe leads.
    pub fn most_ahead(&self) -> usize {
        let most = |shared: &Arc<PipelineShared>| shared.config.pools.prefetch;
        let own = std::iter::once(&self.shared).chain(self.later.iter().map(|(_, shared)| shared));
        let further = self.further();
        let of_further = |recipe: &FurtherRecipe| {
            recipe.later.iter().map(|(_, shared)| most(shared)).fold(most(&recipe.shared), usize::max)
        };
        own.map(most).chain(further.list.values().map(of_further)).max().unwrap_or(0)
    }

    fn further(&self) -> MutexGuard<'_, FurtherRecipes> {
        self.further.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `epoch` like [`Pipeline::epoch`] for several recipes at once, by their numbers: the first one leads. When
    /// the first epoch is dropped all of them end.
    ///
    /// # Errors
    /// The errors of [`Pipeline::epoch`].
    pub fn epochs(
        &self,
        recipes: &[usize],
        epoch: u64,
        (rank, world_size): (u32, u32),
        first_step: u64,
    ) -> Result<Vec<Epoch>> {
        let schedule = self.in_slices(epoch, rank, world_size)?;
        let first_step = first_step.min(schedule.steps());
        self.start_by(recipes, epoch, schedule, first_step, 0)
    }

    /// Starts an epoch for these recipes, whose consumers have counted so many `errors` before.
    ///
    /// # Errors
    /// The errors of [`Pipeline::epoch`].
    pub(super) fn start_by(
        &self,
        recipes: &[usize],
        epoch: u64,
        schedule: Schedule,
        first_step: u64,
        errors: u64,
    ) -> Result<Vec<Epoch>> {
        let all = recipes.iter().map(|number| self.of_recipe(*number, epoch));
        let all = all.collect::<Option<Vec<_>>>().unwrap_or_default();
        let Some(shared) = all.first() else { return Err(Error::Internal("no such recipe".into())) };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // The first epoch reports what went wrong when the cache was opened.
        let first = threads.is_none();
        let place = RankPlace { rank: schedule.rank(), world_size: schedule.world_size() };
        let at = BatchPosition { epoch, step: first_step };
        let threads = threads::running(&mut threads, shared, place, at)?;
        let schedule = shared.assigned(schedule)?;
        threads.stop_current();
        if let Some(cache) = self.cache() {
            if !first {
                cache.forget_error();
            }
            let order = |epoch| self.shared.order(epoch, schedule.world_size());
            let order = |epoch| order(epoch).expect("what can be divided in one epoch can in others");
            cache.begin(epoch, &schedule, first_step, &order);
        }
        // Who takes no part leaves its memory to others.
        self.further().pools.retain(|number, _| recipes[1..].contains(number));
        let course = Course::Epoch(schedule);
        let mut runs = Vec::new();
        for (number, of) in recipes.iter().zip(&all).skip(1) {
            let batches = self.further().pool(*number, of, shared);
            let run = of.run(epoch, course.clone(), first_step, shared.fetch_waker.clone(), Vec::new());
            runs.push(RecipeRun { shared: of.clone(), batches, run: Arc::new(run) });
        }
        let beside: Vec<_> = runs
            .iter()
            .map(|of| {
                let progress = self.progress(epoch, &course, first_step, errors);
                Epoch::new(
                    of.shared.clone(),
                    of.run.clone(),
                    of.batches.clone(),
                    threads.ended.clone(),
                    progress,
                )
            })
            .collect();
        let run = shared.run(epoch, course, first_step, shared.fetch_waker.clone(), runs);
        let own = self.run(threads, shared, run, errors)?;
        Ok(std::iter::once(own).chain(beside).collect())
    }

    /// What is shared for the recipe with this number.
    fn of_recipe(&self, number: usize, epoch: u64) -> Option<Arc<PipelineShared>> {
        if number == 0 {
            return Some(self.shared_in(epoch).clone());
        }
        self.further().list.get(&number).map(|of| in_epoch(&of.shared, &of.later, epoch).clone())
    }
}
