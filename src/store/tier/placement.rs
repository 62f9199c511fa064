//! Computes which node keeps which sample. Each sample has an owner node, which every node computes on its
//! own.
//!
//! Samples are assigned to *slots*, and a slot's owner is found by weighted rendezvous hashing (Thaler and Ravishankar,
//! "Using name-based mappings to increase hit rates", 1998). Each node draws a time for each slot, exponentially
//! distributed with its capacity as the rate, and the node with the earliest time owns the slot. So a node that joins
//! or leaves moves only its own slots. If that node has no space left for the slot, the slot goes to the node with the
//! earliest time among the nodes with space. This rule moves slightly more slots. But if the capacities of all nodes
//! together suffice, the nodes really hold the whole dataset.
//!
//! If the capacities do not suffice, a virtual bidder for the missing bytes takes part like a node; its slots have no
//! owner. All arithmetic is in integers, so that all machines compute the same result.

use base::crc::checksum;
use base::error::{Error, Result};
use base::rng::{RandomKey, Use};
use data::dataset::Fingerprint;
use std::num::NonZeroU64;

/// A node that keeps samples for all nodes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShare {
    /// The hostname, by which the node is recognised after an absence.
    pub name: String,
    /// The bytes that the node can keep.
    pub capacity: u64,
}

/// The owner nodes of all samples of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    assignment: SlotAssignment,
    /// The owner of each slot: the index of a node in the list that was given, or [`NO_OWNER`].
    owners: Vec<u32>,
}

/// The owner of slots that no node keeps.
const NO_OWNER: u32 = u32::MAX;

/// The maximum number of slots. The table of their owners takes half a megabyte. Of a thousand nodes, each owns about a
/// hundred slots.
const MAX_SLOTS: u64 = 1 << 17;

impl Placement {
    /// Finds the owner nodes of `samples` samples among `nodes`. `bytes` returns the size of each sample, 0 for a
    /// sample that is never used. The time is proportional to the samples, and to the slots times the nodes: some
    /// milliseconds for ten nodes, a second for a thousand.
    ///
    /// If the capacities suffice, every sample has an owner node. If they do not, no node gets more than its capacity.
    /// If they just suffice, a node may exceed its capacity by less than a slot, which is one sample in small datasets
    /// and a hundred-thousandth of large ones.
    ///
    /// # Errors
    /// [`Error::Config`] for a node without a name, and for two nodes with the same name.
    pub fn new(
        nodes: &[NodeShare],
        fingerprint: &Fingerprint,
        samples: u64,
        bytes: impl Fn(u64) -> u64,
    ) -> Result<Self> {
        let key = RandomKey::new(&fingerprint.0, 0, 0, Use::Owner);
        let assignment = SlotAssignment::new(&key, samples);
        let mut slots = vec![0; assignment.slots as usize];
        (0..samples).for_each(|sample| slots[assignment.slot(sample)] += bytes(sample));
        let mut bidders = Bidders::new(nodes, &key, slots.iter().map(|&bytes| u128::from(bytes)).sum())?;
        let first_choices = (0u64..).flat_map(|run| bidders.first_choices(run));
        let first_choices: Vec<u32> = first_choices.take(slots.len()).collect();
        let owner = |(slot, (bytes, first))| bidders.give(slot, bytes, first as usize);
        let owners = (0u64..).zip(slots.into_iter().zip(first_choices)).map(owner).collect();
        Ok(Self { assignment, owners })
    }

    /// Returns a digest. Equal placements have equal digests, and different placements almost never do.
    pub fn digest(&self) -> u64 {
        let of = |numbers: &[u32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            u64::from(checksum(&bytes))
        };
        of(&self.assignment.begins) << 32 ^ self.assignment.slots << 40 ^ of(&self.owners)
    }

    /// Returns the node that keeps `sample`, as an index into the nodes that [`Placement::new`] got; `None` if no node
    /// keeps it.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn owner(&self, sample: u64) -> Option<usize> {
        let owner = self.owners[self.assignment.slot(sample)];
        (owner != NO_OWNER).then_some(owner as usize)
    }
}

/// The assignment of samples to slots. Consecutive samples go to consecutive slots, in rounds that give every slot one
/// sample. Each round begins at another slot, because similar samples often come at equal distances.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SlotAssignment {
    slots: u64,
    begins: Vec<u32>,
}

