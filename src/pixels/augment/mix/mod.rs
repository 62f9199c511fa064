//! MixUp and CutMix: what becomes of the finished images of a batch, and of their labels.
//!
//! An image is mixed with the one before it in a *ring* of [`RING`] places, the first with the last, as torchvision
//! mixes those of a batch. The draw is one for a global batch, by its number in the epoch. So neither threads nor ranks
//! can change what comes out. [`Mixing`] is the user's list, checked; [`Mixing::draw`] says what becomes of a batch,
//! and [`mix_images`] does it in place.

mod draw;
mod pixels;
mod request;

pub use draw::{DrawnMix, MixKeys, MixRegion};
pub use pixels::{MixWeights, mix_images};
pub use request::Mixing;
pub(super) use request::{CutMix, MixUp};

/// The places of a ring, which one rank has of each batch, but for fewer at the end of an epoch. Two would do for each
/// image to have a partner, but of such a pair both mixtures lie in one batch, and networks learn less from them: with
/// `alpha` 1 the one of `make accuracy-recipe` loses 1.3 points of accuracy.
pub const RING: u32 = 4;

/// The place that the one with number `place` of an epoch with so many is mixed with; itself if there is no other.
pub fn partner(place: u64, places: u64) -> u64 {
    let first = place - place % u64::from(RING);
    if place > first { place - 1 } else { places.min(first + u64::from(RING)) - 1 }
}
