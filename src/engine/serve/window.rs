//! The window of a producer: which batches are kept for the consumers that share them, and what happens to consumers
//! that fall behind. This code is pure: it does no I/O, and the caller passes the time.
//!
//! The window holds the latest batches that were made. A consumer that asks for a batch that has left the window is
//! sent to another producer. Before the window drops a batch that some consumers have not taken yet, the fastest
//! consumer waits for them a little. So consumers of the same speed stay together, and a slower or stopped consumer is
//! detached.
//!
//! The samples of a batch in the window may have been read too early for a consumer that joins later. Then the batch is
//! made again, or the consumer is sent to another producer.

use crate::config::SharingPolicy;
use crate::sharing::BatchPosition;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The maximum share of its total time that the fastest consumer spends waiting for slower ones.
const GRACE_SHARE: f64 = 0.02;
/// The maximum duration of a single wait of the fastest consumer for slower ones.
const MAX_GRACE: Duration = Duration::from_millis(250);

/// How long a consumer that asks for a step far from the window waits until the other consumers ask for the same step.
/// All of them do so if they leave an epoch early.
const JUMP_TIMEOUT: Duration = Duration::from_millis(250);

/// How long consumers wait for the slowest one, with `shared_policy="wait"`, before users are warned.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) type ConsumerId = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leases this consumer the batch that it asked for.
    Lend(ConsumerId, BatchPosition),
    /// Sends this consumer to another producer.
    Refuse(ConsumerId),
    /// Makes the batch of this step, for [`SharedWindow::made`].
    Make(BatchPosition),
}

pub(crate) struct SharedWindow<B> {
    size: usize,
    policy: SharingPolicy,
    begun: Instant,
    steps: u64,
    batches: VecDeque<KeptStep<B>>,
    /// The position of the next batch to be made.
    end: BatchPosition,
    is_making: bool,
    /// Set while the first batch is held back until all consumers that begin together have joined: the number of these
    /// consumers, and the deadline.
    gathering: Option<(u32, Instant)>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    grace: Grace,
}

struct KeptStep<B> {
    at: BatchPosition,
    batch: B,
    /// None of the batch's samples was read before this time.
    since: Instant,
}

impl<B> KeptStep<B> {
    fn suits(&self, consumer: &Consumer) -> bool {
        self.since >= consumer.not_before
    }
}

#[derive(Clone, Copy)]
struct Consumer {
    next: BatchPosition,
    /// Samples that were read before this time are too old for the consumer.
    not_before: Instant,
    /// Since when the consumer has waited for a batch; `None` if it does not wait.
    asks: Option<Instant>,
    /// Whether the consumer is detached: it fell behind, so other consumers do not wait for it.
    is_left: bool,
    /// Whether the consumer has broken off its iteration. Other consumers do not wait for it until it asks again.
    rests: bool,
}

impl Consumer {
    fn is_waited_for(&self) -> bool {
        !self.is_left && !self.rests
    }
}

/// The time that the fastest consumer has spent waiting for slower ones since the window began, and when the current
/// wait began. [`Grace::left`] is the time that it may still wait.
struct Grace {
    since: Instant,
    spent: Duration,
    blocked: Option<Instant>,
}

impl Grace {
    fn left(&self, now: Instant) -> Duration {
        let earned = MAX_GRACE + (now - self.since).mul_f64(GRACE_SHARE);
        earned.saturating_sub(self.spent).min(MAX_GRACE)
    }
}

