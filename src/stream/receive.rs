//! The threads that receive samples: one for each source, and one that reads spilled samples back.

use super::ingest::{IngestQueue, SpaceStatus};
use super::record::Record;
use super::run::ScoreFunction;
use super::source::{Received, SourcePosition, StreamSource};
use base::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread waits for samples or for room before it checks for commands.
const PATIENCE: Duration = Duration::from_millis(50);
/// The most samples received at a time. The queue may exceed its size by this many samples.
const AT_A_TIME: usize = 32;
/// How often a source shows its server that it is alive while the queue has no room.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How long threads may take to end. A thread that hangs in a dead server is detached.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);
/// How long a source may take to answer a command.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_secs(60);

/// A command for the thread of a source.
enum SourceCommand {
    /// Release the samples that are settled at this position.
    Acknowledge(SourcePosition, Sender<Result<bool>>),
    /// Get a sample again.
    Fetch(String, Sender<Result<Record>>),
}

/// The threads of all sources. They end when it is dropped.
pub(super) struct Receivers {
    ingest: Arc<IngestQueue>,
    threads: Vec<SourceThread>,
    /// Disconnected when all threads have ended.
    ended: Receiver<()>,
}

struct SourceThread {
    commands: Sender<SourceCommand>,
    lets_go: bool,
    handle: JoinHandle<()>,
}

impl Receivers {
    /// Starts a thread for each source, which resumes at its position. With `on_demand` the threads only fetch the
    /// samples that a journal names.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a thread cannot be started.
    pub(super) fn start(
        ingest: &Arc<IngestQueue>,
        sources: Vec<(Box<dyn StreamSource>, SourcePosition)>,
        score: Option<&Arc<ScoreFunction>>,
        on_demand: bool,
    ) -> Result<Self> {
        let (alive, ended) = bounded::<()>(0);
        let mut threads = Vec::new();
        for (number, (source, position)) in sources.into_iter().enumerate() {
            let (commands, asked) = unbounded();
            let lets_go = source.lets_go();
            let (ingest, alive, score) = (ingest.clone(), alive.clone(), score.cloned());
            let work = move || {
                let score = score.as_deref();
                let receiving =
                    AssertUnwindSafe(|| run(&ingest, (number, source), &position, &asked, score, on_demand));
                let outcome = catch_unwind(receiving);
                let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("receiving", &*panic)));
                if let Err(error) = outcome {
                    ingest.fail(error);
                }
                drop(alive);
            };
            let name = format!("foreload-stream-{number}");
            let handle = std::thread::Builder::new().name(name).spawn(work);
            let handle = handle.map_err(|e| Error::Unavailable(format!("cannot start a thread: {e}")))?;
            threads.push(SourceThread { commands, lets_go, handle });
        }
        if ingest.spills() {
            let (ingest, alive) = (ingest.clone(), alive.clone());
            let work = move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| ingest.read_back()));
                if let Err(error) = outcome.unwrap_or_else(|panic| Err(Error::panicked("spilling", &*panic)))
                {
                    ingest.fail(error);
                }
                // This thread is not joined: it must release the directory before it counts as ended.
                drop(ingest);
                drop(alive);
            };
            let started = std::thread::Builder::new().name("foreload-spill".into()).spawn(work);
            started.map_err(|e| Error::Unavailable(format!("cannot start a thread: {e}")))?;
        }
        Ok(Self { ingest: ingest.clone(), threads, ended })
    }

    /// Has a source release the samples that are settled at `position`. Returns whether the source will never give them
    /// again.
    ///
    /// # Errors
    /// The errors of [`StreamSource::acknowledge`]; [`Error::Unavailable`] if the source does not answer.
    pub(super) fn acknowledge(&self, source: usize, position: SourcePosition) -> Result<bool> {
        // A source that waits for its next sample answers late, so ask only if the source does anything.
        match self.threads[source].lets_go {
            true => self.ask(source, |answer| SourceCommand::Acknowledge(position, answer)),
            false => Ok(true),
        }
    }

    /// Gets a sample of a source again.
    ///
    /// # Errors
    /// The errors of [`StreamSource::fetch`].
    pub(super) fn fetch(&self, source: usize, key: &str) -> Result<Record> {
        self.ask(source, |answer| SourceCommand::Fetch(key.to_owned(), answer))
    }

    fn ask<T>(&self, source: usize, command: impl FnOnce(Sender<Result<T>>) -> SourceCommand) -> Result<T> {
        let gone = || Error::Unavailable("a source of the stream has ended with an error".into());
        let (answer, answered) = bounded(1);
        self.threads[source].commands.send(command(answer)).map_err(|_| gone())?;
        match answered.recv_timeout(ACKNOWLEDGE_WAIT) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = ACKNOWLEDGE_WAIT.as_secs();
                Err(Error::Unavailable(format!(
                    "a source of the stream did not answer within {seconds} s: check that it can be reached, then retry"
                )))
            }
        }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        self.ingest.close();
        let threads = std::mem::take(&mut self.threads);
        let handles: Vec<_> = threads.into_iter().map(|thread| thread.handle).collect();
        let deadline = Instant::now() + SHUTDOWN_WAIT;
        if self.ended.recv_deadline(deadline).is_err_and(|error| error.is_disconnected()) {
            // A panic was already reported.
            handles.into_iter().for_each(|handle| drop(handle.join()));
        }
    }
}

/// Receives until the queue is closed.
fn run(
    ingest: &IngestQueue,
    (number, mut source): (usize, Box<dyn StreamSource>),
    position: &SourcePosition,
    commands: &Receiver<SourceCommand>,
    score: Option<&ScoreFunction>,
    on_demand: bool,
) -> Result<()> {
    source.open(position)?;
    if let Some(key) = source.begins_behind() {
        ingest.begin_behind(number, key);
    }
    let mut arrivals = Vec::new();
    let mut ended = on_demand;
    let mut asked = Instant::now();
    while !ingest.is_closed() {
        let command = match ended {
            true => commands.recv_timeout(PATIENCE).ok(),
            false => commands.try_recv().ok(),
        };
        if let Some(command) = command {
            obey(&mut *source, command);
            continue;
        }
        if ended {
            continue;
        }
        if ingest.wait_for_room(PATIENCE)? != SpaceStatus::Room {
            // A server or other readers may take a silent reader for dead.
            if asked.elapsed() >= SIGN_OF_LIFE {
                source.receive(0, Duration::ZERO, &mut arrivals)?;
                asked = Instant::now();
            }
            continue;
        }
        asked = Instant::now();
        let received = source.receive(AT_A_TIME, PATIENCE, &mut arrivals);
        if let Some(score) = score {
            let records = arrivals.iter_mut().filter_map(|arrival| arrival.record.as_mut().ok());
            for record in records {
                record.weight = score(record)?;
            }
        }
        if !arrivals.is_empty() {
            ingest.arrive(number, arrivals.drain(..))?;
        }
        if received? == Received::End {
            ended = true;
            ingest.end(number);
        }
    }
    Ok(())
}

fn obey(source: &mut dyn StreamSource, command: SourceCommand) {
    // The thread that asked may have given up waiting.
    match command {
        SourceCommand::Acknowledge(position, answer) => drop(answer.send(source.acknowledge(&position))),
        SourceCommand::Fetch(key, answer) => drop(answer.send(source.fetch(&key))),
    }
}
