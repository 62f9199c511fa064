//! Where the two samples of a pair meet: the worker that completes the second one mixes both and finishes their places.

use super::{EpochRun, PipelineShared};
use crate::augment::{DrawnMix, mix_images};
use crate::batch::Ticket;
use crate::config::MixPlan;
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

impl PipelineShared {
    /// What becomes of a pair, of which the first place is at `position`, where both places are `valid`.
    pub(super) fn draw_mix(&self, run: &EpochRun, plan: &MixPlan, position: u64, valid: bool) -> DrawnMix {
        match run.mix_keys.as_ref().filter(|_| valid) {
            Some(keys) => plan.mixing.draw(keys, position / 2, plan.size),
            None => DrawnMix::NOTHING,
        }
    }

    /// Mixes the images and the labels of a pair, and finishes both places. A pair of which one place does not count
    /// stays as it is.
    fn finish_pair(&self, run: &EpochRun, plan: &MixPlan, mut first: FilledPlace, mut second: FilledPlace) {
        if !(first.valid && second.valid) {
            self.finish_unmixed(plan, first);
            return self.finish_unmixed(plan, second);
        }
        let drawn = self.draw_mix(run, plan, first.position, true);
        for (number, output) in self.config.layout.images.iter().enumerate() {
            mix_images(&drawn, output, first.ticket.image(number), second.ticket.image(number));
        }
        let samples = (first.sample, second.sample);
        self.finish_mixed(plan, first, samples.1, drawn.share);
        self.finish_mixed(plan, second, samples.0, drawn.share);
    }

    fn finish_unmixed(&self, plan: &MixPlan, place: FilledPlace) {
        let sample = place.sample;
        self.finish_mixed(plan, place, sample, DrawnMix::NOTHING.share);
    }

    /// Finishes a place whose image is mixed with that of the sample `partner`; `share` of it is its own.
    pub(super) fn finish_mixed(&self, plan: &MixPlan, place: FilledPlace, partner: u64, share: f64) {
        let FilledPlace { mut ticket, sample, occurrence, valid, .. } = place;
        plan.labels.fill(&self.index, &mut ticket, (sample, partner), share);
        ticket.finish(sample, occurrence, plan.labels.class(&self.index, sample), valid);
    }
}
