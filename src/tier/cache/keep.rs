//! What becomes of a sample whose bytes are at hand: which tier keeps it, from the fastest to the slowest.
//!
//! Each sample is kept once, so that the rooms of all tiers add up: by the fastest tier that has room, else by the one
//! that gives up what is used last of all. Only where a slower tier has room for the whole dataset do faster ones keep
//! copies of what it has too: it is there in the next run, and they are not.

use super::super::copies::Offer;
use super::super::plan::Admission;
use super::Cache;
use crate::dataset::FileVersion;
use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

/// The place of a tier in the list of those that keep copies; 0 is the fastest.
pub(in crate::tier) type TierPlace = usize;

impl Cache {
    /// Counts a sample that has come from a tier, or else from the source, and has it kept as the plans want it.
    /// `version` is the version of its file before it was read; a sample whose version is unknown is not kept.
    pub(in crate::tier) fn arrived(
        &self,
        sample: u64,
        bytes: &[u8],
        from: Option<TierPlace>,
        version: Option<FileVersion>,
    ) {
        let (count, sum) = match from {
            None => (&self.counted.reads, &self.counted.bytes),
            Some(place) => (&self.tiers[place].used.hits, &self.tiers[place].used.bytes),
        };
        count.fetch_add(1, Relaxed);
        sum.fetch_add(bytes.len() as u64, Relaxed);
        if let Some(version) = version {
            self.keep(sample, bytes, from, version);
        }
    }

    fn keep(&self, sample: u64, bytes: &[u8], from: Option<TierPlace>, version: FileVersion) {
        let whole = self.plans().whole;
        // Where it came from it stays, unless it was kept for this use alone. Faster tiers may have a copy, too.
        let stays = from.filter(|&place| self.keeps_first(place));
        let end = match stays {
            Some(place) if whole == Some(place) => place,
            Some(_) => return,
            None => self.tiers.len(),
        };
        for evicting in [false, true] {
            let mut kept_above = false;
            for place in self.order(end, evicting) {
                let no_room = stays.is_some() && !self.takes(place);
                if no_room || kept_above && whole != Some(place) {
                    continue;
                }
                match self.admit(place, sample, bytes.len() as u64, evicting) {
                    Admission::Bypass => {}
                    Admission::Admit { group } => match self.offer(place, group, sample, version, bytes) {
                        Offer::Taken | Offer::Present => kept_above = true,
                        Offer::Full | Offer::Busy | Offer::Off => {}
                    },
                }
                if kept_above && whole.is_none_or(|whole| whole <= place) {
                    return;
                }
            }
            if kept_above {
                return;
            }
        }
    }

    /// Whether a tier may take a sample: it has room, or may make some.
    pub(in crate::tier) fn takes(&self, place: TierPlace) -> bool {
        !self.keeps_first(place) || self.tiers[place].tier.is_open()
    }

    /// The order in which tiers before `end` are asked: the fastest first, or where something is to leave for it, the
    /// one first that holds what is used last.
    fn order(&self, end: TierPlace, evicting: bool) -> Vec<TierPlace> {
        let mut order: Vec<TierPlace> = (0..end).collect();
        if evicting {
            let plans = self.plans();
            let plan = |place: TierPlace| plans.tiers.get(place).and_then(Option::as_ref);
            let last = |place| plan(place).and_then(|planned| planned.plan.last_group());
            order.retain(|&place| plan(place).is_some());
            order.sort_by_key(|&place| Reverse(last(place)));
        }
        order
    }

    /// Decides whether a tier keeps a sample, beside all that it holds or by `evicting` some of it.
    fn admit(&self, place: TierPlace, sample: u64, bytes: u64, evicting: bool) -> Admission {
        let mut plans = self.plans();
        let Some(Some(planned)) = plans.tiers.get_mut(place) else {
            // It is filled with what comes first, and then it stops.
            return if evicting { Admission::Bypass } else { Admission::Admit { group: 0 } };
        };
        let admission = planned.admit(sample, bytes, evicting);
        for group in planned.plan.take_evicted() {
            self.tiers[place].tier.evict_group(group);
        }
        admission
    }

    /// Offers an admitted sample to a tier.
    fn offer(&self, place: TierPlace, group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let offer = self.tiers[place].tier.offer(group, sample, version, bytes);
        if offer == Offer::Taken {
            self.take(sample);
        } else if let Some(Some(planned)) = self.plans().tiers.get_mut(place) {
            // What is there already has been counted.
            planned.plan.lost(group, bytes.len() as u64);
        }
        offer
    }

    /// Offers a staged sample to the tiers that are filled with what comes first.
    pub(in crate::tier) fn keep_staged(&self, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let whole = self.plans().whole;
        let mut answer = Offer::Full;
        for place in 0..self.tiers.len() {
            let wanted = answer != Offer::Taken || whole == Some(place);
            if !self.keeps_first(place) || !wanted {
                continue;
            }
            match self.offer(place, 0, sample, version, bytes) {
                Offer::Taken => answer = Offer::Taken,
                offer @ (Offer::Present | Offer::Busy) if answer != Offer::Taken => return offer,
                _ => {}
            }
            if answer == Offer::Taken && whole.is_none_or(|whole| whole <= place) {
                break;
            }
        }
        match answer {
            Offer::Taken => {
                self.counted.staged_samples.fetch_add(1, Relaxed);
            }
            // Bytes that cannot be kept need not be read ahead.
            _ => self.full.store(true, Relaxed),
        }
        answer
    }

    /// Whether a sample is kept or on its way there.
    pub(in crate::tier) fn knows(&self, sample: u64) -> bool {
        let taken = self.taken[(sample / 64) as usize].load(Relaxed) >> (sample % 64) & 1 == 1;
        taken || self.tiers.iter().any(|kept| kept.tier.locate(sample).is_some())
    }

    fn take(&self, sample: u64) {
        self.taken[(sample / 64) as usize].fetch_or(1 << (sample % 64), Relaxed);
    }
}
