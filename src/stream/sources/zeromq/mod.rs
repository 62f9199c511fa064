//! ZeroMQ messages as samples: distributed by a PUSH socket, or sent to all subscribers by a PUB socket.
//!
//! The frames of a message are alternating names and values. ZeroMQ keeps no message that was received, and PUB
//! silently drops messages that a subscriber does not take in time. If a publisher numbers its messages (`__seq__`),
//! missing messages are counted.
//!
//! The protocol has no encryption and no authentication, and the memory for a frame is allocated as its header says. So
//! anyone who can connect to a bound socket can stop the process. Use these sockets in trusted networks only.
//!
//! The runtime of the ZeroMQ library runs in the receiving thread, and only while that thread receives.

mod message;

use crate::record::Record;
use crate::share::RankShare;
use crate::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
use base::error::{Error, Result};
use base::notices::Notices;
use data::http::RetryBackoff;
use message::{MessageParts, SEQUENCE};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zeromq::{PullSocket, Socket, SocketEvent, SocketRecv, SubSocket, ZmqError, ZmqMessage, ZmqResult};

/// The timeout of one attempt to connect. Nothing is received during an attempt.
const CONNECTING: Duration = Duration::from_millis(300);

/// How often a wait is interrupted to check for lost connections.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The two kinds of receiving sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroMqKind {
    /// Receives messages that PUSH sockets distribute among all PULL sockets.
    Pull,
    /// Receives messages that PUB sockets send to all subscribers.
    Sub,
}

/// The settings of a ZeroMQ socket.
#[derive(Debug, Clone)]
pub struct ZeroMqOptions {
    /// The kind of socket.
    pub kind: ZeroMqKind,
    /// The addresses: `tcp://host:5555`, `ipc:///path`.
    pub endpoints: Vec<String>,
    /// Whether this socket binds to the addresses, and publishers connect to it.
    pub bind: bool,
    /// The topics to subscribe to, which are prefixes of a message's first frame. For SUB only; all messages by
    /// default.
    pub topics: Vec<String>,
    /// The name of the stream, which is part of every sample's identity.
    pub name: String,
    /// The maximum length of a message in bytes. A longer message fails, but only after it is in memory.
    pub max_bytes: usize,
    /// This rank's share of the messages of a SUB socket, by sequence number. PUSH sockets divide messages themselves.
    pub share: RankShare,
}

impl ZeroMqOptions {
    /// Options to receive all messages of up to 64 MiB from an address.
    pub fn new(kind: ZeroMqKind, endpoint: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            endpoints: vec![endpoint.into()],
            bind: false,
            topics: Vec::new(),
            name: name.into(),
            max_bytes: 64 << 20,
            share: RankShare::default(),
        }
    }

    fn check(&self) -> Result<()> {
        let refused = |what: String| Err(Error::config("source", format!("ZeroMQ: {what}")));
        if self.name.is_empty() || self.max_bytes == 0 {
            return refused("name must not be empty, and max_bytes must be at least 1".to_owned());
        }
        if self.endpoints.is_empty() {
            return refused("endpoints: is empty, must have one such as \"tcp://127.0.0.1:5555\"".to_owned());
        }
        for endpoint in &self.endpoints {
            if let Err(error) = endpoint.parse::<zeromq::Endpoint>() {
                return refused(format!(
                    "endpoint {endpoint:?}: {error}; must be like tcp://host:5555 or ipc:///path"
                ));
            }
        }
        if self.kind == ZeroMqKind::Pull && !self.topics.is_empty() {
            return refused("topics: only apply to SUB; PULL receives all messages".to_owned());
        }
        self.share.check().or_else(refused)
    }

    fn describe(&self, endpoints: &[String]) -> String {
        let kind = if self.kind == ZeroMqKind::Pull { "PULL" } else { "SUB" };
        let how = if self.bind { "bound to" } else { "connected to" };
        format!("zeromq {kind} socket {how} {}", endpoints.join(", "))
    }
}

enum ZeroMqSocket {
    Pull(PullSocket),
    Sub(SubSocket),
}

impl ZeroMqSocket {
    async fn bind(&mut self, endpoint: &str) -> ZmqResult<String> {
        let bound = match self {
            Self::Pull(socket) => socket.bind(endpoint).await,
            Self::Sub(socket) => socket.bind(endpoint).await,
        };
        Ok(bound?.to_string())
    }

