//! The end that feeds samples into a socket.

use super::address::{Duplex, SocketAddress};
use super::connections::{ALIVE_EVERY, SILENCE, first_of, nonsense, read_frame, within, write_frame};
use super::wire::{
    FeederId, FrameKind, HEADER, HelloBody, MOST_NUMBERS, SampleBody, WelcomeBody, frame, frame_of_numbers,
    parse_numbers,
};
use crate::error::{Error, Result};
use crate::http::{CertificatePin, GrowingPauses, RuntimeThread, Token};
use crate::notices::Notices;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long it may take to connect and to be let in.
const GREETING: Duration = Duration::from_secs(10);
/// How long the end of a feeder waits until its goodbye is said.
const FAREWELL: Duration = Duration::from_millis(500);

/// Where to feed samples to.
#[derive(Debug, Clone)]
pub struct FeederOptions {
    /// Where the receiver listens.
    pub address: SocketAddress,
    /// The receiver's token.
    pub token: Option<Token>,
    /// The certificate of the receiver, whose connections are encrypted then.
    pub pin: Option<CertificatePin>,
    /// The most bytes of samples that are kept until the receiver has them, or no longer needs them.
    pub buffer: usize,
}

impl FeederOptions {
    /// To feed to an address, with 256 MiB of samples kept.
    pub fn new(address: SocketAddress) -> Self {
        Self { address, token: None, pin: None, buffer: 256 << 20 }
    }
}

/// What a feeder keeps, and how far it is.
struct FeedingState {
    /// The frames of samples by their numbers.
    kept: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: usize,
    /// The number of the next sample.
    next: u64,
    /// The last sample that was sent on the connection that there is, or that had arrived before.
    sent: u64,
    /// The last sample that was received.
    received: u64,
    /// The bytes of those that were sent and not received.
    under_way: usize,
    window: usize,
    /// Whether samples are kept until they are acknowledged.
    keeps: bool,
    /// What was forgotten and is to be confirmed.
    to_confirm: Vec<u64>,
    /// Why the receiver wants nothing of this feeder.
    refused: Option<String>,
    /// Why there is no connection.
    trouble: Option<String>,
    closing: bool,
    closed: bool,
}

impl FeedingState {
    /// The bytes that a sample takes of the window.
    fn size(frame: &[u8]) -> usize {
        frame.len() - HEADER
    }

    fn forget(&mut self, number: u64) {
        if let Some(frame) = self.kept.remove(&number) {
            self.bytes -= frame.len();
            if number > self.received && number <= self.sent {
                self.under_way -= Self::size(&frame).min(self.under_way);
            }
        }
    }

    /// The receiver has taken the samples up to this one.
    fn receive(&mut self, number: u64) {
        if number <= self.received {
            return;
        }
        let taken: Vec<u64> =
            self.kept.range(self.received + 1..=number).map(|(number, _)| *number).collect();
        for number in taken {
            if self.keeps {
                if number <= self.sent {
                    self.under_way -= Self::size(&self.kept[&number]).min(self.under_way);
                }
            } else {
                self.forget(number);
            }
        }
        self.received = number;
    }

    /// A receiver has let this feeder in.
    fn welcome(&mut self, welcome: WelcomeBody) {
        self.keeps = welcome.keeps;
        self.window = usize::try_from(welcome.window).unwrap_or(usize::MAX);
        // A receiver that was started anew has none of what an earlier one had.
        self.sent = welcome.received;
        self.received = self.received.min(welcome.received);
        let under_way = self.kept.range(self.received + 1..).take_while(|(number, _)| **number <= self.sent);
        self.under_way = under_way.map(|(_, frame)| Self::size(frame)).sum();
        self.trouble = None;
    }

    /// The next frame to send.
    fn next_frame(&mut self) -> NextFrame {
        if !self.to_confirm.is_empty() {
            let most = self.to_confirm.len().min(MOST_NUMBERS);
            let numbers: Vec<u64> = self.to_confirm.drain(..most).collect();
            return NextFrame::Send(Arc::new(frame_of_numbers(FrameKind::Confirmed, &numbers)));
        }
        if self.closing {
            return NextFrame::Goodbye;
        }
        let Some((number, frame)) = self.kept.range(self.sent + 1..).next() else {
            return NextFrame::Nothing;
        };
        let size = Self::size(frame);
        if self.under_way > 0 && self.under_way + size > self.window {
            return NextFrame::Nothing;
        }
        let (number, frame) = (*number, frame.clone());
        self.sent = number;
        self.under_way += size;
        NextFrame::Send(frame)
    }
}

