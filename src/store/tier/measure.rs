//! Measures how fast a tier is, by reading from it briefly in the way that training reads.

use super::fill::STAGED_READ;
use super::rates::TierRates;
use crate::io::{Completion, ReadRequest, Reader, largest_room, read_room, record_gap};
use base::error::Result;
use base::slot::SlotPool;
use data::dataset::{DatasetIndex, Extent, FileId, Fingerprint};
use data::schedule::Order;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The result of measured reads of one kind.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Reads {
    /// The number of reads in flight.
    pub in_flight: usize,
    /// The number of reads that were answered in time.
    pub reads: u64,
    /// The bytes that the answered reads returned.
    pub bytes: u64,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// The median time of a read, in seconds.
    pub median_seconds: f64,
    #[serde(skip)]
    took: Vec<f64>,
}

/// Makes a reader that reads into slots of the pool, with the given number of reads in flight.
pub type MakeReader<'a> = dyn Fn(&SlotPool, usize) -> Result<Box<dyn Reader>> + 'a;

/// A tier's rates, and the reads that they were computed from.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MeasuredTier {
    /// The reader's description of how it read the tier.
    pub io: String,
    /// The rates that were computed from the reads below.
    pub rates: TierRates,
    /// The first read of each shard, which also opens the shard; one at a time. `None` if no shards were opened.
    pub opened: Option<Reads>,
    /// Reads of samples, one at a time. In a sharded dataset, the shards are open already.
    pub one: Reads,
    /// Reads of samples, with as many in flight as in training.
    pub full: Reads,
    /// Reads of large consecutive chunks; `None` if each sample is a file.
    pub large: Option<Reads>,
    /// The number of requests to servers for all these reads.
    #[serde(skip)]
    pub requests: u64,
}

/// The seed of the random orders in which the measurement reads. No user should have the same seed: the first samples
/// of that user's epoch would be in caches already.
const SEED: u64 = 0x6d65_6173_7572_6521;

/// The maximum number of shards that a measurement reads from.
const SHARDS: u64 = 64;

/// The number of samples that a measurement reads from each open shard, one at a time.
const OF_A_SHARD: u64 = 12;

/// The number of reads of large chunks in flight.
const LARGE: usize = 4;

/// The maximum size of the arena of slots in bytes, unless large samples need more.
const ARENA: usize = 128 << 20;

/// Reads samples of `index` through its own reader for about `limit`: one at a time, then `depth` at a time, then large
/// chunks of shards.
///
/// # Errors
/// The errors of `open`, and of the first read that fails.
pub fn source(
    index: &DatasetIndex,
    open: &MakeReader<'_>,
    depth: usize,
    limit: Duration,
) -> Result<MeasuredTier> {
    let gap = record_gap(index);
    let slots = slots(depth, largest_room(index, gap))?;
    let mut reader = open(&slots, depth)?;
    let io = reader.describe();
    let room = |extent| read_room(index, extent, None, gap);
    let mut meter = RateMeter { reader: &mut *reader, slots: &slots, room: &room };
    let order = Order::shuffled(&index.fingerprint(), SEED, 0, index.len());
    let samples = |from: u64| (from..).map(|position| index.extent(order.sample(position % index.len())));
    if !index.is_sharded() {
        let one = meter.read(&mut samples(0), 1, limit / 3)?;
        // Continue after the samples that `one` counts, because they may be in a cache now.
        let full = meter.read(&mut samples(one.reads), depth, limit * 2 / 3)?;
        return Ok(MeasuredTier {
            io,
            rates: rates(None, &one, &full, None),
            opened: None,
            one,
            full,
            large: None,
            requests: reader.stats().requests,
        });
    }
    let shards = some_shards(index);
    let (opened, one) = meter.shards(index, &shards, limit / 4)?;
    let full = meter.read(&mut samples(0), depth, limit / 2)?;
    let size = |shard| index.shard_stamp(shard).map_or(0, |stamp| stamp.size);
    // Begin with the last shards, because the measurements above read samples of the first shards.
    let chunks: Vec<_> = shards.iter().rev().flat_map(|&shard| chunks(shard, size(shard))).collect();
    let large = meter.read(&mut chunks.into_iter().cycle(), LARGE, limit / 4)?;
    let rates = rates(Some(&opened), &one, &full, Some(&large));
    let requests = reader.stats().requests;
    Ok(MeasuredTier { io, rates, opened: Some(opened), one, full, large: Some(large), requests })
}

