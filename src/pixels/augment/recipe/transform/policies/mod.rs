//! Policies: transforms that draw operations, and the strength of each operation, from a table.

mod augmix;
mod auto_augment;
mod magnitudes;
mod rand_augment;
mod timm;

pub(super) use augmix::AugMix;
pub(super) use auto_augment::AutoAugment;
pub(super) use rand_augment::{RandAugment, TrivialAugmentWide};
pub(super) use timm::TimmRandAugment;
