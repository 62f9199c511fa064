//! How a producer is started: a process of its own, so that no consumer that is stopped, slow or killed takes it along.

use super::key::SharedKey;
use super::places::{Claim, ProducerPlaces};
use super::wire::BatchPosition;
use crate::config::GivenSettings;
use crate::error::{CarriedError, Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a consumer knows of the producer that it would start.
#[derive(Clone)]
pub(crate) struct ProducerOrder {
    /// The program that runs a command of `foreload`, and its first arguments.
    pub command: Vec<OsString>,
    pub roots: Vec<PathBuf>,
    pub settings: GivenSettings,
    /// The number of consumers that begin together.
    pub consumers: u32,
}

/// What a producer is told at its start, on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProducerStart {
    pub roots: Vec<PathBuf>,
    pub settings: GivenSettings,
    /// The rank whose batches it makes, and the number of ranks.
    pub rank: u32,
    pub world_size: u32,
    /// The key of these batches, where others know it; the dataset may be another one by now.
    pub key: Option<String>,
    /// The number of its place.
    pub number: u32,
    /// The first batch that is asked for.
    pub at: BatchPosition,
    /// How many consumers it waits for before it makes the first, and how many milliseconds at most.
    pub consumers: u32,
    pub patience: u64,
}

/// How long those that begin together may take, and those that lost a producer.
pub(crate) const TOGETHER: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(150);

/// The word of the command line that has a process be a producer.
const PRODUCE: &str = "produce";

impl ProducerOrder {
    /// Starts a producer, which takes over the `claim`. It lives on when this process ends, and has nothing of it but
    /// the environment. It waits for the `former` consumers of a producer that was lost; where there was none, for
    /// those that begin together.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no process can be started; what keeps the producer from its work.
    pub(crate) fn start(
        &self,
        claim: Claim,
        (rank, world_size): (u32, u32),
        key: SharedKey,
        at: BatchPosition,
        former: u32,
    ) -> Result<()> {
        let (consumers, patience) = match former {
            0 => (self.consumers, TOGETHER),
            former => (former, AGAIN),
        };
        let start = ProducerStart {
            roots: self.roots.clone(),
            settings: self.settings.clone(),
            rank,
            world_size,
            key: Some(key.to_string()),
            number: claim.number(),
            at,
            consumers,
            patience: patience.as_millis() as u64,
        };
        let cannot = |error: &dyn std::fmt::Display| {
            Error::Unavailable(format!("the process that shares batches cannot be started: {error}"))
        };
        let text = serde_json::to_vec(&start).map_err(|error| cannot(&error))?;
        let document = document(&text).map_err(|error| cannot(&error))?;
        let (answer, answers) = std::io::pipe().map_err(|error| cannot(&error))?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Error::Internal("no program to start a producer by".into()));
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(PRODUCE);
        command
            .stdin(Stdio::from(document))
            .stdout(Stdio::from(claim.into_file()?))
            .stderr(Stdio::from(answers));
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(detach) };
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        // The descriptors that it was given are closed here, so that the claim ends with the producer.
        drop(command);
        // This is the process between, which has ended.
        child.wait().map_err(|error| cannot(&error))?;
        said(answer)
    }
}

/// What a producer says at its start: nothing where all is well.
fn said(mut answer: std::io::PipeReader) -> Result<()> {
    let mut text = String::new();
    let read = answer.read_to_string(&mut text);
    let text = text.trim();
    match (read, text.lines().next_back().map(serde_json::from_str::<CarriedError>)) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(Ok(error))) => Err(error.into()),
        _ => {
            let tail: String = text.chars().rev().take(500).collect::<Vec<_>>().into_iter().rev().collect();
            Err(Error::Unavailable(format!("the process that shares batches did not start: {tail}")))
        }
    }
}

/// Has a process that is about to be another program live on without its parent, of which no child is left behind.
fn detach() -> std::io::Result<()> {
    // SAFETY: these are system calls, which may be made between fork and exec.
    unsafe {
        libc::setsid();
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => Ok(()),
            _ => libc::_exit(0),
        }
    }
}

/// A file without a name that holds `text`, to be read from its beginning.
fn document(text: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Seek;
    let file = rustix::fs::memfd_create(c"foreload start", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

/// The end of a start that a producer sees.
pub(crate) struct StartedAs {
    pub start: ProducerStart,
    pub claim: Claim,
    answers: File,
}

impl StartedAs {
    /// Reads what this process was started for. Its standard streams lead nowhere from then on.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a process that was started by somebody else.
    pub(crate) fn read() -> Result<Self> {
        let not_ours = |error: &dyn std::fmt::Display| {
            Error::Unavailable(format!(
                "this command is started by loaders with shared=, not by hand: {error}"
            ))
        };
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| not_ours(&error))?;
        let start: ProducerStart = serde_json::from_str(&text).map_err(|error| not_ours(&error))?;
        let taken = |stream: &dyn AsFd| rustix::io::fcntl_dupfd_cloexec(stream.as_fd(), 3);
        let claim = taken(&std::io::stdout()).map_err(|error| not_ours(&error))?;
        let answers = File::from(taken(&std::io::stderr()).map_err(|error| not_ours(&error))?);
        let nowhere =
            File::options().read(true).write(true).open("/dev/null").map_err(|error| not_ours(&error))?;
        for stream in 0..3 {
            // SAFETY: the descriptor is this process's standard stream, which nothing here owns.
            if unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nowhere), stream) } < 0 {
                return Err(not_ours(&std::io::Error::last_os_error()));
            }
        }
        let claim = ProducerPlaces::inherit(claim, start.number);
        Ok(Self { start, claim, answers })
    }

    /// Tells who started this process what keeps it from its work.
    pub(crate) fn fail(mut self, error: &Error) {
        if let Ok(text) = serde_json::to_string(&CarriedError::from(error)) {
            let _ = writeln!(self.answers, "{text}");
        }
    }

    /// Tells who started this process that it serves.
    pub(crate) fn serves(self) -> (ProducerStart, Claim) {
        (self.start, self.claim)
    }
}
