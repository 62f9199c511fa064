//! Counts the bytes that each node reads from each source in each cell (one or more steps). Policies fill this table,
//! and the clock converts it to seconds.

use super::access::AccessSchedule;
use super::scenario::{MAX_CACHES, Scenario};
use std::ops::Range;

/// Source of bytes, a column of a [`TrafficTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteSource {
    /// The storage that holds the dataset.
    Slow,
    /// The node's own cache with this index in the scenario.
    Local(u8),
    /// The cache with this index, on another node.
    Peer(u8),
}

impl ByteSource {
    fn column(self) -> usize {
        match self {
            Self::Slow => 0,
            Self::Local(cache) => 1 + 2 * usize::from(cache),
            Self::Peer(cache) => 2 + 2 * usize::from(cache),
        }
    }
}

/// Counts of the samples and bytes that nodes use in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EpochCounts {
    /// Number of samples used, each counted once per step and node.
    pub uses: u64,
    /// Number of used samples that came from the node's own caches.
    pub local: u64,
    /// Number of used samples that came from other nodes' caches.
    pub peer: u64,
    /// Number of bytes read from the slow tier, including bytes that are prefetched into a cache.
    pub slow_bytes: f64,
}

impl EpochCounts {
    /// Returns the fraction (0 to 1) of the uses that a cache served.
    pub fn hits(&self) -> f64 {
        (self.local + self.peer) as f64 / self.uses.max(1) as f64
    }

    fn read(&mut self, source: ByteSource, bytes: f32) {
        self.uses += 1;
        match source {
            ByteSource::Slow => self.slow_bytes += f64::from(bytes),
            ByteSource::Local(_) => self.local += 1,
            ByteSource::Peer(_) => self.peer += 1,
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.uses += other.uses;
        self.local += other.local;
        self.peer += other.peer;
        self.slow_bytes += other.slow_bytes;
    }
}

/// How epochs are divided into cells: one cell per step, or several steps per cell to limit the size of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficCells {
    /// Number of steps per cell. The last cell of an epoch may have fewer.
    pub steps: u64,
    /// Number of cells per epoch.
    pub per_epoch: u64,
    epoch_steps: u64,
    /// Number of epochs.
    pub epochs: u64,
    columns: usize,
}

/// Maximum number of values in a table: 400 MB.
const MAX_VALUES: u64 = 100_000_000;

impl TrafficCells {
    /// Chooses the number of steps per cell so that the table of a scenario stays within 400 MB.
    pub fn of(scenario: &Scenario, accesses: &AccessSchedule) -> Self {
        let columns = 1 + 2 * scenario.cache.len();
        let all = u64::from(scenario.nodes) * accesses.steps() * accesses.epochs() * columns as u64;
        let steps = all.div_ceil(MAX_VALUES).clamp(1, accesses.steps());
        let per_epoch = accesses.steps().div_ceil(steps);
        Self { steps, per_epoch, epoch_steps: accesses.steps(), epochs: accesses.epochs(), columns }
    }

    /// Returns the number of cells of all epochs.
    pub fn count(&self) -> usize {
        (self.per_epoch * self.epochs) as usize
    }

    /// Returns the index of the cell that contains `step`. Cells and steps are numbered through all epochs.
    pub fn of_step(&self, step: u64) -> usize {
        (step / self.epoch_steps * self.per_epoch + step % self.epoch_steps / self.steps) as usize
    }

    /// Returns the first step of a cell. Steps are numbered through all epochs.
    pub fn first_step(&self, cell: usize) -> u64 {
        let (epoch, cell) = (cell as u64 / self.per_epoch, cell as u64 % self.per_epoch);
        epoch * self.epoch_steps + cell * self.steps
    }

    /// Returns the range of cell indices of an epoch.
    pub fn of_epoch(&self, epoch: usize) -> Range<usize> {
        let each = self.per_epoch as usize;
        epoch * each..(epoch + 1) * each
    }

    /// Returns the steps of a cell, numbered within its epoch.
    pub fn steps_of(&self, cell: usize) -> Range<u64> {
        let first = cell as u64 % self.per_epoch * self.steps;
        first..(first + self.steps).min(self.epoch_steps)
    }

    /// Returns the index of the epoch that contains a cell.
    pub fn epoch(&self, cell: usize) -> usize {
        cell / self.per_epoch as usize
    }
}

/// Byte counts of one node, by cell and source.
#[derive(Debug, Clone)]
pub struct NodeTraffic {
    cells: TrafficCells,
    bytes: Vec<f32>,
    /// Bytes of repeated uses in a step, which need no read, by cell; empty if there are none.
    again: Vec<f32>,
    epochs: Vec<EpochCounts>,
    /// Bytes that other nodes send to this node for its cache, by cell; empty if there are none.
    pushed: Vec<f32>,
    /// Bytes that this node sends to other nodes, by cell; empty if unknown.
    sent: Vec<f32>,
    /// The node prefetches from the slow tier in all cells before this one.
    filling_until: usize,
}

/// Byte counts of one node in one cell. [`NodeTraffic::add`] adds them to the node's counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct CellReads {
    bytes: [f32; 1 + 2 * MAX_CACHES],
    again: f32,
    /// Bytes that other nodes send to this node for its cache.
    pub pushed: f32,
    /// Bytes that this node sends to other nodes.
    pub sent: f32,
    counts: EpochCounts,
}

