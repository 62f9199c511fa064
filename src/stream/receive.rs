//! The threads that receive samples: one thread per source, and one thread that reads spilled samples back.

use super::ingest::{IngestQueue, SpaceStatus};
use super::record::Record;
use super::run::ScoreFunction;
use super::source::{Received, SourcePosition, StreamSource};
use base::error::{Error, Result};
use base::threads::{caught, start_thread};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread waits for samples or for free space before it checks for commands.
const PATIENCE: Duration = Duration::from_millis(50);
/// The maximum number of samples that are received at a time. The queue may exceed its limit by this number of samples.
const MAX_RECEIVED: usize = 32;
/// The interval at which a source shows its server that it is alive while the queue has no free space. It fits several
/// times into the shortest `claim_after` of a Redis stream.
const SIGN_OF_LIFE: Duration = Duration::from_millis(125);
/// How long to wait for threads to end. A thread that hangs in a call to a server is detached.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);
/// How long a source may take to respond to a command.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_secs(60);

enum SourceCommand {
    /// Make the source release (acknowledge or delete) the samples that are settled at this position.
    Acknowledge(SourcePosition, Sender<Result<bool>>),
    Fetch(String, Sender<Result<Record>>),
}

/// The threads of all sources. Dropping this value ends the threads.
pub(super) struct Receivers {
    ingest: Arc<IngestQueue>,
    threads: Vec<SourceThread>,
    /// Disconnected when all threads have ended.
    ended: Receiver<()>,
}

struct SourceThread {
    commands: Sender<SourceCommand>,
    needs_acknowledge: bool,
    handle: JoinHandle<()>,
}

impl Receivers {
    /// Starts a thread for each source. Each source resumes at its position. If `on_demand` is true, the threads only
    /// fetch the samples that a journal names.
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
            let needs_acknowledge = source.needs_acknowledge();
            let (ingest, alive, score) = (ingest.clone(), alive.clone(), score.cloned());
            let work = move || {
                let score = score.as_deref();
                let receiving = || run(&ingest, (number, source), &position, &asked, score, on_demand);
                if let Err(error) = caught("receiving", receiving) {
                    ingest.fail(error);
                }
                drop(alive);
            };
            let handle = start_thread(format!("foreload-stream-{number}"), "a thread", work)?;
            threads.push(SourceThread { commands, needs_acknowledge, handle });
        }
        if ingest.spills() {
            let (ingest, alive) = (ingest.clone(), alive.clone());
            let work = move || {
                if let Err(error) = caught("spilling", || ingest.read_back()) {
                    ingest.fail(error);
                }
                // This thread is not joined, so it must release the directory before it counts as ended.
                drop(ingest);
                drop(alive);
            };
            start_thread("foreload-spill", "a thread", work)?;
        }
        Ok(Self { ingest: ingest.clone(), threads, ended })
    }

    /// Makes a source release the samples that are settled at `position`. Returns whether the source will never give
    /// these samples again.
    ///
    /// # Errors
    /// The errors of [`StreamSource::acknowledge`]; [`Error::Unavailable`] if the source does not respond.
    pub(super) fn acknowledge(&self, source: usize, position: SourcePosition) -> Result<bool> {
        // A source that waits for its next sample responds late, so send the command only to sources that need it.
        match self.threads[source].needs_acknowledge {
            true => self.ask(source, |answer| SourceCommand::Acknowledge(position, answer)),
            false => Ok(true),
        }
    }

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

fn run(
    ingest: &IngestQueue,
    (number, mut source): (usize, Box<dyn StreamSource>),
    position: &SourcePosition,
    commands: &Receiver<SourceCommand>,
    score: Option<&ScoreFunction>,
    on_demand: bool,
) -> Result<()> {
    source.open(position)?;
    if let Some(key) = source.starts_after() {
        ingest.start_after(number, key);
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
            execute(&mut *source, command);
            continue;
        }
        if ended {
            continue;
        }
        if ingest.wait_for_space(PATIENCE)? != SpaceStatus::Available {
            // While the queue has no free space, a server or other readers may consider a source dead that sends
            // nothing.
            if asked.elapsed() >= SIGN_OF_LIFE {
                source.receive(0, Duration::ZERO, &mut arrivals)?;
                asked = Instant::now();
            }
            continue;
        }
        asked = Instant::now();
        let received = source.receive(MAX_RECEIVED, PATIENCE, &mut arrivals);
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

fn execute(source: &mut dyn StreamSource, command: SourceCommand) {
    // The thread that sent the command may no longer wait.
    match command {
        SourceCommand::Acknowledge(position, answer) => drop(answer.send(source.acknowledge(&position))),
        SourceCommand::Fetch(key, answer) => drop(answer.send(source.fetch(&key))),
    }
}
