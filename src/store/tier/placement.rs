//! Which node keeps which sample: each sample has a home, and every node computes it alone.
//!
//! Samples are dealt out to *slots*, and a slot's home is found by weighted rendezvous hashing (Thaler and Ravishankar,
//! "Using name-based mappings to increase hit rates", 1998): each node draws a time for each slot, exponentially
//! distributed with its capacity as the rate, and the earliest has it. So a node that comes or goes takes its own slots
//! along and no others. What chance gives a node beyond its capacity goes to the next in time that has room, which
//! moves a little more, but lets caches that hold the dataset together hold it in fact.
//!
//! Where they do not hold it together, a bidder for what is missing, called *nobody*, takes part like a node.
//! Everything is computed in integers, so that all machines get the same.

use base::crc::checksum;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use data::dataset::Fingerprint;
use std::num::NonZeroU64;

/// A node that keeps samples for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShare {
    /// The name by which it is known, also after it was gone: its hostname.
    pub name: String,
    /// The bytes that it can keep.
    pub capacity: u64,
}

/// The homes of all samples of a dataset among some nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    deal: Deal,
    /// The home of each slot's samples: the place of a node in the list that was given, or [`NOBODY`].
    homes: Vec<u32>,
}

/// The home of what no node keeps.
const NOBODY: u32 = u32::MAX;

/// The most slots, whose homes take half a megabyte. Of a thousand nodes each has a hundred of them.
const MOST_SLOTS: u64 = 1 << 17;

impl Placement {
    /// Finds the homes of `samples` samples among `nodes`. `bytes` gives the size of each sample, 0 for one that is
    /// never used. It takes a time in proportion to the samples, and to the slots times the nodes: some milliseconds
    /// for ten nodes, a second for a thousand.
    ///
    /// Where the capacities suffice, every sample has a home. Where they do not, no node is given more than its
    /// capacity; where they just suffice, a node may be given more by less than a slot, which is one sample in small
    /// datasets and a hundred-thousandth of large ones.
    ///
    /// # Errors
    /// [`Error::Config`] for a node without a name, and for two of one name.
    pub fn new(
        nodes: &[NodeShare],
        fingerprint: &Fingerprint,
        samples: u64,
        bytes: impl Fn(u64) -> u64,
    ) -> Result<Self> {
        let key = RandomKey::new(&fingerprint.0, 0, 0, Use::Home);
        let deal = Deal::new(&key, samples);
        let mut slots = vec![0; deal.slots as usize];
        (0..samples).for_each(|sample| slots[deal.slot(sample)] += bytes(sample));
        let mut bidders = Bidders::new(nodes, &key, slots.iter().map(|&bytes| u128::from(bytes)).sum())?;
        let first_choices = (0u64..).flat_map(|run| bidders.first_choices(run));
        let first_choices: Vec<u32> = first_choices.take(slots.len()).collect();
        let home = |(slot, (bytes, first))| bidders.give(slot, bytes, first as usize);
        let homes = (0u64..).zip(slots.into_iter().zip(first_choices)).map(home).collect();
        Ok(Self { deal, homes })
    }

    /// A number that placements share which are the same, and hardly any others.
    pub fn digest(&self) -> u64 {
        let of = |numbers: &[u32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            u64::from(checksum(&bytes))
        };
        of(&self.deal.begins) << 32 ^ self.deal.slots << 40 ^ of(&self.homes)
    }

    /// The node that keeps `sample`, by its place in the list that was given; `None` where no node does.
    ///
    /// # Panics
    /// Panics when there is no such sample.
    pub fn home(&self, sample: u64) -> Option<usize> {
        let home = self.homes[self.deal.slot(sample)];
        (home != NOBODY).then_some(home as usize)
    }
}

/// How samples are dealt out to slots: in rounds, of which each gives every slot one sample. Samples that are alike
/// often stand in a row or at equal distances, so each round begins at another slot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deal {
    slots: u64,
    /// The slot of each round's first sample.
    begins: Vec<u32>,
}

impl Deal {
    fn new(key: &RandomKey, samples: u64) -> Self {
        let rounds = samples.div_ceil(MOST_SLOTS).max(1);
        // The last round is as full as it can be.
        let slots = samples.div_ceil(rounds).max(1);
        Self { slots, begins: (0..rounds).map(|round| key.stream(round).below(slots) as u32).collect() }
    }

    fn slot(&self, sample: u64) -> usize {
        let (round, within) = (sample / self.slots, sample % self.slots);
        let slot = within + u64::from(self.begins[round as usize]);
        (if slot < self.slots { slot } else { slot - self.slots }) as usize
    }
}

/// Those who can keep slots, in the order of their names: all nodes with a capacity, and nobody.
struct Bidders(Vec<Bidder>);

struct Bidder {
    /// The node's place in the list that was given, or [`NOBODY`].
    node: u32,
    key: RandomKey,
    /// How long the bidder takes in the mean: 2⁶⁴ over its capacity.
    pace: u64,
    /// The bytes that it can still keep.
    room: u64,
}

