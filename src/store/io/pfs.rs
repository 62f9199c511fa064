//! A model of the waiting times of a parallel file system: one queue for metadata, one for bytes, and a limit on
//! concurrent requests.
//!
//! It is pure arithmetic over a clock. [`super::DelayedReader`] delays readers by it.

use super::ReadStats;
use base::locks::lock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The latencies, rates and limits of a parallel file system.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ParallelFsRates {
    /// The latency of opening a file. Each file is opened once, so a shard with many samples has this latency only
    /// once.
    pub open: Duration,
    /// The time from a request for bytes until the first byte arrives.
    pub read: Duration,
    /// The bandwidth that all readers share, in bytes per second.
    pub bandwidth: Option<f64>,
    /// The number of files per second that all readers together can open.
    pub opens: Option<f64>,
    /// The maximum number of requests that are served concurrently. Further requests wait in a queue.
    pub concurrency: Option<usize>,
}

impl fmt::Display for ParallelFsRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open {:?}, read {:?}", self.open, self.read)?;
        if let Some(bandwidth) = self.bandwidth {
            write!(f, ", {} MB/s", bandwidth / 1e6)?;
        }
        if let Some(opens) = self.opens {
            write!(f, ", {opens} opens/s")?;
        }
        self.concurrency.map_or(Ok(()), |limit| write!(f, ", {limit} at once"))
    }
}

/// A model of a parallel file system. All readers that share the model share its queues.
#[derive(Debug)]
pub struct ParallelFsModel {
    rates: ParallelFsRates,
    start: Instant,
    queues: Mutex<Queues>,
}

/// The counters of a [`ParallelFsModel`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PfsStats {
    /// The number of files opened, the number of requests served, and the number of bytes returned.
    pub reads: ReadStats,
    /// Seconds in which at least one request was being served.
    pub busy_seconds: f64,
}

impl ParallelFsModel {
    /// Makes a file system with empty queues.
    pub fn new(rates: ParallelFsRates) -> Self {
        Self { rates, start: Instant::now(), queues: Mutex::default() }
    }

    /// Returns the rates of the file system.
    pub fn rates(&self) -> &ParallelFsRates {
        &self.rates
    }

    /// Returns the time at which a read of `bytes`, requested now, is answered. `opens` is true if the file must be
    /// opened for the read.
    pub fn read(&self, opens: bool, bytes: u64) -> Instant {
        self.serve(opens, Some(bytes))
    }

    /// Returns the time at which a file is open, if it is opened now.
    pub fn open(&self) -> Instant {
        self.serve(true, None)
    }

    fn serve(&self, opens: bool, bytes: Option<u64>) -> Instant {
        let mut queues = lock(&self.queues);
        let now = self.start.elapsed().as_secs_f64();
        self.start + Duration::from_secs_f64(queues.serve(&self.rates, now, opens, bytes))
    }

    /// Returns the counters so far. A request counts when it is made.
    pub fn stats(&self) -> PfsStats {
        lock(&self.queues).stats
    }
}

