//! A connection that carries one request at a time.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// The bytes that are read at a time, and the most of an answer's headers. More of them would cost memory for each
/// connection and leave the processor's cache before they are copied into the slot, and gain nothing measurable.
const READ_BUFFER: usize = 64 << 10;

/// The most headers of an answer.
const HEADERS: usize = 64;

/// A request whose body, if it has one, is all there.
pub type HttpRequest = Request<Full<Bytes>>;

/// A connection that carries one request at a time. Dropping it closes it, also in the middle of an answer.
pub struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpConnection {
    /// A connection over a stream that is open, driven by the runtime that this is called on.
    pub async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> hyper::Result<Self> {
        let mut http = http1::Builder::new();
        http.read_buf_exact_size(Some(READ_BUFFER)).max_headers(HEADERS);
        let (sender, driver) = http.handshake(TokioIo::new(stream)).await?;
        // What is wrong with a connection is told to the request that is on it.
        let driver = tokio::spawn(async move { drop(driver.with_upgrades().await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    /// Waits until it can carry a request. An error says that the other side has closed it.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        self.sender.ready().await
    }

    /// Sends a request, and waits until its answer begins.
    pub async fn send(&mut self, request: HttpRequest) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }
}
