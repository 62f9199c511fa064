//! The changes that one step made to a reservoir, so that they can be undone.

use super::KeptSample;
use super::sorted::ReservoirEntry;

#[derive(Debug, Clone, Copy)]
pub(super) enum ReservoirChange {
    Inserted(u64),
    Evicted(ReservoirEntry),
    Used(u64),
    /// The part had this threshold before the change.
    Threshold(u32, (u64, u64)),
    NewPart(u32),
}

/// The changes that one step made to a reservoir, in order.
#[derive(Debug, Clone, Default)]
pub struct StepChange {
    pub(super) log: Vec<ReservoirChange>,
}

impl StepChange {
    /// Removes the eviction of the sample with this id from the changes, so that undoing does not bring the sample
    /// back, and returns the sample. Undoing the other changes of a removed sample has no effect.
    pub(super) fn forget(&mut self, id: u64) -> Option<KeptSample> {
        let is_it = |change: &mut ReservoirChange| match change {
            ReservoirChange::Evicted(entry) => entry.kept.id == id,
            _ => false,
        };
        match self.log.extract_if(.., is_it).last() {
            Some(ReservoirChange::Evicted(entry)) => Some(entry.kept),
            _ => None,
        }
    }
}
