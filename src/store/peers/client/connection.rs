//! The connections to a peer. There are few; they are opened when needed, and then stay open.

use super::stats::PeerCounters;
use super::transfer::Miss;
use base::counting::count;
use base::locks::lock;
use data::http::{HttpConnection, HttpRequest, pinned};
use hyper::Response;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_rustls::TlsConnector;

pub(super) type PeerRequest = HttpRequest;

pub(super) struct PeerConnection {
    http: HttpConnection,
    counters: Arc<PeerCounters>,
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.counters.connections.fetch_sub(1, Relaxed);
    }
}

pub(super) struct ConnectionPool {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    permits: Semaphore,
    /// Idle connections. The last one is taken first, so that no more connections stay open than are needed.
    idle: Mutex<Vec<PeerConnection>>,
    counters: Arc<PeerCounters>,
}

pub(super) struct Exchange<'a> {
    pub response: Response<Incoming>,
    connection: PeerConnection,
    pool: &'a ConnectionPool,
    _permit: SemaphorePermit<'a>,
}

pub(super) struct ConnectionPermit<'a> {
    pool: &'a ConnectionPool,
    permit: SemaphorePermit<'a>,
}

impl Exchange<'_> {
    /// Returns the connection to the pool. Call this only after the response was read to its end.
    pub(super) fn keep_connection(self) {
        lock(&self.pool.idle).push(self.connection);
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

    pub(super) async fn wait_for_connection(&self) -> ConnectionPermit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        ConnectionPermit { pool: self, permit }
    }

    async fn connect(&self) -> Result<PeerConnection, Miss> {
        let stream = TcpStream::connect(self.address).await.map_err(|_| Miss::Unreachable)?;
        // Without TCP_NODELAY, the last bytes of a request may wait for an acknowledgement. If the option cannot be
        // set, requests are only slower.
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
}

impl<'a> ConnectionPermit<'a> {
    pub(super) async fn send(self, request: impl Fn() -> PeerRequest) -> Result<Exchange<'a>, Miss> {
        let Self { pool, permit } = self;
        loop {
            let kept = lock(&pool.idle).pop();
            let used = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => pool.connect().await?,
            };
            // The peer may have closed an idle connection. A request that fails for this reason is sent again, which is
            // harmless even if the peer has received it.
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
