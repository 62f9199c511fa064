//! The thread that sends the state of this process's loaders to each process that connects.
//!
//! Loaders work without this thread if it cannot be started. A forked child has neither the thread nor the loaders of
//! its parent, and may have inherited a lock that is never released.

use super::snapshot::{LoaderSnapshot, ProcessSnapshot};
use super::{PURPOSE, VERSION, exists, process_of};
use base::error::{Error, Result};
use base::node::{RuntimeDirectory, SocketContact, UserListener, connect};
use base::threads::start_thread;
use rustix::net::{SendFlags, SocketType};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Environment variable that hides loaders if it is `0` or `off`.
const VARIABLE: &str = "FORELOAD_TOP";

/// Longest time that a peer may take to read the response.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause after a failed accept, for example because the process has too many files open.
const PAUSE: Duration = Duration::from_millis(200);

/// Number of attempts, and the pause between them, to take a lock that other threads hold only for an instant.
const TRIES: (u32, Duration) = (50, Duration::from_micros(100));

/// A source of numbers that another thread may ask for at any time.
pub trait StatusSource: Send + Sync {
    /// Returns the current numbers; `None` if the loader no longer exists. The caller sets the loader's number.
    fn snapshot(&self) -> Option<LoaderSnapshot>;
}

struct StatusRegistry {
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

static REGISTRY: Mutex<StatusRegistry> =
    Mutex::new(StatusRegistry { process: 0, next: 0, sources: Vec::new(), socket: None });

/// A loader that is shown while this value lives.
pub struct StatusRegistration {
    process: u32,
    number: u64,
}

/// Shows a loader to this user's processes, unless the environment forbids it.
///
/// # Errors
/// [`Error::Unavailable`] if the loader cannot be shown.
pub fn register(source: Arc<dyn StatusSource>) -> Result<Option<StatusRegistration>> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "0" || value == "off") {
        return Ok(None);
    }
    let process = std::process::id();
    let Some(mut registry) = registry() else {
        return Err(Error::Unavailable(
            "this process was forked while the status of its parent was read".into(),
        ));
    };
    if registry.process != process {
        // A forked child must not release the loaders and the socket of its parent.
        std::mem::forget(std::mem::take(&mut registry.sources));
        std::mem::forget(registry.socket.take());
        registry.process = process;
    }
    if registry.socket.is_none() {
        registry.socket = Some(StatusSocket::open()?);
    }
    let number = registry.next;
    registry.next += 1;
    registry.sources.push((number, source));
    Ok(Some(StatusRegistration { process, number }))
}

impl StatusRegistration {
    /// Returns whether this process registered the loader, and not a parent that forked this process.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for StatusRegistration {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        let Some(mut registry) = registry() else { return };
        registry.sources.retain(|(number, _)| *number != self.number);
        if registry.sources.is_empty() {
            registry.socket = None;
        }
    }
}

/// Returns the shown loaders; `None` if the lock was held when this process was forked.
fn registry() -> Option<MutexGuard<'static, StatusRegistry>> {
    for _ in 0..TRIES.0 {
        match REGISTRY.try_lock() {
            Ok(registry) => return Some(registry),
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
        // Without random bytes, the socket may replace one that an earlier process with this id left behind, which does
        // no harm.
        let _ = rustix::rand::getrandom(&mut unique, rustix::rand::GetRandomFlags::NONBLOCK);
        let name = format!("{}-{:016x}", std::process::id(), u64::from_ne_bytes(unique));
        let listener = Arc::new(UserListener::bind(&directory, &name)?);
        let socket = Self { directory, name, listener: listener.clone() };
        start_thread("foreload-top", "a thread", move || serve(&listener))?;
        Ok(socket)
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.listener.stop();
        self.directory.remove(&self.name);
    }
}

/// Removes the sockets that exited processes left behind. Connects to find out whether a process lives, because its id
/// may belong to another container. Living processes of this container are not contacted.
fn remove_former(directory: &RuntimeDirectory) {
    for name in directory.names() {
        let Some(pid) = process_of(name.strip_suffix(".new").unwrap_or(&name)) else { continue };
        let contact = || connect(directory, &name, SocketType::STREAM);
        if !exists(pid) && matches!(contact(), Ok(SocketContact::Nobody)) {
            directory.remove(&name);
        }
    }
}

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

/// Sends a snapshot of all loaders. A peer that does not read the snapshot in time does not get it.
fn answer(stream: &UnixStream) {
    // The lock is released before loaders are asked, so that other loaders can begin and end during that time.
    let Some(sources) = registry().map(|registry| registry.sources.clone()) else { return };
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
        // A peer that hung up must not end this process by SIGPIPE.
        match rustix::net::send(stream, left, SendFlags::NOSIGNAL) {
            Ok(sent) => left = &left[sent..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Returns the name of this process's program; for Python, of the script or module. Arguments are left out, because
/// they may be secret.
fn program() -> String {
    let words: Vec<_> = std::env::args_os().take(8).map(|word| word.to_string_lossy().into_owned()).collect();
    name_of(&words)
}

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
        // The third socket belongs to a process in another container, the fourth to a process in this container.
        let mut expected = [left[2].clone(), left[3].clone(), "lock".to_owned()];
        expected.sort();
        assert_eq!(names, expected);
    }
}
