//! What one step changed in a reservoir, so that it can be undone.

use super::Kept;
use super::sorted::ReservoirEntry;

/// A change of a reservoir.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
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
pub(crate) struct StepChange {
    pub(super) log: Vec<Change>,
}

impl StepChange {
    /// Forgets that the step evicted the sample with this id, so that undoing does not bring it back, and returns it.
    /// To undo what else was done to a sample that is gone does nothing.
    pub(super) fn forget(&mut self, id: u64) -> Option<Kept> {
        let is_it =
            |change: &Change| matches!(change, Change::Evicted(ReservoirEntry { kept, .. }) if kept.id == id);
        let evicted = self.log.extract_if(.., |change| is_it(change)).last();
        evicted.and_then(|change| if let Change::Evicted(entry) = change { Some(entry.kept) } else { None })
    }
}
