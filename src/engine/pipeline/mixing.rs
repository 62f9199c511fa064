//! Mixes images in groups of four: the worker that makes the last image of a group mixes the group.
//!
//! Images 4k to 4k + 3 of an epoch are a group. All images of a group go to the same rank. The random mix of a group is
//! a function of (seed, epoch, global batch). (→ tests/load/mixing.rs)

use super::run::EpochRun;
use crate::batch::Ticket;
use crate::config::MixPlan;
use data::dataset::DatasetIndex;
use data::schedule::Draw;
use pixels::augment::cuda::MixGroupParams;
use pixels::augment::{DrawnMix, MIX_GROUP_SIZE, mix_images};
use std::sync::{Mutex, PoisonError};

/// A place of a batch that is filled, but whose image and label mixing may still change.
pub(crate) struct FilledPlace {
    pub ticket: Ticket,
    pub position: u64,
    /// The draw that fills the place. If its sample has failed, this is the draw of the substitute.
    pub draw: Draw,
    pub valid: bool,
}

impl FilledPlace {
    pub(crate) fn finish(self, index: &DatasetIndex) {
        let Draw { sample, occurrence } = self.draw;
        self.ticket.finish(sample, occurrence, index.label(sample), self.valid);
    }
}

/// The mixing groups of a batch. Keeps the filled places of a group until its last place is filled.
pub(crate) struct MixGroups {
    len: u32,
    waiting: Vec<Mutex<Vec<FilledPlace>>>,
}

impl MixGroups {
    pub(crate) fn new(len: u32) -> Self {
        Self { len, waiting: (0..len.div_ceil(MIX_GROUP_SIZE)).map(|_| Mutex::default()).collect() }
    }

    /// Adds a filled place. The last place of a group mixes and finishes the whole group.
    pub(crate) fn finish(&self, run: &EpochRun, plan: &MixPlan, place: FilledPlace) {
        let group = place.ticket.index() / MIX_GROUP_SIZE;
        let group_len = MIX_GROUP_SIZE.min(self.len - group * MIX_GROUP_SIZE);
        let mut places = {
            let mut waiting = self.waiting[group as usize].lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(place);
            if waiting.len() < group_len as usize {
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

/// The filled places of a batch for a GPU, shared by all sub-batches of the batch. Their groups are mixed when all
/// images of the batch are queued.
#[derive(Default)]
pub(crate) struct FilledPlaces(Mutex<Vec<FilledPlace>>);

impl FilledPlaces {
    pub(crate) fn keep(&self, place: FilledPlace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }

    /// Finishes all places of the batch with mixed labels. Returns the groups whose images must be mixed.
    pub(crate) fn finish(&self, run: &EpochRun, plan: &MixPlan) -> Vec<MixGroupParams> {
        let mut places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        places.sort_unstable_by_key(|place| place.ticket.index());
        let mut mixed = Vec::with_capacity(places.len().div_ceil(MIX_GROUP_SIZE as usize));
        while !places.is_empty() {
            let rest = places.split_off(places.len().min(MIX_GROUP_SIZE as usize));
            let group = std::mem::replace(&mut places, rest);
            let drawn = draw_mix(run, plan, &group);
            if let Some(drawn) = &drawn {
                let valid = group.iter().filter(|place| place.valid);
                mixed.push(MixGroupParams::new(valid.map(|place| place.ticket.index()), drawn));
            }
            finish_group(run, plan, group, drawn.as_ref());
        }
        mixed
    }
}

/// Draws how a group is mixed. `None` if fewer than two of its samples are valid, so that all places stay unchanged.
fn draw_mix(run: &EpochRun, plan: &MixPlan, group: &[FilledPlace]) -> Option<DrawnMix> {
    let mut valid = group.iter().filter(|place| place.valid);
    let (first, _second) = (valid.next()?, valid.next()?);
    Some(plan.draw(run.mix_keys.as_ref()?, first.position, run.run_plan.global_batch()))
}

/// Finishes the places of a group. With `drawn`, the labels of the valid samples are mixed.
fn finish_group(run: &EpochRun, plan: &MixPlan, group: Vec<FilledPlace>, drawn: Option<&DrawnMix>) {
    let mut before = group.iter().rev().find(|place| place.valid).map(|place| place.draw.sample);
    for place in group {
        let (partner, share) = match (drawn, before) {
            (Some(drawn), Some(before)) if place.valid => (before, drawn.share),
            _ => (place.draw.sample, 1.0),
        };
        if place.valid {
            before = Some(place.draw.sample);
        }
        let FilledPlace { mut ticket, draw: Draw { sample, occurrence }, valid, .. } = place;
        plan.labels.fill(&run.context.index, &mut ticket, (sample, partner), share);
        ticket.finish(sample, occurrence, plan.labels.class(&run.context.index, sample), valid);
    }
}
