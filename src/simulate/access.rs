//! Who uses what when: sizes of samples, the order of every epoch, and what of it a node takes.

use super::nodes;
use super::scenario::{DatasetSpec, Scenario};
use crate::dataset::{DatasetIndex, Fingerprint};
use crate::error::{Error, Result};
use crate::rng::{RandomKey, Use};
use crate::schedule::Order;
use std::sync::atomic::{AtomicU32, Ordering};

/// Sizes of all samples, bytes.
#[derive(Debug)]
pub struct Sizes {
    samples: u64,
    /// Empty where all have the same.
    table: Vec<u32>,
    mean: f64,
}

/// Sizes that a thread draws before it takes more.
const SIZES_AT_ONCE: usize = 65_536;

impl Sizes {
    /// Those that a scenario asks for: normally distributed, one number a sample, at least a tenth of the mean.
    pub fn normal(dataset: &DatasetSpec) -> Self {
        let (samples, mean, sigma) = (dataset.samples, dataset.mean.0, dataset.sigma.0);
        if sigma == 0.0 {
            return Self::equal(samples, mean);
        }
        let key = RandomKey::new(b"", dataset.seed, 0, Use::Size);
        let size = |sample| {
            let mut stream = key.stream(sample);
            // Box and Muller's way to a normal distribution; 1 - u is never 0.
            let (radius, angle) = ((-2.0 * (1.0 - stream.unit()).ln()).sqrt(), stream.unit());
            let normal = radius * (std::f64::consts::TAU * angle).cos();
            (mean + sigma * normal).max(mean / 10.0).round() as u32
        };
        let mut table = vec![0; samples as usize];
        let mut parts: Vec<&mut [u32]> = table.chunks_mut(SIZES_AT_ONCE).collect();
        nodes::each_mut(&mut parts, |number, part| {
            let first = u64::from(number) * SIZES_AT_ONCE as u64;
            (first..).zip(part.iter_mut()).for_each(|(sample, bytes)| *bytes = size(sample));
        });
        Self::of_table(table)
    }

    /// All the same.
    pub fn equal(samples: u64, bytes: f64) -> Self {
        Self { samples, table: Vec::new(), mean: bytes }
    }

    /// Those of a real dataset.
    pub fn of_index(index: &DatasetIndex) -> Self {
        Self::of_table((0..index.len()).map(|sample| index.extent(sample).length).collect())
    }

    fn of_table(table: Vec<u32>) -> Self {
        let total: f64 = table.iter().map(|&size| f64::from(size)).sum();
        Self { samples: table.len() as u64, mean: total / table.len().max(1) as f64, table }
    }

    /// Bytes of `sample`.
    ///
    /// # Panics
    /// Panics when there is no such sample.
    pub fn get(&self, sample: u64) -> f64 {
        if self.table.is_empty() { self.mean } else { f64::from(self.table[sample as usize]) }
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Mean size, bytes.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Bytes of the dataset.
    pub fn total(&self) -> f64 {
        self.mean * self.samples as f64
    }
}

/// The orders of all epochs, cut into steps and nodes as the pipeline cuts them; the last batch is dropped.
#[derive(Debug)]
pub struct AccessSchedule {
    orders: Vec<Order>,
    steps: u64,
    node_batch: u64,
    global_batch: u64,
}

impl AccessSchedule {
    /// The accesses of `scenario` to `samples` samples.
    ///
    /// # Errors
    /// [`Error::Config`] when they do not fill a global batch.
    pub fn new(scenario: &Scenario, fingerprint: Fingerprint, samples: u64) -> Result<Self> {
        let global_batch = scenario.global_batch();
        if samples < global_batch {
            let message = format!(
                "{} on each of {} ranks is {global_batch}, but the dataset has {samples} samples: lower it",
                scenario.batch_size,
                u64::from(scenario.nodes) * u64::from(scenario.ranks_per_node)
            );
            return Err(Error::config("batch_size", message));
        }
        let order = |epoch| Order::shuffled(&fingerprint, scenario.seed, epoch, samples);
        Ok(Self {
            orders: (0..u64::from(scenario.epochs)).map(order).collect(),
            steps: samples / global_batch,
            node_batch: u64::from(scenario.node_batch()),
            global_batch,
        })
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of epochs.
    pub fn epochs(&self) -> u64 {
        self.orders.len() as u64
    }

    /// What `node` uses in `epoch`: (step of the epoch, sample), in order.
    pub fn of_node(&self, epoch: u64, node: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let order = &self.orders[epoch as usize];
        let begin = u64::from(node) * self.node_batch;
        (0..self.steps).flat_map(move |step| {
            let first = step * self.global_batch + begin;
            (first..first + self.node_batch).map(move |position| (step, order.sample(position)))
        })
    }

    /// All that `node` uses, with its next uses.
    pub fn trace(&self, node: u32, sizes: &Sizes) -> AccessTrace {
        let epochs = 0..self.epochs();
        let samples: Vec<u32> =
            epochs.flat_map(|epoch| self.of_node(epoch, node)).map(|(_, sample)| sample as u32).collect();
        AccessTrace::new(&samples, self.node_batch, sizes)
    }
}

/// Never again.
pub(crate) const NEVER: u32 = u32::MAX;

/// One node's accesses, numbered from 0 through all epochs. Samples that it uses have numbers of their own (*ids*), by
/// which caches are tables instead of maps.
#[derive(Debug)]
pub struct AccessTrace {
    /// The id of each access.
    pub ids: Vec<u32>,
    /// The access that uses the same sample next, or [`NEVER`].
    pub next: Vec<u32>,
    /// By id: the sample.
    pub samples: Vec<u32>,
    /// By id: its bytes.
    pub bytes: Vec<f32>,
    /// By id: its first access.
    pub first: Vec<u32>,
    /// By id: how often it is used.
    pub uses: Vec<u32>,
    /// Accesses of a step.
    pub batch: u64,
}

impl AccessTrace {
    /// The accesses to `samples`, in this order; `batch` of them are a step.
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
        let mut before = None;
        for key in sorted {
            let (sample, access) = ((key >> 32) as u32, key as u32);
            match before {
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

    /// The step, counted through all epochs, of an access.
    pub fn step(&self, access: usize) -> u64 {
        access as u64 / self.batch
    }
}

/// Where samples are in the caches of all nodes: for each the earliest copy. Filled by many threads at once.
#[derive(Debug)]
pub(crate) struct PublishedCopies(Vec<AtomicU32>);

/// A cached copy of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedCopy {
    /// The step from which it can be read.
    pub step: u64,
    /// The cache that holds it.
    pub cache: u8,
}

impl PublishedCopies {
    /// Nothing is held.
    pub(crate) fn none(samples: u64) -> Self {
        Self((0..samples).map(|_| AtomicU32::new(u32::MAX)).collect())
    }

    /// Notes a copy of `sample`; the earliest stays.
    pub(crate) fn publish(&self, sample: u32, copy: CachedCopy) {
        let word = (copy.step.min(LAST_STEP) as u32) << 3 | u32::from(copy.cache);
        self.0[sample as usize].fetch_min(word, Ordering::Relaxed);
    }

    /// The copy of `sample` that can be read in `step`.
    pub(crate) fn copy(&self, sample: u32, step: u64) -> Option<CachedCopy> {
        let word = self.0[sample as usize].load(Ordering::Relaxed);
        let copy = CachedCopy { step: u64::from(word >> 3), cache: (word & 7) as u8 };
        (copy.step <= step && copy.step < LAST_STEP).then_some(copy)
    }
}

/// More steps than this are as far as never.
const LAST_STEP: u64 = (1 << 29) - 1;
