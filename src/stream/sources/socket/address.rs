//! Where a stream's receiver listens, and where a feeder finds it.

use crate::error::{Error, Result};
use crate::http::pinned;
use crate::http::{CertificatePin, TlsIdentity};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// The setting that errors name.
pub(super) const SETTING: &str = "source";

/// An open connection of whatever kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<Any: AsyncRead + AsyncWrite + Unpin + Send> Duplex for Any {}

/// A socket's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketAddress {
    /// A file, which is made with leave for its owner alone.
    Unix(PathBuf),
    /// An address of this machine, and no other. The system chooses a port in place of 0.
    Tcp(SocketAddr),
}

impl std::fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl SocketAddress {
    /// Connects, encrypted if the certificate to expect is known.
    pub(super) async fn connect(&self, pin: Option<CertificatePin>) -> std::io::Result<Box<dyn Duplex>> {
        match self {
            Self::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            Self::Tcp(address) => {
                let stream = tokio::net::TcpStream::connect(address).await?;
                let _ = stream.set_nodelay(true);
                match pin {
                    None => Ok(Box::new(stream)),
                    Some(pin) => {
                        let tls = pinned::connector(pin);
                        Ok(Box::new(tls.connect(pinned::server_name(), stream).await?))
                    }
                }
            }
        }
    }

    fn refused(&self, what: &str) -> Error {
        Error::config(SETTING, format!("Socket: cannot listen on {self}: {what}"))
    }
}

/// A socket that listens. Its file is removed when it is dropped, unless it is another's by then.
pub(super) struct ListeningSocket {
    /// The address with the port that the system chose.
    pub address: SocketAddress,
    socket: BoundSocket,
}

enum BoundSocket {
    Unix(std::os::unix::net::UnixListener, SocketFile),
    Tcp(std::net::TcpListener),
}

/// The file of a Unix socket, as it was made.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
    process: u32,
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|facts| (facts.dev(), facts.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A forked process has a copy of this, and not of the socket.
        if self.process == std::process::id() && self.inode.is_some() && inode(&self.path) == self.inode {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ListeningSocket {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::Config`] for `source` where that cannot be done.
    pub(super) fn bind(address: &SocketAddress) -> Result<Self> {
        match address {
            SocketAddress::Unix(path) => {
                clear(address, path)?;
                let listener = listen_on_file(path).map_err(|error| {
                    address.refused(&format!(
                        "{error}; give a path of at most 107 bytes in a directory of your own"
                    ))
                })?;
                let file = SocketFile { path: path.clone(), inode: inode(path), process: std::process::id() };
                Ok(Self { address: address.clone(), socket: BoundSocket::Unix(listener, file) })
            }
            SocketAddress::Tcp(socket) => {
                let listen = || {
                    let listener = std::net::TcpListener::bind(socket)?;
                    listener.set_nonblocking(true)?;
                    Ok((listener.local_addr()?, listener))
                };
                let (own, listener) = listen().map_err(|error: std::io::Error| {
                    address.refused(&format!(
                        "{error}; give an address of this machine, and a port that is free or 0"
                    ))
                })?;
                Ok(Self { address: SocketAddress::Tcp(own), socket: BoundSocket::Tcp(listener) })
            }
        }
    }

    /// The same for the runtime that this is called on; beside it the file, which is to be kept as long.
    pub(super) fn into_async(
        self,
        tls: Option<TlsAcceptor>,
    ) -> std::io::Result<(ConnectionAcceptor, Option<SocketFile>)> {
        match self.socket {
            BoundSocket::Unix(listener, file) => {
                Ok((ConnectionAcceptor::Unix(tokio::net::UnixListener::from_std(listener)?), Some(file)))
            }
            BoundSocket::Tcp(listener) => {
                Ok((ConnectionAcceptor::Tcp(tokio::net::TcpListener::from_std(listener)?, tls), None))
            }
        }
    }
}

/// Removes a socket's file that a process has left behind which is no more.
fn clear(address: &SocketAddress, path: &Path) -> Result<()> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(address.refused(&error.to_string())),
    };
    if !kind.is_socket() {
        return Err(address.refused("there is a file that is no socket; give another path"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|error| address.refused(&format!("the socket of a dead process stays: {error}"))),
        Ok(_) => Err(address.refused("another process listens there; give each receiver a path of its own")),
        Err(error) => Err(address.refused(&format!("whose socket that is cannot be told: {error}"))),
    }
}

fn listen_on_file(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the socket's own mode, so that there is no moment in which others may connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket.into())
}

/// What takes connections on a runtime.
pub(super) enum ConnectionAcceptor {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener, Option<TlsAcceptor>),
}

/// A connection that was accepted; encryption, if any, is yet to begin.
pub(super) enum AcceptedStream {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, Option<TlsAcceptor>),
}

impl ConnectionAcceptor {
    pub(super) async fn accept(&self) -> std::io::Result<AcceptedStream> {
        match self {
            Self::Unix(listener) => Ok(AcceptedStream::Unix(listener.accept().await?.0)),
            Self::Tcp(listener, tls) => Ok(AcceptedStream::Tcp(listener.accept().await?.0, tls.clone())),
        }
    }
}

impl AcceptedStream {
    pub(super) async fn begin(self) -> std::io::Result<Box<dyn Duplex>> {
        match self {
            Self::Unix(stream) => Ok(Box::new(stream)),
            Self::Tcp(stream, tls) => {
                let _ = stream.set_nodelay(true);
                match tls {
                    None => Ok(Box::new(stream)),
                    Some(tls) => Ok(Box::new(tls.accept(stream).await?)),
                }
            }
        }
    }
}

/// What the server proves itself by, made ready.
pub(super) fn acceptor(tls: Option<&TlsIdentity>) -> Result<Option<TlsAcceptor>> {
    tls.map(TlsIdentity::acceptor).transpose()
}
