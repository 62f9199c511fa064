//! The faults of the server, and when they happen. Rules are values, or text such as `cut:0.05:1000`.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

/// A kind of fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `status:WHEN:503`, `status:WHEN:429,retry=2`, `status:WHEN:503,date=2`: this status, and a `Retry-After` in
    /// seconds, or as a date this many seconds ahead. A 401 asks for basic authentication.
    Status {
        /// Such as 401, 403, 404, 429, 500, 503.
        code: u16,
        /// The `Retry-After` field.
        retry: Retry,
    },
    /// `cut:WHEN:1000`: the connection is closed after this many bytes of the body, or before the body's last byte.
    Cut {
        /// Bytes of the body that are sent.
        after: u64,
    },
    /// `reset:WHEN:1000`: the same as `cut`, but the connection is reset.
    Reset {
        /// Bytes of the body that are sent.
        after: u64,
    },
    /// `slow:WHEN:20000`: the body is sent at this rate in bytes per second.
    Slow {
        /// Bytes per second.
        rate: u64,
    },
    /// `stall:WHEN:30` or `stall:WHEN:30,after=1000`: the server sends the header and this many bytes of the body (all
    /// but one if the body is not longer), pauses for this many seconds, and then sends the rest.
    Stall {
        /// The length of the pause.
        time: Duration,
        /// Bytes of the body that are sent before.
        after: u64,
    },
    /// `mute:WHEN:30`: the server pauses for this many seconds before it sends the header, and then responds as usual.
    Mute {
        /// The length of the pause.
        time: Duration,
    },
    /// `dribble:WHEN:5`: the header is sent byte by byte, with this many milliseconds between two bytes.
    Dribble {
        /// The pause between two bytes.
        pause: Duration,
    },
    /// `range-start:WHEN:1`: another range than the requested one, this many bytes later (earlier if negative), or in
    /// the other direction at the end of the object. `Content-Range` states that range, and the body is its content.
    RangeStart {
        /// Bytes.
        by: i64,
    },
    /// `range-total:WHEN:5`: the total in `Content-Range` is too large by this many bytes.
    RangeTotal {
        /// Bytes.
        by: i64,
    },
    /// `length:WHEN:-3`: the body is this many bytes longer (with zeros) or shorter than `Content-Length`, and the
    /// connection stays open, so that the following responses are misaligned.
    Length {
        /// Bytes.
        by: i64,
    },
    /// `whole:WHEN`: 200 and the whole object in response to a request for a range.
    Whole,
    /// `etag:WHEN`: the unchanged object with a new `ETag`, whatever the request's conditions are.
    Etag,
    /// `changed:WHEN`: the object has changed: other bytes of the same number, another `ETag` and another
    /// `Last-Modified`, which are used for conditions.
    Changed,
    /// `redirect:WHEN:URL` or `redirect:WHEN:301,URL`: a redirect, with 302 if no status is given. `{path}` in the URL
    /// is replaced by the requested path and query; `{path}` alone is a loop.
    Redirect {
        /// Such as 301, 302, 303, 307, 308.
        code: u16,
        /// The value of `Location`.
        to: String,
    },
    /// `chunked:WHEN:1000`: the body in chunks of this many bytes, without `Content-Length`.
    Chunked {
        /// Bytes per chunk.
        size: u64,
    },
    /// `close:WHEN`: the connection ends after the response, which announces it.
    Close,
    /// `leave:WHEN`: the connection ends after the response, which does not announce it.
    Leave,
    /// `hang-up:WHEN`: the connection ends without a response.
    HangUp,
    /// `garbage:WHEN`: the response is not HTTP.
    Garbage,
    /// `padding:WHEN:100000`: the header is this many bytes longer.
    Padding {
        /// Bytes.
        bytes: usize,
    },
}

/// The `Retry-After` field of a response with an error status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// No field.
    Unsaid,
    /// This many seconds.
    Seconds(u64),
    /// A date this many seconds ahead.
    Date(u64),
}

/// Which requests a fault affects.
///
/// A rate is drawn from the seed, the path, the range and how often that range was requested. So the order of requests
/// does not matter, and another try is another draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// `always`.
    Always,
    /// `0.05`: this fraction of the requests.
    Rate(f64),
    /// `first=3`: this many requests at the beginning.
    First(u64),
    /// `each=2`: this many requests at the beginning for each path and range.
    FirstOfEach(u64),
    /// `after=10`: all requests except this many at the beginning.
    After(u64),
}

