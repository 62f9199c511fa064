//! Which batches are kept for consumers that share them, and what is done when some are behind. All of it is pure.
//!
//! The window is the latest batches that were made. A consumer takes one after another; who asks for one that has left
//! the window is told to go elsewhere. Before a batch leaves it for others that some have not taken yet, the fastest
//! waits for these a little: consumers of the same speed stay together, and one that is slower or stopped is left.

use crate::config::SharingPolicy;
use crate::sharing::Position;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The share of time that the fastest waits for others at most, and the most that it waits at once.
const GRACE_SHARE: f64 = 0.02;
const MOST_GRACE: Duration = Duration::from_millis(250);

/// How long a consumer that asks for another place than the next waits for the others to ask for it, too, as they do
/// where all leave an epoch early.
const MOVE: Duration = Duration::from_millis(250);

/// The number of a consumer.
pub(crate) type ConsumerId = u64;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// This consumer gets the batch that it asked for.
    Lend(ConsumerId, Position),
    /// This consumer goes elsewhere.
    Refuse(ConsumerId),
    /// The next batch is to be made, and given to [`Window::made`].
    Make(Position),
}

/// The window of a producer. `B` is a batch.
pub(crate) struct Window<B> {
    size: usize,
    policy: SharingPolicy,
    /// The number of steps of an epoch.
    steps: u64,
    batches: VecDeque<(Position, B)>,
    /// The batch that is made next.
    end: Position,
    /// Whether it is being made.
    making: bool,
    /// Whether the first batch waits for the consumers that begin together, of which there are so many.
    gathering: Option<(u32, Instant)>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    grace: Grace,
}

struct Consumer {
    /// The batch that it asks for next.
    next: Position,
    /// Since when it waits for that.
    asks: Option<Instant>,
    /// Whether it fell behind, so that nobody waits for it.
    is_left: bool,
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

impl<B> Window<B> {
    /// A window of `size` batches for epochs of `steps`, which begins at `at` when `consumers` are there, or at
    /// `patience`.
    pub(crate) fn new(
        size: usize,
        policy: SharingPolicy,
        steps: u64,
        at: Position,
        (consumers, patience): (u32, Instant),
        now: Instant,
    ) -> Self {
        Self {
            size: size.max(1),
            policy,
            steps,
            batches: VecDeque::new(),
            end: at,
            making: false,
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
    pub(crate) fn batch(&self, at: Position) -> Option<&B> {
        self.batches.iter().find(|(of, _)| *of == at).map(|(_, batch)| batch)
    }

    /// Takes a consumer that asks for `at` first. Returns whether it is taken.
    pub(crate) fn join(&mut self, id: ConsumerId, at: Position) -> bool {
        let is_first = self.consumers.values().all(|consumer| consumer.is_left);
        if !self.making && is_first && !self.is_near(at) {
            // Nobody else is here: the producer goes where it is wanted.
            self.go_to(at);
        } else if self.gathering.is_some() && self.batches.is_empty() && self.ahead(at, self.end).is_some() {
            // Those that begin together begin with the first batch that any of them needs.
            self.end = at;
        }
        let is_taken = self.is_near(at);
        if is_taken {
            self.consumers.insert(id, Consumer { next: at, asks: None, is_left: false });
        }
        is_taken
    }

    /// Forgets a consumer that is gone.
    pub(crate) fn leave(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
    }

    /// Notes that a consumer asks for a batch.
    pub(crate) fn ask(&mut self, id: ConsumerId, at: Position, now: Instant) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.next = at;
            consumer.asks = Some(now);
        }
    }

    /// Takes the batch that was to be made.
    pub(crate) fn made(&mut self, batch: B) {
        self.making = false;
        while self.batches.len() >= self.size {
            self.batches.pop_front();
        }
        self.batches.push_back((self.end, batch));
        self.end = self.after(self.end);
    }

