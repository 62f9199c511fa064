//! The changes that one step made to a reservoir, so that they can be undone.

use super::KeptSample;
use super::sorted::ReservoirEntry;

/// One change of a reservoir.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReservoirChange {
    /// The sample with this id was inserted.
    Inserted(u64),
    /// This sample was evicted.
    Evicted(ReservoirEntry),
    /// The sample with this id was rehearsed.
    Used(u64),
    /// The part had this threshold before the change.
    Threshold(u32, (u64, u64)),
    /// The part was created.
    NewPart(u32),
}

/// The changes of one step, in order.
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
