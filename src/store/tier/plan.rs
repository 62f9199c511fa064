//! Decides what a tier keeps. The pipeline and the simulator share this module, which does no I/O.
//!
//! Samples of one *group* are used at about the same time. They are stored in their own segments and evicted together.

use data::schedule::{Order, RepeatSpread};
use std::collections::BTreeMap;
use std::ops::Range;

/// A point in the progress of a training: `epoch · samples + position`, where `samples` is the length of an epoch.
pub type Moment = u64;

/// The positions, in all epochs whose orders are known, at which one node uses samples. Each node computes its own uses
/// from the schedule.
#[derive(Debug, Clone)]
pub struct KnownUses {
    samples: u64,
    first_epoch: u64,
    orders: Vec<Order>,
    slice: NodeSlice,
    spread: RepeatSpread,
}

/// The part of each global batch that a node's ranks take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSlice {
    /// The number of samples that all ranks take in a step.
    pub global_batch: u64,
    /// The position of the node's first sample in the global batch.
    pub begin: u64,
    /// The position after the node's last sample in the global batch.
    pub end: u64,
}

impl NodeSlice {
    /// Returns the part of the global batch that `ranks` take, if each of `world_size` ranks takes `batch_size`
    /// samples.
    pub fn of(ranks: Range<u32>, batch_size: u32, world_size: u32) -> Self {
        let batch = u64::from(batch_size);
        let (begin, end) = (batch * u64::from(ranks.start), batch * u64::from(ranks.end));
        Self { global_batch: batch * u64::from(world_size), begin, end }
    }

    /// Returns whether the node takes the sample at this position of an epoch. For positions in a last batch that is
    /// dropped or split differently, this is a guess.
    pub fn takes(&self, place: u64) -> bool {
        (self.begin..self.end).contains(&(place % self.global_batch))
    }

    /// Returns whether the node takes the whole global batch.
    pub fn is_whole(&self) -> bool {
        self.end - self.begin == self.global_batch
    }
}

impl KnownUses {
    /// Computes the uses by a node that takes `slice` of epochs in these `orders`. The first order is the order of
    /// `first_epoch`.
    ///
    /// # Panics
    /// Panics if there is no order.
    pub fn new(first_epoch: u64, orders: Vec<Order>, slice: NodeSlice) -> Self {
        let spread = RepeatSpread::new(&orders[0], slice.global_batch);
        Self { samples: orders[0].len(), first_epoch, orders, slice, spread }
    }

    /// Returns the moment of `position` in `epoch`.
    pub fn moment(&self, epoch: u64, position: u64) -> Moment {
        epoch * self.samples + position
    }

    /// Returns the moment of the last repeat of `sample` in `epoch`, which must be a known epoch.
    pub fn last_use(&self, sample: u64, epoch: u64) -> Moment {
        let last = self.orders[(epoch - self.first_epoch) as usize].positions(sample).max();
        self.moment(epoch, last.unwrap_or_default())
    }

    /// Returns the first moment after `moment` at which the node uses `sample`; `None` if no known epoch uses it again.
    /// Each searched epoch costs one inverse of the order. On average, the search covers as many epochs as there are
    /// nodes, or repeats of a sample, whichever is more.
    pub fn next_use(&self, sample: u64, moment: Moment) -> Option<Moment> {
        let known = self.first_epoch..self.first_epoch + self.orders.len() as u64;
        let first = (moment / self.samples.max(1)).max(known.start);
        (first..known.end).find_map(|epoch| {
            let positions = self.orders[(epoch - self.first_epoch) as usize].positions(sample);
            let uses = positions.filter(|&position| self.slice.takes(self.spread.place(position)));
            uses.map(|position| self.moment(epoch, position)).filter(|&next| next > moment).min()
        })
    }
}

