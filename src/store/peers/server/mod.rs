//! Serves the samples in a node's cache to the job's other nodes.
//!
//! The server's thread answers from memory and from the page cache. Other threads read from the drive, and store pushed
//! samples for which space must be freed first. The server slows down while the node's own training waits for the same
//! drive, but never below a quarter of the drive's time, because all nodes wait for one another.

mod answer;
mod connections;
mod copies;
mod pace;
mod serving;
mod stats;

pub use connections::ConnectionLimits;
pub use stats::ServerStats;

use super::bound::ByteBudget;
use super::served_cache::ServedCache;
use super::wire::SharedDataset;
use base::error::{Error, Result};
use base::locks::write_lock;
use base::notices::Notices;
use connections::OpenConnections;
use copies::CopyReader;
use data::http::{RuntimeThread, TlsIdentity, Token};
use pace::ServingPace;
use serving::Serving;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

const DIED: &str = "the thread that serves other nodes panicked: from now on, they read this node's samples from the \
                    source. This is a bug in Foreload: please report it";

/// The settings of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// The only address on which the server listens. For port 0, the system chooses a port.
    pub listen: SocketAddr,
    /// The secret token that each request must carry.
    pub token: Token,
    /// The server's certificate and key; `None` for unencrypted connections.
    pub tls: Option<TlsIdentity>,
    /// The maximum number of open connections. Further connections are closed at once.
    pub connections: usize,
    /// The maximum number of bytes in responses and pushes in progress. Further requests get the answer "try again
    /// later".
    pub bytes_under_way: usize,
    /// The size in bytes of the buffers for reads from files and for pushes. All buffers stay in memory.
    pub buffers: usize,
    /// The number of threads that read copies that are not in the page cache.
    pub read_threads: usize,
    /// The maximum number of bytes to serve per second; `None` is unlimited.
    pub bandwidth: Option<u64>,
    /// Whether the node's own training waits for its reads from the drive or memory that the server also uses. The
    /// server slows down while this is true. Must be false while training waits for peers, because nodes that wait for
    /// one another would slow one another down.
    pub own_reads_wait: Arc<AtomicBool>,
    /// The time limits of connections.
    pub limits: ConnectionLimits,
    /// Receives a warning if the server's thread panics.
    pub notices: Notices,
}

impl ServerOptions {
    /// Makes options to listen on `listen` for requests with `token`. The defaults are no TLS, 64 MiB in progress, 32
    /// MiB of buffers, 2 threads and unlimited bandwidth. At most 4096 connections are open, and at most a quarter of
    /// the process's limit on open files.
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

/// The default limit on connections is enough for a large job, and leaves the descriptors that training needs.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(4096, |files| (files / 4).clamp(16, 4096) as usize)
}

/// A node's server, on its own thread. Dropping it closes all connections.
///
/// A forked child has a copy of the server without its threads. Dropping this copy does nothing.
pub struct Server {
    serving: Arc<Serving>,
    address: SocketAddr,
    /// The listening socket. Forked processes have copies of it, which are closed together with it.
    listening: Arc<TcpListener>,
    thread: RuntimeThread,
}

impl Server {
    /// Begins to listen and to answer requests. Requests for a dataset are refused until [`Server::share`] adds that
    /// dataset.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` if the server cannot listen on the address or the certificate's key is wrong, and
    /// for `memory` if there is no memory for the buffers; [`Error::Unavailable`] if the system refuses a thread.
    pub fn start(options: ServerOptions) -> Result<Self> {
        let refused = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another loader or job uses this port: give each loader its own port, or give the address without \
                     a port to use any free one"
                }
                _ => "use an address of this machine",
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
            served_caches: RwLock::default(),
            copies,
            byte_budget: ByteBudget::new(options.bytes_under_way),
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

    /// Returns the address on which the server listens, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to serve the samples of `dataset` from `served_cache`, which replaces an earlier cache of the same
    /// dataset.
    pub fn share(&self, dataset: SharedDataset, served_cache: Arc<dyn ServedCache>) {
        write_lock(&self.serving.served_caches).insert(dataset, served_cache);
    }

    /// Stops serving the samples of `dataset`.
    pub fn withdraw(&self, dataset: &SharedDataset) {
        write_lock(&self.serving.served_caches).remove(dataset);
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> ServerStats {
        self.serving.stats()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_own_process() {
            // Dropping the socket is not enough, because a forked process may still have a copy.
            close(&self.listening);
        }
    }
}

/// Shuts down a listening socket and all its copies, so that new connections are refused.
fn close(listening: &TcpListener) {
    let _ = rustix::net::shutdown(listening, rustix::net::Shutdown::Both);
}
