//! The performance model: converts bytes to seconds, one step at a time.
//!
//! It follows Dryden et al. (SC'21), section 4: `avail(f) = Σ read(R[k]) / p0` and `t(f) = max(avail(f), t(f−1) +
//! s/c)`, with three interpretations of our own:
//!
//! - A thread fetches one sample while it preprocesses another: `read = max(fetch, s/β)` instead of `fetch + s/β`. This
//!   reproduces the paper's figures for the staging pool; the sum differs from them by a fifth.
//! - γ is the number of nodes that read the slow tier in a step.
//! - A step is a barrier. It ends when the slowest node has consumed its batch. Fetching runs ahead of the consumer by
//!   the size of the staging buffer.
//!
//! Two limits are not in the paper. A node's network carries the bytes that all threads of the node receive, and at the
//! same time the bytes that the node sends. The slow tier may have a maximum total rate, however many threads read. At
//! this rate it serves all nodes, one step after another.

use super::scenario::Scenario;
use super::traffic::{ByteSource, TrafficTable};

/// How a policy reads samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Reading takes no time: every sample is available when it is needed.
    Perfect,
    /// One sample after another, each sample during its own step. The staging threads share only the preprocessing.
    OnDemand,
    /// The staging threads read ahead up to the size of the staging buffer.
    Ahead,
    /// Like `Ahead`, but the threads that fill the caches also read the slow tier.
    AllAhead,
}

/// Returns the time at which each cell ends, in seconds from the start. A cell is one or more steps, see
/// [`super::traffic::TrafficCells`].
pub fn ends(scenario: &Scenario, traffic: &TrafficTable, reading: ReadMode) -> Vec<f64> {
    let model = ClockModel::new(scenario, traffic, reading);
    let mut ends: Vec<f64> = Vec::with_capacity(traffic.cells.count());
    let mut staged = vec![0.0f64; traffic.nodes()];
    // The time at which the slow tier has delivered everything requested so far.
    let mut given = 0.0f64;
    for cell in 0..traffic.cells.count() {
        let before = ends.last().copied().unwrap_or(0.0);
        // The buffer holds `depth` cells, so staging this cell can begin once cell `cell - depth` has been consumed.
        let free = cell.checked_sub(model.depth).map_or(0.0, |old| ends[old]);
        let clients = (0..traffic.nodes()).filter(|&node| traffic.reads_slow(node, cell)).count();
        let share = scenario.slow.share(clients as u32);
        let mut end = before;
        let wanted = |node| traffic.bytes(node, cell, ByteSource::Slow);
        if let Some(total) = scenario.slow.total.filter(|_| reading != ReadMode::Perfect) {
            given = given.max(free) + (0..traffic.nodes()).map(wanted).sum::<f64>() / total.0;
        }
        for (node, staged) in staged.iter_mut().enumerate() {
            let bytes = traffic.all_bytes(node, cell);
            *staged = staged.max(free) + model.seconds(node, cell, bytes, share);
            if wanted(node) > 0.0 {
                *staged = staged.max(given);
            }
            end = end.max(staged.max(before) + bytes / scenario.compute.0);
        }
        ends.push(end);
    }
    ends
}

struct ClockModel<'a> {
    traffic: &'a TrafficTable,
    reading: ReadMode,
    /// Number of cells that fit into the staging buffer, at least 1.
    depth: usize,
    staging_threads: f64,
    slow_threads: f64,
    preprocess: f64,
    network: Option<f64>,
    /// Pairs of a cache (local, or on other nodes) and the seconds that one thread needs to read a byte from it.
    cached: Vec<(ByteSource, f64)>,
}

impl<'a> ClockModel<'a> {
    fn new(scenario: &Scenario, traffic: &'a TrafficTable, reading: ReadMode) -> Self {
        let staging_threads = f64::from(scenario.staging.threads);
        let helpers: u32 = match reading {
            ReadMode::AllAhead => scenario.cache.iter().map(|cache| cache.threads).sum(),
            _ => 0,
        };
        let preprocess = 1.0 / scenario.preprocess.0;
        let cached = (0u8..).zip(&scenario.cache).flat_map(|(number, cache)| {
            let local = cache.read_share();
            let peer = local.min(scenario.network.map_or(local, |network| network.0));
            [(ByteSource::Local(number), local), (ByteSource::Peer(number), peer)]
        });
        Self {
            traffic,
            reading,
            depth: if reading == ReadMode::OnDemand { 1 } else { depth(scenario, traffic) },
            staging_threads,
            slow_threads: staging_threads + f64::from(helpers),
            preprocess,
            network: scenario.network.map(|network| network.0),
            cached: cached.map(|(source, rate)| (source, (1.0 / rate).max(preprocess))).collect(),
        }
    }

    /// Returns the seconds that the threads of `node` need for their samples in `cell`. `share` is the rate at which
    /// one thread reads the slow tier.
    fn seconds(&self, node: usize, cell: usize, bytes: f64, share: f64) -> f64 {
        let slow = self.traffic.bytes(node, cell, ByteSource::Slow);
        let cached = || -> f64 {
            let seconds =
                |(source, seconds): &(ByteSource, f64)| self.traffic.bytes(node, cell, *source) * seconds;
            // Samples that are used again are not read, but preprocessed again.
            self.cached.iter().map(seconds).sum::<f64>() + self.traffic.again(node, cell) * self.preprocess
        };
        match self.reading {
            ReadMode::Perfect => 0.0,
            ReadMode::OnDemand => slow / share + bytes * self.preprocess / self.staging_threads,
            ReadMode::Ahead | ReadMode::AllAhead => {
                let (slow, cached) = (slow * (1.0 / share).max(self.preprocess), cached());
                // The threads of the caches only read the slow tier. The staging threads do all other work, and read
                // the slow tier too.
                let network = self.network.map_or(0.0, |rate| {
                    self.traffic.received(node, cell).max(self.traffic.sent(node, cell)) / rate
                });
                ((slow + cached) / self.slow_threads).max(cached / self.staging_threads).max(network)
            }
        }
    }
}

fn depth(scenario: &Scenario, traffic: &TrafficTable) -> usize {
    let cells = traffic.cells.per_epoch as usize;
    let first: f64 = (0..cells).map(|cell| traffic.all_bytes(0, cell)).sum();
    let mean = (first / cells as f64).max(1.0);
    ((scenario.staging.capacity.0 / mean) as usize).max(1)
}
