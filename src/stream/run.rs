//! A stream as a loader has it: its sources, what waits, what is rehearsed, and the plan of its steps.

use super::account::StreamAccount;
use super::beginning::Beginning;
use super::buffer::{RehearsalBuffer, RehearsalOptions};
use super::group::{GroupBeginning, RankGroup, RankVotes, tell_of_failure};
use super::inlet::{Fate, Inlet, InletOptions, InletPositions};
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
use super::state::{LoadedState, SavedStates, SourceState, StreamIdentity, StreamState};
use super::waiting::StreamPolicy;
use base::error::{Error, Result};
use base::notices::Notices;
use base::rng::RandomStream;
use base::slot::SlotPool;
use base::trace::Histogram;
use data::dataset::LiveSamples;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use store::io::{Direct, IoChoice, Reader};

/// The most keys of a position that a state has itself, where a snapshot can have them.
const MOST_KEYS: usize = 1000;

/// What scores samples.
pub type ScoreFunction = dyn Fn(&Record) -> Result<f64> + Send + Sync;

/// What a stream is made of and does.
pub struct StreamOptions {
    pub seed: u64,
    pub mix: MixOptions,
    pub policy: StreamPolicy,
    /// Where samples wait for which memory has no room, with [`StreamPolicy::Spill`].
    pub spill: Option<SpillOptions>,
    /// The bytes of samples that may wait in memory.
    pub queue_bytes: u64,
    /// The bytes of the largest sample that may come, and of one of usual size.
    pub sizes: (u32, u32),
    /// Whether samples must have a class.
    pub labeled: bool,
    /// Whether a sample that cannot be used ends the run.
    pub raises: bool,
    pub rehearsal: Option<RehearsalOptions>,
    /// The part of the stream that is this rank's.
    pub share: RankShare,
    /// What the ranks agree by, where there are several.
    pub votes: Option<Arc<dyn RankVotes>>,
    /// The user's score of a sample, by which the rehearsal buffer keeps it.
    pub score: Option<Arc<ScoreFunction>>,
    /// Where delivered steps are written, and the journal that is replayed.
    pub journal: Option<PathBuf>,
    pub replay: Option<PathBuf>,
    pub notices: Notices,
}

/// A stream of samples.
pub struct SampleStream {
    options: StreamOptions,
    identity: StreamIdentity,
    live: Arc<LiveTable>,
    /// The sources, until they run; and the state that was loaded before.
    idle: Mutex<IdleStream>,
    running: OnceLock<RunningStream>,
    /// The number of steps, once it is known.
    steps: AtomicU64,
    /// Which iteration plans steps: an earlier one, which was stopped, plans none any more.
    iteration: AtomicU64,
}

#[derive(Default)]
struct IdleStream {
    sources: Vec<Box<dyn StreamSource>>,
    loaded: Option<LoadedState>,
}

/// What a stream has from its first iteration on.
struct RunningStream {
    inlet: Arc<Inlet>,
    receivers: Receivers,
    plan: Mutex<Plan>,
    /// The journal that is replayed.
    replay: Option<Mutex<JournalReader>>,
}