/// A fault and when it happens: `[PATH ]KIND:WHEN[:ARGUMENT]` as text. PATH is the prefix of the paths that it affects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fault {
    /// The kind of fault.
    pub kind: Kind,
    /// The requests that it affects.
    pub when: When,
    /// The prefix of the paths that it affects, as sent in requests; empty for all.
    pub below: String,
}

impl Fault {
    /// A fault of all paths.
    pub fn new(kind: Kind, when: When) -> Self {
        Self { kind, when, below: String::new() }
    }

    /// Restricts the fault to paths with this prefix.
    #[must_use]
    pub fn below(mut self, path: &str) -> Self {
        path.clone_into(&mut self.below);
        self
    }
}

impl Kind {
    /// The fault's name in rules and counters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Cut { .. } => "cut",
            Self::Reset { .. } => "reset",
            Self::Slow { .. } => "slow",
            Self::Stall { .. } => "stall",
            Self::Mute { .. } => "mute",
            Self::Dribble { .. } => "dribble",
            Self::RangeStart { .. } => "range-start",
            Self::RangeTotal { .. } => "range-total",
            Self::Length { .. } => "length",
            Self::Whole => "whole",
            Self::Etag => "etag",
            Self::Changed => "changed",
            Self::Redirect { .. } => "redirect",
            Self::Chunked { .. } => "chunked",
            Self::Close => "close",
            Self::Leave => "leave",
            Self::HangUp => "hang-up",
            Self::Garbage => "garbage",
            Self::Padding { .. } => "padding",
        }
    }

    /// Whether the fault can happen to a request: with or without a body in the response, with or without a range.
    fn concerns(&self, head: bool, ranged: bool) -> bool {
        match self {
            Self::RangeStart { .. } | Self::RangeTotal { .. } | Self::Whole => ranged,
            Self::Cut { .. } | Self::Reset { .. } | Self::Slow { .. } | Self::Length { .. } => !head,
            _ => true,
        }
    }

    fn argument(&self) -> Option<String> {
        Some(match self {
            Self::Status { code, retry: Retry::Unsaid } => code.to_string(),
            Self::Status { code, retry: Retry::Seconds(seconds) } => format!("{code},retry={seconds}"),
            Self::Status { code, retry: Retry::Date(seconds) } => format!("{code},date={seconds}"),
            Self::Cut { after } | Self::Reset { after } => after.to_string(),
            Self::Slow { rate } => rate.to_string(),
            Self::Stall { time, after } => format!("{},after={after}", time.as_secs_f64()),
            Self::Mute { time } => time.as_secs_f64().to_string(),
            Self::Dribble { pause } => (pause.as_secs_f64() * 1e3).to_string(),
            Self::RangeStart { by } | Self::RangeTotal { by } | Self::Length { by } => by.to_string(),
            Self::Redirect { code, to } => format!("{code},{to}"),
            Self::Chunked { size } => size.to_string(),
            Self::Padding { bytes } => bytes.to_string(),
            Self::Whole
            | Self::Etag
            | Self::Changed
            | Self::Close
            | Self::Leave
            | Self::HangUp
            | Self::Garbage => {
                return None;
            }
        })
    }

    fn parse(name: &str, argument: Option<&str>) -> Option<Self> {
        // A fault without an argument refuses one.
        let plain = match name {
            "whole" => Some(Self::Whole),
            "etag" => Some(Self::Etag),
            "changed" => Some(Self::Changed),
            "close" => Some(Self::Close),
            "leave" => Some(Self::Leave),
            "hang-up" => Some(Self::HangUp),
            "garbage" => Some(Self::Garbage),
            _ => None,
        };
        let Some(argument) = argument else { return plain };
        Some(match name {
            "status" => {
                let (code, retry) = argument.split_once(',').unwrap_or((argument, ""));
                let retry = match retry.split_once('=') {
                    None if retry.is_empty() => Retry::Unsaid,
                    Some(("retry", seconds)) => Retry::Seconds(seconds.parse().ok()?),
                    Some(("date", seconds)) => Retry::Date(seconds.parse().ok()?),
                    _ => return None,
                };
                Self::Status { code: parse_status(code)?, retry }
            }
            "cut" => Self::Cut { after: argument.parse().ok()? },
            "reset" => Self::Reset { after: argument.parse().ok()? },
            "slow" => Self::Slow { rate: argument.parse().ok().filter(|rate| *rate > 0)? },
            "stall" => {
                let (time, after) = argument.split_once(",after=").unwrap_or((argument, "0"));
                Self::Stall { time: parse_time(time, 1.0)?, after: after.parse().ok()? }
            }
            "mute" => Self::Mute { time: parse_time(argument, 1.0)? },
            "dribble" => Self::Dribble { pause: parse_time(argument, 1e-3)? },
            "range-start" => Self::RangeStart { by: argument.parse().ok()? },
            "range-total" => Self::RangeTotal { by: argument.parse().ok()? },
            "length" => Self::Length { by: argument.parse().ok()? },
            "redirect" => {
                let coded = argument.split_once(',').and_then(|(code, to)| Some((parse_status(code)?, to)));
                let (code, to) = coded.unwrap_or((302, argument));
                Self::Redirect { code, to: to.to_owned() }
            }
            "chunked" => Self::Chunked { size: argument.parse().ok().filter(|size| *size > 0)? },
            "padding" => Self::Padding { bytes: argument.parse().ok()? },
            _ => return None,
        })
    }
}

