//! The stamps of a dataset's shards during a run, and the shards whose samples differ from the index.

use super::DatasetPart;
use crate::dataset::{FileId, Stamp};
use crate::source::EntryState;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl DatasetPart {
    pub(in crate::dataset) fn shard_stamp(&self, file: FileId) -> Option<Stamp> {
        (self.layout().is_sharded() && self.is_group(file)).then(|| self.stamp_within(file.0 as usize))
    }

    /// The stamp that was last accepted for a shard in this run, or else its stamp in the index.
    pub(in crate::dataset) fn stamp_within(&self, group: usize) -> Stamp {
        if self.any_accepted.load(Ordering::Relaxed)
            && let Some(stamp) =
                self.accepted_stamps.read().unwrap_or_else(PoisonError::into_inner).get(&group)
        {
            return *stamp;
        }
        self.group_stamp(group)
    }

    /// Whether a shard was rewritten during this run, and its new stamp was accepted because it holds the same samples.
    pub(in crate::dataset) fn has_moved(&self, file: FileId) -> bool {
        let group = file.0 as usize;
        self.layout().is_sharded()
            && self.is_group(file)
            && self.stamp_within(group) != self.group_stamp(group)
    }

    /// Whether a shard is missing now and was missing when the dataset was indexed. Such a shard has no stamp.
    pub(in crate::dataset) fn is_still_missing(&self, group: usize, found: EntryState) -> bool {
        found == EntryState::Gone
            && self.group_stamp(group) == Stamp::default()
            && self.notes.bad_shard(self.group_path(group)).is_some()
    }

    pub(in crate::dataset) fn accept_stamp(&self, group: usize, stamp: Stamp) {
        self.accepted_stamps.write().unwrap_or_else(PoisonError::into_inner).insert(group, stamp);
        self.any_accepted.store(true, Ordering::Relaxed);
    }
}
