//! A stream as a loader uses it: it connects sources, ingest queue, rehearsal buffer and plan.
//!
//! Nothing is connected and no thread starts before the first iteration. A state describes the stream after the last
//! delivered step. A state is acknowledged after it is safely written. Only then do sources release settled samples,
//! and only then are old snapshots removed.

use super::agreement::{GroupStart, RankVotes, StepAgreement, report_start_failure};
use super::buffer::{RehearsalBuffer, RehearsalOptions};
use super::counters::StreamCounters;
use super::ingest::{IngestOptions, IngestPositions, IngestQueue, SampleOutcome};
use super::journal::{JournalReader, JournalWriter};
use super::live::LiveTable;
use super::mix::{MixOptions, Mixer};
use super::plan::{NextBatch, Plan};
use super::reader::StreamReader;
use super::receive::Receivers;
use super::record::Record;
use super::share::RankShare;
use super::source::{Replay, SourcePosition, StreamSource};
use super::spill::{Spill, SpillOptions};
use super::start_point::StartPoint;
use super::state::{LoadedState, SavedStates, SourceState, StreamIdentity, StreamState};
use super::waiting::StreamPolicy;
use base::error::{Error, Result};
use base::locks::lock;
use base::notices::Notices;
use base::rng::RandomStream;
use base::slot::SlotPool;
use base::trace::Histogram;
use data::dataset::StreamSamples;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use store::io::{Direct, IoChoice, Reader};

/// The maximum number of settled keys of a source that the state itself stores. Longer lists are only in the snapshot,
/// if there is one.
const MAX_KEYS: usize = 1000;

/// The user's function that scores samples.
pub type ScoreFunction = dyn Fn(&Record) -> Result<f64> + Send + Sync;

/// The settings of a stream.
pub struct StreamOptions {
    pub seed: u64,
    pub mix: MixOptions,
    pub policy: StreamPolicy,
    /// Where samples wait when memory is full, with [`StreamPolicy::Spill`].
    pub spill: Option<SpillOptions>,
    /// The bytes of samples that may wait in memory.
    pub queue_bytes: u64,
    /// The size limit of a sample, and a usual size of a sample, in bytes.
    pub sizes: (u32, u32),
    /// Whether samples must have a class.
    pub labeled: bool,
    /// Whether a sample that cannot be used ends the run.
    pub raises: bool,
    pub rehearsal: Option<RehearsalOptions>,
    /// This rank's share of the stream.
    pub share: RankShare,
    /// How the ranks of a divided stream vote on each step; `None` for a single rank.
    pub votes: Option<Arc<dyn RankVotes>>,
    /// The user's function that scores samples for the rehearsal buffer.
    pub score: Option<Arc<ScoreFunction>>,
    /// The file to which delivered steps are written.
    pub journal: Option<PathBuf>,
    /// The journal to replay.
    pub replay: Option<PathBuf>,
    pub notices: Notices,
}

/// A stream of samples.
pub struct SampleStream {
    options: StreamOptions,
    identity: StreamIdentity,
    live: Arc<LiveTable>,
    /// Before the first iteration: the sources, and the loaded state.
    idle: Mutex<IdleStream>,
    running: OnceLock<RunningStream>,
    /// The number of steps of the stream; `u64::MAX` until it is known.
    steps: AtomicU64,
    /// The number of the current iteration. Earlier iterations were stopped and plan no steps.
    iteration: AtomicU64,
}

#[derive(Default)]
struct IdleStream {
    sources: Vec<Box<dyn StreamSource>>,
    loaded: Option<LoadedState>,
}

struct RunningStream {
    ingest: Arc<IngestQueue>,
    receivers: Receivers,
    plan: Mutex<Plan>,
    replay: Option<Mutex<JournalReader>>,
}

