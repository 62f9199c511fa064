//! How long to wait for a peer's response, derived from earlier responses. Pure.
//!
//! The duration of a read has two parts. The first is the transfer of its bytes and of all bytes requested before them,
//! at the recent transfer rate of the peer. The second is the latency: the rest of the duration. A deadline allows a
//! multiple of both parts.

use base::trace::Histogram;
use std::time::{Duration, Instant};

/// Number of responses in a window. Deadlines depend on the last two windows, so a response has no effect after at most
/// `2 * WINDOW` later responses.
const WINDOW: u32 = 1024;

/// Number of responses between two computations of the deadline, and minimum number for the first computation.
const STEP: u32 = 32;

/// Quantile of the latencies. The deadline allows a multiple of the latency at this quantile.
const QUANTILE: f64 = 0.99;

/// Limits of deadlines.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLimits {
    /// Latency that is allowed before anything was measured.
    pub first: Duration,
    /// Shortest latency that is allowed.
    pub floor: Duration,
    /// Longest latency that is allowed.
    pub ceiling: Duration,
    /// Factor by which the 99th percentile of the latency and the time for the bytes are multiplied.
    pub factor: f64,
    /// Lower bound of the assumed rate in bytes a second, and the rate assumed before anything was measured.
    pub slowest: u64,
}

impl Default for DeadlineLimits {
    /// Allows a latency of 1 second at first. Later, the allowed latency is 4 times its 99th percentile, from 100
    /// milliseconds to 2 seconds. The transfer may take 4 times as long as at the measured rate, or at 100 MB/s (a
    /// network of 1 Gbit/s) if that is faster.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            floor: Duration::from_millis(100),
            ceiling: Duration::from_secs(2),
            factor: 4.0,
            slowest: 100_000_000,
        }
    }
}

impl DeadlineLimits {
    /// Returns the longest possible deadline for a request of `bytes` bytes while no other read is in flight.
    pub fn longest(&self, bytes: u64) -> Duration {
        self.ceiling + Duration::from_secs_f64(self.factor * bytes as f64 / self.slowest as f64)
    }
}

/// A read that was posted, with its deadline.
#[derive(Debug, Clone, Copy)]
pub struct PostedRead {
    posted: Instant,
    /// Time by which the read must have ended.
    pub deadline: Instant,
    bytes: u64,
    /// Time to transfer this read and all reads that were posted before it, at the usual rate.
    for_bytes: Duration,
}

impl PostedRead {
    /// Returns the time since the read was posted.
    pub fn took(&self) -> Duration {
        self.posted.elapsed()
    }
}

/// How a read ended, for the computation of deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// The bytes arrived.
    Arrived,
    /// The read was given up at its deadline.
    Late,
    /// The read failed, or the response contained no bytes. This says nothing about the duration of reads.
    Other,
}

/// The deadlines of reads from one peer.
pub struct RequestDeadline {
    limits: DeadlineLimits,
    /// The latency that new deadlines allow.
    latency: Duration,
    /// 99th percentile of the latency; `None` before the first measurement.
    usual: Option<Duration>,
    /// The usual transfer rate in bytes per second.
    rate: f64,
    recent: ResponseWindow,
    before: ResponseWindow,
    /// Number of reads that were posted and have not ended, and their bytes.
    reads: u32,
    bytes: u64,
    /// Time up to which `busy` is counted.
    counted: Instant,
}

/// Measurements over a number of consecutive responses.
#[derive(Default)]
struct ResponseWindow {
    /// Latencies of the reads: their durations minus the time to transfer their bytes.
    latencies: Histogram,
    answers: u32,
    /// Bytes that arrived, and the time in which at least one read was in flight.
    bytes: u64,
    busy: Duration,
}

impl RequestDeadline {
    /// Starts without measurements.
    pub fn new(limits: DeadlineLimits, now: Instant) -> Self {
        Self {
            limits,
            latency: limits.first.min(limits.ceiling),
            usual: None,
            rate: limits.slowest as f64,
            recent: ResponseWindow::default(),
            before: ResponseWindow::default(),
            reads: 0,
            bytes: 0,
            counted: now,
        }
    }

    /// Returns the time allowed for a read of `bytes` bytes that is posted now.
    pub fn allowed(&self, bytes: u64) -> Duration {
        self.latency + self.for_bytes(bytes).mul_f64(self.limits.factor)
    }

    /// Returns the time within which 99 % of reads of `bytes` bytes end, if posted now; `None` before the first
    /// measurement.
    pub fn usual(&self, bytes: u64) -> Option<Duration> {
        Some(self.usual? + self.for_bytes(bytes))
    }

    /// Returns the time to transfer `bytes` bytes after all bytes that are already in flight, at the usual rate.
    fn for_bytes(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64((self.bytes + bytes) as f64 / self.rate)
    }

    /// Registers a read. The caller must report its end with [`RequestDeadline::end`].
    pub fn post(&mut self, bytes: u64, now: Instant) -> PostedRead {
        let read = PostedRead {
            posted: now,
            deadline: now + self.allowed(bytes),
            bytes,
            for_bytes: self.for_bytes(bytes),
        };
        self.count_until(now);
        self.reads += 1;
        self.bytes += bytes;
        read
    }

