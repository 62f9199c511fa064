//! The plan of a stream. It takes the place of an epoch's schedule, and chooses samples step by step, a little ahead of
//! the consumer.
//!
//! A step's rehearsed samples are drawn before its new samples enter the buffer, so that no batch contains a sample
//! twice. Steps that were planned and not delivered can be taken back. So a state always describes the stream after the
//! last delivered step, and a new iteration plans the undelivered steps again. In a replay the steps of a journal
//! replace the decisions of the mixer, and the sources give the samples by key.

use super::agreement::StepAgreement;
use super::buffer::RehearsalBuffer;
use super::ingest::{IngestQueue, IngestView, SampleOutcome};
use super::journal::{self, JournalLine, JournalReader, JournalWriter};
use super::live::{LiveBytes, LiveTable};
use super::mix::{MixDecision, MixView, Mixer};
use super::share::RankShare;
use super::waiting::WaitingSample;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use data::schedule::{BatchEntry, Draw};
use std::collections::{HashSet, VecDeque};
use std::time::Instant;

pub(super) struct Plan {
    mixer: Mixer,
    buffer: Option<RehearsalBuffer>,
    order: RandomKey,
    batch_size: u64,
    pub(super) share: RankShare,
    pub(super) group: Option<StepAgreement>,
    next: u64,
    /// The steps that are planned and not delivered, in order.
    ahead: VecDeque<PlannedStep>,
    pub(super) journal: Option<JournalWriter>,
    /// Recent withdrawals: for each, the step before which it applies, and the ids of the samples.
    withdrawn: Vec<(u64, Vec<u64>)>,
    /// Withdrawals of a replay that are still to be done: for each, the step before which it is done, and the ids of
    /// the samples.
    due: Vec<(u64, Vec<u64>)>,
}

pub(super) struct PlannedStep {
    pub step: u64,
    pub entries: Vec<BatchEntry>,
    pub new: Vec<WaitingSample>,
    pub rehearsed: Vec<u64>,
    /// The mixer's counts before the step: the samples used so far, and how many of them were new.
    counts: (u64, u64),
}

/// The next batch of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextBatch {
    /// The samples of the batch, each with its place.
    Places(Vec<BatchEntry>),
    /// There are too few samples: ask again when samples arrive, or at this instant.
    NotYet(Option<Instant>),
    /// No more batches come.
    End,
}

impl Plan {
    pub(super) fn new(
        mixer: Mixer,
        buffer: Option<RehearsalBuffer>,
        seed: u64,
        batch_size: u32,
        next: u64,
    ) -> Self {
        let order = RandomKey::new(b"stream", seed, 0, Use::Order);
        Self {
            mixer,
            buffer,
            order,
            batch_size: batch_size.into(),
            share: RankShare::default(),
            group: None,
            next,
            ahead: VecDeque::new(),
            journal: None,
            withdrawn: Vec::new(),
            due: Vec::new(),
        }
    }

    pub(super) fn sync_journal(&mut self) -> Result<Option<u64>> {
        self.journal.as_mut().map(JournalWriter::sync).transpose()
    }

    pub(super) fn first_undelivered(&self) -> u64 {
        self.ahead.front().map_or(self.next, |step| step.step)
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        self.ahead.front().map_or_else(|| self.mixer.counts(), |step| step.counts)
    }

    pub(super) fn buffer(&mut self) -> Option<&mut RehearsalBuffer> {
        self.buffer.as_mut()
    }

    /// Plans `step`, or returns it if it is planned already.
    ///
    /// # Errors
    /// The error that ends the stream.
    pub(super) fn plan(&mut self, step: u64, ingest: &IngestQueue, live: &LiveTable) -> Result<NextBatch> {
        if let Some(planned) = self.planned(step) {
            return Ok(NextBatch::Places(planned.entries.clone()));
        }
        debug_assert_eq!(step, self.next, "steps are planned in order");
        let IngestView { waiting, ended } = ingest.look()?;
        let kept = self.buffer.as_ref().map_or(0, RehearsalBuffer::len);
        let view = MixView { waiting: waiting as u64, ended, kept, now: Instant::now() };
        let decided = self.mixer.decide(view);
        let decided = match &mut self.group {
            Some(group) => group.agree(step, decided, self.mixer.rehearsed_when_dry(kept))?,
            None => decided,
        };
        match decided {
            MixDecision::Wait(until) => Ok(NextBatch::NotYet(until)),
            MixDecision::End => Ok(NextBatch::End),
            MixDecision::Batch { new, rehearsed } => {
                let drawn = match &self.buffer {
                    Some(buffer) => buffer.draw(step, rehearsed),
                    None => Vec::new(),
                };
                let new = ingest.take(new as usize);
                self.compose(new, drawn, live).map(NextBatch::Places)
            }
        }
    }

