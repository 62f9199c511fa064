//! The connection to a server, which is made again where it breaks.

use base::error::{Error, Result};
use base::notices::Notices;
use data::http::GrowingPauses;
use redis::{Client, Cmd, Connection, ConnectionLike, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::{Duration, Instant};

/// How long a server may take to answer, beyond the time that it was asked to wait, and to be connected to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a command had no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no connection, or there was one. It may be made again.
    Lost(String),
    /// The server refused the command: its word for why, and all that it said.
    Refused(String, String),
}

impl Trouble {
    /// Whether it may mend by itself: the server starts, is a replica for now, or has no disk for what it must log.
    fn passes(&self) -> bool {
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

    /// Whether it is this word of the server's.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Refused(code, _) if code == word)
    }

    /// Whether the server has no such stream.
    pub(super) fn is_no_stream(&self) -> bool {
        matches!(self, Self::Refused(_, said) if said.contains("no such key"))
    }

    fn said(&self) -> &str {
        match self {
            Self::Lost(said) | Self::Refused(_, said) => said,
        }
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        // Of the client's own errors only those without a cause in the server's answer carry what they were given.
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
            _ => Self::Lost(format!("the server's answer makes no sense: {}", error.category())),
        }
    }
}

/// A connection, or the wait for the next.
pub(super) struct RedisLink {
    client: Client,
    /// The source in words.
    what: String,
    notices: Notices,
    connection: Option<Connection>,
    pauses: GrowingPauses,
    /// When it is tried again to connect.
    next_try: Instant,
    /// How many connections were made so far.
    made: u64,
    told: bool,
}

impl RedisLink {
    pub(super) fn new(client: Client, what: String, notices: Notices) -> Self {
        let pauses = GrowingPauses::default();
        Self {
            client,
            what,
            notices,
            connection: None,
            pauses,
            next_try: Instant::now(),
            made: 0,
            told: false,
        }
    }

    /// The number of connections that were made so far: another one means that an answer may have been lost.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Waits until it may be tried to connect, but not longer than until `deadline`. Returns whether it may.
    pub(super) fn await_try(&self, deadline: Instant) -> bool {
        if self.connection.is_some() || self.next_try <= Instant::now() {
            return true;
        }
        std::thread::sleep(self.next_try.min(deadline).saturating_duration_since(Instant::now()));
        self.next_try <= Instant::now()
    }

    /// Sends a command and waits for its answer, which the server was asked to give within `wait` and a moment.
    pub(super) fn ask(&mut self, command: &Cmd, wait: Duration) -> Result<Value, Trouble> {
        if self.connection.is_none() {
            let connection = self.client.get_connection_with_timeout(PATIENCE)?;
            connection.set_write_timeout(Some(PATIENCE))?;
            self.connection = Some(connection);
            self.made += 1;
        }
        let connection = self.connection.as_mut().expect("it was just made");
        connection.set_read_timeout(Some(wait + PATIENCE))?;
        // An error within the answer to one command is that command's.
        let answer = connection.req_command(command)?.extract_error()?;
        self.pauses.succeeded();
        Ok(answer)
    }

    /// Whether there is a connection, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The trouble with an answer that was not understood.
    pub(super) fn not_understood(&self) -> Trouble {
        Trouble::Lost("the server's answer is not what a stream's is".to_owned())
    }

    /// Lets go of the connection; after a pause the next command makes another.
    ///
    /// # Errors
    /// The trouble, where it will not pass.
    pub(super) fn mend(&mut self, trouble: &Trouble) -> Result<()> {
        if !trouble.passes() {
            return Err(self.failed(trouble));
        }
        self.connection = None;
        self.next_try = Instant::now() + self.pauses.after_failure();
        if !std::mem::replace(&mut self.told, true) {
            self.notices.warn_at_once(format!(
                "{}: {}; it is tried again, after pauses of up to five seconds, and nothing is lost meanwhile that the \
                 server keeps; of later breaks nothing is said",
                self.what,
                trouble.said()
            ));
        }
        Ok(())
    }

    /// The trouble as an error, with its remedy.
    pub(super) fn failed(&self, trouble: &Trouble) -> Error {
        let remedy = match trouble {
            Trouble::Lost(_) => {
                "is a server running there, and is it reached from here? For TLS the URL begins with rediss://"
            }
            Trouble::Refused(code, _) => match code.as_str() {
                "WRONGPASS" | "NOAUTH" => "give username= and password=, or write them into the URL",
                "NOPERM" => {
                    "allow the user XREAD, XRANGE, XINFO and, with a group, XGROUP, XREADGROUP, XPENDING, XCLAIM, XACK"
                }
                "WRONGTYPE" => "the key is not a stream; give stream= the key that producers XADD to",
                "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => {
                    "it is a node of a cluster; give the URL of the node that has this stream"
                }
                _ => "streams need Redis 5.0 or newer, groups 6.2",
            },
        };
        Error::Unavailable(format!("{}: {}; {remedy}", self.what, trouble.said()))
    }
}
