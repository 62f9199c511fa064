//! Serves what a node's cache holds to the job's other nodes.

mod answer;
mod connections;
mod copies;
mod pace;
mod serving;
mod stats;

pub use connections::ConnectionLimits;
pub use stats::ServerStats;

use super::bound::BytesUnderWay;
use super::shelf::Shelf;
use super::wire::SharedDataset;
use base::error::{Error, Result};
use base::notices::Notices;
use connections::OpenConnections;
use copies::CopyReader;
use data::http::{RuntimeThread, TlsIdentity, Token};
use pace::ServingPace;
use serving::Serving;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// What the user is told when the server's thread has died.
const DIED: &str = "the thread that serves other nodes has died: from now on they read from the source what this one \
                    keeps; this is a defect in Foreload, please report it";

/// How a node serves.
#[derive(Debug)]
pub struct ServerOptions {
    /// The address to listen on, and no other. The system chooses a port in place of 0.
    pub listen: SocketAddr,
    /// What a request must carry.
    pub token: Token,
    /// With it connections are encrypted.
    pub tls: Option<TlsIdentity>,
    /// The most connections at a time. One more is closed at once.
    pub connections: usize,
    /// The most bytes of answers and pushes under way at a time. What would be more is told to come later.
    pub bytes_under_way: usize,
    /// The bytes of buffers for what is read from files and for pushes, all of which are resident.
    pub buffers: usize,
    /// The number of threads that read from files what the page cache does not have.
    pub read_threads: usize,
    /// The most bytes a second to serve; `None` is as fast as it goes.
    pub bandwidth: Option<u64>,
    /// While this is `true` the node's own training waits for reads of its own from the same drive or memory, and
    /// serving slows down. It must not mean that training waits for peers: nodes that wait for one another would slow
    /// one another down.
    pub own_reads_wait: Arc<AtomicBool>,
    /// How long a connection may take.
    pub limits: ConnectionLimits,
    /// Where the user is told should the server die.
    pub notices: Notices,
}

impl ServerOptions {
    /// To listen on `listen` for requests with `token`: without TLS, 4096 connections or a quarter of the files that
    /// the process may have open, 64 MiB under way, 32 MiB of buffers, 2 threads, as fast as it goes.
    pub fn new(listen: SocketAddr, token: Token) -> Self {
        Self {
            listen,
            token,
            tls: None,
            connections: most_connections(),
            bytes_under_way: 64 << 20,
            buffers: 32 << 20,
            read_threads: 2,
            bandwidth: None,
            own_reads_wait: Arc::default(),
            limits: ConnectionLimits::default(),
            notices: Notices::default(),
        }
    }
}

/// As many connections as are of use in a large job, without taking the descriptors that training needs for its files.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(4096, |files| (files / 4).clamp(16, 4096) as usize)
}

/// A node's server, on a thread of its own. Dropping it closes all connections.
///
/// A process forked from this one has none of its threads, and dropping its copy does nothing.
pub struct Server {
    serving: Arc<Serving>,
    address: SocketAddr,
    /// The listening socket once more: the server closes it for forked processes, too, which have copies of it.
    listening: Arc<TcpListener>,
    thread: RuntimeThread,
}

impl Server {
    /// Listens, and begins to serve. It serves nothing until it is given a [shelf](Server::share).
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` when the address cannot be listened on or the certificate's key is wrong, and for
    /// `memory` without memory for the buffers; [`Error::Unavailable`] when the system refuses a thread.
    pub fn start(options: ServerOptions) -> Result<Self> {
        let refused = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another loader or another job listens there: give each loader a port of its own, or the address \
                     without a port, for any that is free"
                }
                _ => "give an address of this machine",
            };
            Error::config("peers", format!("listen: cannot listen on {}: {error}; {remedy}", options.listen))
        };
        let tls = options.tls.as_ref().map(TlsIdentity::acceptor).transpose()?;
        let copies = CopyReader::new(options.read_threads, options.buffers)?;
        let listener = TcpListener::bind(options.listen).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let listening = Arc::new(listener.try_clone().map_err(refused)?);
        let start = Instant::now();
        let serving = Arc::new(Serving {
            token: options.token.clone(),
            shelves: RwLock::default(),
            copies,
            under_way: BytesUnderWay::new(options.bytes_under_way),
            pace: Mutex::new(ServingPace::new(options.bandwidth)),
            own_reads_wait: options.own_reads_wait.clone(),
            counters: Default::default(),
            connections: OpenConnections::new(options.connections, options.limits),
            start,
        });
        let begin = || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            Ok(serving.clone().listen(listener, tls))
        };
        let died = {
            let (listening, notices) = (listening.clone(), options.notices.clone());
            move || {
                close(&listening);
                notices.warn_once(("peers", "server"), || DIED.to_owned());
            }
        };
        let thread = RuntimeThread::start("foreload-peers", begin, died)?;
        Ok(Self { serving, address, listening, thread })
    }

    /// The address that it listens on, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the samples of `dataset` from `shelf` from now on, in place of any former shelf of that dataset.
    pub fn share(&self, dataset: SharedDataset, shelf: Arc<dyn Shelf>) {
        self.serving.shelves.write().unwrap_or_else(PoisonError::into_inner).insert(dataset, shelf);
    }

    /// Serves the samples of `dataset` no more.
    pub fn withdraw(&self, dataset: &SharedDataset) {
        self.serving.shelves.write().unwrap_or_else(PoisonError::into_inner).remove(dataset);
    }

    /// What it did so far.
    pub fn stats(&self) -> ServerStats {
        self.serving.stats()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_here() {
            // A forked process may live on with a copy of the socket.
            close(&self.listening);
        }
    }
}

/// Closes a listening socket and all its copies, so that nobody connects to them in vain.
fn close(listening: &TcpListener) {
    let _ = rustix::net::shutdown(listening, rustix::net::Shutdown::Both);
}
