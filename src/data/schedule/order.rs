//! The order of one epoch: maps positions to samples, and samples to positions.

use super::LastBatch;
use super::bin_order::{BinOrder, CostTable};
use super::block_shuffle::{BlockShuffle, BlockShuffleKeys, RankRanges};
use super::bucket_order::{BucketOrder, BucketTable};
use super::permutation::{Feistel, Shuffle};
use super::selection::{Draw, DrawKeys, Selection};
use crate::dataset::{Fingerprint, NeighbourBlocks};
use base::rng::{RandomKey, RandomStream, Use};
use std::sync::Arc;

/// Up to this many draws, the permutation is a table (8 bytes per draw). Larger permutations are computed.
pub const TABLE_LIMIT: u64 = 65_536;

/// The order of one epoch: a permutation of its draws, each of which gives a sample.
///
/// Position ↔ draw is O(1); so is draw ↔ sample if every sample is drawn once. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Order {
    selection: Arc<Selection>,
    permutation: Permutation,
    keys: Option<DrawKeys>,
    repeats: u32,
}

#[derive(Debug, Clone)]
enum Permutation {
    Identity,
    Table(Arc<Shuffle>),
    Computed(Arc<Feistel>),
    NeighbourBlocks(Arc<BlockShuffle>),
    Buckets(Arc<BucketOrder>),
    Bins(Arc<BinOrder>),
}

impl Order {
    /// Makes the shuffled order of all `len` samples. It depends on (fingerprint, seed, epoch) and on nothing else.
    ///
    /// Up to [`TABLE_LIMIT`] samples, the order is a Fisher–Yates shuffle. For more samples, it is a Feistel network,
    /// which needs no memory.
    pub fn shuffled(fingerprint: &Fingerprint, seed: u64, epoch: u64, len: u64) -> Self {
        Self::drawn(Arc::new(Selection::all(len)), fingerprint, seed, epoch)
    }

    /// Makes the order of the shuffled draws of `selection` for (fingerprint, seed, epoch).
    pub fn drawn(selection: Arc<Selection>, fingerprint: &Fingerprint, seed: u64, epoch: u64) -> Self {
        let mut dataset = fingerprint.0.to_vec();
        dataset.extend(selection.digest().into_iter().flatten());
        let key = |usage| RandomKey::new(&dataset, seed, epoch, usage);
        let len = selection.draws();
        let permutation = if len <= TABLE_LIMIT {
            Permutation::Table(Arc::new(Shuffle::new(&key(Use::Order), len as u32)))
        } else {
            Permutation::Computed(Arc::new(Feistel::new(&mut key(Use::Order).stream(0), len)))
        };
        let keys = Some(DrawKeys { slices: key(Use::Slice), rounds: key(Use::Round) });
        Self { selection, permutation, keys, repeats: 1 }
    }

    /// Makes an order of the members of `selection` for (fingerprint, seed, epoch) that keeps neighbours near: the
    /// samples of each of the `neighbour_blocks` (blocks of neighbouring samples) are close together. `divided` gives
    /// each rank a separate range.
    ///
    /// # Panics
    /// Panics unless every member is drawn once, `neighbour_blocks` belongs to the members, and a global batch divides
    /// evenly among the parts of `divided`.
    pub fn by_neighbour_blocks(
        selection: Arc<Selection>,
        neighbour_blocks: Arc<NeighbourBlocks>,
        fingerprint: &Fingerprint,
        seed: u64,
        epoch: u64,
        divided: RankRanges,
    ) -> Self {
        assert!(!selection.is_weighted() && selection.draws() == selection.members());
        assert_eq!(selection.members(), neighbour_blocks.members());
        let dataset = [fingerprint.0, *neighbour_blocks.digest()].concat();
        let key = |usage| RandomKey::new(&dataset, seed, epoch, usage);
        let keys = BlockShuffleKeys {
            neighbour_blocks: key(Use::Order),
            read_units: key(Use::ReadUnit),
            phases: key(Use::Phase),
        };
        let shuffle = BlockShuffle::new(neighbour_blocks, keys, divided);
        Self {
            selection,
            permutation: Permutation::NeighbourBlocks(Arc::new(shuffle)),
            keys: None,
            repeats: 1,
        }
    }

