//! Which node uses which sample when: sample sizes, the order of every epoch, and the samples of each node.

use super::nodes;
use super::scenario::{DatasetSpec, Scenario};
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use data::dataset::{DatasetIndex, Fingerprint};
use data::schedule::{Order, RepeatSpread};
use std::sync::atomic::{AtomicU32, Ordering};

/// Sizes of all samples, in bytes.
#[derive(Debug)]
pub struct Sizes {
    samples: u64,
    table: Vec<u32>,
    mean: f64,
}

const SIZES_AT_ONCE: usize = 65_536;

impl Sizes {
    /// Draws the sizes from a normal distribution with the mean and standard deviation of `dataset`. No size is less
    /// than a tenth of the mean.
    pub fn normal(dataset: &DatasetSpec) -> Self {
        let (samples, mean, sigma) = (dataset.samples, dataset.mean.0, dataset.sigma.0);
        if sigma == 0.0 {
            return Self::equal(samples, mean);
        }
        let key = RandomKey::new(b"", dataset.seed, 0, Use::Size);
        let size = |sample| {
            let normal = key.stream(sample).normal();
            (mean + sigma * normal).max(mean / 10.0).round() as u32
        };
        let mut table = vec![0; samples as usize];
        let mut parts: Vec<&mut [u32]> = table.chunks_mut(SIZES_AT_ONCE).collect();
        nodes::parallel_for_each(&mut parts, |number, part| {
            let first = u64::from(number) * SIZES_AT_ONCE as u64;
            (first..).zip(part.iter_mut()).for_each(|(sample, bytes)| *bytes = size(sample));
        });
        Self::of_table(table)
    }

    /// Makes the sizes of `samples` samples of `bytes` bytes each.
    pub fn equal(samples: u64, bytes: f64) -> Self {
        Self { samples, table: Vec::new(), mean: bytes }
    }

    /// Returns the sizes of the samples of a real dataset.
    pub fn of_index(index: &DatasetIndex) -> Self {
        Self::of_table((0..index.len()).map(|sample| index.extent(sample).length).collect())
    }

    fn of_table(table: Vec<u32>) -> Self {
        let total: f64 = table.iter().map(|&size| f64::from(size)).sum();
        Self { samples: table.len() as u64, mean: total / table.len().max(1) as f64, table }
    }

    /// Returns the size of `sample` in bytes.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn get(&self, sample: u64) -> f64 {
        if self.table.is_empty() { self.mean } else { f64::from(self.table[sample as usize]) }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the mean size in bytes.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the size of the whole dataset in bytes.
    pub fn total(&self) -> f64 {
        self.mean * self.samples as f64
    }
}

/// The sample orders of all epochs, divided into steps and nodes in the same way as the loader's pipeline does. The
/// incomplete last batch of an epoch is dropped.
#[derive(Debug)]
pub struct AccessSchedule {
    orders: Vec<Order>,
    spread: RepeatSpread,
    repeats: u64,
    steps: u64,
    node_batch: u64,
    global_batch: u64,
}

/// One use of a sample by a node: an entry of the node's part of a global batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeUse {
    /// Index of the step in the epoch.
    pub step: u64,
    /// Index of the sample in the dataset.
    pub sample: u64,
    /// Whether the node caches the sample for all nodes after this use. If a sample occurs several times in a global
    /// batch (setting `repeats`), this is true for one of the repeats. The chosen repeat rotates from sample to sample,
    /// so that all nodes cache equally many samples.
    pub keeps: bool,
    /// Whether the node has used the sample earlier in this step, so that it still has the bytes.
    pub again: bool,
}

impl AccessSchedule {
    /// Makes the schedule of `scenario` over `samples` samples.
    ///
    /// # Errors
    /// [`Error::Config`] if the samples do not fill a global batch.
    pub fn new(scenario: &Scenario, fingerprint: Fingerprint, samples: u64) -> Result<Self> {
        let global_batch = scenario.global_batch();
        if samples < global_batch {
            let message = format!(
                "{} on each of {} ranks is a global batch of {global_batch}, but the dataset has only {samples} \
                 samples: lower batch_size",
                scenario.batch_size,
                u64::from(scenario.nodes) * u64::from(scenario.ranks_per_node)
            );
            return Err(Error::config("batch_size", message));
        }
        let order =
            |epoch| Order::shuffled(&fingerprint, scenario.seed, epoch, samples).repeated(scenario.repeats);
        Ok(Self {
            spread: RepeatSpread::new(&order(0), global_batch),
            orders: (0..u64::from(scenario.epochs)).map(order).collect(),
            repeats: scenario.repeats.into(),
            steps: samples / global_batch,
            node_batch: u64::from(scenario.node_batch()),
            global_batch,
        })
    }

    /// Returns the number of steps of an epoch.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of epochs.
    pub fn epochs(&self) -> u64 {
        self.orders.len() as u64
    }

