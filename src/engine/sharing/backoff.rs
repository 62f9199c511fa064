//! Producers that did not answer, for instance because they are stopped. They are skipped for a backoff period, which
//! doubles each time, so that consumers do not wait for them again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first backoff period, and the longest.
const FIRST: Duration = Duration::from_secs(5);
const MOST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct BackoffPlaces(BTreeMap<u32, PlaceBackoff>);

struct PlaceBackoff {
    until: Instant,
    pause: Duration,
}

impl BackoffPlaces {
    pub(super) fn note(&mut self, number: u32, now: Instant) {
        let pause = self.0.get(&number).map_or(FIRST, |place| (2 * place.pause).min(MOST));
        self.0.insert(number, PlaceBackoff { until: now + pause, pause });
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.0.remove(&number);
    }

    pub(super) fn has(&self, number: u32, now: Instant) -> bool {
        self.0.get(&number).is_some_and(|place| now < place.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_silent_is_let_alone_for_longer_each_time() {
        let start = Instant::now();
        let mut backoff = BackoffPlaces::default();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(!backoff.has(3, now));
            backoff.note(3, now);
            let until = (1..)
                .map(|seconds| now + Duration::from_secs(seconds))
                .find(|at| !backoff.has(3, *at))
                .unwrap();
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 60]);
        backoff.note(3, now);
        assert!(backoff.has(3, now) && !backoff.has(2, now));
        backoff.forget(3);
        assert!(!backoff.has(3, now));
    }
}