impl SampleStream {
    /// Creates a stream of these sources. Nothing is connected and no thread starts before the first iteration.
    ///
    /// # Errors
    /// [`Error::Config`] for options that cannot work, and for two sources with the same name.
    pub fn new(options: StreamOptions, sources: Vec<Box<dyn StreamSource>>) -> Result<Arc<Self>> {
        options.mix.check()?;
        if let (Some(_), Some(source)) =
            (&options.replay, sources.iter().find(|source| source.replay() == Replay::Never))
        {
            let message =
                format!("needs sources that can send samples again, but {} cannot", source.describe());
            return Err(Error::config("replay", message));
        }
        if sources.is_empty() {
            return Err(Error::config("source", "is an empty list, must have a source"));
        }
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        for (number, name) in names.iter().enumerate() {
            if names[..number].contains(name) {
                let message = format!("has two sources called {name:?}: set different names, name=\"...\"");
                return Err(Error::config("source", message));
            }
        }
        let identity = StreamIdentity {
            streams: names.iter().map(|name| (*name).to_owned()).collect(),
            seed: options.seed,
            batch_size: options.mix.batch_size,
            rank: options.share.rank,
            world_size: options.share.world_size,
            rehearsal: options.rehearsal.as_ref().map(RehearsalOptions::words),
        };
        let live = Arc::new(LiveTable::new(&names, options.sizes));
        Ok(Arc::new(Self {
            options,
            identity,
            live,
            idle: Mutex::new(IdleStream { sources, loaded: None }),
            running: OnceLock::new(),
            steps: AtomicU64::new(u64::MAX),
            iteration: AtomicU64::new(0),
        }))
    }

    /// The samples of planned batches, as the dataset of the pipeline.
    pub fn live(&self) -> Arc<dyn StreamSamples> {
        self.live.clone()
    }

    /// Sets the saved `states` at which the first iteration resumes.
    ///
    /// # Errors
    /// [`Error::Config`] for states of another stream or of too few ranks, or if the stream runs already.
    pub fn load(&self, states: SavedStates) -> Result<()> {
        let loaded = states.for_rank(&self.identity)?;
        let mut idle = lock(&self.idle);
        if self.running.get().is_some() {
            let message = "cannot be loaded after the first batch: create a new loader for it";
            return Err(Error::config("state", message));
        }
        idle.loaded = Some(loaded);
        Ok(())
    }

    /// Begins an iteration, and takes back the steps that an earlier iteration planned and did not deliver. The first
    /// iteration starts the sources. `wake` wakes the thread that asks for batches. Returns the iteration's number and
    /// its first step.
    ///
    /// # Errors
    /// I/O errors of the directory, and errors of threads that cannot start.
    pub fn begin(&self, wake: impl Fn() + Send + Sync + 'static) -> Result<(u64, u64)> {
        let iteration = self.iteration.fetch_add(1, Ordering::SeqCst) + 1;
        let mut idle = lock(&self.idle);
        let running = match self.running.get() {
            Some(running) => running,
            None => {
                let started = self.start(&mut idle, Box::new(wake));
                if let (Err(_), Some(votes)) = (&started, &self.options.votes) {
                    report_start_failure(votes);
                }
                let running = started?;
                self.running.get_or_init(|| running)
            }
        };
        let mut plan = running.plan();
        plan.take_back(&running.ingest, &self.live)?;
        self.steps.store(u64::MAX, Ordering::SeqCst);
        Ok((iteration, plan.first_undelivered()))
    }