impl CellReads {
    /// Counts a sample of `bytes` from `source`.
    pub fn read(&mut self, source: ByteSource, bytes: f32) {
        self.bytes[source.column()] += bytes;
        self.counts.read(source, bytes);
    }

    /// Counts a repeated use, in the same step, of a sample of `bytes` that the node already has.
    pub fn used_again(&mut self, bytes: f32) {
        self.again += bytes;
    }
}

impl NodeTraffic {
    /// Makes the counts of a node that has read nothing.
    pub fn new(cells: TrafficCells) -> Self {
        let epochs = vec![EpochCounts::default(); cells.epochs as usize];
        let bytes = vec![0.0; cells.count() * cells.columns];
        let none = Vec::new;
        Self { cells, bytes, again: none(), epochs, pushed: none(), sent: none(), filling_until: 0 }
    }

    /// Adds the counts of one cell, whose index is `cell`.
    pub fn add(&mut self, cell: usize, reads: &CellReads) {
        let columns = self.cells.columns;
        let bytes = &mut self.bytes[cell * columns..(cell + 1) * columns];
        bytes.iter_mut().zip(reads.bytes).for_each(|(all, bytes)| *all += bytes);
        self.epochs[self.cells.epoch(cell)].add(&reads.counts);
        let count = self.cells.count();
        let lists = [&mut self.again, &mut self.pushed, &mut self.sent];
        for (list, bytes) in lists.into_iter().zip([reads.again, reads.pushed, reads.sent]) {
            if bytes > 0.0 {
                list.resize(count, 0.0);
                list[cell] += bytes;
            }
        }
    }

    /// Counts a sample of `bytes` from `source` that is used in `step`. Steps are numbered through all epochs.
    pub fn read(&mut self, step: u64, source: ByteSource, bytes: f32) {
        let cell = self.cells.of_step(step);
        self.bytes[cell * self.cells.columns + source.column()] += bytes;
        self.epochs[self.cells.epoch(cell)].read(source, bytes);
    }

    /// Adds the `bytes` of a sample that is used in `step` and that the node already has. Steps are numbered through
    /// all epochs.
    pub fn used_again(&mut self, step: u64, bytes: f32) {
        self.again.resize(self.cells.count(), 0.0);
        self.again[self.cells.of_step(step)] += bytes;
    }

    /// Counts a sample of `bytes` that was prefetched into a cache during `cell`.
    pub fn prefetched(&mut self, cell: usize, bytes: f32) {
        self.epochs[self.cells.epoch(cell)].slow_bytes += f64::from(bytes);
        self.filling_until = self.filling_until.max(cell + 1);
    }
}

/// Byte counts of all nodes.
#[derive(Debug)]
pub struct TrafficTable {
    /// How epochs are divided into cells.
    pub cells: TrafficCells,
    nodes: Vec<NodeTraffic>,
}

impl TrafficTable {
    /// Combines the counts of all nodes. `nodes` may be in any order.
    pub fn new(cells: TrafficCells, nodes: Vec<NodeTraffic>) -> Self {
        Self { cells, nodes }
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the bytes that `node` reads from `source` in `cell`.
    pub fn bytes(&self, node: usize, cell: usize, source: ByteSource) -> f64 {
        f64::from(self.nodes[node].bytes[cell * self.cells.columns + source.column()])
    }

    /// Returns the bytes of repeated uses of samples by `node` in `cell`. These bytes are not read again.
    pub fn again(&self, node: usize, cell: usize) -> f64 {
        self.nodes[node].again.get(cell).map_or(0.0, |&bytes| bytes.into())
    }

    /// Returns the bytes of all uses by `node` in `cell`: bytes read from all sources, and bytes of repeated uses.
    pub fn all_bytes(&self, node: usize, cell: usize) -> f64 {
        let first = cell * self.cells.columns;
        let fetched = &self.nodes[node].bytes[first..first + self.cells.columns];
        fetched.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() + self.again(node, cell)
    }

    /// Returns the bytes that `node` receives from other nodes in `cell`: bytes of the samples that it uses, and bytes
    /// that it only stores in its cache for all nodes.
    pub fn received(&self, node: usize, cell: usize) -> f64 {
        let caches = (0..(self.cells.columns / 2) as u8).map(ByteSource::Peer);
        let read: f64 = caches.map(|source| self.bytes(node, cell, source)).sum();
        read + self.nodes[node].pushed.get(cell).map_or(0.0, |&bytes| bytes.into())
    }

    /// Returns the bytes that `node` sends to other nodes in `cell`; 0 if unknown.
    pub fn sent(&self, node: usize, cell: usize) -> f64 {
        self.nodes[node].sent.get(cell).map_or(0.0, |&bytes| bytes.into())
    }

    /// Returns the bytes that `node` reads from the slow tier in an epoch, including bytes prefetched into a cache.
    pub fn slow_bytes(&self, node: usize, epoch: usize) -> f64 {
        self.nodes[node].epochs[epoch].slow_bytes
    }

    /// Whether `node` reads the slow tier in `cell`.
    pub fn reads_slow(&self, node: usize, cell: usize) -> bool {
        self.bytes(node, cell, ByteSource::Slow) > 0.0 || cell < self.nodes[node].filling_until
    }

    /// Returns the counts of an epoch, summed over all nodes.
    pub fn count(&self, epoch: usize) -> EpochCounts {
        let mut sum = EpochCounts::default();
        self.nodes.iter().for_each(|node| sum.add(&node.epochs[epoch]));
        sum
    }
}
