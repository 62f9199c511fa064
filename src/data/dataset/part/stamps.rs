//! The stamps of a dataset's shards during a run, and the shards whose samples differ from the index.

use super::DatasetPart;
use crate::dataset::parallel::for_each;
use crate::dataset::{FileId, Stamp};
use crate::source::EntryState;
use base::error::Result;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Maximum number of threads that read stamps, and so of simultaneous requests to a network file system.
const STAMP_THREADS: usize = 64;
/// Number of stamps for which it pays to start a thread. On a local file system, fewer stamps are read in the time that
/// starting a thread takes.
const MIN_STAMPS_PER_THREAD: usize = 32;

impl DatasetPart {
    pub(in crate::dataset) fn root_stamp(&self) -> Stamp {
        self.file.header.root
    }

    /// Returns the part of a stamp that is compared with other stamps: all of it, or all but the inode if inodes are
    /// not stable.
    pub(in crate::dataset) fn known(&self, found: Stamp) -> Stamp {
        if self.inodes { found } else { found.without_inode() }
    }

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

    /// Whether a file or directory in the state `seen` might differ from its version with the stamp `then`.
    pub(in crate::dataset) fn differs(&self, then: Stamp, seen: EntryState) -> bool {
        match seen {
            EntryState::Stamped(now) => then.difference(self.known(now)).is_some(),
            EntryState::Unstamped | EntryState::Gone => true,
        }
    }

    /// Those of these groups whose stamps differ from the stamps that `then` returns, sorted.
    ///
    /// # Errors
    /// [`Error::Io`](base::error::Error::Io) for a file or directory that exists but cannot be checked.
    pub(in crate::dataset) fn moved(
        &self,
        groups: &[usize],
        then: impl Fn(usize) -> Stamp + Sync,
    ) -> Result<Vec<usize>> {
        let moved = Mutex::new(Vec::new());
        // A thread takes many groups at a time, to avoid contention. For a remote dataset it takes one group at a time.
        let portion = if self.is_remote() { 1 } else { MIN_STAMPS_PER_THREAD };
        let portions: Vec<&[usize]> = groups.chunks(portion).collect();
        for_each((groups.len() / portion).min(STAMP_THREADS), portions.len(), |number| {
            for &group in portions[number] {
                let now = self.source.stamp(self.group_path(group))?;
                if self.differs(then(group), now) && !self.is_still_missing(group, now) {
                    moved.lock().unwrap_or_else(PoisonError::into_inner).push(group);
                }
            }
            Ok(())
        })?;
        let mut moved = moved.into_inner().unwrap_or_else(PoisonError::into_inner);
        moved.sort_unstable();
        Ok(moved)
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
        *self.array_version.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