/// Reads `length` bytes at random offsets of file 0, which has `size` bytes, for about `limit`: one at a time, `depth`
/// at a time, and in large chunks. `open` makes the reader.
///
/// # Errors
/// The errors of `open`, and of the first read that fails.
pub fn file(
    size: u64,
    length: u32,
    open: &MakeReader<'_>,
    depth: usize,
    limit: Duration,
) -> Result<MeasuredTier> {
    let length = u64::from(length).clamp(1, size.max(1)) as u32;
    let slots = slots(depth, length as usize)?;
    let mut reader = open(&slots, depth)?;
    let io = reader.describe();
    let room = |extent: Extent| extent.length as usize;
    let mut meter = RateMeter { reader: &mut *reader, slots: &slots, room: &room };
    let places = (size / u64::from(length)).max(1);
    let order = Order::shuffled(&Fingerprint([0; 32]), SEED, 0, places);
    let samples = |from: u64| {
        let offset = |number: u64| order.sample(number % places) * u64::from(length);
        (from..).map(move |number| Extent { file: FileId(0), offset: offset(number), length })
    };
    let one = meter.read(&mut samples(0), 1, limit / 4)?;
    let full = meter.read(&mut samples(one.reads), depth, limit / 2)?;
    let large = meter.read(&mut chunks(FileId(0), size).cycle(), LARGE, limit / 4)?;
    let rates = rates(None, &one, &full, Some(&large));
    let requests = reader.stats().requests;
    Ok(MeasuredTier { io, rates, opened: None, one, full, large: Some(large), requests })
}

/// Computes the rates that explain the measurements.
///
/// The bandwidth is the largest that was seen. The latency is the time of a read beyond its transfer. The concurrency
/// follows from the number of reads per second (Little's law, L = λ·W).
fn rates(opened: Option<&Reads>, one: &Reads, full: &Reads, large: Option<&Reads>) -> TierRates {
    let all = [opened, Some(one), Some(full), large];
    let read_bandwidth = all.into_iter().flatten().map(Reads::bandwidth).fold(1.0, f64::max);
    let transfer = one.bytes as f64 / one.reads.max(1) as f64 / read_bandwidth;
    // A small read alone rarely reaches the bandwidth, so almost all of its time is latency. If it does reach the
    // bandwidth, its time minus the transfer time is near zero. The mean time between answers is then used as the
    // latency, because it limits the reads per second.
    let latency = (one.median_seconds - transfer).max(1.0 / full.per_second().max(f64::MIN_POSITIVE));
    let at_once = full.in_flight.max(1) as f64;
    let concurrency = match large {
        // The bandwidth limits these reads, so the number of reads in flight does not.
        Some(large) if full.bandwidth() > 0.9 * large.bandwidth() => at_once,
        _ => (full.per_second() * latency).clamp(1.0, at_once),
    };
    let (open_seconds, read_seconds) = match (opened, large) {
        (Some(opened), _) => ((opened.median_seconds - one.median_seconds).max(0.0), latency),
        // If each sample is a file, every read opens a file. Then the time to open a file and the latency of a read
        // cannot be distinguished, and only their sum matters.
        (None, None) => (latency, 0.0),
        (None, Some(_)) => (0.0, latency),
    };
    TierRates { open_seconds, read_seconds, concurrency, read_bandwidth, write_bandwidth: 0.0 }
}

impl MeasuredTier {
    /// Returns the bytes that were read for the measurement.
    pub fn bytes(&self) -> u64 {
        let all = [self.opened.as_ref(), Some(&self.one), Some(&self.full), self.large.as_ref()];
        all.into_iter().flatten().map(|reads| reads.bytes).sum()
    }
}

impl Reads {
    /// Returns the bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the reads per second.
    pub fn per_second(&self) -> f64 {
        self.reads as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.took.extend(other.took);
        self.note_median();
    }

    fn note_median(&mut self) {
        self.took.sort_by(f64::total_cmp);
        self.median_seconds = self.took.get(self.took.len() / 2).copied().unwrap_or(0.0);
    }
}

fn slots(depth: usize, largest: usize) -> Result<SlotPool> {
    // The sizes include room for alignment.
    let (sample, chunk) = (largest + 8192, STAGED_READ as usize + 8192);
    let least = (2 * sample).max((LARGE + 1) * chunk);
    SlotPool::new((2 * depth * sample).clamp(least, ARENA.max(least)))
}

fn chunks(file: FileId, size: u64) -> impl Iterator<Item = Extent> + Clone {
    (0..size.div_ceil(STAGED_READ)).map(move |chunk| {
        let offset = chunk * STAGED_READ;
        Extent { file, offset, length: STAGED_READ.min(size - offset) as u32 }
    })
}

fn some_shards(index: &DatasetIndex) -> Vec<FileId> {
    let shards: Vec<_> = index.files().filter(|&shard| !index.samples_of(shard).is_empty()).collect();
    let order = Order::shuffled(&index.fingerprint(), SEED, 1, shards.len() as u64);
    (0..order.len().min(SHARDS)).map(|position| shards[order.sample(position) as usize]).collect()
}

struct RateMeter<'a> {
    reader: &'a mut dyn Reader,
    slots: &'a SlotPool,
    /// Returns the length of a slot for the read of an extent.
    room: &'a dyn Fn(Extent) -> usize,
}

