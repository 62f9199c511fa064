//! An HTTP/1.1 connection that carries one request at a time.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// Size of the read buffer in bytes, and limit for the headers of a response. A larger buffer would cost memory for
/// each connection, overflow the processor's cache before its bytes are copied into the slot, and gain nothing
/// measurable.
const READ_BUFFER: usize = 64 << 10;

const HEADERS: usize = 64;

/// A request with its complete body, which may be empty.
pub type HttpRequest = Request<Full<Bytes>>;

/// A connection that carries one request at a time. Dropping this value closes the connection, even in the middle of a
/// response.
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
    /// Starts HTTP over an open stream, driven by the current runtime.
    pub async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> hyper::Result<Self> {
        let mut http = http1::Builder::new();
        http.read_buf_exact_size(Some(READ_BUFFER)).max_headers(HEADERS);
        let (sender, driver) = http.handshake(TokioIo::new(stream)).await?;
        // Ignore the driver's errors: the request on the connection reports them.
        let driver = tokio::spawn(async move { drop(driver.with_upgrades().await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    /// Waits until the connection can carry a request. Fails if the server has closed the connection.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        self.sender.ready().await
    }

    /// Sends a request and waits for the headers of the response.
    pub async fn send(&mut self, request: HttpRequest) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }
}