/// Which samples stay in a tier that has no space for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionRule {
    /// The samples that came first stay: the tier is filled, and then it stops. No rule reads less if a node uses every
    /// sample once an epoch, or if the tier has space for all samples.
    Keep,
    /// The samples that are used soonest stay. This pays (two to five times the hits) if a node uses only a part of the
    /// samples in each epoch, because it is one of several nodes or because samples are repeated. Samples of one group
    /// are used within `moments` of one another, and are evicted together.
    NextUse {
        /// The length of the interval in which the samples of a group are used.
        moments: Moment,
    },
}

impl RetentionRule {
    /// Returns the best rule for a node whose tier has no space for all samples. The node takes `slice` of each global
    /// batch, and epochs are like `order`.
    pub fn best(slice: NodeSlice, order: &Order) -> Self {
        let uses_all = slice.is_whole() && order.repeats() == 1;
        // A sample that is drawn several times within an epoch most likely comes early, so `Keep` keeps the most used
        // samples.
        if uses_all || order.selection().repeats() {
            return Self::Keep;
        }
        // An eighth of an epoch is fine enough that half-used groups hold little of the tier, and coarse enough that
        // few groups fill at the same time.
        Self::NextUse { moments: (order.len() / 8).max(1) }
    }
}

/// Identifies a group of samples that are used at about the same time: the index of their interval of moments. Under
/// [`RetentionRule::Keep`] all samples are in group 0.
pub type GroupId = u64;

/// The decision about a sample whose bytes have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The sample is not kept.
    Bypass,
    /// The sample is kept with the samples of `group`.
    Admit {
        /// The group that the sample is evicted with.
        group: GroupId,
    },
}

/// Decides which samples one tier of `capacity` bytes admits and evicts.
#[derive(Debug, Clone)]
pub struct TierPlan {
    rule: RetentionRule,
    capacity: u64,
    held: u64,
    groups: BTreeMap<GroupId, u64>,
    evicted: Vec<GroupId>,
}

impl TierPlan {
    /// Makes a plan for an empty tier.
    pub fn new(rule: RetentionRule, capacity: u64) -> Self {
        Self { rule, capacity, held: 0, groups: BTreeMap::new(), evicted: Vec::new() }
    }

    /// The total size in bytes of the samples that the plan keeps.
    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Records that the tier already holds `bytes` of a group.
    pub fn found(&mut self, group: GroupId, bytes: u64) {
        *self.groups.entry(group).or_default() += bytes;
        self.held += bytes;
    }

    /// Records that `bytes` were admitted to a group but could not be kept.
    pub fn lost(&mut self, group: GroupId, bytes: u64) {
        if let Some(held) = self.groups.get_mut(&group) {
            let less = bytes.min(*held);
            *held -= less;
            self.held -= less;
        }
    }

    /// Decides whether to keep a sample of `bytes` that is used at `now`, and again at `next`.
    ///
    /// Afterwards [`TierPlan::take_evicted`] returns the groups that must be evicted for the sample.
    pub fn admit(&mut self, bytes: u64, next: Option<Moment>, now: Moment) -> Admission {
        let group = match self.rule {
            RetentionRule::Keep => 0,
            RetentionRule::NextUse { moments } => {
                self.expire(now / moments);
                let Some(next) = next else { return Admission::Bypass };
                next / moments
            }
        };
        if bytes > self.capacity {
            return Admission::Bypass;
        }
        while self.held + bytes > self.capacity {
            // The group with the latest use is evicted first, if its use is later than the use of the new sample.
            let Some((&last, _)) = self.groups.last_key_value().filter(|(last, _)| **last > group) else {
                return Admission::Bypass;
            };
            self.evict(last);
        }
        self.found(group, bytes);
        Admission::Admit { group }
    }

    /// Returns whether a sample of `bytes` that is used at `now`, and again at `next`, fits alongside everything held.
    pub fn has_room(&mut self, bytes: u64, next: Option<Moment>, now: Moment) -> bool {
        if let RetentionRule::NextUse { moments } = self.rule {
            self.expire(now / moments);
            if next.is_none() {
                return false;
            }
        }
        self.held + bytes <= self.capacity
    }

