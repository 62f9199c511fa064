//! Requests of any kind, as object stores and those who give out credentials for them want them.

use super::blocking::{BlockingHttp, Fetched, whole};
use super::client::{Ask, HttpAnswer, HttpClient, OpenConnection, request, retry_after};
use super::failure::HttpFailure;
use super::url::{HttpUrl, Reach, is_near};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Method;
use hyper::header::HeaderMap;
use std::time::Duration;
use tokio::time::timeout;

/// A request of any kind, for those who know what they ask and whom.
pub struct PlainRequest {
    /// The method.
    pub method: Method,
    /// Where the request goes.
    pub url: HttpUrl,
    /// The headers, credentials among them.
    pub headers: HeaderMap,
    /// The body, which may be empty.
    pub body: Bytes,
}

impl HttpClient {
    /// Sends a request as it is, wherever it goes, and waits until its answer begins. No redirect is followed.
    async fn send_plain(
        &self,
        plain: &PlainRequest,
        patience: Duration,
    ) -> Result<HttpAnswer<'_>, HttpFailure> {
        let make = |connection: &OpenConnection| {
            let mut request = request(&plain.url, &[], Ask::Whole, connection.proxy.as_ref())?;
            *request.method_mut() = plain.method.clone();
            *request.body_mut() = Full::new(plain.body.clone());
            plain.headers.iter().for_each(|(name, value)| {
                request.headers_mut().insert(name, value.clone());
            });
            Ok(request)
        };
        let answer = timeout(patience, self.send_once(&plain.url, make, Reach::Anywhere)).await;
        answer.map_err(|_| HttpFailure::Stalled(patience))?
    }
}

impl BlockingHttp {
    /// Makes a request as it is, once, and reads its answer of up to `most` bytes, whatever its status.
    ///
    /// # Errors
    /// Why there is no whole answer.
    pub fn exchange(
        &self,
        request: &PlainRequest,
        patience: Duration,
        most: u64,
    ) -> Result<Fetched, HttpFailure> {
        self.run(async |client| {
            let answer = client.send_plain(request, patience).await?;
            whole(answer, most).await
        })?
    }
}

impl Fetched {
    /// The failure that an answer of this status is.
    pub fn failure(&self) -> HttpFailure {
        HttpFailure::Status(self.status, retry_after(&self.headers))
    }
}

impl HttpUrl {
    /// Whether its host is an address that only this machine's own network has.
    pub fn is_near(&self) -> bool {
        self.origin.bare_host().parse().is_ok_and(is_near)
    }
}
