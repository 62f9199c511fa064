//! The reservoir: which samples of a stream the rehearsal buffer keeps, and which of them a step rehearses. No I/O.
//!
//! Each sample has a random key ([`order`]), and the samples with the smallest keys are kept: a fixed number of them,
//! or as many as fit into the capacity. So the content depends only on the set of samples that were offered, not on
//! their order. Reservoirs of parts of a stream merge into the reservoir of the whole stream.
//!
//! Why this holds although samples are offered one by one: sort a set of samples by key. A sample is kept if it fits
//! together with all samples before it. Call the first sample that does not fit the *threshold*. Further samples can
//! only increase the sum up to any sample. So samples at or above the threshold never fit again and need not be
//! remembered.
//!
//! All samples below the threshold are still kept, so the new content is found by evicting from the end. The threshold
//! falls to the last evicted sample. If the share of the capacity shrinks, samples are evicted in the same way: the
//! content that fits into a smaller share is a prefix of the former content.
//!
//! A withdrawn sample leaves a gap that only samples below the threshold can fill. Samples at or above the threshold
//! are refused, as earlier samples were.
//!
//! When samples are kept by class, every class that was seen has a reservoir, and all classes have the same share of
//! the capacity. Samples without a class form a class.

mod change;
mod order;
mod sorted;
mod table;
#[cfg(test)]
mod tests;

pub use change::StepChange;

use super::ids::IdTable;
use base::error::Result;
use base::rng::{RandomKey, Use};

use change::ReservoirChange;
use order::KeepOrder;
use sorted::{Position, ReservoirEntry, SortedEntries};
use std::collections::{BTreeMap, HashMap};

/// The class of samples without a class.
pub const NO_CLASS: u32 = u32::MAX;
/// The threshold of a part that was never full.
const NEVER: (u64, u64) = (u64::MAX, u64::MAX);

/// How the probability of keeping a sample is determined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeepBy {
    /// All samples are equally likely.
    Uniform,
    /// All classes have the same share, and within a class all samples are equally likely.
    Class,
    /// The weight of a sample is twice the weight of a sample that arrived `half_life` samples earlier.
    Recency { half_life: f64 },
    /// The weight of a sample is its score.
    Score,
}

/// The capacity of a reservoir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// A number of samples.
    Samples(u64),
    /// The bytes of all samples together. A sample that is larger than the capacity is never kept, and has no effect.
    Bytes(u64),
}

/// A sample that is offered to the reservoir.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub id: u64,
    pub class: Option<u32>,
    pub bytes: u32,
    /// The sample's score, for [`KeepBy::Score`].
    pub weight: f64,
    /// The number of samples that were offered before this sample, for [`KeepBy::Recency`].
    pub ordinal: u64,
}

/// A sample that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSample {
    pub id: u64,
    /// The random key. The samples with the smallest keys are kept.
    pub order: u64,
    /// The sample's class, or [`NO_CLASS`].
    pub class: u32,
    pub bytes: u32,
    /// The number of times that this sample was rehearsed.
    pub uses: u32,
}

/// The result of an offer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OfferOutcome {
    /// Whether the sample was inserted. `false` if it was refused, or if it was already kept and so stays unchanged.
    pub kept: bool,
    /// The samples that were evicted.
    pub evicted: Vec<KeptSample>,
}

/// A part of a reservoir, as stored in a snapshot: the class if samples are kept by class, otherwise 0; and the
/// smallest (key, id) that was ever refused or evicted because the part was full.
pub type ReservoirPart = (u32, Option<(u64, u64)>);

/// The totals and the threshold of one class, or of the whole reservoir if samples are not kept by class.
#[derive(Debug, Clone, Copy)]
struct Part {
    samples: u64,
    bytes: u64,
    /// The smallest (key, id) that was ever refused or evicted because the part was full.
    threshold: (u64, u64),
}

/// The reservoir.
#[derive(Debug, Clone)]
pub struct Reservoir {
    by: KeepBy,
    capacity: Capacity,
    order: KeepOrder,
    rehearse: RandomKey,
    entries: SortedEntries,
    /// The positions in `entries`, by sample id.
    positions: IdTable<Position>,
    parts: BTreeMap<u32, Part>,
}

