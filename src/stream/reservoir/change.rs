//! What one step changed in a reservoir, so that it can be undone.

use super::KeptSample;
use super::sorted::ReservoirEntry;

/// A change of a reservoir.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReservoirChange {
    /// The sample with this id was kept.
    Inserted(u64),
    /// The sample gave way.
    Evicted(ReservoirEntry),
    /// The sample with this id was used once more.
    Used(u64),
    /// The threshold of a part had this value before.
    Threshold(u32, (u64, u64)),
    /// The part was made.
    NewPart(u32),
}

/// All that one step changed, in order.
#[derive(Debug, Clone, Default)]
pub struct StepChange {
    pub(super) log: Vec<ReservoirChange>,
}

impl StepChange {
    /// Forgets that the step evicted the sample with this id, so that undoing does not bring it back, and returns it.
    /// To undo what else was done to a sample that is gone does nothing.
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
