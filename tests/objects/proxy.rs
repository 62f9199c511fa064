//! A proxy in front of a store. It passes requests on unchanged, so that signatures stay valid, counts them, and fails
//! on demand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The store asks the client to slow down.
    SlowDown,
    /// The response ends in the middle of its body.
    Cut,
    /// The response stalls for this time after half of its body.
    Stall(Duration),
    /// The store says that the token has expired.
    Expired,
    /// The store says that the client's clock is wrong.
    Skewed,
    /// The store says that the bucket is in another place.
    Elsewhere,
}

/// A request that the proxy received.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub target: String,
    /// The head of the request, unchanged.
    pub head: String,
}

impl Asked {
    /// Whether the request asks for a page of a listing.
    pub fn is_listing(&self) -> bool {
        self.target.contains("list-type=2")
    }
}

#[derive(Default)]
struct ProxyState {
    asked: Vec<Asked>,
    /// Every n-th request that is no listing fails in this way.
    failing: Option<(usize, Failing)>,
    listings_fail: bool,
    /// The number of next requests that fail.
    left: usize,
    seen: usize,
}

/// A proxy that runs until the process ends.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<ProxyState>>,
}

impl Proxy {
    /// Starts a proxy for the server on port `upstream`.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<Mutex<ProxyState>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, shared) = (client.unwrap(), shared.clone());
                // If a connection breaks, its client notices.
                std::thread::spawn(move || drop(serve(client, upstream, &shared)));
            }
        });
        Self { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap()
    }

    /// Takes the requests since the last call.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state().asked)
    }

    /// From now on every n-th request fails; listings fail only if `listings` is set.
    pub fn fail(&self, every: usize, how: Failing, listings: bool) {
        let mut state = self.state();
        state.failing = Some((every, how));
        state.listings_fail = listings;
        state.left = usize::MAX;
    }

    /// The next `left` requests fail.
    pub fn fail_next(&self, left: usize, how: Failing) {
        self.fail(1, how, true);
        self.state().left = left;
    }
}

/// Reads a head, with the empty line that ends it; `None` at the end of the connection.
fn head(from: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    loop {
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if head.ends_with("\r\n\r\n") {
            return Ok(Some(head));
        }
    }
}

fn length(head: &str) -> usize {
    let line = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
    line.map_or(0, |line| line.trim().parse().unwrap())
}

fn serve(client: TcpStream, upstream: u16, state: &Mutex<ProxyState>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (mut to_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    while let Some(request) = head(&mut client)? {
        let mut words = request.split(' ');
        let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let asked = Asked { method, target, head: request.clone() };
        let failing = {
            let mut state = state.lock().unwrap();
            let may = !asked.is_listing() || state.listings_fail;
            state.seen += usize::from(may);
            let failing =
                state.failing.filter(|(every, _)| may && state.left > 0 && state.seen.is_multiple_of(*every));
            state.left -= usize::from(failing.is_some());
            state.asked.push(asked.clone());
            failing.map(|(_, how)| how)
        };
        let refuse = |status: &str, headers: &str, code: &str| {
            let body = match asked.method.as_str() {
                "HEAD" => String::new(),
                _ => format!(
                    "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{request}</Message></Error>"
                ),
            };
            let length = body.len();
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
        };
        let refusal = match failing {
            Some(Failing::SlowDown) => Some(refuse("503 Slow Down", "retry-after: 0\r\n", "SlowDown")),
            Some(Failing::Expired) => Some(refuse("400 Bad Request", "", "ExpiredToken")),
            Some(Failing::Skewed) => Some(refuse("403 Forbidden", "", "RequestTimeTooSkewed")),
            Some(Failing::Elsewhere) => Some(refuse(
                "301 Moved Permanently",
                "x-amz-bucket-region: eu-somewhere-7\r\n",
                "PermanentRedirect",
            )),
            _ => None,
        };
        if let Some(refusal) = refusal {
            to_client.write_all(refusal.as_bytes())?;
            continue;
        }
        to_server.write_all(request.as_bytes())?;
        let Some(answer) = head(&mut server)? else { return Ok(()) };
        let length = if asked.method == "HEAD" { 0 } else { length(&answer) };
        let mut body = vec![0; length];
        server.read_exact(&mut body)?;
        to_client.write_all(answer.as_bytes())?;
        let (first, rest) = body.split_at(length / 2);
        to_client.write_all(first)?;
        match failing {
            Some(Failing::Cut) => return Ok(()),
            Some(Failing::Stall(time)) => std::thread::sleep(time),
            _ => {}
        }
        to_client.write_all(rest)?;
    }
    Ok(())
}
