//! A permutation that keeps neighbours near. It shuffles blocks of neighbouring samples (*stretches*), and then the
//! samples of the blocks that are in memory at a time.
//!
//! It is the two-level shuffle of CorgiPile (Xu et al., "In-Database Machine Learning with CorgiPile: Stochastic
//! Gradient Descent without Full Data Shuffle", SIGMOD 2022) with a sliding buffer:
//!
//! 1. The blocks are shuffled, and cut into read units (*loads*) of some bytes.
//! 2. The samples of a read unit are shuffled, and divided in equal shares among consecutive phases of the epoch
//!    (*turns*). The first of these phases has the same number as the read unit.
//! 3. The samples of each phase are shuffled again.
//!
//! So the blocks of a few read units are in use at any time. Each new phase begins one read unit, and each sample may
//! be anywhere within as many phases. Nothing is stored per sample: position ↔ member takes a search among phases and
//! blocks, and two Feistel networks.
//!
//! The resulting sequence is cut into equal ranges (*parts*), one for each rank, and every global batch has equally
//! many places of each. So no two ranks read the same blocks, except at the ends of their ranges.

use super::permutation::{Feistel, Shuffle};
use crate::dataset::{MAX_CACHED_BYTES, NeighbourBlocks};
use base::rng::RandomKey;
use std::sync::{Arc, OnceLock};

/// Minimum number of bytes of a read unit.
const LOAD: u64 = 12 << 20;
/// Maximum number of phases that the samples of a read unit are divided among.
const MAX_TURNS: u64 = 8;

/// How the sequence is divided among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankRanges {
    /// Number of ranges, one for each rank.
    pub parts: u32,
    /// Number of places of a global batch, a multiple of `parts`.
    pub global_batch: u64,
}

/// The keys of the random numbers of one epoch.
#[derive(Debug, Clone)]
pub(super) struct BlockShuffleKeys {
    /// Key for the order of the blocks.
    pub neighbour_blocks: RandomKey,
    /// Key for the order within each read unit.
    pub loads: RandomKey,
    /// Key for the order within each phase.
    pub turns: RandomKey,
}

/// The permutation of one epoch.
#[derive(Debug)]
pub(super) struct BlockShuffle {
    neighbour_blocks: Arc<NeighbourBlocks>,
    order: Shuffle,
    keys: BlockShuffleKeys,
    /// Where each block begins among the samples of the shuffled blocks, followed by the end of the last.
    neighbour_block_starts: Vec<u64>,
    /// The same for read units.
    load_starts: Vec<u64>,
    /// Where each phase begins in the sequence, followed by the end of the last.
    turn_starts: Vec<u64>,
    /// Orders within read units and within phases, made on first use.
    load_orders: Vec<OnceLock<Feistel>>,
    turn_orders: Vec<OnceLock<Feistel>>,
    /// Number of phases that the samples of a read unit are divided among.
    shares: u64,
    /// Number of ranges, of places of a range in each global batch, and of full global batches.
    parts: u64,
    each: u64,
    steps: u64,
}

