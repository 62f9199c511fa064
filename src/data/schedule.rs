//! The order of an epoch, and the batches that each rank takes of it. Pure: the whole epoch is known in advance.
//!
//! An epoch makes *draws*: each takes one sample. The *occurrence* of a draw is its index among the draws of the same
//! sample. The order of an epoch is a permutation of its draws, and a *position* is a place in that order.
//!
//! - `selection` says which samples an epoch draws, and how often: subsets, weights, mixtures.
//! - `permutation` shuffles the draws invertibly; `block_shuffle` shuffles blocks of neighbouring samples.
//! - `order` combines both: which sample is at which position of an epoch.
//! - `bucket_order` shuffles draws so that each global batch is of one bucket of `bucket_sizes`.
//! - `bin_order` packs draws into bins whose costs stay within a budget.
//! - [`Schedule`] cuts an order into the batches of a rank, as slices or by the nodes that keep the samples (`owners`,
//!   `locality`).
//!
//! An order depends only on the dataset's fingerprint, the selection, the seed, the epoch and `repeats`. With shuffled
//! blocks it also depends on the blocks, the global batch and the number of ranks. Every rank makes equally many steps.
//! With assignment by locality, a rank takes other samples of a global batch than its slice, but equally many. The
//! global batch and the state stay the same. → `tests/data/schedule.rs`, `tests/data/locality.rs`,
//! `tests/data/selection.rs`

mod bin_order;
mod block_shuffle;
mod bucket_order;
mod bucket_sizes;
pub mod locality;
mod order;
mod owners;
mod permutation;
mod repeats;
mod selection;

pub use bin_order::{CostTable, Packing};
pub use block_shuffle::RankRanges;
pub use bucket_order::BucketTable;
pub use bucket_sizes::BucketSizes;
pub use order::{Order, TABLE_LIMIT};
pub use owners::SampleOwners;
pub use repeats::RepeatSpread;
pub use selection::{Draw, Selection};

use base::error::{Error, Result};
use base::names::named;
use locality::Locality;
use std::sync::Arc;

/// What happens to the samples that do not fill the last global batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// Leave them out of this epoch.
    #[default]
    Drop,
    /// Fill the batch with samples from the epoch's beginning. The mask marks them as padding.
    Pad,
    /// Make the batch shorter. The remaining samples are divided among the ranks as evenly as possible, with more for
    /// lower ranks, and every rank makes the same number of steps. A rank's last batch may be one sample shorter than
    /// another's. If no sample remains for a rank, it gets one from the epoch's beginning as padding, because a mean
    /// over no samples is NaN. With mixing, mixing groups of four samples are never divided.
    Partial,
}

named!(LastBatch: "drop" => Drop, "pad" => Pad, "partial" => Partial);

/// The order in which an epoch takes its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffling {
    /// In the order of the dataset.
    Off,
    /// At random, over the whole epoch.
    On,
    /// At random, but neighbouring samples that are read at once stay close together.
    Blocks,
}

impl From<bool> for Shuffling {
    fn from(shuffled: bool) -> Self {
        if shuffled { Self::On } else { Self::Off }
    }
}

/// How the samples of a global batch are assigned to ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Assignment {
    /// Rank r takes the r-th slice of the global batch.
    #[default]
    Order,
    /// A sample goes to a rank of its owner node, the node that keeps the sample, if the node's ranks have space left
    /// in their batches.
    Locality,
    /// Like `Locality`, and ranks also get about equally many bytes. This moves no additional samples between nodes.
    EvenLocality,
}

named!(Assignment: "order" => Order, "locality" => Locality, "even_locality" => EvenLocality);

/// An entry of a batch: a drawn sample, and its index in the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The index of the entry among all entries of the epoch, over all batches and ranks. For padding, the index of the
    /// entry that it repeats. Without [repeats](Order::repeated) this is the position in the epoch's order.
    pub position: u64,
    /// The sample, and the index of this draw among the sample's draws.
    pub draw: Draw,
    /// False for padding.
    pub valid: bool,
}

