//! What a receiver knows of its feeders, and the samples that wait: shared by the thread that speaks to feeders and the
//! one that takes samples.

use super::SocketOptions;
use super::wire::{FeederId, FrameKind, MOST_NUMBERS, WelcomeBody, frame, frame_of_numbers};
use crate::error::{Error, Result};
use crate::http::Token;
use crate::notices::Notices;
use crate::stream::source::{Arrival, SourcePosition};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long feeders may take to confirm what was acknowledged.
const CONFIRMATION: Duration = Duration::from_secs(2);

/// A sample that waits to be taken.
pub(super) struct FedSample {
    pub feeder: FeederId,
    pub number: u64,
    /// The bytes that it counts for in its feeder's window.
    pub bytes: usize,
    pub arrival: Arrival,
}

/// What is known of a feeder.
struct KnownFeeder {
    /// The last sample that arrived, and the last that was taken.
    arrived: u64,
    received: u64,
    /// The bytes of samples that arrived and were not taken.
    waiting: usize,
    /// What it may forget, and did not say that it does.
    to_forget: BTreeSet<u64>,
    /// The connection that it is on, by its number, and what is sent on it.
    connection: Option<(u64, UnboundedSender<Vec<u8>>)>,
    /// Since when it has no connection.
    away: Instant,
}

impl KnownFeeder {
    fn tell(&self, frame: Vec<u8>) {
        if let Some((_, sender)) = &self.connection {
            // A connection that ended meanwhile is told again what matters when it is made anew.
            let _ = sender.send(frame);
        }
    }

    fn tell_to_forget(&self, numbers: &[u64]) {
        for numbers in numbers.chunks(MOST_NUMBERS) {
            self.tell(frame_of_numbers(FrameKind::Acknowledged, numbers));
        }
    }
}

#[derive(Default)]
struct ReceivingState {
    waiting: VecDeque<FedSample>,
    feeders: HashMap<FeederId, KnownFeeder>,
    /// How many connections there were.
    connections: u64,
    /// What was given and not acknowledged: who keeps it, by which number.
    given: HashMap<String, Vec<(FeederId, u64)>>,
    /// What was settled before a restart.
    settled: HashSet<String>,
    /// What was acknowledged, as far as it is still asked for.
    acknowledged: HashSet<String>,
    dead: bool,
}

/// The receiver's end of all connections.
pub(super) struct Receiving {
    pub name: String,
    pub token: Option<Token>,
    pub max_bytes: usize,
    window: usize,
    keeps: bool,
    forget_after: Duration,
    opened: Instant,
    notices: Notices,
    told_refused: AtomicBool,
    state: Mutex<ReceivingState>,
    changed: Condvar,
}

