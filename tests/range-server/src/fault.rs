//! The ways in which the server can fail, and when it does. Rules are values, or text: `cut:0.05:1000`.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

/// One way of failing.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `status:WHEN:503`, `status:WHEN:429,retry=2`, `status:WHEN:503,date=2`: this status, and `Retry-After` in
    /// seconds or as a date that lies so many seconds ahead. A 401 asks for basic authentication.
    Status {
        /// Such as 401, 403, 404, 429, 500, 503.
        code: u16,
        /// What is said of another try.
        retry: Retry,
    },
    /// `cut:WHEN:1000`: the connection ends in order after so many bytes of the body, or before its last one.
    Cut {
        /// Bytes of the body that are sent.
        after: u64,
    },
    /// `reset:WHEN:1000`: the same, and the connection is reset.
    Reset {
        /// Bytes of the body that are sent.
        after: u64,
    },
    /// `slow:WHEN:20000`: the body comes at so many bytes a second.
    Slow {
        /// Bytes a second.
        rate: u64,
    },
    /// `stall:WHEN:30` or `stall:WHEN:30,after=1000`: nothing comes for so many seconds, after the header and so many
    /// bytes of the body (all but one, if it is not longer); then the rest does.
    Stall {
        /// How long.
        time: Duration,
        /// Bytes of the body that are sent before.
        after: u64,
    },
    /// `mute:WHEN:30`: nothing comes for so many seconds, not even the header; then the answer does.
    Mute {
        /// How long.
        time: Duration,
    },
    /// `dribble:WHEN:5`: the header comes byte by byte, each so many milliseconds after the one before.
    Dribble {
        /// Between two bytes.
        pause: Duration,
    },
    /// `range-start:WHEN:1`: another range than was asked for, so many bytes later (earlier, if negative), or the other
    /// way where the object ends. `Content-Range` says so, and the body is of that range.
    RangeStart {
        /// Bytes.
        by: i64,
    },
    /// `range-total:WHEN:5`: `Content-Range` gives a total that is larger by so many bytes.
    RangeTotal {
        /// Bytes.
        by: i64,
    },
    /// `length:WHEN:-3`: the body has so many bytes more (of zeros) or fewer than `Content-Length` says, and the
    /// connection stays open: what follows is out of step.
    Length {
        /// Bytes.
        by: i64,
    },
    /// `whole:WHEN`: 200 and the whole object where a range was asked for.
    Whole,
    /// `etag:WHEN`: the object's own bytes with an `ETag` of nothing before, whatever the request's conditions are.
    Etag,
    /// `changed:WHEN`: the object has changed. It has other bytes of the same number, another `ETag` and another
    /// `Last-Modified`, by which conditions are judged.
    Changed,
    /// `redirect:WHEN:URL` or `redirect:WHEN:301,URL`: elsewhere, with 302 if no status is given. `{path}` in the URL
    /// is the path and the query that were asked for; `{path}` alone is a loop.
    Redirect {
        /// Such as 301, 302, 303, 307, 308.
        code: u16,
        /// What `Location` says.
        to: String,
    },
    /// `chunked:WHEN:1000`: the body in chunks of so many bytes, and no `Content-Length`.
    Chunked {
        /// Bytes of a chunk.
        size: u64,
    },
    /// `close:WHEN`: the connection ends after the answer, which says so.
    Close,
    /// `leave:WHEN`: the connection ends after the answer, which does not say so.
    Leave,
    /// `hang-up:WHEN`: the connection ends without an answer.
    HangUp,
    /// `garbage:WHEN`: what comes is no HTTP.
    Garbage,
    /// `padding:WHEN:100000`: the header has so many bytes more.
    Padding {
        /// Bytes.
        bytes: usize,
    },
}

/// `Retry-After` beside a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Nothing is said.
    Unsaid,
    /// So many seconds.
    Seconds(u64),
    /// The date that lies so many seconds ahead.
    Date(u64),
}

/// Which of the requests a fault concerns.
///
/// A rate draws by seed, path, range and how often that was asked for: the order in which requests come does not
/// matter, and another try is another draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// `always`.
    Always,
    /// `0.05`: this part of them.
    Rate(f64),
    /// `first=3`: so many at first.
    First(u64),
    /// `each=2`: so many at first of each path and range.
    FirstOfEach(u64),
    /// `after=10`: all but so many at first.
    After(u64),
}

/// A way of failing and when it happens: `[PATH ]KIND:WHEN[:ARGUMENT]` as text, where PATH is how the paths begin that
/// it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// To which requests.
    pub when: When,
    /// How their paths begin, as they stand in requests; empty for all.
    pub below: String,
}

impl Fault {
    /// A fault of all paths.
    pub fn new(kind: Kind, when: When) -> Self {
        Self { kind, when, below: String::new() }
    }

    /// The same for paths alone that begin so.
    #[must_use]
    pub fn below(mut self, path: &str) -> Self {
        path.clone_into(&mut self.below);
        self
    }
}

impl Kind {
    /// Its name in rules and counters.
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

    /// Whether it can happen to requests with or without a body in the answer, with or without a range.
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
        // What has no argument refuses one.
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
    // A clock goes no further than some centuries ahead.
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

/// The faults that hold now, and what they must remember to be drawn.
pub(crate) struct Rules {
    seed: u64,
    faults: Vec<Fault>,
    /// How many requests each fault was about.
    seen: Vec<u64>,
    /// How often each path and range was asked for.
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

    /// What happens to this request.
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

/// `DefaultHasher::new` has no random key: the same in each run.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
