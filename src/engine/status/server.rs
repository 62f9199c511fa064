//! The thread that tells of this process's loaders to whoever connects.
//!
//! Loaders do without it where it cannot be had. A forked child has neither the thread nor the loaders of its parent,
//! and perhaps a lock that nobody will ever release.

use super::snapshot::{LoaderSnapshot, ProcessSnapshot};
use super::{PURPOSE, VERSION, exists, process_of};
use base::error::{Error, Result};
use base::node::{RuntimeDirectory, SocketContact, UserListener, connect};
use rustix::net::{SendFlags, SocketType};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The variable that keeps loaders from being seen, if it is `0` or `off`.
const VARIABLE: &str = "FORELOAD_TOP";

/// How long whoever connected may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the thread sleeps after it could not accept, because the process has too many files open, for example.
const PAUSE: Duration = Duration::from_millis(200);

/// How often, and after which pauses, a lock is tried that others only have for an instant.
const TRIES: (u32, Duration) = (50, Duration::from_micros(100));

/// Something that can be asked for its numbers at any time, by another thread.
pub trait StatusSource: Send + Sync {
    /// The numbers now; `None` where there are none any more. The loader's number is given by who asks.
    fn snapshot(&self) -> Option<LoaderSnapshot>;
}

/// The loaders that are shown, and the socket behind which that is done.
struct Shown {
    /// The process that they belong to.
    process: u32,
    next: u64,
    sources: Vec<(u64, Arc<dyn StatusSource>)>,
    socket: Option<StatusSocket>,
}

struct StatusSocket {
    directory: RuntimeDirectory,
    name: String,
    listener: Arc<UserListener>,
}

static SHOWN: Mutex<Shown> = Mutex::new(Shown { process: 0, next: 0, sources: Vec::new(), socket: None });

/// A loader that is shown as long as this lives.
pub struct ShownLoader {
    process: u32,
    number: u64,
}

/// Shows a loader to this user's processes, unless the environment says not to.
///
/// # Errors
/// [`Error::Unavailable`] where nobody could find it; what to do is for whoever looks.
pub fn show(source: Arc<dyn StatusSource>) -> Result<Option<ShownLoader>> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "0" || value == "off") {
        return Ok(None);
    }
    let process = std::process::id();
    let Some(mut shown) = shown() else {
        return Err(Error::Unavailable("this process was forked while its parent was looked at".into()));
    };
    if shown.process != process {
        // What a child has of its parent is not the child's to give back.
        std::mem::forget(std::mem::take(&mut shown.sources));
        std::mem::forget(shown.socket.take());
        shown.process = process;
    }
    if shown.socket.is_none() {
        shown.socket = Some(StatusSocket::open()?);
    }
    let number = shown.next;
    shown.next += 1;
    shown.sources.push((number, source));
    Ok(Some(ShownLoader { process, number }))
}

impl ShownLoader {
    /// Whether this is the process that shows it, and not one forked from it.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for ShownLoader {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        let Some(mut shown) = shown() else { return };
        shown.sources.retain(|(number, _)| *number != self.number);
        if shown.sources.is_empty() {
            shown.socket = None;
        }
    }
}

/// What is shown; `None` where the lock was taken when this process was forked.
fn shown() -> Option<MutexGuard<'static, Shown>> {
    for _ in 0..TRIES.0 {
        match SHOWN.try_lock() {
            Ok(shown) => return Some(shown),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(TRIES.1),
        }
    }
    None
}

impl StatusSocket {
    fn open() -> Result<Self> {
        let directory = RuntimeDirectory::open(PURPOSE)?;
        remove_former(&directory);
        let mut unique = [0; 8];
        // Without random bytes, a name that a process of this number had before is replaced, which is as well.
        let _ = rustix::rand::getrandom(&mut unique, rustix::rand::GetRandomFlags::NONBLOCK);
        let name = format!("{}-{:016x}", std::process::id(), u64::from_ne_bytes(unique));
        let listener = Arc::new(UserListener::bind(&directory, &name)?);
        let socket = Self { directory, name, listener: listener.clone() };
        std::thread::Builder::new()
            .name("foreload-top".into())
            .spawn(move || serve(&listener))
            .map_err(|error| Error::Unavailable(format!("cannot start a thread: {error}")))?;
        Ok(socket)
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.listener.stop();
        self.directory.remove(&self.name);
    }
}