enum NextFrame {
    Send(Arc<Vec<u8>>),
    Goodbye,
    Nothing,
}

/// What the feeder's thread and its callers share.
struct Feeding {
    options: FeederOptions,
    id: FeederId,
    notices: Notices,
    state: Mutex<FeedingState>,
    changed: Condvar,
    wake: Notify,
}

/// Feeds samples into the socket of a receiver, which may come later, go and come back. Dropping it gives up what was
/// not received; [`SocketFeeder::flush`] waits for that.
pub struct SocketFeeder {
    feeding: Arc<Feeding>,
    thread: Option<RuntimeThread>,
}

impl SocketFeeder {
    /// Begins to connect, and does not wait for it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system refuses a thread.
    pub fn start(options: FeederOptions, notices: Notices) -> Result<Self> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Error::Unavailable(format!("no random numbers for a feeder's name: {error}")))?;
        let state = FeedingState {
            kept: BTreeMap::new(),
            bytes: 0,
            next: 1,
            sent: 0,
            received: 0,
            under_way: 0,
            window: 0,
            keeps: false,
            to_confirm: Vec::new(),
            refused: None,
            trouble: None,
            closing: false,
            closed: false,
        };
        let feeding = Arc::new(Feeding {
            options,
            id,
            notices,
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake: Notify::new(),
        });
        let (work, dying) = (feeding.clone(), feeding.clone());
        let died = move || {
            dying.state().refused =
                Some("the thread that feeds has died, which is a defect in Foreload".to_owned());
            dying.changed.notify_all();
        };
        let thread = RuntimeThread::start("foreload-feeder", || Ok(async move { work.run().await }), died)?;
        Ok(Self { feeding, thread: Some(thread) })
    }

    /// Sends a sample, and waits up to `patience` for room. Returns whether there was; a sample for which there was
    /// none is not sent.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the receiver wants nothing of this feeder; [`Error::Config`] for a sample that
    /// cannot be sent.
    pub fn send(&self, key: &str, members: &[(&str, &[u8])], patience: Duration) -> Result<bool> {
        let sample = SampleBody { number: 0, key, members: members.to_vec() };
        let unsendable =
            |what: String| Error::config("members", format!("sample {key:?} cannot be sent: {what}"));
        let size = members.iter().map(|(name, bytes)| name.len() + bytes.len()).sum::<usize>();
        let buffer = self.feeding.options.buffer;
        if !self.wait(patience, |state| state.bytes == 0 || state.bytes + size <= buffer)? {
            return Ok(false);
        }
        let mut frame = sample.frame().map_err(unsendable)?;
        let mut state = self.feeding.state();
        let number = state.next;
        // The number stands first in the body.
        frame[HEADER..HEADER + 8].copy_from_slice(&number.to_le_bytes());
        state.next += 1;
        state.bytes += frame.len();
        state.kept.insert(number, Arc::new(frame));
        drop(state);
        self.feeding.wake.notify_one();
        Ok(true)
    }

    /// Waits up to `patience` until all samples are received, or even `acknowledged`, so that none of them is kept any
    /// more. Returns whether they are.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the receiver wants nothing of this feeder.
    pub fn flush(&self, acknowledged: bool, patience: Duration) -> Result<bool> {
        self.wait(patience, |state| {
            if acknowledged { state.kept.is_empty() } else { state.received + 1 >= state.next }
        })
    }

    /// Why there is no connection, if there is none.
    pub fn trouble(&self) -> Option<String> {
        self.feeding.state().trouble.clone()
    }

    fn wait(&self, patience: Duration, until: impl Fn(&FeedingState) -> bool) -> Result<bool> {
        let deadline = Instant::now() + patience;
        let mut state = self.feeding.state();
        loop {
            if let Some(why) = &state.refused {
                let address = &self.feeding.options.address;
                return Err(Error::Unavailable(format!(
                    "the receiver at {address} takes no samples from here: {why}"
                )));
            }
            if until(&state) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.feeding.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for SocketFeeder {
    fn drop(&mut self) {
        if self.thread.as_ref().is_some_and(RuntimeThread::is_here) {
            self.feeding.state().closing = true;
            self.feeding.wake.notify_one();
            let _ = self.wait(FAREWELL, |state| state.closed || state.trouble.is_some());
        }
        self.thread = None;
    }
}

impl Feeding {
    fn state(&self) -> MutexGuard<'_, FeedingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects again and again, and feeds, until it is closed or refused.
    async fn run(self: Arc<Self>) {
        let (mut pauses, mut told) = (GrowingPauses::default(), false);
        loop {
            let trouble = match within(GREETING, self.connect()).await {
                Ok(stream) => {
                    pauses.succeeded();
                    self.changed.notify_all();
                    self.feed(stream).await;
                    "the connection has ended".to_owned()
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    self.state().refused = Some(error.to_string());
                    self.changed.notify_all();
                    return;
                }
                Err(error) => error.to_string(),
            };
            {
                let mut state = self.state();
                state.trouble = Some(trouble.clone());
                if state.closing || state.refused.is_some() {
                    state.closed = true;
                    self.changed.notify_all();
                    return;
                }
            }
            self.changed.notify_all();
            if !std::mem::replace(&mut told, true) {
                self.notices.warn_at_once(format!(
                    "feeding {}: {trouble}; it is tried again, after pauses of up to five seconds, and samples are \
                     kept meanwhile; of later breaks nothing is said",
                    self.options.address
                ));
            }
            let pause = pauses.after_failure();
            // Whoever closes the feeder need not wait for the pause.
            let _ = timeout(pause, async {
                while !self.state().closing {
                    self.wake.notified().await;
                }
            })
            .await;
        }
    }

    /// Connects, and is let in. Who is not gets an error of the kind `PermissionDenied`.
    async fn connect(&self) -> std::io::Result<Box<dyn Duplex>> {
        let reach = |error: std::io::Error| match error.kind() {
            // The file of a socket may be another user's, which is no word of the receiver's.
            ErrorKind::PermissionDenied => std::io::Error::other(error.to_string()),
            _ => error,
        };
        let mut stream = self.options.address.connect(self.options.pin).await.map_err(reach)?;
        let token = self.options.token.as_ref().map_or("", Token::reveal);
        write_frame(&mut stream, &HelloBody { feeder: self.id, token: token.as_bytes() }.frame()).await?;
        let (kind, body) = read_frame(&mut stream).await?;
        match kind {
            FrameKind::Welcome => {
                let welcome = WelcomeBody::parse(&body).map_err(refusal)?;
                self.state().welcome(welcome);
                Ok(stream)
            }
            FrameKind::Refused => Err(refusal(String::from_utf8_lossy(&body).into_owned())),
            _ => Err(nonsense("no receiver of samples listens there".to_owned())),
        }
    }

    /// Feeds on a connection until it ends.
    async fn feed(&self, stream: Box<dyn Duplex>) {
        let (reading, writing) = tokio::io::split(stream);
        let read = async {
            if let Err(error) = self.hear(reading).await
                && error.kind() == ErrorKind::PermissionDenied
            {
                self.state().refused = Some(error.to_string());
            }
        };
        let write = async {
            let _ = self.speak(writing).await;
        };
        first_of(read, write).await;
    }

    /// Takes what the receiver says.
    async fn hear(&self, mut from: impl AsyncRead + Unpin) -> std::io::Result<()> {
        loop {
            let (kind, body) = within(SILENCE, read_frame(&mut from)).await?;
            let mut state = self.state();
            match kind {
                FrameKind::Received | FrameKind::Acknowledged => {
                    let numbers = parse_numbers(&body).map_err(nonsense)?;
                    if kind == FrameKind::Received {
                        numbers.iter().for_each(|number| state.receive(*number));
                    } else {
                        numbers.iter().for_each(|number| state.forget(*number));
                        state.to_confirm.extend(numbers);
                    }
                }
                FrameKind::Refused => return Err(refusal(String::from_utf8_lossy(&body).into_owned())),
                FrameKind::Alive => {}
                _ => return Err(nonsense(format!("a receiver does not say {kind:?} here"))),
            }
            drop(state);
            self.changed.notify_all();
            self.wake.notify_one();
        }
    }

    /// Sends what there is to send.
    async fn speak(&self, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        loop {
            let next = self.state().next_frame();
            match next {
                NextFrame::Send(frame) => write_frame(&mut to, &frame).await?,
                NextFrame::Goodbye => return write_frame(&mut to, &frame(FrameKind::Goodbye, &[])).await,
                NextFrame::Nothing => {
                    if timeout(ALIVE_EVERY, self.wake.notified()).await.is_err() {
                        write_frame(&mut to, &frame(FrameKind::Alive, &[])).await?;
                    }
                }
            }
        }
    }
}

/// The error that says that a receiver does not want this feeder.
fn refusal(why: String) -> std::io::Error {
    std::io::Error::new(ErrorKind::PermissionDenied, why)
}