    fn start(&self, idle: &mut IdleStream, wake: Box<dyn Fn() + Send + Sync>) -> Result<RunningStream> {
        let options = &self.options;
        let (notices, share) = (&options.notices, options.share);
        let open =
            |rehearsal| RehearsalBuffer::open(rehearsal, options.seed, share, &self.live, notices.clone());
        let mut buffer = options.rehearsal.as_ref().map(open).transpose()?;
        let loaded = idle.loaded.as_ref();
        if let (Some(LoadedState::Divided(_)), Some(path)) = (loaded, &options.journal)
            && path.exists()
        {
            let message = format!(
                "{} exists already, but a run with another number of ranks needs a new journal: choose another file",
                path.display()
            );
            return Err(Error::config("journal", message));
        }
        let group_start = |step| GroupStart { step, states: loaded.map_or(0, LoadedState::checksum) };
        let StartPoint { step, counts, counters, positions, withdrawn, journal } =
            StartPoint::find(loaded, share, &idle.sources, buffer.as_mut(), notices)?;
        let sources = std::mem::take(&mut idle.sources);
        let sources_progress = sources.iter().zip(&positions);
        let sources_progress =
            sources_progress.map(|(source, at)| (source.name().to_owned(), source.replay(), at.clone()));
        let ingest = IngestQueue::new(
            IngestOptions {
                policy: options.policy,
                seed: options.seed,
                most_bytes: options.queue_bytes,
                always_admitted: 2 * options.mix.batch_size as usize,
                labeled: options.labeled,
                raises: options.raises,
                spill: options.spill.as_ref().map(|spill| Spill::open(spill, share, notices)).transpose()?,
                notices: notices.clone(),
            },
            sources_progress.collect(),
            counters,
        );
        ingest.set_waker(wake);
        ingest.restore_withdrawn(&withdrawn);
        let mixer = Mixer::new(options.mix.clone(), counts);
        let open = |path| JournalWriter::open(path, &self.identity, journal);
        let journal = options.journal.as_deref().map(open);
        let replay =
            options.replay.as_ref().map(|path| JournalReader::open(path, &self.identity)).transpose()?;
        let mut plan = Plan::new(mixer, buffer, options.seed, options.mix.batch_size, step);
        let group = options.votes.clone().map(|votes| {
            // The thread that exchanges votes may wait long for other ranks, and must not keep the directory of a
            // dropped stream.
            let ingest = Arc::downgrade(&ingest);
            StepAgreement::start(votes, group_start(step), move || {
                if let Some(ingest) = ingest.upgrade() {
                    ingest.wake_planner();
                }
            })
        });
        (plan.journal, plan.share, plan.group) = (journal.transpose()?, share, group.transpose()?);
        let sources = sources.into_iter().zip(positions).collect();
        let receivers = Receivers::start(&ingest, sources, self.options.score.as_ref(), replay.is_some())?;
        Ok(RunningStream { ingest, receivers, plan: Mutex::new(plan), replay: replay.map(Mutex::new) })
    }

    /// Plans `step` for this iteration, or returns it if it is planned already.
    ///
    /// # Errors
    /// The error that ends the stream.
    pub fn next(&self, iteration: u64, step: u64) -> Result<NextBatch> {
        let running = self.running()?;
        let mut plan = running.plan();
        if self.iteration.load(Ordering::SeqCst) != iteration {
            return Ok(NextBatch::End);
        }
        let next = match &running.replay {
            None => plan.plan(step, &running.ingest, &self.live)?,
            Some(journal) => {
                let mut journal = lock(journal);
                let fetch = |source, key: &str| {
                    let mut record = running.receivers.fetch(source, key)?;
                    if let Some(score) = &self.options.score {
                        record.weight = score(&record)?;
                    }
                    running.ingest.admit(source, record)
                };
                plan.replay(step, &mut journal, &self.live, fetch)?
            }
        };
        if next == NextBatch::End {
            self.steps.store(step, Ordering::SeqCst);
        }
        Ok(next)
    }

    /// The number of steps of the stream; `u64::MAX` until it is known.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// The number of samples of a planned step.
    pub fn batch_len(&self, step: u64) -> u32 {
        let len =
            |running: &RunningStream| running.plan().planned(step).map_or(0, |planned| planned.entries.len());
        self.running.get().map_or(0, len) as u32
    }

    /// Marks `step` as delivered. `failed` are the samples that failed in its batch.
    ///
    /// # Errors
    /// The errors of the rehearsal buffer and of the journal.
    pub fn deliver(&self, step: u64, failed: &[u64]) -> Result<()> {
        let running = self.running()?;
        let failed: HashSet<u64> = failed.iter().copied().collect();
        running.plan().deliver(step, &failed, &running.ingest, &self.live).map(drop)
    }