impl<B> SharedWindow<B> {
    /// Makes a window of `size` batches for epochs of `steps` steps. The first batch is at `at`. It is made when
    /// `consumers` consumers have joined, or at the deadline `patience`.
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
            is_making: false,
            gathering: Some((consumers, patience)),
            consumers: BTreeMap::new(),
            grace: Grace { since: now, spent: Duration::ZERO, blocked: None },
        }
    }

    pub(crate) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    pub(crate) fn batch(&self, at: BatchPosition) -> Option<&B> {
        self.kept(at).map(|kept| &kept.batch)
    }

    fn kept(&self, at: BatchPosition) -> Option<&KeptStep<B>> {
        self.batches.iter().find(|kept| kept.at == at)
    }

    /// Returns whether the window may move to any position: no batch is being made, and all consumers are detached.
    fn is_free(&self) -> bool {
        !self.is_making && self.consumers.values().all(|consumer| consumer.is_left)
    }

    /// Returns whether the window can still begin at `at`: no batch was made yet, and `at` is not after the planned
    /// first batch.
    fn begins_with(&self, at: BatchPosition) -> bool {
        self.gathering.is_some() && self.batches.is_empty() && self.ahead(at, self.end).is_some()
    }

    /// Returns whether the window can go back to `at`: no consumer waits for a batch, and each consumer would be at
    /// most one window ahead of `at`. Then this producer makes the batches again, and no other producer is needed.
    fn can_rewind_to(&self, at: BatchPosition) -> bool {
        let mut there = self.consumers.values().filter(|consumer| consumer.is_waited_for()).peekable();
        let stays = |consumer: &Consumer| {
            let ahead = self.ahead(at, consumer.next);
            consumer.asks.is_none() && ahead.is_some_and(|ahead| ahead <= self.size as u64)
        };
        !self.is_making && there.peek().is_some() && there.all(stays)
    }

    /// Adds a consumer that starts at `at`. Returns whether it could join.
    pub(crate) fn join(&mut self, id: ConsumerId, at: BatchPosition) -> bool {
        if !self.is_near(at) && (self.is_free() || self.can_rewind_to(at)) {
            self.go_to(at);
        } else if self.begins_with(at) {
            // Consumers that begin together start with the earliest batch that any of them needs.
            self.end = at;
        }
        let is_taken = self.is_near(at);
        if is_taken {
            let not_before = self.begun;
            let (asks, is_left, rests) = (None, false, false);
            self.consumers.insert(id, Consumer { next: at, not_before, asks, is_left, rests });
        }
        is_taken
    }

    pub(crate) fn leave(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
    }

    /// Records that a consumer asks for the batch at `at`. The batch's samples must not have been read before
    /// `not_before`.
    pub(crate) fn ask(&mut self, id: ConsumerId, at: BatchPosition, not_before: Instant, now: Instant) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            (consumer.next, consumer.not_before) = (at, not_before);
            (consumer.asks, consumer.rests) = (Some(now), false);
        }
    }

    pub(crate) fn rest(&mut self, id: ConsumerId) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            (consumer.asks, consumer.rests) = (None, true);
        }
    }

    /// Adds the requested batch. None of its samples was read before `since`.
    pub(crate) fn made(&mut self, batch: B, since: Instant) {
        self.is_making = false;
        while self.batches.len() >= self.size {
            self.batches.pop_front();
        }
        self.batches.push_back(KeptStep { at: self.end, batch, since });
        self.end = self.after(self.end);
    }

    /// Records that the requested batch could not be made. Removes and returns all consumers that wait for a batch.
    pub(crate) fn failed(&mut self) -> Vec<ConsumerId> {
        self.is_making = false;
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, _)| *id).collect();
        self.consumers.retain(|_, consumer| consumer.asks.is_none());
        asking
    }

    pub(crate) fn act(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.gathers_until(now).is_some() {
            return actions;
        }
        if self.gathering.is_some() && !self.consumers.is_empty() {
            self.gathering = None;
        }
        // `make_again` comes first, so that no consumer is leased a batch that `make_again` removes.
        self.make_again(&mut actions);
        self.answer(&mut actions);
        if let Some(at) = self.jump_target() {
            self.go_to(at);
        }
        for id in self.timed_out_jumps(now) {
            self.refuse(id, &mut actions);
        }
        if !self.wants_more() {
            // The consumer that waited for slower ones may have left.
            self.unblocked(now);
        } else if !self.is_making && self.has_room(now) {
            self.is_making = true;
            actions.push(Action::Make(self.end));
        }
        actions
    }

    /// Returns the latest time at which [`SharedWindow::act`] must be called if nothing else happens.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.gathers_until(now) {
            return Some(until).filter(|_| !self.consumers.is_empty());
        }
        let grace = self.grace.blocked.map(|since| match self.policy {
            SharingPolicy::Leave => since + self.grace.left(since),
            SharingPolicy::Wait => since + LONG,
        });
        let grace = grace.filter(|due| self.policy == SharingPolicy::Leave || *due > now);
        let stray = self.consumers.values().filter(|consumer| !self.is_near(consumer.next));
        let moved = stray.filter_map(|consumer| consumer.asks).min().map(|since| since + JUMP_TIMEOUT);
        let due = [grace, moved].into_iter().flatten().min();
        due.map(|due| due.max(now))
    }

    /// Returns the time until which the first batch is held back for the consumers that begin together; `None` if it is
    /// not held back.
    fn gathers_until(&self, now: Instant) -> Option<Instant> {
        let (count, until) = self.gathering?;
        (self.consumers.len() < count as usize && now < until).then_some(until)
    }

    pub(crate) fn waits_for_long(&self, now: Instant) -> bool {
        self.grace.blocked.is_some_and(|since| now >= since + LONG)
    }

    /// Answers the consumers that wait for a batch: leases them their batches if these are ready, or sends consumers
    /// that fell behind to another producer.
    fn answer(&mut self, actions: &mut Vec<Action>) {
        let begin = self.batches.front().map_or(self.end, |kept| kept.at);
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, consumer)| (*id, *consumer)).collect();
        for (id, consumer) in asking {
            let at = consumer.next;
            if self.kept(at).is_some_and(|kept| kept.suits(&consumer)) {
                let next = self.after(at);
                // A consumer that takes a batch of the window has caught up.
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

    /// If a consumer asks for a kept batch whose samples were read too early for this consumer, clears the window, so
    /// that all batches that consumers still need are made again. If another consumer is more than a window ahead of
    /// the first of these batches, sends the asking consumer to another producer instead.
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
        let Some(first) = there().min().filter(|_| !lacking.is_empty() && !self.is_making) else {
            return;
        };
        if there().all(|next| self.ahead(first, next).is_some_and(|ahead| ahead <= self.size as u64)) {
            self.go_to(first);
        } else {
            lacking.into_iter().for_each(|id| self.refuse(id, actions));
        }
    }

    /// Returns the position that all consumers ask for, if it is outside the window.
    fn jump_target(&self) -> Option<BatchPosition> {
        if self.is_making {
            return None;
        }
        let mut there = self.consumers.values().filter(|consumer| consumer.is_waited_for());
        let first = there.clone().map(|consumer| consumer.next).min()?;
        let all = there.all(|consumer| {
            consumer.asks.is_some() && !self.is_near(consumer.next) && consumer.next == first
        });
        all.then_some(first)
    }

    /// Returns the consumers that have waited for [`JUMP_TIMEOUT`] for a batch that is far from the window.
    fn timed_out_jumps(&self, now: Instant) -> Vec<ConsumerId> {
        let is_stray = |consumer: &Consumer| {
            !self.is_near(consumer.next) && consumer.asks.is_some_and(|since| now >= since + JUMP_TIMEOUT)
        };
        self.consumers.iter().filter(|(_, consumer)| is_stray(consumer)).map(|(id, _)| *id).collect()
    }

    /// Returns whether to make the next batch. The next batch is needed if a consumer asks for it or for a later batch,
    /// or will ask for it. The first batch of an epoch is made only if a consumer asks, because the batch before it may
    /// have been the last one needed.
    fn wants_more(&self) -> bool {
        let wanted = |consumer: &Consumer| {
            let asks = consumer.asks.is_some() || self.end.step > 0;
            asks && self.is_near(consumer.next) && self.ahead(self.end, consumer.next).is_some()
        };
        self.gathering.is_none()
            && self.consumers.values().any(|consumer| !consumer.is_left && wanted(consumer))
    }

    /// Returns whether there is space for one more batch: the window is not full, or all consumers have taken its first
    /// batch. Consumers that have not taken the first batch are detached when the others have waited long enough.
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
        // While no consumer waits for the next batch, slow consumers hold up nobody.
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

    fn unblocked(&mut self, now: Instant) -> bool {
        if let Some(since) = self.grace.blocked.take() {
            self.grace.spent += now - since;
        }
        true
    }

    /// Returns whether a batch is in the window or will be soon. Before the first batch is made, consumers of a lost
    /// producer may be a whole window apart, and the range covers all of them.
    fn is_near(&self, at: BatchPosition) -> bool {
        // When the batch that is being made is added, the first batch leaves the window. So it counts as unavailable
        // already.
        let leaving = usize::from(self.is_making && self.batches.len() >= self.size);
        let begin = self.batches.get(leaving).map_or(self.end, |kept| kept.at);
        let room = ((self.batches.len() - leaving).max(1) + self.size) as u64;
        self.ahead(begin, at).is_some_and(|distance| distance < room)
    }

    /// Returns how many steps `at` is ahead of `from`; `None` if it is before `from`. The steps of the next epoch
    /// follow those of the current one.
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