/// The batches of one rank.
///
/// Global batch `g` is positions `[g·B, (g+1)·B)` with `B = batch_size · world_size`; rank `r` takes its `r`-th slice.
/// So the global batches are the same for any world size with the same `B`.
///
/// If the order [repeats](Order::repeated) samples, a global batch contains each of its samples once, then each a
/// second time, and so on. So the repeats of a sample go to as many different ranks as possible, and neighbours in a
/// batch are different samples.
///
/// With [assignment by locality](Schedule::by_locality), ranks take other samples of a global batch than their slice.
///
/// If the order is [in bins](Schedule::of_bins), a batch is a bin. A step takes a bin for each rank, so `batch_size` is
/// 1 and the global batch is counted in bins. A *global step* is several steps, which together take a fixed number of
/// bins, whatever the number of ranks.
#[derive(Debug, Clone)]
pub struct Schedule {
    order: Order,
    batch_size: u32,
    rank: u32,
    world_size: u32,
    last: LastBatch,
    /// Number of consecutive samples of a global batch that always go to the same rank, as mixing groups must.
    unit: u32,
    steps: u64,
    /// The owner nodes of samples, if samples are assigned to ranks by locality.
    owners: Option<Arc<SampleOwners>>,
    /// The number of bins in a global step; `None` if the order is not in bins.
    step_bins: Option<u32>,
}

impl Schedule {
    /// Makes a schedule of `batch_size` samples per rank and step; the global batch is `batch_size * world_size`.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a batch size of 0, a rank outside the world, or (with `Drop`) fewer samples
    /// than one global batch.
    pub fn new(order: Order, batch_size: u32, rank: u32, world_size: u32, last: LastBatch) -> Result<Self> {
        let steps = Self::count(order.len(), batch_size, rank, world_size, last)?;
        Ok(Self { order, batch_size, rank, world_size, last, unit: 1, steps, owners: None, step_bins: None })
    }

    /// Makes a schedule of one bin per rank and step. `step_bins` bins are a global step, which is complete on every
    /// rank: with `Drop`, the bins of an incomplete one are left out, and with `Pad`, bins of the epoch's beginning
    /// fill it. With `Partial`, they fill only the last step.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a rank outside the world, `step_bins` that the ranks cannot divide evenly, or
    /// (with `Drop`) fewer bins than a global step.
    ///
    /// # Panics
    /// Panics if the order is not in bins.
    pub fn of_bins(
        order: Order,
        step_bins: u32,
        rank: u32,
        world_size: u32,
        last: LastBatch,
    ) -> Result<Self> {
        bin_order::check_bins(step_bins, rank, world_size)?;
        let bins = order.bins().expect("an order in bins");
        let steps = bins.steps(step_bins, world_size, last);
        if steps == 0 {
            let message = format!(
                "is {step_bins}, but an epoch fills only {} bins, so with last_batch=\"drop\" there would be no batch: \
                 lower bins or batch_tokens, or set last_batch to \"pad\" or \"partial\"",
                bins.bins()
            );
            return Err(Error::config("bins", message));
        }
        let step_bins = Some(step_bins);
        Ok(Self { order, batch_size: 1, rank, world_size, last, unit: 1, steps, owners: None, step_bins })
    }

    /// Returns the same schedule, in which each group of `unit` consecutive samples of a global batch goes to one rank.
    /// Groups begin at multiples of `unit`.
    ///
    /// # Panics
    /// Panics unless the batch size is a multiple of `unit`.
    pub fn with_unit(self, unit: u32) -> Self {
        assert!(
            self.batch_size.is_multiple_of(unit),
            "the batch size {} is not a multiple of the unit {unit}",
            self.batch_size
        );
        Self { unit, ..self }
    }

    /// Returns the same schedule with samples assigned to ranks of their owner nodes. A node's ranks take as many of
    /// the node's samples as fit into their batches. Only the remaining samples move to other nodes. No assignment
    /// moves fewer samples, except if mixing groups must stay together.
    ///
    /// The samples of each global batch stay the same, and each rank takes as many as before, in the order of the
    /// global batch. An incomplete last global batch is divided into slices as usual.
    ///
    /// # Errors
    /// [`Error::Config`] unless `owners` has as many ranks as this schedule.
    pub fn by_locality(self, owners: Arc<SampleOwners>) -> Result<Self> {
        let ranks = owners.node_of_rank.len();
        if ranks as u64 != u64::from(self.world_size) {
            let message = format!(
                "is {}, but the peers have {ranks} ranks: with assignment=\"locality\", the loader's ranks must be \
                 exactly the ranks of the job",
                self.world_size
            );
            return Err(Error::config("world_size", message));
        }
        Ok(Self { owners: Some(owners), ..self })
    }