fn parse_status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|code| (200..600).contains(code))
}

fn parse_time(text: &str, unit: f64) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok()?;
    // A clock cannot represent times more than some centuries ahead.
    (time < Duration::from_secs(1 << 30)).then_some(time)
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => write!(f, "always"),
            Self::Rate(rate) => write!(f, "{rate}"),
            Self::First(number) => write!(f, "first={number}"),
            Self::FirstOfEach(number) => write!(f, "each={number}"),
            Self::After(number) => write!(f, "after={number}"),
        }
    }
}

impl FromStr for When {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(match text.split_once('=') {
            None if text == "always" => Self::Always,
            None => Self::Rate(text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate)).ok_or(())?),
            Some(("first", text)) => Self::First(number(text)?),
            Some(("each", text)) => Self::FirstOfEach(number(text)?),
            Some(("after", text)) => Self::After(number(text)?),
            Some(_) => return Err(()),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.below.is_empty() {
            write!(f, "{} ", self.below)?;
        }
        write!(f, "{}:{}", self.kind.name(), self.when)?;
        self.kind.argument().map_or(Ok(()), |argument| write!(f, ":{argument}"))
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

impl TryFrom<String> for Fault {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (below, rule) = text.rsplit_once(' ').unwrap_or(("", text));
        let mut parts = rule.splitn(3, ':');
        let (name, when) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let kind = Kind::parse(name, parts.next());
        let (Some(kind), Ok(when)) = (kind, when.parse()) else {
            return Err(format!(
                "{text}: no fault; write [PATH ]KIND:WHEN[:ARGUMENT], such as cut:0.05:1000"
            ));
        };
        Ok(Self { kind, when, below: below.to_owned() })
    }
}

/// The current faults, and the state from which they are drawn.
pub(crate) struct Rules {
    seed: u64,
    faults: Vec<Fault>,
    /// The number of requests that each fault could have affected.
    seen: Vec<u64>,
    /// How often each path and range was requested.
    asked: HashMap<u64, u64>,
}

impl Rules {
    pub fn new(seed: u64, faults: Vec<Fault>) -> Self {
        let seen = vec![0; faults.len()];
        Self { seed, faults, seen, asked: HashMap::new() }
    }

    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The faults of this request.
    pub fn draw(&mut self, target: &str, range: Option<&str>, head: bool) -> Vec<Kind> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let object = hash(&(target, range, head));
        let asked = self.asked.entry(object).or_insert(0);
        let before = *asked;
        *asked += 1;
        let mut drawn = Vec::new();
        for (number, fault) in self.faults.iter().enumerate() {
            if !target.starts_with(&fault.below) || !fault.kind.concerns(head, range.is_some()) {
                continue;
            }
            let seen = self.seen[number];
            self.seen[number] += 1;
            let happens = match fault.when {
                When::Always => true,
                When::Rate(rate) => {
                    let drawn = hash(&(self.seed, number, object, before)) >> 11;
                    (drawn as f64) < rate * (1u64 << 53) as f64
                }
                When::First(first) => seen < first,
                When::FirstOfEach(first) => before < first,
                When::After(first) => seen >= first,
            };
            if happens {
                drawn.push(fault.kind.clone());
            }
        }
        drawn
    }
}

/// `DefaultHasher::new` has no random key, so hashes are the same in each run.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
