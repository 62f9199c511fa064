//! The order of an epoch: an invertible permutation and the batches cut from it. Pure; knows the whole future.

use crate::dataset::Fingerprint;

/// What happens to the samples that do not fill the last global batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LastBatch {
    /// They are left out of this epoch.
    #[default]
    Drop,
    /// The batch is filled from the epoch's beginning; the mask says which are padding.
    Pad,
    /// The batch is shorter; every rank still makes the same number of steps.
    Partial,
}

/// The order of one epoch: position ↔ sample.
#[derive(Debug, Clone)]
pub struct Order {}

impl Order {
    /// The shuffled order of `len` samples for (fingerprint, seed, epoch).
    pub fn shuffled(_fingerprint: &Fingerprint, _seed: u64, _epoch: u64, _len: u64) -> Self {
        todo!()
    }
    /// Sample at position = position.
    pub fn sequential(_len: u64) -> Self {
        todo!()
    }
    /// Number of samples.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// The sample at `position`.
    pub fn sample(&self, _position: u64) -> u64 {
        todo!()
    }
    /// The position of `sample`: the inverse.
    pub fn position(&self, _sample: u64) -> u64 {
        todo!()
    }
}

/// One place of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Position in the epoch's order (for padding: the position it repeats).
    pub position: u64,
    /// The sample.
    pub sample: u64,
    /// False for padding.
    pub valid: bool,
}

/// The batches of one rank.
#[derive(Debug, Clone)]
pub struct Schedule {}

impl Schedule {
    /// `batch_size` samples per rank and step; the global batch is `batch_size * world_size`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] for a batch size of 0, a rank outside the world, or (with `Drop`) fewer samples than
    /// one global batch.
    pub fn new(
        _order: Order,
        _batch_size: u32,
        _rank: u32,
        _world_size: u32,
        _last: LastBatch,
    ) -> crate::Result<Self> {
        todo!()
    }
    /// Steps of the epoch: the same on every rank.
    pub fn steps(&self) -> u64 {
        todo!()
    }
    /// Samples this rank gets in `step` (less than the batch size only in a partial last batch).
    pub fn batch_len(&self, _step: u64) -> u32 {
        todo!()
    }
    /// Place `index` of this rank's batch `step`. O(1).
    pub fn place(&self, _step: u64, _index: u32) -> Place {
        todo!()
    }
    /// The order underneath.
    pub fn order(&self) -> &Order {
        todo!()
    }
}
