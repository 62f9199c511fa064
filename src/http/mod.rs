//! HTTP as a client of other machines, below everything that speaks it: the other nodes of a job, and the servers that
//! datasets lie on. URLs, connections, proxies, trust, redirects, deadlines and retries have their homes here.
//!
//! What a URL carries to prove who asks (user, password, query) is a credential: it goes into requests to that host and
//! nowhere else, and nothing here shows it.

mod blocking;
mod client;
mod connection;
mod deadline;
mod failure;
pub(crate) mod pinned;
#[cfg(feature = "objects")]
mod plain;
mod retry;
mod runtime;
mod tls;
mod token;
mod url;

pub(crate) use blocking::{AnswerCheck, AskedCounts, BlockingHttp, Fetched, WaitWatch};
pub(crate) use client::{Ask, HttpAnswer, HttpClient, HttpTarget};
pub(crate) use connection::{HttpConnection, HttpRequest};
pub use deadline::DeadlineLimits;
pub(crate) use deadline::{PostedRead, ReadEnd, RequestDeadline};
pub(crate) use failure::{COMPRESSED, GaveUp, HttpFailure, NO_CONTENT_RANGE, NO_RANGES};
pub(crate) use hyper::StatusCode;
pub(crate) use hyper::header::{self, HeaderMap, HeaderValue};
pub use pinned::{CertificatePin, TlsIdentity};
#[cfg(feature = "objects")]
pub(crate) use plain::PlainRequest;
pub(crate) use retry::{GrowingPauses, Retries};
pub(crate) use runtime::RuntimeThread;
pub(crate) use tls::provide_to_all;
pub use token::Token;
pub(crate) use url::{HttpUrl, Reach, is_http};
