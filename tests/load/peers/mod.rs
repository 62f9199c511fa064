//! Samples from peers, over real sockets: samples that arrive are right, missing ones are reported, and no wait is
//! long.

mod failing;
pub(crate) mod fuzz;
mod processes;
mod pushing;
mod serving;
mod strangers;

use crate::common::{random_bytes, wait_until};
use foreload::Notices;
use foreload::testing::dataset::{FileVersion, Fingerprint};
use foreload::testing::io::Waker;
use foreload::testing::peers::{
    Accepted, BreakerLimits, Bytes, CopyBytes, DeadlineLimits, Found, HttpOptions, HttpTransfer, Miss, Peer,
    PeerAnswer, PeerRead, ServedCache, Server, ServerOptions, SharedDataset, Token,
};
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::slot::SlotPool;
use foreload::testing::tier::store::checksum;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A limit for operations that should take no time.
const PATIENCE: Duration = Duration::from_secs(30);

const VERSION: FileVersion = FileVersion(0x1234_5678_9abc_def0);

/// A sample for which the test cache has to make room before it accepts it.
const LONG_TO_ACCEPT: u64 = 7;

/// The dataset of most tests.
const DATASET: SharedDataset = SharedDataset { fingerprint: Fingerprint([0xA5; 32]), generation: 3 };

/// All samples with their checksums. The first is empty, the others have up to 200 000 bytes.
static SAMPLES: LazyLock<Vec<(Bytes, u32)>> = LazyLock::new(|| {
    let key = RandomKey::new(b"peers' samples", 1, 0, Use::Augment);
    let sample = |number| {
        let mut random = key.stream(number);
        let length = if number == 0 { 0 } else { 1 + random.below(200_000) as usize };
        let bytes = random_bytes(&mut random, length);
        let crc = checksum(&bytes);
        (bytes.into(), crc)
    };
    (0..64).map(sample).collect()
});

/// The checksum of a sample as sent in headers: combined with that of its number and version.
fn crc_on_the_wire(sample: u64, bytes: &[u8]) -> u32 {
    checksum(bytes) ^ checksum(&[sample.to_le_bytes(), VERSION.0.to_le_bytes()].concat())
}

fn sample_bytes(sample: u64) -> Bytes {
    SAMPLES[sample as usize].0.clone()
}

/// A served cache of samples 0 to `known`, which holds the samples below `kept`.
struct TestShelf {
    known: u64,
    samples: Vec<Bytes>,
    /// The file that contains the samples, with their offsets, if there is one.
    file: Option<(Arc<File>, Vec<u64>)>,
    pushed: Mutex<HashMap<u64, Vec<u8>>>,
    /// The copies that were reported as damaged.
    damaged: Mutex<Vec<u64>>,
    /// The result of a push.
    accepts: Accepted,
    /// The thread on which the last sample was pushed.
    pushed_on: Mutex<Option<ThreadId>>,
}

impl TestShelf {
    fn in_memory(kept: u64) -> Self {
        let samples = (0..kept).map(sample_bytes).collect();
        Self {
            known: kept + 10,
            samples,
            file: None,
            pushed: Mutex::default(),
            damaged: Mutex::default(),
            accepts: Accepted::Taken,
            pushed_on: Mutex::default(),
        }
    }

    fn in_file(kept: u64) -> Self {
        let file = tempfile::tempfile().unwrap();
        let mut end = 0;
        let places = (0..kept).map(|sample| {
            let (bytes, start) = (sample_bytes(sample), end);
            file.write_all_at(&bytes, start).unwrap();
            end += bytes.len() as u64;
            start
        });
        let places = places.collect();
        Self { file: Some((Arc::new(file), places)), ..Self::in_memory(kept) }
    }
}

impl ServedCache for TestShelf {
    fn find(&self, sample: u64, version: Option<FileVersion>) -> Found {
        if version.is_some_and(|version| version != VERSION) {
            return Found::Stale;
        }
        let Some(bytes) = self.samples.get(sample as usize) else { return Found::Absent };
        let crc = SAMPLES[sample as usize].1;
        let bytes = match &self.file {
            None => CopyBytes::Memory(bytes.clone()),
            Some((file, places)) => CopyBytes::File {
                file: file.clone(),
                offset: places[sample as usize],
                length: bytes.len() as u32,
                alignment: if sample.is_multiple_of(2) { 1 } else { 4096 },
            },
        };
        Found::Copy { bytes, crc, version: VERSION }
    }

    fn length(&self, sample: u64) -> Option<u32> {
        (sample < self.known).then(|| sample_bytes(sample).len() as u32)
    }

    fn damaged(&self, sample: u64, _crc: u32) {
        self.damaged.lock().unwrap().push(sample);
    }

    fn accepts_at_once(&self, sample: u64) -> bool {
        sample != LONG_TO_ACCEPT
    }

