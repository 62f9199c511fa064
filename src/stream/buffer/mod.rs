//! The rehearsal buffer (for experience replay): which earlier samples are kept, and where their bytes are.
//!
//! The reservoir decides which samples are kept. The bytes of a sample stay while the reservoir may need them. This
//! includes samples that return if a planned step is undone, and the samples of snapshots from which training can
//! resume. Steps are undone from the last to the first.

mod divided;
mod saved;
mod snapshot;
mod storage;

use super::ids::IdSet;
use super::live::{LiveBytes, LiveTable};
use super::record::Record;
use super::reservoir::{Capacity, KeepBy, NO_CLASS, Offered, Reservoir, StepChange};
use super::segments::{ReadOnlyStore, SegmentOptions, SegmentStore};
use super::share::RankShare;
use base::error::{Error, Result};
use base::notices::Notices;
use saved::has_states;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::SampleStorage;

/// The number of steps after which a sample that failed in a batch leaves the buffer. Always fewer steps than this are
/// planned ahead, so the drawn samples do not depend on how far ahead steps are planned.
const FAILED_LEAVE_AFTER: u64 = 64;

/// The settings of the rehearsal buffer.
#[derive(Debug, Clone)]
pub struct RehearsalOptions {
    pub by: KeepBy,
    pub capacity: Capacity,
    /// The directory with the bytes of all kept samples; `None` to keep them in memory. If there are several ranks, the
    /// rank is appended to the directory's name.
    pub directory: Option<PathBuf>,
    /// The quota of the directory in bytes.
    pub directory_bytes: u64,
    /// The maximum number of bytes of kept samples that are in memory in addition to the directory.
    pub memory_bytes: u64,
    /// The maximum number of saved states that are not acknowledged yet. Each keeps a snapshot in the directory.
    pub keep_states: usize,
}

impl RehearsalOptions {
    /// The settings as text. A state can be loaded only if its text is the same.
    pub(super) fn words(&self) -> String {
        format!("{:?}, {:?}", self.by, self.capacity)
    }

    fn open_store(&self, path: &Path, notices: &Notices) -> Result<SegmentStore> {
        // A snapshot takes about thirty bytes per sample, and several snapshots may be kept.
        let snapshot_bytes = self.directory_bytes / 16;
        let settings = SegmentOptions::new(path, self.directory_bytes, "rehearsal.directory_size");
        SegmentStore::open(&SegmentOptions { snapshot_bytes, ..settings }, notices)
    }
}

pub(super) struct BatchSample {
    pub label: Option<u32>,
    pub bytes: LiveBytes,
    /// The number of earlier uses.
    pub uses: u32,
}

pub(super) struct RehearsalBuffer {
    options: RehearsalOptions,
    share: RankShare,
    seed: u64,
    reservoir: Reservoir,
    pub(super) bytes: SampleStorage,
    offered: u64,
    /// The steps that are planned and not delivered, in order.
    ahead: VecDeque<BufferStep>,
    /// The failed samples: for each step, the ids of the samples that failed in its batch.
    failed: VecDeque<(u64, Vec<u64>)>,
    /// The sorted ids of the samples in each snapshot.
    snapshots: BTreeMap<u64, Vec<u64>>,
    /// The snapshot of the latest state that is known to be safely written.
    acknowledged: Option<u64>,
    /// This run and the runs that it continues. A directory with the name of a rank's directory belongs to this run if
    /// its run number is in this list.
    pub(super) lineage: Vec<u32>,
    /// Directories of this run whose ranks no longer exist. They stay until a state of this run is safely written.
    abandoned: Vec<SegmentStore>,
    notices: Notices,
}

struct BufferStep {
    step: u64,
    change: StepChange,
    evicted: Vec<u64>,
    inserted: Vec<u64>,
    /// The number of samples that had been offered before this step.
    offered: u64,
}

impl RehearsalBuffer {
    pub(super) fn open(
        options: &RehearsalOptions,
        seed: u64,
        share: RankShare,
        live: &Arc<LiveTable>,
        notices: Notices,
    ) -> Result<Self> {
        let store = options.directory.as_ref().map(|path| options.open_store(&share.path(path), &notices));
        let bytes = SampleStorage::new(store.transpose()?, options.memory_bytes, live.clone());
        Ok(Self {
            options: options.clone(),
            share,
            seed,
            reservoir: Reservoir::new(seed, options.by, options.capacity)?,
            bytes,
            offered: 0,
            ahead: VecDeque::new(),
            failed: VecDeque::new(),
            snapshots: BTreeMap::new(),
            acknowledged: None,
            lineage: Vec::new(),
            abandoned: Vec::new(),
            notices,
        })
    }

    /// Begins with an empty buffer, and removes the samples that a run without saved states left in the directory.
    ///
    /// # Errors
    /// [`Error::Config`] for a directory with snapshots, from which a run may resume.
    pub(super) fn begin_empty(&mut self) -> Result<()> {
        let Some(store) = self.bytes.store() else { return Ok(()) };
        if !store.snapshots().is_empty() {
            return Err(has_states(store.path()));
        }
        let run = RandomState::new().hash_one(store.path()) as u32 | 1;
        store.set_run(run)?;
        self.lineage = vec![run];
        self.bytes.retain_on_disk(&IdSet::default())
    }

