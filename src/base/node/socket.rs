//! Sockets between the processes of one user on a node. Both ends check the user of the other process.
//!
//! A socket gets its name only when its process listens. So if connections to a name are refused, its listener no
//! longer exists.

use super::RuntimeDirectory;
use crate::error::{Error, Result};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// Flags of a socket that is closed on exec and whose calls never block.
pub const NONBLOCKING_CLOEXEC: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const BACKLOG: i32 = 128;

/// The suffix of a socket's name until its process listens.
const UNFINISHED: &str = ".new";

/// The process at the other end of a socket, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// The user id of the process.
    pub user: u32,
    /// The process id; 0 if the process is not visible to this process, for instance because it is in another
    /// container.
    pub pid: u32,
}

impl PeerProcess {
    /// Asks the kernel for the process at the other end: the process that connected, or the process that began to
    /// listen.
    ///
    /// # Errors
    /// An error if `socket` is not connected.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // SAFETY: all fields are integers, for which zero is a valid value. rustix is not used here, because it rejects
        // the process id 0.
        let mut found: libc::ucred = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        let descriptor = socket.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, and `found` has room for `size` bytes.
        let result = unsafe {
            let place = (&raw mut found).cast();
            libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut size)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { user: found.uid, pid: found.pid.try_into().unwrap_or(0) })
    }

    /// Whether the process belongs to this user.
    pub fn is_ours(&self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }
}

/// A listening socket that accepts only processes of this user. Dropping it does not remove its name.
pub struct UserListener(UnixListener);

impl UserListener {
    /// Listens as `name` in `directory`, and replaces a former socket of that name.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn bind(directory: &RuntimeDirectory, name: &str) -> Result<Self> {
        listen(directory, name, SocketType::STREAM, SocketFlags::CLOEXEC).map(|socket| Self(socket.into()))
    }

    /// Waits for a connection from a process of this user. Connections of other users are closed.
    ///
    /// # Errors
    /// `InvalidInput` after [`UserListener::stop`]; other errors may be temporary.
    pub fn accept(&self) -> io::Result<UnixStream> {
        accept(&self.0, SocketFlags::CLOEXEC).map(UnixStream::from)
    }

    /// Ends all current and later calls of [`UserListener::accept`].
    pub fn stop(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

/// Creates a socket of this kind that listens as `name` in `directory`, for this user only. Replaces a former socket of
/// that name.
///
/// # Errors
/// [`Error::Unavailable`].
pub fn listen(
    directory: &RuntimeDirectory,
    name: &str,
    kind: SocketType,
    flags: SocketFlags,
) -> Result<OwnedFd> {
    let unfinished = format!("{name}{UNFINISHED}");
    directory.remove(&unfinished);
    let bound = || -> io::Result<OwnedFd> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // Set the mode before `bind`, which creates the file with the mode of the socket.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(directory.place_of(&unfinished))?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        // Rename only after `listen`. So a process that finds `name` but cannot connect can conclude that the listener
        // has exited.
        std::fs::rename(directory.place_of(&unfinished), directory.place_of(name))?;
        Ok(socket)
    };
    bound().inspect_err(|_| directory.remove(&unfinished)).map_err(|error| {
        Error::Unavailable(format!("cannot listen at {}: {error}", directory.path().join(name).display()))
    })
}

/// Accepts the next connection of a process of this user, with these flags. Connections of other users are closed.
/// Blocks if the listener blocks.
///
/// # Errors
/// `WouldBlock` if the listener does not block and there is no connection; other errors may be temporary.
pub fn accept(listener: impl AsFd, flags: SocketFlags) -> io::Result<OwnedFd> {
    loop {
        let socket = rustix::io::retry_on_intr(|| rustix::net::accept_with(&listener, flags))?;
        if PeerProcess::of(&socket).is_ok_and(|peer| peer.is_ours()) {
            return Ok(socket);
        }
    }
}

/// The result of connecting to the name of a socket.
pub enum SocketContact {
    /// A process of this user listens. Calls on this socket never block.
    Listens(OwnedFd, PeerProcess),
    /// A process of another user listens.
    OfAnother(PeerProcess),
    /// A process listens, but too many connections wait to be accepted.
    Crowded,
    /// No process listens: the listener has exited and left its name behind, or the name is not a socket.
    Nobody,
    /// The name does not exist.
    Missing,
}

/// Connects a socket of this kind to `name` in `directory`, without blocking.
///
/// # Errors
/// For example, if this process cannot open more files.
pub fn connect(directory: &RuntimeDirectory, name: &str, kind: SocketType) -> io::Result<SocketContact> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, NONBLOCKING_CLOEXEC, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(directory.place_of(name))?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(SocketContact::Crowded),
        Err(Errno::CONNREFUSED) => return Ok(SocketContact::Nobody),
        Err(Errno::NOENT) => return Ok(SocketContact::Missing),
        Err(error) => return Err(error.into()),
    }
    let peer = PeerProcess::of(&socket)?;
    Ok(if peer.is_ours() { SocketContact::Listens(socket, peer) } else { SocketContact::OfAnother(peer) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    fn contact(directory: &RuntimeDirectory, name: &str) -> io::Result<SocketContact> {
        connect(directory, name, SocketType::STREAM)
    }

    #[test]
    fn both_ends_know_whose_the_other_is_and_the_name_tells_who_listens() {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDirectory::within(place.path()).unwrap();
        assert!(matches!(contact(&directory, "a").unwrap(), SocketContact::Missing));
        let listener = UserListener::bind(&directory, "a").unwrap();
        assert_eq!(directory.names(), ["a"]);
        let file = std::fs::metadata(directory.place_of("a")).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o7777, 0o600);
        let SocketContact::Listens(ours, peer) = contact(&directory, "a").unwrap() else { panic!() };
        assert_eq!(peer, PeerProcess { user: rustix::process::geteuid().as_raw(), pid: std::process::id() });
        let mut theirs = listener.accept().unwrap();
        theirs.write_all(b"x").unwrap();
        drop(theirs);
        let mut heard = Vec::new();
        UnixStream::from(ours).read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"x");
        let waiting: Vec<_> = (0..2 * BACKLOG).map(|_| contact(&directory, "a").unwrap()).collect();
        assert!(matches!(waiting.last().unwrap(), SocketContact::Crowded));
        drop(listener);
        assert!(matches!(contact(&directory, "a").unwrap(), SocketContact::Nobody));
        let again = UserListener::bind(&directory, "a").unwrap();
        assert!(matches!(contact(&directory, "a").unwrap(), SocketContact::Listens(..)));
        drop(again);
        std::fs::write(directory.place_of("b"), "no socket").unwrap();
        assert!(matches!(contact(&directory, "b").unwrap(), SocketContact::Nobody));
    }

    #[test]
    fn stopping_ends_the_wait() {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDirectory::within(place.path()).unwrap();
        let listener = UserListener::bind(&directory, "a").unwrap();
        let error = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept());
            std::thread::sleep(std::time::Duration::from_millis(20));
            listener.stop();
            waiting.join().unwrap().unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(matches!(contact(&directory, "a").unwrap(), SocketContact::Nobody));
    }
}
