//! MixUp and CutMix: mixes the finished images of a batch and their labels.
//!
//! Each image is mixed with the image before it in a mixing group of four ([`MIX_GROUP_SIZE`] places), and the first
//! image with the last, as torchvision mixes the images of a batch. Positions 4k to 4k + 3 of an epoch are a group, and
//! no assignment of samples to ranks splits a group. The parameters are drawn once for a global batch, from (seed,
//! epoch, global batch). So neither threads nor ranks change the result (→ `tests/load/mixing.rs`).
//!
//! [`Mixing`] is the user's list, checked. [`Mixing::draw`] draws the parameters of a batch, and [`mix_images`] mixes
//! in place.

mod draw;
mod pixels;
mod request;

pub use draw::{DrawnMix, MixKeys, MixRegion};
pub use pixels::{MixWeights, mix_images};
pub use request::Mixing;
pub(super) use request::{CutMix, MixUp};

/// The number of images of a mixing group. One rank has all images of a group in one batch; the last group of an epoch
/// may have fewer images. In groups of two, each image would have a partner, too. But then a batch would have both
/// mixtures of the same two images, and networks learn less from them: with `alpha` 1, the network of `make
/// accuracy-recipe` loses 1.3 percentage points of accuracy.
pub const MIX_GROUP_SIZE: u32 = 4;

/// Returns the index in the epoch of the image that is mixed into the image at index `place`. The epoch has `places`
/// images. Returns `place` if that image is alone in its group.
pub fn partner(place: u64, places: u64) -> u64 {
    let first = place - place % u64::from(MIX_GROUP_SIZE);
    if place > first { place - 1 } else { places.min(first + u64::from(MIX_GROUP_SIZE)) - 1 }
}
