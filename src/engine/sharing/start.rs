//! How a producer is started: a process of its own, so that no consumer that is stopped, slow or killed takes it along.

use super::key::SharedKey;
use super::places::{Claim, ProducerPlaces};
use super::socket::wait_for;
use super::wire::BatchPosition;
use crate::config::GivenSettings;
use base::error::{CarriedError, Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a consumer knows of the producer that it would start.
#[derive(Clone)]
pub struct ProducerOrder {
    /// The program that runs a command of `foreload`, and its first arguments.
    pub command: Vec<OsString>,
    /// The directory in which its paths are looked up.
    pub directory: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    pub settings: GivenSettings,
    /// The number of consumers that begin together.
    pub consumers: u32,
}

/// By what a loader that asks for a producer knows its batches.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AskedKeys {
    /// The key of the batches.
    pub batches: SharedKey,
    /// The same without the stamps of shards.
    pub dataset: SharedKey,
}

/// What a producer is told at its start, on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProducerStart {
    pub roots: Vec<PathBuf>,
    pub settings: GivenSettings,
    /// The rank whose batches it makes, and the number of ranks.
    pub rank: u32,
    pub world_size: u32,
    /// The keys of these batches where a loader has asked for them: the dataset may be another one by now.
    pub keys: Option<AskedKeys>,
    /// The number of its place.
    pub number: u32,
    /// The first batch that is asked for.
    pub at: BatchPosition,
    /// How many consumers it waits for before it makes the first, and how many milliseconds at most.
    pub consumers: u32,
    pub patience: u64,
}

/// How long those that begin together may take, and those that lost a producer.
pub const TOGETHER: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(150);

/// The word of the command line that has a process be a producer.
const PRODUCE: &str = "produce";

/// What a producer says when it serves.
const SERVES: &str = "serves";

/// How long it may take to say that, or what keeps it from its work, and how often is looked whether it is there.
const START: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(1);

impl ProducerOrder {
    /// Starts a producer, which takes over the `claim` and begins with the batch at `at`. It lives on when this process
    /// ends, and has nothing of it but the environment. It waits for the `former` consumers of a producer that was
    /// lost; where there was none, for those that begin together. `is_there` says whether anybody has the claim.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no process can be started; what keeps the producer from its work.
    pub fn start(
        &self,
        claim: Claim,
        (rank, world_size): (u32, u32),
        keys: AskedKeys,
        (at, former): (BatchPosition, u32),
        is_there: &dyn Fn() -> bool,
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
            keys: Some(keys),
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
            .stderr(Stdio::from(answers))
            // Who interrupts this process at a terminal does not mean that one, which others may need.
            .process_group(0);
        if let Some(directory) = self.directory.as_ref().filter(|directory| directory.is_dir()) {
            command.current_dir(directory);
        }
        // Nothing is done between fork and exec, so that large processes need not be copied for it.
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        // The descriptors that it was given are closed here, so that the claim ends with the producer.
        drop(command);
        let said = said(answer, is_there);
        if said.is_err() {
            let _ = child.kill();
        }
        // The producer is a child of this process, which has ended by now.
        child.wait().map_err(|error| cannot(&error))?;
        said
    }
}

/// Hears whether a producer serves, or was killed before it said anything. The end of the pipe is not waited for: a
/// process that was forked meanwhile may hold it.
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
            if let Ok(error) = serde_json::from_str::<CarriedError>(line) {
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
        let message = format!("the process that shares batches has not begun within {} s", START.as_secs());
        return Err(Error::Unavailable(message));
    }
    let text = String::from_utf8_lossy(&text);
    if text.trim().is_empty() {
        return Ok(());
    }
    let tail: String = text.trim().chars().rev().take(500).collect::<Vec<_>>().into_iter().rev().collect();
    Err(Error::Unavailable(format!("the process that shares batches did not start: {tail}")))
}

/// Has this process live on without its parent, of which no child is left behind.
fn detach() -> std::io::Result<()> {
    // SAFETY: the process has begun, and has no other threads of ours yet; what the child does not have of other
    // threads it does not need.
    unsafe {
        match libc::fork() {
            -1 => return Err(std::io::Error::last_os_error()),
            0 => {}
            _ => libc::_exit(0),
        }
        // The child leads no group, as its parent does, so that this works.
        libc::setsid();
    }
    Ok(())
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
pub struct StartedAs {
    pub start: ProducerStart,
    pub claim: Claim,
    answers: File,
}

impl StartedAs {
    /// Reads what this process was started for. Its standard streams lead nowhere from then on.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a process that was started by somebody else.
    pub fn read() -> Result<Self> {
        let not_ours = |error: &dyn std::fmt::Display| {
            Error::Unavailable(format!(
                "this command is started by loaders with shared=, not by hand: {error}"
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
            // SAFETY: the descriptor is this process's standard stream, which nothing here owns.
            if unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nowhere), stream) } < 0 {
                return Err(not_ours(&std::io::Error::last_os_error()));
            }
        }
        let claim = ProducerPlaces::inherit(claim, start.number);
        Ok(Self { start, claim, answers })
    }

    /// Tells who started this process what keeps it from its work.
    pub fn fail(mut self, error: &Error) {
        if let Ok(text) = serde_json::to_string(&CarriedError::from(error)) {
            let _ = writeln!(self.answers, "{text}");
        }
    }

    /// Tells who started this process that it serves.
    pub fn serves(mut self) -> (ProducerStart, Claim) {
        let _ = writeln!(self.answers, "{SERVES}");
        (self.start, self.claim)
    }
}
