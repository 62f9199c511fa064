//! Measures how fast other nodes send samples. The samples are synthetic and in memory. The client is the same as in
//! training.

use super::client::{BreakerLimits, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerRead};
use super::served_cache::{Accepted, CopyBytes, Found, ServedCache};
use super::wire::SharedDataset;
use crate::io::Waker;
use base::crc::checksum;
use base::error::Result;
use base::slot::SlotPool;
use base::trace::Histogram;
use bytes::Bytes;
use data::dataset::{FileVersion, Fingerprint};
use data::http::{DeadlineLimits, Token};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size in bytes of the small sample, whose reads measure the round trip alone.
const SMALL: u32 = 1000;

/// The total size in bytes of the large samples, chosen so that they do not fit into a processor's caches.
const LARGE_TOTAL: u64 = 64 << 20;

const MAX_BYTES_IN_FLIGHT: usize = 256 << 20;

const VERSION: FileVersion = FileVersion(1);

const MAX_LATENCY_READS: u64 = 500;

/// After this many consecutive failures, the probe stops measuring a peer. If a firewall drops packets, each failure
/// takes a whole deadline.
const FAILURES_TO_GIVE_UP: u64 = 2;

/// The deadline of a read. A slower peer would be useless for training, too.
const DEADLINE: Duration = Duration::from_secs(1);

/// How much longer than its limit [`PeerProbe::measure_latency`] takes at most, if no answer arrives.
pub const LONGEST_WITHOUT_ANSWER: Duration = DEADLINE.saturating_mul(FAILURES_TO_GIVE_UP as u32);

/// Returns the identity of the synthetic dataset, for the job with this secret.
pub fn probe_dataset(secret: &[u8; 32]) -> SharedDataset {
    SharedDataset::of_job(Fingerprint(*b"foreload doctor --peers measures"), secret)
}

fn large_samples(size: u32) -> u64 {
    (LARGE_TOTAL / u64::from(size)).clamp(4, 256)
}

/// Returns the maximum number of bytes in flight, for samples of `size` bytes and this many connections. Per
/// connection, one sample is transferred and another one waits.
pub fn most_in_flight(size: u32, connections: usize) -> usize {
    let size = size as usize;
    size * (2 * connections).min((MAX_BYTES_IN_FLIGHT / size).max(1))
}

/// Synthetic samples in memory. Sample 0 is small; all other samples have the size that the user chose.
pub struct ProbeSamples(Vec<(Bytes, u32)>);

impl ProbeSamples {
    /// Makes the small sample, and large samples of `size` bytes.
    pub fn new(size: u32) -> Self {
        let sample = |number: u64, size: u32| {
            // Any bytes will do, because nothing on the way compresses or interprets them.
            let bytes: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(31) ^ number as u8).collect();
            let crc = checksum(&bytes);
            (Bytes::from(bytes), crc)
        };
        let large = (1..=large_samples(size)).map(|number| sample(number, size));
        Self(std::iter::once(sample(0, SMALL)).chain(large).collect())
    }
}

impl ServedCache for ProbeSamples {
    fn find(&self, sample: u64, _version: Option<FileVersion>) -> Found {
        self.0.get(sample as usize).map_or(Found::Absent, |(bytes, crc)| Found::Copy {
            bytes: CopyBytes::Memory(bytes.clone()),
            crc: *crc,
            version: VERSION,
        })
    }

    fn length(&self, sample: u64) -> Option<u32> {
        self.0.get(sample as usize).map(|(bytes, _)| bytes.len() as u32)
    }

    fn damaged(&self, _sample: u64, _crc: u32) {}

    fn accept(&self, _sample: u64, _version: FileVersion, _crc: u32, _bytes: &[u8]) -> Accepted {
        Accepted::Off
    }
}

/// The results of the reads from one peer.
#[derive(Debug, Default)]
pub struct ProbedReads {
    /// The number of samples that arrived.
    pub samples: u64,
    /// The number of bytes in the samples that arrived.
    pub bytes: u64,
    /// The time from the first read to the last answer.
    pub seconds: f64,
    /// The latencies of the samples that arrived.
    pub latency: Histogram,
    /// The number of samples that did not arrive, by reason.
    pub missed: BTreeMap<Miss, u64>,
}

/// Measures reads from peers that serve [`ProbeSamples`].
pub struct PeerProbe {
    transfer: HttpTransfer,
    slots: SlotPool,
    size: u32,
    depth: usize,
    posted: u64,
    since: BTreeMap<u64, Instant>,
    answers: Vec<PeerAnswer>,
}

impl PeerProbe {
    /// Makes a probe for samples of `size` bytes, with up to `connections` connections per peer.
    ///
    /// # Errors
    /// [`Error::Config`](base::error::Error::Config) for `memory` if there is no memory for buffers;
    /// [`Error::Unavailable`](base::error::Error::Unavailable) if the system refuses a thread.
    pub fn new(
        peers: &[Peer],
        dataset: SharedDataset,
        token: Token,
        size: u32,
        connections: usize,
    ) -> Result<Self> {
        let depth = most_in_flight(size, connections) / size as usize;
        let options = HttpOptions {
            connections,
            depth,
            deadline: DeadlineLimits {
                first: DEADLINE,
                floor: DEADLINE,
                ceiling: DEADLINE,
                ..DeadlineLimits::default()
            },
            // The probe itself stops measuring a failing peer, so the breaker must never open.
            breaker: BreakerLimits { failures: u32::MAX, ..BreakerLimits::default() },
            ..HttpOptions::new(dataset, token)
        };
        Ok(Self {
            transfer: HttpTransfer::new(peers, &options, Waker(Arc::new(|| {})))?,
            slots: SlotPool::new((depth + 2) * (size.max(SMALL) as usize).next_multiple_of(4096))?,
            size,
            depth,
            posted: 0,
            since: BTreeMap::new(),
            answers: Vec::new(),
        })
    }

