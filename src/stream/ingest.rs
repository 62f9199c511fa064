//! The ingest queue (`IngestQueue`): the samples that wait, the sample counters and the progress of all sources.
//!
//! The threads of the sources add samples, and the plan takes them. All of this changes under one lock, so the counters
//! balance at every instant. → `ingest/tests.rs`

mod positions;
mod spilling;

pub(super) use positions::IngestPositions;

use super::counters::StreamCounters;
use super::record::{Record, unusable};
use super::source::{Arrival, Replay, SourcePosition};
use super::source_progress::SourceProgress;
use super::spill::{Spill, SpilledSample};
use super::waiting::{StreamPolicy, WaitingSample, WaitingSamples};
use base::error::{Error, Result};
use base::notices::Notices;
use base::trace::Histogram;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct IngestOptions {
    pub policy: StreamPolicy,
    pub seed: u64,
    /// The maximum bytes of the samples that wait in memory.
    pub most_bytes: u64,
    /// The number of samples that may wait in memory regardless of their size.
    pub always_admitted: usize,
    /// Whether samples must have a class.
    pub labeled: bool,
    /// Whether a sample that cannot be used ends the run.
    pub raises: bool,
    /// Where samples wait when memory is full, with [`StreamPolicy::Spill`].
    pub spill: Option<Spill>,
    pub notices: Notices,
}

