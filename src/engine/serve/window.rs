//! Which batches are kept for consumers that share them, and what is done when some are behind. All of it is pure.
//!
//! The window is the latest batches that were made. A consumer takes one after another; who asks for one that has left
//! the window is told to go elsewhere. Before a batch leaves it for others that some have not taken yet, the fastest
//! waits for these a little: consumers of the same speed stay together, and one that is slower or stopped is left.
//!
//! Consumers may have recipes of their own. What is in the window was made by those of the consumers that were there,
//! and may be of bytes that were read too early for one that has come later.

use crate::config::SharingPolicy;
use crate::sharing::BatchPosition;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The share of time that the fastest waits for others at most, and the most that it waits at once.
const GRACE_SHARE: f64 = 0.02;
const MOST_GRACE: Duration = Duration::from_millis(250);

/// How long a consumer that asks for another place than the next waits for the others to ask for it, too, as they do
/// where all leave an epoch early.
const MOVE: Duration = Duration::from_millis(250);

/// Where everybody waits for the slowest: after so long, somebody should look what is the matter with it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The number of a consumer.
pub(crate) type ConsumerId = u64;

/// The number of a recipe, by which batches are made of the same samples.
pub(crate) type RecipeNumber = usize;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// This consumer gets the batch that it asked for.
    Lend(ConsumerId, BatchPosition),
    /// This consumer goes elsewhere.
    Refuse(ConsumerId),
    /// The next batches are to be made, by each of these recipes, and given to [`SharedWindow::made`].
    Make(BatchPosition, BTreeSet<RecipeNumber>),
}

/// The window of a producer. `B` is what was made of the samples of a step: a batch by each recipe that was wanted.
pub(crate) struct SharedWindow<B> {
    size: usize,
    policy: SharingPolicy,
    begun: Instant,
    /// The number of steps of an epoch.
    steps: u64,
    batches: VecDeque<KeptStep<B>>,
    /// The batch that is made next.
    end: BatchPosition,
    /// By which recipes it is being made, if it is.
    making: Option<BTreeSet<RecipeNumber>>,
    /// Whether the first batch waits for the consumers that begin together, of which there are so many.
    gathering: Option<(u32, Instant)>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    grace: Grace,
}

struct KeptStep<B> {
    at: BatchPosition,
    recipes: BTreeSet<RecipeNumber>,
    batch: B,
    /// Nothing of it was read before.
    since: Instant,
}

impl<B> KeptStep<B> {
    /// Whether there is a batch in it for a consumer.
    fn suits(&self, consumer: &Consumer) -> bool {
        self.has_recipe_of(consumer) && self.since >= consumer.not_before
    }

    fn has_recipe_of(&self, consumer: &Consumer) -> bool {
        self.recipes.contains(&consumer.recipe)
    }
}

#[derive(Clone, Copy)]
struct Consumer {
    recipe: RecipeNumber,
    /// The batch that it asks for next.
    next: BatchPosition,
    /// What was read before is too old for it.
    not_before: Instant,
    /// Since when it waits for the batch.
    asks: Option<Instant>,
    /// Whether it fell behind, so that nobody waits for it.
    is_left: bool,
    /// Whether it has broken its iteration off, so that nobody waits for it until it asks again.
    rests: bool,
}

impl Consumer {
    fn is_waited_for(&self) -> bool {
        !self.is_left && !self.rests
    }
}

/// How long the fastest may still wait for others.
struct Grace {
    since: Instant,
    spent: Duration,
    blocked: Option<Instant>,
}

impl Grace {
    fn left(&self, now: Instant) -> Duration {
        let earned = MOST_GRACE + (now - self.since).mul_f64(GRACE_SHARE);
        earned.saturating_sub(self.spent).min(MOST_GRACE)
    }
}

impl<B> SharedWindow<B> {
    /// A window of `size` batches for epochs of `steps`, which begins at `at` when `consumers` are there, or at
    /// `patience`.
    pub(crate) fn new(
        size: usize,
        policy: SharingPolicy,
        steps: u64,
        at: BatchPosition,
        (consumers, patience): (u32, Instant),
        now: Instant,
    ) -> Self {
        Self {
            size: size.max(1),
            policy,
            begun: now,
            steps,
            batches: VecDeque::new(),
            end: at,
            making: None,
            gathering: Some((consumers, patience)),
            consumers: BTreeMap::new(),
            grace: Grace { since: now, spent: Duration::ZERO, blocked: None },
        }
    }