    /// Plans `step` as a journal lists it, or returns it if it is planned already. `fetch` gets a sample again, by the
    /// index of its source and its key.
    ///
    /// # Errors
    /// [`Error::Config`] if the journal does not match the samples; the errors of `fetch`.
    pub(super) fn replay(
        &mut self,
        step: u64,
        journal: &mut JournalReader,
        live: &LiveTable,
        fetch: impl Fn(usize, &str) -> Result<WaitingSample>,
    ) -> Result<NextBatch> {
        if let Some(planned) = self.planned(step) {
            return Ok(NextBatch::Places(planned.entries.clone()));
        }
        let path = journal.path().to_owned();
        let astray = |what: String| Error::config("replay", format!("{}: {what}", path.display()));
        loop {
            match journal.take()? {
                None => return Ok(NextBatch::End),
                Some(JournalLine::Withdrawn { before, withdrawn }) => self.due.push((before, withdrawn)),
                // A run that resumes from a state skips the steps before its first step.
                Some(JournalLine::Step { step: other, .. }) if other < step => {}
                Some(JournalLine::Step { step: found, new, rehearsed: (count, digest) }) if found == step => {
                    for (_, ids) in self.due.extract_if(.., |(before, _)| *before <= step).collect::<Vec<_>>()
                    {
                        self.withdraw(&ids.into_iter().collect())?;
                    }
                    let mut samples = Vec::with_capacity(new.len());
                    for (source, key, crc) in new {
                        let sample = fetch(source, &key)?;
                        if sample.record.checksum() != crc {
                            return Err(astray(format!(
                                "the sample {key:?} of step {step} has changed since the journal was written"
                            )));
                        }
                        samples.push(sample);
                    }
                    let drawn = match &self.buffer {
                        Some(buffer) => buffer.draw(step, count as u32),
                        None => Vec::new(),
                    };
                    if (drawn.len() as u64, journal::digest(&drawn)) != (count, digest) {
                        return Err(astray(format!(
                            "step {step} rehearses different samples than in the journal: start the replay from the \
                             same state"
                        )));
                    }
                    return self.compose(samples, drawn, live).map(NextBatch::Places);
                }
                Some(other) => return Err(astray(format!("step {step} is missing; found {other:?}"))),
            }
        }
    }

    /// Withdraws samples from the rehearsal buffer, and returns how many it had kept.
    ///
    /// # Errors
    /// The errors of the rehearsal buffer and of the journal.
    pub(super) fn withdraw(&mut self, ids: &HashSet<u64>) -> Result<u64> {
        let mut sorted: Vec<u64> = ids.iter().copied().collect();
        sorted.sort_unstable();
        if let Some(journal) = &mut self.journal {
            journal.write(&JournalLine::Withdrawn { before: self.next, withdrawn: sorted.clone() })?;
        }
        let first = self.first_undelivered();
        self.withdrawn.retain(|(before, _)| *before > first);
        self.withdrawn.push((self.next, sorted));
        self.buffer.as_mut().map_or(Ok(0), |buffer| buffer.withdraw(ids))
    }