    /// Makes the order of the draws of `selection` for (fingerprint, seed, epoch) in which all samples of a global
    /// batch are of one bucket. `table` has the buckets of the draws. Unless `is_shuffled`, the buckets come one after
    /// another, each in the order of the members.
    ///
    /// # Panics
    /// Panics unless every member is drawn once.
    pub fn by_buckets(
        selection: Arc<Selection>,
        table: Arc<BucketTable>,
        (fingerprint, seed, epoch): (&Fingerprint, u64, u64),
        global_batch: u64,
        is_shuffled: bool,
        last: LastBatch,
    ) -> Self {
        assert!(!selection.is_weighted() && selection.draws() == selection.members());
        let mut dataset = [fingerprint.0, *table.digest()].concat();
        dataset.extend(selection.digest().into_iter().flatten());
        let key = |usage| RandomKey::new(&dataset, seed, epoch, usage);
        let keys = is_shuffled.then(|| [key(Use::Bucket), key(Use::BucketOrder)]);
        let buckets = BucketOrder::new(table, global_batch, keys, last);
        Self { selection, permutation: Permutation::Buckets(Arc::new(buckets)), keys: None, repeats: 1 }
    }

    /// Returns the same draws in bins, whose costs in `table` are at most its budget. Draws that cost more are left
    /// out.
    ///
    /// # Panics
    /// Panics unless every member is drawn once, and fewer than 2³² are drawn.
    pub fn in_bins(self, table: Arc<CostTable>) -> Self {
        assert!(!self.selection.is_weighted() && self.selection.draws() == self.selection.members());
        assert!(self.repeats == 1 && self.len() < 1 << 32);
        let bins = BinOrder::new(table, (0..self.len()).map(|place| self.number(place)));
        Self {
            selection: self.selection,
            permutation: Permutation::Bins(Arc::new(bins)),
            keys: None,
            repeats: 1,
        }
    }

    pub(super) fn bins(&self) -> Option<&BinOrder> {
        match &self.permutation {
            Permutation::Bins(bins) => Some(bins),
            _ => None,
        }
    }

    pub(super) fn buckets(&self) -> Option<&BucketOrder> {
        match &self.permutation {
            Permutation::Buckets(buckets) => Some(buckets),
            _ => None,
        }
    }

    /// Returns the number of draws that no batch of the epoch has, because they do not fill a batch of their bucket.
    pub fn left_out(&self) -> u64 {
        self.buckets().map_or(0, BucketOrder::left_out)
    }

    /// Makes the order of all samples in which position `i` has sample `i`.
    pub fn sequential(len: u64) -> Self {
        Self::listed(Arc::new(Selection::all(len)))
    }

    /// Makes the order of the members of `selection` as listed. The order starts again from the first member if an
    /// epoch has more draws than members.
    ///
    /// # Panics
    /// Panics if the selection is weighted.
    pub fn listed(selection: Arc<Selection>) -> Self {
        assert!(!selection.is_weighted(), "weights need a shuffled order");
        Self { selection, permutation: Permutation::Identity, keys: None, repeats: 1 }
    }

    /// Returns the order in which each draw occurs `repeats` times in a row. The number of positions stays the same, so
    /// an epoch contains only 1/`repeats` of its draws. Each repeat is a draw with its own occurrence.
    ///
    /// # Panics
    /// Panics if `repeats` is 0.
    pub fn repeated(self, repeats: u32) -> Self {
        assert!(repeats > 0, "repeats must be at least 1");
        Self { repeats, ..self }
    }

