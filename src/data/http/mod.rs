//! HTTP code that the peer network and the clients of dataset servers share.
//!
//! - For both: a thread with a runtime, connections, the TLS provider, deadlines, retries.
//! - For peers: tokens and pinned certificates, by which the nodes of a job authenticate each other.
//! - For any other server: a client that uses the proxies of the environment and the certificates that the system
//!   trusts, and follows few redirects (`client.rs`). `blocking.rs` is for threads that wait for the response.
//!
//! The user, password and query of a URL are credentials. They are sent to the URL's own server and to no other, and
//! nothing in this module prints them.

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

pub use blocking::{BlockingHttp, Fetched, RequestCounts, ResponseCheck, WaitControl};
pub use client::{FileRequest, HttpClient, HttpTarget, OpenResponse};
pub use connection::{HttpConnection, HttpRequest};
pub use deadline::DeadlineLimits;
pub use deadline::{PostedRead, ReadEnd, RequestDeadline};
pub use failure::{COMPRESSED, HttpFailure, NO_CONTENT_RANGE, NO_RANGES, RequestError};
pub use hyper::StatusCode;
pub use hyper::header::{self, HeaderMap, HeaderValue};
pub use pinned::{CertificatePin, TlsIdentity};
#[cfg(feature = "objects")]
pub use plain::PlainRequest;
pub use retry::{Retries, RetryBackoff};
pub use runtime::RuntimeThread;
pub use tls::install_default_provider;
pub use token::Token;
pub use url::{AddressPolicy, HttpUrl, is_http};
