//! Divides the rehearsal buffers of former ranks among more or fewer ranks.
//!
//! Each rank takes the samples that belong to it from all former buffers, and merges their reservoirs. The merged
//! reservoir keeps only samples below the smallest threshold of the former reservoirs, because below this threshold
//! every former rank still has all of its samples.
//!
//! Until a state of this run is safely written, no rank changes any data that a former state needs. So the same restart
//! can be tried again. A directory stores the number of its run, and a state stores the numbers of the runs that it
//! continues. So a directory of another run is not mistaken for the directory of a former rank.

use super::RehearsalBuffer;
use super::saved::{has_states, ids_of, no_directory};
use super::snapshot::{BufferSnapshot, SnapshotHeader};
use crate::ids::IdSet;
use crate::reservoir::{KeptSample, Reservoir};
use crate::segments::ReadOnlyStore;
use crate::share::RankShare;
use crate::source::SourcePosition;
use crate::state::SnapshotRef;
use base::error::{Error, Result};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

struct FormerBuffer {
    /// The directory of the former rank; `None` if it is now the directory of this rank.
    other_directory: Option<ReadOnlyStore>,
    saved: SnapshotRef,
    snapshot: BufferSnapshot,
}

/// The saved buffers of all former ranks, in order of rank. `None` for a directory that cannot be reached.
pub(crate) struct FormerBuffers(Vec<Option<FormerBuffer>>);

impl FormerBuffers {
    pub(crate) fn positions(&self, rank: usize) -> Option<&[SourcePosition]> {
        Some(&self.0.get(rank)?.as_ref()?.snapshot.header.positions)
    }

    fn found(&self) -> impl Iterator<Item = &FormerBuffer> {
        self.0.iter().flatten()
    }
}

impl RehearsalBuffer {
    /// Finds the saved buffers of the former ranks, and changes nothing.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a snapshot does not belong to its state; I/O errors of the directories.
    pub(crate) fn find_former_buffers(&mut self, former: &[Option<SnapshotRef>]) -> Result<FormerBuffers> {
        let world_size = former.len() as u32;
        let of_rank = |(rank, saved): (u32, &Option<SnapshotRef>)| match saved {
            Some(saved) => self.find_one(RankShare { rank, world_size }, saved),
            None => Ok(None),
        };
        (0..).zip(former).map(of_rank).collect::<Result<_>>().map(FormerBuffers)
    }

    fn find_one(&mut self, share: RankShare, saved: &SnapshotRef) -> Result<Option<FormerBuffer>> {
        let base = self.options.directory.clone().ok_or_else(no_directory)?;
        let (path, saved) = (share.path(&base), *saved);
        if path == self.share.path(&base) {
            // An empty directory belongs to a new node. A directory with other snapshots belongs to another run.
            if self.bytes.store().is_some_and(|store| !store.snapshots().is_empty()) {
                let snapshot = self.snapshot(&saved)?;
                return Ok(Some(FormerBuffer { other_directory: None, saved, snapshot }));
            }
        } else {
            let store = ReadOnlyStore::new(path.clone());
            if let Some(bytes) = store.read_snapshot(saved.number)? {
                let snapshot = BufferSnapshot::of(&saved, &bytes, &path)?;
                return Ok(Some(FormerBuffer { other_directory: Some(store), saved, snapshot }));
            }
        }
        self.notices.warn_once("unreachable rehearsal", || {
            format!(
                "{} has no snapshot {} of rank {} of {}: the samples of that rank's rehearsal buffer are skipped; to \
                 keep them, copy that rank's directory there before the start",
                path.display(),
                saved.number,
                share.rank,
                share.world_size
            )
        });
        Ok(None)
    }

