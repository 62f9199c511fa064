//! A connection, plain or TLS, and the transmission of a response: at once, or as its faults say.

use crate::answer::{Answer, Body};
use crate::fault::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A client's connection.
pub(crate) struct Wire {
    stream: Stream,
    /// The bytes that are sent next. The buffer keeps its size, so that responses need no allocation.
    buffer: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Wire {
    /// Does the TLS handshake, if TLS is configured.
    pub fn open(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self { stream: Stream::Plain(socket), buffer: Vec::new() }) };
        let mut connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(PIECE * 2));
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream: Stream::Tls(Box::new(stream)), buffer: Vec::new() })
    }

    pub fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Announces the end of the connection in the protocol.
    pub fn finish(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            // The client may have left already. Then the announcement does not matter.
            let _ = stream.flush();
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

/// How the connection ends or continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Stay,
    Close,
    /// Closed without an announcement in the protocol.
    Cut,
    Reset,
}

/// The largest part of a body that is read and sent at a time.
const PIECE: usize = 256 << 10;

/// Sends a response; adds the bytes of its body to `sent`. `last` announces that the connection ends after it.
pub(crate) fn transmit(
    wire: &mut Wire,
    answer: &Answer,
    head: bool,
    faults: &[Kind],
    last: bool,
    sent: &mut u64,
) -> io::Result<After> {
    if faults.contains(&Kind::HangUp) {
        return Ok(After::Cut);
    }
    if faults.contains(&Kind::Garbage) {
        wire.write(b"\x00\xff\x13\x37 this is no HTTP \x80\x81\r\n\r\n\x00\x01\x02\x03")?;
        return Ok(After::Close);
    }
    for fault in faults {
        if let Kind::Mute { time } = fault {
            pause(wire.socket(), *time)?;
        }
    }
    let last = last || faults.contains(&Kind::Close);
    let header = header(answer, faults, last);
    let after = if last || faults.contains(&Kind::Leave) { After::Close } else { After::Stay };
    let body = !head && !matches!(answer.status, 204 | 304);
    let disturbed = faults.iter().any(disturbs);
    if !body && !disturbed {
        wire.write(header.as_bytes())?;
        return Ok(after);
    }
    if !disturbed {
        return send_at_once(wire, header.as_bytes(), &answer.body, sent).map(|()| after);
    }
    let dribble =
        faults.iter().find_map(|f| if let Kind::Dribble { pause } = f { Some(*pause) } else { None });
    match dribble {
        None => wire.write(header.as_bytes())?,
        Some(time) => {
            for byte in header.as_bytes() {
                wire.write(&[*byte])?;
                pause(wire.socket(), time)?;
            }
        }
    }
    if !body {
        return Ok(after);
    }
    Ok(send_disturbed(wire, &answer.body, faults, sent)?.unwrap_or(after))
}

/// Whether a fault affects the transmission of the header or the body.
fn disturbs(fault: &Kind) -> bool {
    matches!(
        fault,
        Kind::Cut { .. }
            | Kind::Reset { .. }
            | Kind::Slow { .. }
            | Kind::Stall { .. }
            | Kind::Dribble { .. }
            | Kind::Length { .. }
            | Kind::Chunked { .. }
    )
}

fn header(answer: &Answer, faults: &[Kind], last: bool) -> String {
    let mut text = String::with_capacity(512);
    text.push_str("HTTP/1.1 ");
    text.push_str(&answer.status.to_string());
    text.push(' ');
    text.push_str(reason(answer.status));
    let mut field = |name: &str, value: &str| {
        text.extend(["\r\n", name, ": ", value]);
    };
    field("Date", &httpdate::fmt_http_date(SystemTime::now()));
    for (name, value) in &answer.fields {
        field(name, value);
    }
    if faults.iter().any(|fault| matches!(fault, Kind::Chunked { .. })) {
        field("Transfer-Encoding", "chunked");
    } else if !matches!(answer.status, 204 | 304) {
        field("Content-Length", &answer.body.length().to_string());
    }
    if last {
        field("Connection", "close");
    }
    for fault in faults {
        if let Kind::Padding { bytes } = fault {
            field("X-Padding", &"x".repeat(*bytes));
        }
    }
    text.push_str("\r\n\r\n");
    text
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Other",
    }
}