    /// Reads the small sample from a peer for the time `limit`, one read at a time. The first read opens the connection
    /// and is not counted.
    ///
    /// # Errors
    /// The error that ended the client's thread.
    pub fn measure_latency(&mut self, peer: usize, limit: Duration) -> Result<ProbedReads> {
        let mut connected = ProbedReads::default();
        self.read(peer, 0, |reads, _| reads.samples == 0, 1, &mut connected)?;
        let mut reads = ProbedReads { missed: connected.missed, ..ProbedReads::default() };
        if connected.samples > 0 {
            self.read(
                peer,
                0,
                |reads, spent| reads.samples < MAX_LATENCY_READS && spent < limit,
                1,
                &mut reads,
            )?;
        }
        Ok(reads)
    }

    /// Reads large samples from a peer for the time `limit`, over all connections at once.
    ///
    /// # Errors
    /// The error that ended the client's thread.
    pub fn measure_throughput(&mut self, peer: usize, limit: Duration) -> Result<ProbedReads> {
        let mut reads = ProbedReads::default();
        self.read(peer, large_samples(self.size), |_, spent| spent < limit, self.depth, &mut reads)?;
        Ok(reads)
    }

    /// Reads the samples 1 to `large` in turn, or sample 0 if `large` is 0. Keeps `depth` reads in flight while `more`
    /// returns `true`.
    fn read(
        &mut self,
        peer: usize,
        large: u64,
        more: impl Fn(&ProbedReads, Duration) -> bool,
        depth: usize,
        reads: &mut ProbedReads,
    ) -> Result<()> {
        let (begin, mut failures) = (Instant::now(), 0);
        loop {
            let goes_on = failures < FAILURES_TO_GIVE_UP.max(depth as u64) && more(reads, begin.elapsed());
            while goes_on && self.transfer.in_flight() < depth {
                let (sample, length) =
                    if large == 0 { (0, SMALL) } else { (1 + self.posted % large, self.size) };
                let Some(slot) = self.slots.try_take(length as usize) else { break };
                let token = self.posted;
                self.posted += 1;
                self.since.insert(token, Instant::now());
                let (version, most) = (Some(VERSION), length);
                self.transfer.post(PeerRead { token, peer, sample, length, most, version, slot });
            }
            if self.transfer.in_flight() == 0 {
                break;
            }
            // Each read is answered by its deadline, even if the client's thread has ended.
            self.transfer.wait_until(None, &mut self.answers)?;
            for PeerAnswer { token, result, .. } in self.answers.drain(..) {
                let since = self.since.remove(&token);
                match result {
                    Ok(copy) => {
                        failures = 0;
                        reads.samples += 1;
                        reads.bytes += copy.bytes.len() as u64;
                        reads.latency.record(since.map_or(Duration::ZERO, |since| since.elapsed()));
                    }
                    Err(miss) => {
                        failures += 1;
                        *reads.missed.entry(miss).or_default() += 1;
                    }
                }
            }
        }
        reads.seconds = begin.elapsed().as_secs_f64();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Server, ServerOptions};

    #[test]
    fn samples_come_from_a_shelf_and_nothing_from_where_nobody_listens() {
        let (secret, size) = ([7; 32], 20_000);
        let (token, dataset) = (Token::of_job(&secret), probe_dataset(&secret));
        let server =
            Server::start(ServerOptions::new("127.0.0.1:0".parse().unwrap(), token.clone())).unwrap();
        server.share(dataset, Arc::new(ProbeSamples::new(size)));
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let peers = [server.address(), nobody].map(|address| Peer { address, pin: None });
        let mut probe = PeerProbe::new(&peers, dataset, token, size, 4).unwrap();
        let latency_reads = probe.measure_latency(0, Duration::from_secs(60)).unwrap();
        assert_eq!(
            (latency_reads.samples, latency_reads.latency.count()),
            (MAX_LATENCY_READS, MAX_LATENCY_READS)
        );
        assert!(latency_reads.missed.is_empty(), "{latency_reads:?}");
        let throughput_reads = probe.measure_throughput(0, Duration::from_millis(50)).unwrap();
        assert!(throughput_reads.samples >= 8 && throughput_reads.missed.is_empty(), "{throughput_reads:?}");
        assert_eq!(throughput_reads.bytes, throughput_reads.samples * u64::from(size));
        let (latency_reads, throughput_reads) = (
            probe.measure_latency(1, Duration::from_secs(1)),
            probe.measure_throughput(1, Duration::from_secs(60)),
        );
        for reads in [latency_reads, throughput_reads] {
            let reads = reads.unwrap();
            assert!(
                reads.samples == 0 && reads.missed[&Miss::Unreachable] >= FAILURES_TO_GIVE_UP,
                "{reads:?}"
            );
        }
    }
}
