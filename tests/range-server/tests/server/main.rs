//! The responses, faults and counters of the range server, seen by a client that works with raw bytes.

mod faults;
mod objects;
mod program;
mod tls;

use range_server::{Options, RangeServer};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tempfile::TempDir;

/// A response, or the part of it that came before the connection ended.
#[derive(Debug, Default)]
struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// How the connection ended, if it ended before the response.
    cut: Option<io::ErrorKind>,
}

impl Reply {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A connection, and the bytes that came after the last response.
struct Client<S> {
    stream: S,
    left: Vec<u8>,
}

impl Client<TcpStream> {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // Without a timeout, a test that hangs would give no message.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, left: Vec::new() }
    }
}

impl<S: Read + Write> Client<S> {
    fn ask(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) -> Reply {
        self.send(method, target, fields);
        self.receive(method == "HEAD")
    }

    fn get(&mut self, target: &str, range: &str) -> Reply {
        self.ask("GET", target, &[("Range", range)])
    }

    fn send(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n");
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        // If the connection has ended, the response shows that.
        let _ = self.stream.write_all((text + "\r\n").as_bytes());
    }

    fn more(&mut self) -> Result<(), io::ErrorKind> {
        let mut part = [0; 8192];
        match self.stream.read(&mut part) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof),
            Ok(count) => {
                self.left.extend_from_slice(&part[..count]);
                Ok(())
            }
            // The system does not resume a read with a timeout after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.kind()),
        }
    }

    /// Reads up to and including `end`.
    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, io::ErrorKind> {
        loop {
            if let Some(at) = self.left.windows(end.len()).position(|bytes| bytes == end) {
                return Ok(self.left.drain(..at + end.len()).collect());
            }
            self.more()?;
        }
    }

    fn exactly(&mut self, length: usize, body: &mut Vec<u8>) -> Result<(), io::ErrorKind> {
        while self.left.len() < length {
            if let Err(error) = self.more() {
                body.append(&mut self.left);
                return Err(error);
            }
        }
        body.extend(self.left.drain(..length));
        Ok(())
    }

    fn receive(&mut self, head: bool) -> Reply {
        let mut reply = Reply::default();
        reply.cut = self.read_into(&mut reply, head).err();
        reply
    }

    fn read_into(&mut self, reply: &mut Reply, head: bool) -> Result<(), io::ErrorKind> {
        let header = self.until(b"\r\n\r\n")?;
        let header = String::from_utf8(header).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut lines = header.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        reply.status = status.ok_or(io::ErrorKind::InvalidData)?;
        reply.fields = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        if head || matches!(reply.status, 204 | 304) {
            return Ok(());
        }
        if reply.field("transfer-encoding") == Some("chunked") {
            loop {
                let line = String::from_utf8(self.until(b"\r\n")?).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).unwrap();
                self.exactly(size, &mut reply.body)?;
                self.until(b"\r\n")?;
                if size == 0 {
                    return Ok(());
                }
            }
        }
        let length = reply.field("content-length").unwrap().parse().unwrap();
        self.exactly(length, &mut reply.body)
    }
}

/// Bytes that identify their offsets.
fn content() -> Vec<u8> {
    (0..600_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A directory with `object`, `empty`, and some names that are hard to write, and a server of it.
fn serve(options: Options) -> (TempDir, RangeServer) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::write(root.join("object"), content()).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::create_dir_all(root.join("in a folder")).unwrap();
    for name in HARD {
        fs::write(root.join("in a folder").join(name), name).unwrap();
    }
    let server = RangeServer::start(root, options).unwrap();
    (directory, server)
}

/// Names that URLs and pages must encode, each in its own way.
const HARD: &[&str] = &[
    "a&b <c>.jpg",
    "percent%20.jpg",
    "plus+.jpg",
    "quote\"'.jpg",
    "with:colon?and#more.jpg",
    "ümläut.jpg",
    "a-name-so-long-that-a-page-would-rather-cut-it-short-than-show-it.jpg",
];
