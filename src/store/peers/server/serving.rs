//! The state that all connections of a server share, and the loop that accepts them.

use super::answer::answer;
use super::connections::{ConnectionPlace, OpenConnections};
use super::copies::CopyReader;
use super::pace::ServingPace;
use super::stats::{ServerCounters, ServerStats};
use crate::peers::bound::ByteBudget;
use crate::peers::served_cache::ServedCache;
use crate::peers::wire::SharedDataset;
use base::counting::count;
use base::locks::{lock, read_lock};
use data::http::Token;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const READ_BUFFER: usize = 64 << 10;

/// The maximum size of a request line with its headers, in bytes, and the maximum number of headers.
const HEADER_BYTES: usize = 16 << 10;
const HEADERS: usize = 32;

/// The pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Serving {
    pub token: Token,
    pub served_caches: RwLock<HashMap<SharedDataset, Arc<dyn ServedCache>>>,
    pub copies: CopyReader,
    pub byte_budget: ByteBudget,
    pub pace: Mutex<ServingPace>,
    pub own_reads_wait: Arc<AtomicBool>,
    pub counters: ServerCounters,
    pub connections: Arc<OpenConnections>,
    pub start: Instant,
}

impl Serving {
    pub(super) fn served_cache(&self, dataset: &SharedDataset) -> Option<Arc<dyn ServedCache>> {
        read_lock(&self.served_caches).get(dataset).cloned()
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until `bytes` may be read and sent. Returns `false` if the wait would be too long.
    pub(super) async fn wait_to_serve(&self, bytes: u64) -> bool {
        let now = self.now();
        let wait = lock(&self.pace).wait(now, bytes);
        let Some(wait) = wait else { return false };
        // The runtime's clock counts milliseconds and would turn a wait of microseconds into one of a millisecond. Skip
        // such short waits.
        if wait >= Duration::from_micros(500) {
            tokio::time::sleep(wait).await;
        }
        true
    }

    pub(super) fn adjust_pace(&self, begun: Duration) {
        let now = self.now();
        let wait = self.own_reads_wait.load(Relaxed);
        lock(&self.pace).adjust(now, now - begun, wait);
    }

    pub(super) fn stats(&self) -> ServerStats {
        ServerStats { open_connections: self.connections.open() as u64, ..self.counters.read() }
    }

    pub(super) async fn listen(self: Arc<Self>, listener: TcpListener, tls: Option<TlsAcceptor>) {
        tokio::spawn(self.clone().end_overdue());
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                count(&self.counters.accept_errors, 1);
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let Some(place) = self.connections.enter() else {
                count(&self.counters.dropped_connections, 1);
                continue;
            };
            count(&self.counters.connections, 1);
            let number = place.number;
            let task = tokio::spawn(self.clone().converse(stream, tls.clone(), place));
            self.connections.served_by(number, task.abort_handle());
        }
    }

    async fn end_overdue(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.connections.check_interval()).await;
            self.connections.end_overdue(&self.counters);
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, tls: Option<TlsAcceptor>, place: ConnectionPlace) {
        // Without TCP_NODELAY, the last bytes of a response may wait for an acknowledgement. If the option cannot be
        // set, responses are only slower.
        let _ = stream.set_nodelay(true);
        match tls {
            None => self.answer_on(stream, place).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.answer_on(stream, place).await;
                }
            }
        }
    }

    async fn answer_on(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin, place: ConnectionPlace) {
        let watch = place.watch.clone();
        let service = service_fn(|request| {
            let (serving, watch) = (self.clone(), watch.clone());
            async move { Ok::<_, Infallible>(answer(serving, watch, request).await) }
        });
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_BUFFER).max_header_size(HEADER_BYTES).max_headers(HEADERS);
        // A client that has closed its sending side still gets the response.
        http.half_close(true).auto_date_header(false);
        // Ignore an error: a connection that breaks, or that does not carry HTTP, concerns only the client.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }
}