/// Sends header and body without delay. One copy and one call are cheaper for both ends than `sendfile`, which gives
/// the client single pages.
fn send_at_once(wire: &mut Wire, header: &[u8], body: &Body, sent: &mut u64) -> io::Result<()> {
    let mut buffer = std::mem::take(&mut wire.buffer);
    let length = body.length();
    let (mut before, mut at) = (header.len(), 0);
    loop {
        let count = (length - at).min(PIECE as u64) as usize;
        if buffer.len() < before + count {
            buffer.resize(before + count, 0);
        }
        if at == 0 {
            buffer[..before].copy_from_slice(header);
        }
        body.read_at(at, &mut buffer[before..before + count])?;
        wire.write(&buffer[..before + count])?;
        before = 0;
        at += count as u64;
        *sent += count as u64;
        if at == length {
            wire.buffer = buffer;
            return Ok(());
        }
    }
}

/// Sends the body as its faults say; returns how the connection ends, if a fault ends it.
fn send_disturbed(
    wire: &mut Wire,
    body: &Body,
    faults: &[Kind],
    sent: &mut u64,
) -> io::Result<Option<After>> {
    let whole = body.length();
    let mut length = whole;
    let mut end = None;
    let (mut rate, mut chunk) = (None, None);
    let mut stalls = Vec::new();
    for fault in faults {
        match fault {
            Kind::Length { by } => length = whole.saturating_add_signed(*by),
            Kind::Cut { after } => end = Some((*after, After::Cut)),
            Kind::Reset { after } => end = Some((*after, After::Reset)),
            Kind::Slow { rate: bytes } => rate = Some(*bytes),
            Kind::Chunked { size } => chunk = Some(*size),
            Kind::Stall { time, after } => stalls.push((*after, *time)),
            _ => {}
        }
    }
    if let Some((after, _)) = end {
        length = after.min(whole.saturating_sub(1));
    }
    for (after, _) in &mut stalls {
        *after = (*after).min(length.saturating_sub(1));
    }
    let mut buffer = Vec::new();
    let mut at = 0;
    loop {
        if let Some(due) = stalls.iter().position(|(after, _)| *after <= at) {
            pause(wire.socket(), stalls.swap_remove(due).1)?;
            continue;
        }
        if at == length {
            break;
        }
        let stop = stalls.iter().map(|(after, _)| *after).min().unwrap_or(length).min(length);
        // A slow body is sent in 20 parts per second.
        let most = rate.map_or(PIECE as u64, |rate| (rate / 20).clamp(1, PIECE as u64));
        let count = (stop - at).min(most).min(chunk.unwrap_or(u64::MAX));
        if let Some(rate) = rate {
            pause(wire.socket(), Duration::from_secs_f64(count as f64 / rate as f64))?;
        }
        buffer.clear();
        if chunk.is_some() {
            buffer.extend_from_slice(format!("{count:x}\r\n").as_bytes());
        }
        let before = buffer.len();
        buffer.resize(before + count as usize, 0);
        body.read_at(at, &mut buffer[before..])?;
        if chunk.is_some() {
            buffer.extend_from_slice(b"\r\n");
        }
        wire.write(&buffer)?;
        at += count;
        *sent += count;
    }
    if chunk.is_some() && end.is_none() {
        wire.write(b"0\r\n\r\n")?;
    }
    Ok(end.map(|(_, after)| after))
}

/// Pauses. If the client hangs up or the server stops during the pause, returns an error at once.
fn pause(socket: &TcpStream, time: Duration) -> io::Result<()> {
    let end = Instant::now() + time;
    loop {
        let left =
            Timespec::try_from(end.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, PollFlags::RDHUP)], Some(&left)) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