    /// Notes that the batch could not be made. Returns those that asked for it, or for a later one.
    pub(crate) fn failed(&mut self) -> Vec<ConsumerId> {
        self.making = false;
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, _)| *id).collect();
        asking.iter().for_each(|id| drop(self.consumers.remove(id)));
        asking
    }

    /// What is to be done now.
    pub(crate) fn act(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.gathering.is_some_and(|(count, until)| self.consumers.len() < count as usize && now < until) {
            return actions;
        }
        if self.gathering.is_some() && !self.consumers.is_empty() {
            self.gathering = None;
        }
        self.answer(&mut actions);
        if let Some(at) = self.to_move_to() {
            self.go_to(at);
        }
        for id in self.strays(now) {
            self.refuse(id, &mut actions);
        }
        if self.wants_more() && !self.making && self.has_room(now) {
            self.making = true;
            actions.push(Action::Make(self.end));
        }
        actions
    }

    /// When [`Window::act`] is due at the latest, although nothing happens.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let gathering = self.gathering.filter(|_| !self.consumers.is_empty()).map(|(_, until)| until);
        let grace = self.grace.blocked.map(|since| since + self.grace.left(since));
        let stray = self.consumers.values().filter(|consumer| !self.is_near(consumer.next));
        let moved = stray.filter_map(|consumer| consumer.asks).min().map(|since| since + MOVE);
        let due = [gathering, grace, moved].into_iter().flatten().min();
        due.map(|due| due.max(now))
    }

    /// Answers those whose batch is there.
    fn answer(&mut self, actions: &mut Vec<Action>) {
        let begin = self.batches.front().map_or(self.end, |(at, _)| *at);
        let asking = self.consumers.iter().filter(|(_, consumer)| consumer.asks.is_some());
        let asking: Vec<_> = asking.map(|(id, consumer)| (*id, consumer.next, consumer.is_left)).collect();
        for (id, at, is_left) in asking {
            if self.batch(at).is_some() {
                let after = self.after(at);
                if let Some(consumer) = self.consumers.get_mut(&id) {
                    // Who takes a batch of the window has caught up.
                    *consumer = Consumer { next: after, asks: None, is_left: false };
                }
                actions.push(Action::Lend(id, at));
            } else if is_left || at < begin && self.consumers.len() > 1 {
                self.refuse(id, actions);
            }
        }
    }

    fn refuse(&mut self, id: ConsumerId, actions: &mut Vec<Action>) {
        self.consumers.remove(&id);
        actions.push(Action::Refuse(id));
    }

    /// Where all consumers want to go, if that is not where the window is.
    fn to_move_to(&self) -> Option<Position> {
        if self.making {
            return None;
        }
        let mut there = self.consumers.values().filter(|consumer| !consumer.is_left);
        let first = there.clone().map(|consumer| consumer.next).min()?;
        let all = there.all(|consumer| consumer.asks.is_some() && !self.is_near(consumer.next) && consumer.next == first);
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
        self.gathering.is_none() && self.consumers.values().any(|consumer| !consumer.is_left && wanted(consumer))
    }

    /// Whether there is room for one more batch: the window is not full, or all have taken its first one. Those that
    /// have not are left when the others have waited long enough.
    fn has_room(&mut self, now: Instant) -> bool {
        let first = self.batches.front().map(|(at, _)| *at);
        let Some(first) = first.filter(|_| self.batches.len() >= self.size) else {
            return self.unblocked(now);
        };
        let is_behind = |consumer: &Consumer| !consumer.is_left && self.ahead(consumer.next, first).is_some();
        let behind = self.consumers.iter().filter(|(_, consumer)| is_behind(consumer));
        let behind: Vec<ConsumerId> = behind.map(|(id, _)| *id).collect();
        if behind.is_empty() {
            return self.unblocked(now);
        }
        // While nobody waits for the next batch, nobody is held up.
        let waits = |consumer: &Consumer| consumer.asks.is_some() && consumer.next >= self.end;
        if self.policy == SharingPolicy::Wait || !self.consumers.values().any(waits) {
            self.unblocked(now);
            return false;
        }
        let since = *self.grace.blocked.get_or_insert(now);
        if now < since + self.grace.left(since) {
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

    /// Whether a batch is in the window, or comes soon.
    fn is_near(&self, at: Position) -> bool {
        let begin = self.batches.front().map_or(self.end, |(at, _)| *at);
        let room = (self.batches.len() + self.size) as u64;
        self.ahead(begin, at).is_some_and(|distance| distance < room.max(1))
    }

    /// How many steps `at` is ahead of `from`; `None` where it is behind. Steps of the next epoch follow those of one.
    fn ahead(&self, from: Position, at: Position) -> Option<u64> {
        match at.epoch.checked_sub(from.epoch)? {
            0 => at.step.checked_sub(from.step),
            1 => Some(self.steps.saturating_sub(from.step) + at.step),
            _ => Some(u64::MAX),
        }
    }

    fn after(&self, at: Position) -> Position {
        if at.step + 1 < self.steps {
            Position { step: at.step + 1, ..at }
        } else {
            Position { epoch: at.epoch + 1, step: 0 }
        }
    }

    fn go_to(&mut self, at: Position) {
        self.batches.clear();
        self.end = at;
        self.grace.blocked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u64 = 10;
    const SIZE: usize = 4;

    /// A producer and its consumers in virtual time, in milliseconds.
    struct Scene {
        window: Window<Position>,
        start: Instant,
        now: u64,
        lent: Vec<(ConsumerId, Position)>,
        refused: Vec<ConsumerId>,
        made: Vec<Position>,
    }

    fn at(epoch: u64, step: u64) -> Position {
        Position { epoch, step }
    }

    impl Scene {
        fn new(policy: SharingPolicy, consumers: u32) -> Self {
            let start = Instant::now();
            let gathering = (consumers, start + Duration::from_millis(1000));
            let window = Window::new(SIZE, policy, STEPS, at(0, 0), gathering, start);
            Self { window, start, now: 0, lent: Vec::new(), refused: Vec::new(), made: Vec::new() }
        }

        fn with(consumers: &[ConsumerId]) -> Self {
            let mut scene = Self::new(SharingPolicy::Leave, 1);
            consumers.iter().for_each(|id| assert!(scene.window.join(*id, at(0, 0))));
            scene
        }

        fn ask(&mut self, id: ConsumerId, at: Position) {
            self.window.ask(id, at, self.instant());
            self.act();
        }

        fn instant(&self) -> Instant {
            self.start + Duration::from_millis(self.now)
        }

        /// Does what is to be done; batches take no time.
        fn act(&mut self) {
            loop {
                let actions = self.window.act(self.instant());
                if actions.is_empty() {
                    return;
                }
                for action in actions {
                    match action {
                        Action::Lend(id, at) => {
                            assert_eq!(self.window.batch(at), Some(&at));
                            self.lent.push((id, at));
                        }
                        Action::Refuse(id) => self.refused.push(id),
                        Action::Make(at) => {
                            self.made.push(at);
                            self.window.made(at);
                        }
                    }
                }
            }
        }

        fn wait(&mut self, milliseconds: u64) {
            self.now += milliseconds;
            self.act();
        }
    }

    #[test]
    fn each_batch_is_made_once_for_all() {
        let mut scene = Scene::with(&[1, 2, 3]);
        for step in 0..3 * STEPS {
            for id in [1, 2, 3] {
                scene.ask(id, at(step / STEPS, step % STEPS));
            }
        }
        assert_eq!(scene.lent.len() as u64, 3 * 3 * STEPS);
        let mut once = scene.made.clone();
        once.dedup();
        assert_eq!(once, scene.made);
        // One is made ahead, but none of an epoch that nobody has begun.
        assert_eq!(scene.made.len() as u64, 3 * STEPS);
        assert!(scene.refused.is_empty());
    }

    #[test]
    fn who_is_behind_takes_from_the_window_and_then_goes_elsewhere() {
        let mut scene = Scene::with(&[1, 2]);
        scene.ask(1, at(0, 0));
        scene.ask(2, at(0, 0));
        for step in 1..=SIZE as u64 {
            scene.ask(1, at(0, step));
        }
        assert_eq!(scene.lent.last(), Some(&(1, at(0, SIZE as u64))), "the window holds all that 2 still needs");
        scene.ask(1, at(0, SIZE as u64 + 1));
        assert_eq!(scene.lent.last(), Some(&(1, at(0, SIZE as u64))), "now 1 waits for 2");
        let due = scene.window.due(scene.instant()).unwrap();
        assert_eq!(due, scene.start + MOST_GRACE);
        scene.wait(249);
        assert_eq!(scene.lent.len(), SIZE + 2);
        scene.wait(1);
        assert_eq!(scene.lent.last(), Some(&(1, at(0, SIZE as u64 + 1))), "but not for long");
        scene.ask(2, at(0, 1));
        assert_eq!(scene.refused, [2], "what 2 needs is gone");
        assert!(!scene.window.join(2, at(0, 1)));
        assert!(scene.window.join(2, at(0, 3)), "it has caught up");
        // The next one who falls behind has less time: the share of it that may be waited is used up.
        scene.ask(2, at(0, 3));
        for step in 6..=8 {
            scene.ask(1, at(0, step));
        }
        scene.wait(40);
        assert!(scene.lent.contains(&(1, at(0, 8))), "{:?}", scene.lent);
    }

    #[test]
    fn who_is_left_and_catches_up_is_one_of_them_again() {
        let mut scene = Scene::with(&[1, 2]);
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(0, step));
        }
        scene.wait(300);
        scene.ask(1, at(0, SIZE as u64 + 1));
        scene.wait(300);
        scene.ask(2, at(0, 3));
        assert_eq!(scene.lent.last(), Some(&(2, at(0, 3))));
        assert!(scene.refused.is_empty());
    }

    #[test]
    fn in_lockstep_everybody_waits_for_the_slowest() {
        let mut scene = Scene::new(SharingPolicy::Wait, 2);
        assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(0, step));
            scene.wait(10_000);
        }
        assert_eq!(scene.lent.len(), SIZE, "{:?}", scene.lent);
        scene.ask(2, at(0, 0));
        assert_eq!(scene.lent.len(), SIZE + 2, "1 had asked for the one behind the window");
        scene.window.leave(2);
        scene.act();
        assert_eq!(scene.lent.len(), SIZE + 2, "nobody asks");
        scene.ask(1, at(0, 5));
        assert_eq!(scene.lent.len(), SIZE + 3, "nobody else is waited for any more");
    }

    #[test]
    fn those_that_begin_together_begin_with_the_first_that_any_needs() {
        let mut scene = Scene::new(SharingPolicy::Leave, 3);
        assert!(scene.window.join(1, at(3, 5)), "where the producer was started is no matter");
        scene.ask(1, at(3, 5));
        assert!(scene.window.join(2, at(3, 3)));
        scene.ask(2, at(3, 3));
        assert!(scene.lent.is_empty());
        assert!(scene.window.join(3, at(3, 4)));
        scene.ask(3, at(3, 4));
        assert_eq!(scene.lent, [(2, at(3, 3)), (3, at(3, 4)), (1, at(3, 5))]);
        let mut alone = Scene::new(SharingPolicy::Leave, 3);
        assert!(alone.window.join(1, at(0, 0)));
        alone.ask(1, at(0, 0));
        assert!(alone.lent.is_empty() && alone.window.due(alone.instant()).is_some());
        alone.wait(1000);
        assert_eq!(alone.lent, [(1, at(0, 0))], "nobody else came");
    }

    #[test]
    fn the_window_goes_where_all_go() {
        let mut scene = Scene::with(&[1, 2]);
        scene.ask(1, at(0, 0));
        scene.ask(2, at(0, 0));
        // Both leave the epoch early.
        scene.ask(1, at(1, 0));
        scene.wait(200);
        assert_eq!(scene.lent.len(), 2);
        scene.ask(2, at(1, 0));
        assert_eq!(scene.lent[2..], [(1, at(1, 0)), (2, at(1, 0))]);
        // One goes to an epoch of its own, which the other does not want.
        scene.ask(1, at(7, 0));
        scene.wait(100);
        scene.ask(2, at(1, 1));
        assert_eq!(scene.lent.last(), Some(&(2, at(1, 1))));
        scene.wait(200);
        assert_eq!(scene.refused, [1]);
        // A single one goes anywhere, also back.
        for target in [at(4, 2), at(4, 0), at(0, 9)] {
            scene.ask(2, target);
            assert_eq!(scene.lent.last(), Some(&(2, target)));
        }
        scene.window.leave(2);
        assert!(scene.window.join(5, at(2, 2)), "nor does a producer without consumers stay where it is");
    }

    #[test]
    fn what_cannot_be_made_is_told_and_tried_again() {
        let mut scene = Scene::with(&[1, 2]);
        scene.window.ask(1, at(0, 0), scene.instant());
        assert_eq!(scene.window.act(scene.instant()), [Action::Make(at(0, 0))]);
        assert!(scene.window.act(scene.instant()).is_empty(), "it is being made");
        assert_eq!(scene.window.failed(), [1]);
        scene.ask(2, at(0, 0));
        assert_eq!(scene.lent, [(2, at(0, 0))]);
    }
}
