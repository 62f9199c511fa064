//! The order of an epoch: an invertible permutation, and the batches that are cut from it. It is pure, and knows the
//! whole epoch in advance.

mod homes;
pub mod locality;
mod order;
mod permutation;
mod repeats;
mod selection;
mod stretch_shuffle;

pub use homes::SampleHomes;
pub use order::{Order, TABLE_LIMIT};
pub use repeats::RepeatSpread;
pub use selection::{Draw, Selection};
pub use stretch_shuffle::SequenceParts;

use base::error::{Error, Result};
use base::names::named;
use locality::Locality;
use std::sync::Arc;

/// What happens to the samples that do not fill the last global batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// They are left out of this epoch.
    #[default]
    Drop,
    /// The batch is filled with samples from the epoch's beginning; the mask says which are padding.
    Pad,
    /// The batch is shorter. The remainder is split as evenly as it goes, lower ranks first, so that every rank
    /// still makes the same number of steps: a rank's last batch may be one sample shorter than another's. A rank for
    /// which no sample remains gets one of the epoch's beginning as padding, because a mean over no sample is NaN.
    /// Where samples are mixed in rings, whole rings are split.
    Partial,
}

named!(LastBatch: "drop" => Drop, "pad" => Pad, "partial" => Partial);

/// In which order an epoch takes its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffling {
    /// As the dataset lists them.
    Off,
    /// At random, over the whole epoch.
    On,
    /// At random, but that neighbours which are read at once come near one another.
    Blocks,
}

impl From<bool> for Shuffling {
    fn from(shuffled: bool) -> Self {
        if shuffled { Self::On } else { Self::Off }
    }
}

/// Which rank takes which sample of a global batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Assignment {
    /// Rank r takes the r-th slice.
    #[default]
    Order,
    /// The ranks of the node that keeps a sample take it, as far as that can be.
    Locality,
    /// The same, and as far as no more samples move for it, ranks get about as many bytes each.
    EvenLocality,
}

named!(Assignment: "order" => Order, "locality" => Locality, "even_locality" => EvenLocality);

/// One place of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The number of the place in the epoch, over all batches and ranks; for padding, that of the place it repeats.
    /// Without [repeats](Order::repeated) it is the position in the epoch's order.
    pub position: u64,
    /// The sample, and which of its draws this is.
    pub draw: Draw,
    /// Whether the place counts; false for padding.
    pub valid: bool,
}

/// The batches of one rank.
///
/// Global batch `g` is positions `[g·B, (g+1)·B)` with `B = batch_size · world_size`; rank `r` takes its `r`-th slice.
/// So the global batches are the same for any world size that gives the same `B`.
///
/// Where the order [repeats](Order::repeated) samples, a global batch has first one of each of its samples, then the
/// next of each, and so on: so the repeats of a sample come to as many different ranks as can be, and neighbours in a
/// batch are different samples.
///
/// [By locality](Schedule::by_locality) ranks take other places of a global batch than their slice.
#[derive(Debug, Clone)]
pub struct Schedule {
    order: Order,
    batch_size: u32,
    rank: u32,
    world_size: u32,
    last: LastBatch,
    /// How many neighbouring places of a global batch are never parted.
    unit: u32,
    steps: u64,
    /// Where samples are kept, if ranks take their places by that.
    homes: Option<Arc<SampleHomes>>,
}

impl Schedule {
    /// Makes a schedule of `batch_size` samples per rank and step; the global batch is `batch_size * world_size`.
    ///
    /// # Errors
    /// [`base::error::Error::Config`] for a batch size of 0, a rank outside the world, or (with `Drop`) fewer samples
    /// than one global batch.
    pub fn new(order: Order, batch_size: u32, rank: u32, world_size: u32, last: LastBatch) -> Result<Self> {
        let steps = Self::count(order.len(), batch_size, rank, world_size, last)?;
        Ok(Self { order, batch_size, rank, world_size, last, unit: 1, steps, homes: None })
    }

    /// The same schedule, in which positions from a multiple of `unit` to the next always come to one rank.
    ///
    /// # Panics
    /// Panics unless a batch is so many whole units.
    pub fn in_units(self, unit: u32) -> Self {
        assert!(
            self.batch_size.is_multiple_of(unit),
            "a batch of {} is no whole units of {unit}",
            self.batch_size
        );
        Self { unit, ..self }
    }

    /// The same schedule, in which samples of a global batch come to the ranks of the node that keeps them: as many as
    /// these ranks take at all, and only the rest moves. No assignment moves fewer, but that samples which are mixed
    /// with one another stay together.
    ///
    /// Each global batch has the same places, each rank as many of them, and its batch has them in ascending order. An
    /// incomplete last global batch is divided into slices as it is without.
    ///
    /// # Errors
    /// [`Error::Config`] unless `homes` are those of a job of as many ranks.
    pub fn by_locality(self, homes: Arc<SampleHomes>) -> Result<Self> {
        let ranks = homes.node_of_rank().len();
        if ranks as u64 != u64::from(self.world_size) {
            let message = format!(
                "is {}, but {ranks} ranks have told what their nodes keep: with assignment=\"locality\" all ranks of \
                 the job take part, and no others",
                self.world_size
            );
            return Err(Error::config("world_size", message));
        }
        Ok(Self { homes: Some(homes), ..self })
    }