    fn open_abandoned(&mut self) -> Result<()> {
        let Some(base) = self.options.directory.clone() else { return Ok(()) };
        for path in self.share.abandoned(&base) {
            if ReadOnlyStore::new(&path).run().is_some_and(|run| self.lineage.contains(&run)) {
                self.abandoned.push(self.options.open_store(&path, &self.notices)?);
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        self.reservoir.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.reservoir.bytes()
    }

    pub(super) fn draw(&self, step: u64, count: u32) -> Vec<u64> {
        self.reservoir.draw(step, count as usize)
    }

    /// Begins a step, and evicts samples that failed long ago.
    pub(super) fn begin_step(&mut self, step: u64) {
        let mut began = BufferStep {
            step,
            change: StepChange::default(),
            evicted: Vec::new(),
            inserted: Vec::new(),
            offered: self.offered,
        };
        let due = self.failed.iter().filter(|(failed_in, _)| failed_in + FAILED_LEAVE_AFTER == step);
        for &id in due.flat_map(|(_, ids)| ids) {
            if self.reservoir.discard(id, &mut began.change) {
                began.evicted.push(id);
            }
        }
        self.ahead.push_back(began);
    }

    /// The bytes and the label of a kept sample, for a batch.
    ///
    /// # Errors
    /// [`Error::Internal`] if the sample is not kept; I/O errors of the directory.
    pub(super) fn for_batch(&self, id: u64) -> Result<BatchSample> {
        let none = || Error::Internal(format!("sample {id} is rehearsed, but not stored"));
        let kept = self.reservoir.get(id).ok_or_else(none)?;
        Ok(BatchSample {
            label: Some(kept.class).filter(|&class| class != NO_CLASS),
            bytes: self.bytes.for_batch(id)?,
            // The first use, as a new sample, counts too.
            uses: kept.uses + 1,
        })
    }

    pub(super) fn rehearse(&mut self, ids: &[u64]) {
        let step = self.ahead.back_mut().expect("a step was begun");
        self.reservoir.used(ids, &mut step.change);
    }

    /// Offers a new sample of the step to the reservoir.
    ///
    /// # Errors
    /// An invalid score of the user; I/O errors of the directory.
    pub(super) fn insert(&mut self, record: &Arc<Record>) -> Result<()> {
        let step = self.ahead.back_mut().expect("a step was begun");
        let offered = Offered {
            id: record.id,
            class: record.label,
            bytes: record.bytes().len() as u32,
            weight: record.weight,
            ordinal: self.offered,
        };
        self.offered += 1;
        let outcome = self.reservoir.offer(&offered, &mut step.change)?;
        step.evicted.extend(outcome.evicted.iter().map(|kept| kept.id));
        if outcome.kept {
            step.inserted.push(record.id);
            self.bytes.keep(record)?;
        }
        Ok(())
    }

    /// Undoes the latest planned step.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn undo_step(&mut self) -> Result<()> {
        let Some(BufferStep { change, offered, inserted, .. }) = self.ahead.pop_back() else { return Ok(()) };
        self.reservoir.undo(change);
        self.offered = offered;
        inserted.into_iter().try_for_each(|id| self.forget_bytes(id))
    }

    /// Confirms that the first planned step was delivered. `failed` are the samples that failed in its batch.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn confirm_step(&mut self, failed: &HashSet<u64>) -> Result<()> {
        let Some(BufferStep { step, evicted, .. }) = self.ahead.pop_front() else { return Ok(()) };
        if !failed.is_empty() {
            let mut failed: Vec<u64> = failed.iter().copied().collect();
            failed.sort_unstable();
            self.failed.push_back((step, failed));
        }
        while self.failed.front().is_some_and(|(failed_in, _)| failed_in + FAILED_LEAVE_AFTER <= step) {
            self.failed.pop_front();
        }
        evicted.into_iter().try_for_each(|id| self.forget_bytes(id))
    }

    /// Drops samples that keep a batch from being delivered.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn give_up(&mut self, ids: &[u64]) -> Result<()> {
        for &id in ids {
            self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            self.forget_bytes(id)?;
        }
        Ok(())
    }

    /// Drops the bytes of a sample, unless the sample is kept, may return when a step is undone, or is in a snapshot.
    fn forget_bytes(&mut self, id: u64) -> Result<()> {
        let may_return = self.ahead.iter().any(|step| step.evicted.contains(&id));
        let is_saved = || self.snapshots.values().any(|saved| saved.binary_search(&id).is_ok());
        if self.reservoir.contains(id) || may_return || is_saved() {
            return Ok(());
        }
        self.bytes.forget(id)
    }

    /// Withdraws samples, and returns how many were kept. No file in the directory contains their bytes afterwards.
    ///
    /// # Errors
    /// I/O errors of the directory.
    pub(super) fn withdraw(&mut self, ids: &HashSet<u64>) -> Result<u64> {
        let mut withdrawn = 0;
        for &id in ids {
            let kept = self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            withdrawn += u64::from(kept.is_some());
        }
        self.bytes.withdraw(ids)?;
        for store in &mut self.abandoned {
            store.withdraw(ids, &mut Vec::new())?;
        }
        for saved in self.snapshots.values_mut() {
            saved.retain(|id| !ids.contains(id));
        }
        Ok(withdrawn)
    }
}