pub(super) struct IngestQueue {
    options: IngestOptions,
    state: Mutex<IngestState>,
    /// Signals that there is free space again or that the queue is closed.
    space_freed: Condvar,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct IngestState {
    waiting: WaitingSamples,
    /// The samples that wait in the directory, by their arrival numbers. All of them arrived after the samples in
    /// memory.
    spilled: BTreeMap<u64, SpilledSample>,
    /// Samples for which neither memory nor the directory has space. They arrived after all spilled samples.
    overflow: VecDeque<WaitingSample>,
    counters: StreamCounters,
    sources: Vec<SourceProgress>,
    names: Vec<String>,
    ended: Vec<bool>,
    /// The ids of the samples that wait or are on their way to a batch.
    present: HashSet<u64>,
    taken: HashMap<u64, TakenSample>,
    /// The ids of the withdrawn samples, whether they have arrived or not.
    withdrawn: HashSet<u64>,
    arrivals: u64,
    failure: Option<Error>,
    closed: bool,
    latencies: Histogram,
}

struct TakenSample {
    source: usize,
    number: u64,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleOutcome {
    Delivered,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IngestView {
    pub waiting: usize,
    pub ended: bool,
}

impl IngestQueue {
    pub(super) fn new(
        options: IngestOptions,
        sources: Vec<(String, Replay, SourcePosition)>,
        counters: StreamCounters,
    ) -> Arc<Self> {
        let IngestOptions { policy, seed, most_bytes, always_admitted, .. } = options;
        let (mut names, mut sources_progress) = (Vec::new(), Vec::new());
        for (name, replay, position) in sources {
            names.push(name);
            sources_progress.push(SourceProgress::new(replay, position));
        }
        let state = IngestState {
            waiting: WaitingSamples::new(policy, seed, most_bytes, always_admitted),
            spilled: BTreeMap::new(),
            overflow: VecDeque::new(),
            counters,
            ended: vec![false; names.len()],
            sources: sources_progress,
            names,
            present: HashSet::new(),
            taken: HashMap::new(),
            withdrawn: HashSet::new(),
            arrivals: counters.received,
            failure: None,
            closed: false,
            latencies: Histogram::default(),
        };
        Arc::new(Self {
            options,
            state: Mutex::new(state),
            space_freed: Condvar::new(),
            wake: OnceLock::new(),
        })
    }

    pub(super) fn set_waker(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(wake);
    }

    /// Waits up to `patience` until there is space for more samples. With a policy that drops samples there is always
    /// space.
    ///
    /// # Errors
    /// I/O errors of the spill directory.
    pub(super) fn wait_for_space(&self, patience: Duration) -> Result<SpaceStatus> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if state.closed {
                return Ok(SpaceStatus::Closed);
            }
            let has_space = match (self.options.policy, &self.options.spill) {
                (StreamPolicy::Block, _) => state.waiting.has_space(),
                (_, Some(spill)) => {
                    self.spill_overflow(&mut state, spill)?;
                    state.overflow.is_empty()
                }
                (_, None) => true,
            };
            if has_space {
                return Ok(SpaceStatus::Available);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(SpaceStatus::Full);
            }
            state = self.space_freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn arrive(&self, source: usize, arrivals: impl Iterator<Item = Arrival>) -> Result<()> {
        let mut state = self.lock();
        for arrival in arrivals {
            let Some(sample) = self.admit_arrival(&mut state, source, arrival) else { continue };
            match &self.options.spill {
                Some(spill) => {
                    state.overflow.push_back(sample);
                    self.spill_overflow(&mut state, spill)?;
                }
                None => self.add(&mut state, sample),
            }
        }
        drop(state);
        self.space_freed.notify_all();
        self.wake_planner();
        Ok(())
    }

    fn admit_arrival(
        &self,
        state: &mut IngestState,
        source: usize,
        Arrival { key, record, gap }: Arrival,
    ) -> Option<WaitingSample> {
        state.counters.missing += gap;
        let record = match record {
            Ok(record) if self.options.labeled && record.label.is_none() => Err(NO_CLASS.to_owned()),
            record => record,
        };
        if let Ok(record) = &record
            && state.present.contains(&record.id)
        {
            state.counters.repeated += 1;
            return None;
        }
        // `None`: the sample was settled before the source resumed, so it is not counted again.
        let number = state.sources[source].add(&key)?;
        state.counters.received += 1;
        let record = match record {
            Ok(record) => record,
            Err(what) => {
                state.counters.failed += 1;
                state.sources[source].settle(number);
                let error = unusable(&state.names[source], &key, &what);
                self.refuse(state, error);
                return None;
            }
        };
        if state.withdrawn.contains(&record.id) {
            state.counters.withdrawn += 1;
            state.sources[source].settle(number);
            return None;
        }
        state.counters.queued += 1;
        state.present.insert(record.id);
        let arrival = state.arrivals;
        state.arrivals += 1;
        let record = Arc::new(record);
        Some(WaitingSample { arrival, source, number, record, since: Instant::now() })
    }

    fn add(&self, state: &mut IngestState, sample: WaitingSample) {
        state.waiting.add(sample);
        if matches!(self.options.policy, StreamPolicy::DropOldest | StreamPolicy::DropRandom) {
            while state.waiting.overflows() {
                let Some(dropped) = state.waiting.drop_one() else { break };
                state.counters.queued -= 1;
                state.counters.dropped += 1;
                state.settle_unused(&dropped);
                self.options.notices.inform_once("dropped samples", || {
                    let policy = base::names::NamedValue::name(self.options.policy);
                    format!(
                        "samples arrive faster than they are used, so policy=\"{policy}\" drops some: see \
                         `stats()[\"stream\"][\"dropped\"]`"
                    )
                });
            }
        }
    }

    /// Handles a sample that cannot be used: ends the run if `raises` is set, otherwise warns once.
    fn refuse(&self, state: &mut IngestState, error: Error) {
        if self.options.raises {
            state.failure.get_or_insert(error);
        } else {
            self.options.notices.warn_once("unusable arrivals", || {
                format!("{error}; it and others like it are skipped: see `stats()[\"stream\"][\"failed\"]`")
            });
        }
    }

    pub(super) fn end(&self, source: usize) {
        self.lock().ended[source] = true;
        self.wake_planner();
    }

    pub(super) fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
        self.wake_planner();
    }

    /// Returns how many samples can be taken now, and whether the stream has ended.
    ///
    /// # Errors
    /// The error that ends the stream. Only the first call returns the error.
    pub(super) fn look(&self) -> Result<IngestView> {
        let mut state = self.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let nothing_comes_back = state.spilled.is_empty() && state.overflow.is_empty();
        Ok(IngestView {
            waiting: state.waiting.len(),
            ended: state.ended.iter().all(|&ended| ended) && nothing_comes_back,
        })
    }

    /// Takes the `count` samples that have waited longest. They count as queued until [`IngestQueue::settle`].
    pub(super) fn take(&self, count: usize) -> Vec<WaitingSample> {
        let mut state = self.lock();
        let taken = state.waiting.take(count);
        for WaitingSample { source, number, record, since, .. } in &taken {
            let sample = TakenSample { source: *source, number: *number, since: *since };
            state.taken.insert(record.id, sample);
        }
        drop(state);
        self.space_freed.notify_all();
        taken
    }

    /// Adds a sample that was fetched for a replay, as if it had been taken.
    ///
    /// # Errors
    /// [`Error::Config`] for a sample that is on its way to a batch already, or was settled before.
    pub(super) fn admit(&self, source: usize, record: Record) -> Result<WaitingSample> {
        let mut state = self.lock();
        let record = Arc::new(record);
        let twice = || {
            let message =
                format!("has the sample {:?} twice, or the loaded state has already used it", record.key());
            Error::config("replay", message)
        };
        if state.present.contains(&record.id) {
            return Err(twice());
        }
        let number = state.sources[source].add(record.key()).ok_or_else(twice)?;
        state.counters.received += 1;
        state.counters.queued += 1;
        state.present.insert(record.id);
        let (arrival, since) = (state.arrivals, Instant::now());
        state.arrivals += 1;
        state.taken.insert(record.id, TakenSample { source, number, since });
        Ok(WaitingSample { arrival, source, number, record, since })
    }

    pub(super) fn put_back(&self, samples: impl Iterator<Item = WaitingSample>) {
        let mut state = self.lock();
        for sample in samples {
            if state.taken.remove(&sample.record.id).is_none() {
                continue;
            }
            if state.withdrawn.contains(&sample.record.id) {
                state.counters.queued -= 1;
                state.counters.withdrawn += 1;
                state.settle_unused(&sample);
            } else {
                state.waiting.add(sample);
            }
        }
    }

    pub(super) fn settle(&self, samples: impl Iterator<Item = (u64, SampleOutcome)>) {
        let (mut state, now) = (self.lock(), Instant::now());
        for (id, outcome) in samples {
            let Some(TakenSample { source, number, since }) = state.taken.remove(&id) else { continue };
            state.present.remove(&id);
            state.sources[source].settle(number);
            state.counters.queued -= 1;
            match outcome {
                SampleOutcome::Delivered => {
                    state.counters.delivered += 1;
                    state.latencies.record(now - since);
                }
                SampleOutcome::Failed => state.counters.failed += 1,
            }
        }
    }

    pub(super) fn count_rehearsed(&self, count: u64) {
        self.lock().counters.rehearsed += count;
    }

    /// Withdraws the samples with these `ids` that wait now or arrive later. Returns how many waiting samples were
    /// withdrawn.
    ///
    /// # Errors
    /// I/O errors of the spill directory.
    pub(super) fn withdraw(&self, ids: &HashSet<u64>) -> Result<u64> {
        let mut state = self.lock();
        state.withdrawn.extend(ids);
        let arrivals: Vec<u64> = state
            .spilled
            .iter()
            .filter(|(_, sample)| ids.contains(&sample.id))
            .map(|(arrival, _)| *arrival)
            .collect();
        let spilled: Vec<SpilledSample> =
            arrivals.iter().filter_map(|arrival| state.spilled.remove(arrival)).collect();
        for SpilledSample { source, number, id, .. } in &spilled {
            state.counters.spilled -= 1;
            state.counters.withdrawn += 1;
            state.settle(*source, *number, *id);
        }
        let mut withdrawn = state.waiting.take_all(|record| ids.contains(&record.id));
        let (found, kept) =
            std::mem::take(&mut state.overflow).into_iter().partition(|of| ids.contains(&of.record.id));
        withdrawn.extend::<VecDeque<_>>(found);
        state.overflow = kept;
        for sample in &withdrawn {
            state.counters.queued -= 1;
            state.counters.withdrawn += 1;
            state.settle_unused(sample);
        }
        if let Some(spill) = &self.options.spill {
            // The bytes of a sample that was read back are still in the directory until its segment is removed.
            state.withdraw_spilled(spill, ids)?;
        }
        drop(state);
        self.space_freed.notify_all();
        Ok((withdrawn.len() + spilled.len()) as u64)
    }

    pub(super) fn counters(&self) -> StreamCounters {
        let counters = self.lock().counters;
        debug_assert!(counters.balances(), "{counters:?}");
        counters
    }

    pub(super) fn latencies(&self) -> Histogram {
        self.lock().latencies.clone()
    }

    pub(super) fn spills(&self) -> bool {
        self.options.spill.is_some()
    }

    /// Closes the queue: the threads of the sources end.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.space_freed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn wake_planner(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, IngestState> {
        // A panic during a change leaves the counters wrong, so every later reader must fail.
        self.state.lock().expect("no thread panicked while it counted samples")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceStatus {
    Available,
    Full,
    Closed,
}

const NO_CLASS: &str =
    "it has no class: add a member cls, or a json with \"label\", or load fields=[...] without \"label\"";

impl IngestState {
    fn settle_unused(&mut self, sample: &WaitingSample) {
        self.settle(sample.source, sample.number, sample.record.id);
    }

    fn settle(&mut self, source: usize, number: u64, id: u64) {
        self.present.remove(&id);
        self.sources[source].settle(number);
    }
}

#[cfg(test)]
mod tests;