    /// Returns the number of steps of an epoch with this number of `draws`, in any order.
    ///
    /// # Errors
    /// The errors of [`Schedule::new`].
    pub fn count(draws: u64, batch_size: u32, rank: u32, world_size: u32, last: LastBatch) -> Result<u64> {
        if batch_size == 0 {
            return Err(Error::config("batch_size", "is 0, must be at least 1"));
        }
        if world_size == 0 {
            return Err(Error::config("world_size", "is 0, must be at least 1"));
        }
        if rank >= world_size {
            let message = format!("is {rank}, must be below world_size, which is {world_size}");
            return Err(Error::config("rank", message));
        }
        let global = u64::from(batch_size) * u64::from(world_size);
        if last == LastBatch::Drop && draws < global {
            let message = format!(
                "{batch_size} on each of {world_size} ranks is a global batch of {global}, but an epoch has only {} \
                 samples, so with last_batch=\"drop\" there would be no batch: lower batch_size, or set last_batch to \
                 \"pad\" or \"partial\"",
                draws
            );
            return Err(Error::config("batch_size", message));
        }
        let steps = match last {
            LastBatch::Drop => draws / global,
            LastBatch::Pad | LastBatch::Partial => draws.div_ceil(global),
        };
        Ok(steps)
    }

    /// Returns the number of steps of the epoch, which is the same on every rank.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of samples that this rank gets in `step`: the batch size including padding, or less in a
    /// partial last batch.
    ///
    /// # Panics
    /// Panics if `step` is not below [`Schedule::steps`].
    pub fn batch_len(&self, step: u64) -> u32 {
        self.slice(step).1
    }

    /// Returns the entries of this rank's batch in `step`, [`Schedule::batch_len`] of them. Each entry is computed on
    /// demand, in O(1). With assignment by locality, the whole global batch is assigned first.
    ///
    /// # Panics
    /// Panics if `step` is not below [`Schedule::steps`].
    pub fn places(&self, step: u64) -> impl ExactSizeIterator<Item = BatchEntry> {
        let (offset, len) = self.slice(step);
        let local = self.local_places(step);
        (0..len).map(move |index| {
            let place = local.as_ref().map(|places| u64::from(places[index as usize]));
            self.place(step, place.unwrap_or(offset + u64::from(index)))
        })
    }

    fn place(&self, step: u64, within: u64) -> BatchEntry {
        let len = self.order.len();
        let start = step * self.global_batch();
        if let Some(bins) = self.order.bins() {
            let valid = self.bin(step) < bins.bins();
            return BatchEntry { position: within, draw: self.order.draw(within), valid };
        }
        if self.order.buckets().is_some() {
            let (position, valid) = (start + within, within < self.left(step));
            return BatchEntry { position, draw: self.order.draw(position), valid };
        }
        // Compare differences, not sums, because sums could overflow.
        let left = len - start;
        let valid = within < left;
        let position = if valid { start + within } else { (within - left) % len };
        BatchEntry { position, draw: self.order.draw(self.spread().position(position)), valid }
    }

    /// Returns the indices of this rank's samples in the global batch of `step`, in ascending order, if samples are
    /// assigned by locality. `None` means that the rank takes its slice.
    fn local_places(&self, step: u64) -> Option<Vec<u32>> {
        let owners = self.owners.as_ref()?;
        let (start, global) = (step * self.global_batch(), self.global_batch());
        if self.left(step) < global {
            return None;
        }
        let spread = self.spread();
        let samples: Vec<u64> =
            (start..start + global).map(|place| self.order.sample(spread.position(place))).collect();
        let owner_of: Vec<Option<usize>> = samples.iter().map(|&sample| owners.owner(sample)).collect();
        let bytes = owners.bytes(&samples);
        let sizes = vec![self.batch_size; self.world_size as usize];
        let batches = Locality::new(&owners.node_of_rank, self.unit as usize).assign(
            &owner_of,
            &sizes,
            bytes.as_deref(),
        );
        Some(batches.of_rank(self.rank as usize).to_vec())
    }

    /// Sorts the entries of a batch for reading: entries of the same sample become neighbours.
    pub fn sort_for_reading<T>(&self, places: &mut [T], entry: impl Fn(&T) -> &BatchEntry) {
        if self.order.repeats() > 1 {
            let spread = self.spread();
            places.sort_by_key(|place| spread.position(entry(place).position));
        }
    }

