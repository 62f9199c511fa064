//! Decides which tier keeps a sample whose bytes have arrived.
//!
//! A sample is kept in one tier, so that the capacities of all tiers add up: in the fastest tier with free space. If no
//! tier has free space, a tier may evict samples whose next use is later than that of the new sample. There is one
//! exception: a tier with space for the whole dataset keeps every sample, for the next run, and faster tiers keep
//! second copies.

use super::super::copies::{CacheTier, Location, Offer};
use super::super::plan::Admission;
use super::Cache;
use base::locks::lock;
use base::parts::SummarizedBytes;
use data::dataset::{FileId, FileVersion};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// The index of a tier in the list of tiers that keep copies; 0 is the fastest.
pub(in crate::tier) type TierPlace = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tier) enum SampleOrigin {
    Source,
    /// The source, because the sample's owner node did not return the sample. The sample is not pushed to that node,
    /// which may already have it.
    SourceUnpushed,
    Copy(TierPlace),
}

/// The tiers to which an arrived sample is offered, unless another node owns the sample.
struct OfferTargets {
    /// One of the tiers with an index below this one must keep the sample. `None` if one of them already keeps it.
    single_copy_before: Option<TierPlace>,
    /// The tier with space for the whole dataset, which must keep the sample as well; `None` if there is no such tier.
    whole: Option<TierPlace>,
}

#[derive(Clone, Copy)]
struct ArrivedSample<'a> {
    sample: u64,
    bytes: &'a [u8],
    /// The version that the source file had before the sample was read.
    version: FileVersion,
}

impl Cache {
    /// Counts a sample that arrived from a tier or from the source, and keeps it according to the plans. `version` is
    /// the version that the source file had before the sample was read. A sample without a known version is not kept.
    pub(in crate::tier) fn arrived(
        &self,
        sample: u64,
        bytes: &[u8],
        origin: SampleOrigin,
        version: Option<FileVersion>,
    ) {
        let from = match origin {
            SampleOrigin::Copy(place) => Some(place),
            SampleOrigin::Source | SampleOrigin::SourceUnpushed => None,
        };
        match from {
            None => self.count_source_read(bytes.len()),
            Some(place) => self.count_hit(place, bytes.len()),
        }
        let Some(version) = version.filter(|_| self.may_keep(sample)) else { return };
        let sample = ArrivedSample { sample, bytes, version };
        let offer_targets = self.offer_targets(from);
        match self.responsible_tier(sample.sample) {
            // Push a sample from the source to its owner node. If the sample came from a tier, it was pushed earlier.
            Some(place) if origin == SampleOrigin::Source => {
                self.offer(place, 0, &sample);
            }
            Some(_) => {}
            None => {
                if let Some(end) = offer_targets.single_copy_before {
                    self.keep_in_one_tier(&sample, end, from.is_none());
                }
            }
        }
        if let Some(whole) = offer_targets.whole {
            self.offer(whole, 0, &sample);
        }
    }

