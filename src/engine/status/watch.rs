//! The reader of loader states: asks all processes at once, waits only briefly for each, and checks every response.

use super::server::name_of;
use super::snapshot::{LoaderSnapshot, ProcessSnapshot};
use super::{LoaderRates, PURPOSE, VERSION, exists, process_of};
use crate::sharing::wait_for;
use base::error::Result;
use base::node::{PeerProcess, RuntimeDirectory, SocketContact, connect};
use rustix::net::SocketType;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The maximum number of bytes of a response, and of one read. Short reads let all responses be read in turn.
const LONGEST: usize = 4 << 20;
const READ_BYTES: usize = 64 << 10;

/// The maximum number of processes that are asked, of loaders per process, and of tiers per loader.
const MAX_PROCESSES: usize = 1000;
const MAX_LOADERS: usize = 1000;
const MAX_TIERS: usize = 16;

const LONGEST_TEXT: usize = 1000;

/// A process with loaders, or with a socket that looks like a loader's socket.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStatus {
    pub pid: u32,
    pub program: String,
    pub state: ProcessState,
}

/// Result of asking a process.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessState {
    /// The process responded: its loaders, and the rates of each loader since the previous response.
    Answered(Vec<(LoaderSnapshot, LoaderRates)>),
    /// The process has not responded for this long.
    Silent(Duration),
    /// The response is unusable, for this reason.
    Unreadable(String),
}

/// Asks all processes of this user repeatedly.
pub struct StatusWatch {
    directory: RuntimeDirectory,
    /// Processes that have not responded yet, by the names of their sockets.
    asked: BTreeMap<String, PendingRequest>,
    answers: BTreeMap<String, Vec<LoaderSnapshot>>,
}

/// A pending request. A process is asked again only after it has responded.
struct PendingRequest {
    stream: UnixStream,
    peer: PeerProcess,
    since: Instant,
    answer: Vec<u8>,
}

enum AnswerProgress {
    Incomplete,
    Complete,
    TooLong,
    BrokenOff(std::io::Error),
}

impl StatusWatch {
    /// Makes a watch.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if no process can be found; the message says what to do.
    pub fn new() -> Result<Self> {
        Ok(Self::within(RuntimeDirectory::open(PURPOSE)?))
    }

    pub(super) fn within(directory: RuntimeDirectory) -> Self {
        Self { directory, asked: BTreeMap::new(), answers: BTreeMap::new() }
    }

    /// Returns the directory that holds the sockets.
    pub fn place(&self) -> &Path {
        self.directory.path()
    }

    /// Asks all processes, and waits for responses for `patience`. Does not wait again for processes that were silent
    /// before. Returns the processes in the order of their ids.
    pub fn ask_all(&mut self, patience: Duration) -> Vec<ProcessStatus> {
        let now = Instant::now();
        let mut names: Vec<(u32, String)> =
            self.directory.names().into_iter().filter_map(|name| Some((process_of(&name)?, name))).collect();
        names.sort();
        names.truncate(MAX_PROCESSES);
        self.asked.retain(|name, _| names.iter().any(|(_, there)| there == name));
        self.answers.retain(|name, _| names.iter().any(|(_, there)| there == name));
        let mut seen = BTreeMap::new();
        for (pid, name) in &names {
            if self.asked.contains_key(name) {
                continue;
            }
            let mut is =
                |pid, state| seen.insert(name.clone(), ProcessStatus { pid, program: program(pid), state });
            match connect(&self.directory, name, SocketType::STREAM) {
                Ok(SocketContact::Listens(socket, peer)) => {
                    let stream = socket.into();
                    self.asked.insert(
                        name.clone(),
                        PendingRequest { stream, peer, since: now, answer: Vec::new() },
                    );
                }
                Ok(SocketContact::OfAnother(peer)) => {
                    let why = format!("belongs to another user, {}", peer.user);
                    is(*pid, ProcessState::Unreadable(why));
                }
                Ok(SocketContact::Crowded) => drop(is(*pid, ProcessState::Silent(Duration::ZERO))),
                Ok(SocketContact::Nobody) => self.directory.remove(name),
                Ok(SocketContact::Missing) => {}
                Err(error) => drop(is(*pid, ProcessState::Unreadable(format!("cannot be queried: {error}")))),
            }
        }
        let responses = self.read_responses(now, patience);
        for (pid, name) in names {
            if let Some(process) = self.evaluate(pid, &name, &responses) {
                seen.insert(name, process);
            }
        }
        let mut seen: Vec<ProcessStatus> = seen.into_values().collect();
        seen.sort_by_key(|process| process.pid);
        seen
    }

