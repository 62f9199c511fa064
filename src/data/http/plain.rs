//! Requests of any method, with any headers, as object stores and credential services need them.

use super::blocking::{BlockingHttp, Fetched, whole};
use super::client::{FileRequest, HttpClient, OpenConnection, OpenResponse, request, retry_after};
use super::failure::HttpFailure;
use super::url::{AddressPolicy, HttpUrl, is_link_local_address};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Method;
use hyper::header::HeaderMap;
use std::time::Duration;
use tokio::time::timeout;

/// A request of any method, sent exactly as given.
pub struct PlainRequest {
    /// The method.
    pub method: Method,
    /// URL of the request.
    pub url: HttpUrl,
    /// Headers, including credentials.
    pub headers: HeaderMap,
    /// Body, which may be empty.
    pub body: Bytes,
}

impl HttpClient {
    /// Sends a request unchanged to any address and waits for the headers of the response. Follows no redirect.
    async fn send_plain(
        &self,
        plain: &PlainRequest,
        patience: Duration,
    ) -> Result<OpenResponse<'_>, HttpFailure> {
        let make = |connection: &OpenConnection| {
            let mut request = request(&plain.url, &[], FileRequest::Whole, connection.proxy.as_ref())?;
            *request.method_mut() = plain.method.clone();
            *request.body_mut() = Full::new(plain.body.clone());
            plain.headers.iter().for_each(|(name, value)| {
                request.headers_mut().insert(name, value.clone());
            });
            Ok(request)
        };
        let answer = timeout(patience, self.send_once(&plain.url, make, AddressPolicy::Anywhere)).await;
        answer.map_err(|_| HttpFailure::Stalled(patience))?
    }
}

impl BlockingHttp {
    /// Makes a request once, unchanged, and reads a response of up to `most` bytes and of any status.
    ///
    /// # Errors
    /// The reason why there is no complete response.
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
    /// Returns the status of this response as a failure.
    pub fn failure(&self) -> HttpFailure {
        HttpFailure::Status(self.status, retry_after(&self.headers))
    }
}

impl HttpUrl {
    /// Whether the host is a link-local address.
    pub fn is_link_local_address(&self) -> bool {
        self.origin.bare_host().parse().is_ok_and(is_link_local_address)
    }
}