    fn accept(&self, sample: u64, version: FileVersion, crc: u32, bytes: &[u8]) -> Accepted {
        assert_eq!(crc, checksum(bytes), "the server has compared it");
        *self.pushed_on.lock().unwrap() = Some(std::thread::current().id());
        if version != VERSION {
            return Accepted::Off;
        }
        if self.accepts == Accepted::Taken {
            self.pushed.lock().unwrap().insert(sample, bytes.to_owned());
        }
        self.accepts
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The token of most tests.
fn token() -> Token {
    Token::new("0123456789abcdef0123456789abcdef").unwrap()
}

/// A server of `served_cache` as [`DATASET`].
fn server(served_cache: impl ServedCache + 'static) -> Server {
    let server = Server::start(ServerOptions::new(loopback(), token())).unwrap();
    server.share(DATASET, Arc::new(served_cache));
    server
}

fn plain(address: SocketAddr) -> Peer {
    Peer { address, pin: None }
}

/// Options without a backoff period, and with a deadline that is long enough for a busy machine.
fn patient() -> HttpOptions {
    let deadline = allowed(PATIENCE);
    let breaker = BreakerLimits { failures: u32::MAX, ..BreakerLimits::default() };
    HttpOptions { deadline, breaker, ..HttpOptions::new(DATASET, token()) }
}

/// Options with which a read ends after `milliseconds`.
fn hasty(milliseconds: u64) -> HttpOptions {
    HttpOptions { deadline: allowed(Duration::from_millis(milliseconds)), ..patient() }
}

/// Deadlines that always equal `limit`.
fn allowed(limit: Duration) -> DeadlineLimits {
    DeadlineLimits {
        first: limit,
        floor: limit,
        ceiling: limit,
        slowest: u64::MAX,
        ..DeadlineLimits::default()
    }
}

/// A client, its slots and its warnings.
struct Client {
    transfer: HttpTransfer,
    slots: SlotPool,
    notices: Notices,
}

impl Client {
    fn new(peers: &[Peer], options: &HttpOptions) -> Self {
        let notices = Notices::default();
        let options = HttpOptions { notices: notices.clone(), ..options.clone() };
        let transfer = HttpTransfer::new(peers, &options, Waker(Arc::new(|| {}))).unwrap();
        Self { transfer, slots: SlotPool::new(16 << 20).unwrap(), notices }
    }

    fn of(server: &Server) -> Self {
        Self::new(&[plain(server.address())], &patient())
    }

    /// Posts a read of `sample` from `peer`, with the sample as its token.
    fn post(&mut self, peer: usize, sample: u64) {
        let length = sample_bytes(sample).len() as u32;
        let slot = self.slots.try_take(length as usize).expect("room for the test's reads");
        self.transfer.post(PeerRead {
            token: sample,
            peer,
            sample,
            length,
            most: length,
            version: None,
            slot,
        });
    }

    /// The results of all reads in flight. Each gives its slot back.
    fn answers(&mut self) -> Vec<PeerAnswer> {
        let (mut answers, end) = (Vec::new(), Instant::now() + 2 * PATIENCE);
        while self.transfer.in_flight() > 0 {
            assert!(Instant::now() < end, "{} reads are not answered", self.transfer.in_flight());
            self.transfer.wait_until(Some(end), &mut answers).unwrap();
        }
        for answer in &answers {
            assert_eq!(answer.slot.is_some(), answer.result.is_err(), "HTTP gives every slot back");
        }
        answers
    }

    /// Reads a sample, and checks its bytes.
    fn ask(&mut self, peer: usize, sample: u64) -> Result<(), Miss> {
        self.post(peer, sample);
        let answer = self.answers().pop().expect("an answer");
        check(answer)
    }

    /// Whether all slots were given back.
    fn holds_nothing(&self) -> bool {
        self.slots.usage().in_use == 0
    }
}

/// Checks the bytes of a result.
fn check(answer: PeerAnswer) -> Result<(), Miss> {
    let copy = answer.result?;
    assert!(*copy.bytes == sample_bytes(answer.token), "sample {}", answer.token);
    assert_eq!((copy.version, copy.crc), (VERSION, SAMPLES[answer.token as usize].1));
    Ok(())
}

/// The path of a sample of [`DATASET`].
fn path(sample: u64) -> String {
    format!("/v1/{}/{}/samples/{sample}", DATASET.fingerprint, DATASET.generation)
}

/// A request as text, with the token and more headers.
fn request(method: &str, path: &str, headers: &str) -> String {
    let token = token().reveal().to_owned();
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{headers}\r\n")
}

/// Sends bytes over a new connection, and reads until the other end closes it or sends no more.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other end may have closed the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of a response, and its body.
fn status_and_body(answer: &str) -> (u16, &str) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body))
}
