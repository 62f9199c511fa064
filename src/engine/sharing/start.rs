//! Start of a producer, as a separate process: a consumer that is stopped, slow or killed must not affect it.
//!
//! The loader passes a [`ProducerStart`] as JSON on standard input, the producer's lock as standard output, and a pipe
//! for the answer as standard error. The producer forks and its first process exits at once, so that the loader keeps
//! no child process. Then the forked process answers `serves`, or reports an error.

use super::key::SharedKey;
use super::places::{PlaceLock, ProducerPlaces};
use super::socket::wait_for;
use super::wire::BatchPosition;
use crate::config::{GivenSettings, LoaderKind};
use base::error::{Error, Result, SerializedError};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The parameters with which a consumer starts a producer if it finds none.
#[derive(Clone)]
pub struct ProducerLauncher {
    /// The program that runs a command of `foreload`, and its first arguments.
    pub command: Vec<OsString>,
    /// Working directory of the producer, in which relative paths are resolved.
    pub directory: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    /// The class of the loaders, whose defaults hold for settings that were not given.
    pub kind: LoaderKind,
    pub settings: GivenSettings,
    /// Number of consumers that begin together.
    pub consumers: u32,
}

/// The keys of the batches that a loader asks a producer for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RequestedKeys {
    /// Key of the batches.
    pub batches: SharedKey,
    /// The same key without the stamps of shards.
    pub dataset: SharedKey,
}

/// The parameters that a producer reads from its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProducerStart {
    pub roots: Vec<PathBuf>,
    /// The class of the loaders.
    pub kind: LoaderKind,
    pub settings: GivenSettings,
    /// The rank whose batches are made; `world_size` is the number of ranks.
    pub rank: u32,
    pub world_size: u32,
    /// The keys that the loader asked for, if a loader started this producer. The dataset may have changed since.
    pub keys: Option<RequestedKeys>,
    /// The producer's number, which determines its lock and the name of its socket.
    pub number: u32,
    /// The first batch that the loader will ask for.
    pub at: BatchPosition,
    /// Number of consumers that the producer waits for before it makes the first batch. It waits for at most `patience`
    /// milliseconds.
    pub consumers: u32,
    pub patience: u64,
}

/// How long a producer waits for consumers that begin together.
pub const TOGETHER: Duration = Duration::from_secs(60);
/// How long a producer that replaces a lost producer waits for the consumers of the lost one.
const AGAIN: Duration = Duration::from_millis(150);

const PRODUCE: &str = "produce";

/// The answer of a producer that is ready to serve.
const SERVES: &str = "serves";

/// The longest wait for the producer's answer.
const START: Duration = Duration::from_secs(600);
/// The interval at which the loader checks, during this wait, whether the producer still holds its lock.
const LOOK: Duration = Duration::from_secs(1);

impl ProducerLauncher {
    /// Starts a producer, which takes over the lock `claim` and begins with the batch at `at`. The producer outlives
    /// this process and inherits only the environment. It waits for the `former` consumers of a producer that was lost;
    /// if there are none, for the consumers that begin together. `is_there` says whether a process holds the lock.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no process can be started; otherwise the error that the producer reports.
    pub fn start(
        &self,
        claim: PlaceLock,
        (rank, world_size): (u32, u32),
        keys: RequestedKeys,
        (at, former): (BatchPosition, u32),
        is_there: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (consumers, patience) = match former {
            0 => (self.consumers, TOGETHER),
            former => (former, AGAIN),
        };
        let start = ProducerStart {
            roots: self.roots.clone(),
            kind: self.kind,
            settings: self.settings.clone(),
            rank,
            world_size,
            keys: Some(keys),
            number: claim.number(),
            at,
            consumers,
            patience: patience.as_millis() as u64,
        };
        let cannot = |error: &dyn std::fmt::Display| {
            Error::Unavailable(format!("cannot start the process that makes shared batches: {error}"))
        };
        let text = serde_json::to_vec(&start).map_err(|error| cannot(&error))?;
        let document = document(&text).map_err(|error| cannot(&error))?;
        let (answer, answers) = std::io::pipe().map_err(|error| cannot(&error))?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Error::Internal("no program is known that could start a producer".into()));
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(PRODUCE);
        command
            .stdin(Stdio::from(document))
            .stdout(Stdio::from(claim.into_file()?))
            .stderr(Stdio::from(answers))
            // An interrupt at this process's terminal must not end the producer, because others may need it.
            .process_group(0);
        if let Some(directory) = self.directory.as_ref().filter(|directory| directory.is_dir()) {
            command.current_dir(directory);
        }
        // No code runs between fork and exec, so the memory of large processes is not copied.
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        // Close this process's copies of the passed descriptors, so that the lock ends with the producer.
        drop(command);
        let said = said(answer, is_there);
        if said.is_err() {
            let _ = child.kill();
        }
        // The spawned process has forked the producer and exited, so this does not wait for the producer.
        child.wait().map_err(|error| cannot(&error))?;
        said
    }
}