    /// Marks these samples as failed. Their batch is not delivered, and its other samples wait again.
    ///
    /// # Errors
    /// The errors of the rehearsal buffer.
    pub fn give_up(&self, failed: &[u64]) -> Result<()> {
        if let Some(running) = self.running.get() {
            let mut plan = running.plan();
            running.ingest.settle(failed.iter().map(|&id| (id, SampleOutcome::Failed)));
            if let Some(buffer) = plan.buffer() {
                buffer.give_up(failed)?;
            }
        }
        Ok(())
    }

    /// A random sample of the batch of `step`, as a substitute for a failed sample. `stream` gives the random numbers.
    pub fn substitute(&self, step: u64, stream: &mut RandomStream) -> Option<u64> {
        let running = self.running.get()?;
        let plan = running.plan();
        let entries = &plan.planned(step)?.entries;
        Some(entries[stream.below(entries.len() as u64) as usize].draw.sample)
    }

    /// Reads the bytes of a sample of a planned batch, synchronously.
    ///
    /// # Errors
    /// The errors of the rehearsal buffer.
    pub fn read(&self, sample: u64) -> Result<Vec<u8>> {
        if let Some(record) = self.live.record(sample) {
            return Ok(record.bytes().to_vec());
        }
        let mut plan = self.running()?.plan();
        let buffer =
            plan.buffer().ok_or_else(|| Error::Internal(format!("sample {sample} is not in use")))?;
        buffer.bytes.read(sample)
    }

    /// Opens the reader of the samples of planned batches.
    ///
    /// # Errors
    /// The errors of the readers of files.
    pub fn open_reader(
        self: &Arc<Self>,
        slots: &SlotPool,
        io: IoChoice,
        direct: Direct,
        depth: usize,
    ) -> Result<Box<dyn Reader>> {
        let mut plan = self.running()?.plan();
        let stored =
            plan.buffer().map(|buffer| buffer.bytes.open_reader(slots, io, direct, depth)).transpose()?;
        let stream = self.clone();
        let reread = Box::new(move |sample| stream.read(sample));
        Ok(Box::new(StreamReader::new(self.live.clone(), stored.flatten(), reread, depth)))
    }

    /// The state after the last delivered step. `errors` is the number of failures so far.
    ///
    /// # Errors
    /// I/O errors of the directory and of the journal.
    pub fn state(&self, errors: u64) -> Result<StreamState> {
        let Some(running) = self.running.get() else {
            return match &lock(&self.idle).loaded {
                None => Ok(StreamState::first(self.identity.clone())),
                Some(LoadedState::Own(state)) => Ok(StreamState::clone(state)),
                Some(LoadedState::Divided(_)) => {
                    let none = "the loaded states are of other ranks, and were not applied yet";
                    Err(Error::Unavailable(format!("{none}: take a batch first")))
                }
            };
        };
        let mut plan = running.plan();
        let (step, (used, taken)) = (plan.first_undelivered(), plan.counts());
        let IngestPositions { counters, sources, withdrawn } = running.ingest.positions();
        let (positions, unsettled): (Vec<SourcePosition>, Vec<u64>) = sources.into_iter().unzip();
        let snapshot = match plan.buffer() {
            Some(buffer) => buffer.save(&positions)?,
            None => None,
        };
        // Short positions are stored in the state, so that it is complete even if the directory cannot be reached.
        let is_long = |position: &SourcePosition| snapshot.is_some() && position.settled.len() > MAX_KEYS;
        let sources = positions.into_iter().zip(unsettled).map(|(position, unsettled)| SourceState {
            position: Some(position).filter(|position| !is_long(position)),
            unsettled,
        });
        Ok(StreamState {
            step,
            used,
            taken,
            counters,
            sources: sources.collect(),
            withdrawn,
            errors,
            snapshot,
            journal: plan.sync_journal()?,
            lineage: plan.buffer().map(|buffer| buffer.lineage.clone()).unwrap_or_default(),
            ..StreamState::first(self.identity.clone())
        })
    }

