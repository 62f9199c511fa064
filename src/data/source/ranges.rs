//! Sources whose files are read by requests for ranges of bytes.

use crate::http::{
    Fetched, FileRequest, HeaderMap, HttpFailure, HttpTarget, RequestError, ResponseCheck, header,
};
use base::error::Result;
use std::future::Future;
use std::pin::Pin;

/// A request that is being prepared. The outer error is an internal one. The inner failure is like that of a request,
/// because preparing may contact a credential service.
pub type PreparedRequest<'a> =
    Pin<Box<dyn Future<Output = Result<Result<HttpTarget, HttpFailure>>> + Send + 'a>>;

/// A dataset source whose files are read by requests for byte ranges. The readers in `store::io` use this trait.
pub trait RangeSource: Send + Sync {
    /// Prepares the request for the file `name`: its URL and headers. `ask` is the part of the file to request. If the
    /// server requires signatures, the request is signed, so it must be sent within a short time. May refresh
    /// credentials.
    fn prepare<'a>(&'a self, name: &'a [u8], ask: FileRequest) -> PreparedRequest<'a>;

    /// Whether each request costs money, so that few large requests are better.
    fn charges(&self) -> bool {
        false
    }

    /// Returns the failure for a refused request, from the headers and body of the response. `failure` is what the
    /// status code alone says.
    fn explain(&self, failure: HttpFailure, _headers: &HeaderMap, _body: &[u8]) -> HttpFailure {
        failure
    }

    /// Requests up to `most` bytes of the file `name`, and waits for them. If a response does not pass `check`,
    /// requests it again if that may help.
    ///
    /// # Errors
    /// The last failure after all retries; [`base::error::Error::Io`] if there is no file `name`.
    fn fetch(
        &self,
        name: &[u8],
        ask: FileRequest,
        most: u64,
        check: ResponseCheck<'_>,
    ) -> Result<Result<Fetched, RequestError>>;
}

/// The range of bytes in a response, from its `Content-Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub first: u64,
    /// Last byte, inclusive.
    pub last: u64,
    /// Size of the whole file in bytes.
    pub total: u64,
}

impl ContentRange {
    /// Parses the `Content-Range` header; `None` if it is missing or invalid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.trim();
        let (unit, text) = text.split_once(' ')?;
        let (range, total) = text.split_once('/')?;
        let (first, last) = range.trim().split_once('-')?;
        let range =
            Self { first: first.parse().ok()?, last: last.parse().ok()?, total: total.trim().parse().ok()? };
        (unit.eq_ignore_ascii_case("bytes") && range.first <= range.last && range.last < range.total)
            .then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HeaderValue;

    #[test]
    fn ranges_that_cannot_be_are_none() {
        let of = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            ContentRange::of(&HeaderMap::from_iter([(header::CONTENT_RANGE, value)]))
        };
        assert_eq!(of("bytes 5-9/10"), Some(ContentRange { first: 5, last: 9, total: 10 }));
        for text in
            ["bytes 9-5/10", "bytes 5-10/10", "bytes 5-9/*", "bytes */10", "items 5-9/10", "bytes", "5-9/10"]
        {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
