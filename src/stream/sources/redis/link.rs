//! The connection to a Redis server, with reconnects.

use base::error::{Error, Result};
use base::notices::Notices;
use data::http::RetryBackoff;
use redis::{Client, Cmd, Connection, ConnectionLike, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::{Duration, Instant};

/// The timeout for connecting. The timeout for a response is longer by the time that the server was asked to wait.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum RedisFailure {
    /// There is no connection, or the connection was lost. Connecting again may succeed.
    Lost(String),
    /// The server refused the command: its error code, and the whole message.
    Refused(String, String),
}

impl RedisFailure {
    /// Whether the problem may be temporary: the server is starting, is a replica for now, or has no disk space for its
    /// log.
    fn is_temporary(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(code, _) => matches!(
                code.as_str(),
                "LOADING"
                    | "TRYAGAIN"
                    | "MASTERDOWN"
                    | "READONLY"
                    | "MISCONF"
                    | "NOREPLICAS"
                    | "BUSY"
                    | "OOM"
            ),
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Refused(code, _) if code == word)
    }

    pub(super) fn is_missing_stream(&self) -> bool {
        matches!(self, Self::Refused(_, said) if said.contains("no such key"))
    }

    fn said(&self) -> &str {
        match self {
            Self::Lost(said) | Self::Refused(_, said) => said,
        }
    }
}

impl From<RedisError> for RedisFailure {
    fn from(error: RedisError) -> Self {
        // The client's own errors may contain its input, for instance a password, so only their category is shown.
        match error.kind() {
            ErrorKind::AuthenticationFailed => {
                Self::Refused("WRONGPASS".to_owned(), "user or password is wrong".to_owned())
            }
            ErrorKind::Server(ServerErrorKind::BusyLoading) => {
                Self::Refused("LOADING".to_owned(), "the server is loading its data".to_owned())
            }
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let code = error.code().unwrap_or("ERR").to_owned();
                let said = format!("{code} {}", error.detail().unwrap_or_default());
                Self::Refused(code, said.trim_end().to_owned())
            }
            _ if error.is_timeout() => Self::Lost("the server did not answer in time".to_owned()),
            ErrorKind::Io => Self::Lost(error.to_string()),
            _ => Self::Lost(format!("the server's answer is invalid: {}", error.category())),
        }
    }
}

pub(super) struct RedisLink {
    client: Client,
    what: String,
    notices: Notices,
    connection: Option<Connection>,
    pauses: RetryBackoff,
    next_try: Instant,
    connections_made: u64,
    warned: bool,
}

impl RedisLink {
    pub(super) fn new(client: Client, what: String, notices: Notices) -> Self {
        let pauses = RetryBackoff::default();
        Self {
            client,
            what,
            notices,
            connection: None,
            pauses,
            next_try: Instant::now(),
            connections_made: 0,
            warned: false,
        }
    }

    /// The number of connections made so far. If this number has changed, a response may have been lost.
    pub(super) fn connections_made(&self) -> u64 {
        self.connections_made
    }

    /// Waits until the next attempt to connect is due, but not longer than until `deadline`. Returns whether the
    /// attempt is due.
    pub(super) fn wait_for_retry(&self, deadline: Instant) -> bool {
        if self.connection.is_some() || self.next_try <= Instant::now() {
            return true;
        }
        std::thread::sleep(self.next_try.min(deadline).saturating_duration_since(Instant::now()));
        self.next_try <= Instant::now()
    }

    /// Sends a command, and waits for its response. `wait` is how long the command asks the server to wait before it
    /// responds.
    pub(super) fn ask(&mut self, command: &Cmd, wait: Duration) -> Result<Value, RedisFailure> {
        if self.connection.is_none() {
            let connection = self.client.get_connection_with_timeout(PATIENCE)?;
            connection.set_write_timeout(Some(PATIENCE))?;
            self.connection = Some(connection);
            self.connections_made += 1;
        }
        let connection = self.connection.as_mut().expect("it was just made");
        connection.set_read_timeout(Some(wait + PATIENCE))?;
        // An error inside the response to a single command is the error of the command.
        let answer = connection.req_command(command)?.extract_error()?;
        self.pauses.succeeded();
        Ok(answer)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) fn not_understood(&self) -> RedisFailure {
        RedisFailure::Lost("the server's answer does not have the structure of a stream's".to_owned())
    }

    /// Drops the connection. After a pause the next command opens a new connection.
    ///
    /// # Errors
    /// The error for `failure`, if the problem is not temporary.
    pub(super) fn schedule_reconnect(&mut self, failure: &RedisFailure) -> Result<()> {
        if !failure.is_temporary() {
            return Err(self.failed(failure));
        }
        self.connection = None;
        self.next_try = Instant::now() + self.pauses.after_failure();
        if !std::mem::replace(&mut self.warned, true) {
            self.notices.warn_at_once(format!(
                "{}: {}; reconnecting, with pauses of up to five seconds; entries that the server keeps are not lost; \
                 further disconnects are not reported",
                self.what,
                failure.said()
            ));
        }
        Ok(())
    }

    pub(super) fn failed(&self, failure: &RedisFailure) -> Error {
        let remedy = match failure {
            RedisFailure::Lost(_) => {
                "check that a server runs there and can be reached from here; for TLS the URL begins with rediss://"
            }
            RedisFailure::Refused(code, _) => match code.as_str() {
                "WRONGPASS" | "NOAUTH" => "pass username= and password=, or write them into the URL",
                "NOPERM" => {
                    "allow the user XREAD, XRANGE, XINFO and, with a group, XGROUP, XREADGROUP, XPENDING, XCLAIM, XACK"
                }
                "WRONGTYPE" => "the key is not a stream; set stream= to the key that producers XADD to",
                "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => {
                    "it is a node of a cluster; pass the URL of the node that has this stream"
                }
                _ => "streams need Redis 5.0 or newer, groups 6.2",
            },
        };
        Error::Unavailable(format!("{}: {}; {remedy}", self.what, failure.said()))
    }
}
