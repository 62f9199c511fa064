//! The pace of staging: the pipeline's own reads come first. This module does no I/O and reads no clock.

use std::time::Duration;

/// The longest pause after a read, as a multiple of the time that the read took. With it, staging always gets a tenth
/// of the source's time: if the pipeline's reads are slow because they are small, only staging can help.
const LONGEST_REST: f64 = 9.0;

#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// The user's limit in bytes per second.
    limit: Option<f64>,
    /// The time at which the bytes read so far have used up their share of the limit, so that further bytes are
    /// allowed.
    paid: Duration,
    /// The pause after a read, as a multiple of the time that the read took.
    rest: f64,
}

impl Pace {
    /// Makes a pace of at most `limit` bytes per second; `None` uses the bandwidth that the pipeline leaves unused.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit: limit.map(|limit| limit as f64), paid: Duration::ZERO, rest: 0.0 }
    }

    /// Returns how long to pause after a read of `bytes` bytes that ended at `now` (of any clock) and took `took`.
    /// `demand_waits` says whether the pipeline waits for its own reads.
    pub(crate) fn rest(&mut self, now: Duration, bytes: u64, took: Duration, demand_waits: bool) -> Duration {
        if let Some(limit) = self.limit {
            // Time without reads earns no credit for faster reads later.
            self.paid =
                self.paid.max(now.saturating_sub(took)) + Duration::from_secs_f64(bytes as f64 / limit);
            return self.paid.saturating_sub(now);
        }
        // Slow down at once, and speed up step by step.
        self.rest = if demand_waits { (2.0 * self.rest + 1.0).min(LONGEST_REST) } else { self.rest / 2.0 };
        if self.rest < 0.1 {
            self.rest = 0.0;
        }
        took.mul_f64(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(10);

    #[test]
    fn a_limit_is_kept_also_by_reads_side_by_side() {
        let mut pace = Pace::new(Some(100_000_000));
        let (mut now, mut bytes) = (Duration::ZERO, 0);
        for pair in 1..20 {
            now += TOOK;
            for _ in 0..2 {
                bytes += 4_000_000;
                now += pace.rest(now, 4_000_000, TOOK, true);
            }
            assert!(bytes as f64 / now.as_secs_f64() < 101e6, "{bytes} bytes in {now:?} after {pair} pairs");
        }
        assert!(bytes as f64 / now.as_secs_f64() > 95e6, "{bytes} bytes in {now:?}");
    }

    #[test]
    fn demand_slows_staging_down_to_a_tenth_and_its_end_speeds_it_up() {
        let mut pace = Pace::new(None);
        let mut rest = |demand| pace.rest(Duration::ZERO, 1, TOOK, demand);
        assert_eq!(rest(false), Duration::ZERO);
        for _ in 0..10 {
            rest(true);
        }
        assert_eq!(rest(true), 9 * TOOK);
        let rests: Vec<_> = (0..8).map(|_| rest(false)).collect();
        assert!(rests.is_sorted_by(|a, b| a >= b) && rests[7] == Duration::ZERO, "{rests:?}");
    }
}