impl SlotAssignment {
    fn new(key: &RandomKey, samples: u64) -> Self {
        let rounds = samples.div_ceil(MAX_SLOTS).max(1);
        // Choose the number of slots so that the last round is as full as possible.
        let slots = samples.div_ceil(rounds).max(1);
        Self { slots, begins: (0..rounds).map(|round| key.stream(round).below(slots) as u32).collect() }
    }

    fn slot(&self, sample: u64) -> usize {
        let (round, within) = (sample / self.slots, sample % self.slots);
        let slot = within + u64::from(self.begins[round as usize]);
        (if slot < self.slots { slot } else { slot - self.slots }) as usize
    }
}

/// The possible owners of slots, in the order of their names: all nodes with a capacity, and the virtual bidder.
struct Bidders(Vec<Bidder>);

struct Bidder {
    /// The node's index in the list that was given, or [`NO_OWNER`].
    node: u32,
    key: RandomKey,
    /// The mean of the random times that the bidder draws: 2⁶⁴ divided by its capacity.
    pace: u64,
    room: u64,
}

/// The number of blocks of random numbers that are computed at a time, each for [`WORDS`] slots.
const RUN: usize = 16;
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
                "has two nodes called {:?}, which would keep the same samples: give each node its own hostname",
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
        // The virtual bidder has the empty name, which no node has.
        Ok(Self(std::iter::once((NO_OWNER, "", missing)).chain(capacities).filter_map(bidder).collect()))
    }

    /// Returns the bidder with the earliest time for each of the `RUN * WORDS` slots of a run, as an index into the
    /// bidders.
    fn first_choices(&self, run: u64) -> impl Iterator<Item = u32> + use<> {
        let mut first = [[(u128::MAX, 0); WORDS]; RUN];
        for (number, bidder) in (0..).zip(&self.0) {
            let words = bidder.key.blocks::<RUN>(run * RUN as u64);
            for (block, first) in first.iter_mut().enumerate() {
                for (word, first) in first.iter_mut().enumerate() {
                    let word = words[word][block];
                    // A bidder's time is at least `word` times its pace, so most times need not be computed.
                    if u128::from(word) * u128::from(bidder.pace) < first.0 {
                        *first = (bidder.time(word), number).min(*first);
                    }
                }
            }
        }
        first.into_iter().flatten().map(|(_, number)| number)
    }

    /// Assigns a slot, whose samples take `bytes` bytes, to a bidder with enough free space: among these, the bidder
    /// with the earliest time. `first` is the bidder with the earliest time of all. Returns the new owner.
    fn give(&mut self, slot: u64, bytes: u64, first: usize) -> u32 {
        let first = match self.0.get(first) {
            None => return NO_OWNER,
            Some(bidder) if bidder.room >= bytes => Some(first),
            Some(_) => self.first_with(slot, |bidder| bidder.room >= bytes),
        };
        // If no bidder has space for the whole slot, give it to the virtual bidder, else to a bidder with any space
        // left.
        let virtual_bidder = || self.0.iter().position(|bidder| bidder.node == NO_OWNER);
        let first = first.or_else(virtual_bidder).or_else(|| self.first_with(slot, |bidder| bidder.room > 0));
        let Some(bidder) = first.map(|first| &mut self.0[first]) else { return NO_OWNER };
        bidder.room = bidder.room.saturating_sub(bytes);
        bidder.node
    }

    fn first_with(&self, slot: u64, can: impl Fn(&Bidder) -> bool) -> Option<usize> {
        let bidders = self.0.iter().enumerate().filter(|(_, bidder)| can(bidder));
        let word = |bidder: &Bidder| bidder.key.block(slot / WORDS as u64, 0)[slot as usize % WORDS];
        bidders.min_by_key(|(_, bidder)| bidder.time(word(bidder))).map(|(number, _)| number)
    }
}

impl Bidder {
    fn time(&self, word: u32) -> u128 {
        u128::from(exponential(word)) * u128::from(self.pace)
    }
}

/// Returns −ln(1 − `word` / 2³²) as a multiple of 2⁻³². It is exponentially distributed with mean 1 if `word` is
/// uniform.
fn exponential(word: u32) -> u64 {
    const FRACTION: u32 = 32;
    // ln 2, with 32 fractional bits.
    const LN_2: u128 = 0xB172_17F8;
    // Compute the binary logarithm of `rest`, digit by digit: a square that reaches 2 has a logarithm of 1/2 or more.
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
