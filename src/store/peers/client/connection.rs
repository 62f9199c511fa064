//! The connections to a peer. They are few, are opened when needed, and are then kept open.

use super::stats::PeerCounters;
use super::transfer::Miss;
use crate::peers::counters::count;
use data::http::pinned;
use data::http::{HttpConnection, HttpRequest};
use hyper::Response;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_rustls::TlsConnector;

/// A request whose body, if any, is complete.
pub(super) type PeerRequest = HttpRequest;

/// A connection that is counted while it is open.
pub(super) struct PeerConnection {
    http: HttpConnection,
    counters: Arc<PeerCounters>,
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.counters.connections.fetch_sub(1, Relaxed);
    }
}

/// The connections to one peer for one purpose, reads or pushes.
pub(super) struct ConnectionPool {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    permits: Semaphore,
    /// Idle connections. The most recently used connection is taken first, so that no more connections are open than
    /// needed.
    idle: Mutex<Vec<PeerConnection>>,
    counters: Arc<PeerCounters>,
}

/// A response whose headers have arrived, and its connection.
pub(super) struct Exchange<'a> {
    pub response: Response<Incoming>,
    connection: PeerConnection,
    pool: &'a ConnectionPool,
    _permit: SemaphorePermit<'a>,
}

/// The permit to use one of the pool's connections.
pub(super) struct ConnectionPermit<'a> {
    pool: &'a ConnectionPool,
    permit: SemaphorePermit<'a>,
}

impl Exchange<'_> {
    /// Keeps the connection for the next request. Call this only after the response was read to its end.
    pub(super) fn keep_connection(self) {
        self.pool.idle().push(self.connection);
    }
}

impl ConnectionPool {
    pub(super) fn new(
        address: SocketAddr,
        tls: Option<TlsConnector>,
        connections: usize,
        counters: Arc<PeerCounters>,
    ) -> Self {
        Self { address, tls, permits: Semaphore::new(connections), idle: Mutex::default(), counters }
    }

    /// Waits until a connection is free.
    pub(super) async fn wait_for_connection(&self) -> ConnectionPermit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        ConnectionPermit { pool: self, permit }
    }

    async fn connect(&self) -> Result<PeerConnection, Miss> {
        let stream = TcpStream::connect(self.address).await.map_err(|_| Miss::Unreachable)?;
        // Without TCP_NODELAY a request's last bytes wait for an acknowledgement. A failure to set the option does no
        // harm.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.begin(stream).await,
            Some(tls) => {
                let stream =
                    tls.connect(pinned::server_name(), stream).await.map_err(|_| Miss::Unreachable)?;
                self.begin(stream).await
            }
        }
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<PeerConnection, Miss> {
        let http = HttpConnection::begin(stream).await.map_err(|_| Miss::Unreachable)?;
        count(&self.counters.connects, 1);
        count(&self.counters.connections, 1);
        Ok(PeerConnection { http, counters: self.counters.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PeerConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> ConnectionPermit<'a> {
    /// Sends a request, and waits until the headers of the response arrive.
    pub(super) async fn send(self, request: impl Fn() -> PeerRequest) -> Result<Exchange<'a>, Miss> {
        let Self { pool, permit } = self;
        loop {
            let kept = pool.idle().pop();
            let used = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => pool.connect().await?,
            };
            // The peer may have closed an idle connection. A request that fails for that reason is sent again. The
            // repetition does no harm, even if the peer has received the first request.
            if used && connection.http.ready().await.is_err() {
                continue;
            }
            match connection.http.send(request()).await {
                Ok(response) => return Ok(Exchange { response, connection, pool, _permit: permit }),
                Err(_) if used => {}
                Err(error) => return Err(if error.is_parse() { Miss::Wrong } else { Miss::Unreachable }),
            }
        }
    }
}
