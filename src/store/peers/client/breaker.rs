//! A circuit breaker: it stops requests to a failing peer for a backoff period, then allows one trial. It does no I/O
//! and reads no clock.
//!
//! After Michael Nygard, "Release It!" (2007), chapter 5.

use base::names::named;
use std::time::{Duration, Instant};

/// When to stop requests to a peer, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerLimits {
    /// The number of failures in a row that opens the breaker.
    pub failures: u32,
    /// How long the breaker stays open at first. Each failed trial doubles this time.
    pub first: Duration,
    /// The longest time that the breaker stays open.
    pub longest: Duration,
}

impl Default for BreakerLimits {
    /// 4 failures; 250 milliseconds at first, 30 seconds at most.
    fn default() -> Self {
        Self { failures: 4, first: Duration::from_millis(250), longest: Duration::from_secs(30) }
    }
}

/// Whether requests to a peer are allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// All requests are allowed.
    #[default]
    Closed,
    /// No requests are allowed, for a backoff period.
    Open,
    /// One request is in flight, as a trial: its outcome closes the breaker or opens it again.
    Trial,
}

named!(BreakerState: "closed" => Closed, "open" => Open, "trial" => Trial);

/// The breaker of one peer.
#[derive(Debug)]
pub(super) struct Breaker {
    limits: BreakerLimits,
    state: BreakerState,
    /// Failures in a row, while the breaker is closed.
    failures: u32,
    /// When the next trial is allowed. `pause` is the length of the backoff period.
    until: Option<Instant>,
    pause: Duration,
}

impl Breaker {
    pub(super) fn new(limits: BreakerLimits) -> Self {
        Self { limits, state: BreakerState::Closed, failures: 0, until: None, pause: limits.first }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns whether a request may be made at `now`. The caller must report the outcome of each admitted request. If
    /// the outcome of a trial is not reported, the next trial is allowed after the longest period.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        if self.state == BreakerState::Closed {
            return true;
        }
        let admitted = self.until.is_none_or(|until| now >= until);
        if admitted {
            self.state = BreakerState::Trial;
            self.until = Some(now + self.limits.longest);
        }
        admitted
    }

    /// Records that a request was answered.
    pub(super) fn succeeded(&mut self) {
        self.state = BreakerState::Closed;
        self.failures = 0;
        self.pause = self.limits.first;
    }

    /// Records that a request failed. Returns whether it was the first trial after the breaker opened. If so, the
    /// failure persists, and the caller warns.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        match self.state {
            // The request was sent before the breaker opened: its failure adds no information.
            BreakerState::Open => false,
            BreakerState::Trial => {
                let first = self.pause == self.limits.first;
                self.pause = (2 * self.pause).min(self.limits.longest);
                self.open(now);
                first
            }
            BreakerState::Closed => {
                self.failures += 1;
                if self.failures >= self.limits.failures {
                    self.open(now);
                }
                false
            }
        }
    }

    fn open(&mut self, now: Instant) {
        self.state = BreakerState::Open;
        self.until = Some(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits =
        BreakerLimits { failures: 3, first: Duration::from_secs(1), longest: Duration::from_secs(5) };

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(LIMITS);
        assert!((0..3).all(|_| !breaker.failed(now)));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_an_answer_between_them_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(LIMITS);
        for _ in 0..10 {
            breaker.failed(now);
            breaker.failed(now);
            assert!(breaker.admit(now));
            breaker.succeeded();
        }
        assert!(!opened(now).admit(now));
    }

    #[test]
    fn one_trial_passes_after_each_pause_and_pauses_double_to_a_bound() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for pause in [1, 2, 4, 5, 5] {
            let almost = now + Duration::from_secs(pause) - Duration::from_millis(1);
            assert!(!breaker.admit(almost), "after {pause} s");
            now += Duration::from_secs(pause);
            assert!(breaker.admit(now) && !breaker.admit(now), "after {pause} s");
            assert_eq!(breaker.state(), BreakerState::Trial);
            assert_eq!(breaker.failed(now), pause == 1, "the user is warned after the first trial");
        }
        now += Duration::from_secs(5);
        assert!(breaker.admit(now));
        breaker.succeeded();
        assert_eq!(breaker.state(), BreakerState::Closed);
        // The next pause is short again.
        while breaker.state() == BreakerState::Closed {
            breaker.failed(now);
        }
        assert!(breaker.admit(now + LIMITS.first));
    }

    #[test]
    fn late_failures_do_not_make_the_pause_longer() {
        let now = Instant::now();
        let mut breaker = opened(now);
        for late in 1..9 {
            breaker.failed(now + Duration::from_millis(100 * late));
        }
        assert!(breaker.admit(now + LIMITS.first));
    }
}
