//! Decides when the counters of requests to the job's other nodes are logged.

use base::trace::TraceLane;
use std::time::{Duration, Instant};
use store::peers::peers_record;
use store::tier::Cache;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The number of records after which the time between records doubles. Each time the length of a run doubles, the log
/// therefore grows by at most this many records (about 500 KB with many nodes), plus one record for each epoch.
const PER_LEVEL: u32 = 64;

pub(crate) struct PeersLog {
    next: Option<Instant>,
    pause: Duration,
    records: u32,
}

impl PeersLog {
    pub(crate) fn new() -> Self {
        Self { next: None, pause: FIRST_PAUSE, records: 0 }
    }

    pub(crate) fn tick(&mut self, lane: &mut TraceLane, now: Instant, cache: Option<&Cache>) {
        if lane.is_on() && self.is_due(now) {
            self.record(lane, now, cache);
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        if *self.next.get_or_insert(now + self.pause) > now {
            return false;
        }
        self.next = Some(now + self.pause);
        self.records += 1;
        if self.records.is_multiple_of(PER_LEVEL) {
            self.pause *= 2;
        }
        true
    }

    pub(crate) fn record(&self, lane: &mut TraceLane, now: Instant, cache: Option<&Cache>) {
        if lane.is_on()
            && let Some(record) = cache.and_then(|cache| peers_record(cache.peers()))
        {
            lane.peers(now, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_takes_few_records_and_the_first_minute_one_a_second() {
        let (begin, mut log) = (Instant::now(), PeersLog::new());
        let mut due = |seconds| log.is_due(begin + Duration::from_secs(seconds));
        assert_eq!((0..=60).filter(|&second| due(second)).count(), 60);
        let rest = (61..86_400).filter(|&second| due(second)).count();
        assert!((400..=11 * PER_LEVEL as usize).contains(&rest), "{rest}");
    }
}
