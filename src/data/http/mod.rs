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
pub mod pinned;
#[cfg(feature = "objects")]
mod plain;
mod retry;
mod runtime;
mod tls;
mod token;
mod url;

pub use blocking::{AnswerCheck, AskedCounts, BlockingHttp, Fetched, WaitWatch};
pub use client::{Ask, HttpAnswer, HttpClient, HttpTarget};
pub use connection::{HttpConnection, HttpRequest};
pub use deadline::DeadlineLimits;
pub use deadline::{PostedRead, ReadEnd, RequestDeadline};
pub use failure::{COMPRESSED, GaveUp, HttpFailure, NO_CONTENT_RANGE, NO_RANGES};
pub use hyper::StatusCode;
pub use hyper::header::{self, HeaderMap, HeaderValue};
pub use pinned::{CertificatePin, TlsIdentity};
#[cfg(feature = "objects")]
pub use plain::PlainRequest;
pub use retry::{GrowingPauses, Retries};
pub use runtime::RuntimeThread;
pub use tls::provide_to_all;
pub use token::Token;
pub use url::{HttpUrl, Reach, is_http};
