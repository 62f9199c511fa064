//! How long to wait for a peer, from how long it took before. Pure.
//!
//! A read waits for two things: for the bytes that were asked for before its own, and its own; and for all else, which
//! is the latency. Bytes take what they take at the rate at which the peer's bytes came lately. The latency is what
//! reads took beyond that. A deadline allows a multiple of both.

use base::trace::Histogram;
use std::time::{Duration, Instant};

/// The answers in a window. Two windows count, so that an answer is forgotten after at most twice as many.
const WINDOW: u32 = 1024;

/// After how many answers deadlines are computed anew, and the fewest that say anything.
const STEP: u32 = 32;

/// The share of answers whose latency the deadline allows a multiple of.
const QUANTILE: f64 = 0.99;

/// What deadlines may be.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLimits {
    /// The latency that the first reads are allowed, of which nothing is known.
    pub first: Duration,
    /// The shortest latency that is allowed.
    pub floor: Duration,
    /// The longest latency that is allowed.
    pub ceiling: Duration,
    /// What is allowed, as a multiple of the latency of 99 of 100 reads, and of the time for the bytes.
    pub factor: f64,
    /// The bytes a second that a peer is taken to give at least, and the first reads to get.
    pub slowest: u64,
}

impl Default for DeadlineLimits {
    /// 1 second at first; then 4 times the latency of 99 %, from 100 milliseconds to 2 seconds; with 4 times the time
    /// for the bytes, at 100 MB/s or more, as networks of 1 Gbit/s give it.
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
    /// How long a peer may take for a request of so many bytes that waits for no other, whatever it took before.
    pub fn longest(&self, bytes: u64) -> Duration {
        self.ceiling + Duration::from_secs_f64(self.factor * bytes as f64 / self.slowest as f64)
    }
}

/// A read that was posted, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct PostedRead {
    posted: Instant,
    /// When it must be answered.
    pub deadline: Instant,
    bytes: u64,
    /// The time for its bytes and for those before them, at the usual rate.
    for_bytes: Duration,
}

impl PostedRead {
    /// How long it has taken so far.
    pub fn took(&self) -> Duration {
        self.posted.elapsed()
    }
}

/// How a read ended, as far as deadlines are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// Its bytes came.
    Arrived,
    /// It was given up at its deadline.
    Late,
    /// It was answered without bytes, or failed, which says nothing of how long reads take.
    Other,
}

/// The deadlines of reads from one peer.
pub struct RequestDeadline {
    limits: DeadlineLimits,
    /// The latency that is allowed.
    latency: Duration,
    /// The latency of 99 of 100 reads, once it is known.
    usual: Option<Duration>,
    /// The usual bytes a second.
    rate: f64,
    recent: AnswerWindow,
    before: AnswerWindow,
    /// The reads that were posted and have not ended, and their bytes.
    reads: u32,
    bytes: u64,
    /// Up to when the time with reads under way is counted.
    counted: Instant,
}

/// What some answers in a row were like.
#[derive(Default)]
struct AnswerWindow {
    /// What the reads took beyond the time for their bytes.
    latencies: Histogram,
    answers: u32,
    /// The bytes that came, and the time in which reads were under way.
    bytes: u64,
    busy: Duration,
}

impl RequestDeadline {
    /// No answer has been seen yet.
    pub fn new(limits: DeadlineLimits, now: Instant) -> Self {
        Self {
            limits,
            latency: limits.first.min(limits.ceiling),
            usual: None,
            rate: limits.slowest as f64,
            recent: AnswerWindow::default(),
            before: AnswerWindow::default(),
            reads: 0,
            bytes: 0,
            counted: now,
        }
    }

    /// How long a read of so many bytes may take that is posted now.
    pub fn allowed(&self, bytes: u64) -> Duration {
        self.latency + self.for_bytes(bytes).mul_f64(self.limits.factor)
    }

    /// How long 99 of 100 reads of so many bytes take, posted now; `None` while too few have ended to say.
    pub fn usual(&self, bytes: u64) -> Option<Duration> {
        Some(self.usual? + self.for_bytes(bytes))
    }

    /// The time for bytes that are asked for now, at the usual rate.
    fn for_bytes(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64((self.bytes + bytes) as f64 / self.rate)
    }

    /// A read of so many bytes is posted. Its end is to be told.
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

    /// Learns how a read ended. One that was late took as long as it was allowed, so that what a peer is allowed that
    /// became slow grows again.
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
            self.learn();
        }
        if self.recent.answers == WINDOW {
            self.before = std::mem::take(&mut self.recent);
        }
    }

    fn learn(&mut self) {
        let mut latencies = self.before.latencies.clone();
        latencies += &self.recent.latencies;
        let usual = Duration::from_secs_f64(latencies.quantile(QUANTILE));
        self.usual = Some(usual);
        self.latency = usual.mul_f64(self.limits.factor).clamp(self.limits.floor, self.limits.ceiling);
        let busy = (self.before.busy + self.recent.busy).as_secs_f64();
        let rate = (self.before.bytes + self.recent.bytes) as f64 / busy.max(1e-9);
        self.rate = rate.max(self.limits.slowest as f64);
    }

    /// Counts the time until `now`, if reads were under way.
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

    /// A clock that the test sets, and deadlines by it.
    struct World {
        now: Instant,
        deadline: RequestDeadline,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            Self { now, deadline: RequestDeadline::new(LIMITS, now) }
        }

        /// Reads of so many bytes, one after another, each of which takes so long, or ends at its deadline.
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
        // Nothing is known yet: 0.3 s at 100 MB/s, four times.
        assert_eq!(world.deadline.allowed(large), LIMITS.first + Duration::from_millis(1200));
        let before = world.deadline.post(large, world.now);
        assert_eq!(world.deadline.allowed(large), LIMITS.first + Duration::from_millis(2400));
        world.deadline.end(&before, ReadEnd::Other, world.now);
        // 125 MB/s, and a millisecond: none is late, and what is allowed is a multiple of that.
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
                // They come one behind the other, at 110 MB/s.
                world.now += Duration::from_secs_f64(8.0 / 110.0);
                assert!(world.now < read.deadline);
                world.deadline.end(&read, ReadEnd::Arrived, world.now);
            }
            // Time in which nothing is asked for says nothing of the rate.
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
