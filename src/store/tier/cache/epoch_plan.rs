//! Plans what each tier keeps during an epoch, from the sample orders of this and later epochs.

use super::super::copies::TierParts;
use super::super::fill::FillChoice;
use super::super::plan::{Admission, KnownUses, Moment, NodeSlice, RetentionRule, TierPlan};
use super::keep::TierPlace;
use super::{Cache, KeptTier};
use base::locks::lock;
use data::schedule::{Order, Schedule};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of future epochs that a plan considers. Later uses of a sample are ignored.
const MAX_EPOCHS: u64 = 64;

/// The plan of a tier for one epoch, if the tier decides by the next uses of samples.
pub(super) struct EpochPlan {
    pub(super) plan: TierPlan,
    future: KnownUses,
    epoch: u64,
    /// The result of the latest query: the sample, the moment of its last use in the epoch, and the moment of its next
    /// use.
    last_query: Option<(u64, Moment, Option<Moment>)>,
}

impl EpochPlan {
    /// Decides whether to keep a sample of `bytes` bytes that the epoch has just used. If `evicting`, samples with
    /// later uses may be evicted to free space. Otherwise the sample is kept only if the tier has enough free space.
    pub(super) fn admit(&mut self, sample: u64, bytes: u64, evicting: bool) -> Admission {
        // If the tier is full, this function is called twice with the same sample.
        let (now, next) = match self.last_query {
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

/// The facts about the plans that are needed for every sample. Each field is a set of tiers with a bit for each tier,
/// so that no thread waits for a lock.
#[derive(Default)]
pub(super) struct EpochRules {
    /// The tiers that decide by next use. All other tiers keep samples in the order of their first use until they are
    /// full.
    by_next_use: AtomicU64,
    /// The tiers whose ranks together use all samples of the epoch, so that staging may fill these tiers.
    of_all_ranks: AtomicU64,
    /// The slowest tier with space for all samples of the epoch, if there is one.
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

fn set_of(tiers: impl Iterator<Item = bool>) -> u64 {
    (0..).zip(tiers).map(|(place, is_in)| u64::from(is_in) << place).sum()
}

impl Cache {
    pub(super) fn plan(&self, epoch: u64, schedule: &Schedule, order_of: &dyn Fn(u64) -> Order) {
        let samples = schedule.order().selection().members();
        let used = part_of(self.index.total_bytes(), samples, self.index.len());
        let whole = self.tiers.iter().rposition(|kept| kept.room() >= used);
        let places = 0..self.tiers.len();
        let of_all_ranks = set_of(
            places.clone().map(|place| self.slice(place, schedule).is_whole() && !self.is_of_nodes(place)),
        );
        // Samples of an interrupted epoch may still arrive, so keep the former plans until the new ones are complete.
        let futures: Vec<_> =
            places.clone().map(|place| self.future(place, used, epoch, schedule, order_of)).collect();
        let mut plans = lock(&self.plans);
        let mut former = std::mem::take(&mut *plans);
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
        *plans = planned.collect();
        self.rules.by_next_use.store(set_of(plans.iter().map(Option::is_some)), Relaxed);
        self.rules.of_all_ranks.store(of_all_ranks, Relaxed);
        self.rules.whole.store(whole.map_or(0, |whole| 1 << whole), Relaxed);
        drop(plans);
        self.decide_formats(used);
    }

    /// Returns a tier's retention rule and the future uses of samples, for an epoch that uses `used` bytes of samples.
    /// Returns `None` if the tier keeps samples in the order of their first use.
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
        // Until a sample is used again on this node, the average number of epochs is the number of nodes (`users`) or
        // of repeats, whichever is larger.
        let users = slice.global_batch.div_ceil((slice.end - slice.begin).max(1));
        let between = users.max(schedule.order().repeats().into());
        let known = (4 * between).min(MAX_EPOCHS);
        let orders = (epoch..=epoch + known).map(order_of).collect();
        Some((rule, KnownUses::new(epoch, orders, slice)))
    }

    fn sharers(&self, place: TierPlace, schedule: &Schedule) -> u32 {
        let world = schedule.world_size();
        let TierParts { local, shared, .. } = self.tier(place).parts();
        match local.is_none() || shared.is_some() {
            true => self.options.local_world_size.unwrap_or(world).clamp(1, world),
            false => 1,
        }
    }

    fn slice(&self, place: TierPlace, schedule: &Schedule) -> NodeSlice {
        let (world, sharers) = (schedule.world_size(), self.sharers(place, schedule));
        let first = schedule.rank() / sharers * sharers;
        NodeSlice::of(first..(first + sharers).min(world), schedule.batch_size(), world)
    }

    fn rule(&self, slice: NodeSlice, used: u64, schedule: &Schedule) -> RetentionRule {
        let of_slice = |place: &TierPlace| self.slice(*place, schedule) == slice;
        let room: u64 = (0..self.tiers.len()).filter(of_slice).map(|place| self.tiers[place].room()).sum();
        // If the user chose staging, staged shards are kept, whatever the next use of their samples.
        let staged = slice.is_whole() && self.options.fill == FillChoice::Ahead;
        // If nodes share their caches, samples stay on their owner nodes.
        let have_owners = self.tiers().any(|tier| tier.parts().nodes.is_some());
        // Bins have different numbers of samples, so a node's part of the later epochs does not follow from positions.
        let in_bins = schedule.step_bins().is_some();
        if used <= room || staged || have_owners || in_bins {
            RetentionRule::Keep
        } else {
            RetentionRule::best(slice, schedule.order())
        }
    }
}

/// Makes a plan for a tier that already has copies. Each of the `sharers` ranks plans an equal part of the tier, for
/// the samples that the rank reads.
fn new_plan(kept: &KeptTier, rule: RetentionRule, sharers: u32) -> TierPlan {
    let mut plan = TierPlan::new(rule, kept.room() / u64::from(sharers));
    let local = kept.tier.parts().local;
    for (group, bytes) in local.iter().flat_map(|local| local.groups()) {
        if group == 0 {
            // A job that used the whole dataset has kept these samples without regard to their next use. Evict them.
            local.iter().for_each(|local| local.evict_group(group));
        } else {
            plan.found(group, bytes / u64::from(sharers));
        }
    }
    plan
}

pub(super) fn part_of(bytes: u64, samples: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(samples) / u128::from(all.max(1))) as u64
}
