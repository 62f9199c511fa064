//! A consumer's way to its batches: it finds a producer that is where it is, or starts one, and goes on with another
//! when that one is lost.

use super::key::{SharedKey, Sharing};
use super::link::{AskOutcome, Attended as Lent, Greeting, Link};
use super::places::{MOST_PRODUCERS, ProducerPlaces};
use super::socket::{Bell, Socket};
use super::wire::BatchPosition;
use crate::error::{Error, Result};
use crate::notices::Notices;
use crate::status::SharingNumbers;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use super::link::Attended;

/// How long a producer that another process starts may take until it listens, and one that looks at a recipe until it
/// knows it.
const START: Duration = Duration::from_secs(30);

/// After so many steps it is looked whether others have come to the same place.
const REJOIN: u64 = 8;

/// How often it is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// What a consumer has had of producers so far.
#[derive(Debug, Default)]
pub(crate) struct SharingStats {
    taken: AtomicU64,
    producers: AtomicU64,
    lost: AtomicU64,
    left_behind: AtomicU64,
    latest: Mutex<[u32; 3]>,
}

impl SharingStats {
    /// These numbers.
    pub(crate) fn numbers(&self) -> SharingNumbers {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let latest = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let [producer, consumers, recipes] = latest.map(u64::from);
        SharingNumbers {
            producer,
            consumers,
            recipes,
            batches: number(&self.taken),
            producers: number(&self.producers),
            lost: number(&self.lost),
            left_behind: number(&self.left_behind),
        }
    }
}

/// What became of a hello.
#[derive(Debug, PartialEq)]
enum Greeted {
    Taken,
    /// The producer is elsewhere, makes no batches by this recipe yet, or does not answer.
    NotTaken,
    /// It has ended meanwhile.
    Gone,
}

/// A consumer of batches that are shared.
pub(crate) struct Attendant {
    sharing: Arc<Sharing>,
    notices: Notices,
    stats: Arc<SharingStats>,
    bell: Arc<Bell>,
    link: Option<(SharedKey, Link)>,
    /// The number of a place whose producer is elsewhere or silent, which is passed over next.
    passed_over: Option<u32>,
    /// The place of the producer of `link`.
    number: u32,
    /// How many consumers there were when a batch came last.
    consumers: u32,
}

impl Attendant {
    /// A consumer that is woken by its `bell`.
    pub(crate) fn new(
        sharing: Arc<Sharing>,
        notices: Notices,
        stats: Arc<SharingStats>,
        bell: Arc<Bell>,
    ) -> Self {
        Self { sharing, notices, stats, bell, link: None, passed_over: None, number: 0, consumers: 0 }
    }

    /// Goes over to a producer of a lower number that has come to the same steps, if there is one. So those that fell
    /// behind and caught up share again.
    fn rejoin(&mut self, place: (u32, u32), at: BatchPosition) -> Result<()> {
        let key = self.sharing.key(place.0, place.1);
        let places = ProducerPlaces::open(key)?;
        for number in 0..self.number {
            let Some(socket) = places.connect(number)? else { continue };
            // Where the recipe must be looked at first, it is known when this is tried again.
            if self.greet(socket, number, key, at, Duration::ZERO)? == Greeted::Taken {
                break;
            }
        }
        Ok(())
    }

    /// Says hello to the producer of a place, and is its consumer from now on if that takes it.
    fn greet(
        &mut self,
        socket: Socket,
        number: u32,
        key: SharedKey,
        at: BatchPosition,
        patience: Duration,
    ) -> Result<Greeted> {
        match Link::greet(socket, (key, &self.sharing.recipe), at, patience, &self.notices)? {
            Greeting::Taken(link) => {
                self.stats.producers.fetch_add(1, Ordering::Relaxed);
                self.number = number;
                self.link = Some((key, link));
                Ok(Greeted::Taken)
            }
            Greeting::Elsewhere | Greeting::Silent => Ok(Greeted::NotTaken),
            Greeting::Gone => Ok(Greeted::Gone),
        }
    }

    /// Finds a producer for the batches of `(rank, world_size)` from `at` on, or starts one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where nothing can be shared; what keeps a producer from its work.
    pub(crate) fn find(&mut self, place: (u32, u32), at: BatchPosition) -> Result<()> {
        let key = self.sharing.key(place.0, place.1);
        let places = ProducerPlaces::open(key)?;
        let passed_over = self.passed_over.take();
        for number in (0..MOST_PRODUCERS).filter(|number| Some(*number) != passed_over) {
            let since = Instant::now();
            while since.elapsed() < START {
                if let Some(socket) = places.connect(number)? {
                    match self.greet(socket, number, key, at, START)? {
                        Greeted::Taken => return Ok(()),
                        Greeted::NotTaken => break,
                        Greeted::Gone => {}
                    }
                } else if let Some(claim) = places.claim(number)? {
                    self.sharing.order.start(claim, place, key, at, self.consumers)?;
                    continue;
                }
                std::thread::sleep(LOOK);
            }
        }
        let message =
            format!("{MOST_PRODUCERS} processes share these batches, and none of them is at {at:?}");
        Err(Error::Unavailable(message))
    }

    /// The batch at `at` of `(rank, world_size)`; `None` when it was `stopped`.
    ///
    /// # Errors
    /// Those of [`Attendant::find`]; what keeps the producer from making the batch.
    pub(crate) fn take(
        &mut self,
        place: (u32, u32),
        at: BatchPosition,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Lent>> {
        let key = self.sharing.key(place.0, place.1);
        if self.number > 0 && self.link.is_some() && at.step.is_multiple_of(REJOIN) {
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
            let outcome = match link.ask(at, &self.bell, stopped, &self.notices) {
                Ok(outcome) => outcome,
                Err(error) => {
                    // The producer has forgotten this consumer, and another iteration finds one anew.
                    self.link = None;
                    return Err(error);
                }
            };
            match outcome {
                AskOutcome::Lent(lent) => {
                    self.stats.taken.fetch_add(1, Ordering::Relaxed);
                    self.consumers = lent.consumers;
                    let latest = [link.producer, lent.consumers, lent.recipes];
                    *self.stats.latest.lock().unwrap_or_else(PoisonError::into_inner) = latest;
                    return Ok(Some(lent));
                }
                AskOutcome::Stopped => return Ok(None),
                AskOutcome::Elsewhere => {
                    self.stats.left_behind.fetch_add(1, Ordering::Relaxed);
                    self.passed_over = Some(self.number);
                    self.consumers = 1;
                    self.link = None;
                }
                AskOutcome::Lost => {
                    self.stats.lost.fetch_add(1, Ordering::Relaxed);
                    self.link = None;
                }
            }
        }
    }
}
