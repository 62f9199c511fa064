//! A permutation that keeps neighbours near: stretches of samples are shuffled, and then the samples of those that are
//! in memory at a time.
//!
//! It is the two-level shuffle of CorgiPile (Xu et al., "In-Database Machine Learning with CorgiPile: Stochastic
//! Gradient Descent without Full Data Shuffle", SIGMOD 2022) with a buffer that slides. The stretches in shuffled order
//! are cut into *loads* of some bytes. The samples of a load are shuffled and dealt out in equal shares to as many
//! *turns* in a row, of which the first is the load's own; the samples that a turn was dealt are shuffled once more. So
//! at any time the stretches of a few loads are in use, each new turn begins one load, and each sample may come
//! anywhere within as many turns. Nothing is kept per sample: position ↔ member takes a search among turns and
//! stretches, and two Feistel networks.
//!
//! The sequence that comes of this is cut into equal *parts*, one for each rank, of which every global batch has as
//! much: so no two ranks read the same stretches, but for those at the ends of their parts.

use super::permutation::{Feistel, Shuffle};
use crate::dataset::{Stretches, UNPACKED_KEPT};
use base::rng::RandomKey;
use std::sync::{Arc, OnceLock};

/// The bytes of a load, at least.
const LOAD: u64 = 12 << 20;
/// The number of turns that a load is dealt to, at most.
const MOST_TURNS: u64 = 8;

/// How the sequence is divided among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceParts {
    /// The number of parts.
    pub parts: u32,
    /// The number of places of a global batch, which is a multiple of it.
    pub global_batch: u64,
}

/// The keys of the random numbers of one epoch.
#[derive(Debug, Clone)]
pub(super) struct StretchKeys {
    /// The key for the order of the stretches.
    pub stretches: RandomKey,
    /// The key for the order within each load.
    pub loads: RandomKey,
    /// The key for the order within each turn.
    pub turns: RandomKey,
}

/// The permutation of one epoch.
#[derive(Debug)]
pub(super) struct StretchShuffle {
    stretches: Arc<Stretches>,
    order: Shuffle,
    keys: StretchKeys,
    /// Where each stretch begins among the samples of the shuffled stretches, and where the last ends.
    stretch_starts: Vec<u64>,
    /// The same of the loads.
    load_starts: Vec<u64>,
    /// Where each turn begins in the sequence, and where the last ends.
    turn_starts: Vec<u64>,
    /// The orders within loads and within turns that were asked for by now.
    load_orders: Vec<OnceLock<Feistel>>,
    turn_orders: Vec<OnceLock<Feistel>>,
    /// The number of turns that a load is dealt to.
    shares: u64,
    /// The number of parts, of the places of a part in each global batch, and of global batches that are full.
    parts: u64,
    each: u64,
    steps: u64,
}

impl StretchShuffle {
    /// # Panics
    /// Panics unless a global batch is as many places for each part.
    pub(super) fn new(stretches: Arc<Stretches>, keys: StretchKeys, divided: SequenceParts) -> Self {
        let SequenceParts { parts, global_batch } = divided;
        let parts = u64::from(parts);
        assert!(
            parts > 0 && global_batch.is_multiple_of(parts),
            "{global_batch} places are no {parts} equal parts"
        );
        let order = Shuffle::new(&keys.stretches, stretches.len() as u32);
        let (mut stretch_starts, mut load_starts) = (vec![0], vec![0]);
        let (mut members, mut bytes, mut loads) = (0, 0, Vec::new());
        for number in 0..stretches.len() {
            let stretch = order.sample(number as u64) as usize;
            let own = stretches.members_of(stretch);
            members += own.end - own.start;
            bytes += stretches.bytes_of(stretch);
            stretch_starts.push(members);
            if bytes >= LOAD || number + 1 == stretches.len() {
                load_starts.push(members);
                loads.push(bytes);
                bytes = 0;
            }
        }
        // Between two samples of a stretch there are those of fewer than twice as many loads. Some memory is left to
        // what is read besides, and a few loads that are larger than nearly all do not count.
        loads.sort_unstable();
        let large = loads.get(loads.len() * 19 / 20).map_or(1, |&bytes| bytes.max(1));
        let shares = (UNPACKED_KEPT * 3 / 4 / (2 * large)).clamp(1, MOST_TURNS);
        let steps = members / global_batch;
        let mut shuffle = Self {
            stretches,
            order,
            keys,
            stretch_starts,
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

    /// The samples of a shuffled load that its `nth` turn is dealt.
    fn share(&self, load: u64, nth: u64) -> std::ops::Range<u64> {
        let len = self.load_len(load);
        len * nth / self.shares..len * (nth + 1) / self.shares
    }

    /// What a turn is dealt: of each load the samples.
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

    /// The place in the sequence of the place with this number in the epoch. What fills no global batch comes last.
    fn in_sequence(&self, place: u64) -> u64 {
        let global_batch = self.each * self.parts;
        let (step, within) = (place / global_batch, place % global_batch);
        if step >= self.steps {
            return place;
        }
        (within / self.each) * self.steps * self.each + step * self.each + within % self.each
    }

    /// The inverse of [`StretchShuffle::in_sequence`].
    fn in_epoch(&self, place: u64) -> u64 {
        let part = self.steps * self.each;
        if place >= part * self.parts {
            return place;
        }
        let (number, within) = (place / part, place % part);
        (within / self.each) * self.each * self.parts + number * self.each + within % self.each
    }

    /// The number of parts.
    pub(super) fn parts(&self) -> u32 {
        self.parts as u32
    }

    /// The member at a place of the epoch.
    pub(super) fn member(&self, place: u64) -> u64 {
        let place = self.in_sequence(place);
        let turn = self.turn_starts.partition_point(|&start| start <= place) - 1;
        let mut within = self.of_turn(turn).forward(place - self.turn_starts[turn]);
        for (load, share) in self.shares_of(turn as u64) {
            let len = share.end - share.start;
            if within < len {
                let among =
                    self.load_starts[load as usize] + self.of_load(load).forward(share.start + within);
                let number = self.stretch_starts.partition_point(|&start| start <= among) - 1;
                let stretch = self.order.sample(number as u64) as usize;
                return self.stretches.members_of(stretch).start + among - self.stretch_starts[number];
            }
            within -= len;
        }
        unreachable!("a turn has what it was dealt")
    }

    /// The place in the epoch of a member.
    pub(super) fn place(&self, member: u64) -> u64 {
        let stretch = self.stretches.with_member(member);
        let number = self.order.position(stretch as u64) as usize;
        let among = self.stretch_starts[number] + member - self.stretches.members_of(stretch).start;
        let load = self.load_starts.partition_point(|&start| start <= among) as u64 - 1;
        let dealt = self.of_load(load).backward(among - self.load_starts[load as usize]);
        let nth = (0..self.shares).find(|&nth| self.share(load, nth).contains(&dealt));
        let turn = load + nth.expect("the shares are all of a load");
        let before = self.shares_of(turn).take_while(|(other, _)| *other != load);
        let before: u64 = before.map(|(_, share)| share.end - share.start).sum();
        let within = before + dealt - self.share(load, turn - load).start;
        let turn = turn as usize;
        self.in_epoch(self.turn_starts[turn] + self.of_turn(turn).backward(within))
    }
}
