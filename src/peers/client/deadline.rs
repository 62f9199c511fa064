//! How long to wait for a peer, from how long it took before. Pure.

use crate::trace::Histogram;
use std::time::Duration;

/// The answers in a window. Two windows count, so that an answer is forgotten after at most twice as many.
const WINDOW: u32 = 1024;

/// After how many answers the deadline is computed anew, and the fewest that say anything.
const STEP: u32 = 32;

/// The share of answers that the deadline is a multiple of.
const QUANTILE: f64 = 0.99;

/// What deadlines may be.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLimits {
    /// The deadline of the first reads, of which nothing is known.
    pub first: Duration,
    /// The shortest deadline.
    pub floor: Duration,
    /// The longest deadline.
    pub ceiling: Duration,
    /// The deadline as a multiple of the time within which 99 of 100 reads were answered.
    pub factor: f64,
}

impl Default for DeadlineLimits {
    /// 1 second at first; then 4 times the time of 99 %, from 100 milliseconds to 2 seconds.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            floor: Duration::from_millis(100),
            ceiling: Duration::from_secs(2),
            factor: 4.0,
        }
    }
}

/// The deadline of reads from one peer.
pub(super) struct PeerDeadline {
    limits: DeadlineLimits,
    deadline: Duration,
    /// The times of this window and of the one before.
    recent: Histogram,
    before: Histogram,
    /// The number of times in the recent window.
    recorded: u32,
}

impl PeerDeadline {
    pub(super) fn new(limits: DeadlineLimits) -> Self {
        let (recent, before) = (Histogram::default(), Histogram::default());
        Self { limits, deadline: limits.first.min(limits.ceiling), recent, before, recorded: 0 }
    }

    /// How long the next read may take, from when it is posted.
    pub(super) fn current(&self) -> Duration {
        self.deadline
    }

    /// Learns how long a read took. One that was given up took as long as its deadline, so that the deadlines of a peer
    /// that became slow grow again.
    pub(super) fn record(&mut self, took: Duration) {
        self.recent.record(took);
        self.recorded += 1;
        if self.recorded.is_multiple_of(STEP) {
            let mut both = self.before.clone();
            both += &self.recent;
            let usual = Duration::from_secs_f64(both.quantile(QUANTILE));
            self.deadline = usual.mul_f64(self.limits.factor).clamp(self.limits.floor, self.limits.ceiling);
        }
        if self.recorded == WINDOW {
            self.before = std::mem::take(&mut self.recent);
            self.recorded = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DeadlineLimits = DeadlineLimits {
        first: Duration::from_millis(300),
        floor: Duration::from_millis(5),
        ceiling: Duration::from_millis(900),
        factor: 4.0,
    };

    fn after(times: impl IntoIterator<Item = u64>) -> Duration {
        let mut deadline = PeerDeadline::new(LIMITS);
        times.into_iter().for_each(|time| deadline.record(Duration::from_micros(time)));
        deadline.current()
    }

    #[test]
    fn it_follows_what_99_of_100_reads_take() {
        assert_eq!(after([]), LIMITS.first);
        assert_eq!(after([9; 31]), LIMITS.first, "too few to say anything");
        let usual = (0..1000).map(|i| if i % 100 < 98 { 1000 } else { 5000 });
        let found = after(usual).as_secs_f64();
        assert!((found - 0.020).abs() < 0.002, "{found}");
        assert_eq!(after([1; 100]), LIMITS.floor);
        assert_eq!(after([900_000; 100]), LIMITS.ceiling);
    }

    #[test]
    fn a_peer_that_became_slow_gets_longer_and_is_forgiven() {
        let mut deadline = PeerDeadline::new(LIMITS);
        let mut steady = |time: &dyn Fn(Duration) -> Duration| {
            for _ in 0..2 * WINDOW {
                let next = time(deadline.current());
                deadline.record(next);
            }
            deadline.current()
        };
        let quick = |_| Duration::from_millis(2);
        let late = |limit| limit;
        assert!(steady(&quick) < Duration::from_millis(10));
        assert_eq!(steady(&late), LIMITS.ceiling);
        assert!(steady(&quick) < Duration::from_millis(10));
    }
}
