//! Ranges of files that are asked for by requests.

use crate::http::{AnswerCheck, Ask, Fetched, GaveUp, HeaderMap, HttpFailure, HttpTarget, header};
use base::error::Result;
use std::future::Future;
use std::pin::Pin;

/// A request that is being prepared. Who gives out credentials may fail as any server does.
pub type PreparedRequest<'a> =
    Pin<Box<dyn Future<Output = Result<Result<HttpTarget, HttpFailure>>> + Send + 'a>>;

/// A place whose files are read by requests, as the reader of such places (`store::io`) sees it.
pub trait RangeSource: Send + Sync {
    /// Where the file with this name is asked for, and with which headers: for `ask`, and good for a moment, in which
    /// it may be signed. Credentials may be refreshed meanwhile.
    fn prepare<'a>(&'a self, name: &'a [u8], ask: Ask) -> PreparedRequest<'a>;

    /// Whether whoever keeps the place charges each request, so that few and large ones are better.
    fn charges(&self) -> bool {
        false
    }

    /// What a refusal means, which is taken for `failure` by its status alone.
    fn explain(&self, failure: HttpFailure, _headers: &HeaderMap, _body: &[u8]) -> HttpFailure {
        failure
    }

    /// Asks for the file with this name, of which up to `most` bytes are to come, and waits for them. What does not
    /// pass `check` is asked for again, if that may help.
    ///
    /// # Errors
    /// The last failure where they do not come, however often they are asked for; [`base::error::Error::Io`] where
    /// there is no such name.
    fn fetch(
        &self,
        name: &[u8],
        ask: Ask,
        most: u64,
        check: AnswerCheck<'_>,
    ) -> Result<Result<Fetched, GaveUp>>;
}

/// Which bytes of a file an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, which is one of them.
    pub last: u64,
    /// The number of bytes of the file.
    pub total: u64,
}

impl ContentRange {
    /// What the headers of an answer say; `None` where they do not say it.
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
