//! Tests of the window's decisions, in virtual time.

mod random;

use super::*;

const STEPS: u64 = 10;
const SIZE: usize = 4;

/// A producer and its consumers in virtual time, in milliseconds.
struct Scene {
    window: SharedWindow<BatchPosition>,
    start: Instant,
    now: u64,
    leased: Vec<(ConsumerId, BatchPosition)>,
    refused: Vec<ConsumerId>,
    made: Vec<BatchPosition>,
}

fn at(epoch: u64, step: u64) -> BatchPosition {
    BatchPosition { epoch, step }
}

impl Scene {
    fn new(policy: SharingPolicy, consumers: u32) -> Self {
        Self::of(STEPS, policy, consumers)
    }

    fn of(steps: u64, policy: SharingPolicy, consumers: u32) -> Self {
        let start = Instant::now();
        let gathering = (consumers, start + Duration::from_millis(1000));
        let window = SharedWindow::new(SIZE, policy, steps, at(0, 0), gathering, start);
        Self { window, start, now: 0, leased: Vec::new(), refused: Vec::new(), made: Vec::new() }
    }

    fn with(consumers: &[ConsumerId]) -> Self {
        let mut scene = Self::new(SharingPolicy::Leave, 1);
        consumers.iter().for_each(|id| assert!(scene.window.join(*id, at(0, 0))));
        scene
    }

    fn ask(&mut self, id: ConsumerId, at: BatchPosition) {
        self.ask_for_new(id, at, 0);
    }

    fn ask_for_new(&mut self, id: ConsumerId, at: BatchPosition, not_before: u64) {
        self.window.ask(id, at, self.start + Duration::from_millis(not_before), self.instant());
        self.act();
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    /// Performs all due actions. In these tests, making a batch takes no time.
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
                        self.leased.push((id, at));
                    }
                    Action::Refuse(id) => self.refused.push(id),
                    Action::Make(at) => {
                        self.made.push(at);
                        self.window.made(at, self.instant());
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
    assert_eq!(scene.leased.len() as u64, 3 * 3 * STEPS);
    let mut once = scene.made.clone();
    once.dedup();
    assert_eq!(once, scene.made);
    // One batch is made ahead, but no batch of an epoch that no consumer has begun.
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
    assert_eq!(
        scene.leased.last(),
        Some(&(1, at(0, SIZE as u64))),
        "the window holds all that 2 still needs"
    );
    scene.ask(1, at(0, SIZE as u64 + 1));
    assert_eq!(scene.leased.last(), Some(&(1, at(0, SIZE as u64))), "now 1 waits for 2");
    let due = scene.window.due(scene.instant()).unwrap();
    assert_eq!(due, scene.start + MAX_GRACE);
    scene.wait(249);
    assert_eq!(scene.leased.len(), SIZE + 2);
    scene.wait(1);
    assert_eq!(scene.leased.last(), Some(&(1, at(0, SIZE as u64 + 1))), "but not for long");
    scene.ask(2, at(0, 1));
    assert_eq!(scene.refused, [2], "what 2 needs is gone");
    assert!(!scene.window.join(2, at(0, 1)));
    assert!(scene.window.join(2, at(0, 3)), "it has caught up");
    // The next consumer that falls behind has less time, because the share of waiting time is used up.
    scene.ask(2, at(0, 3));
    for step in 6..=8 {
        scene.ask(1, at(0, step));
    }
    scene.wait(40);
    assert!(scene.leased.contains(&(1, at(0, 8))), "{:?}", scene.leased);
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
    assert_eq!(scene.leased.last(), Some(&(2, at(0, 3))));
    assert!(scene.refused.is_empty());
}

#[test]
fn in_lockstep_everybody_waits_for_the_slowest() {
    for goes in [SharedWindow::leave, SharedWindow::rest] {
        let mut scene = Scene::new(SharingPolicy::Wait, 2);
        assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(0, step));
            scene.wait(10_000);
        }
        assert_eq!(scene.leased.len(), SIZE, "{:?}", scene.leased);
        scene.ask(2, at(0, 0));
        assert_eq!(scene.leased.len(), SIZE + 2, "1 had asked for the one behind the window");
        goes(&mut scene.window, 2);
        scene.ask(1, at(0, 5));
        assert_eq!(scene.leased.len(), SIZE + 3, "no other consumer is waited for");
    }
}

#[test]
fn those_that_begin_together_begin_with_the_first_that_any_needs() {
    let mut scene = Scene::new(SharingPolicy::Leave, 3);
    assert!(scene.window.join(1, at(3, 5)), "where the producer was started is no matter");
    scene.ask(1, at(3, 5));
    assert!(scene.window.join(2, at(3, 3)));
    scene.ask(2, at(3, 3));
    assert!(scene.leased.is_empty());
    assert!(scene.window.join(3, at(3, 4)));
    scene.ask(3, at(3, 4));
    assert_eq!(scene.leased, [(2, at(3, 3)), (3, at(3, 4)), (1, at(3, 5))]);
    let mut alone = Scene::new(SharingPolicy::Leave, 3);
    assert!(alone.window.join(1, at(0, 0)));
    alone.ask(1, at(0, 0));
    assert!(alone.leased.is_empty() && alone.window.due(alone.instant()).is_some());
    alone.wait(1000);
    assert_eq!(alone.leased, [(1, at(0, 0))], "no other consumer came");
}

