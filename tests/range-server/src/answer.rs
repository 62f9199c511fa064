//! The response to a request: status, fields and body, including the faults that change them.

use crate::fault::{Kind, Retry};
use crate::object::{Found, Version, find};
use crate::request::{Asked, Request, asked_part, decode_path};
use crate::{Access, IndexStyle, Options, index};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A response without the details of its transmission.
pub(crate) struct Answer {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub body: Body,
}

/// The body after the header.
pub(crate) enum Body {
    Bytes(Vec<u8>),
    /// Part of a file, from the first of these offsets up to but not including the second. With `changed`, the bits of
    /// each byte are flipped.
    Part {
        file: File,
        start: u64,
        end: u64,
        changed: bool,
    },
}

impl Body {
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part { start, end, .. } => end - start,
        }
    }

    /// Fills `into` from `offset` on, with zeros beyond the end.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let inside = self.length().saturating_sub(offset).min(into.len() as u64) as usize;
        let (inside, behind) = into.split_at_mut(inside);
        behind.fill(0);
        match self {
            Self::Bytes(bytes) => {
                inside.copy_from_slice(&bytes[offset as usize..offset as usize + inside.len()])
            }
            Self::Part { file, start, changed, .. } => {
                file.read_exact_at(inside, start + offset)?;
                if *changed {
                    inside.iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
        }
        Ok(())
    }
}

impl Answer {
    /// A response with a line of text.
    pub fn text(status: u16, text: &str) -> Self {
        let body = Body::Bytes(format!("{text}\n").into_bytes());
        Self { status, fields: vec![("Content-Type", "text/plain".to_owned())], body }
    }

    pub fn json(text: String) -> Self {
        let fields = vec![("Content-Type", "application/json".to_owned())];
        Self { status: 200, fields, body: Body::Bytes(text.into_bytes()) }
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.fields.push((name, value));
        self
    }
}

/// The response to a request for a file or a directory. `number` is unique to the request.
pub(crate) fn answer(
    root: &Path,
    options: &Options,
    request: &Request,
    faults: &[Kind],
    number: u64,
) -> Answer {
    for fault in faults {
        match fault {
            Kind::Status { code, retry } => return refusal(*code, *retry),
            Kind::Redirect { code, to } => {
                let to = to.replace("{path}", &request.target);
                return Answer::text(*code, "elsewhere").with("Location", to);
            }
            _ => {}
        }
    }
    if let Some(access) = &options.access
        && let Err(status) = access.check(request)
    {
        return refusal(status, Retry::Unsaid);
    }
    if request.method != "GET" && !request.is_head() {
        return Answer::text(405, "GET and HEAD only").with("Allow", "GET, HEAD".to_owned());
    }
    let Some(decoded) = decode_path(request.raw_path()) else { return Answer::text(400, "no path") };
    match find(root, &decoded) {
        Ok(Found::File(file, metadata)) => {
            let version = Version::of(&metadata, options, faults.contains(&Kind::Changed));
            object(file, version, request, faults, number)
        }
        Ok(Found::Directory(_)) if options.index == IndexStyle::Off => Answer::text(404, "not found"),
        Ok(Found::Directory(_)) if !decoded.ends_with(b"/") => {
            let query = request.query().map_or(String::new(), |query| format!("?{query}"));
            let to = format!("{}/{query}", request.raw_path());
            Answer::text(301, "a directory").with("Location", to)
        }
        Ok(Found::Directory(path)) => match index::page(&path, &decoded, options.index) {
            Ok(page) => Answer {
                status: 200,
                fields: vec![("Content-Type", "text/html; charset=utf-8".to_owned())],
                body: Body::Bytes(page.into_bytes()),
            },
            Err(error) => Answer::text(500, &error.to_string()),
        },
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Answer::text(403, "forbidden"),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Answer::text(404, "not found")
        }
        Err(error) => Answer::text(500, &error.to_string()),
    }
}

fn refusal(code: u16, retry: Retry) -> Answer {
    let answer = Answer::text(code, "refused");
    let answer = match retry {
        Retry::Unsaid => answer,
        Retry::Seconds(seconds) => answer.with("Retry-After", seconds.to_string()),
        Retry::Date(seconds) => {
            let date = SystemTime::now() + Duration::from_secs(seconds);
            answer.with("Retry-After", httpdate::fmt_http_date(date))
        }
    };
    if code == 401 {
        answer.with("WWW-Authenticate", "Basic realm=\"range-server\"".to_owned())
    } else {
        answer
    }
}

fn object(file: File, version: Version, request: &Request, faults: &[Kind], number: u64) -> Answer {
    let size = version.size;
    let other_tag = faults.contains(&Kind::Etag);
    let mut fields = vec![("Accept-Ranges", "bytes".to_owned())];
    if other_tag {
        fields.push(("ETag", format!("\"other-{number}\"")));
    } else if let Some(tag) = &version.tag {
        fields.push(("ETag", tag.clone()));
    }
    if let Some(modified) = version.modified {
        fields.push(("Last-Modified", httpdate::fmt_http_date(modified)));
    }
    if !other_tag && let Some(status) = version.judge(request) {
        return Answer { status, fields, body: Body::Bytes(Vec::new()) };
    }
    fields.push(("Content-Type", "application/octet-stream".to_owned()));
    let whole = faults.contains(&Kind::Whole) || !(other_tag || version.allows_range(request));
    // HTTP defines ranges only for GET.
    let range = request.field("range").filter(|_| !whole && !request.is_head());
    let changed = faults.contains(&Kind::Changed);
    match asked_part(range, size) {
        Asked::All => Answer { status: 200, fields, body: Body::Part { file, start: 0, end: size, changed } },
        Asked::Nothing => {
            let mut answer = Answer::text(416, "nothing there");
            answer.fields.push(("Content-Range", format!("bytes */{size}")));
            answer
        }
        Asked::Part(start, end) => {
            let (start, end) = faults.iter().fold((start, end), |part, fault| moved(part, size, fault));
            let more: i64 =
                faults.iter().map(|f| if let Kind::RangeTotal { by } = f { *by } else { 0 }).sum();
            let total = size.saturating_add_signed(more);
            fields.push(("Content-Range", format!("bytes {start}-{}/{total}", end - 1)));
            Answer { status: 206, fields, body: Body::Part { file, start, end, changed } }
        }
    }
}

/// The range that is sent instead of the requested one: of the same length, and inside of the object.
fn moved((start, end): (u64, u64), size: u64, fault: &Kind) -> (u64, u64) {
    let Kind::RangeStart { by } = fault else { return (start, end) };
    let length = end - start;
    let shifted = |by: i64| start.saturating_add_signed(by).min(size - length);
    let first = if shifted(*by) == start { shifted(by.saturating_neg()) } else { shifted(*by) };
    (first, first + length)
}

impl Access {
    /// Checks whether a request has what access demands. An error is the status that refuses the request.
    fn check(&self, request: &Request) -> Result<(), u16> {
        match self {
            Self::Header(value) if request.field("authorization") == Some(value) => Ok(()),
            Self::Header(_) => Err(401),
            Self::Query(pair) => {
                let given = request.query().unwrap_or("").split('&').any(|own| own == pair);
                if given { Ok(()) } else { Err(403) }
            }
        }
    }
}