    /// Returns the uses of all nodes in a step as pairs of (place in the global batch, sample), in the order of the
    /// epoch. The place determines the node. Repeats of a sample are consecutive.
    pub fn of_step(&self, epoch: u64, step: u64) -> impl Iterator<Item = (usize, u32)> + '_ {
        let (order, first) = (&self.orders[epoch as usize], step * self.global_batch);
        (first..first + self.global_batch).map(move |position| {
            ((self.spread.place(position) - first) as usize, order.sample(position) as u32)
        })
    }

    /// Returns the uses of `node` in `epoch`, in order.
    pub fn of_node(&self, epoch: u64, node: u32) -> impl Iterator<Item = NodeUse> + '_ {
        let order = &self.orders[epoch as usize];
        let begin = u64::from(node) * self.node_batch;
        (0..self.steps).flat_map(move |step| {
            let batch = step * self.global_batch;
            let first = batch + begin;
            (first..first + self.node_batch).map(move |place| {
                let position = self.spread.position(place);
                let (draw, repeat) = (position / self.repeats, position % self.repeats);
                // The previous repeat has a lower place. If that place is at or after this node's first place, this
                // node has already used the sample.
                let again = repeat > 0 && position > batch && self.spread.place(position - 1) >= first;
                NodeUse { step, sample: order.sample(position), keeps: repeat == draw % self.repeats, again }
            })
        })
    }

    /// Returns all accesses of `node`, each with the next use of its sample.
    pub fn trace(&self, node: u32, sizes: &Sizes) -> AccessTrace {
        let epochs = 0..self.epochs();
        let samples: Vec<u32> =
            epochs.flat_map(|epoch| self.of_node(epoch, node)).map(|used| used.sample as u32).collect();
        AccessTrace::new(&samples, self.node_batch, sizes)
    }
}

/// Value of [`AccessTrace::next`] for a sample that is never used again.
pub const NEVER: u32 = u32::MAX;

/// Value of [`AccessTrace::next`] for an access whose sample was used earlier in the same step, so that the node
/// already has the bytes.
const AGAIN: u32 = u32::MAX - 1;

/// One node's accesses to samples, numbered from 0 through all epochs. Each sample that the node uses has an *id* (its
/// index in a table of these samples), so that caches can use tables instead of maps.
#[derive(Debug)]
pub struct AccessTrace {
    /// For each access: the id of the sample.
    pub ids: Vec<u32>,
    /// For each access: the next access to the same sample in a later step, or [`NEVER`]. Undefined if
    /// [`AccessTrace::is_again`] is true for the access.
    pub next: Vec<u32>,
    /// For each id: the index of the sample in the dataset.
    pub samples: Vec<u32>,
    /// For each id: the size of the sample in bytes.
    pub bytes: Vec<f32>,
    /// For each id: the first access of the sample.
    pub first: Vec<u32>,
    /// For each id: the number of steps that use the sample.
    pub uses: Vec<u32>,
    /// Number of accesses in a step.
    pub batch: u64,
}

impl AccessTrace {
    /// Makes the trace of accesses to `samples`, in this order. Each step consists of `batch` accesses.
    pub fn new(samples: &[u32], batch: u64, sizes: &Sizes) -> Self {
        let key = |(access, &sample): (usize, &u32)| u64::from(sample) << 32 | access as u64;
        let mut sorted: Vec<u64> = samples.iter().enumerate().map(key).collect();
        sorted.sort_unstable();
        let mut trace = Self {
            ids: vec![0; samples.len()],
            next: vec![NEVER; samples.len()],
            samples: Vec::new(),
            bytes: Vec::new(),
            first: Vec::new(),
            uses: Vec::new(),
            batch,
        };
        let step = |access: u32| u64::from(access) / batch;
        let mut before = None;
        for key in sorted {
            let (sample, access) = ((key >> 32) as u32, key as u32);
            match before {
                Some((same, previous)) if same == sample && step(previous) == step(access) => {
                    trace.next[access as usize] = AGAIN;
                    trace.ids[access as usize] = trace.samples.len() as u32 - 1;
                    continue;
                }
                Some((same, previous)) if same == sample => {
                    trace.next[previous as usize] = access;
                    *trace.uses.last_mut().expect("an id of the previous access") += 1;
                }
                _ => {
                    trace.samples.push(sample);
                    trace.bytes.push(sizes.get(u64::from(sample)) as f32);
                    trace.first.push(access);
                    trace.uses.push(1);
                }
            }
            trace.ids[access as usize] = trace.samples.len() as u32 - 1;
            before = Some((sample, access));
        }
        trace
    }

    /// Whether an earlier access of the same step used the sample, so that the node already has the bytes.
    pub fn is_again(&self, access: usize) -> bool {
        self.next[access] == AGAIN
    }

    /// Returns the index of the step of an access, counted through all epochs.
    pub fn step(&self, access: usize) -> u64 {
        access as u64 / self.batch
    }
}

/// A table with an entry for each sample: the first step in which any node has a cached copy, and the cache that holds
/// this copy. Several threads fill the table concurrently.
#[derive(Debug)]
pub struct PublishedCopies(Vec<AtomicU32>);

/// A cached copy of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedCopy {
    /// First step in which the copy can be read.
    pub step: u64,
    /// Index of the cache, in the scenario's order.
    pub cache: u8,
}

impl PublishedCopies {
    /// Makes an empty table for `samples` samples.
    pub fn none(samples: u64) -> Self {
        Self((0..samples).map(|_| AtomicU32::new(u32::MAX)).collect())
    }

    /// Records a copy of `sample`, unless an earlier copy was recorded.
    pub fn publish(&self, sample: u32, copy: CachedCopy) {
        let word = (copy.step.min(LAST_STEP) as u32) << 3 | u32::from(copy.cache);
        self.0[sample as usize].fetch_min(word, Ordering::Relaxed);
    }

    /// Returns the copy of `sample` that can be read in `step`, if there is one.
    pub fn copy(&self, sample: u32, step: u64) -> Option<CachedCopy> {
        let word = self.0[sample as usize].load(Ordering::Relaxed);
        let copy = CachedCopy { step: u64::from(word >> 3), cache: (word & 7) as u8 };
        (copy.step <= step && copy.step < LAST_STEP).then_some(copy)
    }
}

/// Maximum step that fits into the word. A copy with a later step counts as absent.
const LAST_STEP: u64 = (1 << 29) - 1;