    /// Records how a read ended. A timeout counts as a measured latency at the limit, so that the limit of a peer that
    /// became slower can grow again.
    pub fn end(&mut self, read: &PostedRead, end: ReadEnd, now: Instant) {
        self.count_until(now);
        self.reads -= 1;
        self.bytes -= read.bytes;
        if end == ReadEnd::Other {
            return;
        }
        if end == ReadEnd::Arrived {
            self.recent.bytes += read.bytes;
        }
        let took = now.saturating_duration_since(read.posted);
        self.recent.latencies.record(took.saturating_sub(read.for_bytes));
        self.recent.answers += 1;
        if self.recent.answers.is_multiple_of(STEP) {
            self.recompute();
        }
        if self.recent.answers == WINDOW {
            self.before = std::mem::take(&mut self.recent);
        }
    }

    fn recompute(&mut self) {
        let mut latencies = self.before.latencies.clone();
        latencies += &self.recent.latencies;
        let usual = Duration::from_secs_f64(latencies.quantile(QUANTILE));
        self.usual = Some(usual);
        self.latency = usual.mul_f64(self.limits.factor).clamp(self.limits.floor, self.limits.ceiling);
        let busy = (self.before.busy + self.recent.busy).as_secs_f64();
        let rate = (self.before.bytes + self.recent.bytes) as f64 / busy.max(1e-9);
        self.rate = rate.max(self.limits.slowest as f64);
    }

    /// Counts the time until `now` as busy, if reads were in flight.
    fn count_until(&mut self, now: Instant) {
        if self.reads > 0 {
            self.recent.busy += now.saturating_duration_since(self.counted);
        }
        self.counted = self.counted.max(now);
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
        slowest: 100_000_000,
    };

    struct World {
        now: Instant,
        deadline: RequestDeadline,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            Self { now, deadline: RequestDeadline::new(LIMITS, now) }
        }

        /// Makes reads of `bytes` bytes, one after another. Each takes the given time, or ends at its deadline.
        fn read(&mut self, bytes: u64, times: impl IntoIterator<Item = Duration>) -> Duration {
            for time in times {
                let read = self.deadline.post(bytes, self.now);
                let arrives = self.now + time;
                self.now = arrives.min(read.deadline);
                let end = if self.now == arrives { ReadEnd::Arrived } else { ReadEnd::Late };
                self.deadline.end(&read, end, self.now);
            }
            self.deadline.allowed(0)
        }
    }

    fn after(times: impl IntoIterator<Item = u64>) -> Duration {
        World::new().read(0, times.into_iter().map(Duration::from_micros))
    }

    #[test]
    fn it_follows_the_latency_of_99_of_100_reads() {
        assert_eq!(after([]), LIMITS.first);
        assert_eq!(after([9; 31]), LIMITS.first, "too few to say anything");
        let usual = (0..1000).map(|i| if i % 100 < 98 { 1000 } else { 5000 });
        let found = after(usual).as_secs_f64();
        assert!((found - 0.020).abs() < 0.002, "{found}");
        assert_eq!(after([1; 100]), LIMITS.floor);
        assert_eq!(after([290_000; 100]), LIMITS.ceiling);
    }

    #[test]
    fn a_peer_that_became_slow_gets_longer_and_is_forgiven() {
        let mut world = World::new();
        let quick = [Duration::from_millis(2); 2 * WINDOW as usize];
        let late = [Duration::from_secs(3600); 2 * WINDOW as usize];
        assert!(world.read(0, quick) < Duration::from_millis(10));
        assert_eq!(world.read(0, late), LIMITS.ceiling);
        assert!(world.read(0, quick) < Duration::from_millis(10));
    }

    #[test]
    fn bytes_are_given_their_time_and_that_of_those_before_them() {
        let mut world = World::new();
        let large = 30_000_000;
        // Before any measurement: 30 MB take 0.3 s at the assumed 100 MB/s, and 4 times that is allowed.
        assert_eq!(world.deadline.allowed(large), LIMITS.first + Duration::from_millis(1200));
        let before = world.deadline.post(large, world.now);
        assert_eq!(world.deadline.allowed(large), LIMITS.first + Duration::from_millis(2400));
        world.deadline.end(&before, ReadEnd::Other, world.now);
        // At 125 MB/s and a latency of 1 ms, a read takes 241 ms. No read is late, and the deadline is a multiple of
        // both parts.
        world.read(large, [Duration::from_millis(241); 200]);
        let allowed = world.deadline.allowed(large);
        let usual = Duration::from_millis(4 * 240);
        assert!(allowed >= usual && allowed < usual + Duration::from_millis(50), "{allowed:?}");
        assert!(world.deadline.allowed(1000) < Duration::from_millis(25));
    }

    #[test]
    fn reads_side_by_side_share_the_rate_and_none_is_late() {
        let mut world = World::new();
        for _ in 0..40 {
            let reads: Vec<_> = (0..16).map(|_| world.deadline.post(8_000_000, world.now)).collect();
            for read in reads {
                world.now += Duration::from_secs_f64(8.0 / 110.0);
                assert!(world.now < read.deadline);
                world.deadline.end(&read, ReadEnd::Arrived, world.now);
            }
            // Idle time does not count for the rate.
            world.now += Duration::from_secs(60);
        }
        let found = world.deadline.rate / 1e6;
        assert!((found - 110.0).abs() < 1.0, "{found} MB/s");
        assert_eq!(world.deadline.allowed(0), LIMITS.floor);
    }

    #[test]
    fn a_peer_that_gives_nothing_is_waited_for_no_longer_than_the_longest() {
        let mut world = World::new();
        let late = [Duration::from_secs(3600); 200];
        world.read(1_000_000, late);
        assert_eq!(world.deadline.allowed(1_000_000), LIMITS.longest(1_000_000));
        assert_eq!(LIMITS.longest(1_000_000), LIMITS.ceiling + Duration::from_millis(40));
    }
}
