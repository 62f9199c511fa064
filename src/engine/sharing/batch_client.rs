//! A consumer's access to its batches (`BatchClient`): it finds a producer near its step or starts one, and moves to
//! another producer if the current one is lost.

use super::backoff::BackoffPlaces;
use super::key::{SharedKey, Sharing};
use super::link::{AskOutcome, HelloResult, LeasedBatch as Leased, Link};
use super::places::{MAX_PRODUCERS, ProducerPlaces};
use super::socket::{Connected, Socket, WakeEvent};
use super::start::RequestedKeys;
use super::wire::BatchPosition;
use crate::status::SharingNumbers;
use base::error::{Error, Result};
use base::locks::lock;
use base::notices::Notices;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use super::link::LeasedBatch;

/// How long a consumer waits for a producer that another process is starting.
const START: Duration = Duration::from_secs(30);

/// Number of steps after which a consumer checks whether other producers have reached the same step.
const REJOIN_EVERY: u64 = 8;

const LOOK: Duration = Duration::from_millis(5);

/// How long a consumer without a producer waits for a producer's first answer.
const HELLO_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a consumer that has a producer waits for the first answer of another producer, to which it may move.
const REJOIN_TIMEOUT: Duration = Duration::from_millis(100);

/// How long before the start of an iteration its samples may have been read. Other consumers may have begun the same
/// iteration a little earlier.
const MAX_AGE_BEFORE_ITERATION: Duration = Duration::from_secs(1);

/// Counters of a consumer.
#[derive(Debug, Default)]
pub struct SharingStats(Mutex<SharingNumbers>);

impl SharingStats {
    /// Returns the current numbers.
    pub fn numbers(&self) -> SharingNumbers {
        *lock(&self.0)
    }
}

/// A consumer of shared batches.
pub struct BatchClient {
    sharing: Arc<Sharing>,
    notices: Notices,
    stats: Arc<SharingStats>,
    bell: Arc<WakeEvent>,
    link: Option<(SharedKey, Link)>,
    /// The numbers of the producers that have refused this consumer since it last got a batch.
    passed_over: BTreeSet<u32>,
    backoff: BackoffPlaces,
    /// Samples that were read before this time are too old for the running iteration.
    not_before: Instant,
    number: u32,
    consumers: u32,
}

impl BatchClient {
    /// Makes a consumer. Signalling `bell` wakes the consumer while it waits.
    pub fn new(
        sharing: Arc<Sharing>,
        notices: Notices,
        stats: Arc<SharingStats>,
        bell: Arc<WakeEvent>,
    ) -> Self {
        let (backoff, not_before) = (BackoffPlaces::default(), sharing.since);
        let (link, passed_over, number, consumers) = (None, BTreeSet::new(), 0, 0);
        Self { sharing, notices, stats, bell, link, passed_over, backoff, not_before, number, consumers }
    }

    /// Records that an iteration begins. The iteration gets only samples that were read at most one second before its
    /// beginning, or later.
    pub fn begin(&mut self) {
        let earlier = Instant::now().checked_sub(MAX_AGE_BEFORE_ITERATION);
        self.not_before = earlier.map_or(self.sharing.since, |earlier| earlier.max(self.sharing.since));
    }

    /// Reports to the producer that this consumer broke off its iteration, so that other consumers do not wait for it.
    pub fn rest(&self) {
        if let Some((_, link)) = &self.link {
            link.rest();
        }
    }

    /// Moves to a producer with a lower number that has reached the same step, if there is one. So consumers that fell
    /// behind and caught up share again.
    fn rejoin(&mut self, place: (u32, u32), at: BatchPosition) -> Result<()> {
        let key = self.sharing.key(place.0, place.1);
        let places = ProducerPlaces::open(key)?;
        for number in 0..self.number {
            if self.backoff.has(number, Instant::now()) {
                continue;
            }
            let Connected::To(socket) = places.connect(number)? else { continue };
            if let HelloResult::Taken(link) = self.greet(socket, number, key, at, REJOIN_TIMEOUT) {
                self.attach(number, key, link);
                break;
            }
        }
        Ok(())
    }

    fn greet(
        &mut self,
        socket: Socket,
        number: u32,
        key: SharedKey,
        at: BatchPosition,
        patience: Duration,
    ) -> HelloResult {
        let greeting = Link::greet(socket, (key, at, self.sharing.since), patience);
        if matches!(greeting, HelloResult::Silent) {
            self.backoff.note(number, Instant::now());
        } else {
            self.backoff.forget(number);
        }
        greeting
    }

