//! A consumer's connection to a producer.

use super::key::SharedKey;
use super::socket::{Incoming, Socket, WakeEvent, wait_for};
use super::wire::{BatchPosition, PROTOCOL, ToConsumer, ToProducer};
use crate::batch::{LeaseOwner, LeasedMap, LeasedMemory, Parcel};
use base::error::{Error, Result};
use base::notices::Notices;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a producer may be silent before this consumer pings it.
const PING_AFTER: Duration = Duration::from_millis(500);

/// The longest wait for the answer to a ping. A producer answers even while it is busy, unless it is stopped.
const ANSWER: Duration = Duration::from_millis(500);

pub(super) struct Link {
    socket: Arc<Socket>,
    maps: HashMap<u64, Arc<LeasedMap>>,
    pub producer: u32,
    /// The number of requests sent so far, which is also the number of the latest request.
    asked: u64,
}

pub(super) enum HelloResult {
    Taken(Link),
    /// The producer makes batches at other steps.
    Elsewhere,
    Gone,
    Silent,
}

/// A leased batch.
pub struct LeasedBatch {
    pub memory: LeasedMemory,
    pub parcel: Parcel,
    pub samples: u32,
    /// Number of consumers of the producer, including this one.
    pub consumers: u32,
}

pub(super) enum AskOutcome {
    Leased(LeasedBatch),
    /// The caller no longer needs the batch.
    Stopped,
    Elsewhere,
    Lost,
    Silent,
}

struct ReturnChannel(Arc<Socket>);

impl LeaseOwner for ReturnChannel {
    fn give_back(&self, buffer: u64, inherited: bool) {
        // When the connection ends, the producer takes all buffers back.
        if !self.0.send(&ToProducer::GiveBack { buffer, inherited }, &[]) {
            self.0.close();
        }
    }
}

/// When the last message of a producer came, and whether it has been pinged since.
struct Heartbeat {
    heard: Instant,
    pinged: Option<Instant>,
}

impl Heartbeat {
    fn new() -> Self {
        Self { heard: Instant::now(), pinged: None }
    }

    /// Waits for a message or for the `bell`, and sends a ping after a long silence. Returns whether the producer may
    /// still be alive.
    fn wait(&mut self, socket: &Socket, bell: &WakeEvent) -> bool {
        let until = match self.pinged {
            None => self.heard + PING_AFTER,
            Some(since) => since + ANSWER,
        };
        let now = Instant::now();
        if now >= until {
            return self.pinged.replace(now).is_none() && socket.send(&ToProducer::Ping, &[]);
        }
        if wait_for(&[socket.as_fd(), bell.as_fd()], Some(until))[1] {
            bell.heard();
        }
        true
    }
}

impl Link {
    /// Sends the first message to a producer. `since` is when the consumer's loader was created.
    pub(super) fn greet(
        socket: Socket,
        (key, at, since): (SharedKey, BatchPosition, Instant),
        patience: Duration,
    ) -> HelloResult {
        let (key, process, age) = (key.to_string(), std::process::id(), age(since));
        let hello = ToProducer::Hello { protocol: PROTOCOL, key, at, process, age };
        if !socket.send(&hello, &[]) {
            return HelloResult::Gone;
        }
        let deadline = Instant::now() + patience;
        loop {
            match socket.receive() {
                Incoming::Message(ToConsumer::Welcome { process }, _) => {
                    let (socket, maps) = (Arc::new(socket), HashMap::new());
                    return HelloResult::Taken(Self { socket, maps, producer: process, asked: 0 });
                }
                Incoming::Message(ToConsumer::Elsewhere, _) => {
                    return HelloResult::Elsewhere;
                }
                Incoming::Message(..) => {}
                Incoming::Closed => return HelloResult::Gone,
                Incoming::Nothing => {
                    if !wait_for(&[socket.as_fd()], Some(deadline))[0] && Instant::now() >= deadline {
                        return HelloResult::Silent;
                    }
                }
            }
        }
    }

