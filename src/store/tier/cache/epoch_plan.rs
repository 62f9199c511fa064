//! Plans what each tier keeps during an epoch, from the schedules of this epoch and of later epochs.

use super::super::copies::TierParts;
use super::super::fill::FillChoice;
use super::super::plan::{Admission, KnownUses, Moment, NodeSlice, RetentionRule, TierPlan};
use super::keep::TierPlace;
use super::{Cache, KeptTier};
use data::schedule::{Order, Schedule};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of epochs that the plan looks ahead. A use after these epochs counts as no use.
const MAX_EPOCHS: u64 = 64;

/// The plan of a tier that decides by future uses, for one epoch.
pub(super) struct EpochPlan {
    pub(super) plan: TierPlan,
    future: KnownUses,
    epoch: u64,
    /// The sample of the last query, the moment of its last use in the epoch, and the moment of its next use.
    last_query: Option<(u64, Moment, Option<Moment>)>,
}

impl EpochPlan {
    /// Decides whether to keep a sample of `bytes` that the epoch has just used. With `evicting`, samples that are used
    /// later may be evicted for it. Otherwise the sample must fit alongside all samples that are held.
    pub(super) fn admit(&mut self, sample: u64, bytes: u64, evicting: bool) -> Admission {
        let (now, next) = match self.last_query {
            // For a full tier, this is called twice with the same sample.
            Some((same, now, next)) if same == sample => (now, next),
            _ => {
                let now = self.future.last_use(sample, self.epoch);
                (now, self.future.next_use(sample, now))
            }
        };
        self.last_query = Some((sample, now, next));
        if !evicting && !self.plan.has_room(bytes, next, now) {
            return Admission::Bypass;
        }
        self.plan.admit(bytes, next, now)
    }
}

/// The plans of all tiers for an epoch.
#[derive(Default)]
pub(super) struct EpochPlans {
    /// The plan of each tier that decides by future uses; `None` for a tier that is filled with the samples that come
    /// first.
    pub(super) tiers: Vec<Option<EpochPlan>>,
}

/// The parts of the plans that every sample needs. Each part is a set of tiers with a bit for each tier, so that no
/// thread waits for a lock.
#[derive(Default)]
pub(super) struct EpochRules {
    /// The tiers that decide by future uses. All other tiers are filled with the samples that come first.
    by_next_use: AtomicU64,
    /// The tiers whose ranks together use the whole epoch, so that it may be staged for them.
    of_all_ranks: AtomicU64,
    /// The slowest tier that has space for all samples that the epoch draws, if there is one.
    whole: AtomicU64,
}

impl EpochRules {
    pub(super) fn keep_first(&self, place: TierPlace) -> bool {
        self.by_next_use.load(Relaxed) >> place & 1 == 0
    }

    pub(super) fn are_of_all_ranks(&self, place: TierPlace) -> bool {
        self.of_all_ranks.load(Relaxed) >> place & 1 == 1
    }

    pub(super) fn whole(&self) -> Option<TierPlace> {
        let whole = self.whole.load(Relaxed);
        (whole != 0).then(|| whole.ilog2() as TierPlace)
    }
}

/// Packs a flag for each tier into a set.
fn set_of(tiers: impl Iterator<Item = bool>) -> u64 {
    (0..).zip(tiers).map(|(place, is_in)| u64::from(is_in) << place).sum()
}

impl Cache {
    /// Plans what is kept during an epoch.
    pub(super) fn plan(&self, epoch: u64, schedule: &Schedule, order_of: &dyn Fn(u64) -> Order) {
        let samples = schedule.order().selection().members();
        let used = part_of(self.index().total_bytes(), samples, self.index().len());
        let whole = self.tiers.iter().rposition(|kept| kept.room() >= used);
        let places = 0..self.tiers.len();
        let of_all_ranks = set_of(
            places.clone().map(|place| self.slice(place, schedule).is_whole() && !self.is_of_nodes(place)),
        );
        // Samples of a stopped epoch may still arrive: keep the former plans until the new ones are complete.
        let futures: Vec<_> =
            places.clone().map(|place| self.future(place, used, epoch, schedule, order_of)).collect();
        let mut plans = self.plans();
        let mut former = std::mem::take(&mut plans.tiers);
        former.resize_with(self.tiers.len(), || None);
        let planned = places.zip(futures).zip(former).map(|((place, future), former)| {
            let (rule, future) = future?;
            let new = || new_plan(&self.tiers[place], rule, self.sharers(place, schedule));
            Some(EpochPlan {
                plan: former.map_or_else(new, |former| former.plan),
                future,
                epoch,
                last_query: None,
            })
        });
        *plans = EpochPlans { tiers: planned.collect() };
        self.rules.by_next_use.store(set_of(plans.tiers.iter().map(Option::is_some)), Relaxed);
        self.rules.of_all_ranks.store(of_all_ranks, Relaxed);
        self.rules.whole.store(whole.map_or(0, |whole| 1 << whole), Relaxed);
        drop(plans);
        self.decide_formats(used);
    }