#[test]
fn the_window_goes_where_all_go() {
    let mut scene = Scene::with(&[1, 2]);
    scene.ask(1, at(0, 0));
    scene.ask(2, at(0, 0));
    scene.ask(1, at(1, 0));
    scene.wait(200);
    assert_eq!(scene.leased.len(), 2);
    scene.ask(2, at(1, 0));
    assert_eq!(scene.leased[2..], [(1, at(1, 0)), (2, at(1, 0))]);
    // One consumer goes to an epoch that the other does not want.
    scene.ask(1, at(7, 0));
    scene.wait(100);
    scene.ask(2, at(1, 1));
    assert_eq!(scene.leased.last(), Some(&(2, at(1, 1))));
    scene.wait(200);
    assert_eq!(scene.refused, [1]);
    // A single consumer may go anywhere, also back.
    for target in [at(4, 2), at(4, 0), at(0, 9)] {
        scene.ask(2, target);
        assert_eq!(scene.leased.last(), Some(&(2, target)));
    }
    scene.window.leave(2);
    assert!(scene.window.join(5, at(2, 2)), "nor does a producer without consumers stay where it is");
}

#[test]
fn what_cannot_be_made_is_told_and_tried_again() {
    let mut scene = Scene::with(&[1, 2]);
    scene.window.ask(1, at(0, 0), scene.start, scene.instant());
    assert_eq!(scene.window.act(scene.instant()), [Action::Make(at(0, 0))]);
    assert!(scene.window.act(scene.instant()).is_empty(), "it is being made");
    assert_eq!(scene.window.failed(), [1]);
    scene.ask(2, at(0, 0));
    assert_eq!(scene.leased, [(2, at(0, 0))]);
}

#[test]
fn in_lockstep_a_long_wait_is_seen() {
    let mut scene = Scene::new(SharingPolicy::Wait, 2);
    assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
    for step in 0..=SIZE as u64 {
        scene.ask(1, at(0, step));
    }
    scene.wait(1);
    let due = scene.window.due(scene.instant()).unwrap();
    scene.wait(59_000);
    assert!(
        !scene.window.waits_for_long(scene.instant()) && due <= scene.start + LONG + Duration::from_secs(1)
    );
    scene.wait(2_000);
    assert!(scene.window.waits_for_long(scene.instant()));
    assert_eq!(scene.window.due(scene.instant()), None, "it is seen once");
    scene.ask(2, at(0, 0));
    assert!(!scene.window.waits_for_long(scene.instant()));
}

#[test]
fn what_was_read_too_early_for_one_is_made_again() {
    let mut scene = Scene::with(&[1]);
    scene.ask(1, at(0, 0));
    scene.ask(1, at(0, 1));
    assert_eq!(scene.made, [at(0, 0), at(0, 1), at(0, 2)]);
    scene.wait(100);
    assert!(scene.window.join(2, at(0, 1)));
    scene.ask_for_new(2, at(0, 1), 50);
    assert_eq!(scene.leased.last(), Some(&(2, at(0, 1))));
    assert_eq!(scene.made[3..], [at(0, 1), at(0, 2)], "as far as the first wants");
    // A batch that is new enough for both is made once, and the first consumer keeps its batch.
    scene.ask(1, at(0, 2));
    scene.ask_for_new(2, at(0, 2), 50);
    assert_eq!(scene.made[5..], [at(0, 3)]);
    // Consumer 2 begins again, and needs samples that were read later than the samples of the batch made ahead.
    scene.wait(100);
    scene.ask_for_new(2, at(0, 3), 150);
    assert_eq!(scene.made[6..], [at(0, 3), at(0, 4)]);
    assert!(scene.refused.is_empty());
}

#[test]
fn no_batches_are_made_again_for_a_consumer_that_would_hold_up_another() {
    let mut scene = Scene::with(&[1]);
    for step in 0..SIZE as u64 {
        scene.ask(1, at(0, step));
    }
    scene.wait(100);
    assert!(scene.window.join(2, at(0, 2)));
    // Consumer 2 needs samples that were read later than the samples of the kept batch, and consumer 1 waits for a
    // batch far ahead of the kept batch.
    scene.window.ask(1, at(5, 0), scene.start, scene.instant());
    scene.ask_for_new(2, at(0, 2), 100);
    assert_eq!(scene.refused, [2]);
    assert_eq!(scene.made.iter().filter(|made| **made == at(0, 2)).count(), 1);
    assert_eq!(scene.leased.last(), Some(&(1, at(5, 0))));
}

