//! How fast the server serves copies: the node's own training comes first. This module does no I/O and reads no clock.

use std::time::Duration;

/// The maximum pause after a copy was read, as a multiple of the time that the read took. With 3, peers always get at
/// least a quarter of the drive's time. Peers need this share: all nodes wait for one another, so training would almost
/// stop if each node almost stopped serving while its own reads wait.
const LONGEST_REST: f64 = 3.0;

/// The maximum delay of a copy in favour of the node's own reads, short enough for the peers' deadlines.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// The maximum wait of a copy because of the user's bandwidth limit. A copy that would wait longer is refused, and the
/// peer reads the source.
const LONGEST_QUEUE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct ServingPace {
    /// The user's limit in bytes per second.
    limit: Option<f64>,
    /// The time at which the user's limit allows the next bytes.
    paid: Duration,
    /// The pause after a copy was read, as a multiple of the time that the read took.
    rest: f64,
    rested: Duration,
}

impl ServingPace {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self {
            limit: limit.map(|limit| limit as f64),
            paid: Duration::ZERO,
            rest: 0.0,
            rested: Duration::ZERO,
        }
    }

    /// Returns how long to wait from `now` (of any clock) before serving `bytes`, and counts the bytes as served.
    /// `None` if the user's limit would make the copy wait longer than [`LONGEST_QUEUE`].
    pub(super) fn wait(&mut self, now: Duration, bytes: u64) -> Option<Duration> {
        let rest = self.rested.saturating_sub(now).min(LONGEST_WAIT);
        let Some(limit) = self.limit else { return Some(rest) };
        // Time without requests earns no credit.
        let begin = self.paid.max(now);
        if begin - now > LONGEST_QUEUE {
            return None;
        }
        self.paid = begin + Duration::from_secs_f64(bytes as f64 / limit);
        Some(rest.max(begin - now))
    }

    /// Adjusts the pause between copies after a read that took the time `took` and ended at `now`. `own_reads_wait` is
    /// true if the node's own training waits for its reads.
    pub(super) fn adjust(&mut self, now: Duration, took: Duration, own_reads_wait: bool) {
        // Slow down at once, and speed up step by step.
        self.rest = if own_reads_wait { (2.0 * self.rest + 1.0).min(LONGEST_REST) } else { self.rest / 2.0 };
        if self.rest < 0.1 {
            self.rest = 0.0;
        }
        self.rested = self.rested.max(now) + took.mul_f64(self.rest);
        // Even after many concurrent reads, the pause ends within `LONGEST_WAIT`.
        self.rested = self.rested.min(now + LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(100);

    #[test]
    fn a_limit_is_kept_by_answers_side_by_side() {
        let mut pace = ServingPace::new(Some(100_000_000));
        let now = Duration::from_secs(9);
        let waits: Vec<_> = (0..4).map(|_| pace.wait(now, 1_000_000).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 10, 20, 30]);
        assert_eq!(pace.wait(now, 9_000_000).unwrap().as_millis(), 40);
        assert_eq!(pace.wait(now, 1), None, "no wait is long");
        // Time without requests earns no credit: a second later, one copy is served at once and the next copy waits.
        let later = now + Duration::from_secs(1);
        assert_eq!(pace.wait(later, 1_000_000), Some(Duration::ZERO));
        assert_eq!(pace.wait(later, 1_000_000).unwrap().as_millis(), 10);
    }

    #[test]
    fn own_reads_slow_serving_down_to_a_quarter_and_their_end_speeds_it_up() {
        let mut pace = ServingPace::new(None);
        let mut now = Duration::from_secs(1);
        let mut serve = |own_reads_wait| {
            let waited = pace.wait(now, 1).unwrap();
            now += waited + TOOK;
            pace.adjust(now, TOOK, own_reads_wait);
            waited
        };
        assert_eq!((serve(false), serve(false)), (Duration::ZERO, Duration::ZERO));
        let waits: Vec<_> = (0..4).map(|_| serve(true)).collect();
        assert_eq!(waits, [Duration::ZERO, TOOK, 3 * TOOK, 3 * TOOK]);
        let waits: Vec<_> = (0..8).map(|_| serve(false)).collect();
        assert!(waits.is_sorted_by(|a, b| a >= b) && waits[7] == Duration::ZERO, "{waits:?}");
    }

    #[test]
    fn nobody_waits_long_for_the_nodes_own_reads() {
        let mut pace = ServingPace::new(None);
        for _ in 0..100 {
            pace.adjust(Duration::ZERO, Duration::from_secs(1), true);
        }
        assert_eq!(pace.wait(Duration::ZERO, 1), Some(LONGEST_WAIT));
    }
}