    pub(super) fn compose(
        &mut self,
        new: Vec<WaitingSample>,
        rehearsed: Vec<u64>,
        live: &LiveTable,
    ) -> Result<Vec<BatchEntry>> {
        let (step, counts) = (self.next, self.mixer.counts());
        let mut draws = Vec::with_capacity(new.len() + rehearsed.len());
        for sample in &new {
            let record = &sample.record;
            live.add_user(record.id, record.label, LiveBytes::Memory(record.clone()));
            draws.push(Draw::first(record.id));
        }
        if let Some(buffer) = &mut self.buffer {
            buffer.begin_step(step);
            for &id in &rehearsed {
                let stored = buffer.for_batch(id)?;
                live.add_user(id, stored.label, stored.bytes);
                draws.push(Draw { sample: id, occurrence: stored.uses });
            }
            buffer.rehearse(&rehearsed);
            for sample in &new {
                buffer.insert(&sample.record)?;
            }
        }
        let mut stream = self.order.stream(step);
        for last in (1..draws.len()).rev() {
            draws.swap(last, stream.below(last as u64 + 1) as usize);
        }
        // Positions are numbered over all ranks, so that image mixing has different random numbers on each rank.
        let first = (step * u64::from(self.share.world_size) + u64::from(self.share.rank)) * self.batch_size;
        let entry = |(place, draw)| BatchEntry { position: first + place, draw, valid: true };
        let entries: Vec<BatchEntry> = (0..).zip(draws).map(entry).collect();
        self.mixer.count(new.len() as u32, rehearsed.len() as u32);
        self.next += 1;
        self.ahead.push_back(PlannedStep { step, entries: entries.clone(), new, rehearsed, counts });
        Ok(entries)
    }

    /// The plan of `step`; `None` if the step is not planned or is already delivered.
    pub(super) fn planned(&self, step: u64) -> Option<&PlannedStep> {
        self.ahead.get(usize::try_from(step.checked_sub(self.first_undelivered())?).ok()?)
    }

    /// Marks `step` as delivered. `failed` are the samples that failed in its batch. Returns the planned step.
    ///
    /// # Errors
    /// [`Error::Internal`] for a step that is not the first planned one.
    pub(super) fn deliver(
        &mut self,
        step: u64,
        failed: &HashSet<u64>,
        ingest: &IngestQueue,
        live: &LiveTable,
    ) -> Result<PlannedStep> {
        let planned = self.ahead.pop_front().filter(|planned| planned.step == step);
        let out_of_order = || Error::Internal(format!("step {step} of a stream was delivered out of order"));
        let planned = planned.ok_or_else(out_of_order)?;
        if let Some(journal) = &mut self.journal {
            let new = planned.new.iter().map(|sample| {
                let record = &sample.record;
                (sample.source, record.key().to_owned(), record.checksum())
            });
            let rehearsed = (planned.rehearsed.len() as u64, journal::digest(&planned.rehearsed));
            journal.write(&JournalLine::Step { step, new: new.collect(), rehearsed })?;
        }
        let outcome =
            |id| if failed.contains(&id) { SampleOutcome::Failed } else { SampleOutcome::Delivered };
        ingest.settle(planned.new.iter().map(|sample| (sample.record.id, outcome(sample.record.id))));
        ingest.count_rehearsed(planned.rehearsed.len() as u64);
        planned.entries.iter().for_each(|entry| live.remove_user(entry.draw.sample));
        if let Some(buffer) = &mut self.buffer {
            buffer.confirm_step(failed)?;
        }
        Ok(planned)
    }

    /// Takes back all steps that are planned and not delivered: their new samples wait again.
    ///
    /// # Errors
    /// I/O errors of the journal; the errors of the rehearsal buffer.
    pub(super) fn take_back(&mut self, ingest: &IngestQueue, live: &LiveTable) -> Result<()> {
        let first = self.first_undelivered();
        if let Some(journal) = &mut self.journal {
            // A withdrawal before a later planned step now applies before the first undelivered step.
            for (_, ids) in self.withdrawn.drain(..).filter(|(before, _)| *before > first) {
                journal.write(&JournalLine::Withdrawn { before: first, withdrawn: ids })?;
            }
        }
        while let Some(planned) = self.ahead.pop_back() {
            if let Some(buffer) = &mut self.buffer {
                buffer.undo_step()?;
            }
            planned.entries.iter().for_each(|entry| live.remove_user(entry.draw.sample));
            ingest.put_back(planned.new.into_iter());
            self.mixer.set_counts(planned.counts);
            self.next = planned.step;
        }
        Ok(())
    }
}