impl Reservoir {
    /// An empty reservoir.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a half-life that is not finite and above 0.
    pub fn new(seed: u64, by: KeepBy, capacity: Capacity) -> Result<Self> {
        Ok(Self {
            by,
            capacity,
            order: KeepOrder::new(seed, by)?,
            rehearse: RandomKey::new(&[], seed, 0, Use::Rehearse),
            entries: SortedEntries::default(),
            positions: IdTable::default(),
            parts: BTreeMap::new(),
        })
    }

    /// Offers a sample, and adds the changes to `change`.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a score that is not finite and above 0. Nothing is changed then.
    pub fn offer(&mut self, offered: &Offered, change: &mut StepChange) -> Result<OfferOutcome> {
        let order = self.order.of(offered)?;
        let mut outcome = OfferOutcome::default();
        let too_large = matches!(self.capacity, Capacity::Bytes(all) if u64::from(offered.bytes) > all);
        if too_large || self.positions.contains_key(&offered.id) {
            return Ok(outcome);
        }
        let Offered { id, class, bytes, .. } = *offered;
        let class = class.unwrap_or(NO_CLASS);
        let part = self.part_of(class);
        if self.ensure_part(part) {
            change.log.push(ReservoirChange::NewPart(part));
            self.shrink(change, &mut outcome.evicted);
        }
        if (order, id) < self.parts[&part].threshold {
            self.insert(ReservoirEntry { part, kept: KeptSample { id, order, class, bytes, uses: 0 } });
            change.log.push(ReservoirChange::Inserted(id));
            self.trim(part, change, &mut outcome.evicted);
            outcome.kept = self.positions.contains_key(&id);
            outcome.evicted.retain(|kept| kept.id != id);
        }
        Ok(outcome)
    }