    /// Acknowledges that `states` is safely written: sources release the samples that are settled in this state, and
    /// older snapshots are removed.
    ///
    /// # Errors
    /// The errors of the sources and of the directory. The same state may be acknowledged again.
    pub fn acknowledge(&self, states: SavedStates) -> Result<()> {
        let LoadedState::Own(state) = states.for_rank(&self.identity)? else {
            let message = "is of another number of ranks: acknowledge a state of this run";
            return Err(Error::config("state", message));
        };
        let running = self.running()?;
        let found = match (&state.snapshot, running.plan().buffer()) {
            (Some(snapshot), Some(buffer)) => Some(buffer.positions(snapshot)?),
            _ => None,
        };
        for number in 0..state.sources.len() {
            let Some(position) = state.position(number, found.as_deref()) else { continue };
            if running.receivers.acknowledge(number, position.clone())? {
                running.ingest.forget(number, &position);
            }
        }
        if let (Some(snapshot), Some(buffer)) = (&state.snapshot, running.plan().buffer()) {
            buffer.forget_before(snapshot.number)?;
        }
        Ok(())
    }

    /// Withdraws samples: no batch that begins later contains them. Returns how many were waiting or kept.
    ///
    /// # Errors
    /// I/O errors of the directories.
    pub fn withdraw(&self, ids: &HashSet<u64>) -> Result<u64> {
        let running = self.running()?;
        let mut plan = running.plan();
        let waited = running.ingest.withdraw(ids)?;
        Ok(waited + plan.withdraw(ids)?)
    }

    /// The sample counters, without waiting for the plan; all 0 before the first iteration.
    pub fn counters(&self) -> StreamCounters {
        self.running.get().map_or_else(StreamCounters::default, |running| running.ingest.counters())
    }

    /// The sample counters, the times from the arrival of samples to their delivery, and the number and bytes of the
    /// samples in the rehearsal buffer.
    pub fn stats(&self) -> (StreamCounters, Histogram, (u64, u64)) {
        match self.running.get() {
            Some(running) => {
                let kept = running.plan().buffer().map_or((0, 0), |buffer| (buffer.len(), buffer.bytes()));
                (running.ingest.counters(), running.ingest.latencies(), kept)
            }
            None => {
                let idle = lock(&self.idle);
                let loaded = idle.loaded.iter().flat_map(LoadedState::states).map(|state| state.counters);
                let counters = if self.takes_over(&idle) { loaded.sum() } else { StreamCounters::default() };
                (counters, Histogram::default(), (0, 0))
            }
        }
    }

    /// The names of the streams.
    pub fn names(&self) -> &[String] {
        &self.identity.streams
    }

    /// The number of failures in the runs whose states were loaded, as far as this rank continues their counts.
    pub fn loaded_errors(&self) -> u64 {
        let idle = lock(&self.idle);
        let loaded = idle.loaded.iter().flat_map(LoadedState::states).map(|state| state.errors);
        if self.takes_over(&idle) { loaded.sum() } else { 0 }
    }

    /// Whether this rank continues the counts of the loaded states. If the number of ranks has changed, only rank 0
    /// does: it continues the sums over all former ranks.
    fn takes_over(&self, idle: &IdleStream) -> bool {
        self.options.share.rank == 0 || !matches!(idle.loaded, Some(LoadedState::Divided(_)))
    }

    fn running(&self) -> Result<&RunningStream> {
        let none = "the stream has not started: take a batch first";
        self.running.get().ok_or_else(|| Error::Unavailable(none.into()))
    }
}

impl RunningStream {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        // A panic may have left the plan half-changed, and such a plan loses samples.
        self.plan.lock().expect("no thread panicked while it planned")
    }
}