impl Receiving {
    pub(super) fn new(options: &SocketOptions, notices: Notices) -> Self {
        Self {
            notices,
            told_refused: AtomicBool::new(false),
            name: options.name.clone(),
            token: options.token.clone(),
            max_bytes: options.max_bytes,
            window: options.window,
            keeps: options.keeps,
            forget_after: options.forget_after,
            opened: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ReceivingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the user, once, that somebody was refused.
    pub(super) fn tell_refused(&self, why: &str) {
        if !self.told_refused.swap(true, Ordering::Relaxed) {
            self.notices.warn_at_once(format!(
                "stream {:?}: a feeder was refused, and its samples do not come: {why}; of later ones nothing is said",
                self.name
            ));
        }
    }

    /// Takes up a position.
    pub(super) fn go_on_at(&self, position: &SourcePosition) {
        self.state().settled = position.settled.iter().cloned().collect();
    }

    /// The thread that speaks to feeders is no more.
    pub(super) fn die(&self) {
        self.state().dead = true;
        self.changed.notify_all();
    }

    /// A feeder has connected: what it is told first goes to `sender`. An earlier connection of it ends.
    pub(super) fn connected(&self, id: FeederId, sender: UnboundedSender<Vec<u8>>) -> u64 {
        let mut state = self.state();
        state.connections += 1;
        let connection = state.connections;
        let feeder = state.feeders.entry(id).or_insert_with(|| KnownFeeder {
            arrived: 0,
            received: 0,
            waiting: 0,
            to_forget: BTreeSet::new(),
            connection: None,
            away: Instant::now(),
        });
        feeder.connection = Some((connection, sender));
        let welcome = WelcomeBody { keeps: self.keeps, window: self.window as u64, received: feeder.arrived };
        feeder.tell(welcome.frame());
        feeder.tell(frame(FrameKind::Received, &feeder.received.to_le_bytes()));
        feeder.tell_to_forget(&feeder.to_forget.iter().copied().collect::<Vec<_>>());
        connection
    }

    /// A connection has ended; after a goodbye the feeder is no more, nor is what it kept.
    pub(super) fn disconnected(&self, id: FeederId, connection: u64, goodbye: bool) {
        let mut state = self.state();
        let Some(feeder) = state.feeders.get_mut(&id) else { return };
        if feeder.connection.as_ref().is_some_and(|(own, _)| *own == connection) {
            feeder.connection = None;
            feeder.away = Instant::now();
            if goodbye {
                state.feeders.remove(&id);
            }
        }
        self.changed.notify_all();
    }

    /// Whether a sample of so many bytes may come on this connection.
    pub(super) fn has_room(&self, id: &FeederId, bytes: usize) -> bool {
        let state = self.state();
        let waiting = state.feeders.get(id).map_or(0, |feeder| feeder.waiting);
        waiting == 0 || waiting + bytes <= self.window
    }

    /// Adds a sample that came on this connection. Returns whether the connection is still the feeder's.
    pub(super) fn push(&self, connection: u64, sample: FedSample) -> bool {
        let mut state = self.state();
        let Some(feeder) = state.feeders.get_mut(&sample.feeder) else { return false };
        if feeder.connection.as_ref().is_none_or(|(own, _)| *own != connection) {
            return false;
        }
        if sample.number > feeder.arrived {
            feeder.arrived = sample.number;
            feeder.waiting += sample.bytes;
            state.waiting.push_back(sample);
            self.changed.notify_all();
        }
        true
    }

    /// A feeder has forgotten these samples.
    pub(super) fn confirmed(&self, id: &FeederId, numbers: &[u64]) {
        let mut state = self.state();
        if let Some(feeder) = state.feeders.get_mut(id) {
            numbers.iter().for_each(|number| {
                feeder.to_forget.remove(number);
            });
        }
        self.changed.notify_all();
    }

    /// Waits for samples, and takes up to `most`.
    ///
    /// # Errors
    /// [`Error::Internal`] once the thread that speaks to feeders has died.
    pub(super) fn receive(&self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<()> {
        let (deadline, before) = (Instant::now() + patience, into.len());
        let mut state = self.state();
        loop {
            self.take(&mut state, before + most, into);
            let left = deadline.saturating_duration_since(Instant::now());
            if into.len() > before || most == 0 || (left.is_zero() && !state.dead) {
                return Ok(());
            }
            if state.dead {
                return Err(Error::Internal(format!(
                    "the thread that receives stream {:?} has died",
                    self.name
                )));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes what waits until there are `wanted` samples, and tells those whose they were.
    fn take(&self, state: &mut ReceivingState, wanted: usize, into: &mut Vec<Arrival>) {
        let mut received = HashMap::new();
        while into.len() < wanted
            && let Some(FedSample { feeder, number, bytes, arrival }) = state.waiting.pop_front()
        {
            received.insert(feeder, number);
            if let Some(known) = state.feeders.get_mut(&feeder) {
                known.waiting -= bytes.min(known.waiting);
                known.received = number;
            }
            if self.keeps {
                // A feeder that was started again may send what another kept, and a state may have it settled.
                let owners = state.given.entry(arrival.key.clone()).or_default();
                owners.push((feeder, number));
                if owners.len() > 1 || state.settled.contains(&arrival.key) {
                    continue;
                }
            }
            into.push(arrival);
        }
        for (feeder, number) in received {
            if let Some(feeder) = state.feeders.get(&feeder) {
                feeder.tell(frame(FrameKind::Received, &number.to_le_bytes()));
            }
        }
    }

    /// Has feeders forget the settled samples. Returns whether all of them did, or are gone.
    pub(super) fn acknowledge(&self, position: &SourcePosition) -> bool {
        let deadline = Instant::now() + CONFIRMATION;
        let mut state = self.state();
        let mut numbers: HashMap<FeederId, Vec<u64>> = HashMap::new();
        let mut unknown = false;
        let mut acknowledged = HashSet::new();
        for key in &position.settled {
            match state.given.remove(key) {
                Some(owners) => {
                    for (feeder, number) in owners {
                        numbers.entry(feeder).or_default().push(number);
                    }
                    state.settled.remove(key);
                }
                // Its feeder may be about to connect, and to send it.
                None => unknown |= !state.acknowledged.contains(key),
            }
            acknowledged.insert(key.clone());
        }
        for (feeder, numbers) in numbers {
            if let Some(feeder) = state.feeders.get_mut(&feeder) {
                feeder.tell_to_forget(&numbers);
                feeder.to_forget.extend(numbers);
            }
        }
        let patient = unknown && self.opened.elapsed() < self.forget_after;
        if patient {
            // What is not known may come yet, and is passed over then.
            let ReceivingState { acknowledged: known, settled, .. } = &mut *state;
            acknowledged.retain(|key| known.contains(key) || !settled.contains(key));
        }
        state.acknowledged = acknowledged;
        loop {
            let forget_after = self.forget_after;
            state
                .feeders
                .retain(|_, feeder| feeder.connection.is_some() || feeder.away.elapsed() < forget_after);
            let mut left = state.feeders.values().filter(|feeder| !feeder.to_forget.is_empty()).peekable();
            if left.peek().is_none() {
                break;
            }
            // Those that are away confirm it when they come back.
            let now = Instant::now();
            if left.all(|feeder| feeder.connection.is_none()) || now >= deadline {
                return false;
            }
            let waited = self.changed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !patient {
            // They will not be asked for again.
            state.acknowledged.clear();
            position.settled.iter().for_each(|key| {
                state.settled.remove(key);
            });
        }
        !patient
    }
}
