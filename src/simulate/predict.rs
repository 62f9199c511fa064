//! Predicts the cost of a job on a machine with known rates: the seconds of its epochs, what limits them, and the
//! traffic to the slow tier.
//!
//! Stages work in parallel. So an epoch takes as long as its slowest stage, plus, for the first batch, the time of one
//! step in each of the other stages. All nodes share the source's rates; each node has the rates of its own NVMe and
//! decoding.

use super::access::{AccessTrace, NEVER, Sizes};
use super::cache::{NodeCache, PlannedCache};
use data::dataset::Fingerprint;
use data::schedule::Order;
use serde::Serialize;
use store::tier::fill::{self, STAGED_READ};
use store::tier::plan::RetentionRule;
use store::tier::{Fill, FillChoice, Machine, TierRates};

/// The job to predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedJob {
    /// Number of samples of the dataset.
    pub samples: u64,
    /// Size of all samples in bytes.
    pub bytes: u64,
    /// Number of requests to the source that read every sample once. A sample needs one request, plus one for each
    /// field that is stored at another place in the shard.
    pub requests: u64,
    /// Number of requests to the source that read every sample once, if all bytes of a response are used. A compressed
    /// block of several samples then needs only one request.
    pub requests_kept: u64,
    /// Number of shards; `None` if each sample is a separate file.
    pub shards: Option<u64>,
    /// Whether the source charges for each request, as object stores do.
    pub charged: bool,
    /// Number of nodes, each with its own cache.
    pub nodes: u32,
    /// Number of ranks that share a node's cache.
    pub ranks_per_node: u32,
    /// Number of samples that a rank takes in a step.
    pub batch_size: u32,
    /// How many times each sample occurs in a global batch.
    pub repeats: u32,
    /// Number of epochs.
    pub epochs: u32,
    /// Maximum number of reads that a rank has in flight.
    pub depth: u32,
    /// Minimum time of a step in the consumer, in seconds.
    pub consume_seconds: f64,
    /// Size of each node's cache in bytes.
    pub cache_bytes: u64,
    /// Whether the cache is filled on use, or ahead of the use by staging whole shards.
    pub fill: FillChoice,
    /// Rate of a node's network in each direction, in bytes per second; `None` if nodes do not read from each other's
    /// caches.
    pub network: Option<f64>,
    /// Whether a global batch is divided so that each node gets the samples that its cache holds, up to its batch size.
    pub by_locality: bool,
}

impl PredictedJob {
    /// Returns the fraction of the dataset in the caches that a node can read: its own cache, and if nodes read from
    /// each other, the caches of all nodes.
    fn held_together(&self) -> f64 {
        let caches = if self.has_peers() { f64::from(self.nodes) } else { 1.0 };
        (caches * self.cache_bytes as f64 / (self.bytes as f64).max(1.0)).min(1.0)
    }

    fn has_peers(&self) -> bool {
        self.network.is_some() && self.nodes > 1
    }

    /// Returns the fraction of the samples that a node has to read from another node.
    fn moved(&self) -> f64 {
        let elsewhere = 1.0 - 1.0 / f64::from(self.nodes);
        if !self.by_locality {
            return elsewhere;
        }
        // The number of samples of a step that a node owns is binomial. Half of its mean absolute deviation must move
        // between nodes. The result is relative to the number of samples that the node takes.
        let takes = f64::from(self.batch_size) * f64::from(self.ranks_per_node);
        (elsewhere / (std::f64::consts::TAU * takes)).sqrt()
    }
}

/// Number of reads that a node has in flight while it stages ahead.
const STAGING_READS: f64 = 2.0;

/// The stage that limits an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The bandwidth of the slow tier.
    SourceBandwidth,
    /// The latency of the slow tier: the number of requests in flight is limited, and responses are slow.
    SourceLatency,
    /// The drives of the cache.
    Nvme,
    /// The network between nodes.
    Network,
    /// Decoding and augmenting.
    Decode,
    /// The consumer. A faster loader would gain nothing.
    Consumer,
}

impl Limit {
    /// Returns the limit in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceBandwidth => "the slow tier's bandwidth",
            Self::SourceLatency => "the slow tier's latency",
            Self::Nvme => "the NVMe",
            Self::Network => "the network between nodes",
            Self::Decode => "decoding",
            Self::Consumer => "the consumer",
        }
    }
}

/// Busy time of each stage in an epoch, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StageSeconds {
    /// Time in which the source reads samples that no cache has.
    pub source: f64,
    /// Time in which the cache reads and writes.
    pub nvme: f64,
    /// Time in which a node's network receives samples: those that the node requests from other nodes, and those that
    /// other nodes send to it for its cache.
    pub network: f64,
    /// Time in which workers decode.
    pub decode: f64,
    /// Time in which the consumer works.
    pub consumer: f64,
}