    /// Restores this rank's share of the former buffers, without the samples that were `withdrawn`. `lineage` has the
    /// numbers of this run and of the runs that it continues. A new directory gets the run number `run`.
    ///
    /// # Errors
    /// [`Error::Config`] if the directory has the states of another run, [`Error::Unavailable`] if the directory has
    /// too little space for the samples; I/O errors of the directories.
    pub(crate) fn restore_share(
        &mut self,
        former: &FormerBuffers,
        (run, lineage): (Option<u32>, Vec<u32>),
        withdrawn: &HashSet<u64>,
    ) -> Result<()> {
        let own = former.found().find(|former| former.other_directory.is_none());
        let are_all_there = former.0.iter().all(Option::is_some);
        if let (None, Some(store)) = (own, self.bytes.store()) {
            // A former attempt to resume from these states may have been killed, and this directory may be from that
            // attempt. If all former snapshots still exist, no state of that attempt was acknowledged, so the directory
            // can be used again.
            let is_earlier_try = are_all_there && lineage.contains(&store.run());
            if !store.snapshots().is_empty() && !is_earlier_try {
                return Err(has_states(store.path()));
            }
            store.set_run(run.unwrap_or_default())?;
        }
        self.lineage = lineage;
        self.revert_to(own.map(|own| (own.saved.number, ids_of(&own.snapshot))))?;
        self.merge_reservoirs(former)?;
        for &id in withdrawn {
            self.reservoir.withdraw(id, []);
        }
        self.copy_missing_bytes(former)?;
        let headers = || former.found().map(|former| &former.snapshot.header);
        // A new sample counts as later than all samples that were offered to any former rank.
        self.offered = headers().map(|header| header.offered).max().unwrap_or(0);
        self.failed = self.failed_of(headers());
        self.open_abandoned()?;
        if !withdrawn.is_empty() {
            self.withdraw(withdrawn)?;
        }
        Ok(())
    }

    fn merge_reservoirs(&mut self, former: &FormerBuffers) -> Result<()> {
        let options = (self.seed, self.options.by, self.options.capacity);
        let mut merged = Reservoir::new(self.seed, self.options.by, self.options.capacity)?;
        for FormerBuffer { snapshot, .. } in former.found() {
            let kept: Vec<KeptSample> =
                snapshot.kept.iter().filter(|kept| self.share.owns_id(kept.id)).copied().collect();
            let part = Reservoir::restore(options, snapshot.header.parts.iter().copied(), kept);
            let (part, _) = part.map_err(|what| {
                Error::Unavailable(format!("a snapshot of a former rank's buffer is invalid: {what}"))
            })?;
            merged.merge(part)?;
        }
        self.reservoir = merged;
        Ok(())
    }

    /// Copies the bytes of samples from the directories of other ranks. Damaged or missing samples are removed from the
    /// reservoir.
    fn copy_missing_bytes(&mut self, former: &FormerBuffers) -> Result<()> {
        let all = self.reservoir.len();
        let kept = self.reservoir.entries().map(|kept| kept.id);
        let mut wanted: IdSet = kept.filter(|&id| !self.bytes.has(id)).collect();
        for store in former.found().filter_map(|former| former.other_directory.as_ref()) {
            store.take(&mut wanted, |record| {
                self.bytes.keep(&Arc::new(record)).map_err(|error| match error {
                    Error::Unavailable(what) => Error::Unavailable(format!(
                        "{what}; until the first state of this run is acknowledged, the directory also keeps the \
                         samples of the former state: raise directory_size until then"
                    )),
                    error => error,
                })
            })?;
        }
        self.warn_missing(wanted.len(), all);
        for id in wanted {
            self.reservoir.withdraw(id, []);
        }
        Ok(())
    }

    fn failed_of<'a>(&self, headers: impl Iterator<Item = &'a SnapshotHeader>) -> VecDeque<(u64, Vec<u64>)> {
        let mut failed = BTreeMap::<u64, Vec<u64>>::new();
        for (step, ids) in headers.flat_map(|header| &header.failed) {
            failed.entry(*step).or_default().extend(ids.iter().filter(|id| self.share.owns_id(**id)));
        }
        failed.values_mut().for_each(|ids| ids.sort_unstable());
        failed.into_iter().filter(|(_, ids)| !ids.is_empty()).collect()
    }
}
