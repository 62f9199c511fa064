//! Sockets between a producer and its consumers: Unix sockets that keep message boundaries and pass file descriptors
//! (SOCK_SEQPACKET), between processes of one user.

use base::error::{Error, Result};
use base::node::{NONBLOCKING_CLOEXEC, RuntimeDirectory, SocketContact, accept, connect, listen};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The maximum length of a message in bytes.
const LONGEST: usize = 64 << 10;

/// The maximum number of file descriptors in a message.
const MAX_FILES: usize = 2;

/// How long [`wait_for`] sleeps at most if the kernel refuses to poll.
const REFUSED: Duration = Duration::from_millis(100);

/// One end of a connection.
pub struct Socket(OwnedFd);

/// A listening socket.
pub struct Listener(OwnedFd);

/// Result of connecting.
pub enum Connected {
    To(Socket),
    /// No process listens.
    Nobody,
    /// The queue of connections is full: the listening process is very busy, or stopped.
    Crowded,
}

/// Result of receiving a message.
pub enum Incoming<T> {
    /// A received message, with its file descriptors.
    Message(T, Vec<OwnedFd>),
    /// No message has arrived yet.
    Nothing,
    /// The other end was closed, or it sent something that is not a message of this protocol.
    Closed,
}

impl Listener {
    /// Listens at `name` in a directory of this user. Replaces an earlier socket of that name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn bind(directory: &RuntimeDirectory, name: &str) -> Result<Self> {
        listen(directory, name, SocketType::SEQPACKET, NONBLOCKING_CLOEXEC).map(Self)
    }

    /// Returns the next connection of a process of this user; `None` if there is none now. Processes of other users are
    /// refused.
    ///
    /// # Errors
    /// [`io::Error`], for example if this process has no file descriptors left. New connections then stay in the queue.
    pub fn accept(&self) -> io::Result<Option<Socket>> {
        match accept(&self.0, NONBLOCKING_CLOEXEC) {
            Ok(socket) => Ok(Some(Socket(socket))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Connects to the process that listens at `name` in a directory of this user.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a process of another user, and if this system does not support SOCK_SEQPACKET
    /// sockets.
    pub fn connect(directory: &RuntimeDirectory, name: &str) -> Result<Connected> {
        match connect(directory, name, SocketType::SEQPACKET) {
            Ok(SocketContact::Listens(socket, _)) => Ok(Connected::To(Self(socket))),
            Ok(SocketContact::OfAnother(_)) => {
                let message = "a process of another user shares batches in this user's runtime directory";
                Err(Error::Unavailable(message.into()))
            }
            Ok(SocketContact::Crowded) => Ok(Connected::Crowded),
            Ok(SocketContact::Nobody | SocketContact::Missing) => Ok(Connected::Nobody),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Connected::Nobody),
            Err(error) => {
                let path = directory.path().join(name);
                let message = format!("cannot connect to {} for shared batches: {error}", path.display());
                Err(Error::Unavailable(message))
            }
        }
    }

    /// Sends a message with `files`. Returns whether it was sent. Messages are not queued: sending fails if the peer
    /// does not read its messages.
    pub fn send(&self, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> bool {
        let Ok(bytes) = serde_json::to_vec(message) else { return false };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if bytes.len() > LONGEST || !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files))
        {
            return false;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)
        });
        sent.is_ok()
    }

    /// Returns the message that has arrived, if any.
    pub fn receive<T: DeserializeOwned>(&self) -> Incoming<T> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        });
        let received = match received {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN) => return Incoming::Nothing,
            Err(_) => return Incoming::Closed,
        };
        let files = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.collect(),
            _ => Vec::new(),
        });
        let files: Vec<OwnedFd> = files.collect();
        let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        match serde_json::from_slice(&bytes[..received.bytes]) {
            Ok(message) if !is_cut => Incoming::Message(message, files),
            _ => Incoming::Closed,
        }
    }

    /// Ends the connection for both ends, in all processes that hold them.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

/// Waits until one of `files` is readable, or until `deadline`. Returns which of them are readable. A file reported as
/// readable may have no data, so reads must be nonblocking.
pub fn wait_for(files: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Vec<bool> {
    let mut polled: Vec<_> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => return polled.iter().map(|file| !file.revents().is_empty()).collect(),
            Err(rustix::io::Errno::INTR) => {}
            // Polling fails, for example, if the limit of open files was lowered below the number of `files`.
            Err(_) => {
                std::thread::sleep(left.unwrap_or(REFUSED).min(REFUSED));
                return vec![true; files.len()];
            }
        }
    }
}

