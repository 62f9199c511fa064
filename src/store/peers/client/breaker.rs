//! A circuit breaker: after several failures of a peer it stops requests to the peer for a backoff period, then allows
//! one trial request. It does no I/O and reads no clock.
//!
//! After Michael Nygard, "Release It!" (2007), chapter 5.

use base::names::named;
use std::time::{Duration, Instant};

/// The limits of a circuit breaker.
#[derive(Debug, Clone, Copy)]
pub struct BreakerLimits {
    /// The number of consecutive failures after which requests stop (the breaker opens).
    pub failures: u32,
    /// The length of the first backoff period. Each failed trial request doubles the period.
    pub first: Duration,
    /// The maximum length of a backoff period.
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
    /// One request is in flight, as a trial. Its outcome closes the breaker or opens it again.
    Trial,
}

named!(BreakerState: "closed" => Closed, "open" => Open, "trial" => Trial);

#[derive(Debug)]
pub(super) struct Breaker {
    limits: BreakerLimits,
    state: BreakerState,
    failures: u32,
    /// The end of the backoff period; `pause` is its length.
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

    /// Returns whether a request may be sent at `now`. The caller must report the outcome of each admitted request. If
    /// the outcome of a trial is never reported, the next trial is allowed after the maximum backoff period.
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

    pub(super) fn succeeded(&mut self) {
        self.state = BreakerState::Closed;
        self.failures = 0;
        self.pause = self.limits.first;
    }

    /// Records that a request failed. Returns whether it was the first trial since the breaker opened. In this case the
    /// caller warns, because the failure persists.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        match self.state {
            // The request was sent before the breaker opened, so its failure says nothing new.
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