    fn attach(&mut self, number: u32, key: SharedKey, link: Link) {
        lock(&self.stats.0).producers += 1;
        self.number = number;
        self.link = Some((key, link));
    }

    /// Finds a producer for the batches of `(rank, world_size)` from `at` on, or starts one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nothing can be shared; otherwise the error that a started producer reports.
    pub fn find(&mut self, place: (u32, u32), at: BatchPosition) -> Result<()> {
        let key = self.sharing.key(place.0, place.1);
        let places = ProducerPlaces::open(key)?;
        for number in 0..MAX_PRODUCERS {
            let since = Instant::now();
            if self.passed_over.contains(&number) || self.backoff.has(number, since) {
                continue;
            }
            while since.elapsed() < START {
                match places.connect(number)? {
                    Connected::To(socket) => {
                        match self.greet(socket, number, key, at, HELLO_ANSWER_TIMEOUT) {
                            HelloResult::Taken(link) => {
                                self.attach(number, key, link);
                                return Ok(());
                            }
                            HelloResult::Elsewhere | HelloResult::Silent => break,
                            HelloResult::Gone => {}
                        }
                    }
                    Connected::Crowded if since.elapsed() >= HELLO_ANSWER_TIMEOUT => {
                        self.backoff.note(number, Instant::now());
                        break;
                    }
                    Connected::Crowded => {}
                    Connected::Nobody => {
                        if let Some(claim) = places.claim(number)? {
                            let is_there = || places.is_claimed(number);
                            let dataset = self.sharing.dataset_key(place.0, place.1);
                            let keys = RequestedKeys { batches: key, dataset };
                            self.sharing.order.start(claim, place, keys, (at, self.consumers), &is_there)?;
                            continue;
                        }
                    }
                }
                std::thread::sleep(LOOK);
            }
        }
        let message =
            format!("{MAX_PRODUCERS} processes make these batches, and none of them is near {at:?}");
        Err(Error::Unavailable(message))
    }

    /// Returns the batch at `at` for `place`, which is `(rank, world_size)`; `None` after `stopped` returns true.
    ///
    /// # Errors
    /// The errors of [`BatchClient::find`]; the error that keeps the producer from making the batch.
    pub fn take(
        &mut self,
        place: (u32, u32),
        at: BatchPosition,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Leased>> {
        let key = self.sharing.key(place.0, place.1);
        if self.number > 0 && self.link.is_some() && at.step.is_multiple_of(REJOIN_EVERY) {
            self.rejoin(place, at)?;
        }
        loop {
            let Some((_, link)) = self.link.as_mut().filter(|(of, _)| *of == key) else {
                if stopped() {
                    return Ok(None);
                }
                self.find(place, at)?;
                continue;
            };
            let outcome = match link.ask((at, self.not_before), &self.bell, stopped, &self.notices) {
                Ok(outcome) => outcome,
                Err(error) => {
                    // The producer has removed this consumer. The next iteration finds a producer again.
                    self.link = None;
                    return Err(error);
                }
            };
            match outcome {
                AskOutcome::Leased(leased) => {
                    self.passed_over.clear();
                    self.consumers = leased.consumers;
                    let mut stats = lock(&self.stats.0);
                    stats.batches += 1;
                    (stats.producer, stats.consumers) =
                        (u64::from(link.producer), u64::from(leased.consumers));
                    return Ok(Some(leased));
                }
                AskOutcome::Stopped => return Ok(None),
                AskOutcome::Elsewhere => {
                    lock(&self.stats.0).left_behind += 1;
                    self.passed_over.insert(self.number);
                    self.consumers = 1;
                    self.link = None;
                }
                AskOutcome::Silent => {
                    let process = link.producer;
                    self.notices.warn_once("shared", || {
                        format!(
                            "process {process}, which made the shared batches of this loader, does not answer and may \
                             be stopped. Another process makes them now: resume process {process}, or end it to free \
                             its memory"
                        )
                    });
                    self.backoff.note(self.number, Instant::now());
                    lock(&self.stats.0).lost += 1;
                    self.link = None;
                }
                AskOutcome::Lost => {
                    lock(&self.stats.0).lost += 1;
                    self.link = None;
                }
            }
        }
    }
}
