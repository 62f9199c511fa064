//! A permutation that keeps neighbours near. It shuffles blocks of neighbouring samples, and then the samples of the
//! blocks that are in memory at a time.
//!
//! It is the two-level shuffle of CorgiPile (Xu et al., "In-Database Machine Learning with CorgiPile: Stochastic
//! Gradient Descent without Full Data Shuffle", SIGMOD 2022) with a sliding buffer:
//!
//! 1. The blocks are shuffled, and cut into *read units* of some bytes.
//! 2. The samples of a read unit are shuffled, and divided in equal shares among consecutive *phases* of the epoch. The
//!    first of these phases has the same index as the read unit.
//! 3. The samples of each phase are shuffled again.
//!
//! So the blocks of only a few read units are in use at any time. Each phase begins one new read unit. Nothing is
//! stored per sample: position ↔ member takes a search among phases and blocks, and two Feistel networks.
//!
//! The resulting sequence is cut into equal ranges, one for each rank. Every global batch takes equally many samples
//! from each range. So no two ranks read the same blocks, except at the ends of their ranges.

use super::permutation::{Feistel, Shuffle};
use crate::dataset::{MAX_CACHED_BYTES, NeighbourBlocks};
use base::rng::RandomKey;
use std::sync::{Arc, OnceLock};

const READ_UNIT_BYTES: u64 = 12 << 20;
/// Maximum number of phases that the samples of a read unit are divided among.
const MAX_PHASES: u64 = 8;

/// How the sequence is divided among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankRanges {
    /// Number of ranges, one for each rank.
    pub parts: u32,
    /// Number of samples of a global batch (a batch of all ranks together), a multiple of `parts`.
    pub global_batch: u64,
}

/// The keys of the random numbers of one epoch: for the order of the blocks, and for the orders within read units and
/// phases.
#[derive(Debug, Clone)]
pub(super) struct BlockShuffleKeys {
    pub neighbour_blocks: RandomKey,
    pub read_units: RandomKey,
    pub phases: RandomKey,
}

#[derive(Debug)]
pub(super) struct BlockShuffle {
    neighbour_blocks: Arc<NeighbourBlocks>,
    order: Shuffle,
    keys: BlockShuffleKeys,
    /// Index of each block's first sample in the sequence of shuffled blocks, then the number of all samples.
    neighbour_block_starts: Vec<u64>,
    /// Index of each read unit's first sample in the sequence of shuffled blocks, then the number of all samples.
    read_unit_starts: Vec<u64>,
    /// Index of each phase's first sample in the final sequence, then the number of all samples.
    phase_starts: Vec<u64>,
    /// Orders of the samples within each read unit and within each phase, computed on first use.
    read_unit_orders: Vec<OnceLock<Feistel>>,
    phase_orders: Vec<OnceLock<Feistel>>,
    /// Number of phases that the samples of a read unit are divided among.
    shares: u64,
    /// Number of ranges of the sequence, one for each rank.
    parts: u64,
    /// Number of samples that a global batch takes from each range.
    each: u64,
    steps: u64,
}

impl BlockShuffle {
    /// # Panics
    /// Panics unless a global batch divides evenly among the ranges.
    pub(super) fn new(
        neighbour_blocks: Arc<NeighbourBlocks>,
        keys: BlockShuffleKeys,
        divided: RankRanges,
    ) -> Self {
        let RankRanges { parts, global_batch } = divided;
        let parts = u64::from(parts);
        assert!(
            parts > 0 && global_batch.is_multiple_of(parts),
            "a global batch of {global_batch} does not divide evenly among {parts} ranks"
        );
        let order = Shuffle::new(&keys.neighbour_blocks, neighbour_blocks.len() as u32);
        let (mut neighbour_block_starts, mut read_unit_starts) = (vec![0], vec![0]);
        let (mut members, mut bytes, mut read_units) = (0, 0, Vec::new());
        for number in 0..neighbour_blocks.len() {
            let neighbour_block = order.sample(number as u64) as usize;
            let own = neighbour_blocks.members_of(neighbour_block);
            members += own.end - own.start;
            bytes += neighbour_blocks.bytes_of(neighbour_block);
            neighbour_block_starts.push(members);
            if bytes >= READ_UNIT_BYTES || number + 1 == neighbour_blocks.len() {
                read_unit_starts.push(members);
                read_units.push(bytes);
                bytes = 0;
            }
        }
        // The samples of one block are spread over `shares` phases. During these phases, fewer than 2 · `shares` read
        // units are in use. They must fit into three quarters of the cache of unpacked blocks; the last quarter is for
        // other reads. The 95th percentile is taken as the size of a read unit, so that a few large ones do not count.
        read_units.sort_unstable();
        let large = read_units.get(read_units.len() * 19 / 20).map_or(1, |&bytes| bytes.max(1));
        let shares = (MAX_CACHED_BYTES * 3 / 4 / (2 * large)).clamp(1, MAX_PHASES);
        let steps = members / global_batch;
        let mut shuffle = Self {
            neighbour_blocks,
            order,
            keys,
            neighbour_block_starts,
            read_unit_starts,
            phase_starts: vec![0],
            read_unit_orders: Vec::new(),
            phase_orders: Vec::new(),
            shares,
            parts,
            each: global_batch / parts,
            steps,
        };
        let mut end = 0;
        for phase in 0..shuffle.read_units() + shares - 1 {
            end += shuffle.shares_of(phase).map(|(_, share)| share.end - share.start).sum::<u64>();
            shuffle.phase_starts.push(end);
        }
        shuffle.read_unit_orders.resize_with(shuffle.read_unit_starts.len() - 1, OnceLock::new);
        shuffle.phase_orders.resize_with(shuffle.phase_starts.len() - 1, OnceLock::new);
        shuffle
    }