/// Wakes a thread that waits for this event in [`wait_for`].
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Creates an event that is not signalled.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        use rustix::event::EventfdFlags;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        event.map(Self).map_err(|error| Error::Unavailable(format!("cannot create an eventfd: {error}")))
    }

    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the event after it woke this thread.
    pub fn heard(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{BatchPosition, ToProducer};
    use super::*;
    use std::fs::File;
    use std::io::Read;

    fn directory(place: &std::path::Path) -> RuntimeDirectory {
        RuntimeDirectory::within(place).unwrap()
    }

    fn pair() -> (Socket, Socket, tempfile::TempDir) {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(place.path());
        let listener = Listener::bind(&directory, "x.sock").unwrap();
        let Connected::To(client) = Socket::connect(&directory, "x.sock").unwrap() else { panic!() };
        (client, listener.accept().unwrap().unwrap(), place)
    }

    #[test]
    fn messages_stay_apart_and_carry_descriptors() {
        let (client, server, place) = pair();
        let path = place.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let file = File::open(path).unwrap();
        assert!(client.send(&ToProducer::Ping, &[]));
        let at = BatchPosition { epoch: 1, step: 2 };
        assert!(client.send(&ToProducer::Ask { number: 3, at, age: 7 }, &[file.as_fd()]));
        assert_eq!(wait_for(&[server.as_fd()], None), [true]);
        let Incoming::Message(first, files) = server.receive::<ToProducer>() else { panic!() };
        assert!(matches!(first, ToProducer::Ping) && files.is_empty());
        let Incoming::Message(second, mut files) = server.receive::<ToProducer>() else { panic!() };
        assert!(matches!(second, ToProducer::Ask { number: 3, at: asked, age: 7 } if asked == at));
        let mut text = String::new();
        File::from(files.remove(0)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        assert!(matches!(server.receive::<ToProducer>(), Incoming::Nothing));
        drop(client);
        assert!(matches!(server.receive::<ToProducer>(), Incoming::Closed));
    }

    #[test]
    fn who_takes_nothing_holds_nobody_up() {
        let (client, _server, _place) = pair();
        let sent = (0..100_000).take_while(|_| client.send(&ToProducer::Ping, &[])).count();
        assert!(sent > 0 && sent < 100_000);
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        let (client, server, _place) = pair();
        rustix::io::write(&client.0, b"garbage").unwrap();
        assert!(matches!(server.receive::<ToProducer>(), Incoming::Closed));
        assert!(!client.send(&"x".repeat(LONGEST), &[]), "longer than anybody takes");
    }

    #[test]
    fn nobody_listens_and_somebody_listens_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = directory(place.path());
        let connected = || Socket::connect(&directory, "x.sock").unwrap();
        assert!(matches!(connected(), Connected::Nobody));
        drop(Listener::bind(&directory, "x.sock").unwrap());
        assert!(matches!(connected(), Connected::Nobody), "only a name is left");
        let _listener = Listener::bind(&directory, "x.sock").unwrap();
        assert!(matches!(connected(), Connected::To(_)));
        let crowded = || matches!(connected(), Connected::Crowded);
        assert!((0..100_000).any(|_| crowded()), "no connection is accepted");
    }

    #[test]
    fn who_cannot_wait_for_files_asks_them_all() {
        // One file more than the process may open: the kernel refuses to poll so many files.
        let bell = WakeEvent::new().unwrap();
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
        let files = vec![bell.as_fd(); most as usize + 1];
        let ready = wait_for(&files, Some(Instant::now() + Duration::from_millis(1)));
        assert!(ready.len() == files.len() && ready.iter().all(|ready| *ready));
    }

    #[test]
    fn a_bell_is_heard_once_or_by_the_deadline() {
        let bell = WakeEvent::new().unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        assert_eq!(wait_for(&[bell.as_fd()], soon()), [false]);
        bell.ring();
        bell.ring();
        assert_eq!(wait_for(&[bell.as_fd()], None), [true]);
        bell.heard();
        assert_eq!(wait_for(&[bell.as_fd()], soon()), [false]);
    }
}
