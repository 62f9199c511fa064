//! Where the two samples of a pair meet: the worker that completes the second one mixes both and finishes their places.

use super::{EpochRun, PipelineShared};
use crate::augment::{DrawnMix, mix_images};
use crate::batch::Ticket;
use crate::config::MixPlan;
use crate::dataset::DatasetIndex;
use std::sync::{Mutex, PoisonError};

/// A place of a batch that is filled, but for what mixing changes.
pub(super) struct FilledPlace {
    pub ticket: Ticket,
    /// The position of the place in the epoch's order.
    pub position: u64,
    /// The sample whose image is there, and which of its draws it is.
    pub sample: u64,
    pub occurrence: u32,
    /// The element of the mask: whether the sample counts.
    pub valid: bool,
}

impl FilledPlace {
    /// Finishes a place of a batch in which nothing is mixed.
    pub(super) fn finish(self, index: &DatasetIndex) {
        self.ticket.finish(self.sample, self.occurrence, index.label(self.sample), self.valid);
    }
}

/// The pairs of a batch. Of each, the place that is filled first waits here for the other.
pub(super) struct PairBoard {
    len: u32,
    waiting: Vec<Mutex<Option<FilledPlace>>>,
}

impl PairBoard {
    /// A board for the pairs of a batch of `len` places. The last of an odd number has no partner.
    pub(super) fn new(len: u32) -> Self {
        Self { len, waiting: (0..len / 2).map(|_| Mutex::default()).collect() }
    }

    /// Finishes a place, together with its partner if that is here already, or else leaves it here for the partner.
    /// Without a partner it is finished alone.
    pub(super) fn finish(&self, shared: &PipelineShared, run: &EpochRun, plan: &MixPlan, place: FilledPlace) {
        let index = place.ticket.index();
        let Some(waiting) = self.waiting.get(index as usize / 2) else {
            debug_assert_eq!(index + 1, self.len, "the last place alone has no partner");
            return shared.finish_unmixed(plan, place);
        };
        let partner = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match waiting.take() {
                Some(partner) => partner,
                None => {
                    *waiting = Some(place);
                    return;
                }
            }
        };
        match index % 2 {
            0 => shared.finish_pair(run, plan, place, partner),
            _ => shared.finish_pair(run, plan, partner, place),
        }
    }
}

/// The filled places of a batch on the way to a GPU, whose pairs are mixed when all its images are queued. All pieces
/// of the batch share it.
#[derive(Default)]
pub(super) struct KeptPlaces(Mutex<Vec<FilledPlace>>);

/// What became of a pair: the place of its first image, and what was drawn.
pub(super) type PlacedMix = (u32, DrawnMix);

impl KeptPlaces {
    /// Keeps a place until the batch's last one is filled.
    pub(super) fn keep(&self, place: FilledPlace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }

    /// Finishes all places of the batch, with their labels mixed. Returns the pairs whose images are to be mixed.
    pub(super) fn finish(&self, shared: &PipelineShared, run: &EpochRun, plan: &MixPlan) -> Vec<PlacedMix> {
        let mut places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        places.sort_unstable_by_key(|place| place.ticket.index());
        let mut places = places.into_iter();
        let mut mixed = Vec::with_capacity(places.len() / 2);
        while let Some(first) = places.next() {
            let Some(second) = places.next() else {
                shared.finish_unmixed(plan, first);
                break;
            };
            let at = first.ticket.index();
            let drawn = shared.draw_mix(run, plan, &first, &second);
            shared.finish_both(plan, first, second, drawn.as_ref());
            mixed.extend(drawn.map(|drawn| (at, drawn)));
        }
        mixed
    }
}

impl PipelineShared {
    /// What becomes of a pair; `None` where one of its places does not count, so that both stay as they are.
    fn draw_mix(
        &self,
        run: &EpochRun,
        plan: &MixPlan,
        first: &FilledPlace,
        second: &FilledPlace,
    ) -> Option<DrawnMix> {
        let keys = run.mix_keys.as_ref().filter(|_| first.valid && second.valid)?;
        Some(plan.draw(keys, first.position, run.schedule.global_batch()))
    }

    /// Mixes the images and the labels of a pair, and finishes both places.
    fn finish_pair(&self, run: &EpochRun, plan: &MixPlan, mut first: FilledPlace, mut second: FilledPlace) {
        let drawn = self.draw_mix(run, plan, &first, &second);
        if let Some(drawn) = &drawn {
            for (number, output) in self.config.layout.images.iter().enumerate() {
                mix_images(drawn, output, first.ticket.image(number), second.ticket.image(number));
            }
        }
        self.finish_both(plan, first, second, drawn.as_ref());
    }

    /// Finishes both places of a pair, with their labels mixed as `drawn`.
    fn finish_both(&self, plan: &MixPlan, first: FilledPlace, second: FilledPlace, drawn: Option<&DrawnMix>) {
        let Some(drawn) = drawn else {
            self.finish_unmixed(plan, first);
            return self.finish_unmixed(plan, second);
        };
        let samples = (first.sample, second.sample);
        self.finish_mixed(plan, first, samples.1, drawn.share);
        self.finish_mixed(plan, second, samples.0, drawn.share);
    }

    fn finish_unmixed(&self, plan: &MixPlan, place: FilledPlace) {
        let sample = place.sample;
        self.finish_mixed(plan, place, sample, 1.0);
    }

    /// Finishes a place whose image is mixed with that of the sample `partner`; `share` of it is its own.
    fn finish_mixed(&self, plan: &MixPlan, place: FilledPlace, partner: u64, share: f64) {
        let FilledPlace { mut ticket, sample, occurrence, valid, .. } = place;
        plan.labels.fill(&self.index, &mut ticket, (sample, partner), share);
        ticket.finish(sample, occurrence, plan.labels.class(&self.index, sample), valid);
    }
}
