//! A web server that serves a directory by ranges, quickly, and fails on demand: the judge of clients in tests and
//! benchmarks.
//!
//! It speaks HTTP/1.1, plain or over TLS, and keeps connections open. Each has a thread of its own, which can wait
//! wherever a fault wants it to. What it serves is what the files are now; nothing of them is kept.

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

/// What a server is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens; port 0 is any that is free.
    pub address: SocketAddr,
    /// How it fails, to begin with.
    pub faults: Vec<Fault>,
    /// For what is drawn.
    pub seed: u64,
    /// Which `ETag` objects have.
    pub etag: EtagKind,
    /// Whether objects have `Last-Modified`.
    pub last_modified: bool,
    /// How directories are listed.
    pub index: IndexStyle,
    /// What a request must have.
    pub access: Option<Access>,
    /// The certificate to speak TLS with; none for plain HTTP.
    pub tls: Option<Identity>,
    /// Whether requests are kept for [`RangeServer::requests`].
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

/// The `ETag` of objects: of size, time of change and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtagKind {
    /// One that conditions and ranges may go by.
    Strong,
    /// One that they may not.
    Weak,
    /// None.
    Off,
}

/// Whose pages of directories are written.
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

/// What every request must have to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// This `Authorization`, such as `Basic dXNlcjpwYXNz` or `Bearer token`; else 401.
    Header(String),
    /// This pair in its query, as it stands there, such as `token=secret`; else 403.
    Query(String),
}

/// What the threads of a server share.
struct Shared {
    root: PathBuf,
    options: Options,
    tls: Option<Arc<ServerConfig>>,
    rules: Mutex<Rules>,
    counters: Mutex<Counters>,
    recorded: Mutex<Vec<Request>>,
    /// The connections that are open, by their numbers; `None` once the server stops.
    sockets: Mutex<Option<HashMap<u64, TcpStream>>>,
    /// Of the next request.
    number: AtomicU64,
}

/// What a thread left half done by a panic is only counted wrongly, and the panic fails the test.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Keeps a connection to be ended with the server; `false` if that is over.
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

/// A running server. It stops when it is dropped, and all its threads with it.
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
    /// When it cannot listen at the address, or the certificate is none.
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

    /// Such as `http://127.0.0.1:4000`, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has counted.
    pub fn stats(&self) -> Stats {
        locked(&self.shared.counters).stats.clone()
    }

    /// The requests that it has answered, if it was to record them.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.shared.recorded).clone()
    }

    /// From now on it fails so, and not as before. Nothing is remembered of earlier requests.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        *locked(&self.shared.rules) = Rules::new(self.shared.options.seed, faults);
    }
}

impl Drop for RangeServer {
    fn drop(&mut self) {
        // Ends `accept`, and all that connections wait for. What is closed already says so, and that is as well.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for socket in locked(&self.shared.sockets).take().into_iter().flatten() {
            let _ = socket.1.shutdown(Shutdown::Both);
        }
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || !matches!(ended, Some(Err(_))), "a thread of the server panicked");
    }
}

/// Takes connections until the server stops; returns when all of them have ended.
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
                // A client that has gone already, or no descriptor left for one: the next may do better.
                Err(_) if locked(&shared.sockets).is_some() => thread::yield_now(),
                Err(_) => return,
            }
        }
    });
}