impl SampleStream {
    /// A stream of these sources. Nothing is connected and no thread starts before the first iteration.
    ///
    /// # Errors
    /// [`Error::Config`] for options that cannot work, and for two sources of one name.
    pub fn new(options: StreamOptions, sources: Vec<Box<dyn StreamSource>>) -> Result<Arc<Self>> {
        options.mix.check()?;
        if let (Some(_), Some(source)) =
            (&options.replay, sources.iter().find(|source| source.replay() == Replay::Never))
        {
            let message =
                format!("needs sources that give samples again, and {} does not", source.describe());
            return Err(Error::config("replay", message));
        }
        if sources.is_empty() {
            return Err(Error::config("source", "is an empty list, must have a source"));
        }
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        for (number, name) in names.iter().enumerate() {
            if names[..number].contains(name) {
                let message =
                    format!("has two sources called {name:?}: give them names of their own, name=\"...\"");
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

    /// The samples in use.
    pub fn live(&self) -> Arc<dyn LiveSamples> {
        self.live.clone()
    }

    /// Goes on where `states` were saved, from the first iteration on.
    ///
    /// # Errors
    /// [`Error::Config`] for states of another stream or of too few ranks, or when the stream runs already.
    pub fn load(&self, states: SavedStates) -> Result<()> {
        let loaded = states.for_rank(&self.identity)?;
        let mut idle = self.idle();
        if self.running.get().is_some() {
            let message = "cannot be loaded once batches were taken: make a new loader for it";
            return Err(Error::config("state", message));
        }
        idle.loaded = Some(loaded);
        Ok(())
    }

    /// Begins an iteration: takes back what an earlier one had planned and not delivered. The first one starts the
    /// sources. `wake` wakes the thread that asks for batches. Returns the iteration's number and its first step.
    ///
    /// # Errors
    /// Those of the directory and of threads.
    pub fn begin(&self, wake: impl Fn() + Send + Sync + 'static) -> Result<(u64, u64)> {
        let iteration = self.iteration.fetch_add(1, Ordering::SeqCst) + 1;
        let mut idle = self.idle();
        let running = match self.running.get() {
            Some(running) => running,
            None => {
                let started = self.start(&mut idle, Box::new(wake));
                if let (Err(_), Some(votes)) = (&started, &self.options.votes) {
                    tell_of_failure(votes);
                }
                let running = started?;
                self.running.get_or_init(|| running)
            }
        };
        let mut plan = running.plan();
        plan.take_back(&running.inlet, &self.live)?;
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
                "{} is there already, and where the number of ranks changes a journal begins anew: name another file",
                path.display()
            );
            return Err(Error::config("journal", message));
        }
        let group_beginning = |step| GroupBeginning { step, states: loaded.map_or(0, LoadedState::checksum) };
        let Beginning { step, counts, account, positions, withdrawn, journal } =
            Beginning::find(loaded, share, &idle.sources, buffer.as_mut(), notices)?;
        let sources = std::mem::take(&mut idle.sources);
        let ledgers = sources.iter().zip(&positions);
        let ledgers = ledgers.map(|(source, at)| (source.name().to_owned(), source.replay(), at.clone()));
        let inlet = Inlet::new(
            InletOptions {
                policy: options.policy,
                seed: options.seed,
                most_bytes: options.queue_bytes,
                always: 2 * options.mix.batch_size as usize,
                labeled: options.labeled,
                raises: options.raises,
                spill: options.spill.as_ref().map(|spill| Spill::open(spill, share, notices)).transpose()?,
                notices: notices.clone(),
            },
            ledgers.collect(),
            account,
        );
        inlet.wake_by(wake);
        inlet.restore_withdrawn(&withdrawn);
        let mixer = Mixer::new(options.mix.clone(), counts);
        let open = |path| JournalWriter::open(path, &self.identity, journal);
        let journal = options.journal.as_deref().map(open);
        let replay =
            options.replay.as_ref().map(|path| JournalReader::open(path, &self.identity)).transpose()?;
        let plan = Plan::new(mixer, buffer, options.seed, options.mix.batch_size, step);
        let group = options.votes.clone().map(|votes| {
            // The thread that asks may wait long for other ranks, and must not keep a dropped stream's directory.
            let inlet = Arc::downgrade(&inlet);
            RankGroup::start(votes, group_beginning(step), move || {
                if let Some(inlet) = inlet.upgrade() {
                    inlet.rouse();
                }
            })
        });
        let plan = plan.with_journal(journal.transpose()?).among(share, group.transpose()?);
        let sources = sources.into_iter().zip(positions).collect();
        let receivers = Receivers::start(&inlet, sources, self.options.score.as_ref(), replay.is_some())?;
        Ok(RunningStream { inlet, receivers, plan: Mutex::new(plan), replay: replay.map(Mutex::new) })
    }

    /// Plans `step` for this iteration, or finds what was planned.
    ///
    /// # Errors
    /// What keeps the stream from going on.
    pub fn next(&self, iteration: u64, step: u64) -> Result<NextBatch> {
        let running = self.running()?;
        let mut plan = running.plan();
        if self.iteration.load(Ordering::SeqCst) != iteration {
            return Ok(NextBatch::End);
        }
        let next = match &running.replay {
            None => plan.plan(step, &running.inlet, &self.live)?,
            Some(journal) => {
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                let fetch = |source, key: &str| {
                    let mut record = running.receivers.fetch(source, key)?;
                    if let Some(score) = &self.options.score {
                        record.weight = score(&record)?;
                    }
                    running.inlet.admit(source, record)
                };
                plan.replay(step, &mut journal, &self.live, fetch)?
            }
        };
        if next == NextBatch::End {
            self.steps.store(step, Ordering::SeqCst);
        }
        Ok(next)
    }

    /// The number of steps of the stream, once it is known; else the greatest there is.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// The number of samples of a step that is planned.
    pub fn batch_len(&self, step: u64) -> u32 {
        let len =
            |running: &RunningStream| running.plan().planned(step).map_or(0, |planned| planned.entries.len());
        self.running.get().map_or(0, len) as u32
    }

    /// Notes that `step` was delivered, and that these of its samples failed.
    ///
    /// # Errors
    /// Those of the rehearsal buffer.
    pub fn deliver(&self, step: u64, failed: &[u64]) -> Result<()> {
        let running = self.running()?;
        let failed: HashSet<u64> = failed.iter().copied().collect();
        running.plan().deliver(step, &failed, &running.inlet, &self.live).map(drop)
    }

    /// Notes that these samples failed, and that their batch is not delivered for that. The others of the batch wait
    /// again.
    ///
    /// # Errors
    /// Those of the rehearsal buffer.
    pub fn give_up(&self, failed: &[u64]) -> Result<()> {
        if let Some(running) = self.running.get() {
            let mut plan = running.plan();
            running.inlet.settle(failed.iter().map(|&id| (id, Fate::Failed)));
            if let Some(buffer) = plan.buffer() {
                buffer.give_up(failed)?;
            }
        }
        Ok(())
    }

    /// A sample of the same batch, drawn by `stream`, that may take the place of one that failed.
    pub fn substitute(&self, step: u64, stream: &mut RandomStream) -> Option<u64> {
        let running = self.running.get()?;
        let plan = running.plan();
        let entries = &plan.planned(step)?.entries;
        Some(entries[stream.below(entries.len() as u64) as usize].draw.sample)
    }

    /// The bytes of a sample in use, read here and now.
    ///
    /// # Errors
    /// Those of the rehearsal buffer.
    pub fn read(&self, sample: u64) -> Result<Vec<u8>> {
        if let Some(record) = self.live.record(sample) {
            return Ok(record.bytes().to_vec());
        }
        let mut plan = self.running()?.plan();
        let buffer =
            plan.buffer().ok_or_else(|| Error::Internal(format!("sample {sample} is not in use")))?;
        buffer.read(sample)
    }

    /// Opens the reader of the samples in use.
    ///
    /// # Errors
    /// Those of readers of files.
    pub fn open_reader(
        self: &Arc<Self>,
        slots: &SlotPool,
        io: IoChoice,
        direct: Direct,
        depth: usize,
    ) -> Result<Box<dyn Reader>> {
        let mut plan = self.running()?.plan();
        let stored = plan.buffer().map(|buffer| buffer.open_reader(slots, io, direct, depth)).transpose()?;
        let stream = self.clone();
        let again = Box::new(move |sample| stream.read(sample));
        Ok(Box::new(StreamReader::new(self.live.clone(), stored.flatten(), again, depth)))
    }

    /// The state after the last delivered step; `errors` is the number of failures so far.
    ///
    /// # Errors
    /// Those of the directory.
    pub fn state(&self, errors: u64) -> Result<StreamState> {
        let Some(running) = self.running.get() else {
            return match &self.idle().loaded {
                None => Ok(StreamState::first(self.identity.clone())),
                Some(LoadedState::Own(state)) => Ok(StreamState::clone(state)),
                Some(LoadedState::Divided(_)) => {
                    let none = "the states that were loaded are of other ranks, and these have not begun";
                    Err(Error::Unavailable(format!("{none}: take a batch first")))
                }
            };
        };
        let mut plan = running.plan();
        let (step, (used, taken)) = (plan.first_undelivered(), plan.counts());
        let InletPositions { account, sources, withdrawn } = running.inlet.positions();
        let (positions, unsettled): (Vec<SourcePosition>, Vec<u64>) = sources.into_iter().unzip();
        let snapshot = match plan.buffer() {
            Some(buffer) => buffer.save(&positions)?,
            None => None,
        };
        // With short positions a state says by itself how far it is, also where the directory is out of reach.
        let is_long = |position: &SourcePosition| snapshot.is_some() && position.settled.len() > MOST_KEYS;
        let sources = positions.into_iter().zip(unsettled).map(|(position, unsettled)| SourceState {
            position: Some(position).filter(|position| !is_long(position)),
            unsettled,
        });
        Ok(StreamState {
            step,
            used,
            taken,
            account,
            sources: sources.collect(),
            withdrawn,
            errors,
            snapshot,
            journal: plan.sync_journal()?,
            lineage: plan.buffer().map(|buffer| buffer.lineage().to_vec()).unwrap_or_default(),
            ..StreamState::first(self.identity.clone())
        })
    }

    /// Lets sources forget what is settled in `state`, which is safely written, and older states go.
    ///
    /// # Errors
    /// Those of the sources and of the directory; the same state may be acknowledged again.
    pub fn acknowledge(&self, states: SavedStates) -> Result<()> {
        let LoadedState::Own(state) = states.for_rank(&self.identity)? else {
            let message = "is of other ranks: acknowledge a state of this run";
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
                running.inlet.forget(number, &position);
            }
        }
        if let (Some(snapshot), Some(buffer)) = (&state.snapshot, running.plan().buffer()) {
            buffer.forget_before(snapshot.number)?;
        }
        Ok(())
    }

