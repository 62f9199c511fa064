//! The reservoir: which samples of a stream the rehearsal buffer keeps, and which of them a step rehearses. Pure.
//!
//! Each sample has a random key of its own ([`order`]), and those with the smallest keys are kept: the first so many in
//! the order of keys, or as many as fit. So the content is a function of the samples that were offered, not of their
//! order, nor of who was offered which: reservoirs of parts of a stream merge into that of the whole.
//!
//! Why that holds although samples are offered one by one. Of a set S, in the order of keys, those are kept that fit
//! together with all before them; call the first that does not its *threshold*. One more sample makes the sum up to any
//! other no smaller, so what lies at or above the threshold never fits again and need not be remembered. Below it
//! everything is still there, and what of it fits is found by evicting from the end. The threshold falls to the last
//! one evicted. A smaller share evicts in the same way, since what fits into it is a beginning of what fitted before.
//!
//! A sample that is withdrawn leaves a gap that only samples below the threshold fill: any other was judged already, or
//! has the key of one that was.
//!
//! By class, every class that was seen has a reservoir of its own, and all have the same share of the capacity. A
//! sample of no class is of a class of its own.

mod change;
mod order;
mod sorted;
#[cfg(test)]
mod statistics;
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

/// The class of samples that have none.
pub const NO_CLASS: u32 = u32::MAX;
/// The threshold of a part that never lacked room.
const NEVER: (u64, u64) = (u64::MAX, u64::MAX);

/// What decides how likely a sample is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeepBy {
    /// All samples alike.
    Uniform,
    /// All samples of a class alike, and as many of each class.
    Class,
    /// The weight of a sample is twice that of one which arrived `half_life` samples earlier.
    Recency { half_life: f64 },
    /// The weight of a sample is its score.
    Score,
}

/// How much a reservoir holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// So many samples.
    Samples(u64),
    /// Samples of so many bytes together. One that is larger than all of this is never kept, and counts for nothing.
    Bytes(u64),
}

/// A sample that may be kept.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub id: u64,
    pub class: Option<u32>,
    pub bytes: u32,
    /// The sample's score, for [`KeepBy::Score`].
    pub weight: f64,
    /// How many samples were offered before it, for [`KeepBy::Recency`].
    pub ordinal: u64,
}

/// A sample that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSample {
    pub id: u64,
    /// The key: the smaller, the longer it stays.
    pub order: u64,
    /// The sample's class, or [`NO_CLASS`].
    pub class: u32,
    pub bytes: u32,
    /// How often it was rehearsed.
    pub uses: u32,
}

/// What became of an offer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OfferOutcome {
    /// Whether the sample is kept from now on. One that is there already stays as it is, and this says `false`.
    pub kept: bool,
    /// The samples that gave way.
    pub evicted: Vec<KeptSample>,
}

/// A part of a reservoir, as a snapshot has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservoirPart {
    /// The class, where samples are kept by class, else 0.
    pub part: u32,
    /// The smallest (key, id) that was ever refused or evicted for want of room.
    pub threshold: Option<(u64, u64)>,
}

/// A part of the capacity: that of a class, or all of it.
#[derive(Debug, Clone, Copy)]
struct Part {
    samples: u64,
    bytes: u64,
    /// The smallest (key, id) that was ever refused or evicted for want of room.
    threshold: (u64, u64),
}

/// Which samples are kept.
#[derive(Debug, Clone)]
pub struct Reservoir {
    by: KeepBy,
    capacity: Capacity,
    order: KeepOrder,
    rehearse: RandomKey,
    entries: SortedEntries,
    /// Where the sample with an id stands in `entries`.
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

    /// Offers a sample, and notes in `change` what that changes.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a score that is not finite and above 0; nothing is changed then.
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
        if self.see_part(part) {
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

    /// Removes a sample for good, and from what the steps in `pending` changed, so that undoing them does not bring it
    /// back. Returns it where it was kept, or would have been again.
    pub fn withdraw<'a>(
        &mut self,
        id: u64,
        pending: impl IntoIterator<Item = &'a mut StepChange>,
    ) -> Option<KeptSample> {
        let evicted = pending.into_iter().fold(None, |found, change| change.forget(id).or(found));
        self.remove(id).map(|entry| entry.kept).or(evicted)
    }

    /// Notes that the samples with these ids were rehearsed once more. Ids that are not there are passed over.
    pub fn used(&mut self, ids: &[u64], change: &mut StepChange) {
        for &id in ids {
            if let Some(kept) = self.positions.get(&id).and_then(|&at| self.entries.get_mut(at)) {
                kept.uses = kept.uses.saturating_add(1);
                change.log.push(ReservoirChange::Used(id));
            }
        }
    }

    /// The ids of `count` samples that step number `step` rehearses, all different and each as likely; of all where
    /// there are fewer. They depend on seed, step and content alone.
    pub fn draw(&self, step: u64, count: usize) -> Vec<u64> {
        let mut random = self.rehearse.stream(step);
        let len = self.entries.len();
        // The beginning of a shuffle of all ranks, of which only those that were moved are written down.
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

    /// Undoes what a step changed. Steps are undone from the last to the first; what was withdrawn meanwhile stays so.
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

    /// The number of samples that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of the samples that are kept.
    pub fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.bytes).sum()
    }

    /// Removes a sample that turned out to be of no use; undoing `change` brings it back. Says whether it was kept.
    pub fn discard(&mut self, id: u64, change: &mut StepChange) -> bool {
        let entry = self.remove(id);
        change.log.extend(entry.map(ReservoirChange::Evicted));
        entry.is_some()
    }

    /// The sample with this id, where it is kept.
    pub fn get(&self, id: u64) -> Option<KeptSample> {
        self.positions.get(&id).and_then(|&at| self.entries.get(at)).copied()
    }

    /// Whether the sample with this id is kept.
    pub fn contains(&self, id: u64) -> bool {
        self.positions.contains_key(&id)
    }

    /// What each part may hold. With more classes than samples fit, that is nothing.
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

    /// Makes the part unless it is there, and says whether it was made.
    fn see_part(&mut self, part: u32) -> bool {
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

    /// Evicts what exceeds the share of any part.
    fn shrink(&mut self, change: &mut StepChange, evicted: &mut Vec<KeptSample>) {
        let parts: Vec<u32> = self.parts.keys().copied().collect();
        parts.into_iter().for_each(|part| self.trim(part, change, evicted));
    }

    /// Evicts what exceeds the share of a part, the largest keys first.
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

    /// Evicts the last entry of a part, below which alone others are kept from now on.
    fn evict(&mut self, last: ReservoirEntry, change: &mut StepChange) {
        self.remove(last.kept.id);
        let part = self.parts.get_mut(&last.part).expect("a part is there as long as its samples");
        change.log.push(ReservoirChange::Threshold(last.part, part.threshold));
        part.threshold = (last.kept.order, last.kept.id);
        change.log.push(ReservoirChange::Evicted(last));
    }
}
