//! The stamps of a dataset's shards during a run, and the shards that hold other samples than the index says.

use super::DatasetPart;
use crate::dataset::{FileId, Stamp};
use crate::source::Seen;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl DatasetPart {
    pub(in crate::dataset) fn shard_stamp(&self, file: FileId) -> Option<Stamp> {
        self.layout().is_sharded().then(|| self.stamp_within(file.0 as usize))
    }

    /// The stamp that was last accepted for a shard in this run.
    pub(in crate::dataset) fn stamp_within(&self, group: usize) -> Stamp {
        if self.any_moved.load(Ordering::Relaxed)
            && let Some(stamp) = self.moved.read().unwrap_or_else(PoisonError::into_inner).get(&group)
        {
            return *stamp;
        }
        self.group_stamp(group)
    }

    /// Whether a shard was accepted with another stamp during this run.
    pub(in crate::dataset) fn has_moved(&self, file: FileId) -> bool {
        let group = file.0 as usize;
        self.layout().is_sharded() && self.stamp_within(group) != self.group_stamp(group)
    }

    /// Whether a shard that was missing when the dataset was indexed, and so has no stamp, is still missing.
    pub(in crate::dataset) fn is_still_missing(&self, group: usize, found: Seen) -> bool {
        found == Seen::Gone
            && self.group_stamp(group) == Stamp::default()
            && self.notes.bad_shard(self.group_path(group)).is_some()
    }

    /// Records that these groups hold other samples than the index says.
    pub(in crate::dataset) fn record_changed_shards(&mut self, groups: Vec<usize>) {
        self.different.extend(groups);
    }

    /// Whether a shard holds the samples that the index says, unless the contrary is known.
    pub(in crate::dataset) fn matches_index(&self, file: FileId) -> bool {
        !self.different.contains(&(file.0 as usize))
    }

    /// Records that this stamp of a shard is accepted from now on.
    pub(in crate::dataset) fn accept_stamp(&self, group: usize, stamp: Stamp) {
        self.moved.write().unwrap_or_else(PoisonError::into_inner).insert(group, stamp);
        self.any_moved.store(true, Ordering::Relaxed);
    }
}
