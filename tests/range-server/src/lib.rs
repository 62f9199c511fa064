//! A web server that serves a directory with ranges, quickly, and fails on demand. Clients are tested and benchmarked
//! with it.
//!
//! It speaks HTTP/1.1, plain or over TLS, and keeps connections open. Each connection has its own thread, which can
//! pause at any point if a fault asks for it. The server always serves the current files, and caches nothing.

mod answer;
mod connection;
mod fault;
mod index;
mod object;
mod request;
mod stats;
mod tls;
mod wire;

pub use fault::{Fault, Kind, Retry, When};
pub use request::Request;
pub use stats::{PathStats, Stats};
pub use tls::{CertificateKind, Identity, TlsVersions};

use fault::Rules;
use rustls::ServerConfig;
use stats::Counters;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen at; port 0 is any free port.
    pub address: SocketAddr,
    /// The initial faults.
    pub faults: Vec<Fault>,
    /// The seed for random draws.
    pub seed: u64,
    /// The kind of `ETag` of objects.
    pub etag: EtagKind,
    /// Whether objects have `Last-Modified`.
    pub last_modified: bool,
    /// The format of directory listings.
    pub index: IndexStyle,
    /// The credentials that requests must have.
    pub access: Option<Access>,
    /// The certificate to speak TLS with; none for plain HTTP.
    pub tls: Option<Identity>,
    /// Whether requests are recorded for [`RangeServer::requests`].
    pub record: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            faults: Vec::new(),
            seed: 0,
            etag: EtagKind::Strong,
            last_modified: true,
            index: IndexStyle::Python,
            access: None,
            tls: None,
            record: false,
        }
    }
}

/// The `ETag` of objects, made from size, time of change and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtagKind {
    /// A strong one, which conditions and ranges may use.
    Strong,
    /// A weak one, which they may not use.
    Weak,
    /// None.
    Off,
}

/// The server whose listing format is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexStyle {
    /// Those of Python's `http.server`.
    Python,
    /// Those of nginx.
    Nginx,
    /// Those of Apache.
    Apache,
    /// None: directories are not found.
    Off,
}

/// The credentials that every request must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// This `Authorization`, such as `Basic dXNlcjpwYXNz` or `Bearer token`; otherwise the status is 401.
    Header(String),
    /// This pair in the query, byte for byte, such as `token=secret`; otherwise the status is 403.
    Query(String),
}

/// The state that the threads of a server share.
struct Shared {
    root: PathBuf,
    options: Options,
    tls: Option<Arc<ServerConfig>>,
    rules: Mutex<Rules>,
    counters: Mutex<Counters>,
    recorded: Mutex<Vec<Request>>,
    /// The open connections by their numbers; `None` after the server has stopped.
    sockets: Mutex<Option<HashMap<u64, TcpStream>>>,
    /// The number of the next request.
    number: AtomicU64,
}

/// Ignores poisoning: after a panic of a thread, only its counts are wrong, and the panic fails the test.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Registers a connection, which the server closes when it stops. Returns `false` if it has stopped already.
    fn remember(&self, number: u64, socket: &TcpStream) -> bool {
        let mut sockets = locked(&self.sockets);
        let (Some(sockets), Ok(socket)) = (&mut *sockets, socket.try_clone()) else { return false };
        sockets.insert(number, socket);
        true
    }

    fn forget(&self, number: u64) {
        if let Some(sockets) = &mut *locked(&self.sockets) {
            sockets.remove(&number);
        }
    }
}

/// A running server. When it is dropped, it and all its threads stop.
pub struct RangeServer {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RangeServer {
    /// Serves the directory `root`.
    ///
    /// # Errors
    /// If it cannot listen at the address, or the certificate is invalid.
    pub fn start(root: &Path, options: Options) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let tls = options.tls.as_ref().map(Identity::config).transpose()?;
        let listener = TcpListener::bind(options.address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            tls,
            rules: Mutex::new(Rules::new(options.seed, options.faults.clone())),
            counters: Mutex::default(),
            recorded: Mutex::default(),
            sockets: Mutex::new(Some(HashMap::new())),
            number: AtomicU64::new(0),
            options,
        });
        let thread = {
            let (listener, shared) = (listener.try_clone()?, Arc::clone(&shared));
            thread::Builder::new()
                .name("range-server".to_owned())
                .spawn(move || accept(&listener, &shared))?
        };
        Ok(Self { address, listener, shared, thread: Some(thread) })
    }

    /// The server's URL, such as `http://127.0.0.1:4000`, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        locked(&self.shared.counters).stats.clone()
    }

    /// The requests that the server has answered, if it records them.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.shared.recorded).clone()
    }

    /// Replaces the faults. The state of earlier requests is reset.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        *locked(&self.shared.rules) = Rules::new(self.shared.options.seed, faults);
    }
}

impl Drop for RangeServer {
    fn drop(&mut self) {
        // Ends `accept`, and all waits of connections. Errors of sockets that are already closed are ignored.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for socket in locked(&self.shared.sockets).take().into_iter().flatten() {
            let _ = socket.1.shutdown(Shutdown::Both);
        }
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || !matches!(ended, Some(Err(_))), "a thread of the server panicked");
    }
}

/// Accepts connections until the server stops; returns when all of them have ended.
fn accept(listener: &TcpListener, shared: &Shared) {
    thread::scope(|threads| {
        for number in 0.. {
            match listener.accept() {
                Ok((socket, _)) => {
                    if !shared.remember(number, &socket) {
                        return;
                    }
                    threads.spawn(move || connection::serve(shared, number, socket));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                // The client has left already, or there is no free descriptor: try again.
                Err(_) if locked(&shared.sockets).is_some() => thread::yield_now(),
                Err(_) => return,
            }
        }
    });
}