    /// The number of steps of an epoch with this number of `draws`, whatever its order.
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
                "{batch_size} on each of {world_size} ranks is {global}, but an epoch has {} samples and \
                 last_batch is drop, so there would be no batch: lower it, or set last_batch to pad or partial",
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

    /// The number of steps of the epoch, which is the same on every rank.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of samples that this rank gets in `step`: the batch size including padding, or less in a partial last
    /// batch.
    ///
    /// # Panics
    /// Panics when `step` is not below [`Schedule::steps`].
    pub fn batch_len(&self, step: u64) -> u32 {
        self.slice(step).1
    }

    /// The places of this rank's batch in `step`, [`Schedule::batch_len`] of them. Each is computed when it is asked
    /// for, in O(1). By locality, the whole global batch is assigned first.
    ///
    /// # Panics
    /// Panics when `step` is not below [`Schedule::steps`].
    pub fn places(&self, step: u64) -> impl ExactSizeIterator<Item = BatchEntry> {
        let (offset, len) = self.slice(step);
        let local = self.local_places(step);
        (0..len).map(move |index| {
            let place = local.as_ref().map(|places| u64::from(places[index as usize]));
            self.place(step, place.unwrap_or(offset + u64::from(index)))
        })
    }

    /// A place by its number within the global batch of `step`.
    fn place(&self, step: u64, within: u64) -> BatchEntry {
        let len = self.order.len();
        let start = step * self.global_batch();
        // These are differences, so that nothing overflows whatever `len` is.
        let left = len - start;
        let valid = within < left;
        let position = if valid { start + within } else { (within - left) % len };
        BatchEntry { position, draw: self.order.draw(self.spread().position(position)), valid }
    }

    /// The places of this rank within the global batch of `step` by locality, in ascending order; `None` where it takes
    /// its slice.
    fn local_places(&self, step: u64) -> Option<Vec<u32>> {
        let homes = self.homes.as_ref()?;
        let (start, global) = (step * self.global_batch(), self.global_batch());
        if self.order.len() - start < global {
            return None;
        }
        let spread = self.spread();
        let samples: Vec<u64> =
            (start..start + global).map(|place| self.order.sample(spread.position(place))).collect();
        let homes_of: Vec<Option<usize>> = samples.iter().map(|&sample| homes.home(sample)).collect();
        let bytes = homes.bytes(&samples);
        let sizes = vec![self.batch_size; self.world_size as usize];
        let batches = Locality::new(homes.node_of_rank(), self.unit as usize).assign(
            &homes_of,
            &sizes,
            bytes.as_deref(),
        );
        Some(batches.of_rank(self.rank as usize).to_vec())
    }

    /// Sorts the places of a batch as their samples are read: those that show one sample come one after another.
    pub fn sort_for_reading<T>(&self, places: &mut [T], entry: impl Fn(&T) -> &BatchEntry) {
        if self.order.repeats() > 1 {
            let spread = self.spread();
            places.sort_by_key(|place| spread.position(entry(place).position));
        }
    }

    /// The number of different samples that a batch of this rank shows at least, where the order draws none anew.
    pub fn samples_per_batch(&self) -> u64 {
        let (batch, repeats) = (u64::from(self.batch_size), u64::from(self.order.repeats()));
        match self.homes {
            None => batch.min(self.global_batch().div_ceil(repeats)),
            // All repeats of a sample may come to the one rank of its node.
            Some(_) => batch.div_ceil(repeats),
        }
    }

    fn spread(&self) -> RepeatSpread {
        RepeatSpread::new(&self.order, self.global_batch())
    }

    /// The order that the batches are cut from.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The number of samples per rank and step.
    pub fn batch_size(&self) -> u32 {
        self.batch_size
    }

    /// The rank whose batches these are.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The number of samples that all ranks together take in a step.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.batch_size) * u64::from(self.world_size)
    }

    /// The number of ranks whose last batch is padding alone, because no sample of the epoch is left for them.
    pub fn padded_ranks(&self) -> u32 {
        match self.order.len() % self.global_batch() {
            left @ 1.. if self.last == LastBatch::Partial => {
                self.world_size - left.div_ceil(self.unit.into()).min(self.world_size.into()) as u32
            }
            _ => 0,
        }
    }

    /// Where this rank's part of global batch `step` begins in it, and how long it is.
    fn slice(&self, step: u64) -> (u64, u32) {
        assert!(step < self.steps, "step {step} of an epoch of {}", self.steps);
        let rank = u64::from(self.rank);
        let global = self.global_batch();
        let left = self.order.len() - step * global;
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