/// How many blocks of random numbers are computed at a time, each for [`WORDS`] slots.
const RUN: usize = 16;
/// How many random numbers a block has.
const WORDS: usize = 4;

impl Bidders {
    fn new(nodes: &[NodeShare], key: &RandomKey, dataset: u128) -> Result<Self> {
        let mut sorted: Vec<(u32, &NodeShare)> = (0..).zip(nodes).collect();
        sorted.sort_unstable_by_key(|(_, node)| &node.name);
        if sorted.first().is_some_and(|(_, node)| node.name.is_empty()) {
            return Err(Error::config("peers", "has a node without a name: give each its hostname"));
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].1.name == pair[1].1.name) {
            let message = format!(
                "has two nodes called {:?}, which would keep the same samples: give each a hostname of its own",
                pair[0].1.name
            );
            return Err(Error::config("peers", message));
        }
        let all: u128 = nodes.iter().map(|node| u128::from(node.capacity)).sum();
        let missing = u64::try_from(dataset.saturating_sub(all)).unwrap_or(u64::MAX);
        let capacities = sorted.into_iter().map(|(number, node)| (number, &node.name[..], node.capacity));
        let bidder = |(node, name, capacity)| {
            let capacity = NonZeroU64::new(capacity)?;
            Some(Bidder {
                node,
                key: key.part([0, 0], name, 0),
                pace: u64::MAX / capacity,
                room: capacity.get(),
            })
        };
        // No node is called like nobody.
        Ok(Self(std::iter::once((NOBODY, "", missing)).chain(capacities).filter_map(bidder).collect()))
    }

    /// The bidders that are the first in time at the slots of a run.
    fn first_choices(&self, run: u64) -> impl Iterator<Item = u32> + use<> {
        let mut first = [[(u128::MAX, 0); WORDS]; RUN];
        for (number, bidder) in (0..).zip(&self.0) {
            let words = bidder.key.blocks::<RUN>(run * RUN as u64);
            for (block, first) in first.iter_mut().enumerate() {
                for (word, first) in first.iter_mut().enumerate() {
                    let word = words[word][block];
                    // No time is shorter than its number, so few need to be computed.
                    if u128::from(word) * u128::from(bidder.pace) < first.0 {
                        *first = (bidder.time(word), number).min(*first);
                    }
                }
            }
        }
        first.into_iter().flatten().map(|(_, number)| number)
    }

    /// Gives a slot of `bytes` to the first in time that has room for it, where `first` is the first of all. Returns
    /// who that is.
    fn give(&mut self, slot: u64, bytes: u64, first: usize) -> u32 {
        let first = match self.0.get(first) {
            None => return NOBODY,
            Some(bidder) if bidder.room >= bytes => Some(first),
            Some(_) => self.first_with(slot, |bidder| bidder.room >= bytes),
        };
        // In the end there may be room for a part of the slot only.
        let nobody = || self.0.iter().position(|bidder| bidder.node == NOBODY);
        let first = first.or_else(nobody).or_else(|| self.first_with(slot, |bidder| bidder.room > 0));
        let Some(bidder) = first.map(|first| &mut self.0[first]) else { return NOBODY };
        bidder.room = bidder.room.saturating_sub(bytes);
        bidder.node
    }

    /// The first in time at a slot among the bidders that `can` keep it.
    fn first_with(&self, slot: u64, can: impl Fn(&Bidder) -> bool) -> Option<usize> {
        let bidders = self.0.iter().enumerate().filter(|(_, bidder)| can(bidder));
        let word = |bidder: &Bidder| bidder.key.block(slot / WORDS as u64, 0)[slot as usize % WORDS];
        bidders.min_by_key(|(_, bidder)| bidder.time(word(bidder))).map(|(number, _)| number)
    }
}

impl Bidder {
    /// The time at which the bidder comes to a slot for which it has drawn `word`.
    fn time(&self, word: u32) -> u128 {
        u128::from(exponential(word)) * u128::from(self.pace)
    }
}

/// −ln(1 − `word` / 2³²) as a multiple of 2⁻³²: exponentially distributed with mean 1 when `word` is uniform.
fn exponential(word: u32) -> u64 {
    const FRACTION: u32 = 32;
    /// ln 2.
    const LN_2: u128 = 0xB172_17F8;
    // The binary logarithm of the rest, digit by digit: a square that reaches 2 has a logarithm of 1/2 or more.
    let rest = (1 << 32) - u64::from(word);
    let mut digits = u64::from(rest.ilog2());
    let mut mantissa = rest << rest.leading_zeros();
    for _ in 0..FRACTION {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let carry = (square >> 127) as u64;
        mantissa = (square >> (63 + carry)) as u64;
        digits = digits << 1 | carry;
    }
    ((u128::from((32 << FRACTION) - digits) * LN_2) >> FRACTION) as u64
}

#[cfg(test)]
mod tests;