/// The times until which the queues are busy, in seconds on a monotonic clock.
#[derive(Debug, Default)]
struct Queues {
    metadata: f64,
    bytes: f64,
    busy: f64,
    served: BinaryHeap<Reverse<Time>>,
    stats: PfsStats,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Queues {
    /// Returns the time at which a request made at `now` is answered. The request's bytes join the queue for bandwidth
    /// as soon as the request is in service. So latencies never leave bandwidth unused while requests wait.
    fn serve(&mut self, rates: &ParallelFsRates, now: f64, opens: bool, bytes: Option<u64>) -> f64 {
        let begin = now.max(self.earliest_start(rates));
        let opened = match opens {
            true => {
                let opening = begin.max(self.metadata);
                self.metadata = opening + rates.opens.map_or(0.0, |opens| 1.0 / opens);
                opening + rates.open.as_secs_f64()
            }
            false => begin,
        };
        let end = match bytes {
            None => opened,
            Some(bytes) => {
                let transfer = rates.bandwidth.map_or(0.0, |bandwidth| bytes as f64 / bandwidth);
                self.bytes = self.bytes.max(begin) + transfer;
                self.bytes.max(opened + rates.read.as_secs_f64() + transfer)
            }
        };
        if rates.concurrency.is_some() {
            self.served.push(Reverse(Time(end)));
        }
        self.count(begin, end, opens, bytes);
        end
    }

    /// Returns the earliest time at which one more request can be in service. At the limit, this is the end of the
    /// request that ends first; the new request takes its place.
    fn earliest_start(&mut self, rates: &ParallelFsRates) -> f64 {
        match rates.concurrency {
            Some(limit) if self.served.len() >= limit.max(1) => {
                self.served.pop().map_or(0.0, |Reverse(Time(end))| end)
            }
            _ => 0.0,
        }
    }

    fn count(&mut self, begin: f64, end: f64, opens: bool, bytes: Option<u64>) {
        self.stats.reads.bytes += bytes.unwrap_or(0);
        self.stats.reads.reads += u64::from(bytes.is_some());
        self.stats.reads.opens += u64::from(opens);
        // Requests begin in the order in which they are made. So only busy time after `self.busy` is not counted yet.
        self.stats.busy_seconds += (end - begin.max(self.busy)).max(0.0);
        self.busy = self.busy.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, RandomStream, Use};

    const RATES: ParallelFsRates = ParallelFsRates {
        open: Duration::from_millis(2),
        read: Duration::from_millis(1),
        bandwidth: Some(200e6),
        opens: Some(5000.0),
        concurrency: Some(16),
    };

    #[test]
    fn a_single_read_pays_open_read_and_transfer() {
        let mut queues = Queues::default();
        let close = |seconds: f64, expected: f64| assert!((seconds - expected).abs() < 1e-9, "{seconds}");
        close(queues.serve(&RATES, 0.0, true, Some(200_000)), 0.004);
        close(queues.serve(&RATES, 1.0, false, Some(200_000)), 1.002);
        close(queues.serve(&RATES, 2.0, false, Some(8_000_000)), 2.041);
        close(queues.serve(&RATES, 3.0, true, None), 3.002);
        close(queues.stats.busy_seconds, 0.004 + 0.002 + 0.041 + 0.002);
        let free = ParallelFsRates::default();
        assert_eq!(Queues::default().serve(&free, 3.0, true, Some(1 << 40)), 3.0);
    }

    #[test]
    fn large_reads_stream_and_opens_stand_in_line() {
        let mut queues = Queues::default();
        let last = (0..25).map(|_| queues.serve(&RATES, 0.0, false, Some(8_000_000))).last().unwrap();
        assert!((1.0..1.01).contains(&last), "200 MB at 200 MB/s: {last}");
        let mut queues = Queues::default();
        let small = ParallelFsRates { concurrency: None, ..RATES };
        let last = (0..5000).map(|_| queues.serve(&small, 0.0, true, Some(100))).last().unwrap();
        assert!((1.0..1.01).contains(&last), "5000 opens at 5000 a second: {last}");
    }

    fn random(seed: u64) -> RandomStream {
        RandomKey::new(b"pfs tests", seed, 0, Use::Order).stream(0)
    }

    #[test]
    fn no_promise_is_broken_whatever_is_asked() {
        for seed in 0..50 {
            let mut random = random(seed);
            let mut queues = Queues::default();
            let (mut now, mut served) = (0.0, Vec::new());
            for _ in 0..500 {
                now += random.below(1000) as f64 * 1e-6 * random.below(2) as f64;
                let bytes = random.below(300_000);
                let opens = random.below(2) == 0;
                let end = queues.serve(&RATES, now, opens, Some(bytes));
                let least = 1e-3 + if opens { 2e-3 } else { 0.0 } + bytes as f64 / 200e6;
                assert!(end - now >= least - 1e-9, "seed {seed}: {end} after {now}");
                served.push((end, least, bytes, opens));
            }
            served.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (mut bytes, mut opens) = (0, 0);
            for &(end, _, of_one, opened) in &served {
                bytes += of_one;
                opens += u64::from(opened);
                assert!(bytes as f64 <= 200e6 * end + 1.0, "seed {seed}: {bytes} bytes in {end} s");
                assert!((opens as f64) <= 5000.0 * end + 1.0, "seed {seed}: {opens} opens in {end} s");
            }
            // Each request is certainly in service during the last `least` seconds before its end.
            for &(at, ..) in &served {
                let together =
                    served.iter().filter(|(end, least, ..)| end - least < at - 1e-9 && at <= *end).count();
                assert!(together <= 16, "seed {seed}: {together} at once");
            }
            assert!(queues.stats.busy_seconds <= queues.busy, "seed {seed}");
            assert_eq!((queues.stats.reads.bytes, queues.stats.reads.opens), (bytes, opens));
        }
    }
}
