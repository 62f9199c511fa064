//! Which samples an epoch draws, and how often each. Pure.
//!
//! Samples of equal weight form a *stratum*. Draws are distributed to strata by stratified sampling (Cochran, "Sampling
//! Techniques", 1977, chapter 5). An epoch's draws are cut into equal slices, one number is drawn in each slice, and it
//! falls into the share of one stratum. This is unbiased, and closer to the weights than independent draws: a stratum's
//! number of draws differs from its share by less than two. Within a stratum, draws go in rounds, so the numbers of
//! draws of two samples differ by at most one. With one stratum and as many draws as samples, every sample is drawn
//! once. Nothing is stored per draw: draw → sample takes a search among the strata.

use super::permutation::Feistel;
use base::rng::RandomKey;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// The samples that an epoch draws from, with their shares of the draws. Queries are cheap for any epoch length.
#[derive(Debug)]
pub struct Selection {
    samples: u64,
    draws: u64,
    /// Members, one stratum after another; `None` for all samples of the dataset in one stratum.
    members: Option<Vec<u32>>,
    strata: Vec<Stratum>,
    digest: Option<[u8; 32]>,
    /// Index of each sample in the list of members, or [`ABSENT`]. Made on first use.
    places: OnceLock<Vec<u32>>,
}

/// The end of a stratum in the list of members, and the share of the draws that this stratum and all strata before it
/// have. The last share is 1.
#[derive(Debug, Clone, Copy)]
struct Stratum {
    members: u64,
    share: f64,
}

/// A sample, and the index of a draw among the sample's draws. Each draw of a sample is augmented differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The sample.
    pub sample: u64,
    /// Index among the sample's draws, from 0. A draw with a higher index may have an earlier position.
    pub occurrence: u32,
}

impl Draw {
    /// Returns the first draw of a sample.
    pub fn first(sample: u64) -> Self {
        Self { sample, occurrence: 0 }
    }
}

/// Keys for the random numbers of one epoch's draws.
#[derive(Debug, Clone)]
pub(super) struct DrawKeys {
    /// Key for the random number that is drawn in each slice.
    pub slices: RandomKey,
    /// Key for choosing the samples that the last, incomplete round of a stratum draws.
    pub rounds: RandomKey,
}

/// The draws of one stratum in an epoch, as ranges of draws and of members.
struct StratumDraws {
    /// Index of the first draw.
    first: u64,
    draws: u64,
    /// Index of the first member.
    begin: u64,
    members: u64,
}

/// Value in `Selection::places` for a sample that is not a member.
const ABSENT: u32 = u32::MAX;

impl Selection {
    /// Selects every sample of a dataset, once an epoch.
    pub fn all(samples: u64) -> Self {
        let strata = vec![Stratum { members: samples, share: 1.0 }];
        Self { samples, draws: samples, members: None, strata, digest: None, places: OnceLock::new() }
    }

    /// Selects these `members` of a dataset's `samples`, each once an epoch. A sequential order takes the members as
    /// listed.
    ///
    /// # Panics
    /// Panics if a member is not below `samples`, or if there are no members.
    pub fn listed(samples: u64, members: Vec<u32>) -> Self {
        Self::of_strata(samples, vec![(1.0, members)])
    }

    /// Selects strata of samples, each with its weight. The draws are divided among strata by weight, and evenly within
    /// a stratum. An epoch has as many draws as there are members.
    ///
    /// # Panics
    /// Panics if a weight is not above 0, a stratum is empty, or a sample is not among the dataset's `samples`.
    pub fn of_strata(samples: u64, strata: Vec<(f64, Vec<u32>)>) -> Self {
        assert!(
            !strata.is_empty() && strata.iter().all(|(weight, members)| *weight > 0.0 && !members.is_empty())
        );
        let total: f64 = strata.iter().map(|(weight, _)| weight).sum();
        let (mut members, mut ends, mut share) = (Vec::new(), Vec::with_capacity(strata.len()), 0.0);
        for (weight, of_stratum) in strata {
            assert!(of_stratum.iter().all(|sample| u64::from(*sample) < samples));
            members.extend(of_stratum);
            share += weight;
            ends.push(Stratum { members: members.len() as u64, share: share / total });
        }
        if let Some(last) = ends.last_mut() {
            last.share = 1.0;
        }
        let draws = members.len() as u64;
        let mut selection = Self {
            samples,
            draws,
            members: Some(members),
            strata: ends,
            digest: None,
            places: OnceLock::new(),
        };
        selection.digest = selection.hash();
        selection
    }

    /// Sets the number of draws of an epoch.
    ///
    /// # Panics
    /// Panics if `draws` is 0.
    pub fn with_draws(mut self, draws: u64) -> Self {
        assert!(draws > 0);
        self.draws = draws;
        self.digest = self.hash();
        self
    }

    /// Returns the number of draws of an epoch.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Returns the number of samples that can be drawn.
    pub fn members(&self) -> u64 {
        self.members.as_ref().map_or(self.samples, |members| members.len() as u64)
    }

    /// Returns the member with this index.
    ///
    /// # Panics
    /// Panics if `index` is not below [`Selection::members`].
    pub fn member(&self, index: u64) -> u64 {
        self.members.as_ref().map_or(index, |members| u64::from(members[index as usize]))
    }

    /// Whether `sample` is one of the members.
    pub fn contains(&self, sample: u64) -> bool {
        self.place_of(sample).is_some()
    }

