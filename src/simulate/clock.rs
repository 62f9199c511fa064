//! Makes seconds of bytes: the performance model, one step at a time.
//!
//! It follows Dryden et al. (SC'21), section 4: `avail(f) = Σ read(R[k]) / p0` and `t(f) = max(avail(f), t(f−1) +
//! s/c)`, with three interpretations of ours. A thread fetches one sample while it preprocesses another (`read =
//! max(fetch, s/β)` instead of their sum: this gives the paper's own figures for the staging pool, which the sum misses
//! by a fifth). γ is the number of nodes that read the slow tier in a step. A step is a barrier: it ends when the
//! slowest node has consumed its batch, while fetching runs ahead by as much as the staging buffer holds. Beyond the
//! paper, a node's network carries what all its threads receive, and at the same time what it gives to others; and the
//! slow tier may have a rate of its own that no number of threads exceeds, at which it serves all nodes one step after
//! another.

use super::ledger::{ByteSource, Ledger};
use super::scenario::Scenario;

/// How a policy reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Nothing is waited for: every sample is there when it is needed.
    Perfect,
    /// Samples are read one after the other, none ahead of its step; the staging threads share only the preprocessing.
    OnDemand,
    /// The staging threads read ahead as far as the staging buffer reaches.
    Ahead,
    /// The staging threads read ahead, and the threads of the caches help them to read the slow tier.
    AllAhead,
}

/// When each cell ends, in seconds from the start.
pub fn ends(scenario: &Scenario, ledger: &Ledger, reading: Reading) -> Vec<f64> {
    let model = ClockModel::new(scenario, ledger, reading);
    let mut ends: Vec<f64> = Vec::with_capacity(ledger.cells.count());
    let mut staged = vec![0.0f64; ledger.nodes()];
    // When the slow tier has given what all nodes want of it so far.
    let mut given = 0.0f64;
    for cell in 0..ledger.cells.count() {
        let before = ends.last().copied().unwrap_or(0.0);
        // A cell's place in the buffer is free when the cell that had it before is consumed.
        let free = cell.checked_sub(model.depth).map_or(0.0, |old| ends[old]);
        let clients = (0..ledger.nodes()).filter(|&node| ledger.reads_slow(node, cell)).count();
        let share = scenario.slow.share(clients as u32);
        let mut end = before;
        let wanted = |node| ledger.bytes(node, cell, ByteSource::Slow);
        if let Some(total) = scenario.slow.total.filter(|_| reading != Reading::Perfect) {
            given = given.max(free) + (0..ledger.nodes()).map(wanted).sum::<f64>() / total.0;
        }
        for (node, staged) in staged.iter_mut().enumerate() {
            let bytes = ledger.all_bytes(node, cell);
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

/// The rates of one thread by source, computed once.
struct ClockModel<'a> {
    ledger: &'a Ledger,
    reading: Reading,
    /// The number of cells that fit into the staging buffer, at least 1.
    depth: usize,
    staging_threads: f64,
    /// The number of threads that can read the slow tier.
    slow_threads: f64,
    preprocess: f64,
    /// The rate of a node's network in each direction.
    network: Option<f64>,
    /// The seconds that a byte takes one thread from each cache, here and on other nodes.
    cached: Vec<(ByteSource, f64)>,
}

impl<'a> ClockModel<'a> {
    fn new(scenario: &Scenario, ledger: &'a Ledger, reading: Reading) -> Self {
        let staging_threads = f64::from(scenario.staging.threads);
        let helpers: u32 = match reading {
            Reading::AllAhead => scenario.cache.iter().map(|cache| cache.threads).sum(),
            _ => 0,
        };
        let preprocess = 1.0 / scenario.preprocess.0;
        let cached = (0u8..).zip(&scenario.cache).flat_map(|(number, cache)| {
            let local = cache.read_share();
            let peer = local.min(scenario.network.map_or(local, |network| network.0));
            [(ByteSource::Local(number), local), (ByteSource::Peer(number), peer)]
        });
        Self {
            ledger,
            reading,
            depth: if reading == Reading::OnDemand { 1 } else { depth(scenario, ledger) },
            staging_threads,
            slow_threads: staging_threads + f64::from(helpers),
            preprocess,
            network: scenario.network.map(|network| network.0),
            cached: cached.map(|(source, rate)| (source, (1.0 / rate).max(preprocess))).collect(),
        }
    }

    /// The seconds that the threads of `node` take for what it needs in `cell`, where `share` is one thread's rate from
    /// the slow tier.
    fn seconds(&self, node: usize, cell: usize, bytes: f64, share: f64) -> f64 {
        let slow = self.ledger.bytes(node, cell, ByteSource::Slow);
        let cached = || -> f64 {
            let seconds =
                |(source, seconds): &(ByteSource, f64)| self.ledger.bytes(node, cell, *source) * seconds;
            // What is used again is preprocessed again.
            self.cached.iter().map(seconds).sum::<f64>() + self.ledger.again(node, cell) * self.preprocess
        };
        match self.reading {
            Reading::Perfect => 0.0,
            Reading::OnDemand => slow / share + bytes * self.preprocess / self.staging_threads,
            Reading::Ahead | Reading::AllAhead => {
                let (slow, cached) = (slow * (1.0 / share).max(self.preprocess), cached());
                // Helper threads read the slow tier only; the staging threads do the rest and share what is left.
                let network = self.network.map_or(0.0, |rate| {
                    self.ledger.received(node, cell).max(self.ledger.sent(node, cell)) / rate
                });
                ((slow + cached) / self.slow_threads).max(cached / self.staging_threads).max(network)
            }
        }
    }
}

/// The number of cells that the staging buffer holds ahead.
fn depth(scenario: &Scenario, ledger: &Ledger) -> usize {
    let cells = ledger.cells.per_epoch as usize;
    let first: f64 = (0..cells).map(|cell| ledger.all_bytes(0, cell)).sum();
    let mean = (first / cells as f64).max(1.0);
    ((scenario.staging.capacity.0 / mean) as usize).max(1)
}
