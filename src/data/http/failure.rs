//! Why a request failed, with a message that says what to do.

use hyper::StatusCode;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// Message for a server that responds to a range request with 200.
pub const NO_RANGES: &str = "the server answers a range request with the whole file (200 instead of 206): use a \
                             server that supports range requests";
/// Message for a server that compresses its responses.
pub const COMPRESSED: &str = "the server compresses the file although `Accept-Encoding: identity` was sent: turn \
                              compression off for these files";
/// Message for a response to a range request without a range in its headers.
pub const NO_CONTENT_RANGE: &str = "the server's answer to a range request has no valid Content-Range header";

/// Why one request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpFailure {
    /// The server responded with this status. The duration is the pause that the server asked for before the next
    /// request.
    Status(StatusCode, Option<Duration>),
    /// The server responded with this status. The text explains the status.
    Explained(StatusCode, String),
    /// No connection could be made, or it broke.
    Broken(String),
    /// No bytes arrived for this long.
    Stalled(Duration),
    /// The response was still incomplete after this time.
    Late(Duration),
    /// A failure that no retry can change.
    Final(String),
}

impl HttpFailure {
    /// Whether the same request may succeed later.
    pub fn may_succeed_later(&self) -> bool {
        match self {
            Self::Status(status, _) => matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            Self::Broken(_) | Self::Stalled(_) | Self::Late(_) => true,
            Self::Explained(..) | Self::Final(_) => false,
        }
    }

    /// Returns the status of the server's response, if there was a response.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status, _) | Self::Explained(status, _) => Some(*status),
            _ => None,
        }
    }

    /// Whether the server says that there is nothing at the URL (404, 410).
    pub fn is_gone(&self) -> bool {
        matches!(self.status(), Some(StatusCode::NOT_FOUND | StatusCode::GONE))
    }

    /// Whether the server denies access (401, 403).
    pub fn is_denied(&self) -> bool {
        matches!(self.status(), Some(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED))
    }
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status, _) => {
                write!(f, "the server answers {status}")?;
                match *status {
                    StatusCode::UNAUTHORIZED => f.write_str(
                        ": it requires a user and a password, as in https://user:password@host/, or rejects those \
                         given",
                    ),
                    StatusCode::FORBIDDEN => {
                        f.write_str(": the credentials are missing, insufficient or expired")
                    }
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                        f.write_str(": the proxy requires a user and a password in HTTP_PROXY or HTTPS_PROXY")
                    }
                    _ => Ok(()),
                }
            }
            Self::Explained(_, why) | Self::Broken(why) | Self::Final(why) => f.write_str(why),
            Self::Stalled(time) => write!(f, "the server sent nothing for {:.1} s", time.as_secs_f64()),
            Self::Late(time) => write!(f, "the answer was not complete after {:.1} s", time.as_secs_f64()),
        }
    }
}

/// The failure of a request that is not tried again.
#[derive(Debug, Clone)]
pub struct RequestError {
    /// The last failure.
    pub failure: HttpFailure,
    /// Number of tries.
    pub tries: u32,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure)?;
        if self.tries > 1 { write!(f, " (tried {} times)", self.tries) } else { Ok(()) }
    }
}

impl std::error::Error for RequestError {}

impl From<RequestError> for std::io::Error {
    fn from(gave_up: RequestError) -> Self {
        let kind = match &gave_up.failure {
            failure if failure.is_gone() => ErrorKind::NotFound,
            failure if failure.is_denied() => ErrorKind::PermissionDenied,
            HttpFailure::Stalled(_) | HttpFailure::Late(_) => ErrorKind::TimedOut,
            _ => ErrorKind::Other,
        };
        Self::new(kind, gave_up)
    }
}
