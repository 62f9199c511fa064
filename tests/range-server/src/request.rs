//! Requests as received over a connection: the header, its fields, the path and the range.

use std::io::{self, Read};

/// The largest size of a header.
const LONGEST: usize = 64 << 10;

/// A request, as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// Path and query, as in the first line.
    pub target: String,
    /// Whether the request is HTTP/1.0, whose connections end after the response.
    pub old: bool,
    /// Whether the first line has a whole URL, as in requests to a proxy.
    pub proxied: bool,
    /// The fields in their order, with names as sent. Bytes that are not UTF-8 are replaced.
    pub fields: Vec<(String, String)>,
    /// The bytes after the header.
    pub body: Vec<u8>,
}

/// The result of reading a request.
pub(crate) enum Received {
    Request(Request),
    /// The client has closed the connection, between requests or within one.
    End,
    /// Not HTTP, or too large: the status to respond with.
    Refused(u16),
}

impl Request {
    /// The first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The path without its query, as in the first line.
    pub fn raw_path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// The query without its question mark.
    pub fn query(&self) -> Option<&str> {
        Some(self.target.split_once('?')?.1)
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether the client wants the connection closed after the response.
    pub(crate) fn closes(&self) -> bool {
        self.old || self.field("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }
}

/// The path with its percent signs decoded; `None` if it is not a valid path of this server: not absolute, with `..`,
/// or wrongly encoded.
pub(crate) fn decode_path(raw: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            decoded.push((high * 16 + low) as u8);
        } else {
            decoded.push(byte);
        }
    }
    let upward = decoded.split(|byte| *byte == b'/').any(|part| part == b"..");
    (decoded.first() == Some(&b'/') && !upward && !decoded.contains(&0)).then_some(decoded)
}

/// The part of an object that a `Range` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// From the first offset up to but not including the second.
    Part(u64, u64),
    /// Nothing of the object.
    Nothing,
    /// All of it: there is no range, several, or an invalid one, which HTTP says to ignore.
    All,
}

pub(crate) fn asked_part(range: Option<&str>, size: u64) -> Asked {
    let ends = range.and_then(|range| range.trim().strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = ends else { return Asked::All };
    let number = |text: &str| (!text.starts_with('+')).then(|| text.trim().parse::<u64>().ok()).flatten();
    let (first, end) = match (first.trim().is_empty(), last.trim().is_empty()) {
        (true, true) => return Asked::All,
        (true, false) => match number(last) {
            None => return Asked::All,
            Some(length) => (size.saturating_sub(length), size),
        },
        (false, true) => match number(first) {
            None => return Asked::All,
            Some(first) => (first, size),
        },
        (false, false) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(size)),
            _ => return Asked::All,
        },
    };
    if first >= end { Asked::Nothing } else { Asked::Part(first, end) }
}

/// Reads the next request. `buffer` keeps bytes of the request after it.
pub(crate) fn receive(from: &mut impl Read, buffer: &mut Vec<u8>) -> Received {
    let (mut request, used, length) = loop {
        match parse(buffer) {
            Ok(Some(parsed)) => break parsed,
            Ok(None) if buffer.len() >= LONGEST => return Received::Refused(431),
            Ok(None) => {}
            Err(status) => return Received::Refused(status),
        }
        if !more(from, buffer) {
            return Received::End;
        }
    };
    if length > LONGEST {
        return Received::Refused(413);
    }
    while buffer.len() < used + length {
        if !more(from, buffer) {
            return Received::End;
        }
    }
    request.body = buffer[used..used + length].to_vec();
    buffer.drain(..used + length);
    Received::Request(request)
}

fn more(from: &mut impl Read, buffer: &mut Vec<u8>) -> bool {
    let mut part = [0; 4096];
    loop {
        match from.read(&mut part) {
            Ok(0) => return false,
            Ok(read) => {
                buffer.extend_from_slice(&part[..read]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// A request, the length of its header and the length of its body, if the header is complete. An error is the status
/// that refuses the request.
fn parse(buffer: &[u8]) -> Result<Option<(Request, usize, usize)>, u16> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut fields);
    let used = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    };
    let target = parsed.path.ok_or(400u16)?;
    let authority = target.split_once("://").map(|(_, rest)| rest);
    let (target, proxied) = match authority {
        Some(rest) if !target.starts_with('/') => (rest.find('/').map_or("/", |at| &rest[at..]), true),
        _ => (target, false),
    };
    let text = |field: &httparse::Header<'_>| {
        (field.name.to_owned(), String::from_utf8_lossy(field.value).into_owned())
    };
    let request = Request {
        method: parsed.method.ok_or(400u16)?.to_owned(),
        target: target.to_owned(),
        old: parsed.version == Some(0),
        proxied,
        fields: parsed.headers.iter().map(text).collect(),
        body: Vec::new(),
    };
    if request.field("transfer-encoding").is_some() {
        return Err(411);
    }
    let length =
        request.field("content-length").map_or(Ok(0), |text| text.trim().parse().map_err(|_| 400u16))?;
    Ok(Some((request, used, length)))
}