    /// Returns the number of ranks among which blocks of neighbouring samples are divided; `None` unless blocks are
    /// shuffled.
    pub fn parts(&self) -> Option<u32> {
        match &self.permutation {
            Permutation::NeighbourBlocks(shuffle) => Some(shuffle.parts()),
            _ => None,
        }
    }

    /// Returns how many consecutive positions have the same sample.
    pub fn repeats(&self) -> u32 {
        self.repeats
    }

    /// Returns the number of positions, which equals the number of draws. With buckets, it is the number of places of
    /// all global batches, of which some may be padding. In bins, it is the number of draws within the budget.
    pub fn len(&self) -> u64 {
        match &self.permutation {
            Permutation::Buckets(buckets) => buckets.len(),
            Permutation::Bins(bins) => bins.len(),
            _ => self.selection.draws(),
        }
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the selection that the epoch draws from.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// Returns the sample at `position`.
    ///
    /// # Panics
    /// Panics if `position` is not below [`Order::len`].
    pub fn sample(&self, position: u64) -> u64 {
        self.draw(position).sample
    }

    /// Returns the sample at `position`, and the index of this draw among the sample's draws.
    ///
    /// # Panics
    /// Panics if `position` is not below [`Order::len`].
    pub fn draw(&self, position: u64) -> Draw {
        assert!(position < self.len(), "position {position} of an order of {}", self.len());
        let (place, repeat) = match self.repeats {
            1 => (position, 0),
            repeats => (position / u64::from(repeats), (position % u64::from(repeats)) as u32),
        };
        let Draw { sample, occurrence } = self.numbered(self.number(place));
        // In practice no sample has 2^32 draws in an epoch; `wrapping_mul` avoids a panic for absurd settings.
        Draw { sample, occurrence: occurrence.wrapping_mul(self.repeats).wrapping_add(repeat) }
    }

    fn number(&self, place: u64) -> u64 {
        match &self.permutation {
            Permutation::Identity => place,
            Permutation::Table(shuffle) => shuffle.sample(place),
            Permutation::Computed(feistel) => feistel.forward(place),
            Permutation::NeighbourBlocks(shuffle) => shuffle.member(place),
            Permutation::Buckets(buckets) => buckets.number(place),
            Permutation::Bins(bins) => bins.number(place),
        }
    }

    /// Draws the substitute for the sample at `position`, if that sample fails: any sample of the epoch. In bins, it
    /// costs at most as much.
    pub fn substitute(&self, position: u64, random: &mut RandomStream) -> u64 {
        let number = match self.bins() {
            Some(bins) => bins.substitute(position, random),
            None => random.below(self.selection.draws()),
        };
        self.numbered(number).sample
    }

    /// Returns the draw with index `number` in the selection, which does not depend on the order.
    ///
    /// # Panics
    /// Panics if `number` is not below the draws of the selection.
    pub fn numbered(&self, number: u64) -> Draw {
        assert!(number < self.selection.draws(), "draw {number} of {}", self.selection.draws());
        self.selection.draw(number, self.keys.as_ref())
    }

    /// Returns the positions of `sample`, unordered; none if it is not drawn. The inverse of [`Order::sample`].
    pub fn positions(&self, sample: u64) -> impl Iterator<Item = u64> {
        let (repeats, len) = (u64::from(self.repeats), self.len());
        let places =
            self.selection.draws_of(sample, self.keys.as_ref()).map(|number| match &self.permutation {
                Permutation::Identity => number,
                Permutation::Table(shuffle) => shuffle.position(number),
                Permutation::Computed(feistel) => feistel.backward(number),
                Permutation::NeighbourBlocks(shuffle) => shuffle.place(number),
                Permutation::Buckets(buckets) => buckets.position(number).unwrap_or(u64::MAX),
                Permutation::Bins(bins) => bins.position(number).unwrap_or(u64::MAX),
            });
        let repeated = move |place: u64| {
            (0..repeats).map(move |repeat| place.saturating_mul(repeats).saturating_add(repeat))
        };
        places.flat_map(repeated).filter(move |position| *position < len)
    }
}