impl RateMeter<'_> {
    fn shards(&mut self, index: &DatasetIndex, shards: &[FileId], limit: Duration) -> Result<(Reads, Reads)> {
        let (mut opened, mut one) = (Reads::default(), Reads::default());
        let begun = Instant::now();
        for &shard in shards {
            let samples = index.samples_of(shard);
            let step = (samples.end - samples.start).div_ceil(OF_A_SHARD) as usize;
            let mut extents = samples.step_by(step).map(|sample| index.extent(sample));
            opened.add(self.read(&mut extents.by_ref().take(1), 1, limit)?);
            one.add(self.read(&mut extents, 1, limit.saturating_sub(begun.elapsed()))?);
            if begun.elapsed() >= limit {
                break;
            }
        }
        if one.reads == 0 {
            // Each shard has only one sample, so no sample was read from an open shard.
            one = opened.clone();
        }
        (opened.in_flight, one.in_flight) = (1, 1);
        Ok((opened, one))
    }

    /// Reads `extents`, `depth` at a time, until they end or `limit` has passed. Answers that arrive after `limit` are
    /// awaited but not counted.
    fn read(
        &mut self,
        extents: &mut dyn Iterator<Item = Extent>,
        depth: usize,
        limit: Duration,
    ) -> Result<Reads> {
        let mut reads = Reads { in_flight: depth.min(self.reader.room()).max(1), ..Reads::default() };
        let mut since_posted = HashMap::new();
        let (mut waiting, mut out) = (None, Vec::new());
        let begun = Instant::now();
        let mut next = 0;
        loop {
            while (begun.elapsed() < limit || next == 0) && since_posted.len() < reads.in_flight {
                let Some(extent) = waiting.take().or_else(|| extents.next()) else { break };
                let Some(slot) = self.slots.try_take((self.room)(extent)) else {
                    waiting = Some(extent);
                    break;
                };
                since_posted.insert(next, Instant::now());
                self.reader.submit(ReadRequest::new(next, extent, slot));
                next += 1;
            }
            if since_posted.is_empty() {
                break;
            }
            let in_time = begun.elapsed() < limit || reads.reads == 0;
            self.reader.wait(&mut out)?;
            let now = Instant::now();
            for Completion { token, result, .. } in out.drain(..) {
                let (bytes, since) = (result?.arrived() as u64, since_posted.remove(&token).unwrap_or(now));
                if in_time {
                    reads.reads += 1;
                    reads.bytes += bytes;
                    reads.seconds = (now - begun).as_secs_f64();
                    reads.took.push((now - since).as_secs_f64());
                }
            }
        }
        reads.note_median();
        Ok(reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(in_flight: usize, reads: u64, bytes: u64, seconds: f64, median_seconds: f64) -> Reads {
        Reads { in_flight, reads, bytes, seconds, median_seconds, took: Vec::new() }
    }

    #[test]
    fn rates_explain_what_was_measured() {
        // Opening takes 2 ms, reading 1 ms, and the transfer runs at 200 MB/s. A sample of 100 KB takes 3.5 ms alone;
        // at most 2000 samples are read per second.
        let (opened, one) = (reads(1, 10, 1_000_000, 0.035, 3.5e-3), reads(1, 100, 10_000_000, 0.15, 1.5e-3));
        let full = reads(32, 2000, 200_000_000, 1.0, 16e-3);
        let large = reads(4, 48, 48 << 22, 1.0, 83e-3);
        let found = rates(Some(&opened), &one, &full, Some(&large));
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.02, "{found}");
        near(found.open_seconds, 2e-3);
        near(found.read_seconds, 1e-3);
        near(found.read_bandwidth, (48u64 << 22) as f64);
        assert_eq!(found.concurrency, 32.0);
        near(found.random_seconds(2000, 200_000_000, false), 1.0);
        // Files of one sample each, limited by latency: 16 reads are served concurrently, however many are requested.
        let (one, full) = (reads(1, 300, 3_000_000, 0.9, 3e-3), reads(64, 5333, 53_330_000, 1.0, 12e-3));
        let found = rates(None, &one, &full, None);
        near(found.concurrency, 5333.0 * found.open_seconds);
        near(found.random_seconds(5333, 53_330_000, true), 1.0);
        assert_eq!(found.read_seconds, 0.0);
        // A local drive: 32 reads at once take hardly less time than one after another.
        let (one, full) =
            (reads(1, 7000, 770_000_000, 1.0, 90e-6), reads(32, 14_000, 1_540_000_000, 1.0, 2e-3));
        let found = rates(None, &one, &full, Some(&reads(4, 620, 620 << 22, 1.0, 6e-3)));
        near(found.random_seconds(14_000, 1_540_000_000, false), 1.0);
        near(found.sequential_seconds(620 << 22, 4 << 20), 1.0);
    }
}