    async fn connect(&mut self, endpoint: &str) -> ZmqResult<()> {
        match self {
            Self::Pull(socket) => socket.connect(endpoint).await,
            Self::Sub(socket) => socket.connect(endpoint).await,
        }
    }

    async fn recv(&mut self) -> ZmqResult<ZmqMessage> {
        match self {
            Self::Pull(socket) => socket.recv().await,
            Self::Sub(socket) => socket.recv().await,
        }
    }
}

struct ConnectedAddress {
    address: String,
    /// The identity of the peer as the ZeroMQ library reports it; `None` until the address is connected.
    peer: Option<String>,
    pauses: RetryBackoff,
    next_try: Instant,
}

struct ZeroMqLink {
    socket: ZeroMqSocket,
    next_event: NextEvent,
    endpoints: Vec<ConnectedAddress>,
}

type NextEvent = Box<dyn FnMut() -> Option<SocketEvent> + Send>;

struct OpenSocket {
    link: ZeroMqLink,
    runtime: Runtime,
}

#[derive(Default)]
struct GivenWarnings {
    unnumbered: bool,
    backwards: bool,
    missing: bool,
    broken: bool,
}

/// A ZeroMQ socket as a source.
pub struct ZeroMqSource {
    options: ZeroMqOptions,
    what: String,
    notices: Notices,
    open: Option<OpenSocket>,
    /// The sequence number of the last message, if the publisher numbers its messages.
    last: Option<u64>,
    /// The last number that this source assigned, if the publisher does not number messages.
    given: u64,
    /// The number of missing messages that were not reported yet.
    missing: u64,
    warned: GivenWarnings,
}

impl ZeroMqSource {
    /// Creates a source, which connects when it is opened.
    ///
    /// # Errors
    /// [`Error::Config`] for `source` if a setting cannot work.
    pub fn new(options: ZeroMqOptions, notices: Notices) -> Result<Self> {
        options.check()?;
        let what = options.describe(&options.endpoints);
        Ok(Self {
            options,
            what,
            notices,
            open: None,
            last: None,
            given: 0,
            missing: 0,
            warned: GivenWarnings::default(),
        })
    }

    fn failed(&self, what: &str) -> Error {
        Error::Unavailable(format!("{}: {what}", self.what))
    }

    /// The sample of a message. `None` if the message belongs to another rank.
    fn arrival(&mut self, message: &ZmqMessage) -> Option<Arrival> {
        let frames: Vec<&[u8]> = message.iter().map(|frame| &frame[..]).collect();
        let bytes: usize = frames.iter().map(|frame| frame.len()).sum();
        let sub = self.options.kind == ZeroMqKind::Sub;
        let parts = MessageParts::of(&frames, sub);
        let sequence = parts.as_ref().map_or(None, |parts| parts.sequence);
        self.missing += self.gap_before(sequence, sub);
        let stated = parts.as_ref().ok().and_then(|parts| parts.key);
        let share = self.options.share;
        let divided = sub && share.world_size > 1;
        if divided {
            let own = match (sequence, stated) {
                (Some(number), _) => number % u64::from(share.world_size) == u64::from(share.rank),
                (None, Some(key)) => share.owns(&self.options.name, key),
                (None, None) => share.rank == 0,
            };
            if !own {
                return None;
            }
        }
        let key = match (stated, sequence) {
            (Some(key), _) => key.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => {
                self.given += 1;
                self.options.share.key(self.given)
            }
        };
        let record = match parts {
            Err(what) => Err(what),
            Ok(_) if bytes > self.options.max_bytes => {
                Err(format!("it has {bytes} bytes, but max_bytes is {}", self.options.max_bytes))
            }
            Ok(_) if divided && sequence.is_none() && stated.is_none() => {
                Err(format!("it has no {SEQUENCE}, which ranks need to divide the messages"))
            }
            Ok(parts) => Record::new(&self.options.name, &key, &parts.members),
        };
        Some(Arrival { key, record, gap: std::mem::take(&mut self.missing) })
    }