    /// Reads the responses of the processes that were asked. Waits until all processes that are asked for the first
    /// time have responded, but not longer than `patience`.
    fn read_responses(&mut self, asked: Instant, patience: Duration) -> BTreeMap<String, AnswerProgress> {
        let deadline = asked + patience;
        let mut responses = BTreeMap::new();
        loop {
            let open: Vec<&String> =
                self.asked.keys().filter(|name| !responses.contains_key(*name)).collect();
            let is_new = |name: &&String| self.asked[*name].since == asked;
            let until = if open.iter().any(is_new) { deadline } else { asked };
            let is_due = Instant::now() >= until;
            let files: Vec<_> = open.iter().map(|name| self.asked[*name].stream.as_fd()).collect();
            let ready = open.iter().zip(wait_for(&files, Some(until))).filter(|(_, is_ready)| *is_ready);
            let ready: Vec<String> = ready.map(|(name, _)| (*name).clone()).collect();
            let mut is_quiet = true;
            for name in ready {
                let Some(request) = self.asked.get_mut(&name) else { continue };
                let before = request.answer.len();
                match request.read() {
                    // If the kernel refuses to poll, silent processes are reported as readable, too.
                    AnswerProgress::Incomplete => is_quiet &= request.answer.len() == before,
                    known => {
                        is_quiet = false;
                        responses.insert(name, known);
                    }
                }
            }
            let is_over = is_due && (is_quiet || Instant::now() >= deadline);
            if is_over || responses.len() == self.asked.len() {
                return responses;
            }
        }
    }

    /// Returns the state of the process with the socket `name`; `None` if it was not asked or has exited.
    fn evaluate(
        &mut self,
        pid: u32,
        name: &str,
        responses: &BTreeMap<String, AnswerProgress>,
    ) -> Option<ProcessStatus> {
        let request = self.asked.get(name)?;
        // The kernel's process id is more reliable than the name, but it is 0 for processes in other containers.
        let pid = if request.peer.pid == 0 { pid } else { request.peer.pid };
        let state = match responses.get(name) {
            None if request.peer.pid != 0 && !exists(pid) => {
                // The process has exited. A child of the process holds the socket and will never respond.
                self.asked.remove(name);
                self.directory.remove(name);
                return None;
            }
            None | Some(AnswerProgress::Incomplete) => {
                return Some(ProcessStatus {
                    pid,
                    program: program(pid),
                    state: ProcessState::Silent(request.since.elapsed()),
                });
            }
            Some(AnswerProgress::BrokenOff(why)) => Err(format!("broke off its answer: {why}")),
            Some(AnswerProgress::TooLong) => {
                Err(format!("sent an answer of more than {} MiB", LONGEST >> 20))
            }
            Some(AnswerProgress::Complete) => parse(&request.answer),
        };
        let broke_off =
            matches!(responses.get(name), Some(AnswerProgress::BrokenOff(_))) || request.answer.is_empty();
        self.asked.remove(name);
        match state {
            Ok(answer) => {
                let before = self.answers.insert(name.to_owned(), answer.loaders.clone()).unwrap_or_default();
                let rates = |loader: LoaderSnapshot| {
                    let before = before.iter().find(|before| before.number == loader.number);
                    let rates = LoaderRates::between(before, &loader);
                    (loader, rates)
                };
                let loaders = answer.loaders.into_iter().map(rates).collect();
                Some(ProcessStatus { pid, program: answer.program, state: ProcessState::Answered(loaders) })
            }
            // The process exited just now, or closed its socket.
            Err(_) if broke_off && self.is_abandoned(name) => None,
            Err(why) => {
                Some(ProcessStatus { pid, program: program(pid), state: ProcessState::Unreadable(why) })
            }
        }
    }

    /// Returns whether no process listens at `name`. If so, removes the socket.
    fn is_abandoned(&self, name: &str) -> bool {
        match connect(&self.directory, name, SocketType::STREAM) {
            Ok(SocketContact::Nobody) => self.directory.remove(name),
            Ok(SocketContact::Missing) => {}
            _ => return false,
        }
        true
    }
}

impl PendingRequest {
    fn read(&mut self) -> AnswerProgress {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => AnswerProgress::Complete,
            Ok(length) if self.answer.len() + length > LONGEST => AnswerProgress::TooLong,
            Ok(length) => {
                self.answer.extend_from_slice(&buffer[..length]);
                AnswerProgress::Incomplete
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                AnswerProgress::Incomplete
            }
            Err(error) => AnswerProgress::BrokenOff(error),
        }
    }
}

/// Parses a response, and truncates it to the limits.
fn parse(bytes: &[u8]) -> std::result::Result<ProcessSnapshot, String> {
    let parsed: serde_json::Result<ProcessSnapshot> = serde_json::from_slice(bytes);
    let mut answer = parsed.map_err(|error| format!("sent an invalid answer: {}", error_words(&error)))?;
    if answer.version != VERSION {
        return Err(format!(
            "uses version {} of the protocol, but this program uses {VERSION}: use the `foreload` of its environment",
            answer.version
        ));
    }
    answer.loaders.truncate(MAX_LOADERS);
    shorten(&mut answer.program);
    for loader in &mut answer.loaders {
        loader.tiers.truncate(MAX_TIERS);
        let texts = [&mut loader.kind, &mut loader.dataset, &mut loader.device];
        texts.into_iter().for_each(shorten);
        loader.tiers.iter_mut().for_each(|tier| shorten(&mut tier.name));
    }
    Ok(answer)
}

/// Returns the kind and the position of a JSON error, without quoting the response.
fn error_words(error: &serde_json::Error) -> String {
    format!("{:?} error at byte {} of line {}", error.classify(), error.column(), error.line()).to_lowercase()
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
}

fn program(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .take(8)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let mut name = name_of(&words);
    shorten(&mut name);
    name
}
