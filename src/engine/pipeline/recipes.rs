//! Secondary recipes, by which a pipeline makes further batches of the same samples. Each recipe has its own run, pool,
//! inbox and failures, so that its consumer gets what it would get alone. The first recipe named is the primary one:
//! the threads start with its settings, and when its run ends, all other runs end.

use super::{
    EpochStart, Pipeline, context::ContextsByEpoch, epoch::Epoch, run::EpochRun, stopwatch::Stopwatch,
};
use crate::config::{Device, LoaderConfig};
use base::error::{Error, Result};
use base::trace::TraceLane;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The recipes other than the pipeline's own, by number.
#[derive(Default)]
pub(crate) struct SecondaryRecipes {
    list: BTreeMap<usize, ContextsByEpoch>,
    latest: usize,
}

impl Pipeline {
    /// Adds a recipe for batches of the same samples in the same order. Returns its number, which is never used again.
    /// The pipeline's own recipe has number 0.
    pub fn add_recipe(&self, config: LoaderConfig) -> usize {
        let contexts = ContextsByEpoch::new(&self.contexts.first.source, config);
        let mut further = self.further();
        further.latest += 1;
        let number = further.latest;
        further.list.insert(number, contexts);
        number
    }

    /// Removes all added recipes except those that `kept` accepts.
    pub fn keep_recipes(&self, kept: impl Fn(usize) -> bool) {
        self.further().list.retain(|number, _| kept(*number));
    }

    /// Returns the most batches that are read and made ahead of the next one, whichever recipe is the primary one.
    pub fn most_ahead(&self) -> usize {
        let of_further = self.further().list.values().map(ContextsByEpoch::most_ahead).max();
        self.contexts.most_ahead().max(of_further.unwrap_or(0))
    }

    fn further(&self) -> MutexGuard<'_, SecondaryRecipes> {
        self.further.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `epoch` like [`Pipeline::epoch`] with several recipes at once, given by their numbers. The pipeline must
    /// be [`with_leasable_batches`](Pipeline::with_leasable_batches). When the first of the returned epochs is dropped,
    /// all of them end.
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
        let schedule = self.order.in_slices(epoch, rank, world_size)?;
        let first_step = first_step.min(schedule.steps());
        let further = self.further();
        let of_number = |number: &usize| match number {
            0 => Some(&self.contexts),
            number => further.list.get(number),
        };
        let contexts: Option<Vec<_>> =
            recipes.iter().map(|number| Some(of_number(number)?.in_epoch(epoch).clone())).collect();
        drop(further);
        let contexts = contexts.unwrap_or_default();
        let Some((first, others)) = contexts.split_first() else {
            return Err(Error::Internal("unknown recipe number".into()));
        };
        if !others.is_empty() && (!self.leases || first.config.device != Device::Cpu) {
            return Err(Error::Internal(
                "several recipes need a pipeline that leases batches in host memory".into(),
            ));
        }
        let mut linked = Vec::new();
        let start = EpochStart { epoch, schedule, first_step, errors: 0 };
        let own = self.start(first, start, |threads, run_plan| {
            threads.keep_batches(others);
            for context in others {
                let made = (context.clone(), threads.batches(context));
                let waker = threads.of.waker.clone();
                let run =
                    Arc::new(EpochRun::new(made, epoch, run_plan.clone(), first_step, waker, Vec::new()));
                let progress = self.progress(&run, 0);
                let consumer = Arc::new(Mutex::new(Stopwatch::new(TraceLane::off())));
                linked.push(Epoch::new(run, consumer, threads.ended.clone(), progress));
            }
            linked.iter().map(|epoch| epoch.run.clone()).collect()
        })?;
        Ok(std::iter::once(own).chain(linked).collect())
    }
}
