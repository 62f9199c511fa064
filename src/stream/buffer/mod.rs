//! The rehearsal buffer: which samples are kept, and where their bytes are.
//!
//! The reservoir says which are kept. Bytes stay as long as the reservoir may ask for them, also after a step that is
//! planned and not delivered was taken back, and as long as a snapshot has them that a training may go back to.

mod divided;
mod kept;
mod saved;
mod snapshot;

use super::ids::IdSet;
use super::live::{LiveBytes, LiveTable};
use super::record::Record;
use super::reservoir::{Capacity, KeepBy, NO_CLASS, Offered, Reservoir, StepChange};
use super::segments::{ForeignStore, SegmentOptions, SegmentStore};
use super::share::RankShare;
use base::error::{Error, Result};
use base::notices::Notices;
use base::slot::SlotPool;
use kept::KeptBytes;
use saved::has_states;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::io::{Direct, IoChoice, Reader};

/// After so many steps a sample that failed in a batch leaves the buffer. No step is planned so far ahead, so that what
/// is drawn does not depend on how far ahead steps are planned.
const FAILED_LEAVE_AFTER: u64 = 64;

/// What is kept, and where.
#[derive(Debug, Clone)]
pub struct RehearsalOptions {
    pub by: KeepBy,
    pub capacity: Capacity,
    /// The directory that has the bytes of all kept samples; none where memory has them. Where there are several ranks,
    /// their numbers follow its name.
    pub directory: Option<PathBuf>,
    /// The bytes that the directory may take.
    pub directory_bytes: u64,
    /// The bytes of kept samples that are in memory, too, where there is a directory.
    pub memory_bytes: u64,
    /// How many states may wait to be acknowledged.
    pub keep_states: usize,
}

impl RehearsalOptions {
    /// What is kept, in words: states compare them.
    pub(super) fn words(&self) -> String {
        format!("{:?}, {:?}", self.by, self.capacity)
    }

    /// Opens the directory of a rank.
    fn open_store(&self, path: &Path, notices: &Notices) -> Result<SegmentStore> {
        // A snapshot has some thirty bytes of each sample, and several may be kept.
        let snapshot_bytes = self.directory_bytes / 16;
        let settings = SegmentOptions::new(path, self.directory_bytes, "rehearsal.directory_size");
        SegmentStore::open(&SegmentOptions { snapshot_bytes, ..settings }, notices)
    }
}

/// A sample of the buffer that a step rehearses.
pub(super) struct LentSample {
    pub label: Option<u32>,
    pub bytes: LiveBytes,
    /// How often it was used before.
    pub uses: u32,
}

/// The buffer.
pub(super) struct RehearsalBuffer {
    options: RehearsalOptions,
    share: RankShare,
    seed: u64,
    reservoir: Reservoir,
    bytes: KeptBytes,
    /// The samples that were offered.
    offered: u64,
    /// The steps that are planned and not delivered, in order.
    ahead: VecDeque<BufferStep>,
    /// The samples that failed, and the steps whose batches they were in.
    failed: VecDeque<(u64, Vec<u64>)>,
    /// The samples that each snapshot has, sorted.
    snapshots: BTreeMap<u64, Vec<u64>>,
    /// The snapshot of the latest state that is known to be safely written.
    acknowledged: Option<u64>,
    /// The runs whose directories this one goes on from, with its own: what is called like a directory of a rank and is
    /// of one of these is this run's.
    lineage: Vec<u32>,
    /// Such directories that no rank has now. They stay until a state of this run is safely written.
    forsaken: Vec<SegmentStore>,
    notices: Notices,
}

/// What a step did to the buffer.
struct BufferStep {
    step: u64,
    change: StepChange,
    /// The samples that gave way, and those that came.
    evicted: Vec<u64>,
    inserted: Vec<u64>,
    /// The samples that had been offered before.
    offered: u64,
}

