//! Saves the buffer to snapshots, restores it from one, and removes old snapshots.

use super::RehearsalBuffer;
use super::snapshot::{BufferSnapshot, SnapshotHeader};
use crate::ids::IdSet;
use crate::reservoir::Reservoir;
use crate::source::SourcePosition;
use crate::state::SnapshotRef;
use base::crc::checksum;
use base::error::{Error, Result};
use std::path::Path;

impl RehearsalBuffer {
    /// Saves the buffer as of the last delivered step, and the positions of the sources. If there is no directory,
    /// warns and returns `None`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too many states wait to be acknowledged; I/O errors of the directory.
    pub(crate) fn save(&mut self, positions: &[SourcePosition]) -> Result<Option<SnapshotRef>> {
        let Some(store) = self.bytes.store() else {
            self.notices.warn_once("unsaved rehearsal", || {
                "the rehearsal buffer is only in memory, so states do not include it, and a resumed run starts with an \
                 empty buffer: to save it, pass Rehearsal(..., directory=PATH)"
                    .to_owned()
            });
            return Ok(None);
        };
        let saved = store.snapshots();
        let waiting = saved.iter().filter(|number| Some(**number) > self.acknowledged).count();
        if waiting >= self.options.keep_states {
            let message = format!(
                "{waiting} saved states are not acknowledged, and keep_states allows no more: call \
                 loader.acknowledge(state) after each checkpoint is safely written, so that older states can be removed"
            );
            return Err(Error::Unavailable(message));
        }
        store.publish()?;
        let mut then = self.reservoir.clone();
        self.ahead.iter().rev().for_each(|step| then.undo(step.change.clone()));
        let snapshot = BufferSnapshot {
            header: SnapshotHeader {
                parts: then.parts().collect(),
                offered: self.ahead.front().map_or(self.offered, |step| step.offered),
                failed: self.failed.iter().cloned().collect(),
                positions: positions.to_vec(),
            },
            kept: then.entries().copied().collect(),
        };
        let bytes = snapshot.encode();
        let number = saved.last().map_or(0, |last| last + 1);
        store.write_snapshot(number, &bytes)?;
        self.snapshots.insert(number, ids_of(&snapshot));
        Ok(Some(SnapshotRef { number, bytes: bytes.len() as u64, crc: checksum(&bytes) }))
    }

    /// Restores the buffer from a snapshot, and returns the positions of the sources. Removes the snapshots of later
    /// states, because this run diverges from them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the snapshot does not belong to the saved state; I/O errors of the directory.
    pub(crate) fn restore(&mut self, saved: &SnapshotRef, lineage: &[u32]) -> Result<Vec<SourcePosition>> {
        let snapshot = self.snapshot(saved)?;
        self.lineage = lineage.to_vec();
        self.open_abandoned()?;
        self.revert_to(Some((saved.number, ids_of(&snapshot))))?;
        let (kept, gone): (Vec<_>, Vec<_>) = snapshot.kept.iter().partition(|kept| self.bytes.has(kept.id));
        self.warn_missing(gone.len(), snapshot.kept.len());
        let options = (self.seed, self.options.by, self.options.capacity);
        let restored =
            Reservoir::restore(options, snapshot.header.parts.iter().copied(), kept.into_iter().copied());
        let (reservoir, evicted) = restored.map_err(|what| {
            Error::Unavailable(format!(
                "snapshot {} of the rehearsal buffer is invalid: {what}",
                saved.number
            ))
        })?;
        self.reservoir = reservoir;
        self.offered = snapshot.header.offered;
        self.failed = snapshot.header.failed.into();
        evicted.into_iter().try_for_each(|kept| self.forget_bytes(kept.id))?;
        Ok(snapshot.header.positions)
    }

    /// Reverts to a snapshot, given by its number and the ids in it. If `saved` is `None`, reverts to an empty buffer.
    pub(super) fn revert_to(&mut self, saved: Option<(u64, Vec<u64>)>) -> Result<()> {
        self.acknowledged = saved.as_ref().map(|(number, _)| *number);
        self.snapshots.extend(saved);
        let Some(store) = self.bytes.store() else { return Ok(()) };
        for number in store.snapshots() {
            if Some(number) > self.acknowledged {
                store.remove_snapshot(number)?;
            } else if !self.snapshots.contains_key(&number)
                // Skip a snapshot that cannot be read, because no run can resume from it.
                && let Ok(older) = store.read_snapshot(number)
                && let Ok(older) = BufferSnapshot::decode(&older)
            {
                self.snapshots.insert(number, ids_of(&older));
            }
        }
        let wanted: IdSet = self.snapshots.values().flatten().copied().collect();
        self.bytes.retain_on_disk(&wanted)
    }

    pub(super) fn warn_missing(&self, gone: usize, all: usize) {
        if gone > 0 {
            self.notices.warn_once("missing rehearsal", || {
                format!(
                    "{gone} of the {all} samples in the state's rehearsal buffer are missing (withdrawn or damaged), \
                     and are skipped"
                )
            });
        }
    }

    pub(crate) fn positions(&mut self, saved: &SnapshotRef) -> Result<Vec<SourcePosition>> {
        self.snapshot(saved).map(|snapshot| snapshot.header.positions)
    }

    pub(super) fn snapshot(&mut self, saved: &SnapshotRef) -> Result<BufferSnapshot> {
        let Some(store) = self.bytes.store() else { return Err(no_directory()) };
        if !store.snapshots().contains(&saved.number) {
            return Err(saved.is_other(store.path(), "does not exist"));
        }
        let bytes = store.read_snapshot(saved.number)?;
        let path = store.path().to_owned();
        BufferSnapshot::of(saved, &bytes, &path)
    }

    /// Removes all snapshots before snapshot `number`, and the samples that only these snapshots need.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(crate) fn forget_before(&mut self, number: u64) -> Result<()> {
        self.acknowledged = self.acknowledged.max(Some(number));
        let later = self.snapshots.split_off(&number);
        let older = std::mem::replace(&mut self.snapshots, later);
        for (number, ids) in older {
            if let Some(store) = self.bytes.store() {
                store.remove_snapshot(number)?;
            }
            ids.into_iter().try_for_each(|id| self.forget_bytes(id))?;
        }
        while let Some(store) = self.abandoned.last_mut() {
            store.remove()?;
            self.abandoned.pop();
        }
        Ok(())
    }
}

/// The error for a directory that has states, but must be empty.
pub(super) fn has_states(path: &Path) -> Error {
    let message = format!(
        "{} contains states of an earlier run: load one of them with load_state_dict, choose another directory, or \
         empty this one",
        path.display()
    );
    Error::config("rehearsal.directory", message)
}

/// The error if a state has its rehearsal buffer in a directory, but the user gave no directory.
pub(super) fn no_directory() -> Error {
    let message = "is not given, but the state has its rehearsal buffer in a directory: pass the same one";
    Error::config("rehearsal.directory", message)
}

pub(super) fn ids_of(snapshot: &BufferSnapshot) -> Vec<u64> {
    let mut ids: Vec<u64> = snapshot.kept.iter().map(|kept| kept.id).collect();
    ids.sort_unstable();
    ids
}
