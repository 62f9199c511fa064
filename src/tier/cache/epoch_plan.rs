//! What the cache keeps during an epoch, decided by its schedule and those of the epochs to come.

use super::super::fill::FillChoice;
use super::super::plan::{Admission, KnownUses, NodeSlice, RetentionRule, TierPlan};
use super::Cache;
use crate::schedule::{Order, Schedule};

/// The most epochs that the plan looks ahead: a later use is as good as none.
const MOST_EPOCHS: u64 = 64;

/// What the decisions of one epoch are made from, where they need the future.
pub(super) struct EpochPlan {
    pub(super) plan: TierPlan,
    future: KnownUses,
    epoch: u64,
}

impl EpochPlan {
    /// Decides whether to keep a sample of `bytes` that the epoch has just used.
    pub(super) fn admit(&mut self, sample: u64, bytes: u64) -> Admission {
        let now = self.future.last_use(sample, self.epoch);
        self.plan.admit(bytes, self.future.next_use(sample, now), now)
    }
}

impl Cache {
    /// Decides what is kept during an epoch.
    pub(super) fn plan(&self, epoch: u64, schedule: &Schedule, order_of: &dyn Fn(u64) -> Order) {
        let world = schedule.world_size();
        let local = self.options.local_world_size.unwrap_or(world).clamp(1, world);
        let first = schedule.rank() / local * local;
        let ranks = first..(first + local).min(world);
        let slice = NodeSlice::of(ranks, schedule.batch_size(), world);
        let rule = self.rule(slice, schedule);
        if rule == RetentionRule::Keep {
            *self.planned() = None;
            return;
        }
        // A sample comes back after as many epochs as there are nodes, or repeats, on average.
        let between = world.div_ceil(local).max(schedule.order().repeats());
        let known = (4 * u64::from(between)).min(MOST_EPOCHS);
        let orders = (epoch..=epoch + known).map(order_of).collect();
        let future = KnownUses::new(epoch, orders, slice);
        let former = self.planned().take().map(|planned| planned.plan);
        let plan = former.unwrap_or_else(|| self.new_plan(rule, local));
        *self.planned() = Some(EpochPlan { plan, future, epoch });
    }

    /// What stays in the cache of a node that takes `slice`.
    fn rule(&self, slice: NodeSlice, schedule: &Schedule) -> RetentionRule {
        let samples = schedule.order().selection().members();
        let fits = part_of(self.index.total_bytes(), samples, self.index.len()) <= self.room();
        // Shards that are staged, because the user wants it, are kept for no time in particular.
        let staged = slice.is_whole() && self.options.fill == FillChoice::Ahead;
        if fits || staged { RetentionRule::Keep } else { RetentionRule::best(slice, schedule.order()) }
    }

    /// The bytes of samples that fit into the store, less what the footers of many small segments take.
    fn room(&self) -> u64 {
        self.options.size / 10 * 9
    }

    /// A plan that knows what the store holds. Each process decides about what it reads itself, and has its part of the
    /// store for that.
    fn new_plan(&self, rule: RetentionRule, local: u32) -> TierPlan {
        let mut plan = TierPlan::new(rule, self.room() / u64::from(local));
        for (group, bytes) in self.store.groups() {
            if group == 0 {
                // These samples were kept by a job that used the whole dataset, for no time in particular.
                self.store.evict_group(group);
            } else {
                plan.found(group, bytes / u64::from(local));
            }
        }
        plan
    }
}

/// The bytes of `samples` of a dataset whose `all` samples have `bytes`.
pub(super) fn part_of(bytes: u64, samples: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(samples) / u128::from(all.max(1))) as u64
}