    fn read_units(&self) -> u64 {
        self.read_unit_starts.len() as u64 - 1
    }

    fn read_unit_len(&self, read_unit: u64) -> u64 {
        self.read_unit_starts[read_unit as usize + 1] - self.read_unit_starts[read_unit as usize]
    }

    /// Returns the range of a shuffled read unit's samples that belongs to its `nth` phase.
    fn share(&self, read_unit: u64, nth: u64) -> std::ops::Range<u64> {
        let len = self.read_unit_len(read_unit);
        len * nth / self.shares..len * (nth + 1) / self.shares
    }

    /// Returns the samples of a phase: ranges of the shuffled samples of several read units.
    fn shares_of(&self, phase: u64) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> + '_ {
        let newest = phase.min(self.read_units() - 1);
        let oldest = (phase + 1).saturating_sub(self.shares);
        (oldest..=newest).map(move |read_unit| (read_unit, self.share(read_unit, phase - read_unit)))
    }

    fn read_unit_order(&self, read_unit: u64) -> &Feistel {
        let make =
            || Feistel::new(&mut self.keys.read_units.stream(read_unit), self.read_unit_len(read_unit));
        self.read_unit_orders[read_unit as usize].get_or_init(make)
    }

    fn phase_order(&self, phase: usize) -> &Feistel {
        let len = self.phase_starts[phase + 1] - self.phase_starts[phase];
        let make = || Feistel::new(&mut self.keys.phases.stream(phase as u64), len);
        self.phase_orders[phase].get_or_init(make)
    }

    /// Converts an index in the epoch to an index in the sequence, which is the shuffled order before its division
    /// among ranks. Samples that fill no global batch come last.
    fn in_sequence(&self, place: u64) -> u64 {
        let global_batch = self.each * self.parts;
        let (step, within) = (place / global_batch, place % global_batch);
        if step >= self.steps {
            return place;
        }
        (within / self.each) * self.steps * self.each + step * self.each + within % self.each
    }

    /// Converts an index in the sequence to an index in the epoch: the inverse of [`BlockShuffle::in_sequence`].
    fn in_epoch(&self, place: u64) -> u64 {
        let part = self.steps * self.each;
        if place >= part * self.parts {
            return place;
        }
        let (number, within) = (place / part, place % part);
        (within / self.each) * self.each * self.parts + number * self.each + within % self.each
    }

    pub(super) fn parts(&self) -> u32 {
        self.parts as u32
    }

    /// Returns the member (the index of a sample in the selection) at an index in the epoch.
    pub(super) fn member(&self, place: u64) -> u64 {
        let place = self.in_sequence(place);
        let phase = self.phase_starts.partition_point(|&start| start <= place) - 1;
        let mut within = self.phase_order(phase).forward(place - self.phase_starts[phase]);
        for (read_unit, share) in self.shares_of(phase as u64) {
            let len = share.end - share.start;
            if within < len {
                let shuffled = self.read_unit_order(read_unit).forward(share.start + within);
                let among = self.read_unit_starts[read_unit as usize] + shuffled;
                let number = self.neighbour_block_starts.partition_point(|&start| start <= among) - 1;
                let neighbour_block = self.order.sample(number as u64) as usize;
                return self.neighbour_blocks.members_of(neighbour_block).start + among
                    - self.neighbour_block_starts[number];
            }
            within -= len;
        }
        unreachable!("every position of a turn is in one of its shares")
    }

    /// Returns the index of `member` in the epoch: the inverse of [`BlockShuffle::member`].
    pub(super) fn place(&self, member: u64) -> u64 {
        let neighbour_block = self.neighbour_blocks.with_member(member);
        let number = self.order.position(neighbour_block as u64) as usize;
        let among = self.neighbour_block_starts[number] + member
            - self.neighbour_blocks.members_of(neighbour_block).start;
        let read_unit = self.read_unit_starts.partition_point(|&start| start <= among) as u64 - 1;
        let dealt =
            self.read_unit_order(read_unit).backward(among - self.read_unit_starts[read_unit as usize]);
        let nth = (0..self.shares).find(|&nth| self.share(read_unit, nth).contains(&dealt));
        let phase = read_unit + nth.expect("every position of a load is in one of its shares");
        let before = self.shares_of(phase).take_while(|(other, _)| *other != read_unit);
        let before: u64 = before.map(|(_, share)| share.end - share.start).sum();
        let within = before + dealt - self.share(read_unit, phase - read_unit).start;
        let phase = phase as usize;
        self.in_epoch(self.phase_starts[phase] + self.phase_order(phase).backward(within))
    }
}