/// Cost of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochCost {
    /// Duration of the epoch in seconds.
    pub seconds: f64,
    /// Time in which the consumer waits, in seconds.
    pub wait_seconds: f64,
    /// The slowest stage, for which the consumer waits.
    pub limit: Limit,
    /// Fraction (0 to 1) of the samples that come from a cache. Several uses of a sample by one rank in a step count
    /// once.
    pub hits: f64,
    /// Bytes that all nodes read from the slow tier.
    pub slow_bytes: u64,
    /// Number of requests for `slow_bytes`. A request reads a single sample or a large part of a shard.
    pub slow_requests: u64,
    /// Busy time of each stage.
    pub stages: StageSeconds,
}

/// Cost of the whole job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Size of each node's cache in bytes.
    pub cache_bytes: u64,
    /// Largest fraction (0 to 1) of the dataset that a node's own cache holds.
    pub held: f64,
    /// Largest fraction (0 to 1) of the dataset that a node finds in caches, including the caches of other nodes.
    pub held_together: f64,
    /// Whether shards are copied to the cache ahead of their use ("staged").
    pub ahead: bool,
    /// The reason for the value of `ahead`, as a sentence.
    pub fill_reason: String,
    /// Cost of the first epoch.
    pub first: EpochCost,
    /// Cost of the last epoch, which stands for all epochs after the first.
    pub later: EpochCost,
    /// Duration of all epochs in seconds.
    pub seconds: f64,
    /// Bytes read from the slow tier in all epochs.
    pub slow_bytes: u64,
    /// Number of requests to the slow tier in all epochs.
    pub slow_requests: u64,
}