    /// Returns the held group with the latest use.
    pub fn last_group(&self) -> Option<GroupId> {
        self.groups.last_key_value().map(|(&last, _)| last)
    }

    /// Returns the groups that were evicted since the last call.
    pub fn take_evicted(&mut self) -> Vec<GroupId> {
        std::mem::take(&mut self.evicted)
    }

    fn expire(&mut self, current: GroupId) {
        while let Some((&group, _)) = self.groups.first_key_value().filter(|(group, _)| **group < current) {
            self.evict(group);
        }
    }

    fn evict(&mut self, group: GroupId) {
        self.held -= self.groups.remove(&group).unwrap_or_default();
        self.evicted.push(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::dataset::Fingerprint;
    use data::schedule::Selection;
    use std::collections::HashSet;
    use std::sync::Arc;

    #[derive(Default)]
    struct Contents {
        groups: BTreeMap<GroupId, HashSet<u64>>,
    }

    impl Contents {
        fn holds(&self, sample: u64) -> bool {
            self.groups.values().any(|samples| samples.contains(&sample))
        }

        fn apply(&mut self, sample: u64, admission: Admission, evicted: &[GroupId]) {
            for group in evicted {
                self.groups.remove(group);
            }
            if let Admission::Admit { group } = admission {
                self.groups.entry(group).or_default().insert(sample);
            }
        }
    }

    fn orders(epochs: u64, samples: u64, repeats: u32) -> Vec<Order> {
        let order = |epoch| Order::shuffled(&Fingerprint([7; 32]), 3, epoch, samples).repeated(repeats);
        (0..epochs).map(order).collect()
    }

    /// Returns the share of hits of node 0 of `nodes`, if samples are shown `repeats` times. Counts only epochs in
    /// which the tier is full and the future is known. A batch with repeats of a sample reads it only once.
    fn hits(
        nodes: u32,
        repeats: u32,
        capacity: u64,
        rule: impl Fn(NodeSlice, &Order) -> RetentionRule,
    ) -> f64 {
        let between = u64::from(nodes.max(repeats));
        let (epochs, samples) = (8 + 6 * between, 20_000);
        let slice = NodeSlice::of(0..1, 10, nodes);
        let orders = orders(epochs, samples, repeats);
        let spread = RepeatSpread::new(&orders[0], slice.global_batch);
        let future = KnownUses::new(0, orders.clone(), slice);
        let (mut plan, mut contents) =
            (TierPlan::new(rule(slice, &orders[0]), capacity), Contents::default());
        let (mut hits, mut uses) = (0, 0);
        for (epoch, order) in (0..).zip(&orders) {
            let mut batch = (0, HashSet::new());
            for place in (0..samples).filter(|&place| slice.takes(place)) {
                let sample = order.sample(spread.position(place));
                if batch.0 != place / slice.global_batch {
                    batch = (place / slice.global_batch, HashSet::new());
                }
                if !batch.1.insert(sample) {
                    continue;
                }
                let (hit, now) = (contents.holds(sample), future.last_use(sample, epoch));
                if (3 + between..8 + 2 * between).contains(&epoch) {
                    uses += 1;
                    hits += u64::from(hit);
                }
                if !hit || plan.rule != RetentionRule::Keep {
                    let admission = plan.admit(1, future.next_use(sample, now), now);
                    contents.apply(sample, admission, &plan.take_evicted());
                }
            }
        }
        hits as f64 / uses as f64
    }

    #[test]
    fn a_lone_node_keeps_what_came_first_and_hits_as_often_as_can_be() {
        let whole = hits(1, 1, 5_000, RetentionRule::best);
        assert!((whole - 0.25).abs() < 1e-9, "{whole}");
    }

    #[test]
    fn what_is_used_soonest_is_kept_where_an_epoch_uses_a_part() {
        // The hit rate of Belady's optimum is 0.563 for 4 nodes and 0.584 for 16 (simulated with single samples);
        // groups cost a little. For one node, n repeats act like n nodes: each epoch uses one sample in n.
        for (nodes, repeats, optimum, kept) in
            [(4, 1, 0.563, 0.248), (16, 1, 0.584, 0.251), (1, 4, 0.563, 0.248), (4, 3, 0.563, 0.248)]
        {
            let soonest = hits(nodes, repeats, 5_000, RetentionRule::best);
            let first = hits(nodes, repeats, 5_000, |_, _| RetentionRule::Keep);
            println!("{nodes} nodes, {repeats} repeats: {soonest:.3} and {first:.3}");
            let case = format!("{nodes} nodes, {repeats} repeats: {soonest} and {first}");
            assert!(soonest > 0.9 * optimum && soonest <= optimum + 0.02, "{case}");
            assert!((first - kept).abs() < 0.05, "{case}");
        }
    }

    #[test]
    fn a_rule_goes_by_what_epochs_draw() {
        let slice = NodeSlice::of(0..1, 10, 2);
        let best = |selection: Selection| {
            RetentionRule::best(slice, &Order::drawn(Arc::new(selection), &Fingerprint([7; 32]), 3, 0))
        };
        let part = || Selection::listed(20_000, (0..800).collect());
        assert_eq!(best(part()), RetentionRule::NextUse { moments: 100 });
        assert_eq!(best(part().with_draws(400)), RetentionRule::NextUse { moments: 50 });
        assert_eq!(best(part().with_draws(801)), RetentionRule::Keep);
        assert_eq!(
            best(Selection::of_strata(9, vec![(1.0, vec![1, 2]), (2.0, vec![3])])),
            RetentionRule::Keep
        );
        let (alone, order) = (NodeSlice::of(0..1, 10, 1), orders(1, 800, 1).remove(0));
        assert_eq!(RetentionRule::best(alone, &order), RetentionRule::Keep);
        assert_eq!(RetentionRule::best(alone, &order.repeated(2)), RetentionRule::NextUse { moments: 100 });
    }

    #[test]
    fn a_tier_never_holds_more_than_it_may() {
        let mut stream = base::rng::RandomKey::new(b"plan", 1, 0, base::rng::Use::Order).stream(0);
        for rule in [RetentionRule::Keep, RetentionRule::NextUse { moments: 100 }] {
            let mut plan = TierPlan::new(rule, 10_000);
            let mut groups: BTreeMap<GroupId, u64> = BTreeMap::new();
            for now in 0..5_000 {
                let (bytes, next) = (1 + stream.below(400), now + 1 + stream.below(3_000));
                let admission = plan.admit(bytes, Some(next), now);
                for group in plan.take_evicted() {
                    groups.remove(&group);
                }
                if let Admission::Admit { group } = admission {
                    match stream.below(10) {
                        0 => plan.lost(group, bytes),
                        _ => *groups.entry(group).or_default() += bytes,
                    }
                }
                assert_eq!(plan.held(), groups.values().sum::<u64>(), "{rule:?} at {now}");
                assert!(plan.held() <= 10_000, "{rule:?} at {now}");
            }
            assert!(plan.held() > 9_000, "{rule:?}");
        }
    }

    #[test]
    fn the_next_use_is_the_first_later_one_of_this_node() {
        let slice = NodeSlice::of(1..2, 5, 3);
        let orders = orders(4, 300, 1);
        let future = KnownUses::new(2, orders.clone(), slice);
        for sample in 0..300 {
            let uses: Vec<Moment> = (2..)
                .zip(&orders)
                .flat_map(|(epoch, order)| order.positions(sample).map(move |position| (epoch, position)))
                .filter(|(_, position)| slice.takes(*position))
                .map(|(epoch, position)| epoch * 300 + position)
                .collect();
            for now in [0, 600, 750, 1_000, 1_799] {
                let next = uses.iter().copied().find(|&moment| moment > now);
                assert_eq!(future.next_use(sample, now), next, "sample {sample} after {now}");
            }
        }
    }
}