    /// The number of consumers.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    /// The batch at a place of the window.
    pub(crate) fn batch(&self, at: BatchPosition) -> Option<&B> {
        self.kept(at).map(|kept| &kept.batch)
    }

    fn kept(&self, at: BatchPosition) -> Option<&KeptStep<B>> {
        self.batches.iter().find(|kept| kept.at == at)
    }

    /// Whether nobody keeps the window where it is.
    fn is_free(&self) -> bool {
        self.making.is_none() && self.consumers.values().all(|consumer| consumer.is_left)
    }

    /// Whether a batch comes before the first one, which nobody has had yet.
    fn begins_with(&self, at: BatchPosition) -> bool {
        self.gathering.is_some() && self.batches.is_empty() && self.ahead(at, self.end).is_some()
    }

    /// Whether all consumers stay where they are, and nobody would be more than a window ahead of `at`. Then what was
    /// there is made again, rather than by another producer.
    fn goes_back_to(&self, at: BatchPosition) -> bool {
        let mut there = self.consumers.values().filter(|consumer| consumer.is_waited_for()).peekable();
        let stays = |consumer: &Consumer| {
            let ahead = self.ahead(at, consumer.next);
            consumer.asks.is_none() && ahead.is_some_and(|ahead| ahead <= self.size as u64)
        };
        self.making.is_none() && there.peek().is_some() && there.all(stays)
    }

    /// Whether a consumer that asks for `at` first would be taken.
    pub(crate) fn takes(&self, at: BatchPosition) -> bool {
        self.is_free() || self.begins_with(at) || self.is_near(at) || self.goes_back_to(at)
    }

    /// Takes a consumer with this recipe that asks for `at` first. Returns whether it is taken.
    pub(crate) fn join(&mut self, id: ConsumerId, recipe: RecipeNumber, at: BatchPosition) -> bool {
        if !self.is_near(at) && (self.is_free() || self.goes_back_to(at)) {
            // Nobody else is here, or nobody minds: the producer goes where it is wanted.
            self.go_to(at);
        } else if self.begins_with(at) {
            // Those that begin together begin with the first batch that any of them needs.
            self.end = at;
        }
        let is_taken = self.is_near(at);
        if is_taken {
            let not_before = self.begun;
            let (asks, is_left, rests) = (None, false, false);
            self.consumers.insert(id, Consumer { recipe, next: at, not_before, asks, is_left, rests });
        }
        is_taken
    }

    /// Forgets a consumer that is gone.
    pub(crate) fn leave(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
    }