    /// Withdraws samples: no batch that is begun later has any of them. Returns how many waited or were kept.
    ///
    /// # Errors
    /// Those of the directory.
    pub fn withdraw(&self, ids: &HashSet<u64>) -> Result<u64> {
        let running = self.running()?;
        let mut plan = running.plan();
        let waited = running.inlet.withdraw(ids)?;
        Ok(waited + plan.withdraw(ids)?)
    }

    /// The account of this iteration, without waiting for the plan; empty before the first one.
    pub fn account(&self) -> StreamAccount {
        self.running.get().map_or_else(StreamAccount::default, |running| running.inlet.account())
    }

    /// The account now, how long samples took from their arrival to their batch, and what the rehearsal buffer has:
    /// samples and bytes.
    pub fn stats(&self) -> (StreamAccount, Histogram, (u64, u64)) {
        match self.running.get() {
            Some(running) => {
                let kept = running.plan().buffer().map_or((0, 0), |buffer| (buffer.len(), buffer.bytes()));
                (running.inlet.account(), running.inlet.latencies(), kept)
            }
            None => {
                let idle = self.idle();
                let loaded = idle.loaded.iter().flat_map(LoadedState::states).map(|state| state.account);
                let account = if self.takes_over(&idle) { loaded.sum() } else { StreamAccount::default() };
                (account, Histogram::default(), (0, 0))
            }
        }
    }

    /// The names of the streams.
    pub fn names(&self) -> &[String] {
        &self.identity.streams
    }

    /// The failures before the stream went on from a state.
    pub fn loaded_errors(&self) -> u64 {
        let idle = self.idle();
        let loaded = idle.loaded.iter().flat_map(LoadedState::states).map(|state| state.errors);
        if self.takes_over(&idle) { loaded.sum() } else { 0 }
    }

    /// Whether what was counted before counts for this rank: its own, or that of all former ranks for the first.
    fn takes_over(&self, idle: &IdleStream) -> bool {
        self.options.share.rank == 0 || !matches!(idle.loaded, Some(LoadedState::Divided(_)))
    }

    fn running(&self) -> Result<&RunningStream> {
        let none = "the stream has not begun: take a batch first";
        self.running.get().ok_or_else(|| Error::Unavailable(none.into()))
    }

    fn idle(&self) -> MutexGuard<'_, IdleStream> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningStream {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        // A plan that a panic left half-changed would lose samples.
        self.plan.lock().expect("no thread panicked while it planned")
    }
}