/// Waits for the producer's answer, or until its lock is free because it was killed. Does not wait for the end of the
/// pipe, because a process that was forked at the same time may hold the pipe open.
fn said(mut answer: std::io::PipeReader, is_there: &dyn Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + START;
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| std::str::from_utf8(line).ok()).map(str::trim) {
            if line == SERVES {
                return Ok(());
            }
            if let Ok(error) = serde_json::from_str::<SerializedError>(line) {
                return Err(error.into());
            }
        }
        if !wait_for(&[answer.as_fd()], Some(Instant::now() + LOOK))[0] {
            if Instant::now() < deadline && is_there() {
                continue;
            }
            break;
        }
        match answer.read(&mut part) {
            Ok(read @ 1..) => text.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    if Instant::now() >= deadline {
        let message =
            format!("the process that makes shared batches did not start within {} s", START.as_secs());
        return Err(Error::Unavailable(message));
    }
    let text = String::from_utf8_lossy(&text);
    if text.trim().is_empty() {
        return Ok(());
    }
    let tail: String = text.trim().chars().rev().take(500).collect::<Vec<_>>().into_iter().rev().collect();
    Err(Error::Unavailable(format!("the process that makes shared batches did not start: {tail}")))
}

/// Detaches this process from its parent: forks, and exits in the first process.
fn detach() -> std::io::Result<()> {
    // SAFETY: the process has just started and has no other threads of ours yet. The child needs nothing that other
    // threads hold.
    unsafe {
        match libc::fork() {
            -1 => return Err(std::io::Error::last_os_error()),
            0 => {}
            _ => libc::_exit(0),
        }
        // `setsid` works in the child, because only its parent is a process group leader.
        libc::setsid();
    }
    Ok(())
}

fn document(text: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Seek;
    let file = rustix::fs::memfd_create(c"foreload start", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

/// What a producer process gets at its start: the parameters, the producer's lock, and the pipe for its answer.
pub struct ProducerStdio {
    pub start: ProducerStart,
    pub claim: PlaceLock,
    answers: File,
}

impl ProducerStdio {
    /// Reads the parameters of this process. Then redirects its standard streams to /dev/null.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the process was not started by a loader.
    pub fn read() -> Result<Self> {
        let not_ours = |error: &dyn std::fmt::Display| {
            Error::Unavailable(format!(
                "only loaders with shared= start this command, do not run it by hand: {error}"
            ))
        };
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| not_ours(&error))?;
        let start: ProducerStart = serde_json::from_str(&text).map_err(|error| not_ours(&error))?;
        detach().map_err(|error| not_ours(&error))?;
        let taken = |stream: &dyn AsFd| rustix::io::fcntl_dupfd_cloexec(stream.as_fd(), 3);
        let claim = taken(&std::io::stdout()).map_err(|error| not_ours(&error))?;
        let answers = File::from(taken(&std::io::stderr()).map_err(|error| not_ours(&error))?);
        let nowhere =
            File::options().read(true).write(true).open("/dev/null").map_err(|error| not_ours(&error))?;
        for stream in 0..3 {
            // SAFETY: `stream` is a standard stream of this process, and no object here owns it.
            if unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nowhere), stream) } < 0 {
                return Err(not_ours(&std::io::Error::last_os_error()));
            }
        }
        let claim = ProducerPlaces::inherit(claim, start.number);
        Ok(Self { start, claim, answers })
    }

    /// Reports to the loader the error that keeps this process from its work.
    pub fn fail(mut self, error: &Error) {
        if let Ok(text) = serde_json::to_string(&SerializedError::from(error)) {
            let _ = writeln!(self.answers, "{text}");
        }
    }

    /// Reports to the loader that this process is ready to serve.
    pub fn serves(mut self) -> (ProducerStart, PlaceLock) {
        let _ = writeln!(self.answers, "{SERVES}");
        (self.start, self.claim)
    }
}