    /// Whether some samples are drawn more often than others.
    pub fn is_weighted(&self) -> bool {
        self.strata.len() > 1
    }

    /// Whether an epoch may draw a sample more than once.
    pub fn repeats(&self) -> bool {
        self.is_weighted() || self.draws > self.members()
    }

    /// Returns a hash of everything that differs from [`Selection::all`]; `None` if nothing does.
    pub fn digest(&self) -> Option<&[u8; 32]> {
        self.digest.as_ref()
    }

    fn hash(&self) -> Option<[u8; 32]> {
        if self.members.is_none() && self.draws == self.samples {
            return None;
        }
        let mut hash = Sha256::new();
        hash.update(b"foreload selection");
        hash.update(self.draws.to_le_bytes());
        for Stratum { members, share } in &self.strata {
            hash.update(members.to_le_bytes());
            hash.update(share.to_le_bytes());
        }
        for sample in self.members.iter().flatten() {
            hash.update(sample.to_le_bytes());
        }
        Some(hash.finalize().into())
    }

    /// Returns the draw with index `number` in an epoch. Without `keys` there must be one stratum, drawn in order.
    pub(super) fn draw(&self, number: u64, keys: Option<&DrawKeys>) -> Draw {
        if self.digest.is_none() {
            return Draw::first(number);
        }
        let stratum = self.stratum_of(number, keys);
        let drawn = self.drawn(stratum, keys);
        let (round, mut index) =
            ((number - drawn.first) / drawn.members, (number - drawn.first) % drawn.members);
        if round == drawn.draws / drawn.members
            && let Some(chosen) = drawn.chosen(stratum, keys)
        {
            index = chosen.forward(index);
        }
        Draw { sample: self.member(drawn.begin + index), occurrence: round as u32 }
    }

    /// Returns the indexes of the draws that give `sample`, unordered.
    pub(super) fn draws_of(&self, sample: u64, keys: Option<&DrawKeys>) -> impl Iterator<Item = u64> + use<> {
        let (first, stride, rounds, last) = match self.place_of(sample) {
            None => (0, 0, 0, None),
            Some(_) if self.digest.is_none() => (sample, 0, 1, None),
            Some(place) => {
                let stratum = self.strata.partition_point(|stratum| stratum.members <= place);
                let drawn = self.drawn(stratum, keys);
                let index = place - drawn.begin;
                let (rounds, rest) = (drawn.draws / drawn.members, drawn.draws % drawn.members);
                let chosen = drawn.chosen(stratum, keys).map_or(index, |chosen| chosen.backward(index));
                let last = (chosen < rest).then_some(drawn.first + rounds * drawn.members + chosen);
                (drawn.first + index, drawn.members, rounds, last)
            }
        };
        (0..rounds).map(move |round| first + round * stride).chain(last)
    }

    fn stratum_of(&self, number: u64, keys: Option<&DrawKeys>) -> usize {
        let Some(keys) = keys.filter(|_| self.is_weighted()) else { return 0 };
        let at = self.stratum_point(number, keys);
        self.strata.partition_point(|stratum| stratum.share <= at).min(self.strata.len() - 1)
    }

    /// Returns the number between 0 and 1 that a draw hits: a random point in the draw's slice.
    fn stratum_point(&self, number: u64, keys: &DrawKeys) -> f64 {
        (number as f64 + keys.slices.stream(number).unit()) / self.draws as f64
    }

    fn drawn(&self, stratum: usize, keys: Option<&DrawKeys>) -> StratumDraws {
        let begin = stratum.checked_sub(1).map_or(0, |before| self.strata[before].members);
        let first = self.first(stratum, keys);
        let draws = self.first(stratum + 1, keys) - first;
        StratumDraws { first, draws, begin, members: self.strata[stratum].members - begin }
    }

    /// Returns the first draw that falls into `stratum` or a later one.
    fn first(&self, stratum: usize, keys: Option<&DrawKeys>) -> u64 {
        let Some(before) = stratum.checked_sub(1) else { return 0 };
        if stratum == self.strata.len() {
            return self.draws;
        }
        let keys = keys.expect("a sequential order has one stratum");
        let share = self.strata[before].share;
        // Start in the slice that contains the end of the share. Rounding may give the slice next to it.
        let mut number = ((share * self.draws as f64) as u64).saturating_sub(1);
        while number < self.draws && self.stratum_point(number, keys) < share {
            number += 1;
        }
        number
    }

    /// Returns the index of `sample` in the list of members; `None` if it is not a member.
    fn place_of(&self, sample: u64) -> Option<u64> {
        let Some(members) = &self.members else { return (sample < self.samples).then_some(sample) };
        let places = self.places.get_or_init(|| {
            let mut places = vec![ABSENT; self.samples as usize];
            for (place, sample) in (0..).zip(members) {
                places[*sample as usize] = place;
            }
            places
        });
        places.get(sample as usize).copied().filter(|place| *place != ABSENT).map(u64::from)
    }
}

impl StratumDraws {
    /// Returns a permutation of the stratum's members, if its last round is incomplete and the choice is random. That
    /// round draws the first members of this permutation.
    fn chosen(&self, stratum: usize, keys: Option<&DrawKeys>) -> Option<Feistel> {
        let keys = keys.filter(|_| self.members > 1 && !self.draws.is_multiple_of(self.members))?;
        Some(Feistel::new(&mut keys.rounds.stream(stratum as u64), self.members))
    }
}