/// Removes the names that processes left behind. Whether one lives is asked by connecting, because its number may be
/// that of another container; who is here is not disturbed by that.
fn remove_former(directory: &RuntimeDirectory) {
    for name in directory.names() {
        let Some(pid) = process_of(name.strip_suffix(".new").unwrap_or(&name)) else { continue };
        let contact = || connect(directory, &name, SocketType::STREAM);
        if !exists(pid) && matches!(contact(), Ok(SocketContact::Nobody)) {
            directory.remove(&name);
        }
    }
}

/// Answers whoever connects until the socket is closed.
fn serve(listener: &UserListener) {
    loop {
        match listener.accept() {
            Ok(stream) => answer(&stream),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Sends a snapshot of all loaders. Whoever does not read it in time does not get it.
fn answer(stream: &UnixStream) {
    // The lock is free again before loaders are asked: whoever begins or ends one does not wait for that.
    let Some(sources) = shown().map(|shown| shown.sources.clone()) else { return };
    let snapshot = |(number, source): &(u64, Arc<dyn StatusSource>)| {
        source.snapshot().map(|snapshot| LoaderSnapshot { number: *number, ..snapshot })
    };
    let loaders = sources.iter().filter_map(snapshot).collect();
    drop(sources);
    let snapshot = ProcessSnapshot { version: VERSION, program: program(), loaders };
    let Ok(text) = serde_json::to_vec(&snapshot) else { return };
    let deadline = Instant::now() + PATIENCE;
    let mut left = text.as_slice();
    while !left.is_empty() {
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() || stream.set_write_timeout(Some(patience)).is_err() {
            return;
        }
        // Whoever hung up must not end this process by a signal.
        match rustix::net::send(stream, left, SendFlags::NOSIGNAL) {
            Ok(sent) => left = &left[sent..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The name of this process's program, of Python what it runs. Arguments are left out, because they may be secret.
fn program() -> String {
    let words: Vec<_> = std::env::args_os().take(8).map(|word| word.to_string_lossy().into_owned()).collect();
    name_of(&words)
}

/// The name of the program whose command line begins with `words`.
pub(super) fn name_of(words: &[String]) -> String {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let mut words = words.iter();
    let program = words.next().map_or_else(String::new, |word| base(word));
    if !program.starts_with("python") {
        return program;
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" => return words.next().map_or(program, |module| format!("-m {module}")),
            "-c" | "-" => break,
            "-W" | "-X" => drop(words.next()),
            option if option.starts_with('-') => {}
            script => return base(script),
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_without_its_arguments() {
        for (line, name) in [
            ("/usr/bin/foreload bench data --token x", "foreload"),
            ("python3.12 -u -X dev jobs/train.py --key secret", "train.py"),
            ("/venv/bin/python -m torch.distributed.run --x", "-m torch.distributed.run"),
            ("python -c print()", "python"),
            ("python", "python"),
            ("", ""),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of(&words), name, "{line}");
        }
    }

    #[test]
    fn names_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDirectory::within(place.path()).unwrap();
        let gone = (1 << 22) + 7;
        let left = [
            format!("{gone}-1"),
            format!("{gone}-2.new"),
            format!("{gone}-3"),
            format!("{}-4", std::process::id()),
        ];
        let sockets: Vec<_> = left.iter().map(|name| UserListener::bind(&directory, name).unwrap()).collect();
        for (number, socket) in sockets.iter().enumerate() {
            if number != 2 {
                socket.stop();
            }
        }
        std::fs::write(directory.place_of("lock"), "").unwrap();
        remove_former(&directory);
        let mut names = directory.names();
        names.sort();
        // The third is of a process in another container, and the fourth of one that is here.
        let mut expected = [left[2].clone(), left[3].clone(), "lock".to_owned()];
        expected.sort();
        assert_eq!(names, expected);
    }
}