impl BlockShuffle {
    /// # Panics
    /// Panics unless a global batch divides evenly among the parts.
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
        let (mut neighbour_block_starts, mut load_starts) = (vec![0], vec![0]);
        let (mut members, mut bytes, mut loads) = (0, 0, Vec::new());
        for number in 0..neighbour_blocks.len() {
            let neighbour_block = order.sample(number as u64) as usize;
            let own = neighbour_blocks.members_of(neighbour_block);
            members += own.end - own.start;
            bytes += neighbour_blocks.bytes_of(neighbour_block);
            neighbour_block_starts.push(members);
            if bytes >= LOAD || number + 1 == neighbour_blocks.len() {
                load_starts.push(members);
                loads.push(bytes);
                bytes = 0;
            }
        }
        // The samples of one block are spread over `shares` phases, in which fewer than 2 · `shares` read units are in
        // use. These must fit into three quarters of the cache of unpacked blocks; the rest is for other reads. The
        // 95th percentile is taken as the size of a read unit, so that a few large ones do not count.
        loads.sort_unstable();
        let large = loads.get(loads.len() * 19 / 20).map_or(1, |&bytes| bytes.max(1));
        let shares = (MAX_CACHED_BYTES * 3 / 4 / (2 * large)).clamp(1, MAX_TURNS);
        let steps = members / global_batch;
        let mut shuffle = Self {
            neighbour_blocks,
            order,
            keys,
            neighbour_block_starts,
            load_starts,
            turn_starts: vec![0],
            load_orders: Vec::new(),
            turn_orders: Vec::new(),
            shares,
            parts,
            each: global_batch / parts,
            steps,
        };
        let mut end = 0;
        for turn in 0..shuffle.loads() + shares - 1 {
            end += shuffle.shares_of(turn).map(|(_, share)| share.end - share.start).sum::<u64>();
            shuffle.turn_starts.push(end);
        }
        shuffle.load_orders.resize_with(shuffle.load_starts.len() - 1, OnceLock::new);
        shuffle.turn_orders.resize_with(shuffle.turn_starts.len() - 1, OnceLock::new);
        shuffle
    }

    fn loads(&self) -> u64 {
        self.load_starts.len() as u64 - 1
    }

    fn load_len(&self, load: u64) -> u64 {
        self.load_starts[load as usize + 1] - self.load_starts[load as usize]
    }

    /// Returns the range of a shuffled read unit's samples that belongs to its `nth` phase.
    fn share(&self, load: u64, nth: u64) -> std::ops::Range<u64> {
        let len = self.load_len(load);
        len * nth / self.shares..len * (nth + 1) / self.shares
    }

    /// Returns the samples of a phase, as read units and ranges of their shuffled samples.
    fn shares_of(&self, turn: u64) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> + '_ {
        let newest = turn.min(self.loads() - 1);
        let oldest = (turn + 1).saturating_sub(self.shares);
        (oldest..=newest).map(move |load| (load, self.share(load, turn - load)))
    }

    fn of_load(&self, load: u64) -> &Feistel {
        let make = || Feistel::new(&mut self.keys.loads.stream(load), self.load_len(load));
        self.load_orders[load as usize].get_or_init(make)
    }

    fn of_turn(&self, turn: usize) -> &Feistel {
        let len = self.turn_starts[turn + 1] - self.turn_starts[turn];
        let make = || Feistel::new(&mut self.keys.turns.stream(turn as u64), len);
        self.turn_orders[turn].get_or_init(make)
    }

    /// Returns the place in the sequence of a place of the epoch. Samples that fill no global batch come last.
    fn in_sequence(&self, place: u64) -> u64 {
        let global_batch = self.each * self.parts;
        let (step, within) = (place / global_batch, place % global_batch);
        if step >= self.steps {
            return place;
        }
        (within / self.each) * self.steps * self.each + step * self.each + within % self.each
    }

    /// The inverse of [`BlockShuffle::in_sequence`].
    fn in_epoch(&self, place: u64) -> u64 {
        let part = self.steps * self.each;
        if place >= part * self.parts {
            return place;
        }
        let (number, within) = (place / part, place % part);
        (within / self.each) * self.each * self.parts + number * self.each + within % self.each
    }

    /// Returns the number of ranges.
    pub(super) fn parts(&self) -> u32 {
        self.parts as u32
    }

    /// Returns the member at a place of the epoch.
    pub(super) fn member(&self, place: u64) -> u64 {
        let place = self.in_sequence(place);
        let turn = self.turn_starts.partition_point(|&start| start <= place) - 1;
        let mut within = self.of_turn(turn).forward(place - self.turn_starts[turn]);
        for (load, share) in self.shares_of(turn as u64) {
            let len = share.end - share.start;
            if within < len {
                let among =
                    self.load_starts[load as usize] + self.of_load(load).forward(share.start + within);
                let number = self.neighbour_block_starts.partition_point(|&start| start <= among) - 1;
                let neighbour_block = self.order.sample(number as u64) as usize;
                return self.neighbour_blocks.members_of(neighbour_block).start + among
                    - self.neighbour_block_starts[number];
            }
            within -= len;
        }
        unreachable!("every position of a turn is in one of its shares")
    }

    /// Returns the place in the epoch of a member.
    pub(super) fn place(&self, member: u64) -> u64 {
        let neighbour_block = self.neighbour_blocks.with_member(member);
        let number = self.order.position(neighbour_block as u64) as usize;
        let among = self.neighbour_block_starts[number] + member
            - self.neighbour_blocks.members_of(neighbour_block).start;
        let load = self.load_starts.partition_point(|&start| start <= among) as u64 - 1;
        let dealt = self.of_load(load).backward(among - self.load_starts[load as usize]);
        let nth = (0..self.shares).find(|&nth| self.share(load, nth).contains(&dealt));
        let turn = load + nth.expect("every position of a load is in one of its shares");
        let before = self.shares_of(turn).take_while(|(other, _)| *other != load);
        let before: u64 = before.map(|(_, share)| share.end - share.start).sum();
        let within = before + dealt - self.share(load, turn - load).start;
        let turn = turn as usize;
        self.in_epoch(self.turn_starts[turn] + self.of_turn(turn).backward(within))
    }
}