    /// Returns the minimum number of different samples in a batch of this rank, if the order draws no sample more than
    /// once; the average number if the order is in bins.
    pub fn samples_per_batch(&self) -> u64 {
        if let Some(bins) = self.order.bins() {
            return (bins.len() / bins.bins().max(1)).max(1);
        }
        let (batch, repeats) = (u64::from(self.batch_size), u64::from(self.order.repeats()));
        match self.owners {
            None => batch.min(self.global_batch().div_ceil(repeats)),
            // If a node has only one rank, this rank may take all repeats of a sample.
            Some(_) => batch.div_ceil(repeats),
        }
    }

    /// Returns the number of draws that are left for `step`: at least a global batch, unless the step takes a rest.
    fn left(&self, step: u64) -> u64 {
        match self.order.buckets() {
            Some(buckets) => buckets.batch_len(step),
            None => self.order.len() - step * self.global_batch(),
        }
    }

    /// Returns the bucket of all samples of `step`; `None` without buckets.
    ///
    /// # Panics
    /// Panics if `step` is not below [`Schedule::steps`].
    pub fn bucket(&self, step: u64) -> Option<u8> {
        self.order.buckets().map(|buckets| buckets.bucket(step))
    }

    /// Returns the number of this rank's bin in `step`, which is at least the number of bins for padding.
    fn bin(&self, step: u64) -> u64 {
        step * u64::from(self.world_size) + u64::from(self.rank)
    }

    /// Returns the number of bins in a global step; `None` if the order is not in bins.
    pub fn step_bins(&self) -> Option<u32> {
        self.step_bins
    }

    /// Returns the position of the first draw of `step`, or the end of the epoch.
    pub fn first_position(&self, step: u64) -> u64 {
        let first = step * self.global_batch();
        match self.order.bins() {
            Some(bins) => bins.start(first.min(bins.bins())),
            None => first.min(self.order.len()),
        }
    }

    /// Returns how the epoch is packed; `None` if the order is not in bins.
    pub fn packing(&self) -> Option<Packing> {
        let bins = self.order.bins()?;
        let all = self.steps * self.global_batch();
        let taken = all.min(bins.bins());
        let table = bins.table();
        let samples = bins.start(taken);
        Some(Packing {
            bins: taken,
            samples,
            fullness: bins.fullness(taken),
            over_budget: self.order.selection().draws() - table.fitting(),
            left_out: bins.len() - samples,
            padding: all - taken,
            most_samples: table.most(),
        })
    }

    fn spread(&self) -> RepeatSpread {
        RepeatSpread::new(&self.order, self.global_batch())
    }

    /// Returns the order that the batches are cut from.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Returns the number of samples per rank and step; 1 if the order is in bins.
    pub fn batch_size(&self) -> u32 {
        self.batch_size
    }

    /// Returns the rank that takes these batches.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the number of samples that all ranks together take in a step; of bins if the order is in bins.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.batch_size) * u64::from(self.world_size)
    }

    /// Returns the number of ranks whose last batch is only padding, because the epoch has too few samples for all
    /// ranks.
    pub fn padded_ranks(&self) -> u32 {
        match self.order.len() % self.global_batch() {
            left @ 1.. if self.last == LastBatch::Partial && self.step_bins.is_none() => {
                self.world_size - left.div_ceil(self.unit.into()).min(self.world_size.into()) as u32
            }
            _ => 0,
        }
    }

    /// Returns the offset and the length of this rank's slice of global batch `step`.
    fn slice(&self, step: u64) -> (u64, u32) {
        assert!(step < self.steps, "step {step} of an epoch of {}", self.steps);
        if let Some(bins) = self.order.bins() {
            let bin = self.bin(step) % bins.bins();
            return (bins.start(bin), (bins.start(bin + 1) - bins.start(bin)) as u32);
        }
        let rank = u64::from(self.rank);
        let global = self.global_batch();
        let left = self.left(step);
        if self.last == LastBatch::Partial && left < global {
            let (unit, world_size) = (u64::from(self.unit), u64::from(self.world_size));
            let units = left.div_ceil(unit);
            if rank >= units {
                return (left + rank - units, 1);
            }
            let (each, extra) = (units / world_size, units % world_size);
            // The last unit may be incomplete.
            let end_of = |rank: u64| ((rank * each + rank.min(extra)) * unit).min(left);
            (end_of(rank), (end_of(rank + 1) - end_of(rank)) as u32)
        } else {
            (rank * u64::from(self.batch_size), self.batch_size)
        }
    }
}
