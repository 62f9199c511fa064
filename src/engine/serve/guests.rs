//! The consumers of a producer: their connections, and what they have been lent.

use super::maker::{Made, MadeBatch};
use super::recipes::{RecipeFound, Recipes};
use super::window::{Action, ConsumerId, LONG, RecipeNumber, SharedWindow};
use crate::config::GivenSettings;
use crate::sharing::{
    BatchPosition, Incoming, IncomingMessage, Listener, PROTOCOL, Socket, ToConsumer, ToProducer,
};
use base::error::{CarriedError, Result};
use base::notices::{Notice, NoticeKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most consumers at a time, and the most connections: whoever comes as one too many hears of it.
const MOST: usize = 256;
const MOST_CONNECTIONS: usize = 2 * MOST;

/// The most messages of a consumer that are heard in a row, so that none keeps the others waiting.
const IN_A_ROW: usize = 64;

/// How long one may be connected before it says hello.
const SHY: Duration = Duration::from_secs(10);

/// How long all others wait at most for one whose recipe is looked at.
const PAUSE: Duration = Duration::from_millis(500);

/// The most notices that are kept for consumers that come later.
const NOTICES_KEPT: usize = 100;

/// All consumers, and the window that decides what becomes of them.
pub(super) struct Guests {
    window: SharedWindow<Made>,
    recipes: Recipes,
    /// The key that those who share these batches have.
    key: String,
    guests: BTreeMap<ConsumerId, Guest>,
    next: ConsumerId,
    /// The batches that somebody has, by the numbers of their buffers.
    lent: BTreeMap<u64, Lent>,
    notices: Vec<Notice>,
    has_told_of_waits: bool,
    /// When the loader was made that was made last of all that were taken.
    youngest: Instant,
}

struct Guest {
    socket: Socket,
    since: Instant,
    /// When its loader was made, and the number of the batch that it asked for last.
    made: Instant,
    asked: u64,
    /// What it waits for after its hello, if it does.
    waits: Option<WaitingGuest>,
    /// By which recipe its batches are made, once it said hello and was taken.
    recipe: Option<RecipeNumber>,
    /// The buffers that it has mapped.
    known: BTreeSet<u64>,
}

/// A consumer of which it is not known yet whether batches can be made by its recipe.
struct WaitingGuest {
    /// What the recipe says.
    recipe: String,
    /// The first batch that it will ask for.
    at: BatchPosition,
    since: Instant,
}

/// A batch with those who have it.
struct Lent {
    made: Arc<MadeBatch>,
    at: BatchPosition,
    by: BTreeSet<ConsumerId>,
    /// Whether a forked child of a consumer may read it for ever.
    is_inherited: bool,
}

impl Guests {
    pub(super) fn new(window: SharedWindow<Made>, recipes: Recipes, key: String, now: Instant) -> Self {
        Self {
            window,
            recipes,
            key,
            guests: BTreeMap::new(),
            next: 0,
            lent: BTreeMap::new(),
            notices: Vec::new(),
            has_told_of_waits: false,
            youngest: now,
        }
    }

    /// Whether anybody takes part, or soon may.
    pub(super) fn are_there(&self) -> bool {
        self.window.consumers() > 0 || self.guests.values().any(|guest| guest.waits.is_some())
    }

    /// Until when batches are not made because of those whose recipes are looked at: they would begin behind all
    /// others.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.guests.values().filter_map(|guest| guest.waits.as_ref()).map(|waits| waits.since + PAUSE).max()
    }

    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.window.due(now)
    }

    pub(super) fn act(&mut self, now: Instant) -> Vec<Action> {
        self.window.act(now)
    }

    /// The connections, in the order in which [`Guests::hear`] hears them.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.guests.values().map(|guest| guest.socket.as_fd())
    }

    /// Accepts those who connect.
    ///
    /// # Errors
    /// Those of [`Listener::accept`].
    pub(super) fn welcome(&mut self, listener: &Listener, now: Instant) -> io::Result<()> {
        // There is no hello without a connection, so that those who say nothing are looked for when others come.
        let is_shy =
            |guest: &Guest| guest.recipe.is_none() && guest.waits.is_none() && guest.since + SHY < now;
        self.guests.retain(|_, guest| !is_shy(guest));
        while let Some(socket) = listener.accept()? {
            if self.guests.len() < MOST_CONNECTIONS {
                let (waits, recipe, known) = (None, None, BTreeSet::new());
                let guest = Guest { socket, since: now, made: now, asked: 0, waits, recipe, known };
                self.guests.insert(self.next, guest);
                self.next += 1;
            }
        }
        Ok(())
    }

    /// When the loader was made that was made last of all that were taken: what was found out of files before, it does
    /// not rely on.
    pub(super) fn youngest(&self) -> Instant {
        self.youngest
    }

    /// Hears what has come from those that are `ready`.
    pub(super) fn hear(&mut self, ready: &[bool], now: Instant) {
        let ready: Vec<_> = self.guests.keys().copied().zip(ready).filter(|(_, ready)| **ready).collect();
        for (id, _) in ready {
            for _ in 0..IN_A_ROW {
                let Some(guest) = self.guests.get(&id) else { break };
                match guest.socket.receive() {
                    Incoming::Message(IncomingMessage { message, .. }) => {
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

    /// Does what a consumer says. Returns whether it may stay.
    fn heard(&mut self, id: ConsumerId, message: ToProducer, now: Instant) -> bool {
        let number_of_guests = self.guests.len();
        let Some(guest) = self.guests.get_mut(&id) else { return false };
        match (message, guest.recipe) {
            (ToProducer::Hello { protocol, key, recipe, at, age, .. }, None) => {
                let is_room = number_of_guests <= MOST && self.window.takes(at);
                let is_ours = protocol == PROTOCOL && key == self.key && is_room;
                guest.made = before(now, age);
                // Nobody of ours says hello twice.
                match is_ours && guest.waits.is_none() {
                    true => self.heard_hello(id, &recipe, at, now),
                    false => self.admit(id, None, at),
                }
            }
            (ToProducer::Ask { number, at, age }, Some(_)) => {
                guest.asked = number;
                self.window.ask(id, at, before(now, age), now);
                true
            }
            (ToProducer::GiveBack { buffer, inherited }, Some(_)) => {
                self.give_back(id, buffer, inherited);
                true
            }
            (ToProducer::Rest, Some(_)) => {
                self.window.rest(id);
                true
            }
            (ToProducer::Leave, Some(_)) => {
                self.window.leave(id);
                true
            }
            (ToProducer::Ping, recipe) if recipe.is_some() || guest.waits.is_some() => {
                guest.socket.send(&ToConsumer::Pong, &[])
            }
            // Nobody of ours says this.
            _ => false,
        }
    }

    /// Looks for the recipe of a consumer that wants batches from `at` on. Returns whether it may stay.
    fn heard_hello(
        &mut self,
        id: ConsumerId,
        recipe: &GivenSettings,
        at: BatchPosition,
        now: Instant,
    ) -> bool {
        match self.recipes.find(recipe) {
            RecipeFound::Number(number) => self.admit(id, Some(number), at),
            RecipeFound::Never => self.admit(id, None, at),
            RecipeFound::Later(recipe) => {
                let Some(guest) = self.guests.get_mut(&id) else { return false };
                guest.waits = Some(WaitingGuest { recipe, at, since: now });
                guest.socket.send(&ToConsumer::Looks, &[])
            }
        }
    }

    /// Has a consumer take part from `at` on, if there is a recipe and the window is there, or sends it elsewhere.
    /// Returns whether it takes part.
    fn admit(&mut self, id: ConsumerId, recipe: Option<RecipeNumber>, at: BatchPosition) -> bool {
        if let Some(recipe) = recipe.filter(|recipe| self.window.join(id, *recipe, at)) {
            return self.welcomed(id, recipe);
        }
        if let Some(guest) = self.guests.get(&id) {
            guest.socket.send(&ToConsumer::Elsewhere, &[]);
        }
        false
    }

    /// Admits those of whose recipes it is known by now whether batches can be made by them.
    pub(super) fn admit_those_looked_at(&mut self) {
        while let Some((seen, recipe)) = self.recipes.seen(|| self.window.in_use()) {
            let is_his = |guest: &Guest| guest.waits.as_ref().is_some_and(|waits| waits.recipe == seen);
            let waiting: Vec<_> =
                self.guests.iter().filter(|(_, guest)| is_his(guest)).map(|(id, _)| *id).collect();
            for id in waiting {
                let waited = self.guests.get_mut(&id).and_then(|guest| guest.waits.take());
                if waited.is_some_and(|waited| !self.admit(id, recipe, waited.at)) {
                    self.remove(id);
                }
            }
        }
    }

    /// Tells a consumer that it takes part, and what the others have heard. Returns whether it is there.
    fn welcomed(&mut self, id: ConsumerId, recipe: RecipeNumber) -> bool {
        let Some(guest) = self.guests.get_mut(&id) else { return false };
        guest.recipe = Some(recipe);
        self.youngest = self.youngest.max(guest.made);
        let welcome = ToConsumer::Welcome { process: std::process::id() };
        let told = self
            .notices
            .iter()
            .map(|Notice { kind, message }| ToConsumer::Notice { kind: *kind, message: message.clone() });
        std::iter::once(welcome).chain(told).all(|message| guest.socket.send(&message, &[]))
    }

    fn give_back(&mut self, id: ConsumerId, buffer: u64, inherited: bool) {
        let Some(lent) = self.lent.get_mut(&buffer) else { return };
        if !lent.by.remove(&id) {
            return;
        }
        lent.is_inherited |= inherited;
        if lent.by.is_empty() && !lent.is_inherited {
            self.lent.remove(&buffer);
        }
    }

    /// Forgets a consumer, which has nothing any more.
    fn remove(&mut self, id: ConsumerId) {
        self.window.leave(id);
        self.guests.remove(&id);
        let buffers: Vec<u64> = self.lent.keys().copied().collect();
        buffers.into_iter().for_each(|buffer| self.give_back(id, buffer, false));
    }

    /// Takes what was made, or tells those who wait that it was not.
    pub(super) fn made(&mut self, outcome: Result<(Made, Instant)>) {
        match outcome {
            Ok((made, since)) => self.window.made(made, since),
            Err(error) => {
                let failed = ToConsumer::Failed { error: CarriedError::from(&error) };
                for id in self.window.failed() {
                    if let Some(guest) = self.guests.get(&id) {
                        guest.socket.send(&failed, &[]);
                    }
                }
            }
        }
    }

    /// Lends a consumer the batch that it asked for.
    pub(super) fn lend(&mut self, id: ConsumerId, at: BatchPosition) {
        let consumers = self.window.consumers() as u32;
        let recipes = self.window.recipes().len() as u32;
        let (Some(guest), Some(made)) = (self.guests.get_mut(&id), self.window.batch(at)) else { return };
        let Some(made) = guest.recipe.and_then(|recipe| made.get(&recipe)) else { return };
        let Some(slot) = made.batch.shared() else { return };
        let is_new = guest.known.insert(slot.id);
        let files: Vec<_> = is_new
            .then_some(slot.file)
            .into_iter()
            .chain(made.parcel.as_ref().map(|parcel| parcel.as_fd()))
            .collect();
        let message = ToConsumer::Lend {
            number: guest.asked,
            at,
            buffer: slot.id,
            samples: made.batch.len() as u32,
            is_new,
            has_parcel: made.parcel.is_some(),
            consumers,
            recipes,
        };
        if guest.socket.send(&message, &files) {
            let new = || Lent { made: made.clone(), at, by: BTreeSet::new(), is_inherited: false };
            self.lent.entry(slot.id).or_insert_with(new).by.insert(id);
        } else {
            self.remove(id);
        }
    }

    /// Sends a consumer elsewhere. What it has been lent it may keep.
    pub(super) fn refuse(&mut self, id: ConsumerId) {
        if let Some(guest) = self.guests.get_mut(&id)
            && !guest.socket.send(&ToConsumer::Elsewhere, &[])
        {
            self.remove(id);
        }
    }

    /// Gives up the memory of batches that have left the window and that consumers do not give back, but for the latest
    /// `reserve` of them; and that of batches which forked children may read.
    pub(super) fn give_up_memory(&mut self, reserve: usize) {
        let is_there = |lent: &Lent| {
            let made = self.window.batch(lent.at);
            made.is_some_and(|made| made.values().any(|batch| Arc::ptr_eq(batch, &lent.made)))
        };
        let outside = self.lent.iter().filter(|(_, lent)| !is_there(lent));
        let mut outside: Vec<_> = outside.map(|(buffer, lent)| (lent.at, *buffer)).collect();
        outside.sort_unstable();
        let late = outside.len().saturating_sub(reserve);
        for (number, (_, buffer)) in outside.into_iter().enumerate() {
            let is_due = number < late
                || self.lent.get(&buffer).is_some_and(|lent| lent.is_inherited && lent.by.is_empty());
            let lent = is_due.then(|| self.lent.remove(&buffer)).flatten();
            // The window has dropped it, so nobody else has it.
            if let Some(made) = lent.and_then(|lent| Arc::into_inner(lent.made)) {
                made.batch.abandon();
            }
        }
    }

    /// Has consumers forget the buffers that are gone, so that nobody keeps their memory.
    pub(super) fn forget(&mut self, buffers: Vec<u64>) {
        for buffer in buffers {
            for guest in self.guests.values_mut() {
                if guest.known.remove(&buffer) {
                    guest.socket.send(&ToConsumer::Forget { buffer }, &[]);
                }
            }
        }
    }

    /// Tells all, once, that they have waited for others for long.
    pub(super) fn tell_of_long_waits(&mut self, now: Instant) {
        if self.has_told_of_waits || !self.window.waits_for_long(now) {
            return;
        }
        self.has_told_of_waits = true;
        let message = format!(
            "a loader that shares these batches has asked for none for {} s, and shared_policy=\"wait\" has all others \
             wait for it: have it go on, or drop it with its last batch; shared_policy=\"leave\" goes on without it",
            LONG.as_secs()
        );
        self.tell(std::iter::once(Notice { kind: NoticeKind::Warning, message }));
    }

    /// Tells all consumers, also those that come later, what they should hear.
    pub(super) fn tell(&mut self, notices: impl Iterator<Item = Notice>) {
        for notice in notices {
            let message = ToConsumer::Notice { kind: notice.kind, message: notice.message.clone() };
            for guest in self.guests.values().filter(|guest| guest.recipe.is_some()) {
                guest.socket.send(&message, &[]);
            }
            if self.notices.len() < NOTICES_KEPT {
                self.notices.push(notice);
            }
        }
    }
}

/// The time so many microseconds before `now`; what is earlier than all clocks is as early as they go.
fn before(now: Instant, microseconds: u64) -> Instant {
    let mut age = Duration::from_micros(microseconds);
    loop {
        match now.checked_sub(age) {
            Some(then) => return then,
            None => age /= 2,
        }
    }
}
