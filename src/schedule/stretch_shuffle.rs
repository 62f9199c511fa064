//! A permutation that keeps neighbours near: stretches of samples are shuffled, and then the samples of those that are
//! in memory at a time.
//!
//! It is the two-level shuffle of CorgiPile (Xu et al., "In-Database Machine Learning with CorgiPile: Stochastic Gradient
//! Descent without Full Data Shuffle", SIGMOD 2022) with a buffer that slides. The stretches in shuffled order are cut
//! into *groups* of some bytes. The samples of a group are shuffled and dealt out in equal shares to as many *slots* in
//! a row, of which the first is the group's own; the samples that a slot was dealt are shuffled once more. So at any time
//! the stretches of a few groups are in use, each new slot begins one group, and each sample may come anywhere within
//! as many slots. Nothing is kept per sample: position ↔ member takes a search among slots and stretches, and two Feistel
//! networks.
//!
//! The sequence that comes of this is cut into equal *parts*, one for each rank, of which every global batch has as
//! much: so no two ranks read the same stretches, but for those at the ends of their parts.

use super::permutation::{Feistel, Shuffle};
use crate::dataset::{Stretches, UNPACKED_KEPT};
use crate::rng::RandomKey;
use std::sync::{Arc, OnceLock};

/// The bytes of a group, at least.
const GROUP: u64 = 12 << 20;
/// The number of slots that a group is dealt to, at most.
const MOST_SLOTS: u64 = 8;

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
    /// The key for the order within each group.
    pub groups: RandomKey,
    /// The key for the order within each slot.
    pub slots: RandomKey,
}

/// The permutation of one epoch.
#[derive(Debug)]
pub(super) struct StretchShuffle {
    stretches: Arc<Stretches>,
    order: Shuffle,
    keys: StretchKeys,
    /// Where each stretch begins among the samples of the shuffled stretches, and where the last ends.
    stretch_starts: Vec<u64>,
    /// The same of the groups.
    group_starts: Vec<u64>,
    /// Where each slot begins in the sequence, and where the last ends.
    slot_starts: Vec<u64>,
    /// The orders within groups and within slots that were asked for by now.
    group_orders: Vec<OnceLock<Feistel>>,
    slot_orders: Vec<OnceLock<Feistel>>,
    /// The number of slots that a group is dealt to.
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
        let (mut stretch_starts, mut group_starts) = (vec![0], vec![0]);
        let (mut members, mut bytes, mut largest) = (0, 0, 1);
        for number in 0..stretches.len() {
            let stretch = order.sample(number as u64) as usize;
            let own = stretches.members_of(stretch);
            members += own.end - own.start;
            bytes += stretches.bytes_of(stretch);
            stretch_starts.push(members);
            if bytes >= GROUP || number + 1 == stretches.len() {
                group_starts.push(members);
                largest = largest.max(bytes);
                bytes = 0;
            }
        }
        // Between two samples of a stretch there are those of fewer than twice as many groups.
        let shares = (UNPACKED_KEPT / 2 / largest).clamp(1, MOST_SLOTS);
        let steps = members / global_batch;
        let mut shuffle = Self {
            stretches,
            order,
            keys,
            stretch_starts,
            group_starts,
            slot_starts: vec![0],
            group_orders: Vec::new(),
            slot_orders: Vec::new(),
            shares,
            parts,
            each: global_batch / parts,
            steps,
        };
        let mut end = 0;
        for slot in 0..shuffle.groups() + shares - 1 {
            end += shuffle.shares_of(slot).map(|(_, share)| share.end - share.start).sum::<u64>();
            shuffle.slot_starts.push(end);
        }
        shuffle.group_orders.resize_with(shuffle.group_starts.len() - 1, OnceLock::new);
        shuffle.slot_orders.resize_with(shuffle.slot_starts.len() - 1, OnceLock::new);
        shuffle
    }

    fn groups(&self) -> u64 {
        self.group_starts.len() as u64 - 1
    }

    fn group_len(&self, group: u64) -> u64 {
        self.group_starts[group as usize + 1] - self.group_starts[group as usize]
    }

    /// The samples of a shuffled group that its `nth` slot is dealt.
    fn share(&self, group: u64, nth: u64) -> std::ops::Range<u64> {
        let len = self.group_len(group);
        len * nth / self.shares..len * (nth + 1) / self.shares
    }

    /// What a slot is dealt: of each group the samples.
    fn shares_of(&self, slot: u64) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> + '_ {
        let newest = slot.min(self.groups() - 1);
        let oldest = (slot + 1).saturating_sub(self.shares);
        (oldest..=newest).map(move |group| (group, self.share(group, slot - group)))
    }

    fn of_group(&self, group: u64) -> &Feistel {
        let make = || Feistel::new(&mut self.keys.groups.stream(group), self.group_len(group));
        self.group_orders[group as usize].get_or_init(make)
    }

    fn of_slot(&self, slot: usize) -> &Feistel {
        let len = self.slot_starts[slot + 1] - self.slot_starts[slot];
        let make = || Feistel::new(&mut self.keys.slots.stream(slot as u64), len);
        self.slot_orders[slot].get_or_init(make)
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
        let slot = self.slot_starts.partition_point(|&start| start <= place) - 1;
        let mut within = self.of_slot(slot).forward(place - self.slot_starts[slot]);
        for (group, share) in self.shares_of(slot as u64) {
            let len = share.end - share.start;
            if within < len {
                let among =
                    self.group_starts[group as usize] + self.of_group(group).forward(share.start + within);
                let number = self.stretch_starts.partition_point(|&start| start <= among) - 1;
                let stretch = self.order.sample(number as u64) as usize;
                return self.stretches.members_of(stretch).start + among - self.stretch_starts[number];
            }
            within -= len;
        }
        unreachable!("a slot has what it was dealt")
    }

    /// The place in the epoch of a member.
    pub(super) fn place(&self, member: u64) -> u64 {
        let stretch = self.stretches.with_member(member);
        let number = self.order.position(stretch as u64) as usize;
        let among = self.stretch_starts[number] + member - self.stretches.members_of(stretch).start;
        let group = self.group_starts.partition_point(|&start| start <= among) as u64 - 1;
        let dealt = self.of_group(group).backward(among - self.group_starts[group as usize]);
        let nth = (0..self.shares).find(|&nth| self.share(group, nth).contains(&dealt));
        let slot = group + nth.expect("the shares are all of a group");
        let before = self.shares_of(slot).take_while(|(other, _)| *other != group);
        let before: u64 = before.map(|(_, share)| share.end - share.start).sum();
        let within = before + dealt - self.share(group, slot - group).start;
        let slot = slot as usize;
        self.in_epoch(self.slot_starts[slot] + self.of_slot(slot).backward(within))
    }
}