    /// Notes that a consumer asks for a batch, of what was not read before `not_before`.
    pub(crate) fn ask(&mut self, id: ConsumerId, at: BatchPosition, not_before: Instant, now: Instant) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            (consumer.next, consumer.not_before) = (at, not_before);
            (consumer.asks, consumer.rests) = (Some(now), false);
        }
    }

    /// Notes that a consumer has broken its iteration off.
    pub(crate) fn rest(&mut self, id: ConsumerId) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            (consumer.asks, consumer.rests) = (None, true);
        }
    }

    /// Takes the batch that was to be made, of which nothing was read before `since`.
    pub(crate) fn made(&mut self, batch: B, since: Instant) {
        let recipes = self.making.take().unwrap_or_default();
        while self.batches.len() >= self.size {
            self.batches.pop_front();
        }
        self.batches.push_back(KeptStep { at: self.end, recipes, batch, since });
        self.end = self.after(self.end);
    }

    /// Notes that the batch could not be made. Returns those that asked for it, or for a later one.
    pub(crate) fn failed(&mut self) -> Vec<ConsumerId> {
        self.making = None;
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, _)| *id).collect();
        self.consumers.retain(|_, consumer| consumer.asks.is_none());
        asking
    }

    /// What is to be done now.
    pub(crate) fn act(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.gathers_until(now).is_some() {
            return actions;
        }
        if self.gathering.is_some() && !self.consumers.is_empty() {
            self.gathering = None;
        }
        // First, so that nobody is lent what is not there any more.
        self.make_again(&mut actions);
        self.answer(&mut actions);
        if let Some(at) = self.to_move_to() {
            self.go_to(at);
        }
        for id in self.strays(now) {
            self.refuse(id, &mut actions);
        }
        if !self.wants_more() {
            // Who was held up may be gone.
            self.unblocked(now);
        } else if self.making.is_none() && self.has_room(now) {
            let recipes = self.recipes();
            self.making = Some(recipes.clone());
            actions.push(Action::Make(self.end, recipes));
        }
        actions
    }

    /// When [`SharedWindow::act`] is due at the latest, although nothing happens.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.gathers_until(now) {
            // Until then nothing else is looked at.
            return Some(until).filter(|_| !self.consumers.is_empty());
        }
        let grace = self.grace.blocked.map(|since| match self.policy {
            SharingPolicy::Leave => since + self.grace.left(since),
            SharingPolicy::Wait => since + LONG,
        });
        let grace = grace.filter(|due| self.policy == SharingPolicy::Leave || *due > now);
        let stray = self.consumers.values().filter(|consumer| !self.is_near(consumer.next));
        let moved = stray.filter_map(|consumer| consumer.asks).min().map(|since| since + MOVE);
        let due = [grace, moved].into_iter().flatten().min();
        due.map(|due| due.max(now))
    }

    /// Until when the first batch waits for the consumers that begin together, if it does.
    fn gathers_until(&self, now: Instant) -> Option<Instant> {
        let (count, until) = self.gathering?;
        (self.consumers.len() < count as usize && now < until).then_some(until)
    }

    /// Whether some have waited for others for so long that somebody should look.
    pub(crate) fn waits_for_long(&self, now: Instant) -> bool {
        self.grace.blocked.is_some_and(|since| now >= since + LONG)
    }

    /// Answers those whose batch is there.
    fn answer(&mut self, actions: &mut Vec<Action>) {
        let begin = self.batches.front().map_or(self.end, |kept| kept.at);
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, consumer)| (*id, *consumer)).collect();
        for (id, consumer) in asking {
            let at = consumer.next;
            if self.kept(at).is_some_and(|kept| kept.suits(&consumer)) {
                let next = self.after(at);
                // Who takes a batch of the window has caught up.
                self.consumers.insert(id, Consumer { next, asks: None, is_left: false, ..consumer });
                actions.push(Action::Lend(id, at));
            } else if consumer.is_left || at < begin && self.consumers.len() > 1 {
                self.refuse(id, actions);
            }
        }
    }

    fn refuse(&mut self, id: ConsumerId, actions: &mut Vec<Action>) {
        self.consumers.remove(&id);
        actions.push(Action::Refuse(id));
    }

    /// The recipes of those for whom batches are made.
    pub(crate) fn recipes(&self) -> BTreeSet<RecipeNumber> {
        self.consumers.values().filter(|consumer| !consumer.is_left).map(|consumer| consumer.recipe).collect()
    }

    /// The recipes of all consumers, and those by which batches are being made.
    pub(crate) fn in_use(&self) -> BTreeSet<RecipeNumber> {
        let making = self.making.iter().flatten().copied();
        self.consumers.values().map(|consumer| consumer.recipe).chain(making).collect()
    }

    /// Has batches made again for those who ask for some that do not suit them, because they came later. Where somebody
    /// would be too far ahead then, they go elsewhere.
    fn make_again(&mut self, actions: &mut Vec<Action>) {
        let lacks = |consumer: &Consumer| {
            let kept = self.kept(consumer.next).filter(|_| consumer.asks.is_some() && !consumer.is_left);
            kept.is_some_and(|kept| !kept.suits(consumer))
        };
        let lacking = self.consumers.iter().filter(|(_, consumer)| lacks(consumer)).map(|(id, _)| *id);
        let lacking: Vec<ConsumerId> = lacking.collect();
        let there = || {
            self.consumers.values().filter(|consumer| consumer.is_waited_for()).map(|consumer| consumer.next)
        };
        let Some(first) = there().min().filter(|_| !lacking.is_empty() && self.making.is_none()) else {
            return;
        };
        // One that has another recipe could have come earlier; what is only too old may be so for the slowest of all.
        let lacks_recipe = |id| {
            let consumer = &self.consumers[id];
            self.kept(consumer.next).is_some_and(|kept| !kept.has_recipe_of(consumer))
        };
        let room = self.size as u64 + u64::from(!lacking.iter().any(lacks_recipe));
        if there().all(|next| self.ahead(first, next).is_some_and(|ahead| ahead < room)) {
            self.go_to(first);
        } else {
            lacking.into_iter().for_each(|id| self.refuse(id, actions));
        }
    }

    /// Where all consumers want to go, if that is not where the window is.
    fn to_move_to(&self) -> Option<BatchPosition> {
        if self.making.is_some() {
            return None;
        }
        let mut there = self.consumers.values().filter(|consumer| consumer.is_waited_for());
        let first = there.clone().map(|consumer| consumer.next).min()?;
        let all = there.all(|consumer| {
            consumer.asks.is_some() && !self.is_near(consumer.next) && consumer.next == first
        });
        all.then_some(first)
    }

    /// The consumers that have asked for long for what this producer does not come to.
    fn strays(&self, now: Instant) -> Vec<ConsumerId> {
        let is_stray = |consumer: &Consumer| {
            !self.is_near(consumer.next) && consumer.asks.is_some_and(|since| now >= since + MOVE)
        };
        self.consumers.iter().filter(|(_, consumer)| is_stray(consumer)).map(|(id, _)| *id).collect()
    }

    /// Whether a consumer will ask for the batch that is made next, or for a later one. So one is there before it is
    /// asked for, but for the first of an epoch: the one before may have been the last.
    fn wants_more(&self) -> bool {
        let wanted = |consumer: &Consumer| {
            let asks = consumer.asks.is_some() || self.end.step > 0;
            asks && self.is_near(consumer.next) && self.ahead(self.end, consumer.next).is_some()
        };
        self.gathering.is_none()
            && self.consumers.values().any(|consumer| !consumer.is_left && wanted(consumer))
    }

    /// Whether there is room for one more batch: the window is not full, or all have taken its first one. Those that
    /// have not are left when the others have waited long enough.
    fn has_room(&mut self, now: Instant) -> bool {
        let first = self.batches.front().map(|kept| kept.at);
        let Some(first) = first.filter(|_| self.batches.len() >= self.size) else {
            return self.unblocked(now);
        };
        let is_behind =
            |consumer: &Consumer| consumer.is_waited_for() && self.ahead(consumer.next, first).is_some();
        let behind = self.consumers.iter().filter(|(_, consumer)| is_behind(consumer));
        let behind: Vec<ConsumerId> = behind.map(|(id, _)| *id).collect();
        if behind.is_empty() {
            return self.unblocked(now);
        }
        // While nobody waits for the next batch, nobody is held up.
        let waits = |consumer: &Consumer| consumer.asks.is_some() && consumer.next >= self.end;
        if !self.consumers.values().any(waits) {
            self.unblocked(now);
            return false;
        }
        let since = *self.grace.blocked.get_or_insert(now);
        if self.policy == SharingPolicy::Wait || now < since + self.grace.left(since) {
            return false;
        }
        for id in behind {
            if let Some(consumer) = self.consumers.get_mut(&id) {
                consumer.is_left = true;
            }
        }
        self.unblocked(now)
    }

    /// Notes that nobody is held up any more. Returns true.
    fn unblocked(&mut self, now: Instant) -> bool {
        if let Some(since) = self.grace.blocked.take() {
            self.grace.spent += now - since;
        }
        true
    }

    /// Whether a batch is in the window, or comes soon. Before the first one is made, that is whatever a consumer may
    /// ask for that was a whole window ahead of another when a producer was lost.
    fn is_near(&self, at: BatchPosition) -> bool {
        // What leaves the window for the batch that is being made is nobody's any more.
        let leaving = usize::from(self.making.is_some() && self.batches.len() >= self.size);
        let begin = self.batches.get(leaving).map_or(self.end, |kept| kept.at);
        let room = ((self.batches.len() - leaving).max(1) + self.size) as u64;
        self.ahead(begin, at).is_some_and(|distance| distance < room)
    }

    /// How many steps `at` is ahead of `from`; `None` where it is behind. Steps of the next epoch follow those of one.
    fn ahead(&self, from: BatchPosition, at: BatchPosition) -> Option<u64> {
        match at.epoch.checked_sub(from.epoch)? {
            0 => at.step.checked_sub(from.step),
            epochs => {
                let between = (epochs - 1).saturating_mul(self.steps);
                let rest = self.steps.saturating_sub(from.step);
                Some(between.saturating_add(rest).saturating_add(at.step))
            }
        }
    }

    fn after(&self, at: BatchPosition) -> BatchPosition {
        let step = at.step.saturating_add(1);
        if step < self.steps {
            BatchPosition { step, ..at }
        } else {
            BatchPosition { epoch: at.epoch.saturating_add(1), step: 0 }
        }
    }

    fn go_to(&mut self, at: BatchPosition) {
        self.batches.clear();
        self.end = at;
        self.grace.blocked = None;
    }
}

#[cfg(test)]
mod tests;
