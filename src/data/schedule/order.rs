//! The order of one epoch: which sample is at which position, and the reverse.

use super::permutation::{Feistel, Shuffle};
use super::selection::{Draw, DrawKeys, Selection};
use super::stretch_shuffle::{SequenceParts, StretchKeys, StretchShuffle};
use crate::dataset::{Fingerprint, Stretches};
use base::rng::{RandomKey, Use};
use std::sync::Arc;

/// Up to this many draws the permutation is kept as a table (8 bytes a draw); above, it is computed.
pub const TABLE_LIMIT: u64 = 65_536;

/// The order of one epoch: a permutation of its draws, each of which gives a sample. Position ↔ draw is O(1), draw ↔
/// sample too where every sample is drawn once. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Order {
    selection: Arc<Selection>,
    permutation: Permutation,
    keys: Option<DrawKeys>,
    /// How many positions in a row have the same sample.
    repeats: u32,
}

#[derive(Debug, Clone)]
enum Permutation {
    Identity,
    Table(Arc<Shuffle>),
    Computed(Arc<Feistel>),
    Stretches(Arc<StretchShuffle>),
}

impl Order {
    /// The shuffled order of all `len` samples for (fingerprint, seed, epoch), and for nothing else.
    ///
    /// Up to [`TABLE_LIMIT`] samples it is a Fisher–Yates shuffle, and above that a Feistel network, which needs no
    /// memory.
    pub fn shuffled(fingerprint: &Fingerprint, seed: u64, epoch: u64, len: u64) -> Self {
        Self::drawn(Arc::new(Selection::all(len)), fingerprint, seed, epoch)
    }

    /// The shuffled draws of `selection` for (fingerprint, seed, epoch).
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

    /// The members of `selection`, in an order that keeps neighbours near, for (fingerprint, seed, epoch): what lies in
    /// one of the `stretches` comes within few of them. Each rank reads a part of its own, of `divided`.
    ///
    /// # Panics
    /// Panics unless every member is drawn once, and the stretches are those of the members; and unless a global batch
    /// is as many places for each part.
    pub fn by_stretches(
        selection: Arc<Selection>,
        stretches: Arc<Stretches>,
        fingerprint: &Fingerprint,
        seed: u64,
        epoch: u64,
        divided: SequenceParts,
    ) -> Self {
        assert!(!selection.is_weighted() && selection.draws() == selection.members());
        assert_eq!(selection.members(), stretches.members());
        let dataset = [fingerprint.0, *stretches.digest()].concat();
        let key = |usage| RandomKey::new(&dataset, seed, epoch, usage);
        let keys = StretchKeys { stretches: key(Use::Order), loads: key(Use::Load), turns: key(Use::Turn) };
        let shuffle = StretchShuffle::new(stretches, keys, divided);
        Self { selection, permutation: Permutation::Stretches(Arc::new(shuffle)), keys: None, repeats: 1 }
    }

    /// The order in which the sample at each position is the one with that id.
    pub fn sequential(len: u64) -> Self {
        Self::listed(Arc::new(Selection::all(len)))
    }

    /// The members of `selection` as it lists them, from the first again where an epoch draws more.
    ///
    /// # Panics
    /// Panics when it is weighted.
    pub fn listed(selection: Arc<Selection>) -> Self {
        assert!(!selection.is_weighted(), "weights need a shuffled order");
        Self { selection, permutation: Permutation::Identity, keys: None, repeats: 1 }
    }

    /// The same order with each draw `repeats` times in a row, as many as fit: so an epoch of as many positions as
    /// before shows one in `repeats` of the samples. Each repeat is a draw of its own, with its own occurrence.
    ///
    /// # Panics
    /// Panics when it is 0.
    pub fn repeated(self, repeats: u32) -> Self {
        assert!(repeats > 0, "a draw that never comes");
        Self { repeats, ..self }
    }

    /// Among how many ranks stretches are divided; `None` where the order is by samples.
    pub fn parts(&self) -> Option<u32> {
        match &self.permutation {
            Permutation::Stretches(shuffle) => Some(shuffle.parts()),
            _ => None,
        }
    }

    /// How many positions in a row have the same sample.
    pub fn repeats(&self) -> u32 {
        self.repeats
    }

    /// The number of positions, which is that of the draws.
    pub fn len(&self) -> u64 {
        self.selection.draws()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The selection that the epoch draws from.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// The sample at `position`.
    ///
    /// # Panics
    /// Panics when `position` is not below [`Order::len`].
    pub fn sample(&self, position: u64) -> u64 {
        self.draw(position).sample
    }

    /// The sample at `position`, and which of its draws that is.
    ///
    /// # Panics
    /// Panics when `position` is not below [`Order::len`].
    pub fn draw(&self, position: u64) -> Draw {
        assert!(position < self.len(), "position {position} of an order of {}", self.len());
        let (place, repeat) = match self.repeats {
            1 => (position, 0),
            repeats => (position / u64::from(repeats), (position % u64::from(repeats)) as u32),
        };
        let number = match &self.permutation {
            Permutation::Identity => place,
            Permutation::Table(shuffle) => shuffle.sample(place),
            Permutation::Computed(feistel) => feistel.forward(place),
            Permutation::Stretches(shuffle) => shuffle.member(place),
        };
        let Draw { sample, occurrence } = self.numbered(number);
        // No sample has 2^32 draws in an epoch, but a setting may be absurd.
        Draw { sample, occurrence: occurrence.wrapping_mul(self.repeats).wrapping_add(repeat) }
    }

    /// One of the draws that the epoch chooses from, by its number, whatever its position.
    ///
    /// # Panics
    /// Panics when `number` is not below [`Order::len`].
    pub fn numbered(&self, number: u64) -> Draw {
        assert!(number < self.len(), "draw {number} of an order of {}", self.len());
        self.selection.draw(number, self.keys.as_ref())
    }

    /// The positions of `sample`, in no particular order; none for a sample that is not drawn. It is the inverse of
    /// [`Order::sample`].
    pub fn positions(&self, sample: u64) -> impl Iterator<Item = u64> {
        let (repeats, len) = (u64::from(self.repeats), self.len());
        let places =
            self.selection.draws_of(sample, self.keys.as_ref()).map(|number| match &self.permutation {
                Permutation::Identity => number,
                Permutation::Table(shuffle) => shuffle.position(number),
                Permutation::Computed(feistel) => feistel.backward(number),
                Permutation::Stretches(shuffle) => shuffle.place(number),
            });
        let repeated = move |place: u64| {
            (0..repeats).map(move |repeat| place.saturating_mul(repeats).saturating_add(repeat))
        };
        places.flat_map(repeated).filter(move |position| *position < len)
    }
}