    /// The number of missing messages of this rank before the message with this sequence number.
    fn gap_before(&mut self, sequence: Option<u64>, sub: bool) -> u64 {
        let Some(number) = sequence else {
            if sub && !std::mem::replace(&mut self.warned.unnumbered, true) {
                self.notices.warn_at_once(format!(
                    "{}: messages have no {SEQUENCE}, so messages that PUB drops for a slow or absent subscriber \
                     cannot be counted or reported; let the publisher add a frame \"{SEQUENCE}\" with the message's \
                     number, or use PUSH and PULL",
                    self.what
                ));
            }
            return 0;
        };
        let last = self.last.replace(number);
        // PULL sockets share the messages of a publisher, so gaps in the sequence numbers mean nothing.
        let Some(last) = last.filter(|_| sub) else { return 0 };
        if number <= last {
            if !std::mem::replace(&mut self.warned.backwards, true) {
                self.notices.warn_at_once(format!(
                    "{}: {SEQUENCE} went from {last} to {number}: the publisher was restarted, or there are several; \
                     samples with the same number count as one; let the publisher continue its numbers, or add a \
                     frame \"__key__\"",
                    self.what
                ));
            }
            return 0;
        }
        let (share, missing) = (self.options.share, number - last - 1);
        if missing > 0 && !std::mem::replace(&mut self.warned.missing, true) {
            self.notices.warn_at_once(format!(
                "{}: {missing} messages after number {last} were lost; read faster, or raise the publisher's \
                 high-water mark (SNDHWM); further losses are only counted",
                self.what
            ));
        }
        if share.world_size <= 1 {
            return missing;
        }
        // How many sequence numbers below `bound` belong to this rank.
        let below =
            |bound: u64| (bound + u64::from(share.world_size - 1 - share.rank)) / u64::from(share.world_size);
        below(number) - below(last + 1)
    }