    /// Removes a sample for good, also from the changes of the `pending` steps, so that undoing these steps does not
    /// bring the sample back. Returns the sample if it was kept, or if undoing a step could have brought it back.
    pub fn withdraw<'a>(
        &mut self,
        id: u64,
        pending: impl IntoIterator<Item = &'a mut StepChange>,
    ) -> Option<KeptSample> {
        let evicted = pending.into_iter().fold(None, |found, change| change.forget(id).or(found));
        self.remove(id).map(|entry| entry.kept).or(evicted)
    }

    /// Counts that the samples with these ids were rehearsed. Ids that are not kept are skipped.
    pub fn used(&mut self, ids: &[u64], change: &mut StepChange) {
        for &id in ids {
            if let Some(kept) = self.positions.get(&id).and_then(|&at| self.entries.get_mut(at)) {
                kept.uses = kept.uses.saturating_add(1);
                change.log.push(ReservoirChange::Used(id));
            }
        }
    }

    /// Draws the ids of `count` samples that step number `step` rehearses: all different and equally likely, or all
    /// samples if there are fewer. The draw depends on seed, step and content only.
    pub fn draw(&self, step: u64, count: usize) -> Vec<u64> {
        let mut random = self.rehearse.stream(step);
        let len = self.entries.len();
        // Do the first `count` swaps of a Fisher-Yates shuffle of all indices. Only the indices that were moved are
        // stored.
        let mut moved = HashMap::new();
        let ranks: Vec<usize> = (0..count.min(len))
            .map(|place| {
                let chosen = place + random.below((len - place) as u64) as usize;
                let at = |moved: &HashMap<usize, usize>, rank| moved.get(&rank).copied().unwrap_or(rank);
                let (rank, other) = (at(&moved, chosen), at(&moved, place));
                moved.insert(chosen, other);
                rank
            })
            .collect();
        self.entries.at_ranks(&ranks)
    }

    /// Undoes the changes of a step. Steps are undone from the last to the first. Withdrawn samples stay withdrawn.
    pub fn undo(&mut self, change: StepChange) {
        for change in change.log.into_iter().rev() {
            match change {
                ReservoirChange::Inserted(id) => drop(self.remove(id)),
                ReservoirChange::Evicted(entry) => self.insert(entry),
                ReservoirChange::Used(id) => {
                    if let Some(kept) = self.positions.get(&id).and_then(|&at| self.entries.get_mut(at)) {
                        kept.uses -= 1;
                    }
                }
                ReservoirChange::Threshold(part, before) => {
                    self.parts.get_mut(&part).expect("a part is undone last").threshold = before;
                }
                ReservoirChange::NewPart(part) => drop(self.parts.remove(&part)),
            }
        }
    }

    /// The number of kept samples.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of the kept samples.
    pub fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.bytes).sum()
    }

    /// Removes a sample. Undoing `change` brings the sample back. Returns whether the sample was kept.
    pub fn discard(&mut self, id: u64, change: &mut StepChange) -> bool {
        let entry = self.remove(id);
        change.log.extend(entry.map(ReservoirChange::Evicted));
        entry.is_some()
    }

    /// The sample with this id, if it is kept.
    pub fn get(&self, id: u64) -> Option<KeptSample> {
        self.positions.get(&id).and_then(|&at| self.entries.get(at)).copied()
    }

    /// Whether the sample with this id is kept.
    pub fn contains(&self, id: u64) -> bool {
        self.positions.contains_key(&id)
    }

    /// The capacity of each class if samples are kept by class, otherwise the whole capacity. It is 0 if there are more
    /// classes than the capacity has samples.
    pub fn share(&self) -> Capacity {
        let parts = self.parts.len().max(1) as u64;
        match self.capacity {
            Capacity::Samples(all) => Capacity::Samples(all / parts),
            Capacity::Bytes(all) => Capacity::Bytes(all / parts),
        }
    }

    fn part_of(&self, class: u32) -> u32 {
        if self.by == KeepBy::Class { class } else { 0 }
    }

    fn ensure_part(&mut self, part: u32) -> bool {
        let before = self.parts.len();
        self.parts.entry(part).or_insert(Part { samples: 0, bytes: 0, threshold: NEVER });
        self.parts.len() > before
    }

    fn insert(&mut self, entry: ReservoirEntry) {
        let part = self.parts.get_mut(&entry.part).expect("a part is there before its samples");
        part.samples += 1;
        part.bytes += u64::from(entry.kept.bytes);
        self.positions.insert(entry.kept.id, entry.position());
        self.entries.insert(entry);
    }

    fn remove(&mut self, id: u64) -> Option<ReservoirEntry> {
        let entry = self.entries.remove(self.positions.remove(&id)?)?;
        let part = self.parts.get_mut(&entry.part).expect("a part is there as long as its samples");
        part.samples -= 1;
        part.bytes -= u64::from(entry.kept.bytes);
        Some(entry)
    }

    fn shrink(&mut self, change: &mut StepChange, evicted: &mut Vec<KeptSample>) {
        let parts: Vec<u32> = self.parts.keys().copied().collect();
        parts.into_iter().for_each(|part| self.trim(part, change, evicted));
    }

    /// Evicts samples that exceed the share of a part, the largest keys first.
    fn trim(&mut self, part: u32, change: &mut StepChange, evicted: &mut Vec<KeptSample>) {
        let share = self.share();
        loop {
            let Part { samples, bytes, .. } = self.parts[&part];
            let fits = match share {
                Capacity::Samples(most) => samples <= most,
                Capacity::Bytes(most) => bytes <= most,
            };
            if fits {
                return;
            }
            let last = *self.entries.last_of(part).expect("a part that exceeds its share has samples");
            self.evict(last, change);
            evicted.push(last.kept);
        }
    }

    /// Evicts the last entry of a part. From then on only entries below this entry are kept.
    fn evict(&mut self, last: ReservoirEntry, change: &mut StepChange) {
        self.remove(last.kept.id);
        let part = self.parts.get_mut(&last.part).expect("a part is there as long as its samples");
        change.log.push(ReservoirChange::Threshold(last.part, part.threshold));
        part.threshold = (last.kept.order, last.kept.id);
        change.log.push(ReservoirChange::Evicted(last));
    }
}