    /// Asks for the batch at `at`, with samples not read before `not_before`, and waits for it until `stopped` returns
    /// true. The `bell` must ring when the result of `stopped` changes.
    ///
    /// # Errors
    /// The error that keeps the producer from making the batch.
    pub(super) fn ask(
        &mut self,
        (at, not_before): (BatchPosition, Instant),
        bell: &WakeEvent,
        stopped: &dyn Fn() -> bool,
        notices: &Notices,
    ) -> Result<AskOutcome> {
        self.asked += 1;
        let ask = ToProducer::Ask { number: self.asked, at, age: age(not_before) };
        if !self.socket.send(&ask, &[]) {
            return Ok(AskOutcome::Lost);
        }
        let mut heartbeat = Heartbeat::new();
        loop {
            if stopped() {
                return Ok(AskOutcome::Stopped);
            }
            let arrival = self.socket.receive();
            if !matches!(arrival, Incoming::Nothing) {
                heartbeat = Heartbeat::new();
            }
            match arrival {
                Incoming::Message(message, files) => {
                    match self.take(message, files, notices)? {
                        Taken::Batch(number, of, attended) if number == self.asked && of == at => {
                            return Ok(AskOutcome::Leased(attended));
                        }
                        // An earlier iteration asked for this batch; dropping it returns the buffer.
                        Taken::Batch(..) | Taken::Nothing => {}
                        Taken::Elsewhere => return Ok(AskOutcome::Elsewhere),
                    }
                }
                Incoming::Closed => return Ok(AskOutcome::Lost),
                Incoming::Nothing if heartbeat.wait(&self.socket, bell) => {}
                Incoming::Nothing => return Ok(AskOutcome::Silent),
            }
        }
    }

    /// Reports that the iteration was broken off, so that other consumers do not wait for this consumer.
    pub(super) fn rest(&self) {
        // If sending fails, the producer has exited; the next iteration detects that.
        self.socket.send(&ToProducer::Rest, &[]);
    }

    fn take(
        &mut self,
        message: ToConsumer,
        files: Vec<std::os::fd::OwnedFd>,
        notices: &Notices,
    ) -> Result<Taken> {
        match message {
            ToConsumer::Lend { number, at, buffer, samples, is_new, has_parcel, consumers } => {
                let missing = || Error::Internal("a shared batch arrived without its file descriptor".into());
                let mut files = files.into_iter();
                if is_new {
                    let map = LeasedMap::new(files.next().ok_or_else(missing)?)?;
                    self.maps.insert(buffer, Arc::new(map));
                }
                let map = self.maps.get(&buffer).ok_or_else(missing)?.clone();
                let memory = LeasedMemory::new(buffer, map, Arc::new(ReturnChannel(self.socket.clone())));
                let parcel = match has_parcel {
                    true => Parcel::read(files.next().ok_or_else(missing)?, samples)?,
                    false => Parcel::default(),
                };
                Ok(Taken::Batch(number, at, LeasedBatch { memory, parcel, samples, consumers }))
            }
            ToConsumer::Elsewhere => Ok(Taken::Elsewhere),
            ToConsumer::Failed { error } => Err(error.into()),
            ToConsumer::Forget { buffer } => {
                self.maps.remove(&buffer);
                Ok(Taken::Nothing)
            }
            ToConsumer::Notice { kind, message } => {
                notices.pass_on(kind, message);
                Ok(Taken::Nothing)
            }
            ToConsumer::Welcome { .. } | ToConsumer::Pong => Ok(Taken::Nothing),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The connection stays open until the last leased batch is dropped.
        self.socket.send(&ToProducer::Leave, &[]);
    }
}

/// Returns the time since `since` in microseconds. The clocks of two processes need not agree, so ages are sent and not
/// times.
fn age(since: Instant) -> u64 {
    since.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
}

enum Taken {
    /// The number of the request, the position of the batch, and the batch.
    Batch(u64, BatchPosition, LeasedBatch),
    Elsewhere,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::super::socket::{Connected, Listener};
    use super::*;
    use base::node::RuntimeDirectory;

    /// Returns the result of a hello to a producer that sends `response`, or nothing for a tenth of a second.
    fn greeted(response: Option<ToConsumer>) -> HelloResult {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDirectory::within(place.path()).unwrap();
        let listener = Listener::bind(&directory, "x.sock").unwrap();
        let Connected::To(consumer) = Socket::connect(&directory, "x.sock").unwrap() else { panic!() };
        let producer = listener.accept().unwrap().unwrap();
        let patience = Duration::from_millis(if response.is_some() { 100_000 } else { 100 });
        assert!(response.is_none_or(|response| producer.send(&response, &[])));
        let at = BatchPosition { epoch: 0, step: 0 };
        let contents = (SharedKey::of(b"x"), at, Instant::now());
        let result = Link::greet(consumer, contents, patience);
        assert!(matches!(producer.receive(), Incoming::Message(ToProducer::Hello { .. }, _)));
        result
    }

    #[test]
    fn a_hello_has_the_result_that_the_producer_sends() {
        let welcome = Some(ToConsumer::Welcome { process: 7 });
        assert!(matches!(greeted(welcome), HelloResult::Taken(link) if link.producer == 7));
        assert!(matches!(greeted(Some(ToConsumer::Elsewhere)), HelloResult::Elsewhere));
        assert!(matches!(greeted(None), HelloResult::Silent));
    }
}
