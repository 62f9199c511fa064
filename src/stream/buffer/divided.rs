//! The buffers of former ranks, more or fewer than there are now, divided among these.
//!
//! Each rank takes from all of them the samples whose ids, modulo the number of ranks, are its number. Reservoirs merge,
//! so its buffer is that of a rank which was offered these samples from the beginning. Nobody changes what a former
//! state needs before a state of this run is safely written: until then the same restart can be tried again.

use super::snapshot::{BufferSnapshot, SnapshotHeader};
use super::{RehearsalBuffer, no_directory};
use crate::error::{Error, Result};
use crate::stream::ids::IdSet;
use crate::stream::reservoir::{KeptSample, Reservoir};
use crate::stream::segments::ForeignStore;
use crate::stream::source::SourcePosition;
use crate::stream::sources::RankShare;
use crate::stream::state::SnapshotRef;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What a former rank saved.
struct FormerBuffer {
    /// Its directory; none where it is this rank's own.
    foreign: Option<ForeignStore>,
    snapshot: BufferSnapshot,
}

impl RehearsalBuffer {
    /// Goes on with this rank's part of what all former ranks saved. Returns the positions of each rank's sources, by
    /// rank: none where its directory is out of reach.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for snapshots that are not those of the states, and where there is no room for the
    /// samples; those of the directories.
    pub(in crate::stream) fn divide(
        &mut self,
        former: &[Option<SnapshotRef>],
    ) -> Result<Vec<Option<Vec<SourcePosition>>>> {
        let world_size = former.len() as u32;
        let mut found = Vec::new();
        for (rank, saved) in (0..).zip(former) {
            found.push(match saved {
                Some(saved) => self.find_former(RankShare { rank, world_size }, saved)?,
                None => None,
            });
        }
        let own = found.iter().zip(former).find_map(|(found, saved)| match (found, saved) {
            (Some(FormerBuffer { foreign: None, snapshot }), Some(saved)) => {
                Some((saved.number, super::ids_of(snapshot)))
            }
            _ => None,
        });
        self.go_back(own)?;
        let positions = found
            .iter()
            .map(|found| found.as_ref().map(|former| former.snapshot.header.positions.clone()))
            .collect();
        let found: Vec<FormerBuffer> = found.into_iter().flatten().collect();
        self.merge_parts(&found)?;
        self.bring_bytes(&found)?;
        let headers = || found.iter().map(|former| &former.snapshot.header);
        // A new sample counts as later than all that were offered to any of the former ranks.
        self.offered = headers().map(|header| header.offered).max().unwrap_or(0);
        self.failed = self.failed_of(headers());
        self.take_heirless(world_size)?;
        Ok(positions)
    }

    /// What a former rank saved; none where its directory is out of reach.
    fn find_former(&mut self, share: RankShare, saved: &SnapshotRef) -> Result<Option<FormerBuffer>> {
        let base = self.options.directory.clone().ok_or_else(no_directory)?;
        let path = share.path(&base);
        if path == self.share.path(&base) {
            // A new node's directory is empty; one with other snapshots is that of another run.
            if self.bytes.store().is_some_and(|store| !store.snapshots().is_empty()) {
                let snapshot = self.snapshot(saved)?;
                return Ok(Some(FormerBuffer { foreign: None, snapshot }));
            }
        } else {
            let store = ForeignStore::new(path.clone());
            if let Some(bytes) = store.read_snapshot(saved.number)? {
                let snapshot = BufferSnapshot::of(saved, &bytes, &path)?;
                return Ok(Some(FormerBuffer { foreign: Some(store), snapshot }));
            }
        }
        self.notices.warn_once("unreachable rehearsal", || {
            format!(
                "{} has no snapshot {}, which is of rank {} of {}: the run goes on without the samples of that rank's \
                 rehearsal buffer; to keep them, copy the directory there before",
                path.display(),
                saved.number,
                share.rank,
                share.world_size
            )
        });
        Ok(None)
    }

    /// Whether a sample of former buffers is this rank's now.
    fn takes(&self, id: u64) -> bool {
        id % u64::from(self.share.world_size) == u64::from(self.share.rank)
    }

    /// Makes the reservoir of this rank's part of all buffers.
    fn merge_parts(&mut self, former: &[FormerBuffer]) -> Result<()> {
        let options = (self.seed, self.options.by, self.options.capacity);
        let mut merged = Reservoir::new(self.seed, self.options.by, self.options.capacity)?;
        for FormerBuffer { snapshot, .. } in former {
            let kept: Vec<KeptSample> =
                snapshot.kept.iter().filter(|kept| self.takes(kept.id)).copied().collect();
            let part = Reservoir::restore(options, snapshot.header.reservoir_parts(), kept);
            let (part, _) = part.map_err(|what| {
                Error::Unavailable(format!("a snapshot of a former rank's buffer cannot be right: {what}"))
            })?;
            merged.merge(part)?;
        }
        self.reservoir = merged;
        Ok(())
    }

    /// Copies the bytes of samples that lie in other ranks' directories. What is damaged or gone leaves the reservoir.
    fn bring_bytes(&mut self, former: &[FormerBuffer]) -> Result<()> {
        let all = self.reservoir.len();
        let kept = self.reservoir.entries().map(|kept| kept.id);
        let mut wanted: IdSet = kept.filter(|&id| !self.bytes.has(id)).collect();
        for store in former.iter().filter_map(|former| former.foreign.as_ref()) {
            store.take(&mut wanted, |record| {
                self.bytes.keep(&Arc::new(record)).map_err(|error| match error {
                    Error::Unavailable(what) => Error::Unavailable(format!(
                        "{what}; until the first state of these ranks is acknowledged, a directory also has the \
                         samples of the former state: raise directory_size until then"
                    )),
                    error => error,
                })
            })?;
        }
        self.tell_missing(wanted.len(), all);
        for id in wanted {
            self.reservoir.withdraw(id, []);
        }
        Ok(())
    }

    /// The samples of this rank that failed, and the steps whose batches they were in.
    fn failed_of<'a>(
        &self,
        headers: impl Iterator<Item = &'a SnapshotHeader>,
    ) -> std::collections::VecDeque<(u64, Vec<u64>)> {
        let mut failed = BTreeMap::<u64, Vec<u64>>::new();
        for (step, ids) in headers.flat_map(|header| &header.failed) {
            failed.entry(*step).or_default().extend(ids.iter().filter(|id| self.takes(**id)));
        }
        failed.values_mut().for_each(|ids| ids.sort_unstable());
        failed.into_iter().filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// Takes the directories of former ranks that no rank has now.
    fn take_heirless(&mut self, former: u32) -> Result<()> {
        let Some(base) = self.options.directory.clone() else { return Ok(()) };
        let paths: Vec<PathBuf> = self.share.heirless(former).map(|share| share.path(&base)).collect();
        for path in paths.into_iter().filter(|path| path.exists()) {
            self.heirless.push(self.options.open_store(&path, &self.notices)?);
        }
        Ok(())
    }
}