    /// Returns a tier's retention rule and the future uses of samples, for an epoch that uses `used` bytes of samples.
    /// `None` if the tier is filled with the samples that come first.
    fn future(
        &self,
        place: TierPlace,
        used: u64,
        epoch: u64,
        schedule: &Schedule,
        order_of: &dyn Fn(u64) -> Order,
    ) -> Option<(RetentionRule, KnownUses)> {
        let slice = self.slice(place, schedule);
        let rule = self.rule(slice, used, schedule);
        if rule == RetentionRule::Keep {
            return None;
        }
        // On average, the number of epochs until a sample is used again is the larger of two numbers: nodes
        // (`users`) and repeats.
        let users = slice.global_batch.div_ceil((slice.end - slice.begin).max(1));
        let between = users.max(schedule.order().repeats().into());
        let known = (4 * between).min(MAX_EPOCHS);
        let orders = (epoch..=epoch + known).map(order_of).collect();
        Some((rule, KnownUses::new(epoch, orders, slice)))
    }

    /// Returns the number of ranks that share a tier.
    fn sharers(&self, place: TierPlace, schedule: &Schedule) -> u32 {
        let world = schedule.world_size();
        let TierParts { local, shared, .. } = self.tier(place).parts();
        match local.is_none() || shared.is_some() {
            true => self.options.local_world_size.unwrap_or(world).clamp(1, world),
            false => 1,
        }
    }

    /// Returns the part of each global batch that belongs to the ranks that share a tier.
    fn slice(&self, place: TierPlace, schedule: &Schedule) -> NodeSlice {
        let (world, sharers) = (schedule.world_size(), self.sharers(place, schedule));
        let first = schedule.rank() / sharers * sharers;
        NodeSlice::of(first..(first + sharers).min(world), schedule.batch_size(), world)
    }

    /// Returns the retention rule for the tiers whose ranks take `slice` of each global batch.
    fn rule(&self, slice: NodeSlice, used: u64, schedule: &Schedule) -> RetentionRule {
        let of_slice = |place: &TierPlace| self.slice(*place, schedule) == slice;
        let room: u64 = (0..self.tiers.len()).filter(of_slice).map(|place| self.tiers[place].room()).sum();
        // If the user asks for staging, staged shards are kept without regard to their next use.
        let staged = slice.is_whole() && self.options.fill == FillChoice::Ahead;
        // If nodes share their caches, samples have owner nodes and stay on them.
        let have_owners = self.tiers().any(|tier| tier.parts().nodes.is_some());
        if used <= room || staged || have_owners {
            RetentionRule::Keep
        } else {
            RetentionRule::best(slice, schedule.order())
        }
    }
}

/// Makes a plan that accounts for the copies in the tier. Each of the `sharers` ranks that share a tier plans its own
/// part of the tier, for the samples that it reads itself.
fn new_plan(kept: &KeptTier, rule: RetentionRule, sharers: u32) -> TierPlan {
    let mut plan = TierPlan::new(rule, kept.room() / u64::from(sharers));
    let local = kept.tier.parts().local;
    for (group, bytes) in local.iter().flat_map(|local| local.groups()) {
        if group == 0 {
            // Evict the samples of a job that used the whole dataset: it kept them without regard to their next use.
            local.iter().for_each(|local| local.evict_group(group));
        } else {
            plan.found(group, bytes / u64::from(sharers));
        }
    }
    plan
}

/// Estimates the bytes of `samples` samples of a dataset with `all` samples and `bytes` bytes.
pub(super) fn part_of(bytes: u64, samples: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(samples) / u128::from(all.max(1))) as u64
}
