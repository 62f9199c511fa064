//! The consumers of a producer (`ConsumerConnection`): their connections, and the buffers that are leased to them.

use super::maker::MadeBatch;
use super::window::{ConsumerId, LONG, SharedWindow};
use crate::sharing::{BatchPosition, Incoming, Listener, PROTOCOL, Socket, ToConsumer, ToProducer};
use base::error::{Result, SerializedError};
use base::notices::{Notice, NoticeKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A new consumer is refused if there are more than `MAX_CONSUMERS` connections. A new connection is closed if there
/// are `MAX_CONNECTIONS` already.
const MAX_CONSUMERS: usize = 256;
const MAX_CONNECTIONS: usize = 2 * MAX_CONSUMERS;

/// The maximum number of messages of one consumer that are handled in a row, so that other consumers need not wait.
const MAX_MESSAGES_IN_A_ROW: usize = 64;

/// How long a connection may stay open before its hello message arrives.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of warnings that are kept for consumers that join later.
const NOTICES_KEPT: usize = 100;

pub(super) struct ConsumerTable {
    pub(super) window: SharedWindow<Arc<MadeBatch>>,
    key: String,
    consumer_table: BTreeMap<ConsumerId, ConsumerConnection>,
    next: ConsumerId,
    leased: BTreeMap<u64, Leased>,
    notices: Vec<Notice>,
    has_told_of_waits: bool,
    /// The latest creation time among the admitted loaders. That loader must not rely on checks of files from before
    /// this time.
    pub(super) youngest: Instant,
}

struct ConsumerConnection {
    socket: Socket,
    since: Instant,
    /// When the consumer's loader was created.
    made: Instant,
    asked: u64,
    is_admitted: bool,
    known: BTreeSet<u64>,
}

struct Leased {
    made: Arc<MadeBatch>,
    at: BatchPosition,
    by: BTreeSet<ConsumerId>,
    /// Whether a forked child of a consumer may still read the buffer. The child never returns the buffer.
    is_inherited: bool,
}

impl ConsumerTable {
    pub(super) fn new(window: SharedWindow<Arc<MadeBatch>>, key: String, now: Instant) -> Self {
        Self {
            window,
            key,
            consumer_table: BTreeMap::new(),
            next: 0,
            leased: BTreeMap::new(),
            notices: Vec::new(),
            has_told_of_waits: false,
            youngest: now,
        }
    }

    /// Returns the connections, in the order that [`ConsumerTable::hear`] expects.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.consumer_table.values().map(|connection| connection.socket.as_fd())
    }

    pub(super) fn accept_connections(&mut self, listener: &Listener, now: Instant) -> io::Result<()> {
        // Close connections that did not send their hello in time. They do no harm before another consumer wants to
        // connect.
        let is_shy = |connection: &ConsumerConnection| {
            !connection.is_admitted && connection.since + HELLO_TIMEOUT < now
        };
        self.consumer_table.retain(|_, connection| !is_shy(connection));
        while let Some(socket) = listener.accept()? {
            if self.consumer_table.len() < MAX_CONNECTIONS {
                let known = BTreeSet::new();
                let connection =
                    ConsumerConnection { socket, since: now, made: now, asked: 0, is_admitted: false, known };
                self.consumer_table.insert(self.next, connection);
                self.next += 1;
            }
        }
        Ok(())
    }

    pub(super) fn hear(&mut self, ready: &[bool], now: Instant) {
        let ready: Vec<_> =
            self.consumer_table.keys().copied().zip(ready).filter(|(_, ready)| **ready).collect();
        for (id, _) in ready {
            for _ in 0..MAX_MESSAGES_IN_A_ROW {
                let Some(connection) = self.consumer_table.get(&id) else { break };
                match connection.socket.receive() {
                    Incoming::Message(message, _) => {
                        if !self.heard(id, message, now) {
                            self.remove(id);
                        }
                    }
                    Incoming::Closed => self.remove(id),
                    Incoming::Nothing => break,
                }
            }
        }
    }

    fn heard(&mut self, id: ConsumerId, message: ToProducer, now: Instant) -> bool {
        let number_of_connections = self.consumer_table.len();
        let Some(connection) = self.consumer_table.get_mut(&id) else { return false };
        match (message, connection.is_admitted) {
            (ToProducer::Hello { protocol, key, at, age, .. }, false) => {
                connection.made = before(now, age);
                let is_ours =
                    protocol == PROTOCOL && key == self.key && number_of_connections <= MAX_CONSUMERS;
                if is_ours && self.window.join(id, at) {
                    return self.send_welcome(id);
                }
                connection.socket.send(&ToConsumer::Elsewhere, &[]);
                false
            }
            (ToProducer::Ask { number, at, age }, true) => {
                connection.asked = number;
                self.window.ask(id, at, before(now, age), now);
                true
            }
            (ToProducer::GiveBack { buffer, inherited }, true) => {
                self.give_back(id, buffer, inherited);
                true
            }
            (ToProducer::Rest, true) => {
                self.window.rest(id);
                true
            }
            (ToProducer::Leave, true) => {
                self.window.leave(id);
                true
            }
            (ToProducer::Ping, true) => connection.socket.send(&ToConsumer::Pong, &[]),
            // No consumer of Foreload sends other messages in this state, so disconnect this one.
            _ => false,
        }
    }

    fn send_welcome(&mut self, id: ConsumerId) -> bool {
        let Some(connection) = self.consumer_table.get_mut(&id) else { return false };
        connection.is_admitted = true;
        self.youngest = self.youngest.max(connection.made);
        let welcome = ToConsumer::Welcome { process: std::process::id() };
        let told = self
            .notices
            .iter()
            .map(|Notice { kind, message }| ToConsumer::Notice { kind: *kind, message: message.clone() });
        std::iter::once(welcome).chain(told).all(|message| connection.socket.send(&message, &[]))
    }

    fn give_back(&mut self, id: ConsumerId, buffer: u64, inherited: bool) {
        let Some(leased) = self.leased.get_mut(&buffer) else { return };
        if !leased.by.remove(&id) {
            return;
        }
        leased.is_inherited |= inherited;
        if leased.by.is_empty() && !leased.is_inherited {
            self.leased.remove(&buffer);
        }
    }

    fn remove(&mut self, id: ConsumerId) {
        self.window.leave(id);
        self.consumer_table.remove(&id);
        let buffers: Vec<u64> = self.leased.keys().copied().collect();
        buffers.into_iter().for_each(|buffer| self.give_back(id, buffer, false));
    }

    /// Stores a batch that was made, or reports the failure to the consumers that wait.
    pub(super) fn made(&mut self, outcome: Result<(MadeBatch, Instant)>) {
        match outcome {
            Ok((made, since)) => self.window.made(Arc::new(made), since),
            Err(error) => {
                let failed = ToConsumer::Failed { error: SerializedError::from(&error) };
                for id in self.window.failed() {
                    if let Some(connection) = self.consumer_table.get(&id) {
                        connection.socket.send(&failed, &[]);
                    }
                }
            }
        }
    }

    pub(super) fn lend(&mut self, id: ConsumerId, at: BatchPosition) {
        let consumers = self.window.consumers() as u32;
        let (Some(connection), Some(made)) = (self.consumer_table.get_mut(&id), self.window.batch(at)) else {
            return;
        };
        let Some(slot) = made.batch.shared() else { return };
        let is_new = connection.known.insert(slot.id);
        let files: Vec<_> = is_new
            .then_some(slot.file)
            .into_iter()
            .chain(made.parcel.as_ref().map(|parcel| parcel.as_fd()))
            .collect();
        let message = ToConsumer::Lend {
            number: connection.asked,
            at,
            buffer: slot.id,
            samples: made.batch.len() as u32,
            is_new,
            has_parcel: made.parcel.is_some(),
            consumers,
        };
        if connection.socket.send(&message, &files) {
            let new = || Leased { made: made.clone(), at, by: BTreeSet::new(), is_inherited: false };
            self.leased.entry(slot.id).or_insert_with(new).by.insert(id);
        } else {
            self.remove(id);
        }
    }

    /// Sends a consumer to another producer. The consumer may keep its leased batches.
    pub(super) fn refuse(&mut self, id: ConsumerId) {
        if let Some(connection) = self.consumer_table.get_mut(&id)
            && !connection.socket.send(&ToConsumer::Elsewhere, &[])
        {
            self.remove(id);
        }
    }

    /// Gives up the memory of batches outside the window that consumers still hold, except for the latest `reserve`
    /// batches. Also gives up the memory of batches outside the window that forked children may read.
    pub(super) fn give_up_memory(&mut self, reserve: usize) {
        let is_there = |leased: &Leased| {
            let made = self.window.batch(leased.at);
            made.is_some_and(|made| Arc::ptr_eq(made, &leased.made))
        };
        let outside = self.leased.iter().filter(|(_, leased)| !is_there(leased));
        let mut outside: Vec<_> = outside.map(|(buffer, leased)| (leased.at, *buffer)).collect();
        outside.sort_unstable();
        let late = outside.len().saturating_sub(reserve);
        for (number, (_, buffer)) in outside.into_iter().enumerate() {
            let is_due = number < late
                || self.leased.get(&buffer).is_some_and(|leased| leased.is_inherited && leased.by.is_empty());
            let leased = is_due.then(|| self.leased.remove(&buffer)).flatten();
            // The window has dropped the batch, so this is the last reference to it.
            if let Some(made) = leased.and_then(|leased| Arc::into_inner(leased.made)) {
                made.batch.abandon();
            }
        }
    }

    /// Makes consumers unmap buffers that no longer exist, so that their memory is freed.
    pub(super) fn forget(&mut self, buffers: Vec<u64>) {
        for buffer in buffers {
            for connection in self.consumer_table.values_mut() {
                if connection.known.remove(&buffer) {
                    connection.socket.send(&ToConsumer::Forget { buffer }, &[]);
                }
            }
        }
    }

    pub(super) fn warn_of_long_waits(&mut self, now: Instant) {
        if self.has_told_of_waits || !self.window.waits_for_long(now) {
            return;
        }
        self.has_told_of_waits = true;
        let message = format!(
            "a loader that shares these batches has not asked for one for {} s, and with shared_policy=\"wait\" all \
             others wait for it: let it continue, or drop it and its last batch; shared_policy=\"leave\" continues \
             without it",
            LONG.as_secs()
        );
        self.tell(std::iter::once(Notice { kind: NoticeKind::Warning, message }));
    }

    pub(super) fn tell(&mut self, notices: impl Iterator<Item = Notice>) {
        for notice in notices {
            let message = ToConsumer::Notice { kind: notice.kind, message: notice.message.clone() };
            for connection in self.consumer_table.values().filter(|connection| connection.is_admitted) {
                connection.socket.send(&message, &[]);
            }
            if self.notices.len() < NOTICES_KEPT {
                self.notices.push(notice);
            }
        }
    }
}

/// Returns the time `microseconds` before `now`, or about the earliest time that the clock can represent.
fn before(now: Instant, microseconds: u64) -> Instant {
    let mut age = Duration::from_micros(microseconds);
    loop {
        match now.checked_sub(age) {
            Some(then) => return then,
            None => age /= 2,
        }
    }
}
