//! Mixes images in groups of four (rings): the worker that fills the last place of a group mixes the group and finishes
//! its places.
//!
//! Places 4k to 4k + 3 of an epoch are a group, which no assignment divides. What is drawn for mixing is a function of
//! (seed, epoch, global batch). (→ tests/load/mixing.rs)

use super::run::EpochRun;
use crate::batch::Ticket;
use crate::config::MixPlan;
use data::dataset::DatasetIndex;
use pixels::augment::cuda::RingParams;
use pixels::augment::{DrawnMix, RING, mix_images};
use std::sync::{Mutex, PoisonError};

/// A place of a batch that is filled except for what mixing changes.
pub(crate) struct FilledPlace {
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
    /// Finishes a place of a batch that is not mixed.
    pub(crate) fn finish(self, index: &DatasetIndex) {
        self.ticket.finish(self.sample, self.occurrence, index.label(self.sample), self.valid);
    }
}

/// The mixing groups of a batch. The places of a group wait here until the last of them is filled.
pub(crate) struct MixGroups {
    len: u32,
    waiting: Vec<Mutex<Vec<FilledPlace>>>,
}

impl MixGroups {
    /// Makes the groups of a batch of `len` places.
    pub(crate) fn new(len: u32) -> Self {
        Self { len, waiting: (0..len.div_ceil(RING)).map(|_| Mutex::default()).collect() }
    }

    /// Adds a filled place. The last place of a group mixes and finishes the whole group.
    pub(crate) fn finish(&self, run: &EpochRun, plan: &MixPlan, place: FilledPlace) {
        let ring = place.ticket.index() / RING;
        let ring_len = RING.min(self.len - ring * RING);
        let mut places = {
            let mut waiting = self.waiting[ring as usize].lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(place);
            if waiting.len() < ring_len as usize {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        places.sort_unstable_by_key(|place| place.ticket.index());
        let drawn = draw_mix(run, plan, &places);
        if let Some(drawn) = &drawn {
            for (number, output) in run.context.config.layout.images.iter().enumerate() {
                let valid = places.iter_mut().filter(|place| place.valid);
                let mut images: Vec<_> = valid.map(|place| place.ticket.image(number)).collect();
                mix_images(drawn, output, &mut images);
            }
        }
        finish_group(run, plan, places, drawn.as_ref());
    }
}

/// The filled places of a batch for a GPU. Their groups are mixed when all images of the batch are queued. All
/// sub-batches of the batch share it.
#[derive(Default)]
pub(crate) struct KeptPlaces(Mutex<Vec<FilledPlace>>);

impl KeptPlaces {
    /// Keeps a place until the batch's last one is filled.
    pub(crate) fn keep(&self, place: FilledPlace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }

    /// Finishes all places of the batch with mixed labels. Returns the groups whose images must be mixed.
    pub(crate) fn finish(&self, run: &EpochRun, plan: &MixPlan) -> Vec<RingParams> {
        let mut places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        places.sort_unstable_by_key(|place| place.ticket.index());
        let mut mixed = Vec::with_capacity(places.len().div_ceil(RING as usize));
        while !places.is_empty() {
            let rest = places.split_off(places.len().min(RING as usize));
            let ring = std::mem::replace(&mut places, rest);
            let drawn = draw_mix(run, plan, &ring);
            if let Some(drawn) = &drawn {
                let valid = ring.iter().filter(|place| place.valid);
                mixed.push(RingParams::new(valid.map(|place| place.ticket.index()), drawn));
            }
            finish_group(run, plan, ring, drawn.as_ref());
        }
        mixed
    }
}

/// Draws how a group is mixed. `None` if fewer than two of its places count, so that all stay unchanged.
fn draw_mix(run: &EpochRun, plan: &MixPlan, ring: &[FilledPlace]) -> Option<DrawnMix> {
    let mut valid = ring.iter().filter(|place| place.valid);
    let (first, _second) = (valid.next()?, valid.next()?);
    Some(plan.draw(run.mix_keys.as_ref()?, first.position, run.run_plan.global_batch()))
}

/// Finishes the places of a group. With `drawn`, the labels of the places that count are mixed.
fn finish_group(run: &EpochRun, plan: &MixPlan, ring: Vec<FilledPlace>, drawn: Option<&DrawnMix>) {
    let mut before = ring.iter().rev().find(|place| place.valid).map(|place| place.sample);
    for place in ring {
        let (partner, share) = match (drawn, before) {
            (Some(drawn), Some(before)) if place.valid => (before, drawn.share),
            _ => (place.sample, 1.0),
        };
        if place.valid {
            before = Some(place.sample);
        }
        let FilledPlace { mut ticket, sample, occurrence, valid, .. } = place;
        plan.labels.fill(&run.context.index, &mut ticket, (sample, partner), share);
        ticket.finish(sample, occurrence, plan.labels.class(&run.context.index, sample), valid);
    }
}