#[test]
fn the_window_holds_several_short_epochs() {
    for steps in [1, 3] {
        let mut scene = Scene::of(steps, SharingPolicy::Wait, 2);
        assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(step / steps, step % steps));
            scene.wait(1000);
        }
        assert_eq!(
            (scene.leased.len(), scene.refused.len()),
            (SIZE, 0),
            "{steps} steps: it waits for the other"
        );
        scene.ask(2, at(0, 0));
        assert_eq!(scene.leased.len(), SIZE + 2, "{steps} steps");
    }
}

#[test]
fn nobody_is_taken_for_a_batch_that_leaves_the_window() {
    let mut scene = Scene::with(&[1]);
    for step in 0..SIZE as u64 {
        scene.ask(1, at(0, step));
    }
    // The batch after the full window was made ahead and is leased. Making the next batch takes a while.
    scene.window.ask(1, at(0, 4), scene.start, scene.instant());
    let made = scene.window.act(scene.instant());
    assert!(matches!(made[..], [Action::Lend(1, _), Action::Make(next)] if next == at(0, 5)), "{made:?}");
    assert!(!scene.window.join(2, at(0, 1)) && scene.window.join(3, at(0, 2)));
    scene.window.ask(3, at(0, 2), scene.start, scene.instant());
    scene.window.made(at(0, 5), scene.instant());
    scene.act();
    assert_eq!((scene.leased.last(), scene.refused.len()), (Some(&(3, at(0, 2))), 0));
}

#[test]
fn who_waits_for_the_slowest_waits_while_what_is_too_old_for_it_is_made_again() {
    for policy in [SharingPolicy::Leave, SharingPolicy::Wait] {
        let mut scene = Scene::new(policy, 2);
        assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(0, step));
        }
        assert_eq!(scene.leased.len(), SIZE, "the first is a whole window ahead");
        scene.now += 100;
        for step in 0..=SIZE as u64 {
            scene.ask_for_new(2, at(0, step), 50);
        }
        assert!(scene.refused.is_empty(), "{policy:?}");
        assert_eq!(scene.leased.len(), 2 * SIZE + 2, "{policy:?}");
    }
}

#[test]
fn nothing_is_due_any_more_when_who_was_held_up_is_gone() {
    for policy in [SharingPolicy::Leave, SharingPolicy::Wait] {
        let mut scene = Scene::new(policy, 2);
        assert!(scene.window.join(1, at(0, 0)) && scene.window.join(2, at(0, 0)));
        scene.ask(2, at(0, 0));
        for step in 0..=SIZE as u64 {
            scene.ask(1, at(0, step));
        }
        scene.ask(1, at(0, SIZE as u64 + 1));
        assert!(scene.window.due(scene.instant()).is_some(), "1 waits for 2");
        scene.window.leave(1);
        scene.wait(70_000);
        assert_eq!(scene.window.due(scene.instant()), None);
        assert!(!scene.window.waits_for_long(scene.instant()));
    }
}

#[test]
fn while_consumers_gather_nothing_else_is_due() {
    let mut scene = Scene::new(SharingPolicy::Leave, 3);
    assert!(scene.window.join(1, at(0, 9)));
    scene.ask(1, at(0, 9));
    assert!(scene.window.join(2, at(0, 1)), "before the first batch, which no consumer has taken");
    scene.ask(2, at(0, 1));
    scene.wait(500);
    assert_eq!(scene.window.due(scene.instant()), Some(scene.start + Duration::from_millis(1000)));
}

#[test]
fn who_was_a_whole_window_ahead_when_a_producer_was_lost_stays() {
    let ahead = at(0, 2 + SIZE as u64);
    let mut scene = Scene::new(SharingPolicy::Leave, 2);
    assert!(scene.window.join(1, ahead));
    scene.ask(1, ahead);
    assert!(scene.window.join(2, at(0, 2)));
    scene.wait(500);
    for step in 2..=ahead.step {
        scene.ask(2, at(0, step));
    }
    assert!(scene.refused.is_empty());
    assert!(scene.leased.contains(&(1, ahead)) && scene.leased.contains(&(2, ahead)));
}

#[test]
fn the_window_goes_back_for_one_that_comes_while_others_stay_where_they_are() {
    let mut scene = Scene::of(4, SharingPolicy::Leave, 1);
    assert!(scene.window.join(1, at(0, 0)));
    (0..4).for_each(|step| scene.ask(1, at(0, step)));
    scene.wait(100);
    assert!(scene.window.join(2, at(0, 0)));
    scene.ask_for_new(2, at(0, 0), 0);
    (1..4).for_each(|step| scene.ask_for_new(2, at(0, step), 50));
    assert_eq!(scene.window.batch(at(0, 0)), None);
    assert!(scene.window.join(3, at(0, 0)));
    (0..4).for_each(|step| scene.ask(3, at(0, step)));
    assert_eq!(scene.leased.len(), 12);
    scene.ask(1, at(1, 0));
    assert!(!scene.window.join(4, at(0, 0)), "the first is more than a window ahead of that");
}
