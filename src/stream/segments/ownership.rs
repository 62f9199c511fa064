//! Operations on a whole directory: assigning it to a run, and removing it.

use super::SegmentStore;
use super::directory::SEGMENT;
use base::error::Result;

impl SegmentStore {
    /// Removes all samples and snapshots, and the directory if nothing else is in it.
    ///
    /// # Errors
    /// [`base::error::Error::Io`]. Files that could not be removed are still there.
    pub fn remove(&mut self) -> Result<()> {
        for number in self.snapshots() {
            self.remove_snapshot(number)?;
        }
        if let Some(draft) = self.draft.take() {
            draft.discard(&mut self.directory);
        }
        let numbers: Vec<u64> = self.segments.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.release(number))?;
        self.unreadable.keys().try_for_each(|&number| self.directory.remove(number, SEGMENT))?;
        self.directory.remove_itself()
    }

    /// The number of the run that the directory belongs to; 0 if no run has used the directory yet.
    pub fn run(&self) -> u32 {
        self.directory.run()
    }

    /// Sets the number of the run that the directory belongs to.
    ///
    /// # Errors
    /// [`base::error::Error::Io`].
    pub fn set_run(&mut self, run: u32) -> Result<()> {
        self.directory.set_run(run)
    }
}