impl RehearsalBuffer {
    /// The empty buffer of a rank.
    ///
    /// # Errors
    /// Those of the directory.
    pub(super) fn open(
        options: &RehearsalOptions,
        seed: u64,
        share: RankShare,
        live: &Arc<LiveTable>,
        notices: Notices,
    ) -> Result<Self> {
        let store = options.directory.as_ref().map(|path| options.open_store(&share.path(path), &notices));
        let bytes = KeptBytes::new(store.transpose()?, options.memory_bytes, live.clone());
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
            forsaken: Vec::new(),
            notices,
        })
    }

    /// Begins with nothing, although the directory may have something of a run that was never saved.
    ///
    /// # Errors
    /// [`Error::Config`] for a directory with snapshots, which somebody may want to go on with.
    pub(super) fn begin_empty(&mut self) -> Result<()> {
        let Some(store) = self.bytes.store() else { return Ok(()) };
        if !store.snapshots().is_empty() {
            return Err(has_states(store.path()));
        }
        let run = RandomState::new().hash_one(store.path()) as u32 | 1;
        store.set_run(run)?;
        self.lineage = vec![run];
        self.bytes.take_over(&IdSet::default())
    }

    /// The runs whose directories are this one's.
    pub(super) fn lineage(&self) -> &[u32] {
        &self.lineage
    }

    /// Takes the directories of this run that no rank has now.
    fn take_forsaken(&mut self) -> Result<()> {
        let Some(base) = self.options.directory.clone() else { return Ok(()) };
        for path in self.share.forsaken(&base) {
            if ForeignStore::new(&path).run().is_some_and(|run| self.lineage.contains(&run)) {
                self.forsaken.push(self.options.open_store(&path, &self.notices)?);
            }
        }
        Ok(())
    }

    /// The number of samples that are kept.
    pub(super) fn len(&self) -> u64 {
        self.reservoir.len() as u64
    }

    /// The bytes of the samples that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.reservoir.bytes()
    }

    /// The samples that `step` rehearses.
    pub(super) fn draw(&self, step: u64, count: u32) -> Vec<u64> {
        self.reservoir.draw(step, count as usize)
    }

    /// Begins a step: samples that failed long ago leave.
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

    /// The bytes of a sample that is kept.
    ///
    /// # Errors
    /// [`Error::Internal`] where it is not; those of the directory.
    pub(super) fn lend(&self, id: u64) -> Result<LentSample> {
        let none = || Error::Internal(format!("sample {id} is rehearsed and not kept"));
        let kept = self.reservoir.get(id).ok_or_else(none)?;
        Ok(LentSample {
            label: Some(kept.class).filter(|&class| class != NO_CLASS),
            bytes: self.bytes.lend(id)?,
            // It was used when it was new, too.
            uses: kept.uses + 1,
        })
    }

    /// Notes that the step rehearses these samples.
    pub(super) fn rehearse(&mut self, ids: &[u64]) {
        let step = self.ahead.back_mut().expect("a step was begun");
        self.reservoir.used(ids, &mut step.change);
    }

    /// Offers a new sample of the step to the buffer.
    ///
    /// # Errors
    /// Those of the user's score and of the directory.
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

    /// Takes back the last step.
    ///
    /// # Errors
    /// Those of the directory.
    pub(super) fn undo_step(&mut self) -> Result<()> {
        let Some(BufferStep { change, offered, inserted, .. }) = self.ahead.pop_back() else { return Ok(()) };
        self.reservoir.undo(change);
        self.offered = offered;
        inserted.into_iter().try_for_each(|id| self.forget_bytes(id))
    }

    /// Notes that the first of the steps was delivered, and that these of its samples failed.
    ///
    /// # Errors
    /// Those of the directory.
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
    /// Those of the directory.
    pub(super) fn give_up(&mut self, ids: &[u64]) -> Result<()> {
        for &id in ids {
            self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            self.forget_bytes(id)?;
        }
        Ok(())
    }

    /// Forgets the bytes of a sample unless it is kept, or may be again.
    fn forget_bytes(&mut self, id: u64) -> Result<()> {
        let may_return = self.ahead.iter().any(|step| step.evicted.contains(&id));
        let is_saved = || self.snapshots.values().any(|saved| saved.binary_search(&id).is_ok());
        if self.reservoir.contains(id) || may_return || is_saved() {
            return Ok(());
        }
        self.bytes.forget(id)
    }

    /// The bytes of a sample that is kept, read here and now.
    ///
    /// # Errors
    /// Those of the directory.
    pub(super) fn read(&self, id: u64) -> Result<Vec<u8>> {
        self.bytes.read(id)
    }

    /// Opens the reader of the buffer's files, where it has any.
    ///
    /// # Errors
    /// Those of readers.
    pub(super) fn open_reader(
        &self,
        slots: &SlotPool,
        io: IoChoice,
        direct: Direct,
        depth: usize,
    ) -> Result<Option<Box<dyn Reader>>> {
        self.bytes.open_reader(slots, io, direct, depth)
    }

    /// Withdraws samples, and returns how many were kept. No file below the directory has their bytes any more.
    ///
    /// # Errors
    /// Those of the directory.
    pub(super) fn withdraw(&mut self, ids: &HashSet<u64>) -> Result<u64> {
        let mut withdrawn = 0;
        for &id in ids {
            let kept = self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            withdrawn += u64::from(kept.is_some());
        }
        self.bytes.withdraw(ids)?;
        for store in &mut self.forsaken {
            store.withdraw(ids, &mut Vec::new())?;
        }
        for saved in self.snapshots.values_mut() {
            saved.retain(|id| !ids.contains(id));
        }
        Ok(withdrawn)
    }
}