    pub(in crate::tier) fn count_source_read(&self, bytes: usize) {
        self.counted.source_reads.fetch_add(1, Relaxed);
        self.counted.source_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(in crate::tier) fn count_hit(&self, place: TierPlace, bytes: usize) {
        let used = &self.tiers[place].used;
        used.hits.fetch_add(1, Relaxed);
        used.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn offer_targets(&self, from: Option<TierPlace>) -> OfferTargets {
        let whole = self.rules.whole();
        let end = whole.unwrap_or(self.tiers.len());
        // A copy stays in a tier that keeps samples. A tier that decides by next use may have kept the copy for this
        // use only.
        let stays = from.filter(|&place| self.keeps_first(place));
        OfferTargets {
            single_copy_before: stays.is_none_or(|place| place >= end).then_some(end),
            whole: whole.filter(|&whole| stays != Some(whole) && self.takes(whole)),
        }
    }

    /// Returns whether a sample that came from a tier is offered to another tier. If so, the whole sample must be read.
    fn is_kept_again(&self, sample: u64, place: TierPlace) -> bool {
        let OfferTargets { single_copy_before, whole } = self.offer_targets(Some(place));
        let any_takes = |end: TierPlace| (0..end).any(|place| self.takes(place));
        whole.is_some()
            || single_copy_before.is_some_and(any_takes) && self.responsible_tier(sample).is_none()
    }

    /// Returns the summary of the header of a packed copy at `location`, if it is known and no other tier needs the
    /// whole copy.
    pub(in crate::tier) fn header_summary(
        &self,
        sample: u64,
        place: TierPlace,
        location: &Location,
    ) -> Option<SummarizedBytes> {
        let header_summary = self.tier(place).parts().shared?.header_summary(sample, location)?;
        let length = location.extent.length;
        (!self.is_kept_again(sample, place)).then_some(SummarizedBytes { header_summary, length })
    }

    /// Returns the summary of the header of the copy from which a sample will be read, if reading only parts of that
    /// copy is allowed.
    pub fn summary_of_copy(&self, sample: u64) -> Option<SummarizedBytes> {
        let (place, location) = self.locate(sample)?;
        self.header_summary(sample, place, &location)
    }

    /// Offers a sample to the tiers before `end`, until one keeps it. If `new`, none of them has the sample; full tiers
    /// then get an offer, too, so that they count the sample as dropped.
    fn keep_in_one_tier(&self, sample: &ArrivedSample, end: TierPlace, new: bool) {
        let mut with_plans = Vec::new();
        for place in 0..end {
            if self.keeps_first(place) {
                if (new || self.takes(place)) && self.offer(place, 0, sample) {
                    return;
                }
            } else if self.takes(place) {
                match self.admit(place, sample, false) {
                    Admission::Admit { group } if self.offer(place, group, sample) => return,
                    Admission::Admit { .. } => {}
                    Admission::Bypass => with_plans.push(place),
                }
            }
        }
        if with_plans.len() > 1 {
            let plans = lock(&self.plans);
            let last = |place: TierPlace| Some(plans.get(place)?.as_ref()?.plan.last_group());
            with_plans.sort_by_key(|&place| Reverse(last(place)));
        }
        for place in with_plans {
            if let Admission::Admit { group } = self.admit(place, sample, true)
                && self.offer(place, group, sample)
            {
                return;
            }
        }
    }

    /// Returns whether a tier may take a sample: it has free space, or may evict samples.
    pub(in crate::tier) fn takes(&self, place: TierPlace) -> bool {
        let tier = self.tier(place);
        if self.keeps_first(place) { tier.is_open() } else { tier.can_take() }
    }

    /// Decides whether a tier that decides by next use keeps a sample: in free space or, if `evicting`, in place of
    /// other samples.
    fn admit(&self, place: TierPlace, sample: &ArrivedSample, evicting: bool) -> Admission {
        let mut plans = lock(&self.plans);
        let Some(Some(planned)) = plans.get_mut(place) else { return Admission::Bypass };
        let admission = planned.admit(sample.sample, sample.bytes.len() as u64, evicting);
        for group in planned.plan.take_evicted() {
            self.tier(place).parts().local.iter().for_each(|local| local.evict_group(group));
        }
        admission
    }

    fn offer(&self, place: TierPlace, group: u64, sample: &ArrivedSample) -> bool {
        matches!(self.offered(place, group, sample), Offer::Taken | Offer::Present)
    }

    fn offered(&self, place: TierPlace, group: u64, arrived_sample: &ArrivedSample) -> Offer {
        let ArrivedSample { sample, bytes, version } = *arrived_sample;
        let offer = self.tier(place).offer(group, sample, version, bytes);
        if offer == Offer::Full && !self.is_of_nodes(place) {
            self.lacks_room.store(true, Relaxed);
        }
        if offer == Offer::Taken {
            self.take(sample);
        } else if !self.keeps_first(place)
            && let Some(Some(planned)) = lock(&self.plans).get_mut(place)
        {
            // The plan has counted the sample as kept. Undo this, because the tier refused the sample or already has
            // it.
            planned.plan.lost(group, bytes.len() as u64);
        }
        offer
    }

    /// Returns the tier that represents the other nodes' caches, if one of these nodes owns the sample.
    pub(super) fn responsible_tier(&self, sample: u64) -> Option<TierPlace> {
        self.network.as_ref()?;
        let is_responsible =
            |tier: &dyn CacheTier| tier.parts().nodes.is_some_and(|nodes| nodes.is_responsible_for(sample));
        self.tiers().position(is_responsible)
    }

    pub(in crate::tier) fn owns(&self, sample: u64) -> bool {
        let owners = self.network.as_ref().filter(|_| sample < self.index.len());
        owners.is_some_and(|network| network.owners.owner(sample) == Some(network.own))
    }

    pub(in crate::tier) fn keeps_at_once(&self, sample: u64) -> bool {
        let length = self.index.extent(sample).length;
        self.local_tiers().all(|(_, local)| local.offers_at_once(0, length))
    }

    /// Offers a sample that another node has pushed to this node's tiers, until one keeps it.
    pub(in crate::tier) fn accept_push(&self, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let arrived_sample = ArrivedSample { sample, bytes, version };
        let mut answer = Offer::Full;
        for (place, _) in self.local_tiers() {
            match self.offered(place, 0, &arrived_sample) {
                offer @ (Offer::Taken | Offer::Present) => return offer,
                Offer::Full => {}
                offer => answer = offer,
            }
        }
        answer
    }

    /// Frees space for samples that this node owns, after an epoch in which some of them did not fit. Removes each
    /// segment of an earlier run if other nodes own at least a quarter of its samples. Its other samples must then be
    /// read again.
    pub(super) fn evict_samples_of_others(&self) {
        for (tier, shared) in self.tiers().filter_map(|tier| Some((tier, tier.parts().shared?))) {
            let mut of_file: HashMap<FileId, (u64, u64)> = HashMap::new();
            for (sample, location) in
                (0..self.index.len()).filter_map(|sample| Some((sample, tier.locate(sample)?)))
            {
                let (all, strange) = of_file.entry(location.extent.file).or_default();
                *all += 1;
                *strange += u64::from(!self.owns(sample));
            }
            let leaving = of_file.into_iter().filter(|(_, (all, strange))| 4 * strange >= *all);
            leaving.for_each(|(file, _)| shared.forget(file));
        }
    }

    pub(in crate::tier) fn keep_staged(&self, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let arrived_sample = ArrivedSample { sample, bytes, version };
        let whole = self.rules.whole();
        let mut answer = Offer::Full;
        for place in (0..self.tiers.len()).filter(|&place| self.fills_ahead(place)) {
            let wanted = answer != Offer::Taken || whole == Some(place);
            // Skip tiers that take nothing, except the slowest tier, which counts the samples that no tier takes.
            if !wanted || place + 1 < self.tiers.len() && !self.takes(place) {
                continue;
            }
            match self.offered(place, 0, &arrived_sample) {
                Offer::Taken => answer = Offer::Taken,
                offer @ (Offer::Present | Offer::Busy) if answer != Offer::Taken => return offer,
                _ => {}
            }
        }
        if answer == Offer::Taken {
            self.counted.staged_samples.fetch_add(1, Relaxed);
        } else {
            self.full.store(true, Relaxed);
        }
        answer
    }

    /// Returns whether a tier has the sample or has taken it in this epoch.
    pub(in crate::tier) fn knows(&self, sample: u64) -> bool {
        let taken = self.taken[(sample / 64) as usize].load(Relaxed) >> (sample % 64) & 1 == 1;
        taken || self.tiers.iter().any(|kept| kept.tier.locate(sample).is_some())
    }

    fn take(&self, sample: u64) {
        self.taken[(sample / 64) as usize].fetch_or(1 << (sample % 64), Relaxed);
    }
}
