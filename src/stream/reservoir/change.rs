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
    /// Forgets the sample with this id, so that undoing does not bring it back. Returns it where the step had evicted
    /// it.
    pub(super) fn forget(&mut self, id: u64) -> Option<Kept> {
        let mut evicted = None;
        self.log.retain(|change| match change {
            Change::Inserted(changed) | Change::Used(changed) => *changed != id,
            Change::Evicted(entry) if entry.kept.id == id => {
                evicted = Some(entry.kept);
                false
            }
            _ => true,
        });
        evicted
    }
}