    /// Receives until there are `wanted` samples, until there are some samples and no more messages wait, or until
    /// `deadline`.
    async fn receive_from(
        &mut self,
        link: &mut ZeroMqLink,
        wanted: usize,
        deadline: Instant,
        into: &mut Vec<Arrival>,
    ) {
        let before = into.len();
        while into.len() < wanted {
            if link.follow_events() {
                self.warn_disconnected("the peer has disconnected");
            }
            if let Some(unreached) = link.connect().await {
                self.warn_disconnected(&unreached);
            }
            let now = Instant::now();
            let until =
                if into.len() > before { now } else { link.until(deadline.min(now + CHECK_INTERVAL)) };
            match link.next_message(until).await {
                Some(Ok(message)) => into.extend(self.arrival(&message)),
                Some(Err(ZmqError::NoMessage)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Some(Err(error)) => self.warn_disconnected(&error.to_string()),
                None if into.len() > before => return,
                None => {}
            }
            // All messages may belong to other ranks, so check the deadline after each.
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    fn warn_disconnected(&mut self, what: &str) {
        if !std::mem::replace(&mut self.warned.broken, true) {
            self.notices.warn_at_once(format!(
                "{}: {what}; reconnecting, with pauses of up to five seconds; further disconnects are not reported",
                self.what
            ));
        }
    }
}

impl ZeroMqLink {
    /// Handles connection events. Returns whether a peer has disconnected.
    fn follow_events(&mut self) -> bool {
        let mut gone = false;
        while let Some(event) = (self.next_event)() {
            if let SocketEvent::Disconnected(peer) = event {
                let peer = format!("{peer:?}");
                if let Some(endpoint) = self.endpoints.iter_mut().find(|of| of.peer.as_ref() == Some(&peer)) {
                    gone = true;
                    // A SUB socket reconnects by itself.
                    if matches!(self.socket, ZeroMqSocket::Pull(_)) {
                        endpoint.peer = None;
                        endpoint.next_try = Instant::now() + endpoint.pauses.after_failure();
                    }
                }
            }
        }
        gone
    }

    /// Connects to the addresses without a peer for which an attempt is due. Returns the last address that could not be
    /// reached.
    async fn connect(&mut self) -> Option<String> {
        let mut unreached = None;
        for number in 0..self.endpoints.len() {
            let endpoint = &mut self.endpoints[number];
            if endpoint.peer.is_some() || endpoint.next_try > Instant::now() {
                continue;
            }
            let connected = timeout(CONNECTING, self.socket.connect(&endpoint.address)).await;
            if let Ok(Ok(())) = connected {
                endpoint.pauses.succeeded();
                let mut peer = None;
                while let Some(event) = (self.next_event)() {
                    match event {
                        SocketEvent::Connected(_, id) => peer = Some(format!("{id:?}")),
                        SocketEvent::Disconnected(id) => {
                            let id = Some(format!("{id:?}"));
                            let lost =
                                self.endpoints.iter_mut().find(|of| of.peer.is_some() && of.peer == id);
                            if let (Some(lost), ZeroMqSocket::Pull(_)) = (lost, &self.socket) {
                                lost.peer = None;
                            }
                        }
                        _ => {}
                    }
                }
                self.endpoints[number].peer = peer.or_else(|| Some(String::new()));
            } else {
                endpoint.next_try = Instant::now() + endpoint.pauses.after_failure();
                unreached = Some(format!("no answer from {}", endpoint.address));
            }
        }
        unreached
    }

    /// The time of the next attempt to connect, but at most `at_most`.
    fn until(&self, at_most: Instant) -> Instant {
        let missing = self.endpoints.iter().filter(|endpoint| endpoint.peer.is_none());
        missing.map(|endpoint| endpoint.next_try).fold(at_most, Instant::min)
    }

    async fn next_message(&mut self, until: Instant) -> Option<ZmqResult<ZmqMessage>> {
        let left = until.saturating_duration_since(Instant::now());
        timeout(left, self.socket.recv()).await.ok()
    }
}

impl StreamSource for ZeroMqSource {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn replay(&self) -> Replay {
        Replay::Never
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        // Numbers that this source assigns resume after the highest number. If the publisher assigns numbers, gaps are
        // counted from the last number on.
        self.given = position.highest_number().unwrap_or(0);
        self.last = position.after.as_ref().and_then(|key| key.parse().ok());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().map_err(|error| self.failed(&error.to_string()))?;
        let options = &self.options;
        let opened = runtime.block_on(async {
            let (mut socket, next_event): (_, NextEvent) = match options.kind {
                ZeroMqKind::Pull => {
                    let mut socket = PullSocket::new();
                    let mut events = socket.monitor();
                    (ZeroMqSocket::Pull(socket), Box::new(move || events.try_recv().ok()))
                }
                ZeroMqKind::Sub => {
                    let mut socket = SubSocket::new();
                    let mut events = socket.monitor();
                    for topic in &options.topics {
                        socket.subscribe(topic).await?;
                    }
                    if options.topics.is_empty() {
                        socket.subscribe("").await?;
                    }
                    (ZeroMqSocket::Sub(socket), Box::new(move || events.try_recv().ok()))
                }
            };
            let mut bound = Vec::new();
            if options.bind {
                for endpoint in &options.endpoints {
                    bound.push(socket.bind(endpoint).await?);
                }
            }
            Ok::<_, ZmqError>((socket, next_event, bound))
        });
        let (socket, next_event, bound) = opened.map_err(|error| {
            self.failed(&format!("{error}; pass a free address of this machine, or connect with bind=False"))
        })?;
        let endpoint = |address: &String| ConnectedAddress {
            address: address.clone(),
            peer: None,
            pauses: RetryBackoff::default(),
            next_try: Instant::now(),
        };
        let connects = if options.bind { &[][..] } else { &options.endpoints[..] };
        let endpoints = connects.iter().map(endpoint).collect();
        if options.bind {
            self.what = options.describe(&bound);
        }
        self.open = Some(OpenSocket { link: ZeroMqLink { socket, next_event, endpoints }, runtime });
        Ok(())
    }

    fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        // If the publisher assigns numbers, all messages after the highest number of any rank count as missing if they
        // do not arrive.
        Ok(SourcePosition::after_all(former))
    }

    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received> {
        let deadline = Instant::now() + patience;
        let Some(OpenSocket { mut link, runtime }) = self.open.take() else {
            return Err(self.failed("the socket is not open"));
        };
        runtime.block_on(self.receive_from(&mut link, into.len() + most, deadline, into));
        self.open = Some(OpenSocket { link, runtime });
        Ok(Received::More)
    }

    fn acknowledge(&mut self, _: &SourcePosition) -> Result<bool> {
        Ok(true)
    }

    fn fetch(&mut self, key: &str) -> Result<Record> {
        Err(self.failed(&format!(
            "sample {key:?} cannot be read again, because ZeroMQ stores no messages: replay a journal with a folder \
             or Redis as the source"
        )))
    }

    fn describe(&self) -> String {
        self.what.clone()
    }
}
