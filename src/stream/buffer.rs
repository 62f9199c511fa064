//! The rehearsal buffer: which samples are kept, and where their bytes are.
//!
//! The reservoir says which are kept. Bytes stay as long as the reservoir may ask for them, also after a step that is
//! planned and not delivered was taken back.

use super::live::SampleBytes;
use super::record::Record;
use super::reservoir::{Capacity, KeepBy, NO_CLASS, Offered, Reservoir, StepChange};
use super::source::SourcePosition;
use super::state::SnapshotRef;
use crate::dataset::FileId;
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice, Reader};
use crate::notices::Notices;
use crate::slot::SlotPool;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// After so many steps a sample that failed in a batch leaves the buffer. No step is planned so far ahead, so that what
/// is drawn does not depend on how far ahead steps are planned.
const FAILED_LEAVE_AFTER: u64 = 64;

/// What is kept, and where.
#[derive(Debug, Clone)]
pub(crate) struct RehearsalOptions {
    pub by: KeepBy,
    pub capacity: Capacity,
}

impl RehearsalOptions {
    /// What is kept, in words: states compare them.
    pub(super) fn words(&self) -> String {
        format!("{:?}, {:?}", self.by, self.capacity)
    }

    /// How the files of the buffer are called.
    pub(super) fn paths(_options: Option<&Self>) -> Box<dyn Fn(FileId) -> PathBuf + Send + Sync> {
        Box::new(|_| PathBuf::new())
    }
}

/// A sample of the buffer that a step rehearses.
pub(super) struct LentSample {
    pub label: Option<u32>,
    pub bytes: SampleBytes,
    /// How often it was used before.
    pub uses: u32,
}

/// The buffer.
pub(super) struct RehearsalBuffer {
    reservoir: Reservoir,
    /// The samples whose bytes are in memory.
    memory: HashMap<u64, Arc<Record>>,
    /// The samples that were offered.
    offered: u64,
    /// The steps that are planned and not delivered, in order.
    ahead: VecDeque<BufferStep>,
    /// The samples that failed, and the steps whose batches they were in.
    failed: VecDeque<(u64, Vec<u64>)>,
}

/// What a step did to the buffer.
struct BufferStep {
    step: u64,
    change: StepChange,
    /// The samples that gave way.
    evicted: Vec<u64>,
    offered: u64,
    is_open: bool,
}

impl RehearsalBuffer {
    pub(super) fn open(options: &RehearsalOptions, seed: u64, _notices: Notices) -> Result<Self> {
        Ok(Self {
            reservoir: Reservoir::new(seed, options.by, options.capacity)?,
            memory: HashMap::new(),
            offered: 0,
            ahead: VecDeque::new(),
            failed: VecDeque::new(),
        })
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
            offered: self.offered,
            is_open: true,
        };
        for (failed_in, ids) in &self.failed {
            if failed_in + FAILED_LEAVE_AFTER == step {
                for &id in ids {
                    if self.reservoir.discard(id, &mut began.change) {
                        began.evicted.push(id);
                    }
                }
            }
        }
        self.ahead.push_back(began);
    }

    /// The bytes of a sample that is kept.
    ///
    /// # Errors
    /// [`Error::Internal`] where it is not.
    pub(super) fn lend(&self, id: u64) -> Result<LentSample> {
        let none = || Error::Internal(format!("sample {id} is rehearsed and not kept"));
        let kept = self.reservoir.get(id).ok_or_else(none)?;
        let record = self.memory.get(&id).ok_or_else(none)?;
        Ok(LentSample {
            label: Some(kept.class).filter(|&class| class != NO_CLASS),
            bytes: SampleBytes::Memory(record.clone()),
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
    /// Those of the user's score.
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
        if outcome.kept {
            self.memory.insert(record.id, record.clone());
        }
        step.evicted.extend(outcome.evicted.iter().map(|kept| kept.id));
        Ok(())
    }

    /// Ends the step.
    pub(super) fn end_step(&mut self) {
        self.ahead.back_mut().expect("a step was begun").is_open = false;
    }

    /// Takes back the last step.
    pub(super) fn undo_step(&mut self) {
        let Some(BufferStep { change, offered, .. }) = self.ahead.pop_back() else { return };
        self.reservoir.undo(change);
        self.offered = offered;
    }

    /// Notes that the first of the steps was delivered, and that these of its samples failed.
    pub(super) fn confirm_step(&mut self, failed: &HashSet<u64>) -> Result<()> {
        let Some(BufferStep { step, evicted, .. }) = self.ahead.pop_front() else { return Ok(()) };
        for id in evicted {
            self.forget_bytes(id);
        }
        if !failed.is_empty() {
            self.failed.push_back((step, failed.iter().copied().collect()));
        }
        while self.failed.front().is_some_and(|(failed_in, _)| failed_in + FAILED_LEAVE_AFTER <= step) {
            self.failed.pop_front();
        }
        Ok(())
    }

    /// Drops samples that keep a batch from being delivered.
    pub(super) fn give_up(&mut self, ids: &[u64]) {
        for &id in ids {
            self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            self.memory.remove(&id);
        }
    }

    /// Forgets the bytes of a sample unless it is kept, or may be again.
    fn forget_bytes(&mut self, id: u64) {
        let may_return = self.ahead.iter().any(|step| step.evicted.contains(&id));
        if !self.reservoir.contains(id) && !may_return {
            self.memory.remove(&id);
        }
    }

    /// The bytes of a sample that is kept, read here and now.
    pub(super) fn read(&mut self, id: u64) -> Result<Vec<u8>> {
        let none = || Error::Internal(format!("sample {id} of a stream is not in use"));
        self.memory.get(&id).map(|record| record.bytes().to_vec()).ok_or_else(none)
    }

    /// Opens the reader of the buffer's files, where it has any.
    pub(super) fn open_reader(
        &mut self,
        _slots: &SlotPool,
        _io: IoChoice,
        _direct: Direct,
        _depth: usize,
    ) -> Result<Option<Box<dyn Reader>>> {
        Ok(None)
    }

    /// Withdraws samples, and returns how many were kept.
    pub(super) fn withdraw(&mut self, ids: &HashSet<u64>) -> Result<u64> {
        let mut withdrawn = 0;
        for &id in ids {
            let kept = self.reservoir.withdraw(id, self.ahead.iter_mut().map(|step| &mut step.change));
            self.memory.remove(&id);
            withdrawn += u64::from(kept.is_some());
        }
        Ok(withdrawn)
    }

    /// Saves what is kept after the last delivered step, and the positions of the sources.
    pub(super) fn save(&mut self, _positions: &[SourcePosition]) -> Result<Option<SnapshotRef>> {
        Ok(None)
    }

    /// Goes on with what was saved, and returns the positions of the sources.
    pub(super) fn restore(&mut self, _snapshot: &SnapshotRef) -> Result<Vec<SourcePosition>> {
        Ok(Vec::new())
    }

    /// The positions of the sources that were saved.
    pub(super) fn positions(&self, _snapshot: &SnapshotRef) -> Result<Vec<SourcePosition>> {
        Ok(Vec::new())
    }

    /// Forgets what was saved before the snapshot with this number.
    pub(super) fn forget_before(&mut self, _number: u64) -> Result<()> {
        Ok(())
    }
}