/// Predicts the cost of `job` on nodes like `machine`.
pub fn predict(job: &PredictedJob, machine: &Machine) -> Prediction {
    let work = fill::FillJob {
        samples: job.samples,
        bytes: job.bytes,
        shards: job.shards.is_some(),
        depth: job.depth as usize,
        charged: job.charged,
    };
    let held = (job.cache_bytes as f64 / (job.bytes as f64).max(1.0)).min(1.0);
    let keeps_first = job.repeats == 1 || held >= 1.0 || job.fill == FillChoice::Ahead;
    let (fill, fill_reason) = match job.nodes == 1 && keeps_first {
        true => fill::choose(job.fill, &work, Ok(machine.source)),
        false => (Fill::Use, fill::KEPT_AS_READ.into()),
    };
    let ahead = fill == Fill::Ahead && held > 0.0;
    let model = JobModel::new(job, machine);
    let mut staged = 0.0;
    let epoch = |(number, kept): (usize, CacheShares)| {
        let staging = ahead && staged < held;
        let cost = if staging { model.staging(&mut staged, held) } else { model.steady(&kept) };
        if number == 0 { model.with_opens(cost) } else { cost }
    };
    let epochs: Vec<EpochCost> = kept(job, held, ahead).into_iter().enumerate().map(epoch).collect();
    Prediction {
        cache_bytes: job.cache_bytes,
        held,
        held_together: job.held_together(),
        ahead,
        fill_reason,
        first: epochs[0],
        later: epochs[epochs.len() - 1],
        seconds: epochs.iter().map(|epoch| epoch.seconds).sum(),
        slow_bytes: epochs.iter().map(|epoch| epoch.slow_bytes).sum(),
        slow_requests: epochs.iter().map(|epoch| epoch.slow_requests).sum(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct SlowTraffic {
    bytes: f64,
    requests: f64,
}

/// What caches do in an epoch. `hits` is a fraction of the samples that ranks fetch, `written` a fraction of the
/// distinct samples that nodes use.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CacheShares {
    hits: f64,
    written: f64,
}

/// Returns the cache's hits and writes of each epoch. Caches are filled on use or, if `ahead`, by staging. Each node's
/// cache holds the fraction `held` of the dataset.
///
/// A node that uses all samples in each epoch hits the samples that it has kept. A node that uses only some of them is
/// simulated on a smaller scale, with samples of equal size. The number of simulated samples is small enough to take no
/// time, and large enough that hit rates are accurate within 0.01.
fn kept(job: &PredictedJob, held: f64, ahead: bool) -> Vec<CacheShares> {
    let epochs = u64::from(job.epochs.max(1));
    let between = u64::from(job.nodes.max(job.repeats).max(1));
    if between == 1 || ahead {
        let later = (1..epochs).map(|_| CacheShares { hits: held, written: 0.0 });
        return std::iter::once(CacheShares { hits: 0.0, written: held }).chain(later).collect();
    }
    if job.has_peers() {
        // A sample is in its owner's cache after its first use. So an epoch hits the samples that were used in earlier
        // epochs.
        let new = |epoch: u64| (1.0 - 1.0 / f64::from(job.repeats)).powi(epoch.min(1 << 30) as i32);
        let together = job.held_together();
        let used = f64::from(job.nodes) / f64::from(job.nodes.max(job.repeats));
        let shares = |epoch| CacheShares {
            hits: together * (1.0 - new(epoch)),
            written: together * new(epoch) / f64::from(job.repeats) / used,
        };
        return (0..epochs).map(shares).collect();
    }
    const BYTES: f64 = 1000.0;
    let samples = job.samples.min((200 * between).max(20_000)).min(u64::from(NEVER));
    let order = |epoch| Order::shuffled(&Fingerprint([0; 32]), 0, epoch, samples);
    let own = |order: Order| {
        (0..samples).step_by(between as usize).map(move |position| order.sample(position) as u32)
    };
    let used: Vec<u32> = (0..epochs).map(order).flat_map(own).collect();
    let each = used.len() / epochs as usize;
    let trace = AccessTrace::new(&used, 1, &Sizes::equal(samples, BYTES));
    let rule = match held {
        1.0.. => RetentionRule::Keep,
        _ => RetentionRule::NextUse { moments: (each as u64 / 8).max(1) },
    };
    let mut cache = PlannedCache::new(rule, vec![held * samples as f64 * BYTES], &trace);
    let mut before = 0.0;
    let epoch = |accesses: &[usize]| {
        let hits = accesses.iter().filter(|&&access| cache.access(&trace, access).is_some()).count();
        let written = cache.written() - std::mem::replace(&mut before, cache.written());
        CacheShares { hits: hits as f64 / each as f64, written: written / (each as f64 * BYTES) }
    };
    (0..used.len()).collect::<Vec<_>>().chunks(each).map(epoch).collect()
}

struct JobModel<'a> {
    job: &'a PredictedJob,
    machine: &'a Machine,
    /// Rates of the source when all ranks have the maximum number of reads in flight.
    source: TierRates,
    nvme: TierRates,
    steps: f64,
    /// Fractions of the dataset: `fetched` by all ranks in an epoch, `used` by all nodes. A rank fetches a sample once
    /// for all its repeats in a step.
    fetched: f64,
    used: f64,
    decode: f64,
    consumer: f64,
}

impl<'a> JobModel<'a> {
    fn new(job: &'a PredictedJob, machine: &'a Machine) -> Self {
        let ranks = f64::from(job.nodes) * f64::from(job.ranks_per_node);
        let asked = |rates: TierRates, ranks: f64| TierRates {
            concurrency: rates.concurrency.min(f64::from(job.depth) * ranks),
            ..rates
        };
        let share = |readers: f64| readers / readers.max(f64::from(job.repeats));
        let steps = (job.samples as f64 / (ranks * f64::from(job.batch_size))).ceil().max(1.0);
        Self {
            job,
            machine,
            source: asked(machine.source, ranks),
            nvme: asked(machine.nvme, f64::from(job.ranks_per_node)),
            steps,
            fetched: share(ranks),
            used: share(f64::from(job.nodes)),
            decode: job.bytes as f64 / f64::from(job.nodes) / machine.decode_bandwidth,
            consumer: steps * job.consume_seconds,
        }
    }

    fn source_seconds(&self, share: f64) -> f64 {
        let share = share * self.fetched;
        let (samples, bytes) = (share * self.job.samples as f64, share * self.job.bytes as f64);
        self.source.random_seconds(samples as u64, bytes as u64, self.job.shards.is_none())
    }

    fn nvme_seconds(&self, kept: &CacheShares) -> f64 {
        let part = |share: f64, all: u64| share * all as f64 / f64::from(self.job.nodes);
        let hits = kept.hits * self.fetched;
        let (samples, bytes) = (part(hits, self.job.samples), part(hits, self.job.bytes));
        let write = match part(kept.written * self.used, self.job.bytes) {
            0.0 => 0.0,
            bytes => bytes / self.nvme.write_bandwidth.max(1.0),
        };
        self.nvme.random_seconds(samples as u64, bytes as u64, false) + write
    }

    fn network_seconds(&self, kept: &CacheShares) -> f64 {
        let carried = kept.hits * self.fetched + kept.written * self.used;
        let bytes = self.job.moved() * carried * self.job.bytes as f64 / f64::from(self.job.nodes);
        match self.job.network {
            Some(rate) if self.job.has_peers() => bytes / rate,
            _ => 0.0,
        }
    }

    /// Returns the source traffic of all ranks if they read the fraction `share` of an epoch's samples from the source,
    /// and caches then keep the fraction `kept`.
    fn asked(&self, share: f64, kept: f64) -> SlowTraffic {
        let (share, kept) = (share * self.fetched, kept.min(share) * self.fetched);
        let requests = (share - kept) * self.job.requests as f64 + kept * self.job.requests_kept as f64;
        SlowTraffic { bytes: share * self.job.bytes as f64, requests }
    }

    fn stages(&self, kept: &CacheShares) -> StageSeconds {
        StageSeconds {
            source: self.source_seconds(1.0 - kept.hits),
            nvme: self.nvme_seconds(kept),
            network: self.network_seconds(kept),
            decode: self.decode,
            consumer: self.consumer,
        }
    }

    fn steady(&self, kept: &CacheShares) -> EpochCost {
        let asked = self.asked(1.0 - kept.hits, kept.written * self.used / self.fetched);
        self.cost(self.stages(kept), kept.hits, asked)
    }

    /// Returns the cost of an epoch during which the staged fraction of the dataset grows from `staged` to `held`.
    /// Staging reads large parts of shards, with the bandwidth that reads on demand leave. The epoch is computed in
    /// small steps, because samples that are already staged are not requested from the source.
    fn staging(&self, staged: &mut f64, held: f64) -> EpochCost {
        const PARTS: u32 = 1000;
        let part = 1.0 / f64::from(PARTS);
        let (bytes, before) = (self.job.bytes as f64, *staged);
        let concurrency = self.machine.source.concurrency.min(STAGING_READS * f64::from(self.job.nodes));
        let source = TierRates { concurrency, ..self.machine.source };
        let pieces = source.sequential_seconds(self.job.bytes, STAGED_READ).max(f64::MIN_POSITIVE);
        let (from_source, mut asked, mut seconds) = (self.source_seconds(1.0), 0.0, 0.0);
        for _ in 0..PARTS {
            let misses = part * (1.0 - *staged);
            let rest = self.stages(&CacheShares { hits: *staged, written: 0.0 });
            let took = (misses * from_source).max(part * rest.nvme.max(rest.decode).max(rest.consumer));
            // Each node stages its own copy, so a node gets only `1 / nodes` of the bandwidth.
            let read = self.asked(misses, 0.0).bytes;
            let left = (self.source.read_bandwidth * took - read).max(0.0) / bytes.max(1.0);
            *staged = held.min(*staged + (took / pieces).min(left / f64::from(self.job.nodes)));
            asked += misses;
            seconds += took;
        }
        let grown = *staged - before;
        let written = grown * f64::from(self.job.nodes);
        let kept = CacheShares { hits: 1.0 - asked, written: written / self.used };
        let on_demand = self.asked(asked, 0.0);
        let slow = SlowTraffic {
            bytes: on_demand.bytes + written * bytes,
            requests: on_demand.requests + written * bytes / STAGED_READ as f64,
        };
        let mut cost = self.cost(self.stages(&kept), kept.hits, slow);
        // If the source is the slowest stage only at the beginning, the sum over the steps is more exact than the mean.
        cost.seconds = cost.seconds.max(seconds);
        cost.wait_seconds = (cost.seconds - self.consumer).max(0.0);
        cost
    }

    /// Adds the time to open every shard on every rank, which only the first epoch needs.
    fn with_opens(&self, mut cost: EpochCost) -> EpochCost {
        let ranks = f64::from(self.job.nodes) * f64::from(self.job.ranks_per_node);
        let opens = self.job.shards.unwrap_or(0) as f64 * ranks;
        cost.stages.source += opens * self.source.open_seconds / self.source.concurrency.max(1.0);
        let slow = SlowTraffic { bytes: cost.slow_bytes as f64, requests: cost.slow_requests as f64 };
        let again = self.cost(cost.stages, cost.hits, slow);
        EpochCost { seconds: again.seconds.max(cost.seconds), ..again }
    }

    fn cost(&self, stages: StageSeconds, hits: f64, slow: SlowTraffic) -> EpochCost {
        let StageSeconds { source, nvme, network, decode, consumer } = stages;
        let waits = slow.bytes / self.source.read_bandwidth < 0.99 * source;
        let source_limit = if waits { Limit::SourceLatency } else { Limit::SourceBandwidth };
        // If two stages take equally long, name the later one: waiting for the earlier one has no effect.
        let limits = [
            (source, source_limit),
            (nvme, Limit::Nvme),
            (network, Limit::Network),
            (decode, Limit::Decode),
            (consumer, Limit::Consumer),
        ];
        let (longest, limit) = limits.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(limits[3]);
        // Until the first batch is ready, each of the other stages takes one step, and the source takes at least one
        // read.
        let step = (source + nvme + network + decode + consumer - longest) / self.steps;
        let first_read = if hits < 1.0 { self.source.read_seconds + self.source.open_seconds } else { 0.0 };
        let seconds = longest + step.max(first_read);
        let wait_seconds = (seconds - consumer).max(0.0);
        let (slow_bytes, slow_requests) = (slow.bytes as u64, slow.requests as u64);
        EpochCost { seconds, wait_seconds, limit, hits, slow_bytes, slow_requests, stages }
    }
}

#[cfg(test)]
mod tests;
