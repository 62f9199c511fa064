//! Policies: transforms that draw operations, and the strength of each operation, from a table.

mod augmix;
mod auto_augment;
mod magnitudes;
mod rand_augment;
mod timm;

/// Defines an enum of operations, and the list `ALL` of its variants in the given order. Policies draw random indices
/// of the list, so the order decides which operations a seed draws.
macro_rules! operations {
    ($visibility:vis $type:ident: $($name:ident),+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $type {
            $($name),+
        }

        impl $type {
            $visibility const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}
use operations;

pub(super) use augmix::AugMix;
pub(super) use auto_augment::AutoAugment;
pub(super) use rand_augment::{RandAugment, TrivialAugmentWide};
pub(super) use timm::TimmRandAugment;
