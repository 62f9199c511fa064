//! Why a request failed, in a sentence that says what to do.

use hyper::StatusCode;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// The failure of a server that answers with 200 where a range was asked for.
pub const NO_RANGES: &str =
    "the server sends the whole file (200) where a range of it was asked for (206): it must give ranges";
/// The failure of a server that compresses what it sends.
pub const COMPRESSED: &str = "the server sends the file compressed, though it was asked for as it is";
/// The failure of an answer without a range in its headers.
pub const NO_CONTENT_RANGE: &str = "the server does not say which bytes it sends";

/// Why a request failed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpFailure {
    /// The server answered with this status, and perhaps said after which time it is to be asked again.
    Status(StatusCode, Option<Duration>),
    /// The server answered with this status, and it is known why.
    Explained(StatusCode, String),
    /// No connection came about, or it broke.
    Broken(String),
    /// No bytes came for this long.
    Stalled(Duration),
    /// The answer was not complete after this time.
    Late(Duration),
    /// To ask again would change nothing.
    Final(String),
}

impl HttpFailure {
    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Status(status, _) => matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
            Self::Broken(_) | Self::Stalled(_) | Self::Late(_) => true,
            Self::Explained(..) | Self::Final(_) => false,
        }
    }

    /// The status that the server answered with.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status, _) | Self::Explained(status, _) => Some(*status),
            _ => None,
        }
    }

    /// Whether the server says that there is nothing at the URL.
    pub fn is_gone(&self) -> bool {
        matches!(self.status(), Some(StatusCode::NOT_FOUND | StatusCode::GONE))
    }

    /// Whether the server refuses who asks.
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
                        ": it wants a user and a password, as in https://user:password@host/, or others than these",
                    ),
                    StatusCode::FORBIDDEN => {
                        f.write_str(": the credentials are missing, not sufficient or no longer valid")
                    }
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                        f.write_str(": the proxy wants a user and a password in HTTP_PROXY or HTTPS_PROXY")
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

/// A failure that was not overcome.
#[derive(Debug, Clone)]
pub struct GaveUp {
    /// The last failure.
    pub failure: HttpFailure,
    /// How often it was tried.
    pub tries: u32,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.failure)?;
        if self.tries > 1 { write!(f, " (tried {} times)", self.tries) } else { Ok(()) }
    }
}

impl std::error::Error for GaveUp {}

impl From<GaveUp> for std::io::Error {
    fn from(gave_up: GaveUp) -> Self {
        let kind = match &gave_up.failure {
            failure if failure.is_gone() => ErrorKind::NotFound,
            failure if failure.is_denied() => ErrorKind::PermissionDenied,
            HttpFailure::Stalled(_) | HttpFailure::Late(_) => ErrorKind::TimedOut,
            _ => ErrorKind::Other,
        };
        Self::new(kind, gave_up)
    }
}
